{#- Read a word of the tile state that other workgroups write. llvmpipe takes an atomicLoad for a plain load and moves it out
    of a loop that waits. It leaves a read-modify-write in place. -#}
{% macro peek(place) %}
{% set nothing = "0lu" if kernel.long_posts and place.startswith("posts") else "0u" %}
{{ "atomicOr(&state." ~ place ~ ", " ~ nothing ~ ")" if kernel.target.is_cpu_adapter else "atomicLoad(&state." ~ place ~ ")" }}
{%- endmacro %}
