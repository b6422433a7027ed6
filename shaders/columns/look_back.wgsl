{#- Look-back for columns: every column is a chain by itself, and each lane of the first group walks up its own columns.
    Where there are many chains, it only waits for the prefix that the tile above posts, and no aggregate is posted.
    The order of combination is left to right over the tiles of a column. It does not depend on what is posted when a lane looks.
    in, out: the tile state -#}
{% include "shared/tile_state.wgsl" %}
{% include "columns/prefix_result.wgsl" %}
{% from "shared/posts.wgsl" import tag, write_word, see_word, strange, word_seen with context %}
{% from "shared/wait.wgsl" import wait with context %}
// ----- Look-back
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

{% include "shared/pause.wgsl" %}

struct ChunkPost {
    ready: bool,
    chunk: Chunk,
}

// Posts of a tile: each word of every column side by side; first the aggregate, then the prefix of the next tile.
fn post_of(tile: u32, lane: u32, kind: u32) -> u32 {
    return (2u * tile + kind) * (CHUNK * POST_WORDS * COLUMNS) + lane;
}

const AGGREGATE = 0u;
const NEXT_PREFIX = 1u;

fn write_chunk(at: u32, chunk: Chunk) {
    let tag = {{ tag }};
{% for column in range(kernel.tile.chunk) %}
    let words{{ column }} = item_to_words(chunk[{{ column }}]);
{% for word in range(kernel.item_words) %}
{{ write_word("at", column * kernel.item_words + word, "COLUMNS", "words%d[%d]" % (column, word)) }}
{%- endfor %}
{% endfor %}
}

fn read_chunk(at: u32) -> ChunkPost {
{% for place in range(kernel.tile.chunk * kernel.item_words) %}
{{ see_word("at", place, "COLUMNS") }}
{%- endfor %}
    // True if every word has this run's epoch, without `&&`, which is a branch for each.
    let tag = {{ tag }};
    let strange ={% for place in range(kernel.tile.chunk * kernel.item_words) %} {{ strange(place) }}{{ ";" if loop.last else " |" }}{% endfor %}

    return ChunkPost((strange >> {{ kernel.post_format.payload_bits }}u) == {{ "0lu" if kernel.post_format.in_64_bits else "0u" }}, Chunk(
{% for column in range(kernel.tile.chunk) %}
        item_from_words(Words(
{% for word in range(kernel.item_words) %}
            {{ word_seen(column * kernel.item_words + word) }},
{% endfor %}
        )),
{% endfor %}
    ));
}

// Wait, within bounds, for a post; `found` is its value when it was last read.
fn await_chunk(at: u32, found: ChunkPost) -> ChunkPost {
    var post = found;
{% call wait("post.ready", "given_up()") %}
            post = read_chunk(at);
{% endcall %}
    return post;
}

// Return what the tile above has posted of the prefix by now. Only the first group needs it. The others read one word each
// and not a row, which costs little, where a branch would keep the load from being under way with others.
fn glance_above(tile: u32, lane: u32, group: u32) -> ChunkPost {
    let chains = chains_of_columns();
    let post = read_chunk(post_of(max(tile, chains) - chains, select(0u, lane, group == 0u), NEXT_PREFIX));
    return ChunkPost(post.ready & (tile >= chains), post.chunk);
}

{% if kernel.wait_policy.chained %}
// Wait for the prefix of a lane's columns. Return NO_TILE, or the tile that is late. With many chains the tile above has
// nearly always posted by now, and a longer look back would cost registers.
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
// Find the prefix of a lane's columns. Return NO_TILE, or the tile that is late. One post is read at a time: what several
// take in registers, all invocations of the workgroup lack.
fn look_back(tile: u32, lane: u32, prefix: ptr<function, Chunk>) -> u32 {
    let chains = chains_of_columns();

    // Find the nearest tile above that has posted the prefix of the next one.
    var next = tile;  // the first tile that the prefix does not contain yet
    var carry = *prefix;
    var found = false;
    for (; next >= chains && !found; next = select(next - chains, next, found)) {
        let post = read_chunk(post_of(next - chains, lane, NEXT_PREFIX));
        carry = pick_chunk(post.ready, post.chunk, carry);
        found = post.ready;
    }

    // The aggregates after it.
    for (; next < tile; next += chains) {
        let at = post_of(next, lane, AGGREGATE);
        let post = await_chunk(at, read_chunk(at));
        if (!post.ready) {
            return next;
        }
        carry = pick_chunk(found, join_chunks(carry, post.chunk), post.chunk);
        found = true;
    }
    *prefix = carry;
    return select(tile % chains, NO_TILE, next == tile);  // otherwise the driver ended the loop
}
{% endif %}

var<workgroup> shared_prefix: array<{{ "SharedChunk" if kernel.has_bools else "Chunk" }}, COLUMNS>;
var<workgroup> late_tiles: array<u32, COLUMNS>;

// Look back once, by the lanes of the first group, for the whole workgroup. Each column then has a prefix, or a late tile.
fn share_look_back(invocation: u32, tile: u32, aggregate: Chunk, early: ChunkPost) {
    if (invocation < COLUMNS) {
        var prefix = pick_chunk(early.ready, early.chunk, aggregate);
        var late = NO_TILE;
        if (!early.ready) {
            late = look_back(tile, invocation, &prefix);
        }
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

fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    return ticket_of(invocation, workgroup, grid);
}
