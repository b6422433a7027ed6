{#- One word of a post: how it is written, read and decoded. With 64-bit atomics it is the payload with the run's epoch above
    it. Otherwise it is two halves of 16 bits, each with the epoch above it. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% set tag = "u64(params.epoch) << 32u" if kernel.post_format.in_64_bits else "params.epoch << 16u" %}
{% macro write_word(at, index, stride, word) %}
{% if kernel.post_format.in_64_bits %}
    atomicStore(&state.posts[{{ at }} + {{ index }}u * {{ stride }}], tag | u64({{ word }}));
{% else %}
    atomicStore(&state.posts[{{ at }} + {{ 2 * index }}u * {{ stride }}], tag | ({{ word }} & 0xffffu));
    atomicStore(&state.posts[{{ at }} + {{ 2 * index + 1 }}u * {{ stride }}], tag | ({{ word }} >> 16u));
{% endif %}
{% endmacro %}
{% macro see_word(at, index, stride) %}
{% if kernel.post_format.in_64_bits %}
    let seen{{ index }} = {{ peek("posts[" ~ at ~ " + " ~ index ~ "u * " ~ stride ~ "]", "0lu") }};
{% else %}
    let low{{ index }} = {{ peek("posts[" ~ at ~ " + " ~ 2 * index ~ "u * " ~ stride ~ "]") }};
    let high{{ index }} = {{ peek("posts[" ~ at ~ " + " ~ (2 * index + 1) ~ "u * " ~ stride ~ "]") }};
{% endif %}
{% endmacro %}
{% macro strange(index) %}
{{ "(seen%d ^ tag)" % index if kernel.post_format.in_64_bits else "(low%d ^ tag) | (high%d ^ tag)" % (index, index) }}
{%- endmacro %}
{% macro word_seen(index) %}
{{ "u32(seen%d)" % index if kernel.post_format.in_64_bits else "(low%d & 0xffffu) | (high%d << 16u)" % (index, index) }}
{%- endmacro %}
