{#- Look-back where a row has no more tiles than a block has lanes: a tile's prefix is K(tile), the Kogge-Stone scan of
    the aggregates of the row's tiles before it. -#}
{% from "scan/by_lanes.wgsl" import block_item with context %}
{% include "scan/block_aggregates.wgsl" %}
// ----- Look-back in a row

// Find the prefix of a tile in its row, if it has one. Return NO_TILE, or the tile that is late.
fn look_back(invocation: u32, tile: u32, own: Item, prefix: ptr<function, Item>) -> u32 {
    let position = tile % tiles_per_row();
    if (position == 0u) {
        return NO_TILE;  // the same in all lanes
    }
    var sums: Item;
    let late = scan_aggregates(invocation, tile - position, position - 1u, NO_LANE, own, position, &sums);
    if (late != NO_TILE) {
        return late;
    }
    *prefix = {{ block_item("sums", "position - 1u") }};
    return NO_TILE;
}
