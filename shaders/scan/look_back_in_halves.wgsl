{#- Decoupled look-back (Merrill & Garland 2016) in the canonical order: a tile reads the aggregates of all tiles of its
    span that are before it, and joins them in halves. The last tile of a span posts the fold of all spans up to it,
    from the left, after the carry that came in.
    in:  the posts
    out: `tile_leads`, at index k the total of the half before the tile if bit k of its number is set; in the last
         element the fold of all spans before
    Assumes: workgroups that have started keep making progress. Every wait is also bounded. -#}
{% include "shared/pause.wgsl" %}
{% from "shared/wait.wgsl" import wait with context %}
{% from "scan/halves.wgsl" import join_fours with context %}
// ----- Look-back in halves
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;
const TILES_PER_SPAN = {{ kernel.tiles_per_span }}u;

// First the aggregates of the span's tiles, then at index i the total of the largest half that ends with tile i and
// begins at a multiple of its size (Fenwick 1994). Such totals are at the indices before the tile. A
// tile that ends the span has one at its own index, too.
var<workgroup> halves: array<{{ text.shared_item }}, TILES_PER_SPAN>;
var<workgroup> shared_late: u32;  // 1 if a tile is late

// Wait for a post, which was seen as `first`. Afterwards `shared_late` tells if it did not come, and `shared_exact` if
// its item may meet a subnormal. Invocations write nothing but 1 to both, so they need not take turns.
fn await_post(at: u32, first: Post) -> Item {
    var post = first;
{% call wait("post.ready", "given_up()") %}
        post = read_post(at);
{% endcall %}
    if (!post.ready) {
        shared_late = 1u;
    }
    if (are_small(sizes_of(post.item{{ ".value" if kernel.segmented }}))) {
        shared_exact = 1u;
    }
    return post.item;
}

// Return false if a tile is late.
fn all_posted(invocation: u32) -> bool {
    let late = workgroupUniformLoad(&shared_late) > 0u;
    if (late && invocation == 0u) {
        report_timeout();
    }
    return !late;
}

// Join the aggregates of the first tiles of the span.
fn join_tiles(invocation: u32, tiles: u32) {
    for (var half = 1u; half < TILES_PER_SPAN; half *= 2u) {
        for (var last = (2u * invocation + 2u) * half - 1u; last < tiles; last += 2u * half * WORKGROUP_SIZE) {
            let item = join_pair({{ text.from_shared("halves[last - half]") }}, {{ text.from_shared("halves[last]") }});
            halves[last] = {{ text.to_shared("item") }};
        }
        workgroupBarrier();
    }
}

// Wait for what is before the tile. Return false if the wait timed out.
fn await_leads(invocation: u32, tile: u32) -> bool {
    let position = tile % TILES_PER_SPAN;
    let span = tile / TILES_PER_SPAN;
    let ends_span = position == TILES_PER_SPAN - 1u;
{% if spec.keep_last_only and not spec.reduces_segments %}
    if (!has_end(tile) && !ends_span) {
        return false;  // the tile stores nothing
    }
{% endif %}
    var fold = Post(span == 0u, {{ "carry_in()" if spec.carried else text.from_shared("scratch[0]") }});
    if (invocation == 0u && span > 0u) {
        fold = read_post(fold_of(span - 1u));
    }
    // The last tile of a span joins its own aggregate, too.
    let seen = position + select(0u, 1u, ends_span);
    for (var other = invocation; other < seen; other += WORKGROUP_SIZE) {
        let at = aggregate_of(tile - position + other);
        let item = await_post(at, read_post(at));
        halves[other] = {{ text.to_shared("item") }};
    }
    if (!all_posted(invocation)) {
        return false;
    }
    let small = workgroupUniformLoad(&shared_exact) != 0u;
    exact = small;
    // Elements from `seen` on have any numbers, which change no others.
    if (!small) {
{{ (join_fours("halves", "TILES_PER_SPAN", kernel.tiles_per_span) | indent(4, true)).rstrip() }}
    } else {
        join_tiles(invocation, seen);
    }
    if (invocation < TILE_LEADS - 1u) {
        let half = (position >> invocation) << invocation;
        tile_leads[invocation] = halves[max(half, 1u) - 1u];
    }
    if (invocation == 0u) {
        let before = await_post(fold_of(max(span, 1u) - 1u), fold);
        tile_leads[TILE_LEADS - 1u] = {{ text.to_shared("before") }};
        if (ends_span && shared_late == 0u) {
            let total = {{ text.from_shared("halves[TILES_PER_SPAN - 1u]") }};
            write_post(fold_of(span), {{ "join(before, total)" if spec.carried else "pick(span > 0u, join(before, total), total)" }});
        }
    }
    let posted = all_posted(invocation);
    exact = shared_exact != 0u;
    return posted;
}
