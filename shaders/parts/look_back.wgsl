{#- Decoupled look-back (Merrill & Garland 2016) in a fixed order of combination. A tile's prefix is always
    P(block) ⊕ K(tile), where K is the Kogge-Stone scan of its block's aggregates and P(block) folds the blocks before
    left to right: whatever a tile finds posted when it looks, the bits are the same.
    Rests on: workgroups that have started go on making progress, and no further than the bound of the spins. -#}
// ----- Look-back
const NO_TILE = 0xffffffffu;
const SPINS_PER_ROUND = {{ kernel.spins_per_round }}u;  // llvmpipe leaves loops after 65535

// A walk is three variables of the function that walks: `block`, whose aggregates come next; `carry`, which is
// P(block); `known`, whether anything comes before the block.

{% if kernel.carried %}
@group(0) @binding({{ kernel.carry_binding }}) var<storage, read> carries: array<u32>;

fn carry_in() -> Item {
    return item_from_words(Words({% for word in range(kernel.item_words) %}carries[{{ word }}]{{ ", " if not loop.last }}{% endfor %}));
}
{% endif %}

// Find the nearest block at or before the tile's own whose prefix is posted; at worst block 0, before which is nothing.
fn begin_walk(invocation: u32, tile: u32, block: ptr<function, u32>, carry: ptr<function, Item>) {
    *block = tile / BLOCK;
    for (var window = 0u; window <= tile / (BLOCK * BLOCK); window++) {
        let candidate = *block - min(*block, invocation);
        let post = read_post(prefix_of(candidate));
        let nearest = first_lane_where(invocation, invocation < BLOCK && (candidate == 0u || post.ready));
        if (nearest < BLOCK) {
            *block -= min(*block, nearest);
            *carry = block_item(invocation, post.item, nearest);
            break;
        }
        *block -= min(*block, BLOCK);
    }
{% if kernel.carried %}
    *carry = pick(*block == 0u, carry_in(), *carry);
{% endif %}
}

{% if kernel.pauses %}
// A number that is no use, after a while. A software adapter polls faster than the system gives a waiting core to
// another workgroup, and llvmpipe leaves every loop once all loops of an invocation have made 65,535 turns together.
fn pause(spin: u32) -> u32 {
    var number = 0xfffffff0u - spin;
{% for _ in range(kernel.pauses) %}
    number = 0xfffffff1u / (number & 0xffu | 1u);
{% endfor %}
    return number;
}

{% endif %}
// Wait, within bounds, for the aggregate that this lane looks at.
fn await_aggregate(tile: u32, wanted: bool) -> Post {
    let at = aggregate_of(min(tile, params.tiles - 1u));
    var post = read_post(at);
    for (var round = 0u; round < params.spin_rounds; round++) {
        if (!any_lane(wanted && !post.ready) || any_lane(given_up())) {
            break;
        }
        for (var spin = 0u; spin < SPINS_PER_ROUND; spin++) {
            if (!any_lane(wanted && !post.ready)) {
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

// Fold blocks up to the tile's own and make `carry` the tile's prefix. Gives NO_TILE when that is done, else the tile
// whose aggregate did not come in time; the walk can go on from there.
fn continue_walk(
    invocation: u32,
    tile: u32,
    own: Item,
    block: ptr<function, u32>,
    carry: ptr<function, Item>,
    known: ptr<function, bool>,
) -> u32 {
    let own_block = tile / BLOCK;
    let position = tile % BLOCK;
    loop {
        let at_own = *block == own_block;
        let last = select(BLOCK - 1u, position, at_own);
        let is_own = at_own && invocation == position;
        let wanted = invocation <= last && !is_own;
        let post = await_aggregate(*block * BLOCK + invocation, wanted);
        let late = first_lane_where(invocation, wanted && !post.ready);
        if (late < BLOCK) {
            return *block * BLOCK + late;
        }
        let sums = scan_block(invocation, pick(is_own, own, post.item));
        if (!at_own || position == BLOCK - 1u) {
            let total = block_item(invocation, sums, BLOCK - 1u);
            let next = pick(*known, join(*carry, total), total);
            if (invocation == 0u) {
                write_post(prefix_of(*block + 1u), next);
            }
            if (!at_own) {
                *carry = next;
                *known = true;
                *block += 1u;
                continue;
            }
        }
        if (position > 0u) {
            let before = block_item(invocation, sums, position - 1u);
            *carry = pick(*known, join(*carry, before), before);
            *known = true;
        }
        return NO_TILE;
    }
    return *block * BLOCK;  // the loop was left by force
}
