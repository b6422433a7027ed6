{#- A look at a word of tile state that others write. llvmpipe takes an atomicLoad for any load and moves it out of a
    loop that waits; it leaves a read-modify-write alone. -#}
{% macro peek(place) %}
{% set nothing = "0lu" if kernel.long_posts and place.startswith("posts") else "0u" %}
{{ "atomicOr(&state." ~ place ~ ", " ~ nothing ~ ")" if kernel.target.is_cpu_adapter else "atomicLoad(&state." ~ place ~ ")" }}
{%- endmacro %}
