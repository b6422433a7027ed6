{#- The element that the operator combines, and the item that the scan carries: an element, with a head flag where
    the array has several rows or segments. Comes in: kernel.element, kernel.segmented. -#}
// ----- Element: one value of each field, in compute form
{% macro declare(name, element) %}
{% if element.single %}
alias {{ name }} = {{ element.fields[0].wgsl(kernel.native_int64) }};
{% else %}
struct {{ name }} {
{% for field in element.fields %}
    {{ field.name }}: {{ field.wgsl(kernel.native_int64) }},
{% endfor %}
}
{% endif %}
{% endmacro %}
{{ declare("Element", kernel.element) }}
{%- if kernel.source != kernel.element %}
{{ declare("Source", kernel.source) }}
{%- else %}
alias Source = Element;
{% endif %}
{% if kernel.held %}
{{ declare("Stored", kernel.stored) }}
{% endif %}
{% if kernel.destination != kernel.element %}
{{ declare("Result", kernel.destination) }}
{%- else %}
alias Result = Element;
{% endif %}

alias Words = array<u32, {{ kernel.item_words }}>;  // an item as it travels between invocations

{% if kernel.segmented %}
struct Item {
    value: Element,
    head: u32,  // 1 where a row begins within what the value covers
}
{% else %}
alias Item = Element;
{% endif %}
{% set value = "item.value" if kernel.segmented else "item" %}

fn item_to_words(item: Item) -> Words {
    return Words(
{% for word in kernel.element_words(value) %}
        {{ word }},
{% endfor %}
{% if kernel.segmented %}
        item.head,
{% endif %}
    );
}

fn item_from_words(words: Words) -> Item {
{% if kernel.segmented %}
    return Item({{ kernel.element_from_words("words") }}, words[{{ kernel.element.words }}]);
{% else %}
    return {{ kernel.element_from_words("words") }};
{% endif %}
}

// `yes` where the condition holds, else `no`: no branch, so that lanes stay together.
fn pick(condition: bool, yes: Item, no: Item) -> Item {
{% if kernel.segmented %}
    return Item({{ kernel.pick_element("condition", "yes.value", "no.value") }}, select(no.head, yes.head, condition));
{% else %}
    return {{ kernel.pick_element("condition", "yes", "no") }};
{% endif %}
}
