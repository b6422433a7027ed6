{#- Transpose arrays (outer, rows, columns) to (outer, columns, rows). Each invocation assembles one word of the result from
    the units of {{ unit }} bytes that elements consist of.
    in:  source
    out: result
    Values: workgroup_size; unit: bytes, 1, 2 or 4, that divide an element. -#}
struct Call {
    rows: u32,  // of the source
    columns: u32,
    element_units: u32,  // in an element
    units: u32,  // that all elements have together
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;

{% include "arrays/units.wgsl" %}

// The unit of the source that belongs at this place of the result.
fn unit_at(place: u32) -> u32 {
    let element = place / call.element_units;
    let matrix = element / (call.rows * call.columns);
    let within = element % (call.rows * call.columns);
    let from_element = (matrix * call.rows + within % call.rows) * call.columns + within / call.rows;
    let at = from_element * call.element_units + place % call.element_units;
    return unit_of_source(at);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    let first = word * UNITS;
    if (first >= call.units) {
        return;
    }
    result[word] = word_at(first, call.units);
}
