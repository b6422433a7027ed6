{#- Compute the lengths of runs from where they begin.
    in:  starts: the index of the first element of each run; count: the number of runs
    out: lengths
    Values: workgroup_size -#}
struct Call {
    elements: u32,  // of all runs together
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> count: array<u32>;
@group(0) @binding(3) var<storage, read_write> lengths: array<u32>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // There may be as many runs as elements. An invocation takes several of them.
    let runs = min(count[0], call.elements);
    let invocations = grid.x * grid.y * WORKGROUP_SIZE;
    for (var run = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation; run < runs; run += invocations) {
        let end = select(call.elements, starts[min(run + 1u, runs - 1u)], run + 1u < runs);
        lengths[run] = end - starts[run];
    }
}
