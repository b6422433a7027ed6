{#- The totals of parts in plain memory, between the two dispatches of a reduction. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(at: u32) -> Item {
    let first = at * ITEM_WORDS;
    return {{ text.item_from_words("state.totals[first + {0}u]") }};
}

fn write_total(at: u32, item: Item) {
    let first = at * ITEM_WORDS;
{% for word in text.item_words("item") %}
    state.totals[first + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
}
