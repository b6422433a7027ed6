{#- The fold of look-ahead for wide items. Their scan takes as long as a look at memory, so all subgroups of the first
    workgroup fold: in each round, each of them reads and scans one block, and joins the totals of the blocks before it.
    The order of combination is the same as in scan/fold_ahead.wgsl: P(block) ⊕ K(tile).
    in:  the aggregates in the tile state
    out: the prefixes in the tile state -#}
{% from "scan/by_lanes.wgsl" import first_lane_where, scan_block with context %}
{% include "scan/fold_looks.wgsl" %}
const FOLDERS = {{ kernel.tile.subgroups_per_workgroup }}u;  // subgroups that fold

// A bit of shared_first: the fold ends. The other bits are the first tile that is not folded.
const STOPPED = 0x80000000u;
var<workgroup> block_ready: array<u32, FOLDERS>;  // the tiles of each block up to the first missing aggregate
var<workgroup> block_totals: array<{{ text.shared_item }}, FOLDERS>;

// Post the prefixes of the tiles from block `start` on. `shared_seed` has the prefix of this block. Stop when all are
// posted, or after `patience` looks in a row that find nothing new. Once the prefix of `tile` is posted, stop after
// `rest` such looks. Return the first tile with a missing aggregate.
fn fold_ahead(invocation: u32, start: u32, tile: u32, patience: u32, rest: u32) -> u32 {
    let lane = invocation % SUBGROUP_SIZE;
    let folder = invocation / SUBGROUP_SIZE;
    // The prefix of the first block of the round, if it has one.
{% if spec.carried %}
    var carry = pick(start > 0u, {{ text.from_shared("shared_seed") }}, carry_in());
    var known = true;
{% else %}
    var carry = {{ text.from_shared("shared_seed") }};
    var known = start > 0u;
{% endif %}
    var next_tile = start * BLOCK;  // the first tile that is not folded
    var idle = 0u;  // looks since the last one that found something new
    while (next_tile < params.tiles) {
        let first = next_tile / BLOCK * BLOCK;
        let own = first + folder * BLOCK + min(lane, BLOCK - 1u);
        let post = read_post(aggregate_of(min(own, params.tiles - 1u)));
        let ready = min({{ first_lane_where("!(post.ready & (own < params.tiles))") }}, BLOCK);
        var sums = post.item;
        if (ready > 0u) {
            sums = {{ scan_block("lane", "post.item") }};
            let total = item_at(sums, BLOCK - 1u);
            if (lane == 0u) {
                block_totals[folder] = {{ text.to_shared("total") }};
            }
        }
        if (lane == 0u) {
            block_ready[folder] = ready;
        }
        workgroupBarrier();
        var reached = first;
        for (var block = 0u; block < FOLDERS; block++) {
            let count = block_ready[block];
            if (block == folder) {
                let before = pick(known, join(carry, sums), sums);
                if ((own >= next_tile) & (lane < ready)) {
                    write_{{ kernel.prefix_post }}(prefix_after(own), before);
                }
            }
            if (count < BLOCK) {
                reached += count;
                break;
            }
            let total = {{ text.from_shared("block_totals[block]") }};
            carry = pick(known, join(carry, total), total);
            known = true;
            reached += BLOCK;
        }
        idle = select(0u, idle + 1u, reached == next_tile);
        if (invocation == 0u) {
            var stop = idle >= select(patience, rest, reached >= tile);
            if (idle % GLANCE == GLANCE - 1u) {
                stop = stop | given_up();
            }
            shared_first = reached | select(0u, STOPPED, stop);
        }
{% if kernel.wait_policy.pauses %}
        if (pause(idle) == 0x70000001u) {
            idle += 2u;  // never so, but the compiler cannot tell, and keeps the pause
        }
{% endif %}
        let told = workgroupUniformLoad(&shared_first);
        next_tile = told & ~STOPPED;
        if (told >= STOPPED) {
            break;
        }
    }
    if (invocation == 0u) {
        tell_frontier(next_tile / BLOCK);
        atomicStore(&state.folding, 0u);  // the next workgroup that waits may fold
    }
    return next_tile;
}
