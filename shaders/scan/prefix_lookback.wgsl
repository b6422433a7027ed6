{#- The prefix by look-back. A wait that outlasts its bound is reported, and the tile writes nothing. -#}
{% include "scan/single_pass.wgsl" %}

// Wait for what comes before the tile; false where the wait was given up.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
    }
    let learned = share_look_back(invocation, tile, aggregate) == NO_TILE;
    if (!learned) {  // of any invocation: a driver may leave a loop by force for some of them
        report_timeout();
    }
    return learned;
}
