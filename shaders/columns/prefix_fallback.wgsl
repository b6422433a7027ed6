{#- The prefix by look-back. A workgroup that has waited long enough reduces the late tile itself and posts its
    aggregates, by the same tree, so with the same bits (Smith, Levien & Owens 2025). -#}
{% include "columns/look_back.wgsl" %}

var<workgroup> shared_late: u32;

// Return NO_TILE, or the first tile that is late in any column, the same in the whole workgroup.
fn first_late(invocation: u32) -> u32 {
    if (invocation == 0u) {
        var first = NO_TILE;
        for (var lane = 0u; lane < COLUMNS; lane++) {
            first = min(first, late_tiles[lane]);
        }
        shared_late = first;
    }
    return workgroupUniformLoad(&shared_late);
}

// Return false if the driver ended the loop.
fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk, early: ChunkPost) -> bool {
    post_columns(invocation, tile, aggregate);
    // One call in a loop, since compilers inline all of the look-back wherever it is called.
    var late = NO_TILE;
    loop {  // each iteration posts the aggregates of one more tile
        share_look_back(invocation, tile, aggregate, early);
        late = first_late(invocation);
        if (late == NO_TILE) {
            break;
        }
        let reduced = reduce_tile(late, invocation);
        if (invocation < COLUMNS) {
            write_chunk(post_of(late, invocation, AGGREGATE), reduced);
        }
        storageBarrier();
    }
    if (late != NO_TILE) {  // the driver ended the loop, perhaps only for some invocations
        report_timeout();
    }
    return late == NO_TILE;
}
