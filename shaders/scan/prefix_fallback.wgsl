{#- The prefix by look-back. A workgroup that has waited long enough reduces the late tile itself and posts its
    aggregate, by the same tree, so with the same bits (Smith, Levien & Owens 2025). Assumes nothing about the
    scheduler. -#}
{% include "scan/single_pass.wgsl" %}
{% from "scan/prefix_result.wgsl" import share_look_back with context %}
{% if not kernel.reloads_after_help %}

// Wait for the tile's prefix. Return false if the wait timed out.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    // One call in a loop, since compilers inline all of the look-back wherever it is called.
    var learned = false;
    loop {  // each iteration posts an aggregate that was missing
{{ (share_look_back() | indent(4, true)).rstrip() }}
        if (late == NO_TILE) {
            learned = true;
            break;
        }
        let reduced = reduce_tile(late, invocation);
        if (invocation == 0u) {
            write_post(aggregate_of(late), reduced);
        }
        storageBarrier();
    }
    if (!learned) {  // the driver ended the loop, perhaps only for some invocations
        report_timeout();
    }
    return learned;
}
{% endif %}
