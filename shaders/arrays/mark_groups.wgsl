{#- Find the groups that have elements in rows that are sorted by their labels.
    in:  labels: sorted in each row, from 0 up to the number of groups
    out: marks, cleared before: for each row and group, 1 if it has elements
    Values: workgroup_size; scalar: the type of the labels. -#}
struct Call {
    length: u32,  // of all rows together
    row_length: u32,
    groups: u32,  // in a row
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> marks: array<u32>;

// Return a label. A 64-bit label fits in its lower word.
fn label_at(position: u32) -> u32 {
{% if scalar.packed %}
    let bits = extractBits(labels[position / {{ scalar.per_word }}u], position % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
    return {{ "min(bits, 1u)" if scalar.kind == "bool" else "bits" }};
{% else %}
    return labels[position * {{ scalar.words }}u];
{% endif %}
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let i = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (i >= call.length) {
        return;
    }
    let position = i % call.row_length;
    let label = label_at(i);
    if (position + 1u == call.row_length || label_at(i + 1u) != label) {
        marks[i / call.row_length * call.groups + label] = 1u;
    }
}
