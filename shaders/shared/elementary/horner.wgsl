{#- Horner's scheme for a polynomial in g, in fixed-point numbers. The result is h0. -#}
{% macro horner(coefficients, g) %}
{% for number in coefficients | reverse %}
{% set power = loop.revindex0 %}
{% set rest = "" if loop.first else " + signed_high_product(h%d, %s)" % (power + 1, g) %}
    let h{{ power }} = {{ number }}i{{ rest }};
{% endfor %}
{%- endmacro %}
{#- The same in floats, with the word `zero`. The result is named `name` and 0. -#}
{% macro float_horner(coefficients, g, name="h") %}
{% for number in coefficients | reverse %}
{% set power = loop.revindex0 %}
{% set rest = "" if loop.first else " + f32_sealed(%s%d * %s, zero)" % (name, power + 1, g) %}
    let {{ name }}{{ power }} = {{ number }}{{ rest }};{{ "\n" if not loop.last }}
{%- endfor %}
{%- endmacro %}
{#- The same in floats, where the argument and each partial result are from 0 to 1. Each partial result is added to the
    next coefficient, or subtracted from it. -#}
{% macro clamped_horner(coefficients, g, name="h", sign="-") %}
{% for number in coefficients | reverse %}
{% set power = loop.revindex0 %}
{% set rest = "" if loop.first else " %s f32_clamped(%s%d * %s)" % (sign, name, power + 1, g) %}
    let {{ name }}{{ power }} = {{ number }}{{ rest }};{{ "\n" if not loop.last }}
{%- endfor %}
{%- endmacro %}
{#- The sum of two floats, rounded to nearest, or with a suffix to odd. -#}
{% macro joined(suffix, high, low, zero) -%}
{{ "f32_join_odd(%s, %s, %s)" % (high, low, zero) if suffix else high ~ " + " ~ low }}
{%- endmacro %}
