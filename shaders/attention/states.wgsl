{#- Walk over the chunks of a window, from one state to the next. S is the state before a chunk, and U its updates: the
    values, or with the delta rule U = (I + A)^-1 beta (v - exp(G) k S), the values less what the state has at their
    keys. The next state is exp(G[end]) S + sum over steps of exp(G[end] - G) k U. Each workgroup takes 32 columns of a
    head's values. pairs.wgsl computes the matrices.
    in:  k; v: (batch, step, head, value); gates, matrices; states: the state before the first chunk
    out: states: (chunk + 1, batch, head, key, value); with the delta rule updates: U, in the shape of v
    Yang et al., "Gated Delta Networks" (2024), section 3.3. -#}
{% import "attention/tile.wgsl" as tile with context %}
{% include "attention/tile.wgsl" %}

@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read_write> states: array<f32>;
{% if delta %}
@group(0) @binding(5) var<storage, read> matrices: array<f32>;
@group(0) @binding(6) var<storage, read_write> updates: array<f32>;
{% endif %}

{{ tile.loader("k", "k", "keys") }}
{{ tile.loader("v", "v", "values") }}
{{ tile.gate_loader() }}
{{ tile.state_loader("state") }}
{% if delta %}
{{ tile.beta_loader() }}
{% endif %}
{{ tile.factor("left") }}
{{ tile.factor("right") }}

{{ tile.main() }}
    let blocks = (call.values + CHUNK - 1u) / CHUNK;
    if (number >= call.batches * call.heads * blocks) {
        return;
    }
    take_head(number / blocks);
    let block = number % blocks * CHUNK;

    for (var now = 0u; now < call.chunks; now++) {
        take_chunk(now);
{{ tile.take_decays() }}
{% if delta %}
        // ----- What the state has at the keys, and the updates
        var product = mat4x4<f32>();
        for (var first = 0u; first < call.keys; first += CHUNK) {
{{ tile.add_product("product", "k_at(outer, first + inner)", "inner", "state_at(chunk, first + inner, block + outer)", "outer") }}
        }
{{ tile.put("left", "product") }}
        workgroupBarrier();
{{ tile.fill("right", "beta_at(inner) * (v_at(inner, block + outer) - decays[inner] * left[inner * PITCH + outer / 4u][outer % 4u])", "outer") }}
        workgroupBarrier();
        let inverse = matrix_index(1u);
{{ tile.fill("left", "matrices[inverse + outer * CHUNK + inner]", "inner") }}
        workgroupBarrier();
        product = mat4x4<f32>();
{{ tile.multiply("product") }}
        workgroupBarrier();
{{ tile.put("right", "product") }}
        workgroupBarrier();
{{ tile.each_number("right") }}
            if (exists(row) && block + column < call.values) {
                updates[position_of(row) * call.values + block + column] = number;
            }
        }
{% else %}
{{ tile.fill("right", "v_at(inner, block + outer)", "outer") }}
{% endif %}
        workgroupBarrier();

        // ----- The next state
        for (var first = 0u; first < call.keys; first += CHUNK) {
{{ tile.fill("left", "k_at(inner, first + outer) * " ~ tile.decay_after("inner", "first + outer"), "outer") }}
            workgroupBarrier();
            var added = mat4x4<f32>();
{{ tile.multiply("added") }}
            workgroupBarrier();
{{ tile.put("left", "added") }}
            workgroupBarrier();
{{ tile.each_number("left") }}
                let key = first + row;
                if (key < call.keys && block + column < call.values) {
                    states[state_index(chunk + 1u, key, block + column)] = {{ tile.whole_decay("key") }} * state_at(chunk, key, block + column) + number;
                }
            }
            workgroupBarrier();
        }
        storageBarrier();
    }
}
