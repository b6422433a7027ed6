{#- The prefix by look-back. A wait that exceeds its bound is reported, and the tile stores nothing. -#}
{% include "columns/look_back.wgsl" %}

// Return false if the wait timed out.
fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk, early: ChunkPost) -> bool {
{% if not kernel.wait_policy.chained %}
    post_columns(invocation, tile, aggregate);
{% endif %}
    share_look_back(invocation, tile, aggregate, early);
    let learned = late_tiles[invocation % COLUMNS] == NO_TILE;
    if (!learned) {  // in any invocation: a driver may end a loop for some of them
        report_timeout();
    }
    return learned;
}
