{#- Tile totals in plain memory, between the dispatches of three_dispatch: first the tiles' aggregates, then in their
    place the prefix of each tile. They have a buffer of their own, since their words could look like posts. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(tile: u32) -> Item {
    let at = min(tile, params.tiles - 1u) * ITEM_WORDS;
    return {{ text.item_from_words("state.totals[at + {0}u]") }};
}

fn write_total(tile: u32, item: Item) {
    let at = tile * ITEM_WORDS;
{% for word in text.item_words("item") %}
    state.totals[at + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
}
