{#- Look-back for columns: every column is a chain by itself, and each lane of the first group walks up its own columns.
    The order of combination is left to right over the tiles of a column. It does not depend on what is posted when a lane looks.
    in, out: the tile state -#}
{% include "shared/tile_state.wgsl" %}
{% include "columns/prefix_result.wgsl" %}
{% from "shared/posts.wgsl" import tag, write_word, see_word, strange, word_seen with context %}
{% from "shared/wait.wgsl" import wait with context %}
// ----- Look-back
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;
const LOOKS = {{ kernel.heuristics.column_posts_read }}u;  // posts that a lane reads at a time

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

    return ChunkPost((strange >> {{ kernel.tag_shift }}u) == {{ "0lu" if kernel.long_posts else "0u" }}, Chunk(
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

// Find the prefix of a lane's columns. Return NO_TILE, or the tile that is late.
fn look_back(tile: u32, lane: u32, prefix: ptr<function, Chunk>) -> u32 {
    let chains = chains_of_columns();
    let chain = tile % chains;
    let tile_row = tile / chains;

    // Find the nearest tile above that has posted the prefix of the next one.
    var row = tile_row;  // the first row of tiles that the prefix does not contain yet
    var carry = *prefix;
    var found = false;
    for (var end = tile_row; end > 0u && !found; end -= min(end, LOOKS)) {
{% for look in range(kernel.heuristics.column_posts_read) %}
        let post{{ look }} = read_chunk(post_of(chain + (max(end, {{ look + 1 }}u) - {{ look + 1 }}u) * chains, lane, NEXT_PREFIX));
{% endfor %}
        row = end - min(end, LOOKS);
{% for look in range(kernel.heuristics.column_posts_read - 1, -1, -1) %}
        let seen{{ look }} = post{{ look }}.ready & (end > {{ look }}u);
        carry = pick_chunk(seen{{ look }}, post{{ look }}.chunk, carry);
        row = select(row, end - {{ look }}u, seen{{ look }});
        found = found | seen{{ look }};
{% endfor %}
    }
    if (row == tile_row) {
        *prefix = carry;
        return NO_TILE;
    }

    // The aggregates after it.
    var next = read_chunk(post_of(chain + row * chains, lane, AGGREGATE));
    for (; row < tile_row; row++) {
        let seen = next;
        next = read_chunk(post_of(chain + min(row + 1u, tile_row) * chains, lane, AGGREGATE));
        let post = await_chunk(post_of(chain + row * chains, lane, AGGREGATE), seen);
        if (!post.ready) {
            return chain + row * chains;
        }
        carry = pick_chunk(found, join_chunks(carry, post.chunk), post.chunk);
        found = true;
    }
    *prefix = carry;
    return select(chain, NO_TILE, row == tile_row);  // otherwise the driver ended the loop
}

var<workgroup> shared_prefix: array<{{ "SharedChunk" if kernel.has_bools else "Chunk" }}, COLUMNS>;
var<workgroup> late_tiles: array<u32, COLUMNS>;
var<workgroup> shared_late: u32;

// Look back once, by the lanes of the first group, for the whole workgroup. Return NO_TILE, or the first tile that is late
// in any column.
fn share_look_back(invocation: u32, tile: u32, aggregate: Chunk) -> u32 {
    if (invocation < COLUMNS) {
        var prefix = aggregate;
        let late = look_back(tile, invocation, &prefix);
        if (late == NO_TILE) {
            let known = tile >= chains_of_columns();
            let next = pick_chunk(known, join_chunks(prefix, aggregate), aggregate);
{% if kernel.withheld_period %}
            if (tile % {{ kernel.withheld_period }}u != 1u) {  // a test build: this post never comes
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
    if (invocation == 0u) {
        var first = NO_TILE;
        for (var lane = 0u; lane < COLUMNS; lane++) {
            first = min(first, late_tiles[lane]);
        }
        shared_late = first;
    }
    return workgroupUniformLoad(&shared_late);
}

fn post_columns(invocation: u32, tile: u32, aggregate: Chunk) {
{% if kernel.withheld_period %}
    if (tile % {{ kernel.withheld_period }}u == 1u) {
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
