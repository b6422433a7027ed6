{#- Run mamba's recurrence for some states of every channel, along one chunk of time for each invocation:
    h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]. States are in registers and never leave them, except at a chunk's
    ends. A workgroup has neighbouring channels of one group, and loads TIMES steps of them at a time.
    in:  u, dt: (batch, group, channel, time); decays A and weights B, C: see Call; carries: with `later_chunks`, the
         states before each chunk, (chunk, row, state), where a row is a channel of a group of a batch
    out: for "totals": ends: the states after each chunk if it begins at 0, (chunk, row, state); steps: the sum of dt
         over each chunk, (chunk, row). For "checkpoints": the states before each interval, (interval, state, row), of a
         scan in one chunk. For "outputs": y[t] = sum over states of C[t] h[t], in the shape of u, and last: the states
         after the last step, (row, state).
    Values: purpose; interval: for "checkpoints", the steps of one; states: how many this stage computes, a multiple of
    4; channels: of a workgroup; times; later_chunks; adds: y has the sum over other states already; inward_varies,
    outward_varies: B or C depends on time, and not on the channel.
    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), algorithm 2. -#}
{% set varying = (["inward"] if inward_varies else []) + (["outward"] if outward_varies and purpose == "outputs" else []) %}
{% set fixed = (["inward"] if not inward_varies else []) + (["outward"] if not outward_varies and purpose == "outputs" else []) %}
{% set invocations = channels %}
{% set inputs = {"u": "source_u[at]", "dt": "source_dt[at]"} %}
{% include "shared/selective_position.wgsl" %}
{% from "shared/selective_tile.wgsl" import declare_tile, declare_next, load_tile, share_tile with context %}

@group(0) @binding(1) var<storage, read> source_u: array<f32>;
@group(0) @binding(2) var<storage, read> source_dt: array<f32>;
@group(0) @binding(3) var<storage, read> decays: array<f32>;
@group(0) @binding(4) var<storage, read> inward: array<f32>;
{% if purpose == "totals" %}
@group(0) @binding(5) var<storage, read_write> ends: array<f32>;
@group(0) @binding(6) var<storage, read_write> steps: array<f32>;
{% elif purpose == "checkpoints" %}
@group(0) @binding(5) var<storage, read_write> checkpoints: array<f32>;
{% else %}
@group(0) @binding(5) var<storage, read> outward: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(7) var<storage, read_write> last: array<f32>;
{% if later_chunks %}
@group(0) @binding(8) var<storage, read> carries: array<f32>;
{% endif %}
{% endif %}

// The inputs of a tile; each of `tile_u` is replaced by the output.
{{ declare_tile(inputs, varying) }}
{% from "shared/main.wgsl" import main %}
{{ main(size=channels, invocation="lane") }} {
    let number = workgroup.x + workgroup.y * grid.x;
    let chunk = chunk_of(number);
    let position = position_of(number, lane);
    if (chunk >= call.chunks) {
        return;
    }
    let begin = chunk * call.chunk;
    let end = min(begin + call.chunk, call.length);
    let rows = row_count();

    // ----- What does not depend on time
    let decays_begin = decays_at(position);
{% for name in varying + fixed %}
    let {{ name }}_begins = {{ name }}_begin(position);
{% endfor %}
{% for quad in range(states // 4) %}
    var h{{ quad }} = vec4<f32>();
    var decay{{ quad }} = vec4<f32>();
{% for name in fixed %}
    var {{ name }}{{ quad }} = vec4<f32>();
{% endfor %}
{% for i in range(4) %}
{% set state = 4 * quad + i %}
    if (is_state({{ state }}u)) {
        decay{{ quad }}[{{ i }}] = LOG2_E * decays[decays_begin + {{ state }}u];
{% for name in fixed %}
        {{ name }}{{ quad }}[{{ i }}] = {{ name }}[{{ name }}_begins + {{ state }}u];
{% endfor %}
{% if later_chunks and purpose == "outputs" %}
        h{{ quad }}[{{ i }}] = carries[(chunk * rows + position.row) * call.state_count + call.first_state + {{ state }}u];
{% endif %}
    }
{% endfor %}
{% endfor %}
{% if purpose == "totals" %}
    var total = 0.0;
{% endif %}

{{ declare_next(inputs, varying) }}
{{ load_tile(inputs, varying, "begin", "end") }}
    for (var start = begin; start < end; start += TIMES) {
        // ----- Share the tile, and load the next one meanwhile
{{ share_tile(inputs, varying) }}
        workgroupBarrier();
{{ load_tile(inputs, varying, "start + TIMES", "end") }}

        // ----- Step by step
        for (var time = 0u; time < min(TIMES, end - start); time++) {
{% if purpose == "checkpoints" %}
            if (position.exists && time % {{ interval }}u == 0u) {
                let first = ((start + time) / {{ interval }}u * call.state_count + call.first_state) * rows + position.row;
{% for state in range(states) %}
                if (is_state({{ state }}u)) {
                    checkpoints[first + {{ state }}u * rows] = h{{ state // 4 }}[{{ state % 4 }}];
                }
{% endfor %}
            }
{% endif %}
            let dt = tile_dt[lane * PITCH + time];
            let input = dt * tile_u[lane * PITCH + time];
{% if purpose == "totals" %}
            total += dt;
{% elif purpose == "outputs" %}
            var sum = 0.0;
{% endif %}
{% for quad in range(states // 4) %}
            h{{ quad }} = exp2(dt * decay{{ quad }}) * h{{ quad }} + input * {{ "tile_inward[time * QUADS + %du]" % quad if inward_varies else "inward%d" % quad }};
{% if purpose == "outputs" %}
            sum += dot({{ "tile_outward[time * QUADS + %du]" % quad if outward_varies else "outward%d" % quad }}, h{{ quad }});
{% endif %}
{% endfor %}
{% if purpose == "outputs" %}
            tile_u[lane * PITCH + time] = sum;
{% endif %}
        }
        workgroupBarrier();
{% if purpose == "outputs" %}

{% for i in range(times) %}
        {
            let number = lane + {{ i * channels }}u;
            let at = number / TIMES;
            let time = start + number % TIMES;
            if (at < position.present && time < end) {
                let to_here = (position.first_row + at) * call.length + time;
                y[to_here] = {{ "y[to_here] + " if adds }}tile_u[at * PITCH + number % TIMES];
            }
        }
{% endfor %}
        workgroupBarrier();
{% endif %}
    }

{% if purpose != "checkpoints" %}
    // ----- The states at the end
    if (!position.exists{{ " || end < call.length" if purpose == "outputs" }}) {
        return;
    }
{% if purpose == "totals" %}
    steps[chunk * rows + position.row] = total;
{% endif %}
{% for state in range(states) %}
    if (is_state({{ state }}u)) {
        {{ "ends[(chunk * rows + position.row)" if purpose == "totals" else "last[position.row" }} * call.state_count + call.first_state + {{ state }}u] = h{{ state // 4 }}[{{ state % 4 }}];
    }
{% endfor %}
{% endif %}
}
