{#- The prefix that columns/scan_totals.wgsl has computed. -#}
{% include "columns/totals.wgsl" %}
{% include "columns/prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk) -> Prefix {
    return Prefix(true, tile >= chains_of_columns(), read_total(tile, invocation % COLUMNS));
}
