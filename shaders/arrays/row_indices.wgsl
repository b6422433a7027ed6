{#- Turn indices within rows into indices of the array in which the rows follow each other.
    in:  indices_in_rows: indices within each row, or the indices of one row, which count for all rows
    out: indices
    Values: workgroup_size. -#}
struct Call {
    length: u32,  // of all rows together
    row_length: u32,
    index_count: u32,  // the number of indices within rows
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> indices_in_rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> indices: array<u32>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let i = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (i < call.length) {
        indices[i] = i - i % call.row_length + indices_in_rows[i % call.index_count];
    }
}
