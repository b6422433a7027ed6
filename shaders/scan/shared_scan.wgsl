{#- Inclusive scan over the first `size` invocations of a workgroup, through workgroup memory (Kogge & Stone 1973).
    Every invocation of the workgroup calls it. Those past `size` get their own item back. -#}
{% macro shared_scan(name, size) %}
fn {{ name }}(invocation: u32, own: Item) -> Item {
    var item = own;
    scratch[invocation] = {{ text.to_shared("item") }};
    workgroupBarrier();
{% if kernel.wide %}
    for (var distance = 1u; distance < {{ size }}u; distance *= 2u) {
{{ joined_through_scratch("distance", size) | indent(4, true) }}
    }
{% else %}
{% set ns = namespace(distance=1) %}
{% for _ in range(20) %}{% if ns.distance < size %}
{{ joined_through_scratch(ns.distance ~ "u", size) }}
{% set ns.distance = ns.distance * 2 %}
{% endif %}{% endfor %}
{% endif %}
    return item;
}
{% endmacro %}
{% macro joined_through_scratch(distance, size) %}
    if ((invocation >= {{ distance }}) & (invocation < {{ size }}u)) {
        item = join({{ text.from_shared("scratch[invocation - " ~ distance ~ "]") }}, item);
    }
    workgroupBarrier();
    scratch[invocation] = {{ text.to_shared("item") }};
    workgroupBarrier();
{%- endmacro %}
