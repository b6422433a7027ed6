{#- Steps 3 and 4 of a tile in the canonical order: join the halves before the tile from the nearest on, and store.
    in:  `chunk0`, scanned within the tile; `tile_lead`, the item before the chunk in the tile, if `led`
         `tile_leads`, in place k what the tile is joined with if bit k of its number is set -#}
{% set chunk = kernel.tile.chunk %}
    // 3. Join the halves before the tile.
{% if spec.exclusive %}
    var result = Chunk(tile_lead{% for position in range(chunk - 1) %}, chunk0[{{ position }}]{% endfor %});
    var begun = led;
{% else %}
    var result = chunk0;
{% endif %}
{% macro join_half(half) %}
        let half = {{ half }};
{% if spec.exclusive %}
        let begin = pick(begun, join_pair(half, result[0]), half);
{% endif %}
        result = join_halves(half, result);
{% if spec.exclusive %}
        result[0] = begin;
        begun = true;
{% endif %}
{% endmacro %}
{% if kernel.strategy != "alone" %}
    for (var level = 0u; level < TILE_LEADS; level++) {
        let halves = tile >> level;  // the last lead is the fold of all spans before
        if (select(halves & 1u, halves, level == TILE_LEADS - 1u) != 0u) {
{{ join_half(text.from_shared("tile_leads[level]")) | indent(4, true) }}
        }
    }
{% if spec.carried %}
    if (tile < {{ kernel.tiles_per_span }}u) {
{{ join_half("carry_in()") }}
    }
{% endif %}
{% endif %}

    // 4. Store every element once.
    store_chunk(first, result);
