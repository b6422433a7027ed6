{#- Compute the gradient of a selective scan, backwards in time:
        states h[t]:  g[t] = C[t] grad_y[t] + exp(dt[t+1] A) g[t+1]
        dt[t] A:      r[t] = g[t] exp(dt[t] A) h[t-1]
        u[t]:         sum(g[t] B[t]) dt[t]
        dt[t]:        sum(g[t] B[t]) u[t] + sum(r[t] A)
        A:            sum(r[t] dt[t])
        B[t]:         g[t] dt[t] u[t]
        C[t]:         grad_y[t] h[t]
    The states of an interval are computed again from the states before it. Each invocation takes four states of a
    channel. Neighbouring invocations take the same states of other channels.
    in:  series: u, dt and the gradient of y, (batch, group, channel, time) each; decays: A, and the gradient of the
         last states, (row, state); weights B and C; checkpoints: the states before each interval, (interval, state,
         row)
    out: results: the gradients of u and dt; row_sums: the gradients of A, and of B and C where they do not depend on
         time, (row, state) each; strip_sums: the gradients of weights that depend on time, summed over the channels of
         a strip, (strip, batch, group, state, time) each
    Values: states: how many this stage computes, 4 times a power of two; channels: of a workgroup; strips: into which
    these are divided for sums over channels; times: steps of a tile; interval: the steps between two checkpoints, which
    divide the steps of a tile; sum_steps: the steps whose sums over channels are computed together, which divide an
    interval; adds: the gradients of u and dt have the sums over other states already; inward_varies, outward_varies: as
    in selective_scan.wgsl.
    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), appendix D. -#}
{% set invocations = channels * states // 4 %}
{% set varying = (["inward"] if inward_varies else []) + (["outward"] if outward_varies else []) %}
{% set fixed = (["inward"] if not inward_varies else []) + (["outward"] if not outward_varies else []) %}
{% set inputs = {"u": "series[at]", "dt": "series[call.series + at]", "grad": "series[2u * call.series + at]"} %}
{% include "shared/selective_position.wgsl" %}
{% from "shared/selective_tile.wgsl" import declare_tile, declare_next, load_tile, share_tile with context %}

@group(0) @binding(1) var<storage, read> series: array<f32>;
@group(0) @binding(2) var<storage, read> decays: array<f32>;
@group(0) @binding(3) var<storage, read> inward: array<f32>;
@group(0) @binding(4) var<storage, read> outward: array<f32>;
@group(0) @binding(5) var<storage, read> checkpoints: array<f32>;
@group(0) @binding(6) var<storage, read_write> results: array<f32>;
@group(0) @binding(7) var<storage, read_write> row_sums: array<f32>;
{% if varying %}
@group(0) @binding(8) var<storage, read_write> strip_sums: array<f32>;
{% endif %}

{% set sums = states * sum_steps * (varying | length) %}
{% set strip = channels // strips %}
{% set parts = states // 4 * 2 * channels * (interval + 1) %}
// The inputs of a tile. The first two are replaced by their gradients.
{{ declare_tile(inputs, varying) }}
// First, the terms of the sums over channels: for each varying weight, state and one of SUM_STEPS times, a row of one
// number of each channel. Then, the terms of the sums over states: for each four states the gradients of u and dt, in rows of
// channels.
const INTERVAL = {{ interval }}u;
const SUM_STEPS = {{ sum_steps }}u;
const SUMS = {{ sums }}u;
const SUM_PITCH = CHANNELS + 1u;
const PART_PITCH = INTERVAL + 1u;
const PART = CHANNELS * PART_PITCH;
var<workgroup> shared_sums: array<f32, {{ [sums * (channels + 1), parts] | max }}>;

// Return the invocation's four states before an interval. States that do not exist are 0.
fn states_before(position: Position, interval: u32, first: u32) -> vec4<f32> {
    let rest = call.state_count - call.first_state;
    let state = vec4(first) + vec4(0u, 1u, 2u, 3u);
    let at = (interval * call.state_count + call.first_state + min(state, vec4(rest - 1u))) * row_count() + position.row;
    let loaded = vec4(checkpoints[at.x], checkpoints[at.y], checkpoints[at.z], checkpoints[at.w]);
    return select(vec4<f32>(), loaded, state < vec4(rest));
}

{% macro weight(name, time) %}{{ "tile_%s[(first + %du) * QUADS + quad]" % (name, time) if name in varying else "own_%s" % name }}{% endmacro %}

{% from "shared/main.wgsl" import main %}
{{ main(size=invocations, invocation="lane") }} {
    let channel = lane % CHANNELS;
    let quad = lane / CHANNELS;
    let number = workgroup.x + workgroup.y * grid.x;
    let position = position_of(number, channel);
    if (chunk_of(number) >= call.chunks) {
        return;
    }
    let own = channel * PITCH;

    // ----- What does not depend on time
    let decays_begin = decays_at(position) + 4u * quad;
    let last_begin = call.ends + position.row * call.state_count + call.first_state + 4u * quad;
{% for name in varying + fixed %}
    let {{ name }}_begins = {{ name }}_begin(position);
{% endfor %}
    var after = vec4<f32>();  // the gradient of the states by later ones
    var decay = vec4<f32>();
    var by_decay = vec4<f32>();
{% for name in fixed %}
    var own_{{ name }} = vec4<f32>();
    var by_{{ name }} = vec4<f32>();
{% endfor %}
    for (var i = 0u; i < 4u; i++) {
        if (is_state(4u * quad + i)) {
            decay[i] = decays[decays_begin + i];
{% for name in fixed %}
            own_{{ name }}[i] = {{ name }}[{{ name }}_begins + 4u * quad + i];
{% endfor %}
            after[i] = decays[last_begin + i];
        }
    }

{{ declare_next(inputs, varying) }}
    let tiles = (call.length + TIMES - 1u) / TIMES;
{{ load_tile(inputs, varying, "(tiles - 1u) * TIMES", "call.length") }}
    var next_state = states_before(position, (call.length - 1u) / INTERVAL, 4u * quad);

    for (var left = tiles; left > 0u; left--) {
        let start = (left - 1u) * TIMES;

        // ----- Share the tile, and load the one before it meanwhile
{{ share_tile(inputs, varying) }}
        workgroupBarrier();
{{ load_tile(inputs, varying, "(max(left, 2u) - 2u) * TIMES", "call.length") }}

        for (var later = (min(TIMES, call.length - start) + INTERVAL - 1u) / INTERVAL; later > 0u; later--) {
            // ----- An interval: the states again, and their gradients
            let first = (later - 1u) * INTERVAL;  // a step of the tile
            let here = own + first;
            // Naga keeps what a variable without a value had in the iteration before.
            var by_u = array<f32, INTERVAL>();
            var by_dt = array<f32, INTERVAL>();
            var states: array<vec4<f32>, INTERVAL + 1>;  // before the interval, and after each step
            var gates: array<vec4<f32>, INTERVAL>;
            states[0] = next_state;
            next_state = states_before(position, max((start + first) / INTERVAL, 1u) - 1u, 4u * quad);
{% for time in range(interval) %}
            {
                let dt = tile_dt[here + {{ time }}u];
                gates[{{ time }}] = exp2((LOG2_E * dt) * decay);
                states[{{ time + 1 }}] = gates[{{ time }}] * states[{{ time }}] + dt * tile_u[here + {{ time }}u] * {{ weight("inward", time) }};
            }
{% endfor %}
{% for step in range(interval) | reverse %}
{% set time = step %}
            {
                let u = tile_u[here + {{ time }}u];
                let dt = tile_dt[here + {{ time }}u];
                let grad = tile_grad[here + {{ time }}u];
                let of_state = {{ weight("outward", time) }} * grad + after;
                after = gates[{{ time }}] * of_state;
                let rate = after * states[{{ time }}];
                let of_input = dot(of_state, {{ weight("inward", time) }});
                by_u[{{ time }}] = of_input * dt;
                by_dt[{{ time }}] = of_input * u + dot(rate, decay);
                by_decay += rate * dt;
                let of_inward = of_state * (dt * u);
                let of_outward = states[{{ time + 1 }}] * grad;
{% for name in fixed %}
                by_{{ name }} += of_{{ name }};
{% endfor %}
{% for name in varying %}
{% for i in range(4) %}
                shared_sums[((({{ varying.index(name) }}u * QUADS + quad) * 4u + {{ i }}u) * SUM_STEPS + {{ time % sum_steps }}u) * SUM_PITCH + channel] = of_{{ name }}[{{ i }}];
{% endfor %}
{% endfor %}
            }
{% if varying and time % sum_steps == 0 %}

            // ----- Sums over the channels of each strip. Channels that do not exist add 0
            workgroupBarrier();
{% for i in range((sums * strips + invocations - 1) // invocations) %}
            {
                let sum = (lane + {{ i * invocations }}u) % SUMS;
                let part = (lane + {{ i * invocations }}u) / SUMS;
                let state = sum / SUM_STEPS % STATES;
                let time = start + first + {{ time }}u + sum % SUM_STEPS;
                if (part < {{ strips }}u && is_state(state) && time < call.length) {
                    var total = vec4<f32>();
                    for (var i = 0u; i < {{ strip }}u; i += 8u) {
                        let at = sum * SUM_PITCH + part * {{ strip }}u + i;
                        total += vec4(shared_sums[at], shared_sums[at + 1u], shared_sums[at + 2u], shared_sums[at + 3u]);
                        total += vec4(shared_sums[at + 4u], shared_sums[at + 5u], shared_sums[at + 6u], shared_sums[at + 7u]);
                    }
                    let strip = (sum / (STATES * SUM_STEPS) * strip_count() + position.strip) * {{ strips }}u + part;
                    strip_sums[(((strip * call.batches + position.batch) * call.groups + position.group) * call.state_count + call.first_state + state) * call.length + time] = (total.x + total.y) + (total.z + total.w);
                }
            }
{% endfor %}
            workgroupBarrier();
{% endif %}
{% endfor %}

            // ----- Sums over the states
{% for time in range(interval) %}
            {
                let at = 2u * quad * PART + channel * PART_PITCH + {{ time }}u;
                shared_sums[at] = by_u[{{ time }}];
                shared_sums[at + PART] = by_dt[{{ time }}];
            }
{% endfor %}
            workgroupBarrier();
{% for i in range(channels * interval // invocations) %}
            {
                let row = (lane + {{ i * invocations }}u) / INTERVAL;
                let time = (lane + {{ i * invocations }}u) % INTERVAL;
                var total = vec2<f32>();
                for (var i = 0u; i < QUADS; i++) {
                    let at = 2u * i * PART + row * PART_PITCH + time;
                    total += vec2(shared_sums[at], shared_sums[at + PART]);
                }
                tile_u[row * PITCH + first + time] = total.x;
                tile_dt[row * PITCH + first + time] = total.y;
            }
{% endfor %}
            workgroupBarrier();
        }

        // ----- Store the gradients of the tile
{% for i in range(channels * times // invocations) %}
        {
            let row = (lane + {{ i * invocations }}u) / TIMES;
            let time = (lane + {{ i * invocations }}u) % TIMES;
            if (row < position.present && start + time < call.length) {
                let to_here = (position.first_row + row) * call.length + start + time;
                results[to_here] = {{ "results[to_here] + " if adds }}tile_u[row * PITCH + time];
                results[call.series + to_here] = {{ "results[call.series + to_here] + " if adds }}tile_dt[row * PITCH + time];
            }
        }
{% endfor %}
        workgroupBarrier();
    }

    // ----- Sums over time
    if (!position.exists) {
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if (is_state(4u * quad + i)) {
            let to_here = position.row * call.state_count + call.first_state + 4u * quad + i;
            row_sums[to_here] = by_decay[i];
{% for name in fixed %}
            row_sums[{{ loop.index }}u * row_count() * call.state_count + to_here] = by_{{ name }}[i];
{% endfor %}
        }
    }
}
