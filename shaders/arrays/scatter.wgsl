{#- Scatter rows by their indices: row i of the source becomes row indices[i] of the result. No two indices are equal.
    in:  indices{{ "; source, in rows of whole words" if what == "rows" }}
    out: result
    Values: workgroup_size; what: "rows", or "numbers" to scatter the number of each row, which inverts the indices. -#}
struct Call {
    row_words: u32,  // in a row
    words: u32,  // in all rows together
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
{% if what == "rows" %}
@group(0) @binding(3) var<storage, read> source: array<u32>;
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // There are fewer invocations than words: a GPU takes long to start many that return at once.
    let invocations = grid.x * grid.y * WORKGROUP_SIZE;
    for (var word = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation; word < call.words; word += invocations) {
{% if what == "rows" %}
        result[indices[word / call.row_words] * call.row_words + word % call.row_words] = source[word];
{% else %}
        result[indices[word]] = word;
{% endif %}
    }
}
