{#- Tile totals in plain memory, between the dispatches of three_dispatch: first the tiles' aggregates, then in their place
    the prefix of each tile. They have a buffer of their own, since their words could look like posts. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(tile: u32) -> Item {
    let at = min(tile, params.tiles - 1u) * ITEM_WORDS;
    return item_from_words(Words({% for word in range(kernel.item_words) %}state.totals[at + {{ word }}u]{{ ", " if not loop.last }}{% endfor %}));
}

fn write_total(tile: u32, item: Item) {
    let at = tile * ITEM_WORDS;
    let words = item_to_words(item);
{% for word in range(kernel.item_words) %}
    state.totals[at + {{ word }}u] = words[{{ word }}];
{% endfor %}
}
