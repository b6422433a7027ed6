{#- Look-back for many tiles: nobody waits for a tile that has not started, but not everybody looks at those before.
    Whoever waits, and finds that nobody folds, folds all aggregates that are there, and posts the prefixes of the
    others too. It goes on beyond its own tile while aggregates come in, so that the fold seldom changes hands.
    Under lookback it rests on: workgroups that have started go on making progress, and no further than the bound of
    the spins. Under fallback on nothing: who has waited helps a tile shortly before its own, and who has waited for
    long folds whether or not another does. Whom one helps the others leave alone for a while. -#}
{% from "scan/by_lanes.wgsl" import by_lanes with context %}
{% include "scan/fold_ahead.wgsl" %}
{% include "scan/wait_for_prefix.wgsl" %}
{% from "shared/peek.wgsl" import peek with context %}
// ----- Look-back
const REST = {{ kernel.heuristics.fold_rest }}u;  // looks in vain for tiles after its own, and who folds leaves
{% if kernel.strategy == "fallback" %}
const LOOKS = {{ kernel.heuristics.fallback_fold_looks }}u;  // in vain for tiles before its own, and who folds helps
const FIRST_SPINS = {{ kernel.wait_policy.first_spins }}u;  // of a wait's first round, before one helps for the first time
const IMPATIENT = {{ kernel.heuristics.impatient_waits }}u;  // waits in vain, after which one does what another has begun

var<workgroup> shared_late: u32;

fn claim_of(tile: u32) -> u32 {
    return 2u * blocks_of(params.tiles) * BLOCK * POST_WORDS + tile;
}

fn claim_tag() -> {{ "u64" if kernel.long_posts else "u32" }} {
    return {{ "u64(params.epoch)" if kernel.long_posts else "params.epoch" }};
}

// The tile to help out with: this one, unless another workgroup has begun to and one is not impatient; then NO_TILE.
fn claim(invocation: u32, late: u32, impatient: bool) -> u32 {
    if (invocation == 0u) {
        let claimed = atomicExchange(&state.posts[claim_of(late)], claim_tag()) == claim_tag();
        shared_late = select(late, NO_TILE, claimed & !impatient);
    }
    return workgroupUniformLoad(&shared_late);
}

// The nearest of the BLOCK tiles before this one whose aggregate is not there, unless others help it all; or NO_TILE.
fn late_before(invocation: u32, tile: u32, impatient: bool) -> u32 {
{{ by_lanes("find_late(invocation, tile, impatient)") }}
    let late = workgroupUniformLoad(&shared_late);
    if (late == NO_TILE) {
        return NO_TILE;
    }
    return claim(invocation, late, impatient);
}

fn find_late(invocation: u32, tile: u32, impatient: bool) {
    let distance = min(min(invocation, BLOCK - 1u), tile - 1u);
    let at = tile - 1u - distance;
    let claimed = ({{ peek("posts[claim_of(at)]") }} == claim_tag()) & !impatient;
    let late = !read_post(aggregate_of(at)).ready & !claimed;
    let nearest = first_lane_where(invocation, (invocation < min(tile, BLOCK)) & late);
    if (invocation == 0u) {
        shared_late = select(NO_TILE, tile - 1u - nearest, nearest < BLOCK);
    }
}
{% endif %}

// Wait for the tile's prefix. Gives NO_TILE, or a tile whose aggregate did not come in time.
fn share_look_back(invocation: u32, tile: u32, aggregate: Item) -> u32 {
    var late = tile;  // this one, should a loop be left by force
{% if kernel.strategy == "fallback" %}
    var waits = 0u;
{% endif %}
    loop {
{% if kernel.strategy == "fallback" %}
        let outcome = look(invocation, tile, select(SPINS_PER_ROUND, FIRST_SPINS, waits == 0u));
{% else %}
        let outcome = look(invocation, tile, SPINS_PER_ROUND);
{% endif %}
        if (outcome == FOUND) {
            late = NO_TILE;
            break;
        }
{% if kernel.strategy == "fallback" %}
        waits++;
        let impatient = waits > IMPATIENT;
        var helped = NO_TILE;
        if (outcome == LATE) {
            helped = late_before(invocation, tile, impatient);
        }
        if (outcome == FOLD || (impatient && helped == NO_TILE)) {
            let ahead = fold_ahead(invocation, tile, LOOKS, REST);
            if (ahead < tile) {
                helped = claim(invocation, ahead, impatient);
            }
        }
        if (helped != NO_TILE) {
            late = helped;
            break;
        }
{% else %}
        if (outcome == LATE) {
            break;
        }
        if (fold_ahead(invocation, tile, PATIENCE * params.spin_rounds, REST) < tile) {
            break;
        }
{% endif %}
    }
{% if spec.carry_out %}
    if (late == NO_TILE && tile == params.tiles - 1u) {  // what comes after the last tile is the next piece's carry
{% if kernel.strategy == "fallback" %}
        if (invocation == 0u) {
            write_post(aggregate_of(tile), aggregate);  // none comes after it who would
        }
{% endif %}
        let ahead = fold_ahead(invocation, NO_TILE, {{ "LOOKS" if kernel.strategy == "fallback" else "PATIENCE * params.spin_rounds" }}, REST);
        late = select(NO_TILE, ahead, ahead < params.tiles);
    }
{% endif %}
    return late;
}
