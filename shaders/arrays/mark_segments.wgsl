{#- Mark the heads of the segments that offsets define, and check the offsets if they were not checked before. Each
    invocation marks the head of one segment, unless it is empty or wrong.
    in:  offsets, as in CSR's indptr: one more than there are segments
    out: heads, cleared before: one bit for each element, in the order of the scan; checked: verdict, which keeps what
         is wrong until it is cleared, so that several runs may share it
    Values: workgroup_size; scalar: the kind of offset; checked: True to check the offsets; needs_full: True to check
        also that no segment is empty. -#}
struct Row {
    length: u32,
    segments: u32,  // of this piece of the offsets
    reverse: u32,  // 1 where the scan goes from the row's end: a segment's last element is its head
    place: u32,  // the index of the piece's first offset in `offsets`
    before: u32,  // segments before this piece
    all_segments: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
// Stands for an offset that no array has: a negative one, or one of more than 32 bits.
const NO_OFFSET = 0xffffffffu;

@group(0) @binding(0) var<uniform> row: Row;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> heads: array<atomic<u32>>;
{% if checked %}
struct Verdict {
    fall: atomic<u32>,  // NO_OFFSET minus the first segment that ends before it begins, or after the row; 0 if none does
    first: u32,  // the first offset, which has to be 0
    beyond: u32,  // the last offset + 1 if it is not the length, else 0
    empty: atomic<u32>,  // NO_OFFSET minus the first segment without elements, if there may be none; 0 if none is empty
}

@group(0) @binding(3) var<storage, read_write> verdict: Verdict;
{% endif %}

fn offset_at(place: u32) -> u32 {
{% if scalar.packed and scalar.kind == "signed" %}
    let word = bitcast<i32>(offsets[place / {{ scalar.per_word }}u]);
    let found = extractBits(word, place % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
    return select(u32(found), NO_OFFSET, found < 0);
{% elif scalar.packed %}
    return extractBits(offsets[place / {{ scalar.per_word }}u], place % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
{% elif scalar.words == 2 %}
    return select(offsets[2u * place], NO_OFFSET, offsets[2u * place + 1u] != 0u);
{% elif scalar.kind == "signed" %}
    return select(offsets[place], NO_OFFSET, offsets[place] >= 0x80000000u);
{% else %}
    return offsets[place];
{% endif %}
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let segment = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (segment >= row.segments) {
        return;
    }
    let start = offset_at(row.place + segment);
    let stop = offset_at(row.place + segment + 1u);
{% if checked %}
    let number = row.before + segment;
    if (start > stop || stop > row.length) {
        atomicMax(&verdict.fall, NO_OFFSET - number);
    }
    if (number == 0u && start != 0u) {
        verdict.first = start;
    }
    if (number + 1u == row.all_segments && stop != row.length) {
        verdict.beyond = stop + 1u;
    }
{% if needs_full %}
    if (start == stop) {
        atomicMax(&verdict.empty, NO_OFFSET - number);
    }
{% endif %}
{% endif %}
    if (start < stop && stop <= row.length) {
        let head = select(start, row.length - stop, row.reverse == 1u);
        atomicOr(&heads[head >> 5u], 1u << (head & 31u));
    }
}
