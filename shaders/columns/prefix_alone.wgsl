{#- No prefix: the tile holds whole columns. -#}
{% include "shared/totals_state.wgsl" %}
{% include "columns/prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk) -> Prefix {
    return Prefix(true, false, aggregate);
}
