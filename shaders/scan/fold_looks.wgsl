{#- The common part of all folds of the aggregates: the functions that a fold calls, the numbers of its looks, and how
    one workgroup takes the fold over from another. A fold leaves a hint where it stops: the first block with a missing
    prefix. The next fold begins there. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/carry_in.wgsl" %}
{% include "shared/pause.wgsl" %}
// ----- Fold of the aggregates
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;
// Looks that find nothing new, for one round of a wait.
const PATIENCE = max(1u, SPINS_PER_ROUND / {{ kernel.heuristics.fold_patience_divisor }}u);
// Looks that find nothing new until the fold asks whether the run timed out.
const GLANCE = {{ kernel.heuristics.fold_glance }}u;

var<workgroup> shared_first: u32;  // the block that the fold begins with, later the first tile with a missing aggregate
var<workgroup> shared_seed: {{ text.shared_item }};  // the prefix of that block

// Say where another fold may begin. All lanes store the same value, so that no lane branches.
fn tell_frontier(block: u32) {
    atomicStore(&state.frontier, (params.epoch << 16u) | min(block, 0xffffu));
}

// Return the block with which a fold may begin.
fn seek_frontier(invocation: u32) -> u32 {
    if (invocation == 0u) {
        let hint = {{ peek("frontier") }};
        let block = select(0u, hint & 0xffffu, (hint >> 16u) == params.epoch);
        let at = prefix_after(max(block * BLOCK, 1u) - 1u);
        var seed = read_{{ kernel.prefix_post }}(at);
        for (var look = 0u; look < GLANCE; look++) {  // the hint may arrive before the prefix
            if (seed.ready | (block == 0u)) {
                break;
            }
            seed = read_{{ kernel.prefix_post }}(at);
        }
        shared_first = select(0u, block, seed.ready);
        shared_seed = {{ text.to_shared("seed.item") }};
    }
    return workgroupUniformLoad(&shared_first);
}
