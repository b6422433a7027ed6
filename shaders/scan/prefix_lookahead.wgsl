{#- The prefix by look-ahead: the workgroup of ticket or number 0 scans no tile and folds all aggregates as they arrive.
    Workgroup t + 1 scans tile t and waits for one post. If no aggregate arrives for a while, the first workgroup ends,
    and a tile that waits takes the fold over, as under look-back. So no workgroup waits for one that has not started.
    Assumes: workgroups that have started keep making progress. Every wait is also bounded. -#}
{% include "scan/fold_in_rounds.wgsl" if kernel.wait_policy.in_rounds else "scan/fold_ahead.wgsl" %}
{% include "scan/wait_for_prefix.wgsl" %}
// ----- Look-ahead
// Looks that find nothing new, before the first workgroup hands the fold over.
const HANDOVER = {{ kernel.heuristics.handover_looks }}u;
// Looks that find nothing new for tiles after its own, before a workgroup stops folding.
const REST = {{ kernel.heuristics.fold_rest }}u;

{% if spec.carry_out %}
// Return the tile that has the prefix this tile waits for. The last one waits for the carry of the next piece, too.
fn awaited(tile: u32) -> u32 {
    return select(tile, params.tiles, tile == params.tiles - 1u);
}

{% endif %}
{% set awaited = "awaited(tile)" if spec.carry_out else "tile" %}

// Fold for all tiles. Return true if the workgroup has a tile, and its prefix is posted.
fn fold_for_all(invocation: u32, tile: u32) -> bool {
    let first = tile == NO_TILE;
    var start = 0u;
    if (first) {
        atomicStore(&state.folding, params.epoch);
    } else {
        start = seek_frontier(invocation);
    }
    let until = select({{ awaited }}, NO_TILE, first);
    let patience = select(PATIENCE * params.spin_rounds, HANDOVER, first);
    let ahead = fold_ahead(invocation, start, until, patience, REST);
    if (!first && ahead < until) {
        report_timeout();
    }
    return !first && ahead >= until;
}

{% if spec.carry_out %}
// Wait for the tile's prefix, and the last tile for the carry of the next piece before.
fn look_twice(invocation: u32, tile: u32) -> u32 {
    var outcome = look(invocation, awaited(tile), SPINS_PER_ROUND);
    if (outcome == FOUND && awaited(tile) != tile) {
        outcome = look(invocation, tile, SPINS_PER_ROUND);
    }
    return outcome;
}

{% endif %}
{% if kernel.stores_totals %}
{% from "scan/prefix_result.wgsl" import look_for_prefix with context %}
// Wait for the tile's prefix, and fold as long as no other workgroup does. Return false if there is no prefix.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    var outcome = FOLD;
    if (tile != NO_TILE) {
        outcome = {{ look_for_prefix() }};
    }
    loop {
        if (outcome != FOLD || !fold_for_all(invocation, tile)) {
            break;
        }
        outcome = {{ look_for_prefix() }};
    }
    if (outcome != FOUND && tile != NO_TILE) {  // the wait ran out, or the driver ended the loop
        report_timeout();
    }
    return outcome == FOUND;
}
{% endif %}
