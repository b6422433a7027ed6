{#- Copy one strided view to another of the same shape. Each invocation copies units of 1, 2 or 4 bytes. Units that share
    a 32-bit word with others are written by atomic operations, which leave the others' bits as they are.
    in:  source: unit (i0, i1, …) of the view is at source_first + i0 * source_stride0 + …
    out: destination: the same unit is at first + i0 * stride0 + …
    Values: workgroup_size; steps: units that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the views. -#}
{% from "arrays/copy_unit.wgsl" import copy_unit with context %}
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
    // Several units, so that several loads are under way. Neighbours take neighbouring units.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * STEPS) + invocation;
    for (var i = 0u; i < STEPS; i++) {
        copy_unit(begin + i * WORKGROUP_SIZE);
    }
}

fn copy_unit(number: u32) {
    if (number >= call.units) {
        return;
    }
    var rest = number;
    var at = call.source_first;
    var place = call.first;
{% for axis in range(rank - 1, 0, -1) %}
    at += (rest % call.size{{ axis }}) * call.source_stride{{ axis }};
    place += (rest % call.size{{ axis }}) * call.stride{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
    at += rest * call.source_stride0;
    place += rest * call.stride0;
    {{ copy_unit("source", "at", "destination", "place") }}
}
