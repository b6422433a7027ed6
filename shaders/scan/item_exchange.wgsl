{#- Items between invocations: through `scratch` in workgroup memory, or between the lanes of a subgroup by shuffles, word by
    word, for an element of any width. -#}
// ----- Items between invocations
{% if kernel.uses_scratch %}
var<workgroup> scratch: array<{{ text.shared_item }}, WORKGROUP_SIZE>;
{% endif %}
{% if kernel.subgroups %}
{% macro shuffle(name, builtin, argument) %}
fn {{ name }}(item: Item, {{ argument }}: u32) -> Item {
    let words = item_to_words(item);
    return item_from_words(Words(
{% for word in range(kernel.item_words) %}
        {{ builtin }}(words[{{ word }}], {{ argument }}),
{% endfor %}
    ));
}
{% endmacro %}
{{ shuffle("item_up", "subgroupShuffleUp", "distance") }}
{{ shuffle("item_at", "subgroupShuffle", "lane") }}
{% if text.votes_on_heads %}

fn value_up(value: Element, distance: u32) -> Element {
    let words = array<u32, {{ spec.element.words }}>({{ text.element_words("value") | join(", ") }});
    let before = array<u32, {{ spec.element.words }}>(
{% for word in range(spec.element.words) %}
        subgroupShuffleUp(words[{{ word }}], distance),
{% endfor %}
    );
    return {{ text.element_from_words("before") }};
}
{% endif %}
{% endif %}
