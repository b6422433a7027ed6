{#- Name the prefix of a tile's columns: `prefix`, which counts if `has_prefix`. -#}
{% macro name_prefix() %}
{% if kernel.strategy == "alone" %}
    let has_prefix = false;
    let prefix = sums.aggregate;
{% else %}
    let has_prefix = tile >= chains_of_columns();
    let prefix = {{ text.from_shared("shared_prefix[lane]", "chunk_from_shared") if kernel.posts else "read_total(tile, lane)" }};
{% endif %}
{% endmacro %}
