{#- Macros for keys. A run of equal keys is a segment. Keys differ as with NumPy's `!=`: a NaN differs from everything,
    and 0.0 equals -0.0. -#}

{#- Declare the type of a key, its words, and the function that compares two. It has no `||` and no `&&`,
    because they would be branches. -#}
{% macro declare_keys(scalar) %}
alias Key = array<u32, {{ 1 if scalar.packed else scalar.words }}>;

{% if scalar.kind in ("float", "complex") %}
{% set bits = 32 if scalar.kind == "complex" else scalar.bits %}
const SIGN = {{ {16: "0x8000u", 32: "0x80000000u", 64: "0x80000000u"}[bits] }};
const INFINITY = {{ {16: "0x7c00u" if scalar.name == "float16" else "0x7f80u", 32: "0x7f800000u", 64: "0x7ff00000u"}[bits] }};

// True if two floats differ, by their bits: `high` has the sign, `low` the rest of a wide one.
fn floats_differ(high: u32, other_high: u32, low: u32, other_low: u32) -> bool {
    let magnitude = high & ~SIGN;
    let nan = (magnitude > INFINITY) | ((magnitude == INFINITY) & (low != 0u));
    let zeros = (((high | other_high) & ~SIGN) | low | other_low) == 0u;
    return nan | (((high != other_high) | (low != other_low)) & !zeros);
}

{% endif %}
fn differ(a: Key, b: Key) -> bool {
{% if scalar.kind == "complex" %}
    return floats_differ(a[0], b[0], 0u, 0u) | floats_differ(a[1], b[1], 0u, 0u);
{% elif scalar.kind == "float" and scalar.bits == 64 %}
    return floats_differ(a[1], b[1], a[0], b[0]);
{% elif scalar.kind == "float" %}
    return floats_differ(a[0], b[0], 0u, 0u);
{% elif scalar.kind == "bool" %}
    return (a[0] != 0u) != (b[0] != 0u);  // any byte but 0 is true
{% elif scalar.words == 2 %}
    return (a[0] != b[0]) | (a[1] != b[1]);
{% else %}
    return a[0] != b[0];
{% endif %}
}
{% endmacro %}

{#- The key at an index of an array with `width` words in each of its elements. -#}
{% macro key_in(array, scalar, index, width=1) -%}
{%- if scalar.packed -%}
Key(extractBits({{ word_in(array, index ~ " / " ~ scalar.per_word ~ "u", width) }}, {{ index }} % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u))
{%- elif scalar.words == 2 -%}
Key({{ word_in(array, index ~ " * 2u", width) }}, {{ word_in(array, index ~ " * 2u + 1u", width) }})
{%- else -%}
Key({{ word_in(array, index, width) }})
{%- endif -%}
{%- endmacro %}

{% macro word_in(array, at, width) -%}
{{ array }}[{{ at if width == 1 else "(%s) / %du][(%s) %% %du" % (at, width, at, width) }}]
{%- endmacro %}

{#- The key at this position among keys that were loaded as words with these names. -#}
{% macro key_of(scalar, words, position) -%}
{%- if scalar.packed -%}
Key(extractBits({{ words[position // scalar.per_word] }}, {{ position % scalar.per_word * scalar.bits }}u, {{ scalar.bits }}u))
{%- elif scalar.words == 2 -%}
Key({{ words[2 * position] }}, {{ words[2 * position + 1] }})
{%- else -%}
Key({{ words[position] }})
{%- endif -%}
{%- endmacro %}
