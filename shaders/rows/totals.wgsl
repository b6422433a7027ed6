{#- The totals of parts in plain memory, between the two dispatches of a reduction. -#}
{% include "shared/totals_state.wgsl" %}

fn read_total(at: u32) -> Item {
    let first = at * ITEM_WORDS;
    return item_from_words(Words({% for word in range(kernel.item_words) %}state.totals[first + {{ word }}u]{{ ", " if not loop.last }}{% endfor %}));
}

fn write_total(at: u32, item: Item) {
    let first = at * ITEM_WORDS;
    let words = item_to_words(item);
{% for word in range(kernel.item_words) %}
    state.totals[first + {{ word }}u] = words[{{ word }}];
{% endfor %}
}
