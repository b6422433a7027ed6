{#- Run mamba's recurrence for some states of every channel, along one chunk of time for each invocation:
    h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]. Each invocation takes four states of a channel, which are in registers
    and never leave them, except at a chunk's ends. A workgroup has neighbouring channels of one group, and loads TIMES
    steps of them at a time.
    in:  u, dt: (batch, group, channel, time); decays A and weights B, C: see Call; carries: with `later_chunks`, the
         states before each chunk, (chunk, row, state), where a row is a channel of a group of a batch
    out: for "totals": ends: the states after each chunk if it begins at 0, (chunk, row, state); steps: the sum of dt
         over each chunk, (chunk, row). For "checkpoints": the states before each interval, (interval, state, row), of a
         scan in one chunk. For "outputs": y[t] = sum over states of C[t] h[t], in the shape of u, and last: the states
         after the last step, (row, state).
    Values: purpose; interval: for "checkpoints", the steps of one; states: how many this stage computes, 4 times a
    power of two; channels: of a workgroup; times; later_chunks; adds: y has the sum over other states already; inward_varies,
    outward_varies: B or C depends on time, and not on the channel.
    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), algorithm 2. -#}
{% set varying = (["inward"] if inward_varies else []) + (["outward"] if outward_varies and purpose == "outputs" else []) %}
{% set fixed = (["inward"] if not inward_varies else []) + (["outward"] if not outward_varies and purpose == "outputs" else []) %}
{% set invocations = channels * states // 4 %}
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

{{ declare_tile(inputs, varying) }}
{% if purpose == "outputs" %}
// The outputs of a tile: for each four states, their sums in rows of channels.
const PART = CHANNELS * PITCH;
var<workgroup> tile_y: array<f32, {{ states // 4 * channels * (times + 1) }}>;
{% endif %}

{% macro weight(name, time) %}{{ "tile_%s[%s * QUADS + quad]" % (name, time) if name in varying else "own_%s" % name }}{% endmacro %}

{% macro step(time) %}
{% if purpose == "checkpoints" %}
                if (position.exists && {{ time }} % {{ interval }}u == 0u) {
                    let first = ((start + {{ time }}) / {{ interval }}u * call.state_count + call.first_state + 4u * quad) * rows + position.row;
                    for (var i = 0u; i < 4u; i++) {
                        if (is_state(4u * quad + i)) {
                            checkpoints[first + i * rows] = h[i];
                        }
                    }
                }
{% endif %}
                let dt = tile_dt[own + {{ time }}];
{% if purpose == "totals" %}
                total += dt;
{% endif %}
                h = exp2(dt * decay) * h + dt * tile_u[own + {{ time }}] * {{ weight("inward", time) }};
{% if purpose == "outputs" %}
                tile_y[quad * PART + own + {{ time }}] = dot({{ weight("outward", time) }}, h);
{% endif %}
{% endmacro %}

{% from "shared/main.wgsl" import main %}
{{ main(size=invocations, invocation="lane") }} {
    let channel = lane % CHANNELS;
    let quad = lane / CHANNELS;
    let own = channel * PITCH;
    let number = workgroup.x + workgroup.y * grid.x;
    let chunk = chunk_of(number);
    let position = position_of(number, channel);
    if (chunk >= call.chunks) {
        return;
    }
    let begin = chunk * call.chunk;
    let end = min(begin + call.chunk, call.length);
    let rows = row_count();

    // ----- What does not depend on time
    let decays_begin = decays_at(position) + 4u * quad;
{% for name in varying + fixed %}
    let {{ name }}_begins = {{ name }}_begin(position);
{% endfor %}
    var h = vec4<f32>();
    var decay = vec4<f32>();
{% for name in fixed %}
    var own_{{ name }} = vec4<f32>();
{% endfor %}
    for (var i = 0u; i < 4u; i++) {
        let state = 4u * quad + i;
        if (is_state(state)) {
            decay[i] = LOG2_E * decays[decays_begin + i];
{% for name in fixed %}
            own_{{ name }}[i] = {{ name }}[{{ name }}_begins + state];
{% endfor %}
{% if later_chunks and purpose == "outputs" %}
            h[i] = carries[(chunk * rows + position.row) * call.state_count + call.first_state + state];
{% endif %}
        }
    }
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
        if (start + TIMES <= end) {
{% for time in range(times) %}
            {
{{ step(time ~ "u") }}
            }
{% endfor %}
        } else {
            for (var time = 0u; time < end - start; time++) {
{{ step("time") }}
            }
        }
        workgroupBarrier();
{% if purpose == "outputs" %}

        // ----- Add the sums of the states
{% for i in range(channels * times // invocations) %}
        {
            let row = (lane + {{ i * invocations }}u) / TIMES;
            let time = (lane + {{ i * invocations }}u) % TIMES;
            if (row < position.present && start + time < end) {
                let at = row * PITCH + time;
                let to_here = (position.first_row + row) * call.length + start + time;
                y[to_here] = {{ "y[to_here] + " if adds }}{% for quad in range(states // 4) %}{{ " + " if quad }}tile_y[{{ quad }}u * PART + at]{% endfor %};
            }
        }
{% endfor %}
{% endif %}
    }

{% if purpose != "checkpoints" %}
    // ----- The states at the end
    if (!position.exists{{ " || end < call.length" if purpose == "outputs" }}) {
        return;
    }
{% if purpose == "totals" %}
    if (quad == 0u) {
        steps[chunk * rows + position.row] = total;
    }
{% endif %}
    for (var i = 0u; i < 4u; i++) {
        if (is_state(4u * quad + i)) {
            {{ "ends[(chunk * rows + position.row)" if purpose == "totals" else "last[position.row" }} * call.state_count + call.first_state + 4u * quad + i] = h[i];
        }
    }
{% endif %}
}
