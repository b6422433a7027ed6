{#- Tile totals in plain memory, between the dispatches of three_dispatch: for each tile, each word of every column side
    by side. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(tile: u32, lane: u32) -> Chunk {
    let at = tile * (CHUNK * ITEM_WORDS * COLUMNS) + lane;
    return Chunk(
{% for column in range(kernel.tile.chunk) %}
        {{ text.item_from_words("state.totals[at + {0}u * COLUMNS]", column * kernel.item_words) }},
{% endfor %}
    );
}

fn write_total(tile: u32, lane: u32, chunk: Chunk) {
    let at = tile * (CHUNK * ITEM_WORDS * COLUMNS) + lane;
{% for column in range(kernel.tile.chunk) %}
{% for word in text.item_words("chunk[%d]" % column) %}
    state.totals[at + {{ column * kernel.item_words + loop.index0 }}u * COLUMNS] = {{ word }};
{% endfor %}
{% endfor %}
}
