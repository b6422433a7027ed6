{#- The prefix by look-back. A workgroup that has waited long enough reduces the late tile itself and posts its aggregate, by
    the same tree, so with the same bits (Smith, Levien & Owens 2025). Assumes nothing about the scheduler. -#}
{% include "scan/single_pass.wgsl" %}
{% if not kernel.reloads_after_help %}

// Wait for the tile's prefix. Return false if the wait timed out.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    // One call in a loop, since compilers inline all of the look-back wherever it is called.
    var late = NO_TILE;
    loop {  // each iteration posts an aggregate that was missing
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
    if (late != NO_TILE) {  // the driver ended the loop, perhaps only for some invocations
        report_timeout();
    }
    return late == NO_TILE;
}
{% endif %}
