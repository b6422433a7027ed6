{#- The prefix by look-back; a workgroup that has waited long enough reduces the late tile itself and posts its
    aggregate, by the same tree, so with the same bits (Smith, Levien & Owens 2025). Asks nothing of the scheduler. -#}
{% include "scan/single_pass.wgsl" %}
{% if kernel.reloads_after_help %}

// One look back. Gives NO_TILE, with the prefix in workgroup memory, or the tile to help out with.
fn try_prefix(invocation: u32, tile: u32, aggregate: Item) -> u32 {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
    }
    return share_look_back(invocation, tile, aggregate);
}

fn post_late(invocation: u32, tile: u32, aggregate: Item) {
    if (invocation == 0u) {
        write_post(aggregate_of(tile), aggregate);
    }
    storageBarrier();
}
{% else %}

// Wait for what comes before the tile; false where the wait was given up.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
    }
    // One call in a loop, since compilers inline all of the look-back wherever it is called.
    var late = NO_TILE;
    loop {  // each turn posts an aggregate that was not there
        late = share_look_back(invocation, tile, aggregate);
        if (late == NO_TILE) {
            break;
        }
        let reduced = reduce_tile(late, invocation);
        if (invocation == 0u) {
            write_post(aggregate_of(late), reduced);
        }
        storageBarrier();
    }
    if (late != NO_TILE) {  // the loop was left by force, if only for some invocations
        report_timeout();
    }
    return late == NO_TILE;
}
{% endif %}
