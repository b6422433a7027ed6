{#- Steps 3 and 4 of a tile in the canonical order: join the halves before the tile from the nearest on, and store.
    in:  `own`, the items of the invocation, scanned within the tile; in an exclusive scan, the last item of each chunk
         is in `scratch`
         `tile_leads`, at index k what the tile is joined with if bit k of its number is set -#}
{% from "scan/halves.wgsl" import chunk_slot with context %}
{% set chunk, steps = kernel.tile.chunk, kernel.tile.steps %}
{% macro same(item) %}Leads({% for step in range(steps) %}{{ item }}{{ ", " if not loop.last }}{% endfor %}){% endmacro %}
    // 3. Join the halves before the tile.
{% if spec.exclusive %}
    var result = Items({% for step in range(steps) %}{{ text.from_shared("scratch[%s]" % ("max(invocation, 1u) - 1u" if step == 0 else chunk_slot(step) ~ " - 1u")) }}{% for position in range(chunk - 1) %}, own[{{ step * chunk + position }}]{% endfor %}{{ ", " if not loop.last }}{% endfor %});
    var has_lead = invocation > 0u;  // result[0] has what is before the invocation's first item
{% else %}
    var result = own;
{% endif %}
{% macro join_half(half, suffix) %}
        let half = {{ half }};
{% if spec.exclusive %}
        let begin = pick(has_lead, join(half, result[0]), half);
{% endif %}
        result = join_halves{{ suffix }}({{ same("half") }}, result);
{% if spec.exclusive %}
        result[0] = begin;
        has_lead = true;
{% endif %}
{% endmacro %}
{% macro join_tile(suffix) %}
    for (var level = 0u; level < TILE_LEADS; level++) {
        // At the last level, these are the number of the span, and the lead is the fold of all spans before.
        let higher_bits = tile >> level;
        if (select(higher_bits & 1u, higher_bits, level == TILE_LEADS - 1u) != 0u) {
{{ join_half(text.from_shared("tile_leads[level]"), suffix) | indent(4, true) }}
        }
    }
{% if spec.carried %}
    if (tile < {{ kernel.tiles_per_span }}u) {
{{ join_half("carry_in()", suffix) }}
    }
{% endif %}
{% endmacro %}
{% if kernel.strategy != "alone" and spec.combine.bounded %}
{% if not kernel.posts %}
    for (var level = 0u; level < TILE_LEADS; level++) {
        let lead = {{ text.from_shared("tile_leads[level]") }};
        exact = exact | are_small(sizes_of(lead{{ ".value" if kernel.segmented }}));
    }
{% endif %}
{% if spec.carried %}
    let carried = carry_in();
    exact = exact | are_small(sizes_of(carried{{ ".value" if kernel.segmented }}));
{% endif %}
    if (exact) {
{{ join_tile("_exactly") | indent(4, true) }}
    } else {
{{ join_tile("") | indent(4, true) }}
    }
{% elif kernel.strategy != "alone" %}
{{ join_tile("") -}}
{% endif %}

    // 4. Store every element once.
{% for step in range(steps) %}
    store_chunk({{ chunk_start(step) }}, Chunk({% for position in range(chunk) %}result[{{ step * chunk + position }}]{{ ", " if not loop.last }}{% endfor %}));
{% endfor %}
