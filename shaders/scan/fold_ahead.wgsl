{#- The fold of the single-pass strategies. The lanes of a block read the aggregates in order: two blocks at a time,
    or one block while they scan another. They post the prefix of every tile up to the first aggregate that is missing.
    The strategy decides which workgroup folds. The order of combination is always P(block) ⊕ K(tile): K is the
    Kogge-Stone scan of the block's aggregates, P folds the totals of the blocks before, left to right. So several
    workgroups may fold at a time, and post the same bits. A fold that finds nothing new looks again, and stops after a
    bounded number of looks.
    in:  the aggregates in the tile state
    out: the prefixes in the tile state -#}
{% from "scan/by_lanes.wgsl" import block_item, by_lanes, first_lane_where, scan_block with context %}
{% include "scan/fold_looks.wgsl" %}
{% if kernel.strategy != "lookahead" %}
const STRIDE = {{ kernel.heuristics.fold_hint_blocks }}u;  // blocks from one hint to the next
{% endif %}

fn read_aggregate(tile: u32) -> Post {
    let post = read_post(aggregate_of(min(tile, params.tiles - 1u)));
    return Post(post.ready & (tile < params.tiles), post.item);
}

{% set ready = "min(" ~ first_lane_where("!post.ready") ~ ", BLOCK)" %}
// Post the prefixes of the tiles from block `start` on. `shared_seed` has the prefix of this block. Stop when all are
// posted, or after `patience` looks in a row that find nothing new. Once the prefix of `tile` is posted, stop after
// `rest` such looks. Return the first tile with a missing aggregate.
fn fold_ahead(invocation: u32, start: u32, tile: u32, patience: u32, rest: u32) -> u32 {
{% call by_lanes() %}
    // The prefix of the block, if it has one.
{% if spec.carried %}
    var carry = pick(start > 0u, {{ text.from_shared("shared_seed") }}, carry_in());
    var known = true;
{% else %}
    var carry = {{ text.from_shared("shared_seed") }};
    var known = start > 0u;
{% endif %}
    var block = start;  // the block that is scanned
    var posted = 0u;  // its tiles that are followed by a posted prefix
    var idle = 0u;  // looks since the last one that found something new
{% if kernel.fold.reads_ahead %}
    var post = Post(false, carry);  // the block's posts, as they were when they were read
{% endif %}
    while (block * BLOCK + posted < params.tiles) {
        if (idle >= select(patience, rest, block * BLOCK + posted >= tile)) {
            break;
        }
{% if kernel.fold.reads_ahead %}
        let ready = {{ ready }};
        // Loaded while this block is scanned: the next block, or this one again if it was incomplete.
        let next = read_aggregate((block + ready / BLOCK) * BLOCK + min(invocation, BLOCK - 1u));
{% else %}
        let first = block * BLOCK + min(invocation, BLOCK - 1u);
        var post = read_aggregate(first);
{% if kernel.fold.blocks == 2 %}
        let next = read_aggregate(first + BLOCK);  // both loads are under way together
{% endif %}
{% endif %}
{% if kernel.strategy != "lookahead" %}
        let was = block;
{% endif %}
        idle++;
{% if kernel.times_out %}
        if (idle % GLANCE == 0u) {
            if ({{ first_lane_where("given_up()") }} < BLOCK) {
                break;
            }
        }
{% endif %}
        // Post the prefixes up to the first missing aggregate. If none is missing, go on to the next block.
{% if not kernel.fold.reads_ahead %}
        var ready = {{ ready }};
{% endif %}
        {{ "for (var scanned = 0u; scanned < 2u && ready > posted; scanned++)" if kernel.fold.blocks == 2 else "if (ready > posted)" }} {
            let sums = {{ scan_block("invocation", "post.item") }};
            let before = pick(known, join(carry, sums), sums);
            if ((invocation >= posted) & (invocation < ready)) {
                write_{{ kernel.prefix_post }}(prefix_after(block * BLOCK + invocation), before);
            }
            posted = ready;
            idle = 0u;
            if (posted == BLOCK) {
                carry = {{ block_item("before", "BLOCK - 1u") }};
                known = true;
                posted = 0u;
                block++;
{% if kernel.fold.blocks == 2 %}
                post = next;
                ready = {{ ready }};
{% endif %}
            }
        }
{% if kernel.strategy != "lookahead" %}
        if (block / STRIDE != was / STRIDE) {
            tell_frontier(block);
        }
{% endif %}
{% if kernel.wait_policy.pauses %}
        if (pause(idle) == 0x70000001u) {
            idle += 2u;  // never so, but the compiler cannot tell, and keeps the pause
        }
{% endif %}
{% if kernel.fold.reads_ahead %}
        post = next;
{% endif %}
    }
    if (invocation == 0u) {
        shared_first = block * BLOCK + posted;
        tell_frontier(block);
        atomicStore(&state.folding, 0u);  // the next workgroup that waits may fold
    }
{% endcall %}
    return workgroupUniformLoad(&shared_first);
}
