{#- Combine the words of an element with the words of a carry, in any order. A sum of two words is exact: an addition
    that makes the low word wrap adds one to the high word.
    Values: name: the atomic, without "atomic"; carry, words: expressions of the words of the carry and the element. -#}
{% macro combine_words(name, carry, words) %}
{% if name == "Add" and words | length == 2 %}
    let low = atomicAdd(&{{ carry[0] }}, {{ words[0] }});
    let high = {{ words[1] }} + select(0u, 1u, low + {{ words[0] }} < low);
    if (high != 0u) {
        atomicAdd(&{{ carry[1] }}, high);
    }
{% else %}
{% for word in words %}
    atomic{{ name }}(&{{ carry[loop.index0] }}, {{ word }});
{% endfor %}
{% endif %}
{% endmacro %}
