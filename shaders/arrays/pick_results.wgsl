{#- Pick the result of each group: that of its last element. Each invocation assembles one word from the units of 1, 2 or 4
    bytes that results consist of.
    in:  source: the scan of the rows in the order of their labels; ends: for each row and group, 1 more than the place of
         its last element, or 0 for an empty group; fill: for each row, the result of an empty group
    out: result: (rows, groups)
    Values: workgroup_size; unit: bytes, 1, 2 or 4, that divide a result. -#}
struct Call {
    words: u32,  // of the result
    units: u32,  // of the result
    entry_units: u32,  // of one result
    groups: u32,
    row_length: u32,
    ends: u32,  // the number of ends; those of one row may be for all of them
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read> ends: array<u32>;
@group(0) @binding(3) var<storage, read> fill: array<u32>;
@group(0) @binding(4) var<storage, read_write> result: array<u32>;

{% include "arrays/units.wgsl" %}

// Return the unit that belongs at this place of the result.
fn unit_at(place: u32) -> u32 {
    let at = place % call.entry_units;
    let entry = place / call.entry_units;
    let row = entry / call.groups;
    let end = ends[entry % call.ends];
    if (end > 0u) {
        return unit_of_source((row * call.row_length + end - 1u) * call.entry_units + at);
    }
    let unit = row * call.entry_units + at;
{% if unit == 4 %}
    return fill[unit];
{% else %}
    return extractBits(fill[unit / UNITS], unit % UNITS * {{ 8 * unit }}u, {{ 8 * unit }}u);
{% endif %}
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (word < call.words) {
        result[word] = word_at(word * UNITS, call.units);
    }
}
