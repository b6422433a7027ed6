{#- After the single pass over a piece of whole blocks: compute the carry of the next piece.
    in:  the tile state, and the carry that came into the piece
    out: carry_out: P(block) ⊕ T(block) of the last block, as plain words
    The tiles have posted both terms, or the fold has posted their sum. -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "shared/tile_state.wgsl" %}

{% include "scan/carry_in.wgsl" %}
@group(0) @binding({{ kernel.binding_of("carry_out") }}) var<storage, read_write> carry_out: array<u32>;

@compute @workgroup_size(1)
fn main() {
{% if spec.everywhere %}
    let carry = read_post(fold_of(params.tiles / {{ kernel.tiles_per_span }}u - 1u)).item;
{% elif kernel.wait_policy.one_workgroup_folds %}
    let carry = read_post(prefix_after(params.tiles - 1u)).item;
{% else %}
    let block = params.tiles / BLOCK - 1u;
    let total = read_post(total_of(block)).item;
{% if spec.carried %}
    let carry = join(pick(block > 0u, read_post(prefix_of(block)).item, carry_in()), total);
{% else %}
    let carry = pick(block > 0u, join(read_post(prefix_of(block)).item, total), total);
{% endif %}
{% endif %}
{% for word in text.item_words("carry") %}
    carry_out[{{ loop.index0 }}] = {{ word }};
{% endfor %}
}
