{#- Copy a unit of 1, 2 or 4 bytes of an array of words to another array. Units that share a word with others are written
    by atomic operations, which leave the others' bits as they are: `to` is an array of u32 for units of 4 bytes, else of
    atomic<u32>.
    Values: unit: bytes. The constant UNITS is the number of units in a word. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
{% macro copy_unit(array, at, to, place) -%}
{% if unit == 4 -%}
{{ to }}[{{ place }}] = {{ unit_of(array, at) }};
{%- else -%}
let bits = {{ unit_of(array, at) }};
    let shift = {{ place }} % UNITS * {{ 8 * unit }}u;
    atomicAnd(&{{ to }}[{{ place }} / UNITS], ~({{ "0xffu" if unit == 1 else "0xffffu" }} << shift));
    atomicOr(&{{ to }}[{{ place }} / UNITS], bits << shift);
{%- endif %}
{%- endmacro %}
