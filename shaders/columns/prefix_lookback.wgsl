{#- The prefix by look-back. A wait that exceeds its bound is reported, and the tile stores nothing. -#}
{% include "columns/look_back.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk, early: ChunkPost) -> Prefix {
{% if not kernel.wait_policy.chained %}
    post_columns(invocation, tile, aggregate);
{% endif %}
    share_look_back(invocation, tile, aggregate, early);
    let lane = invocation % COLUMNS;
    let learned = late_tiles[lane] == NO_TILE;
    if (!learned) {  // in any invocation: a driver may end a loop for some of them
        report_timeout();
    }
    return Prefix(learned, tile >= chains_of_columns(), {{ text.from_shared("shared_prefix[lane]", "chunk_from_shared") }});
}
