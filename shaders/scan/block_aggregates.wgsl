{#- Wait, within bounds, for the aggregates of up to BLOCK neighbouring tiles, and scan them by the lanes of a block.
    in:  the tile state
    out: the inclusive scan of the aggregates, or the number of a tile that is late -#}
{% from "shared/wait.wgsl" import wait with context %}
{% from "scan/by_lanes.wgsl" import any_lane, first_lane_where, scan_block with context %}
{% set run_given_up = any_lane("given_up()") if kernel.times_out else "" %}
// ----- Aggregates
const NO_LANE = 0xffffffffu;
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

{% include "shared/pause.wgsl" %}

// Wait, within bounds, for a post that this lane wants.
fn await_post(at: u32, wanted: bool, seen: Post) -> Post {
    var post = seen;
{% call wait("!" ~ any_lane("wanted & !post.ready"), run_given_up) %}
        post = read_post(at);
{% endcall %}
    return post;
}

{% if kernel.heads_cut_off and kernel.block_in_subgroup %}

// The lanes that the scan still needs. A head cuts off everything before it, so lanes before the last posted head are
// not needed: the sums after the head do not depend on them.
fn waited_for(wanted: bool, post: Post) -> u32 {
    let missing = subgroupBallot(wanted && !post.ready).x;
    let heads = subgroupBallot(wanted && post.ready && post.item.head != 0u).x;
    return missing & select(0xffffffffu << (firstLeadingBit(heads) & 31u), 0xffffffffu, heads == 0u);
}

// Wait, within bounds, for the aggregates of a block from its last head on.
fn await_aggregates(at: u32, wanted: bool) -> Post {
    var post = read_post(at);
{% call wait("waited_for(wanted, post) == 0u", run_given_up) %}
        post = read_post(at);
{% endcall %}
    return post;
}
{% endif %}

// Scan the aggregates from tile `first` up to lane `last`; lane `own_lane` provides its own. Return NO_TILE, or a tile
// that is late. If several are late, tiles at different positions return different ones, so that helpers spread out.
fn scan_aggregates(
    invocation: u32, first: u32, last: u32, own_lane: u32, own: Item, position: u32, sums: ptr<function, Item>
) -> u32 {
    let is_own = invocation == own_lane;
    let wanted = (invocation <= last) & !is_own;
    let at = aggregate_of(min(first + invocation, params.tiles - 1u));
{% set cut_off = kernel.heads_cut_off and kernel.block_in_subgroup %}
    let post = {{ "await_aggregates(at, wanted)" if cut_off else "await_post(at, wanted, read_post(at))" }};
{% if kernel.block_in_subgroup %}
    let missing = {{ "waited_for(wanted, post)" if cut_off else "subgroupBallot(wanted & !post.ready).x" }};
    let near = missing & (0xffffffffu >> (31u - position));  // not after `position`
    let late = firstLeadingBit(select(missing, near, near != 0u));  // NO_LANE if there is none
{% else %}
    let late = {{ first_lane_where("wanted & !post.ready") }};
{% endif %}
    *sums = {{ scan_block("invocation", "pick(is_own, own, post.item)") }};
    return select(NO_TILE, first + late, late < BLOCK);
}
