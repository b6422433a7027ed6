{#- Steps 3 and 4 of a tile in the canonical order: join what is before each chunk with the items of the chunk, and store.
    in:  `own`, the items of the invocation, scanned within their chunks
         `leads_in_group`, what is before each chunk in its group
         `tile_leads`, at index k the half before the tile if bit k of its number is set -#}
{% set chunk, steps = kernel.tile.chunk, kernel.tile.steps %}
{% if kernel.strategy == "three_dispatch" and spec.combine.bounded %}
    for (var level = 0u; level < TILE_LEADS; level++) {
        let item = {{ text.from_shared("tile_leads[level]") }};
        exact = exact | are_small(sizes_of(item{{ ".value" if kernel.segmented }}));
    }
{% endif %}
    // 3. Join what is before.
    let known = {{ "false" if kernel.strategy == "alone" else "true" if spec.carried else "tile > 0u" }};  // something is before the tile
    let leads = lead_all(tile, invocation, known, leads_in_group);
    let joined = join_chunks(leads, own);

    // 4. Store every element once.
{% macro result(index) -%}
{{ "pick(known || invocation > 0u, joined[%d], own[%d])" % (index, index) if index < chunk else "joined[%d]" % index }}
{%- endmacro %}
{% for step in range(steps) %}
{% set first = step * chunk %}
{% if spec.exclusive %}
    store_chunk({{ chunk_start(step) }}, Chunk(leads[{{ step }}]{% for index in range(first, first + chunk - 1) %}, {{ result(index) }}{% endfor %}));
{% else %}
    store_chunk({{ chunk_start(step) }}, Chunk({% for index in range(first, first + chunk) %}{{ result(index) }}{{ ", " if not loop.last }}{% endfor %}));
{% endif %}
{% endfor %}
