{#- Walk over the chunks of a window backwards. Each chunk turns the gradient of the state after it, dS', into the
    gradient of the state before it: dS = exp(G[end]) dS' + sum over steps of scale exp(G) q do. With the delta rule,
    beta exp(G) k dR is subtracted. The gradient of the updates is dU = pairs^T do + exp(G[end] - G) k dS', and with the
    delta rule dR = (I + A)^-T dU. Each workgroup takes 32 columns of a head's values. pairs.wgsl computes the matrices.
    in:  q, k, gates, matrices; grad: do, the gradient of the outputs; states, from `grads` on: the gradient of the
         state after the last chunk
    out: states, from `grads` on: the gradients before each chunk, (chunk + 1, batch, head, key, value); updates, from
         `grads_of_updates` on: dR, or without the delta rule the gradient of the values, in their shape
    The gradients follow from the chunked form in Yang et al., "Gated Delta Networks" (2024). -#}
{% import "attention/tile.wgsl" as tile with context %}
{% include "attention/tile.wgsl" %}

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> gates: array<f32>;
@group(0) @binding(4) var<storage, read> matrices: array<f32>;
@group(0) @binding(5) var<storage, read> grad: array<f32>;
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> updates: array<f32>;

{{ tile.loader("q", "q", "keys") }}
{{ tile.loader("k", "k", "keys") }}
{{ tile.loader("grad", "grad", "values") }}
{{ tile.gate_loader() }}
{{ tile.state_loader("grad_state", "call.grads + ") }}
{{ tile.factor("left") }}
{{ tile.factor("right") }}
{{ tile.factor("of_outputs") }}

{% if delta %}
{{ tile.beta_loader() }}
{% endif %}

{{ tile.main() }}
    let blocks = (call.values + CHUNK - 1u) / CHUNK;
    if (number >= call.batches * call.heads * blocks) {
        return;
    }
    take_head(number / blocks);
    let block = number % blocks * CHUNK;

    for (var left_over = call.chunks; left_over > 0u; left_over--) {
        take_chunk(left_over - 1u);
{{ tile.take_decays() }}

        // ----- The gradient of the updates
        let pairs = matrix_index(0u);
        var product = mat4x4<f32>();
{{ tile.fill("left", "matrices[pairs + inner * CHUNK + outer]", "outer") }}
{{ tile.fill("of_outputs", "grad_at(inner, block + outer)", "outer") }}
        workgroupBarrier();
{{ tile.multiply("product", right="of_outputs") }}
        workgroupBarrier();
        for (var first = 0u; first < call.keys; first += CHUNK) {
{{ tile.add_product("product", "k_at(outer, first + inner) * " ~ tile.decay_after("outer", "first + inner"), "inner", "grad_state_at(chunk + 1u, first + inner, block + outer)", "outer") }}
        }
{{ tile.put("right", "product") }}
{% if delta %}
        let inverse = matrix_index(1u);
{{ tile.fill("left", "matrices[inverse + inner * CHUNK + outer]", "outer") }}
        workgroupBarrier();
        product = mat4x4<f32>();
{{ tile.multiply("product") }}
        workgroupBarrier();
{{ tile.put("right", "product") }}
{% endif %}
        workgroupBarrier();
{{ tile.each_number("right") }}
            if (exists(row) && block + column < call.values) {
                updates[call.grads_of_updates + position_of(row) * call.values + block + column] = number;
            }
        }

        // ----- The gradient of the state before the chunk
        for (var first = 0u; first < call.keys; first += CHUNK) {
            var added = mat4x4<f32>();
{{ tile.fill("left", "call.scale * q_at(inner, first + outer) * " ~ tile.decay("inner", "first + outer"), "outer") }}
            workgroupBarrier();
{{ tile.multiply("added", right="of_outputs") }}
            workgroupBarrier();
{% if delta %}
{{ tile.fill("left", "-beta_at(inner) * decays[inner] * k_at(inner, first + outer)", "outer") }}
            workgroupBarrier();
{{ tile.multiply("added") }}
            workgroupBarrier();
{% endif %}
{{ tile.put("left", "added") }}
            workgroupBarrier();
{{ tile.each_number("left") }}
                let key = first + row;
                if (key < call.keys && block + column < call.values) {
                    states[call.grads + state_index(chunk, key, block + column)] = {{ tile.whole_decay("key") }} * grad_state_at(chunk + 1u, key, block + column) + number;
                }
            }
            workgroupBarrier();
        }
        storageBarrier();
    }
}
