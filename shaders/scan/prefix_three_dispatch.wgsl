{#- The prefix where reduce.wgsl ran before. For tiles that end where rows do: K(tile), from the aggregates of the row's
    tiles. Otherwise scan_totals.wgsl has put tile t's prefix in the place of tile t's aggregate. A tile that is alone
    has none. -#}
{% from "scan/by_lanes.wgsl" import block_item, scan_block with context %}
{% include "scan/totals.wgsl" %}
{% if kernel.tile.per_row and kernel.strategy != "alone" %}
{% include "scan/block_lanes.wgsl" %}

// ----- Prefix of a tile
fn prefix_in_row(invocation: u32, tile: u32) -> Item {
    let position = tile % tiles_per_row();
    let lane = invocation{{ " % SUBGROUP_SIZE" if kernel.block_in_subgroup }};
    let sums = {{ scan_block("lane", "read_total(tile - position + lane)") }};
    return {{ block_item("sums", "max(position, 1u) - 1u") }};
}
{% endif %}
