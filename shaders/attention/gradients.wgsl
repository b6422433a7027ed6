{#- Compute the gradients of each chunk by itself, from the state S before it, the gradient dS' of the state after it,
    S', its updates U, and dR of state_gradients.wgsl. With M[i, j] = scale exp(G[i] - G[j]) do[i] U[j] for j <= i, and
    N[i, j] = -exp(G[i] - G[j]) dR[i] U[j] for j < i:
        dq = scale exp(G) do S^T + M k
        w = N k - exp(G) dR S^T
        dk = M^T q + N^T (beta k) + exp(G[end] - G) U dS'^T + beta w
        dbeta = dR v + w k
        dv = beta dR
        dg = the sum of q dq + beta w k - k (dk - beta w) from a step to the chunk's end, plus the sum of S' dS'
    With `by_key` the exponentials are within the sums over keys, and dg has one number for each key.
    in:  q, k, gates, grad: do; values: v; states: S, and from `grads` on dS; with the delta rule updates: U, and from
         `grads_of_updates` on dR
    out: results: dq, and from `grads_of_k`, `grads_of_g` and `grads_of_beta` on dk, dg and dbeta; with the delta rule
         updates: dv instead of dR
    The gradients follow from the chunked form in Yang et al., "Gated Delta Networks" (2024). See also Yang et al.,
    "Gated Linear Attention Transformers" (2024), appendix C. -#}
{% import "attention/tile.wgsl" as tile with context %}
{% include "attention/tile.wgsl" %}

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read> gates: array<f32>;
@group(0) @binding(5) var<storage, read> grad: array<f32>;
@group(0) @binding(6) var<storage, read> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> results: array<f32>;
{% if delta %}
@group(0) @binding(8) var<storage, read_write> updates: array<f32>;
{% endif %}

{{ tile.loader("q", "q", "keys") }}
{{ tile.loader("k", "k", "keys") }}
{{ tile.loader("value", "values", "values") }}
{{ tile.loader("grad", "grad", "values") }}
{% if delta %}
{{ tile.loader("update", "updates", "values") }}
{{ tile.loader("residual", "updates", "values", "call.grads_of_updates + ") }}
{% endif %}
{% set update_at = "update_at" if delta else "value_at" %}
{{ tile.gate_loader() }}
{{ tile.state_loader("state") }}
{{ tile.state_loader("grad_state", "call.grads + ") }}
{{ tile.factor("left") }}
{{ tile.factor("right") }}
// M on and below the diagonal, and N^T above it. Later sums over keys and values.
var<workgroup> matrix: array<f32, {{ 32 * 32 }}>;

{% if delta %}
{{ tile.beta_loader() }}
{% endif %}

// Return four numbers of a query, and of a key.
fn queries_at(step: u32, key: u32) -> vec4<f32> {
    return vec4(q_at(step, key), q_at(step, key + 1u), q_at(step, key + 2u), q_at(step, key + 3u));
}

fn keys_at(step: u32, key: u32) -> vec4<f32> {
    return vec4(k_at(step, key), k_at(step, key + 1u), k_at(step, key + 2u), k_at(step, key + 3u));
}
{% if by_key %}

// Return the logarithms of the decays of four keys.
fn gates_at(step: u32, key: u32) -> vec4<f32> {
    return vec4(gate_at(step, key), gate_at(step, key + 1u), gate_at(step, key + 2u), gate_at(step, key + 3u));
}
{% endif %}

{{ tile.main() }}
    if (number >= call.batches * call.heads * call.chunks) {
        return;
    }
    take_head(number / call.chunks);
    take_chunk(number % call.chunks);

{{ tile.take_decays() }}
    // ----- M and N
    {
        var of_pairs = mat4x4<f32>();
        var of_system = mat4x4<f32>();
        for (var first = 0u; first < call.values; first += CHUNK) {
{{ tile.add_product("of_pairs", "grad_at(outer, first + inner)", "inner", update_at ~ "(outer, first + inner)", "inner") }}
{% if delta %}
{{ tile.fill("left", "residual_at(outer, first + inner)", "inner") }}
            workgroupBarrier();
{{ tile.multiply("of_system") }}
            workgroupBarrier();
{% endif %}
        }
{{ tile.put("right", "of_pairs") }}
{% if delta %}
{{ tile.put("left", "of_system") }}
{% endif %}
        workgroupBarrier();
{{ tile.each_number("right") }}
            if (column <= row) {
                let decay = {{ "1.0" if by_key else "exp(gate_at(row, 0u) - gate_at(column, 0u))" }};
                matrix[at] = call.scale * decay * number;
{% if delta %}
                if (column < row) {
                    matrix[column * CHUNK + row] = -decay * left[row * PITCH + column / 4u][column % 4u];
                }
{% endif %}
            }
        }
        workgroupBarrier();
    }

    var by_gate = vec4<f32>();
    var by_beta = vec4<f32>();
    for (var key = 0u; key < call.keys; key += CHUNK) {
        // ----- By way of the states
        var of_q = mat4x4<f32>();
        var of_k = mat4x4<f32>();
        var of_row = mat4x4<f32>();
        for (var first = 0u; first < call.values; first += CHUNK) {
{{ tile.add_product("of_q", "grad_at(outer, first + inner)", "inner", "state_at(chunk, key + outer, first + inner)", "inner") }}
{% if delta %}
{{ tile.fill("left", "residual_at(outer, first + inner)", "inner") }}
            workgroupBarrier();
{{ tile.multiply("of_row") }}
            workgroupBarrier();
{% endif %}
{{ tile.add_product("of_k", update_at ~ "(outer, first + inner)", "inner", "grad_state_at(chunk + 1u, key + outer, first + inner)", "inner") }}
        }
{% for i in range(4) %}
        {
            let row = 4u * y + {{ i }}u;
{% if by_key %}
            let gate = gates_at(row, key + 4u * x);
            of_q[{{ i }}] *= call.scale * exp(gate);
            of_k[{{ i }}] *= exp(gates_at(CHUNK - 1u, key + 4u * x) - gate);
{% else %}
            of_q[{{ i }}] *= call.scale * decays[row];
            of_k[{{ i }}] *= decays_after[row];
{% if delta %}
            of_row[{{ i }}] *= -decays[row];
{% endif %}
{% endif %}
        }
{% endfor %}

        // ----- By way of pairs of steps
{% if by_key %}
{{ tile.fill("left", "gate_at(inner, key + outer)", "outer") }}
{{ tile.fill("right", "k_at(inner, key + outer)", "outer") }}
        workgroupBarrier();
        {
            // By way of the first of the own rows: all differences are at most 0.
            let middle = left[4u * y * PITCH + x];
            var sums = mat4x4<f32>();
            for (var step = 0u; step < 4u * y; step++) {
                let number = right[step * PITCH + x] * exp(middle - left[step * PITCH + x]);
{% for i in range(4) %}
                sums[{{ i }}] += matrix[(4u * y + {{ i }}u) * CHUNK + step] * number;
{% endfor %}
            }
{% for i in range(4) %}
            of_q[{{ i }}] += sums[{{ i }}] * exp(left[(4u * y + {{ i }}u) * PITCH + x] - middle);
{% for j in range(i + 1) %}
            of_q[{{ i }}] += matrix[(4u * y + {{ i }}u) * CHUNK + 4u * y + {{ j }}u] * right[(4u * y + {{ j }}u) * PITCH + x] * exp(left[(4u * y + {{ i }}u) * PITCH + x] - left[(4u * y + {{ j }}u) * PITCH + x]);
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
{{ tile.fill("right", "q_at(inner, key + outer)", "outer") }}
        workgroupBarrier();
        {
            // By way of the last of the own rows.
            let middle = left[(4u * y + 3u) * PITCH + x];
            var sums = mat4x4<f32>();
            for (var step = 4u * y + 4u; step < CHUNK; step++) {
                let number = right[step * PITCH + x] * exp(left[step * PITCH + x] - middle);
{% for i in range(4) %}
                sums[{{ i }}] += matrix[step * CHUNK + 4u * y + {{ i }}u] * number;
{% endfor %}
            }
{% for i in range(4) %}
            of_k[{{ i }}] += sums[{{ i }}] * exp(middle - left[(4u * y + {{ i }}u) * PITCH + x]);
{% for j in range(i, 4) %}
            of_k[{{ i }}] += matrix[(4u * y + {{ j }}u) * CHUNK + 4u * y + {{ i }}u] * right[(4u * y + {{ j }}u) * PITCH + x] * exp(left[(4u * y + {{ j }}u) * PITCH + x] - left[(4u * y + {{ i }}u) * PITCH + x]);
{% endfor %}
{% endfor %}
        }
        workgroupBarrier();
{% else %}
{{ tile.add_product("of_q", "select(0.0, matrix[outer * CHUNK + inner], inner <= outer)", "inner", "k_at(inner, key + outer)", "outer") }}
{% if delta %}
{{ tile.fill("left", "select(0.0, matrix[inner * CHUNK + outer], inner < outer)", "outer") }}
        workgroupBarrier();
{{ tile.multiply("of_row") }}
        workgroupBarrier();
{% endif %}
{{ tile.add_product("of_k", "select(0.0, matrix[inner * CHUNK + outer], outer <= inner)", "outer", "q_at(inner, key + outer)", "outer") }}
{% if delta %}
{{ tile.add_product("of_k", "select(0.0, matrix[outer * CHUNK + inner], outer < inner)", "inner", "beta_at(inner) * k_at(inner, key + outer)", "outer") }}
{% endif %}
{% endif %}

        // ----- Store, and sum over the keys
{% if delta %}
{{ tile.put("left", "of_row") }}
        for (var i = 0u; i < 4u; i++) {
            let sum = dot(left[(4u * y + i) * PITCH + x], keys_at(4u * y + i, key + 4u * x));
            by_beta[i] += sum;
            by_gate[i] += 2.0 * beta_at(4u * y + i) * sum;
        }
{% for i in range(4) %}
        of_k[{{ i }}] += beta_at(4u * y + {{ i }}u) * of_row[{{ i }}];
{% endfor %}
{% endif %}
{{ tile.put("left", "of_q") }}
{{ tile.put("right", "of_k") }}
        workgroupBarrier();
{{ tile.each_number("left") }}
            if (exists(row) && key + column < call.keys) {
                let to_here = position_of(row) * call.keys + key + column;
                results[to_here] = number;
                results[call.grads_of_k + to_here] = right[row * PITCH + column / 4u][column % 4u];
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            let row = (4u * y + i) * PITCH + x;
            let of_gates = queries_at(4u * y + i, key + 4u * x) * left[row] - keys_at(4u * y + i, key + 4u * x) * right[row];
{% if by_key %}
            left[row] = of_gates;
{% else %}
            by_gate[i] += dot(of_gates, vec4(1.0));
{% endif %}
        }
        workgroupBarrier();
{% if by_key %}
        if (lane < CHUNK && key + lane < call.keys) {
            var sum = 0.0;
            for (var value = 0u; value < call.values; value++) {
                sum += state_at(chunk + 1u, key + lane, value) * grad_state_at(chunk + 1u, key + lane, value);
            }
            for (var later = CHUNK; later > 0u; later--) {
                sum += left[(later - 1u) * PITCH + lane / 4u][lane % 4u];
                if (exists(later - 1u)) {
                    results[call.grads_of_g + position_of(later - 1u) * call.keys + key + lane] = sum;
                }
            }
        }
        workgroupBarrier();
{% endif %}
    }
{% if not by_key %}

    // ----- Sums over keys and values
    var of_end = 0.0;
    for (var at = lane; at < call.keys * call.values; at += LANES) {
        let index = state_index(chunk + 1u, 0u, 0u) + at;
        of_end += states[index] * states[call.grads + index];
    }
    workgroupBarrier();
    matrix[lane] = of_end;
    left[lane] = by_gate;
{% if delta %}
    right[lane] = by_beta;
{% endif %}
    workgroupBarrier();
    if (lane < CHUNK) {
        var sum = 0.0;
        for (var i = 0u; i < 8u; i++) {
            sum += left[lane / 4u * 8u + i][lane % 4u];
        }
        matrix[LANES + lane] = sum;
    }
    workgroupBarrier();
    if (lane < CHUNK && exists(lane)) {
        var sum = 0.0;
        for (var i = 0u; i < LANES; i++) {
            sum += matrix[i];
        }
        for (var later = CHUNK; later > lane; later--) {
            sum += matrix[LANES + later - 1u];
        }
        results[call.grads_of_g + position_of(lane)] = sum;
{% if delta %}
        sum = 0.0;
        for (var i = 0u; i < 8u; i++) {
            sum += right[lane / 4u * 8u + i][lane % 4u];
        }
        for (var value = 0u; value < call.values; value++) {
            sum += residual_at(lane, value) * value_at(lane, value);
        }
        results[call.grads_of_beta + position_of(lane)] = sum;
{% endif %}
    }
{% if delta %}
    storageBarrier();

    // ----- The gradient of the values
    for (var at = lane; at < CHUNK * call.values; at += LANES) {
        let step = at / call.values;
        if (exists(step)) {
            updates[call.grads_of_updates + position_of(step) * call.values + at % call.values] *= beta_at(step);
        }
    }
{% endif %}
{% endif %}
}
