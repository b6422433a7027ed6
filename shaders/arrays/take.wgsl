{#- Take the elements of an array at flat indices of some of its axes. Each invocation assembles words of the result
    from units of 1, 2 or 4 bytes.
    in:  source, of any strides; flat_indices: numbers of rows of the indexed axes, in C order
    out: result, in C order; zeros where there is no index
    Values: workgroup_size; words: that an invocation assembles; unit: bytes, 1, 2 or 4; rank, indexed: see
        arrays/indexed_units.wgsl. -#}
{% set other = False %}
const WORKGROUP_SIZE = {{ workgroup_size }}u;
const WORDS = {{ words }}u;  // that an invocation assembles

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read> flat_indices: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

{% include "arrays/units.wgsl" %}
{% include "arrays/indexed_units.wgsl" %}

// Return the unit of the source that belongs at this position of the result.
fn unit_at(number: u32) -> u32 {
    let unit = unit_of_result(number);
    if (!unit.exists) {
        return 0u;
    }
    return unit_of_source(unit.at);
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Neighbours take neighbouring words. All loads of an invocation come before its stores, so that they are under way
    // together.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * WORDS) + invocation;
    let end = (call.units - 1u) / UNITS + 1u;
{% for i in range(words) %}
    let word{{ i }} = begin + {{ i }}u * WORKGROUP_SIZE;
    let bits{{ i }} = word_at(min(word{{ i }}, end - 1u) * UNITS, call.units);
{% endfor %}
{% for i in range(words) %}
    if (word{{ i }} < end) {
        result[word{{ i }}] = bits{{ i }};
    }
{% endfor %}
}
