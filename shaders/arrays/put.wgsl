{#- Put elements into an array at flat indices of some of its axes. Each invocation writes units of 1, 2 or 4 bytes.
    Units that share a 32-bit word with others are written by atomic operations, which leave the others' bits as they
    are.
    in:  values, of any strides; flat_indices: numbers of rows of the indexed axes, in C order; equal ones have equal
         values
    out: destination, of any strides; nothing is written where there is no index
    Values: workgroup_size; steps: units that an invocation writes; unit: bytes, 1, 2 or 4; rank, indexed: see
        arrays/indexed_units.wgsl. -#}
{% from "arrays/store_unit.wgsl" import store_unit with context %}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
{% set other = True %}
const WORKGROUP_SIZE = {{ workgroup_size }}u;
const STEPS = {{ steps }}u;  // units that an invocation writes
const UNITS = {{ 4 // unit }}u;  // in a word

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> values: array<u32>;
@group(0) @binding(2) var<storage, read> flat_indices: array<u32>;
@group(0) @binding(3) var<storage, read_write> destination: array<{{ "u32" if unit == 4 else "atomic<u32>" }}>;

{% include "arrays/indexed_units.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Several units, so that several loads are under way. Neighbours take neighbouring units.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * STEPS) + invocation;
    for (var i = 0u; i < STEPS; i++) {
        put_unit(begin + i * WORKGROUP_SIZE);
    }
}

fn put_unit(number: u32) {
    if (number >= call.units) {
        return;
    }
    let unit = unit_of_result(number);
    if (!unit.exists) {
        return;
    }
    let bits = {{ unit_of("values", "unit.other") }};
    {{ store_unit("unit.at", "bits") }}
}
