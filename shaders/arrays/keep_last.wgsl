{#- Drop all but the last of equal flat indices, so that the last value of each is the one that is put there.
    in:  ordered: the flat indices in order; order: where each of them was, ascending among equal ones
    out: flat_indices: NO_INDEX where a later one is equal
    Values: workgroup_size. -#}
struct Call {
    count: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const NO_INDEX = 0xffffffffu;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> ordered: array<u32>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> flat_indices: array<u32>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let i = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (i + 1u < call.count && ordered[i] == ordered[i + 1u]) {
        flat_indices[order[i]] = NO_INDEX;
    }
}
