{#- Inclusive scan over the first `size` lanes of a subgroup (Kogge & Stone 1973). All lanes take the same path. -#}
{% macro subgroup_scan(name, size) %}
fn {{ name }}(lane: u32, own: Item) -> Item {
    var item = own;
{% set ns = namespace(distance=1) %}
{% for _ in range(8) %}{% if ns.distance < size %}
    item = pick(lane >= {{ ns.distance }}u, join(item_up(item, {{ ns.distance }}u), item), item);
{% set ns.distance = ns.distance * 2 %}
{% endif %}{% endfor %}
    return item;
}
{% endmacro %}
