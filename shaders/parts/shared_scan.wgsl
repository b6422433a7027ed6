{#- Inclusive scan over the first `size` invocations of a workgroup, through workgroup memory (Kogge & Stone 1973).
    Every invocation of the workgroup calls it; those past `size` get their own item back. -#}
{% macro shared_scan(name, size) %}
fn {{ name }}(invocation: u32, own: Item) -> Item {
    var item = own;
    scratch[invocation] = {{ kernel.to_shared("item") }};
    workgroupBarrier();
{% set ns = namespace(distance=1) %}
{% for _ in range(20) %}{% if ns.distance < size %}
    if ((invocation >= {{ ns.distance }}u) & (invocation < {{ size }}u)) {
        item = join({{ kernel.from_shared("scratch[invocation - " ~ ns.distance ~ "u]") }}, item);
    }
    workgroupBarrier();
    scratch[invocation] = {{ kernel.to_shared("item") }};
    workgroupBarrier();
{% set ns.distance = ns.distance * 2 %}
{% endif %}{% endfor %}
    return item;
}
{% endmacro %}
