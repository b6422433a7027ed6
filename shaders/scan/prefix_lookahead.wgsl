{#- The prefix by look-ahead: the workgroup of ticket or number 0 scans no tile and folds all aggregates as they arrive.
    Workgroup t + 1 scans tile t and waits for one post.
    Assumes: workgroups that have not started do start while an earlier one waits. -#}
{% include "scan/fold_in_rounds.wgsl" if kernel.wait_policy.in_rounds else "scan/fold_ahead.wgsl" %}
{% include "scan/wait_for_prefix.wgsl" %}
// ----- Look-ahead

// Ticket 0 looks ahead, and has no tile.
fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    let ticket = ticket_of(invocation, workgroup, grid);
    if (ticket == 0u) {
        let ahead = fold_ahead(invocation, NO_TILE, PATIENCE * params.spin_rounds, 0u);
        if (ahead < params.tiles && invocation == 0u) {
            report_timeout();
        }
    }
    return ticket - 1u;  // NO_TILE for ticket 0
}

// Wait for the tile's prefix. Return false if the wait timed out.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
    }
    let outcome = look(invocation, tile, SPINS_PER_ROUND);
    if (outcome != FOUND && invocation == 0u) {
        report_timeout();
    }
    return outcome == FOUND;
}
