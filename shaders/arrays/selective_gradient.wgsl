{#- Compute the gradient of a selective scan, backwards in time. With the gradient g[t] of the states,
    g[t] = C[t] grad_y[t] + exp(dt[t+1] A) g[t+1], that of dt[t] A is r[t] = g[t] exp(dt[t] A) h[t-1], and those of
    u[t] is sum(g[t] B[t]) dt[t], of dt[t] sum(g[t] B[t]) u[t] + sum(r[t] A), of A sum(r[t] dt[t]), of B[t] g[t] dt[t] u[t],
    and of C[t] grad_y[t] h[t]. The states of a tile are computed again from those before it. Each invocation takes a
    channel, and four states at a time.
    in:  series: u, dt and the gradient of y, (batch, group, channel, time) each; decays: A, and the gradient of the last
         states, (row, state); weights B and C; checkpoints: the states before each tile, (tile, state, row)
    out: results: the gradients of u and dt; row_sums: those of A, and of B and C where they do not depend on time,
         (row, state) each; strip_sums: those of weights that do, summed over the channels of a workgroup,
         (strip, batch, group, state, time) each
    Values: states: how many this stage computes, a multiple of 4; channels: of a workgroup; times; adds: the gradients
    of u and dt have the sums over other states already; inward_varies, outward_varies: as in selective_scan.wgsl.
    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), appendix D. -#}
{% set varying = (["inward"] if inward_varies else []) + (["outward"] if outward_varies else []) %}
{% set fixed = (["inward"] if not inward_varies else []) + (["outward"] if not outward_varies else []) %}
{% include "shared/selective_place.wgsl" %}

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

// The inputs of a tile. The first two are replaced by their gradients.
var<workgroup> tile_u: array<f32, {{ channels * (times + 1) }}>;
var<workgroup> tile_dt: array<f32, {{ channels * (times + 1) }}>;
var<workgroup> tile_grad: array<f32, {{ channels * (times + 1) }}>;
{% for name in varying %}
var<workgroup> tile_{{ name }}: array<vec4<f32>, {{ times * states // 4 }}>;
{% endfor %}
{% set sums = 4 * times * (varying | length) %}
{% if varying %}
// What is summed over the channels: for each weight that varies, state and time, a row of one number of each invocation.
const SUMS = {{ sums }}u;
const SUM_PITCH = CHANNELS + 1u;
var<workgroup> shared_sums: array<f32, {{ sums * (channels + 1) }}>;
{% endif %}
{% set quads = (times * states // 4 + channels - 1) // channels %}

@compute @workgroup_size({{ channels }})
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let place = place_of(workgroup.x + workgroup.y * grid.x, lane);
    if (place.chunk >= call.chunks) {
        return;
    }
    let rows = row_count();
    let own = lane * PITCH;

    // ----- What does not depend on time
    let decays_begin = decays_at(place);
{% for name in varying + fixed %}
    let {{ name }}_begins = {{ name }}_begin(place);
{% endfor %}
    // Four states in each vector. Loops over these keep the shader short, which software adapters compile slowly.
    var after = array<vec4<f32>, QUADS>();  // the gradient of a state by later ones
    var decay = array<vec4<f32>, QUADS>();
    var by_decay = array<vec4<f32>, QUADS>();
{% for name in fixed %}
    var own_{{ name }} = array<vec4<f32>, QUADS>();
    var by_{{ name }} = array<vec4<f32>, QUADS>();
{% endfor %}
    for (var state = 0u; state < STATES; state++) {
        if (is_state(state)) {
            decay[state / 4u][state % 4u] = decays[decays_begin + state];
{% for name in fixed %}
            own_{{ name }}[state / 4u][state % 4u] = {{ name }}[{{ name }}_begins + state];
{% endfor %}
            after[state / 4u][state % 4u] = decays[call.ends + place.row * call.state_count + call.first_state + state];
        }
    }

    for (var left = (call.length + TIMES - 1u) / TIMES; left > 0u; left--) {
        let start = (left - 1u) * TIMES;

        // ----- Load a tile: neighbouring invocations load neighbouring times. Missing inputs are 0 and change nothing
{% for i in range(times) %}
        let number{{ i }} = lane + {{ i * channels }}u;
        let at{{ i }} = (place.first_row + min(number{{ i }} / TIMES, place.present - 1u)) * call.length + min(start + number{{ i }} % TIMES, call.length - 1u);
        let is_there{{ i }} = number{{ i }} / TIMES < place.present && start + number{{ i }} % TIMES < call.length;
        let loaded{{ i }} = select(vec3<f32>(), vec3(series[at{{ i }}], series[call.series + at{{ i }}], series[2u * call.series + at{{ i }}]), is_there{{ i }});
{% endfor %}
{% for name in varying %}
{% for i in range(quads) %}
        let loaded_{{ name }}{{ i }} = {{ name }}_of({{ name }}_begins, (lane + {{ i * channels }}u) / TIMES, min(start + (lane + {{ i * channels }}u) % TIMES, call.length - 1u));
{% endfor %}
{% endfor %}
{% for i in range(times) %}
        tile_u[number{{ i }} / TIMES * PITCH + number{{ i }} % TIMES] = loaded{{ i }}.x;
        tile_dt[number{{ i }} / TIMES * PITCH + number{{ i }} % TIMES] = loaded{{ i }}.y;
        tile_grad[number{{ i }} / TIMES * PITCH + number{{ i }} % TIMES] = loaded{{ i }}.z;
{% endfor %}
{% for i in range(quads if varying else 0) %}
        if (lane + {{ i * channels }}u < TIMES * QUADS) {
            let to_here = (lane + {{ i * channels }}u) % TIMES * QUADS + (lane + {{ i * channels }}u) / TIMES;
{% for name in varying %}
            tile_{{ name }}[to_here] = loaded_{{ name }}{{ i }};
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();

        // Naga keeps what a variable without a value had in the iteration before.
        var by_u = array<f32, TIMES>();
        var by_dt = array<f32, TIMES>();
{% set inward = "tile_inward[time * QUADS + quad]" if inward_varies else "own_inward[quad]" %}
{% set outward = "tile_outward[time * QUADS + quad]" if outward_varies else "own_outward[quad]" %}

        for (var quad = 0u; quad < QUADS; quad++) {
            var states = array<vec4<f32>, TIMES + 1>();  // before the tile, and after each step
            var gates: array<vec4<f32>, TIMES>;
{% for i in range(4) %}
            if (is_state(4u * quad + {{ i }}u)) {
                states[0][{{ i }}] = checkpoints[((left - 1u) * call.state_count + call.first_state + 4u * quad + {{ i }}u) * rows + place.row];
            }
{% endfor %}
            for (var time = 0u; time < TIMES; time++) {
                let dt = tile_dt[own + time];
                gates[time] = exp2((LOG2_E * dt) * decay[quad]);
                states[time + 1u] = gates[time] * states[time] + dt * tile_u[own + time] * {{ inward }};
            }
            for (var i = 0u; i < TIMES; i++) {
                let time = TIMES - 1u - i;
                let u = tile_u[own + time];
                let dt = tile_dt[own + time];
                let grad = tile_grad[own + time];
                let of_state = {{ outward }} * grad + after[quad];
                after[quad] = gates[time] * of_state;
                let rate = after[quad] * states[time];
                let of_input = dot(of_state, {{ inward }});
                by_u[time] += of_input * dt;
                by_dt[time] += of_input * u + dot(rate, decay[quad]);
                by_decay[quad] += rate * dt;
                let of_inward = of_state * (dt * u);
                let of_outward = states[time + 1u] * grad;
{% for name in fixed %}
                by_{{ name }}[quad] += of_{{ name }};
{% endfor %}
{% for name in varying %}
{% for i in range(4) %}
                shared_sums[({{ 4 * varying.index(name) + i }}u * TIMES + time) * SUM_PITCH + lane] = of_{{ name }}[{{ i }}];
{% endfor %}
{% endfor %}
            }
{% if varying %}
            workgroupBarrier();
{% for i in range((sums + channels - 1) // channels) %}
            {
                let sum = lane + {{ i * channels }}u;
                let state = 4u * quad + sum / TIMES % 4u;
                let time = start + sum % TIMES;
                if (sum < SUMS && is_state(state) && time < call.length) {
                    var total = 0.0;
                    for (var channel = 0u; channel < place.present; channel++) {
                        total += shared_sums[sum * SUM_PITCH + channel];
                    }
                    let weights = sum / (4u * TIMES) * strip_count() + place.strip;
                    strip_sums[(((weights * call.batches + place.batch) * call.groups + place.group) * call.state_count + call.first_state + state) * call.length + time] = total;
                }
            }
{% endfor %}
            workgroupBarrier();
{% endif %}
        }

        // ----- Store the gradients of the tile
        for (var time = 0u; time < TIMES; time++) {
            tile_u[own + time] = by_u[time];
            tile_dt[own + time] = by_dt[time];
        }
        workgroupBarrier();
{% for i in range(times) %}
        if (is_there{{ i }}) {
            let from_here = number{{ i }} / TIMES * PITCH + number{{ i }} % TIMES;
            results[at{{ i }}] = {{ "results[at%d] + " % i if adds }}tile_u[from_here];
            results[call.series + at{{ i }}] = {{ "results[call.series + at%d] + " % i if adds }}tile_dt[from_here];
        }
{% endfor %}
        workgroupBarrier();
    }

    // ----- Sums over time
    if (!place.exists) {
        return;
    }
    for (var state = 0u; state < STATES; state++) {
        if (is_state(state)) {
            let to_here = place.row * call.state_count + call.first_state + state;
            row_sums[to_here] = by_decay[state / 4u][state % 4u];
{% for name in fixed %}
            row_sums[{{ loop.index }}u * rows * call.state_count + to_here] = by_{{ name }}[state / 4u][state % 4u];
{% endfor %}
        }
    }
}
