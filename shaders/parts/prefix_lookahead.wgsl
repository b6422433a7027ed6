{#- The prefix by look-ahead: the workgroup of ticket 0 scans no tile. Its lanes read the aggregates as they come,
    block by block, and post every tile's prefix; the workgroup of ticket t + 1 scans tile t, and waits on one post.
    The order of combination is look-back's: P(block) ⊕ K(tile).
    Rests on: workgroups that have not started yet do start while an earlier one spins. -#}
{% include "parts/tile_state.wgsl" %}
{% include "parts/block_lanes.wgsl" %}
{% include "parts/carry_in.wgsl" %}
{% include "parts/pause.wgsl" %}
{% include "parts/prefix_result.wgsl" %}
{% from "parts/wait.wgsl" import wait with context %}
// ----- Look-ahead
const SPINS_PER_ROUND = {{ kernel.spins_per_round }}u;
{#- On a software adapter a turn, which reads many posts, takes as long as many polls. #}
const PATIENCE = SPINS_PER_ROUND{{ " / 8u" if kernel.software }};  // turns without progress, in a round

const GLANCE = 64u;  // turns without progress until it asks whether a tile gave up

// Ticket 0 looks ahead, and has no tile.
fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    let ticket = take_ticket(invocation, grid);
    if (ticket == 0u) {
{% if kernel.block_in_subgroup %}
        if (invocation < SUBGROUP_SIZE) {
            look_ahead(invocation);
        }
{% else %}
        look_ahead(invocation);
{% endif %}
    }
    return ticket - 1u;  // NO_TILE for ticket 0
}
{% if kernel.subgroups %}

fn report_width() {
    atomicStore(&state.width, params.epoch);
}
{% endif %}

fn read_aggregate(tile: u32) -> Post {
    let post = read_post(aggregate_of(min(tile, params.tiles - 1u)));
    return Post(post.ready & (tile < params.tiles), post.item);
}

{% macro fold_block(post) %}
        // Post the prefixes that the block's aggregates give as far as they are there; all: on to the next block.
        let {{ post }}_ready = min(first_lane_where(invocation, (invocation < BLOCK) & !{{ post }}.ready), BLOCK);
        if ({{ post }}_ready > posted) {
            let sums = scan_block(invocation, {{ post }}.item);
            let before = pick(known, join(carry, sums), sums);
            if (invocation >= posted && invocation < {{ post }}_ready) {
                write_post(prefix_after(block * BLOCK + invocation), before);
            }
            posted = {{ post }}_ready;
            idle = 0u;
            if (posted == BLOCK) {
                carry = block_item(invocation, before, BLOCK - 1u);
                known = true;
                posted = 0u;
                block++;
            }
        }
{% endmacro %}
fn look_ahead(invocation: u32) {
    var block = 0u;  // whose aggregates are scanned
    var posted = 0u;  // of them, how many are in prefixes that are posted
{% if kernel.carried %}
    var known = true;  // whether anything comes before the block
    var carry = carry_in();  // what does
{% else %}
    var known = false;  // whether anything comes before the block
    var carry = Item();  // what does
{% endif %}
    var idle = 0u;  // turns since the last progress
    while (block * BLOCK + posted < params.tiles && idle < PATIENCE * params.spin_rounds) {
        let first = block * BLOCK + min(invocation, BLOCK - 1u);
        let near = read_aggregate(first);  // both reads are under way together
        let far = read_aggregate(first + BLOCK);
        let was = block;
        idle++;
        if (idle % GLANCE == 0u) {
            if (first_lane_where(invocation, given_up()) < BLOCK) {
                break;
            }
        }
{{ fold_block("near") }}
        if (block > was) {
{{ fold_block("far") }}
        }
{% if kernel.pauses %}
        if (pause(idle) == 0x70000001u) {
            idle += 2u;  // never so, but the compiler cannot tell, and keeps the pause
        }
{% endif %}
    }
    if (block * BLOCK + posted < params.tiles && invocation == 0u) {
        report_timeout();
    }
}

var<workgroup> shared_learned: u32;
var<workgroup> shared_prefix: {{ kernel.shared_item }};

// One invocation waits, within bounds.
fn await_prefix(tile: u32) -> Post {
    var post = read_post(prefix_after(tile - 1u));
{% call wait("post.ready", "given_up()") %}
            post = read_post(prefix_after(tile - 1u));
{% if kernel.segmented %}
            // A head in the tile before cuts off everything before it.
            let neighbour = read_post(aggregate_of(tile - 1u));
            let cut = neighbour.ready && neighbour.item.head != 0u;
            post = Post(post.ready || cut, pick(post.ready, post.item, neighbour.item));
{% endif %}
{% endcall %}
    return post;
}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Item) -> Prefix {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
        if (tile == 0u) {
            shared_learned = 1u;
{% if kernel.carried %}
            shared_prefix = {{ kernel.to_shared("carry_in()") }};
{% endif %}
        } else {
            let post = await_prefix(tile);
            shared_learned = select(0u, 1u, post.ready);
            shared_prefix = {{ kernel.to_shared("post.item") }};
            if (!post.ready) {
                report_timeout();
            }
        }
    }
    let learned = workgroupUniformLoad(&shared_learned) != 0u;
    return Prefix(learned, {{ "true" if kernel.carried else "tile > 0u" }}, {{ kernel.from_shared("shared_prefix") }});
}
