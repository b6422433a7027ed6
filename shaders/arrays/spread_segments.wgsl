{#- Give every segment of a reduction its result, also an empty segment. Other kernels store the results of full
    segments, that is, segments with elements, without gaps. Each invocation assembles one word of the result from units
    of 1, 2 or 4 bytes.
    in:  source: the results of full segments, of rows (rows, full segments), of columns (full segments, outer, inner);
         ranks: for each segment, how many segments up to and with it are full, in each row or in all rows together;
         fill: for each row, the result of an empty segment
    out: result: (outer, segments, inner); of rows, inner is 1
    Values: workgroup_size; unit: bytes, 1, 2 or 4, that divide a result; in_columns; ranks_of_all_rows: True if each
        row has its own full segments, with ranks in all rows together. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
struct Call {
    words: u32,  // of the result
    units: u32,  // of the result
    segments: u32,
    outer: u32,  // of rows, their number
    run: u32,  // units of neighbouring results of one segment
    ranked: u32,  // segments in the ranks of a row: there may be more of them than in the result
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read> ranks: array<u32>;
@group(0) @binding(3) var<storage, read> fill: array<u32>;
@group(0) @binding(4) var<storage, read_write> result: array<u32>;

{% include "arrays/units.wgsl" %}

fn unit_of_fill(at: u32) -> u32 {
    return {{ unit_of("fill", "at") }};
}

// Return the unit that belongs at this position of the result.
fn unit_at(position: u32) -> u32 {
    let at = position % call.run;
    let segment = position / call.run % call.segments;
    let outer = position / call.run / call.segments;
    let number = {{ "outer * call.ranked + segment" if ranks_of_all_rows else "segment" }};
    let rank = ranks[number];
    let before = select(0u, ranks[max(number, 1u) - 1u], number > 0u);
    if (rank == before) {
        return unit_of_fill(outer * call.run + at);
    }
{% if in_columns %}
    return unit_of_source((before * call.outer + outer) * call.run + at);
{% elif ranks_of_all_rows %}
    return unit_of_source(before * call.run + at);
{% else %}
    return unit_of_source((outer * ranks[call.ranked - 1u] + before) * call.run + at);
{% endif %}
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (word >= call.words) {
        return;
    }
    result[word] = word_at(word * UNITS, call.units);
}
