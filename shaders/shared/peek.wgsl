{#- Read a word of the tile state that other workgroups write. llvmpipe takes an atomicLoad for a plain load and moves
    it out of a loop that waits. It leaves a read-modify-write in place. `zero` is the zero of the word's type. -#}
{% macro peek(field, zero="0u") %}
{{ "atomicOr(&state." ~ field ~ ", " ~ zero ~ ")" if kernel.target.is_cpu_adapter else "atomicLoad(&state." ~ field ~ ")" }}
{%- endmacro %}
