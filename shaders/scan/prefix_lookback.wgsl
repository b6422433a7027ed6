{#- The prefix by look-back. A wait that exceeds its bound is reported, and the tile stores nothing. -#}
{% if kernel.wait_policy.at_once %}
{% include "scan/look_back_at_once.wgsl" %}
{% else %}
{% include "scan/single_pass.wgsl" %}

// Wait for the tile's prefix. Return false if the wait timed out.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    let learned = share_look_back(invocation, tile, aggregate) == NO_TILE;
    if (!learned) {  // in any invocation: a driver may end a loop for some of them
        report_timeout();
    }
    return learned;
}
{% endif %}
