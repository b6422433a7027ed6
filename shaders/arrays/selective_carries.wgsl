{#- Replace the states at the ends of chunks by those before them. Each invocation takes one state of one row.
    in:  steps: (chunk, row), the sum of dt over each chunk; decays A
    in, out: ends: (chunk, row, state), the states after a chunk that begins at 0; then the states before it
    Values: workgroup_size. -#}
struct Call {
    rows: u32,
    rows_of_decays: u32,  // rows beyond use the same decays again
    state_count: u32,
    chunks: u32,
}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> steps: array<f32>;
@group(0) @binding(2) var<storage, read> decays: array<f32>;
@group(0) @binding(3) var<storage, read_write> ends: array<f32>;

{% from "shared/main.wgsl" import main %}
{{ main(size=workgroup_size) }} {
    let index = (workgroup.x + workgroup.y * grid.x) * {{ workgroup_size }}u + invocation;
    if (index >= call.rows * call.state_count) {
        return;
    }
    let row = index / call.state_count;
    let decay = decays[row % call.rows_of_decays * call.state_count + index % call.state_count];
    var state = 0.0;
    for (var chunk = 0u; chunk < call.chunks; chunk++) {
        let at = chunk * call.rows * call.state_count + index;
        let end = ends[at];
        ends[at] = state;
        state = exp(decay * steps[chunk * call.rows + row]) * state + end;
    }
}
