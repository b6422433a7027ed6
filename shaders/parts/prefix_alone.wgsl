{#- No prefix: the tile holds a whole row. -#}
{% include "parts/totals.wgsl" %}
{% include "parts/grid.wgsl" %}
{% include "parts/prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Item) -> Prefix {
    return Prefix(false, aggregate);
}
