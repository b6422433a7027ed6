{#- Decoupled look-back (Merrill & Garland 2016) on two levels, in a fixed order of combination. A tile's prefix is
    always P(block) ⊕ K(tile): K is the Kogge-Stone scan of the block's aggregates, P folds the totals of the blocks
    before, left to right. Whatever a tile finds posted when it looks, the bits are the same. Totals need no prefix, so
    no tile waits for a chain of others: one look covers BLOCK blocks.
    Assumes: workgroups that have started keep making progress. Every wait is also bounded. -#}
{% from "scan/by_lanes.wgsl" import block_item, first_lane_where with context %}
{% include "scan/block_aggregates.wgsl" %}
{% macro total_of_lane(lane) %}{{ "item_at(total.item, %s)" % lane if kernel.block_in_subgroup else text.from_shared("scratch[%s]" % lane) }}{% endmacro %}
// ----- Look-back
{% include "scan/carry_in.wgsl" %}

// Find the prefix of a tile, if it has one. Return NO_TILE, or the tile that is late.
fn look_back(invocation: u32, tile: u32, own: Item, prefix: ptr<function, Item>) -> u32 {
    let block = tile / BLOCK;
    let position = tile % BLOCK;

    // Lane i looks at block `end - 1 - i`. These loads are under way while the lanes wait for the block's own
    // aggregates.
    var end = block;
    var block_prefix = read_post(prefix_of(end - 1u - min(invocation, end - 1u)));
    var total = read_post(total_of(end - 1u - min(invocation, end - 1u)));

    // K(tile)
    var sums: Item;
    var late = scan_aggregates(invocation, tile - position, position, position, own, position, &sums);
    if (late != NO_TILE) {
        return late;
    }
    if (position == BLOCK - 1u && invocation == position) {
        write_post(total_of(block), sums);
    }
    let before = {{ block_item("sums", "max(position, 1u) - 1u") }};
{% if kernel.heads_cut_off and kernel.block_in_subgroup %}
    if (position > 0u && before.head != 0u) {  // the same in all lanes
        *prefix = before;
        return NO_TILE;
    }
{% endif %}

    // P(block): the nearest prefix that is posted, and the totals after it.
{% if spec.carried %}
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
{% if kernel.heads_cut_off %}
            let cut = total.ready & (total.item.head != 0u);  // everything before it is cut off
{% endif %}
            let last = (seen == 0u) | block_prefix.ready{{ " | cut" if kernel.heads_cut_off }};
            nearest = {{ first_lane_where("last") }};
            if (nearest < BLOCK) {
                break;
            }
            end -= BLOCK;
            block_prefix = read_post(prefix_of(end - 1u - min(invocation, end - 1u)));
            total = read_post(total_of(end - 1u - min(invocation, end - 1u)));
        }
        nearest = min(nearest, end - 1u);
        let posted = {{ block_item("block_prefix.item", "nearest") }};
{% if spec.carried %}
        carry = pick(nearest + 1u == end, carry, posted);  // nothing is posted before block 0
{% else %}
        carry = posted;
        carry_known = nearest + 1u < end;  // nothing is posted before block 0
{% endif %}
        loop {
            let at = total_of(end - 1u - min(invocation, end - 1u));
            total = await_post(at, invocation <= nearest, total);
            let missing = {{ first_lane_where("(invocation <= nearest) & !total.ready") }};
            if (missing < BLOCK) {  // its tiles may all have posted, and only the total is late
                var rest: Item;
                late = scan_aggregates(invocation, (end - 1u - missing) * BLOCK, BLOCK - 1u, NO_LANE, own, position, &rest);
                if (late != NO_TILE) {
                    return late;
                }
                if (invocation == BLOCK - 1u) {
                    write_post(total_of(end - 1u - missing), rest);
                }
                let whole = {{ block_item("rest", "BLOCK - 1u") }};
                total = Post(total.ready | (invocation == missing), pick(invocation == missing, whole, total.item));
                continue;
            }
            // From left to right: lane `nearest` has the first of these blocks, lane 0 the last.
{% if not kernel.block_in_subgroup %}
            scratch[invocation] = {{ text.to_shared("total.item") }};
            workgroupBarrier();
{% endif %}
            let first = {{ total_of_lane("nearest") }};
            carry = pick(carry_known, join(carry, first), first);
            carry_known = true;
            for (var lane = nearest; lane > 0u; lane--) {
                carry = join(carry, {{ total_of_lane("lane - 1u") }});
            }
{% if not kernel.block_in_subgroup %}
            workgroupBarrier();
{% endif %}
            if (end == block) {
                break;
            }
            end += BLOCK;
            nearest = BLOCK - 1u;
            total = read_post(total_of(end - 1u - min(invocation, end - 1u)));
        }
{% if kernel.target.driver_ends_loops %}
        if (end != block) {
            return tile - position;  // the driver ended the loop
        }
{% endif %}
        if (position == 0u && invocation == 0u) {
            write_post(prefix_of(block), carry);
        }
    }

    *prefix = pick(position == 0u, carry, pick(carry_known, join(carry, before), before));
    return NO_TILE;
}
