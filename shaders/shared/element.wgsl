{#- The element that the operator combines, and the item that the scan carries: an element, with a head flag if the
    array has several rows or segments.
    Values: spec.element, kernel.segmented. -#}
// ----- Element: one value of each field, in compute form
{% macro declare(name, element) %}
{% if element.single %}
alias {{ name }} = {{ text.type_of(element.fields[0]) }};
{% else %}
struct {{ name }} {
{% for field in element.fields %}
    {{ field.name }}: {{ text.type_of(field) }},
{% endfor %}
}
{% endif %}
{% endmacro %}
{{ declare("Element", spec.element) }}
{%- if spec.source != spec.element %}
{{ declare("Source", spec.source) }}
{%- else %}
alias Source = Element;
{% endif %}
{% if spec.index_step %}
{{ declare("Indexed", spec.indexed_source) }}
{% endif %}
{% if spec.neighbour_field %}
{{ declare("Stored", spec.with_neighbour) }}
{% endif %}
{% if spec.steps %}
{{ declare("LoopState", text.state) }}
{{ declare("Stepped", spec.stepped) }}
{% if spec.steps.extend %}
{{ declare("Extended", spec.extended) }}
{% endif %}
{% endif %}
{% if spec.result != spec.element %}
{{ declare("Result", spec.result) }}
{%- else %}
alias Result = Element;
{% endif %}

alias Words = array<u32, {{ kernel.item_words }}>;  // an item as it travels between invocations

{% if kernel.segmented %}
struct Item {
    value: Element,
{% if spec.reduces_segments %}
    // The number of segments that begin among the elements before and with the value.
{% else %}
    // 1 if a row begins among the elements that the value combines.
{% endif %}
    head: u32,
}
{% else %}
alias Item = Element;
{% endif %}
{% set value = "item.value" if kernel.segmented else "item" %}

fn item_to_words(item: Item) -> Words {
    return Words(
{% for word in text.element_words(value) %}
        {{ word }},
{% endfor %}
{% if kernel.segmented %}
        item.head,
{% endif %}
    );
}

fn item_from_words(words: Words) -> Item {
{% if kernel.segmented %}
    return Item({{ text.element_from_words("words") }}, words[{{ spec.element.words }}]);
{% else %}
    return {{ text.element_from_words("words") }};
{% endif %}
}

// Return `yes` if the condition holds, else `no`, without a branch, so that lanes stay together.
fn pick(condition: bool, yes: Item, no: Item) -> Item {
{% if kernel.segmented %}
    return Item({{ text.pick_element("condition", "yes.value", "no.value") }}, select(no.head, yes.head, condition));
{% else %}
    return {{ text.pick_element("condition", "yes", "no") }};
{% endif %}
}
