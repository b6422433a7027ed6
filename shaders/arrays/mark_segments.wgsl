{#- Mark the heads of the segments that offsets define. Each invocation marks the head of one segment, unless it is empty.
    in:  offsets, as in CSR's indptr: one more than there are segments
    out: heads, cleared before: one bit for each element, in the order of the scan
    Values: workgroup_size. -#}
struct Row {
    length: u32,
    segments: u32,
    reverse: u32,  // 1 where the scan goes from the row's end: a segment's last element is its head
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> row: Row;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> heads: array<atomic<u32>>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let segment = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (segment >= row.segments) {
        return;
    }
    let start = offsets[segment];
    let stop = offsets[segment + 1u];
    if (start < stop) {
        let head = select(start, row.length - stop, row.reverse == 1u);
        atomicOr(&heads[head >> 5u], 1u << (head & 31u));
    }
}
