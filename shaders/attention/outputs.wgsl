{#- Compute the outputs of each chunk by itself: o = scale exp(G) q S + pairs U, with the state S before the chunk and
    its updates U. Each workgroup takes 32 columns of the values of a chunk.
    in:  q, gates, matrices, states; updates: with the delta rule the updates from states.wgsl, else the values
    out: o: (batch, step, head, value)
    Yang et al., "Gated Delta Networks" (2024), section 3.3; Dao & Gu, "Transformers are SSMs" (2024), section 6. -#}
{% import "attention/tile.wgsl" as tile with context %}
{% include "attention/tile.wgsl" %}

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> gates: array<f32>;
@group(0) @binding(3) var<storage, read> matrices: array<f32>;
@group(0) @binding(4) var<storage, read> states: array<f32>;
@group(0) @binding(5) var<storage, read> updates: array<f32>;
@group(0) @binding(6) var<storage, read_write> o: array<f32>;

{{ tile.loader("q", "q", "keys") }}
{{ tile.loader("update", "updates", "values") }}
{{ tile.gate_loader() }}
{{ tile.state_loader("state") }}
{{ tile.factor("left") }}
{{ tile.factor("right") }}

{{ tile.main() }}
    let blocks = (call.values + CHUNK - 1u) / CHUNK;
    if (number >= call.batches * call.heads * call.chunks * blocks) {
        return;
    }
    let block = number % blocks * CHUNK;
    take_head(number / blocks / call.chunks);
    take_chunk(number / blocks % call.chunks);

{{ tile.take_decays() }}
    workgroupBarrier();
    var product = mat4x4<f32>();
    for (var first = 0u; first < call.keys; first += CHUNK) {
{{ tile.add_product("product", "call.scale * q_at(outer, first + inner) * " ~ tile.decay("outer", "first + inner"), "inner", "state_at(chunk, first + inner, block + outer)", "outer") }}
    }
    let pairs = matrix_index(0u);
{{ tile.add_product("product", "matrices[pairs + outer * CHUNK + inner]", "inner", "update_at(inner, block + outer)", "outer") }}
{{ tile.put("right", "product") }}
    workgroupBarrier();
{{ tile.each_number("right") }}
        if (exists(row) && block + column < call.values) {
            o[position_of(row) * call.values + block + column] = number;
        }
    }
}
