{#- Look-back where there are few tiles. A tile looks at the aggregates of all tiles before it at once, and each of its
    subgroups looks at the aggregates of one block. So the tile waits for one round trip to memory. The order of
    combination is P(block) ⊕ K(tile), as in scan/look_back.wgsl.
    Assumes: workgroups that have started keep making progress. Every wait is also bounded. -#}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/carry_in.wgsl" %}
{% include "shared/pause.wgsl" %}
{% from "scan/by_lanes.wgsl" import any_lane, scan_block with context %}
{% from "shared/wait.wgsl" import wait with context %}
// ----- Look-back
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

const WATCHERS = WORKGROUP_SIZE / SUBGROUP_SIZE;

var<workgroup> shared_late: u32;  // 1 if a tile is late
// The totals of blocks, and K(tile).
var<workgroup> block_sums: array<{{ text.shared_item }}, {{ kernel.heuristics.max_tiles_at_once // kernel.tile.block }}>;

// Wait for the tile's prefix. Return false if the wait timed out.
fn await_prefix(invocation: u32, tile: u32, aggregate: Item) -> bool {
    let lane = invocation % SUBGROUP_SIZE;
    let watcher = invocation / SUBGROUP_SIZE;
    for (var block = watcher; block * BLOCK < tile; block += WATCHERS) {
        let seen = block * BLOCK + lane;
        let wanted = (lane < BLOCK) & (seen < tile);
        let at = aggregate_of(min(seen, tile - 1u));
        var post = read_post(at);
{% call wait("!" ~ any_lane("wanted & !post.ready"), any_lane("given_up()")) %}
        post = read_post(at);
{% endcall %}
        if ({{ any_lane("wanted & !post.ready") }}) {
            shared_late = 1u;
            break;
        }
        let sums = {{ scan_block("lane", "post.item") }};
        let total = item_at(sums, min(BLOCK, tile - block * BLOCK) - 1u);
        if (lane == 0u) {
            block_sums[block] = {{ text.to_shared("total") }};
        }
    }
    let late = workgroupUniformLoad(&shared_late);
    if (late > 0u && invocation == 0u) {
        report_timeout();
    }
    return late == 0u;
}

fn fold_of_blocks(tile: u32) -> Item {
{% if spec.carried %}
    var carry = carry_in();
    var known = true;
{% else %}
    var carry = Item();
    var known = false;
{% endif %}
    for (var block = 0u; block * BLOCK < tile; block++) {
        let sum = {{ text.from_shared("block_sums[block]") }};
        carry = pick(known, join(carry, sum), sum);
        known = true;
    }
    return carry;
}
