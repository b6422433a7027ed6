{#- Decoupled look-back (Merrill & Garland 2016) on two levels, in a fixed order of combination. A tile's prefix is
    always P(block) ⊕ K(tile): K is the Kogge-Stone scan of the block's aggregates, P folds the totals of the blocks
    before, left to right. Whatever a tile finds posted when it looks, the bits are the same. Since totals need no
    prefix, no tile waits for a chain of others: one look covers BLOCK blocks.
    Rests on: workgroups that have started go on making progress, and no further than the bound of the spins. -#}
// ----- Look-back
const NO_TILE = 0xffffffffu;
const NO_LANE = 0xffffffffu;
const SPINS_PER_ROUND = {{ kernel.spins_per_round }}u;

{% include "parts/carry_in.wgsl" %}
{% include "parts/pause.wgsl" %}

// Wait, within bounds, for what this lane wants to see posted.
fn await_post(at: u32, wanted: bool, found: Post) -> Post {
    var post = found;
    for (var round = 0u; round < params.spin_rounds; round++) {
        if (!any_lane(wanted & !post.ready) || any_lane(given_up())) {
            break;
        }
        for (var spin = 0u; spin < SPINS_PER_ROUND; spin++) {
            if (!any_lane(wanted & !post.ready)) {
                break;
            }
            post = read_post(at);
{% if kernel.pauses %}
            if (pause(spin) == 0x70000001u) {
                break;  // never so, but the compiler cannot tell, and keeps the pause
            }
{% endif %}
        }
    }
    return post;
}

{% if kernel.segmented and kernel.block_in_subgroup %}
// The lanes that are still waited for. A head cuts off what comes before it, so lanes before the last head that is
// there need not be: whatever stands for them, the sums after the head are the same.
fn waited_for(wanted: bool, post: Post) -> u32 {
    let missing = subgroupBallot(wanted && !post.ready).x;
    let heads = subgroupBallot(wanted && post.ready && post.item.head != 0u).x;
    return missing & select(0xffffffffu << (firstLeadingBit(heads) & 31u), 0xffffffffu, heads == 0u);
}

// Wait, within bounds, for the aggregates of a block from its last head on.
fn await_aggregates(at: u32, wanted: bool) -> Post {
    var post = read_post(at);
    for (var round = 0u; round < params.spin_rounds; round++) {
        if (waited_for(wanted, post) == 0u || any_lane(given_up())) {
            break;
        }
        for (var spin = 0u; spin < SPINS_PER_ROUND; spin++) {
            if (waited_for(wanted, post) == 0u) {
                break;
            }
            post = read_post(at);
        }
    }
    return post;
}
{% endif %}

// Scan a block's aggregates from its first tile to lane `last`; lane `own_lane` brings its own. Gives NO_TILE, or the
// first tile whose aggregate did not come in time.
fn scan_aggregates(invocation: u32, block: u32, last: u32, own_lane: u32, own: Item, sums: ptr<function, Item>) -> u32 {
    let is_own = invocation == own_lane;
    let wanted = (invocation <= last) & !is_own;
    let at = aggregate_of(min(block * BLOCK + invocation, params.tiles - 1u));
{% if kernel.segmented and kernel.block_in_subgroup %}
    let post = await_aggregates(at, wanted);
    let late = countTrailingZeros(waited_for(wanted, post));
{% else %}
    let post = await_post(at, wanted, read_post(at));
    let late = first_lane_where(invocation, wanted & !post.ready);
{% endif %}
    *sums = scan_block(invocation, pick(is_own, own, post.item));
    return select(NO_TILE, block * BLOCK + late, late < BLOCK);
}

// The prefix of a tile: everything before it, if `known`. Gives NO_TILE when it is found, else the tile whose aggregate
// did not come in time.
fn look_back(
    invocation: u32,
    tile: u32,
    own: Item,
    prefix: ptr<function, Item>,
    known: ptr<function, bool>,
) -> u32 {
    let block = tile / BLOCK;
    let position = tile % BLOCK;

    // Lane i looks at block `end - 1 - i`. This look is under way while the block's own aggregates come in.
    var end = block;
    var block_prefix = read_post(prefix_of(end - 1u - min(invocation, end - 1u)));
    var total = read_post(total_of(end - 1u - min(invocation, end - 1u)));

    // K(tile)
    var sums: Item;
    var late = scan_aggregates(invocation, block, position, position, own, &sums);
    if (late != NO_TILE) {
        return late;
    }
    if (position == BLOCK - 1u && invocation == position) {
        write_post(total_of(block), sums);
    }
    var before = block_item(invocation, sums, max(position, 1u) - 1u);
{% if kernel.segmented and kernel.block_in_subgroup %}
    if (position > 0u && before.head != 0u) {  // the same in all lanes
        *prefix = before;
        *known = true;
        return NO_TILE;
    }
{% endif %}

    // P(block): the nearest prefix that is posted, and the totals after it.
{% if kernel.carried %}
    var carry = carry_in();
    var carry_known = true;
{% else %}
    var carry = own;
    var carry_known = false;
{% endif %}
    if (block > 0u) {
        var nearest = NO_LANE;
        for (var window = 0u; window <= block / BLOCK; window++) {
            let seen = end - 1u - min(invocation, end - 1u);
{% if kernel.segmented %}
            let cut = total.ready & (total.item.head != 0u);  // nothing before it matters
{% else %}
            let cut = false;
{% endif %}
            nearest = first_lane_where(invocation, (invocation < BLOCK) & ((seen == 0u) | block_prefix.ready | cut));
            if (nearest < BLOCK) {
                break;
            }
            end -= BLOCK;
            block_prefix = read_post(prefix_of(end - 1u - min(invocation, end - 1u)));
            total = read_post(total_of(end - 1u - min(invocation, end - 1u)));
        }
        nearest = min(nearest, end - 1u);
        let posted = block_item(invocation, block_prefix.item, nearest);
        carry = pick(nearest + 1u == end, carry, posted);  // nothing is posted before block 0
        carry_known = carry_known | (nearest + 1u < end);
        loop {
            let at = total_of(end - 1u - min(invocation, end - 1u));
            total = await_post(at, invocation <= nearest, total);
            let missing = first_lane_where(invocation, (invocation <= nearest) & !total.ready);
            if (missing < BLOCK) {  // its tiles may all be there, and only the total late
                var rest: Item;
                late = scan_aggregates(invocation, end - 1u - missing, BLOCK - 1u, NO_LANE, own, &rest);
                if (late != NO_TILE) {
                    return late;
                }
                if (invocation == BLOCK - 1u) {
                    write_post(total_of(end - 1u - missing), rest);
                }
                let whole = block_item(invocation, rest, BLOCK - 1u);
                total = Post(total.ready | (invocation == missing), pick(invocation == missing, whole, total.item));
                continue;
            }
            carry = fold_lanes(invocation, carry_known, carry, total.item, nearest);
            carry_known = true;
            if (end == block) {
                break;
            }
            end += BLOCK;
            nearest = BLOCK - 1u;
            total = read_post(total_of(end - 1u - min(invocation, end - 1u)));
        }
        if (end != block) {
            return tile - position;  // the loop was left by force
        }
        if (position == 0u && invocation == 0u) {
            write_post(prefix_of(block), carry);
        }
    }

    *prefix = pick(position == 0u, carry, pick(carry_known, join(carry, before), before));
    *known = carry_known || position > 0u;
    return NO_TILE;
}
