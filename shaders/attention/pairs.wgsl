{#- Prepare each chunk by itself. With G[i] the sum of the logarithms of the decays up to step i of the chunk,
    pairs[i, j] = scale sum over keys of exp(G[i] - G[j]) q[i] k[j] for j <= i. With the delta rule also the inverse of
    I + A, where A[i, j] = beta[i] exp(G[i] - G[j]) sum of k[i] k[j] for j < i. Differences of G are never above 0.
    in:  q, k: (batch, step, head, key); g: (batch, step, head), or with `by_key` (batch, step, head, key); beta:
         (batch, step, head)
    out: gates: G in the shape of g, and with the delta rule beta; matrices: (chunk, batch, head, MATRICES, 32, 32)
    Yang et al., "Gated Delta Networks" (2024), section 3.3; Yang et al., "Gated Linear Attention Transformers" (2024),
    section 4. -#}
{% import "attention/tile.wgsl" as tile with context %}
{% include "attention/tile.wgsl" %}

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> g: array<f32>;
@group(0) @binding(4) var<storage, read_write> gates: array<f32>;
@group(0) @binding(5) var<storage, read_write> matrices: array<f32>;
{% if delta %}
@group(0) @binding(6) var<storage, read> beta: array<f32>;
{% endif %}

// The least logarithm of a decay. The decay is 0 in float32, and sums of it stay exact enough.
const LEAST_GATE = -104.0;

{{ tile.loader("q", "q", "keys") }}
{{ tile.loader("k", "k", "keys") }}
{{ tile.gate_loader() }}
{% if delta %}
{{ tile.beta_loader() }}
{% endif %}
{{ tile.factor("left") }}
{{ tile.factor("right") }}
{% if by_key %}
{{ tile.factor("gate_factor") }}
{% endif %}
{% if delta %}
// I + A without its diagonal, and above that the inverse, turned.
var<workgroup> system: array<f32, {{ 32 * 32 }}>;
{% endif %}

// Return a logarithm of a decay, also of one that is 0. NaN stays.
fn limited(gate: f32) -> f32 {
    return select(gate, LEAST_GATE, gate < LEAST_GATE);
}

{{ tile.main() }}
    if (number >= call.batches * call.heads * call.chunks) {
        return;
    }
    take_head(number / call.chunks);
    take_chunk(number % call.chunks);

    // ----- Sums of the logarithms
{% if by_key %}
    for (var key = lane; key < call.keys; key += LANES) {
        var sum = 0.0;
        for (var step = 0u; step < CHUNK && exists(step); step++) {
            let at = position_of(step) * call.keys + key;
            sum += limited(g[at]);
            gates[at] = sum;
        }
    }
{% else %}
    if (lane < CHUNK && exists(lane)) {
        var sum = 0.0;
        for (var step = 0u; step <= lane; step++) {
            sum += limited(g[position_of(step)]);
        }
        gates[position_of(lane)] = sum;
{% if delta %}
        gates[call.beta + position_of(lane)] = beta[position_of(lane)];
{% endif %}
    }
{% endif %}
    storageBarrier();

    // ----- Pairs of steps
    var pairs = mat4x4<f32>();
{% if delta %}
    var products = mat4x4<f32>();
{% endif %}
    for (var first = 0u; first < call.keys; first += CHUNK) {
{{ tile.fill("left", "q_at(outer, first + inner)", "inner") }}
{{ tile.fill("right", "k_at(outer, first + inner)", "inner") }}
{% if by_key %}
{{ tile.fill("gate_factor", "gate_at(outer, first + inner)", "inner") }}
        workgroupBarrier();
        for (var inner = 0u; inner < CHUNK; inner++) {
            let of_q = left[inner * PITCH + y];
            let of_k = right[inner * PITCH + x];
            let later = gate_factor[inner * PITCH + y];
            let earlier = gate_factor[inner * PITCH + x];
            if (y > x) {
                // By way of the first row: both differences are at most 0.
                let a = of_q * exp(later - later.x);
                let b = of_k * exp(later.x - earlier);
                pairs += mat4x4<f32>(a.x * b, a.y * b, a.z * b, a.w * b);
            } else if (y == x) {
{% for i in range(4) %}
                pairs[{{ i }}] += of_q[{{ i }}] * of_k * exp(later[{{ i }}] - earlier);
{% endfor %}
            }
        }
{% else %}
        workgroupBarrier();
{{ tile.multiply("pairs") }}
{% if delta %}
        workgroupBarrier();
{{ tile.fill("left", "k_at(outer, first + inner)", "inner") }}
        workgroupBarrier();
{{ tile.multiply("products") }}
{% endif %}
{% endif %}
        workgroupBarrier();
    }
{{ tile.put("right", "pairs") }}
{% if delta %}
{{ tile.put("left", "products") }}
{% endif %}
    workgroupBarrier();
    let to_pairs = matrix_index(0u);
{{ tile.each_number("right") }}
        var pair = call.scale * number;
{% if not by_key %}
        let decay = exp(gate_at(row, 0u) - gate_at(column, 0u));
        pair *= decay;
{% endif %}
        matrices[to_pairs + at] = select(0.0, pair, column <= row);
{% if delta %}
        system[at] = select(0.0, beta_at(row) * decay * left[row * PITCH + column / 4u][column % 4u], column < row);
{% endif %}
    }
{% if delta %}

    // ----- The inverse, by forward substitution: each invocation takes a column, which it keeps above the diagonal
    workgroupBarrier();
    if (lane < CHUNK) {
        for (var row = lane + 1u; row < CHUNK; row++) {
            var sum = -system[row * CHUNK + lane];
            for (var before = lane + 1u; before < row; before++) {
                sum -= system[row * CHUNK + before] * system[lane * CHUNK + before];
            }
            system[lane * CHUNK + row] = sum;
        }
    }
    workgroupBarrier();
    let to_inverse = matrix_index(1u);
    for (var at = lane; at < CHUNK * CHUNK; at += LANES) {
        let row = at / CHUNK;
        let column = at % CHUNK;
        let below = select(0.0, system[column * CHUNK + row], column < row);
        matrices[to_inverse + at] = select(below, 1.0, column == row);
    }
{% endif %}
}
