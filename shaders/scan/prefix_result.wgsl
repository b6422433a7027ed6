{#- The prefix of a tile, as the functions and statements that learn it give it. -#}
{#- The prefix that the workgroup has waited for. -#}
{% macro prefix_found() -%}
{% if kernel.wait_policy.at_once -%}
fold_of_blocks(tile)
{%- else -%}
Prefix({{ "tile % tiles_per_row() > 0u" if kernel.tile.per_row else "true" if spec.carried else "tile > 0u" }}, {{ text.from_shared("shared_prefix") }})
{%- endif %}
{%- endmacro %}
// ----- Prefix of a tile
struct Prefix {
    known: bool,  // false if the tile has no prefix
    item: Item,
}
