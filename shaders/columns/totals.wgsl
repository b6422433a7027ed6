{#- Tile totals in plain memory, between the dispatches of three_dispatch: for each tile, each word of every column side by
    side. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(tile: u32, lane: u32) -> Chunk {
    let at = tile * (CHUNK * ITEM_WORDS * COLUMNS) + lane;
    return Chunk(
{% for column in range(kernel.tile.chunk) %}
        item_from_words(Words(
{% for word in range(kernel.item_words) %}
            state.totals[at + {{ column * kernel.item_words + word }}u * COLUMNS],
{% endfor %}
        )),
{% endfor %}
    );
}

fn write_total(tile: u32, lane: u32, chunk: Chunk) {
    let at = tile * (CHUNK * ITEM_WORDS * COLUMNS) + lane;
{% for column in range(kernel.tile.chunk) %}
    let words{{ column }} = item_to_words(chunk[{{ column }}]);
{% for word in range(kernel.item_words) %}
    state.totals[at + {{ column * kernel.item_words + word }}u * COLUMNS] = words{{ column }}[{{ word }}];
{% endfor %}
{% endfor %}
}
