{#- Look-back for many tiles. No tile waits for one that has not started, but not every tile looks at the tiles before
    it. A workgroup that waits, and finds that none folds, folds all aggregates that are posted, and posts the prefixes
    of other tiles too. It continues beyond its own tile while aggregates arrive, so that the fold seldom changes hands.
    lookback assumes: workgroups that have started keep making progress. Every wait is also bounded.
    fallback assumes nothing: a workgroup that has waited reduces a tile shortly before its own, and one that has waited
    for long folds even if another workgroup folds. A workgroup claims the tile that it reduces, and for a while others
    leave that tile alone. -#}
{% from "scan/by_lanes.wgsl" import by_lanes, first_lane_where with context %}
{% include "scan/fold_ahead.wgsl" %}
{% include "scan/wait_for_prefix.wgsl" %}
{% from "shared/peek.wgsl" import peek with context %}
// ----- Look-back
// Looks that find nothing new for tiles after its own, before a workgroup stops folding.
const REST = {{ kernel.heuristics.fold_rest }}u;
{% if kernel.strategy == "fallback" %}
// Looks that find nothing new for tiles before its own, before a fold helps.
const LOOKS = {{ kernel.heuristics.fallback_fold_looks }}u;
const FIRST_SPINS = {{ kernel.wait_policy.first_spins }}u;  // polls in the first round of a wait
// Failed waits after which a workgroup ignores the claims of others.
const IMPATIENT = {{ kernel.heuristics.impatient_waits }}u;

var<workgroup> shared_late: u32;

{% set claim_tag = "u64(params.epoch)" if kernel.post_format.in_64_bits else "params.epoch" %}
// Return the word that has the epoch once a workgroup has claimed the tile.
fn claim_of(tile: u32) -> u32 {
    return 2u * blocks_of(params.tiles) * BLOCK * POST_WORDS + tile;
}

// Return the late tile to reduce, or NO_TILE if another workgroup has claimed it and this one is not impatient.
fn claim(invocation: u32, late: u32, impatient: bool) -> u32 {
    if (invocation == 0u) {
        let claimed = atomicExchange(&state.posts[claim_of(late)], {{ claim_tag }}) == {{ claim_tag }};
        shared_late = select(late, NO_TILE, claimed & !impatient);
    }
    return workgroupUniformLoad(&shared_late);
}

// Return the nearest late tile among the BLOCK tiles before this one that is not claimed, or NO_TILE.
fn late_before(invocation: u32, tile: u32, impatient: bool) -> u32 {
{% call by_lanes() %}
    let distance = min(min(invocation, BLOCK - 1u), tile - 1u);
    let at = tile - 1u - distance;
    let claimed = ({{ peek("posts[claim_of(at)]", "0lu" if kernel.post_format.in_64_bits else "0u") }} == {{ claim_tag }}) & !impatient;
    let is_late = !read_post(aggregate_of(at)).ready & !claimed;
    let nearest = {{ first_lane_where("(invocation < min(tile, BLOCK)) & is_late") }};
    if (invocation == 0u) {
        shared_late = select(NO_TILE, tile - 1u - nearest, nearest < BLOCK);
    }
{% endcall %}
    return workgroupUniformLoad(&shared_late);
}
{% endif %}

// Wait for the tile's prefix. Return NO_TILE, or a tile that is late.
fn share_look_back(invocation: u32, tile: u32, aggregate: Item) -> u32 {
    var late = tile;  // this one, in case the driver ends the loop
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
            let ahead = fold_ahead(invocation, seek_frontier(invocation), tile, LOOKS, REST);
            helped = select(NO_TILE, ahead, ahead < tile);
        }
        if (helped != NO_TILE) {
            helped = claim(invocation, helped, impatient);
        }
        if (helped != NO_TILE) {
            late = helped;
            break;
        }
{% else %}
        if (outcome == LATE) {
            break;
        }
        if (fold_ahead(invocation, seek_frontier(invocation), tile, PATIENCE * params.spin_rounds, REST) < tile) {
            break;
        }
{% endif %}
    }
{% if spec.carry_out %}
    if (late == NO_TILE && tile == params.tiles - 1u) {  // the prefix after the last tile is the next piece's carry
{% if kernel.strategy == "fallback" %}
        if (invocation == 0u) {
            write_post(aggregate_of(tile), aggregate);  // no later tile would post it
        }
{% endif %}
        let ahead = fold_ahead(invocation, seek_frontier(invocation), NO_TILE, {{ "LOOKS" if kernel.strategy == "fallback" else "PATIENCE * params.spin_rounds" }}, REST);
        late = select(NO_TILE, ahead, ahead < params.tiles);
    }
{% endif %}
    return late;
}
