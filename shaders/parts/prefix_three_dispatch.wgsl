{#- The prefix from scan_totals.wgsl: tile t's is where tile t's aggregate was. -#}
{% include "parts/totals.wgsl" %}
{% include "parts/grid.wgsl" %}
{% include "parts/prefix_result.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Item) -> Prefix {
    return Prefix(true, {{ "true" if kernel.carried else "tile > 0u" }}, read_total(tile));
}
