{#- No prefix: the tile holds whole columns. -#}
{% include "parts/totals_state.wgsl" %}
{% include "parts/grid.wgsl" %}
{% include "parts/columns_prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk) -> Prefix {
    return Prefix(true, false, aggregate);
}
