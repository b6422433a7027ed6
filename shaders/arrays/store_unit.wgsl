{#- Store a unit of 1, 2 or 4 bytes in `destination`, an array of words. Units that share a word with others are written
    by atomic operations, which leave the others' bits as they are: the array is of u32 for units of 4 bytes, else of
    atomic<u32>.
    Values: unit: bytes. The constant UNITS is the number of units in a word. -#}
{% macro store_unit(index, bits) -%}
{% if unit == 4 -%}
destination[{{ index }}] = {{ bits }};
{%- else -%}
let shift = {{ index }} % UNITS * {{ 8 * unit }}u;
    atomicAnd(&destination[{{ index }} / UNITS], ~({{ "0xffu" if unit == 1 else "0xffffu" }} << shift));
    atomicOr(&destination[{{ index }} / UNITS], {{ bits }} << shift);
{%- endif %}
{%- endmacro %}
