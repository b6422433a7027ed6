{#- Turn the indices of an axis into flat indices, check them, and join them with those of the axes before.
    Labels of groups are checked in the same way: each is an index, and a missing or wrong one gets the index after the
    last.
    in:  indices: of any integer type; negative ones count from the axis's end; flat_indices, unless `first`
    out: flat_indices: numbers of rows of all indexed axes together, in C order, or NO_INDEX; validation_flag: what is
         wrong until it is cleared
    Values: workgroup_size; scalar: the type of the indices; first: True for the first axis that is indexed; labels:
         True for labels, which do not count from the end. -#}
struct Call {
    count: u32,
    length: u32,  // of the axis
}

struct ValidationFlag {
    above: atomic<u32>,  // the largest index that is not below the length; 0 if there is none
    below: atomic<u32>,  // the same for negative ones, counted down from 0; 0 if there is none
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
// Stands for an index that the axis does not have.
const NO_INDEX = 0xffffffffu;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> flat_indices: array<u32>;
@group(0) @binding(3) var<storage, read_write> validation_flag: ValidationFlag;

{% from "shared/indices.wgsl" import index_at with context %}
{{ index_at("indices", scalar) }}
{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let i = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (i >= call.count) {
        return;
    }
    let index = index_at(i);
{% if labels %}
    if (index.negative & (index.size == 1u)) {  // it is missing
        flat_indices[i] = call.length;
        return;
    }
    let right = !index.negative & (index.size < call.length);
{% else %}
    let right = select(index.size < call.length, index.size <= call.length, index.negative);
{% endif %}
    if (!right) {
        if (index.negative) {
            atomicMax(&validation_flag.below, index.size);
        } else {
            atomicMax(&validation_flag.above, index.size);
        }
        flat_indices[i] = {{ "call.length" if labels else "NO_INDEX" }};
        return;
    }
    let own_index = select(index.size, call.length - index.size, index.negative);
{% if first %}
    flat_indices[i] = own_index;
{% else %}
    let before = flat_indices[i];
    flat_indices[i] = select(before * call.length + own_index, NO_INDEX, before == NO_INDEX);
{% endif %}
}
