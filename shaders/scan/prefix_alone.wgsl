{#- No prefix: the tile holds a whole row. -#}
{% include "scan/totals.wgsl" %}
{% include "shared/grid.wgsl" %}
{% include "scan/prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Item) -> Prefix {
    return Prefix(false, aggregate);
}
