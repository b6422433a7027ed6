{#- Copy one strided view to another of the same shape. Each invocation copies units of 1, 2 or 4 bytes. Units that
    share a 32-bit word with others are written by atomic operations, which leave the others' bits as they are.
    in:  source: unit (i0, i1, …) of the view is at source_first + i0 * source_stride0 + …
    out: destination: the same unit is at first + i0 * stride0 + …
    Values: workgroup_size; steps: units that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the views. -#}
{% from "arrays/store_unit.wgsl" import store_unit with context %}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
struct Call {
    source_first: u32,  // the views' first units
    first: u32,
    units: u32,  // in a view
    unused: u32,
{% for axis in range(rank) %}
    size{{ axis }}: u32,
    source_stride{{ axis }}: u32,  // may be negative: arithmetic wraps
    stride{{ axis }}: u32,
{% endfor %}
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const STEPS = {{ steps }}u;  // units that an invocation copies
const UNITS = {{ 4 // unit }}u;  // in a word

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> destination: array<{{ "u32" if unit == 4 else "atomic<u32>" }}>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Neighbours take neighbouring units. All loads of an invocation come before its stores, so that they are under way
    // together: a compiler cannot know that the two arrays do not overlap.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * STEPS) + invocation;
{% for step in range(steps) %}
    let number{{ step }} = begin + {{ step }}u * WORKGROUP_SIZE;
    let offsets{{ step }} = offsets_of(min(number{{ step }}, call.units - 1u));
    let bits{{ step }} = {{ unit_of("source", "offsets%d.source" % step) }};
{% endfor %}
{% for step in range(steps) %}
    if (number{{ step }} < call.units) {
        {{ store_unit("offsets%d.destination" % step, "bits%d" % step) | indent(4) }}
    }
{% endfor %}
}

struct Offsets {
    source: u32,
    destination: u32,
}

// Return the offsets of the unit with this number in C order.
fn offsets_of(number: u32) -> Offsets {
    var rest = number;
    var offsets = Offsets(call.source_first, call.first);
{% for axis in range(rank - 1, 0, -1) %}
    let i{{ axis }} = rest % call.size{{ axis }};
    offsets.source += i{{ axis }} * call.source_stride{{ axis }};
    offsets.destination += i{{ axis }} * call.stride{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
    offsets.source += rest * call.source_stride0;
    offsets.destination += rest * call.stride0;
    return offsets;
}
