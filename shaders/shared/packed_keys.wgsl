{#- Macros for keys as arrays hold them: keys of 8 and 16 bits share words. The template that calls the macros includes
    sort/keys.wgsl.
    Values: scalar: the type of the keys. -#}

{#- The key at an index of an `array<Key>`, widened to whole words. -#}
{% macro key_at(array, index) -%}
{%- if scalar.packed -%}
extractBits({{ array }}[({{ index }}) / {{ scalar.per_word }}u], ({{ index }}) % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u)
{%- else -%}
{{ array }}[{{ index }}]
{%- endif -%}
{%- endmacro %}

{#- Key number `number` in a vector of four words. -#}
{% macro key_in_vector(vector, number) -%}
{%- if scalar.packed -%}
extractBits({{ vector }}[{{ number }} / {{ scalar.per_word }}u], {{ number }} % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u)
{%- elif scalar.bits == 64 -%}
select({{ vector }}.xy, {{ vector }}.zw, {{ number }} == 1u)
{%- else -%}
{{ vector }}[{{ number }}]
{%- endif -%}
{%- endmacro %}
