{#- Horner's scheme for a polynomial in g. The result is h0. -#}
{% macro horner(coefficients, g) %}
{% for number in coefficients | reverse %}
{% set power = loop.revindex0 %}
{% set rest = "" if loop.first else " + signed_high_product(h%d, %s)" % (power + 1, g) %}
    let h{{ power }} = {{ number }}i{{ rest }};
{% endfor %}
{%- endmacro %}
