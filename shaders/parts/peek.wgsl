{#- A look at a word of tile state that others write. llvmpipe takes an atomicLoad for any load and moves it out of a
    loop that waits; it leaves a read-modify-write alone. -#}
{% macro peek(place) %}
{{ "atomicOr(&state[" ~ place ~ "], 0u)" if kernel.software else "atomicLoad(&state[" ~ place ~ "])" }}
{%- endmacro %}
