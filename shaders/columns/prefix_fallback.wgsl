{#- The prefix by look-back. A workgroup that has waited long enough reduces the late tile itself and posts its aggregates, by
    the same tree, so with the same bits (Smith, Levien & Owens 2025). -#}
{% include "columns/look_back.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Chunk) -> Prefix {
    post_columns(invocation, tile, aggregate);
    // One call in a loop, since compilers inline all of the look-back wherever it is called.
    var late = NO_TILE;
    loop {  // each iteration posts the aggregates of one more tile
        late = share_look_back(invocation, tile, aggregate);
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
    return Prefix(late == NO_TILE, tile >= chains_of_columns(), {{ text.from_shared("shared_prefix[invocation % COLUMNS]", "chunk_from_shared") }});
}
