{#- One word of a post: how it is written, read and decoded. With 64-bit atomics it is the payload with the run's epoch
    above it. Otherwise it is two halves of 16 bits, each with the epoch above it. The post begins at word `at`, and
    `stride` is from one word to the next. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% set in_64_bits = kernel.post_format.in_64_bits %}
{% set tag = "u64(params.epoch) << 32u" if in_64_bits else "params.epoch << 16u" %}
{% macro nth(index, stride) %}at{% if index %} + {{ index ~ "u" if stride == "1u" else stride if index == 1 else index ~ "u * " ~ stride }}{% endif %}{% endmacro %}
{% macro write_word(index, stride, word) %}
{% if in_64_bits %}
    atomicStore(&state.posts[{{ nth(index, stride) }}], tag | u64({{ word }}));
{% else %}
    atomicStore(&state.posts[{{ nth(2 * index, stride) }}], tag | ({{ word }} & 0xffffu));
    atomicStore(&state.posts[{{ nth(2 * index + 1, stride) }}], tag | ({{ word }} >> 16u));
{% endif %}
{% endmacro %}
{% macro see_word(index, stride) %}
{% if in_64_bits %}
    let seen{{ index }} = {{ peek("posts[" ~ nth(index, stride) ~ "]", "0lu") }};
{% else %}
    let low{{ index }} = {{ peek("posts[" ~ nth(2 * index, stride) ~ "]") }};
    let high{{ index }} = {{ peek("posts[" ~ nth(2 * index + 1, stride) ~ "]") }};
{% endif %}
{% endmacro %}
{#- True if each of the words of these numbers was seen with this run's epoch, without `&&`, which is a branch for each. -#}
{% macro all_tagged(numbers) -%}
{%- set words -%}
{% for i in numbers %}{{ " | " if not loop.first }}{{ "(seen%d ^ tag)" % i if in_64_bits else "(low%d ^ tag) | (high%d ^ tag)" % (i, i) }}{% endfor %}
{%- endset -%}
({{ words if in_64_bits and numbers | length == 1 else "(" ~ words ~ ")" }} >> {{ kernel.post_format.payload_bits }}u) == {{ "0lu" if in_64_bits else "0u" }}
{%- endmacro %}
{#- Post the aggregate of a tile: the workgroup's own `tile`, or `at_hand`, which may be a late tile of another
    workgroup. A test build withholds only posts of own tiles. -#}
{% macro post_aggregate(tile="tile") %}
{% set period = kernel.test_build.withheld_period %}
    if (invocation == 0u{% if period %} && ({{ "at_hand != tile || " if tile == "at_hand" }}{{ tile }} % {{ period }}u != 1u){% endif %}) {
        write_post(aggregate_of({{ tile }}), aggregate);
    }
{% endmacro %}
{#- The payload of word {0}. -#}
{% set word_seen = "u32(seen{0})" if in_64_bits else "((low{0} & 0xffffu) | (high{0} << 16u))" %}
