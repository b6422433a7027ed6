{#- Horner's scheme for a polynomial in g. The result is <name>0. -#}
{% macro horner(name, coefficients, g) %}
{% for number in coefficients | reverse %}
{% set power = loop.revindex0 %}
{% set rest = "" if loop.first else " + signed_high_product(%s%d, %s)" % (name, power + 1, g) %}
    let {{ name }}{{ power }} = {{ number }}i{{ rest }};
{% endfor %}
{%- endmacro %}
