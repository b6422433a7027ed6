{#- After the single pass over a piece of whole blocks: what comes before the next piece, P(block) ⊕ T(block) of the
    last block, which its tiles have posted.
    in:  the tile state, the carry that came into the piece
    out: carry_out: the carry in plain words -#}
{% include "parts/header.wgsl" %}
{% include "parts/element.wgsl" %}
{% include "parts/operator.wgsl" %}
{% include "parts/tile_state.wgsl" %}

{% if kernel.carried %}
@group(0) @binding({{ kernel.carry_binding }}) var<storage, read> carries: array<u32>;
{% endif %}
@group(0) @binding({{ kernel.carry_out_binding }}) var<storage, read_write> carry_out: array<u32>;

@compute @workgroup_size(1)
fn main() {
    let block = params.tiles / BLOCK - 1u;
    let total = read_post(total_of(block)).item;
{% if kernel.carried %}
    let first = item_from_words(Words({% for word in range(kernel.item_words) %}carries[{{ word }}]{{ ", " if not loop.last }}{% endfor %}));
    let carry = join(pick(block > 0u, read_post(prefix_of(block)).item, first), total);
{% else %}
    let carry = pick(block > 0u, join(read_post(prefix_of(block)).item, total), total);
{% endif %}
    let words = item_to_words(carry);
{% for word in range(kernel.item_words) %}
    carry_out[{{ word }}] = words[{{ word }}];
{% endfor %}
}
