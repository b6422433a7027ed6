{#- Mark the heads of the segments that offsets define, and check the offsets if they were not checked before. Each
    invocation marks the head of one segment, unless it is empty or wrong.
    in:  offsets, as in CSR's indptr: one more than there are segments
    out: heads, cleared before: one bit for each element, in the order of the scan; checked: validation_flag: what
         is wrong until it is cleared, so that several runs may share it
    Values: workgroup_size; scalar: the type of the offsets; checked: True to check the offsets; needs_full: True to
        check also that no segment is empty. -#}
struct Row {
    length: u32,
    segments: u32,  // of this piece of the offsets
    reverse: u32,  // 1 where the scan goes from the row's end: a segment's last element is its head
    first_offset: u32,  // the index of the piece's first offset in `offsets`
    before: u32,  // segments before this piece
    all_segments: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> row: Row;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> heads: array<atomic<u32>>;
{% if checked %}
@group(0) @binding(3) var<storage, read_write> validation_flag: ValidationFlag;
{% endif %}

{% from "shared/offsets.wgsl" import offset_functions %}
{{ offset_functions(scalar, checked, needs_full) }}
{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let segment = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (segment >= row.segments) {
        return;
    }
    let start = offset_at(row.first_offset + segment);
    let stop = offset_at(row.first_offset + segment + 1u);
{% if checked %}
    check_offsets(row.before + segment, start, stop, row.length, row.all_segments);
{% endif %}
    if (start < stop && stop <= row.length) {
        let head = select(start, row.length - stop, row.reverse == 1u);
        atomicOr(&heads[head >> 5u], 1u << (head & 31u));
    }
}
