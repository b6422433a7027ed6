// Copy `source` to `destination` as fast as plain WGSL can: in vectors of four words, with the lanes of a subgroup on
// neighbouring vectors, and several loads in flight in each invocation. This is the upper limit of every benchmark.
//
// In:  source, in whole vectors; a grid of one workgroup for each COPY_SIZE vectors.
// Out: destination, of at least the same size.
const WORKGROUP_SIZE = {{ workgroup_size }}u;  // invocations
const LANES = {{ lanes }}u;  // invocations that read side by side
const STEPS = {{ steps }}u;  // vectors an invocation copies
const COPY_SIZE = WORKGROUP_SIZE * STEPS;  // vectors

@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<u32>>;

{% from "shared/main.wgsl" import main %}
{{ main(invocation="local_index") }} {
    let start = (workgroup.x + workgroup.y * grid.x) * COPY_SIZE;
    let first = start + (local_index / LANES) * LANES * STEPS + local_index % LANES;
    let end = arrayLength(&source);
    if (start + COPY_SIZE <= end) {
{% for step in range(steps) %}
        let v{{ step }} = source[first + {{ step }}u * LANES];
{% endfor %}
{% for step in range(steps) %}
        destination[first + {{ step }}u * LANES] = v{{ step }};
{% endfor %}
    } else {
        for (var at = first; at < min(end, first + STEPS * LANES); at += LANES) {
            destination[at] = source[at];
        }
    }
}
