{#- Arrays that a shader accesses where they are in their buffers: slices that begin at no offset where a buffer can be
    bound, rows that are apart, and rows and elements that are repeated. Each access is of one 32-bit word, counted as if the array were contiguous.
    in: views, the parameters of the run. Units are words, or for packed numbers, those numbers. -#}
// ----- Views
// For each source and destination: its first unit in the binding; the units of a row; the units from the end of a row
// to the begin of the next one, which may be below zero, since arithmetic wraps. For repeated rows, also the units from
// one row to the next one, and the units of a row with all its repetitions.
@group(0) @binding({{ kernel.binding_of("views") }}) var<uniform> views: array<vec4<u32>, {{ kernel.access.views | length }}>;

{% macro define(access) %}
{% set unit = "views[%du]" % access.array.number %}
// Return the unit of the buffer that holds unit `at` of the array.
fn index_in_{{ access.name }}(at: u32) -> u32 {
{% if access.view == "rows" %}
    return {{ unit }}.x + at + at / {{ unit }}.y * {{ unit }}.z;
{% elif access.view == "repeated_rows" %}
    return {{ unit }}.x + at % {{ unit }}.y + at / {{ unit }}.w * {{ unit }}.z;
{% elif access.view == "repeated_elements" %}
    return {{ unit }}.x + at / {{ unit }}.w * {{ unit }}.z;
{% elif access.view == "one_element" %}
    return {{ unit }}.x;
{% else %}
    return {{ unit }}.x + at;
{% endif %}
}
{% if not access.array.atomic %}{# these are only written #}

// Return word `at` of the array.
fn load_{{ access.name }}(at: u32) -> u32 {
{% if access.per_word == 1 %}
    return {{ access.name }}[index_in_{{ access.name }}(at)];
{% elif access.view != "offset" %}
{% set bits = 32 // access.per_word %}
    var word = 0u;
{% for part in range(access.per_word) %}
    let index{{ part }} = index_in_{{ access.name }}(at * {{ access.per_word }}u + {{ part }}u);
    word |= extractBits({{ access.name }}[index{{ part }} / {{ access.per_word }}u], index{{ part }} % {{ access.per_word }}u * {{ bits }}u, {{ bits }}u) << {{ part * bits }}u;
{% endfor %}
    return word;
{% else %}
    let first = {{ unit }}.x / {{ access.per_word }}u + at;
    let shift = {{ unit }}.x % {{ access.per_word }}u * {{ 32 // access.per_word }}u;
    // A shift by 32 bits is none in WGSL.
    let high = select({{ access.name }}[first + 1u] << (32u - shift), 0u, shift == 0u);
    return ({{ access.name }}[first] >> shift) | high;
{% endif %}
}
{% endif %}
{% endmacro %}
{% for access in text.viewed %}
{{ define(access) }}
{%- endfor %}
