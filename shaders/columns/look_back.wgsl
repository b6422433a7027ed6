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
// Tiles above are looked at by all groups together: each reads both posts of one tile, the nearest ones first, and has
// room for one in `group_totals`. What several posts take in registers, all invocations of the workgroup would lack.
{% set mask_words = (kernel.tile.groups + 31) // 32 %}
var<workgroup> without_prefix: array<atomic<u32>, {{ mask_words }}>;  // a bit for each group: its tile lacks a prefix
var<workgroup> shared_depth: u32;
var<workgroup> farthest_late: atomic<u32>;  // the farthest group without a post in time, and one more

// Return how many groups, from the first on, look at tiles that have not posted the prefix of the next one.
fn take_groups_without_prefix() -> u32 {
    var passed = GROUPS;
{% for word in range(mask_words) | reverse %}
    let word{{ word }} = ~atomicExchange(&without_prefix[{{ word }}], 0u);
    passed = select(passed, {{ "%du + " % (32 * word) if word }}firstTrailingBit(word{{ word }}), word{{ word }} != 0u);
{% endfor %}
    return passed;
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
    if (above == 0u) {
        return NO_TILE;
    }
    if (invocation == 0u) {
        atomicStore(&farthest_late, 0u);
        _ = take_groups_without_prefix();
    }
    workgroupBarrier();

    // Look at the tiles above until one has posted the prefix of the next: `depth` tiles, the same number in the whole
    // workgroup, have not. The last ones that are looked at begin after `nearest` others.
    var next_prefix = ChunkPost(false, *prefix);
    var aggregate = next_prefix;
    var nearest = 0u;
    var depth = 0u;
    loop {
        let distance = nearest + group + 1u;
        if (distance <= above) {
            next_prefix = read_chunk(post_of(tile - distance * chains, lane, NEXT_PREFIX));
            aggregate = read_chunk(post_of(tile - distance * chains, lane, AGGREGATE));
            if (!next_prefix.ready) {
                atomicOr(&without_prefix[group / 32u], 1u << (group % 32u));
            }
        }
        workgroupBarrier();
        if (invocation == 0u) {
            shared_depth = min(nearest + take_groups_without_prefix(), above);
        }
        depth = workgroupUniformLoad(&shared_depth);
        if ((depth < nearest + GROUPS) | (depth == above)) {
            break;
        }
        nearest += GROUPS;
    }

    // Combine that prefix with the aggregates of these tiles, from top to bottom.
    let is_known = depth < above;
    var is_farthest = true;
    var late = NO_TILE;
    loop {
        let many = min(depth - nearest, GROUPS);
        if (group < many) {
            let distance = nearest + group + 1u;
            aggregate = await_chunk(post_of(tile - distance * chains, lane, AGGREGATE), aggregate);
            group_totals[invocation] = {{ text.to_shared("aggregate.chunk", "chunk_to_shared") }};
            if (!aggregate.ready) {
                atomicMax(&farthest_late, group + 1u);
            }
        } else if (nearest + group == depth) {
            group_totals[invocation] = {{ text.to_shared("next_prefix.chunk", "chunk_to_shared") }};
        }
        workgroupBarrier();
        if (group == 0u) {
            var left = many;
            var combined = *prefix;
            if (is_farthest) {
                left = select(many - 1u, many, is_known);
                combined = kept_post(lane, left);
            }
            // Several are read at a time, since the tiles below wait for these steps.
            for (; left >= {{ at_once }}u; left -= {{ at_once }}u) {
{% for i in range(at_once) %}
                let post{{ i }} = kept_post(lane, left - {{ i + 1 }}u);
{% endfor %}
{% for i in range(at_once) %}
                combined = join_chunks(combined, post{{ i }});
{% endfor %}
            }
            for (; left > 0u; left--) {
                combined = join_chunks(combined, kept_post(lane, left - 1u));
            }
            *prefix = combined;
            let missed = atomicLoad(&farthest_late);
            late = min(late, select(NO_TILE, tile - (nearest + missed) * chains, missed > 0u));
        }
        if (nearest == 0u) {
            break;
        }
        is_farthest = false;
        nearest -= GROUPS;
        workgroupBarrier();
        if (invocation == 0u) {
            atomicStore(&farthest_late, 0u);
        }
        aggregate = read_chunk(post_of(tile - (nearest + group + 1u) * chains, lane, AGGREGATE));
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
{% set withheld, period = kernel.test_build.withheld_period, kernel.test_build.prefix_period %}
{% set kept = ["tile %% %du != 1u" % withheld if withheld, "(tile %% %du == 0u || invocation == 1u)" % period if period] | select | join(" && ") %}
{% if kept %}
            if ({{ kept }}) {  // a test build: other posts never come
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
