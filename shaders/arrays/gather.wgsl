{#- Gather rows by their indices: row i of the result is row indices[i] of the source. Each invocation assembles one
    word of the result from the units of 1, 2 or 4 bytes that rows consist of.
    in:  source, indices, count: the number of rows to gather
    out: result
    Values: workgroup_size; unit: bytes, 1, 2 or 4, that divide a row. -#}
struct Call {
    row_units: u32,  // in a row
    words: u32,  // that all rows have together at most
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read> indices: array<u32>;
@group(0) @binding(3) var<storage, read> count: array<u32>;
@group(0) @binding(4) var<storage, read_write> result: array<u32>;

{% include "arrays/units.wgsl" %}

// Return the unit of the source that belongs at this position of the result.
fn unit_at(position: u32) -> u32 {
    let at = indices[position / call.row_units] * call.row_units + position % call.row_units;
    return unit_of_source(at);
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Of the indices only some may count, so there are fewer invocations than words.
    let end = count[0] * call.row_units;
    let invocations = grid.x * grid.y * WORKGROUP_SIZE;
    for (var word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation; word < call.words; word += invocations) {
        let first = word * UNITS;
        if (first >= end) {
            break;
        }
        result[word] = word_at(first, end);
    }
}
