{#- The user's function, as a map of elements and a loop apply it.
    in: text, a gpuscan.codegen.elementwise_text.ElementwiseText or LoopText
    Defines: Arguments, Result, apply. -#}
struct Arguments {
{% for field in text.sources %}
    {{ field.name }}: {{ text.type_of(field) }},
{% else %}
    none: u32,
{% endfor %}
}
{% if text.code.result.single %}
alias Result = {{ text.type_of(text.code.result.fields[0]) }};
{% else %}
struct Result {
{% for field in text.code.result.fields %}
    {{ field.name }}: {{ text.type_of(field) }},
{% endfor %}
}
{% endif %}

{% include "shared/captured.wgsl" %}
{% set helpers, native_int64 = text.helpers, text.native_int64 %}
{% if helpers %}
{% include "shared/arithmetic.wgsl" %}
{% endif %}
{% set conversions, packs_halves = text.float_conversions, text.packs_halves %}
{% include "shared/small_floats.wgsl" %}

{{ text.code.source }}
