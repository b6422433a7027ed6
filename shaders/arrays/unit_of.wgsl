{#- The expression of a unit of 1, 2 or 4 bytes in an array of words.
    Values: unit: bytes. The constant UNITS is the number of units in a word. -#}
{% macro unit_of(array, at) -%}
{% if unit == 4 -%}
{{ array }}[{{ at }}]
{%- else -%}
extractBits({{ array }}[{{ at }} / UNITS], {{ at }} % UNITS * {{ 8 * unit }}u, {{ 8 * unit }}u)
{%- endif %}
{%- endmacro %}
