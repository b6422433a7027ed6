{#- Items between invocations: through `scratch` in workgroup memory, or between the lanes of a subgroup by shuffles,
    word by word, for an element of any width. -#}
// ----- Items between invocations
{% if kernel.uses_scratch %}
var<workgroup> scratch: array<{{ text.shared_item }}, {{ "STEPS * " if not kernel.subgroups and kernel.tile.steps > 1 }}WORKGROUP_SIZE>;
{% endif %}
{% if kernel.subgroups %}
fn item_up(item: Item, distance: u32) -> Item {
    return {{ text.shuffle_item("item", "subgroupShuffleUp({0}, distance)") }};
}

fn item_at(item: Item, lane: u32) -> Item {
    return {{ text.shuffle_item("item", "subgroupShuffle({0}, lane)") }};
}

{% if text.votes_on_heads %}
fn value_up(value: Element, distance: u32) -> Element {
    return {{ text.shuffle_element("value", "subgroupShuffleUp({0}, distance)") }};
}
{% endif %}
{% endif %}
