{#- The prefix of a piece's first tile, which an earlier piece has computed.
    in:  carries: the item's words -#}
{% if spec.carried %}
@group(0) @binding({{ kernel.binding_of("carries") }}) var<storage, read> carries: array<u32>;

fn carry_in() -> Item {
    return {{ text.item_from_words("carries[{0}]") }};
}
{% endif %}
