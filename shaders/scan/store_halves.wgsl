{#- Steps 3 and 4 of a tile in the canonical order: join the halves before the tile from the nearest on, and store.
    in:  `chunk0`, scanned within the tile; `tile_lead`, the item before the chunk in the tile, if `led`
         the tile totals: scan/halve_totals.wgsl -#}
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
        let begin = pick(begun, join(half, result[0]), half);
{% endif %}
        result = join_chunk(true, half, result);
{% if spec.exclusive %}
        result[0] = begin;
        begun = true;
{% endif %}
{% endmacro %}
{% if kernel.strategy != "alone" %}
    var before = tile;  // tiles that are not joined yet
    loop {
        if (before == 0u) {
            break;
        }
{{ join_half("read_total(before - 1u)") }}
        if (before % {{ kernel.tiles_per_span }}u == 0u) {
            break;  // the fold of all spans before
        }
        before &= before - 1u;
    }
{% if spec.carried %}
    if (before == 0u) {
{{ join_half("carry_in()") }}
    }
{% endif %}
{% endif %}

    // 4. Store every element once.
    store_chunk(first, result);
