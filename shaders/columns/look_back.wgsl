{#- Look-back for columns: every column is a chain by itself, and each lane of the first group walks up its own columns.
    Where there are many chains, it only waits for the prefix that the tile above posts, and no aggregate is posted.
    The order of combination is left to right over the tiles of a column. It does not depend on what is posted when a
    lane looks.
    in, out: the tile state -#}
{% include "shared/tile_state.wgsl" %}
{% from "shared/posts.wgsl" import tag, write_word, see_word, all_tagged, word_seen with context %}
{% from "shared/wait.wgsl" import wait with context %}
{% set at_once = [8, [16 // (kernel.item_words * kernel.tile.chunk), 1] | max] | min %}
// ----- Look-back
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

{% include "shared/pause.wgsl" %}

struct ChunkPost {
    ready: bool,
    chunk: Chunk,
}

// Posts of a tile: each word of every column side by side; first the aggregate, then the prefix of the next tile.
fn post_of(tile: u32, lane: u32, which: u32) -> u32 {
    return (2u * tile + which) * (CHUNK * POST_WORDS * COLUMNS) + lane;
}

const AGGREGATE = 0u;
const NEXT_PREFIX = 1u;

fn write_chunk(at: u32, chunk: Chunk) {
    let tag = {{ tag }};
{% for column in range(kernel.tile.chunk) %}
{% for word in text.item_words("chunk[%d]" % column) %}
{{ write_word(column * kernel.item_words + loop.index0, "COLUMNS", word) }}
{%- endfor %}
{% endfor %}
}

fn read_chunk(at: u32) -> ChunkPost {
    let tag = {{ tag }};
{% for word in range(kernel.tile.chunk * kernel.item_words) %}
{{ see_word(word, "COLUMNS") }}
{%- endfor %}
    return ChunkPost({{ all_tagged(range(kernel.tile.chunk * kernel.item_words) | list) }}, Chunk(
{% for column in range(kernel.tile.chunk) %}
        {{ text.item_from_words(word_seen, column * kernel.item_words) }},
{% endfor %}
    ));
}

// Wait, within bounds, for a post; `seen` is its value when it was last read.
fn await_chunk(at: u32, seen: ChunkPost) -> ChunkPost {
    var post = seen;
{% call wait("post.ready", "given_up()") %}
        post = read_chunk(at);
{% endcall %}
    return post;
}

// Return what the tile above has posted of the prefix by now. Only the first group needs it. The others read one word
// each and not a row, which costs little, where a branch would keep the load from being under way with others.
fn glance_above(tile: u32, lane: u32, group: u32) -> ChunkPost {
    let chains = chains_of_columns();
    let post = read_chunk(post_of(max(tile, chains) - chains, select(0u, lane, group == 0u), NEXT_PREFIX));
    return ChunkPost(post.ready & (tile >= chains), post.chunk);
}

{% if kernel.wait_policy.chained %}
// Wait for the prefix of a lane's columns. Return NO_TILE, or the tile that is late. With many chains the tile above
// has nearly always posted by now, and a longer look back would cost registers.
fn look_back(tile: u32, lane: u32, prefix: ptr<function, Chunk>) -> u32 {
    let chains = chains_of_columns();
    if (tile < chains) {
        return NO_TILE;
    }
    let at = post_of(tile - chains, lane, NEXT_PREFIX);
    let post = await_chunk(at, read_chunk(at));
    *prefix = post.chunk;
    return select(tile - chains, NO_TILE, post.ready);
}
{% else %}
// Tiles above are looked at by all groups together: each reads the posts of one tile, and has room for them in
// `group_totals`. What several posts take in registers, all invocations of the workgroup would lack.
var<workgroup> lacks_prefix: array<atomic<u32>, GROUPS>;  // 1 if a group's tile has not posted all its prefixes
var<workgroup> shared_depth: u32;
var<workgroup> late_group: atomic<u32>;  // the first group without a post in time

// Keep the post of the tile that is `distance` tiles above, if there is one.
fn keep_post(invocation: u32, post: ChunkPost) {
    group_totals[invocation] = {{ text.to_shared("post.chunk", "chunk_to_shared") }};
    if (!post.ready) {
        atomicStore(&lacks_prefix[invocation / COLUMNS], 1u);
    }
}

// Count the tiles above, from the nearest on, that have not posted the prefix of the next one. The count is the same in
// the whole workgroup. If it is less than `above`, the nearest prefix is in `group_totals`, in the group of this number
// modulo GROUPS.
fn count_tiles_without_prefix(invocation: u32, tile: u32, above: u32) -> u32 {
    let chains = chains_of_columns();
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    var depth = 0u;
    for (var nearest = 0u; (nearest < above) & (depth == nearest); nearest += GROUPS) {
        if (lane == 0u) {
            atomicStore(&lacks_prefix[group], 0u);
        }
        workgroupBarrier();
        if (nearest + group < above) {
            keep_post(invocation, read_chunk(post_of(tile - (nearest + group + 1u) * chains, lane, NEXT_PREFIX)));
        }
        workgroupBarrier();
        if (invocation == 0u) {
            var passed = 0u;
            for (; passed < min(GROUPS, above - nearest); passed++) {
                if (atomicLoad(&lacks_prefix[passed]) == 0u) {
                    break;
                }
            }
            shared_depth = nearest + passed;
        }
        depth = workgroupUniformLoad(&shared_depth);
    }
    return depth;
}

fn kept_post(lane: u32, group: u32) -> Chunk {
    return {{ text.from_shared("group_totals[group * COLUMNS + lane]", "chunk_from_shared") }};
}

// Find the prefix of each column for the lanes of the first group. Return NO_TILE, or the tile that is late.
fn look_back(invocation: u32, tile: u32, prefix: ptr<function, Chunk>) -> u32 {
    let chains = chains_of_columns();
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    let above = tile / chains;
    let depth = count_tiles_without_prefix(invocation, tile, above);
    var known = depth < above;
    if (known) {
        *prefix = {{ text.from_shared("group_totals[(depth % GROUPS) * COLUMNS + lane]", "chunk_from_shared") }};
    }
    workgroupBarrier();

    // The aggregates after it, from top to bottom.
    var late = NO_TILE;
    for (var farthest = depth; farthest > 0u; farthest -= min(farthest, GROUPS)) {
        let many = min(farthest, GROUPS);
        if (invocation == 0u) {
            atomicStore(&late_group, GROUPS);
        }
        workgroupBarrier();
        if (group < many) {
            let at = post_of(tile - (farthest - group) * chains, lane, AGGREGATE);
            let post = await_chunk(at, read_chunk(at));
            group_totals[invocation] = {{ text.to_shared("post.chunk", "chunk_to_shared") }};
            if (!post.ready) {
                atomicMin(&late_group, group);
            }
        }
        workgroupBarrier();
        if (group == 0u) {
            let first = kept_post(lane, 0u);
            var combined = pick_chunk(known, join_chunks(*prefix, first), first);
            known = true;
            // Several are read at a time, since the tiles below wait for these steps.
            var next = 1u;
            for (; next + {{ at_once }}u <= many; next += {{ at_once }}u) {
{% for i in range(at_once) %}
                let post{{ i }} = kept_post(lane, next + {{ i }}u);
{% endfor %}
{% for i in range(at_once) %}
                combined = join_chunks(combined, post{{ i }});
{% endfor %}
            }
            for (; next < many; next++) {
                combined = join_chunks(combined, kept_post(lane, next));
            }
            *prefix = combined;
            let missed = atomicLoad(&late_group);
            late = min(late, select(NO_TILE, tile - (farthest - missed) * chains, missed < many));
        }
        workgroupBarrier();
    }
    return late;
}
{% endif %}

var<workgroup> shared_prefix: array<{{ "SharedChunk" if kernel.has_bools else "Chunk" }}, COLUMNS>;
var<workgroup> late_tiles: array<u32, COLUMNS>;

var<workgroup> looks_back: u32;  // 1 if a column did not learn its prefix early

// Look back once, for the whole workgroup. Each column then has a prefix, or a late tile.
fn share_look_back(invocation: u32, tile: u32, aggregate: Chunk, early: ChunkPost) {
    var prefix = pick_chunk(early.ready, early.chunk, aggregate);
    var late = NO_TILE;
{% if kernel.wait_policy.chained %}
    if (invocation < COLUMNS && !early.ready) {
        late = look_back(tile, invocation, &prefix);
    }
{% else %}
    if (invocation < COLUMNS && !early.ready) {
        looks_back = 1u;  // in all lanes that write it
    }
    if (workgroupUniformLoad(&looks_back) == 1u) {
        late = look_back(invocation, tile, &prefix);
    }
{% endif %}
    if (invocation < COLUMNS) {
        if (late == NO_TILE) {
            let known = tile >= chains_of_columns();
            let next = pick_chunk(known, join_chunks(prefix, aggregate), aggregate);
{% if kernel.test_build.withheld_period %}
            if (tile % {{ kernel.test_build.withheld_period }}u != 1u) {  // a test build: this post never comes
                write_chunk(post_of(tile, invocation, NEXT_PREFIX), next);
            }
{% else %}
            write_chunk(post_of(tile, invocation, NEXT_PREFIX), next);
{% endif %}
        }
        shared_prefix[invocation] = {{ text.to_shared("prefix", "chunk_to_shared") }};
        late_tiles[invocation] = late;
    }
    workgroupBarrier();
}

fn post_columns(invocation: u32, tile: u32, aggregate: Chunk) {
{% if kernel.test_build.withheld_period %}
    if (tile % {{ kernel.test_build.withheld_period }}u == 1u) {
        return;  // a test build: this tile's post never comes
    }
{% endif %}
    if (invocation < COLUMNS) {
        write_chunk(post_of(tile, invocation, AGGREGATE), aggregate);
    }
}
