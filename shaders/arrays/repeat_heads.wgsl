{#- Repeat the heads of one row for every row, one row after the other. Each invocation assembles one word.
    in:  row_heads: one bit for each position in a row
    out: heads: one bit for each element of all rows
    Values: workgroup_size. -#}
struct Rows {
    length: u32,  // elements of all rows
    row_length: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> rows: Rows;
@group(0) @binding(1) var<storage, read> row_heads: array<u32>;
@group(0) @binding(2) var<storage, read_write> heads: array<u32>;

// Return the bits of a row from this position on, at most one word of them.
fn bits_from(position: u32) -> u32 {
    let word = position >> 5u;
    let shift = position & 31u;
    let last = (rows.row_length - 1u) >> 5u;
    let high = select(0u, (row_heads[min(word + 1u, last)] << (31u - shift)) << 1u, word < last);
    return (row_heads[word] >> shift) | high;
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (word >= (rows.length + 31u) / 32u) {
        return;
    }
    var bits = 0u;
    var position = word * 32u % rows.row_length;
    var taken = 0u;
    for (var part = 0u; part < 32u && taken < 32u; part++) {  // a part of one row, of at least one bit
        bits |= bits_from(position) << taken;
        let count = min(32u - taken, rows.row_length - position);
        taken += count;
        position = select(position + count, 0u, position + count == rows.row_length);
    }
    let rest = rows.length - word * 32u;
    heads[word] = select(bits & ((1u << (rest & 31u)) - 1u), bits, rest >= 32u);
}
