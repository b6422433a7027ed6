{#- What tiles tell each other. WGSL's atomics are relaxed, so a flag cannot publish other memory. Therefore each word
    of a post has two parts: the run's epoch and its payload (shared/posts.wgsl). A post is complete when all its words
    have the epoch. The order of combination is fixed, so all workgroups that post a value post the same bits. So posts
    may be repeated. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% from "shared/posts.wgsl" import tag, write_word, see_word, strange, word_seen with context %}
// ----- Tile state
struct State {
    ticket: atomic<u32>,  // the next ticket, if tickets number the tiles
    status: atomic<u32>,  // the epoch of a run that timed out
    subgroup_size: atomic<u32>,  // the epoch of a run in which subgroups had another size than planned
    loop_limit: atomic<u32>,  // the epoch of a run in which a loop of the operator did not end
    folding: atomic<u32>,  // the epoch of a run in which a workgroup folds
    frontier: atomic<u32>,  // a hint: the epoch, and below it the first block with a missing prefix
    posts: array<atomic<{{ "u64" if kernel.post_format.in_64_bits else "u32" }}>>,  // {{ "of columns" if kernel.in_columns else "an aggregate for each tile, then " ~ ("what comes after each" if kernel.wait_policy.one_workgroup_folds else "a total and a prefix for each block") }}
}
@group(0) @binding({{ kernel.state_binding }}) var<storage, read_write> state: State;

const NO_TILE = 0xffffffffu;
const POST_WORDS = {{ kernel.post_format.words }}u;
const POST_STRIDE = {{ kernel.post_format.stride }}u;  // from one word of a post to the next

struct Post {
    ready: bool,
    item: Item,
}

// The posts of wide items are interleaved for BLOCK neighbours: the first words of all of them, then the second words,
// and so on. So the lanes of a block read whole cache lines. The posts of narrow items are contiguous, so that fewer
// tiles write to one cache line.
fn place_of_post(post: u32) -> u32 {
    return post / POST_STRIDE * (POST_STRIDE * POST_WORDS) + post % POST_STRIDE;
}

fn aggregate_of(tile: u32) -> u32 {
    return place_of_post(tile);
}

{% if kernel.wait_policy.one_workgroup_folds %}
// Return the post that holds the prefix of the next tile.
fn prefix_after(tile: u32) -> u32 {
    return place_of_post(blocks_of(params.tiles) * BLOCK + tile);
}
{% else %}
fn total_of(block: u32) -> u32 {
    return place_of_post(blocks_of(params.tiles) * BLOCK + block);
}

fn prefix_of(block: u32) -> u32 {
    let blocks = blocks_of(params.tiles);
    return place_of_post((blocks + blocks_of(blocks)) * BLOCK + block);
}
{% endif %}

fn blocks_of(count: u32) -> u32 {
    return (count + BLOCK - 1u) / BLOCK;
}

fn write_post(at: u32, item: Item) {
    let words = item_to_words(item);
    let tag = {{ tag }};
{% for word in range(kernel.item_words) %}
{{ write_word("at", word, "POST_STRIDE", "words[%d]" % word) }}
{%- endfor %}
}

fn read_post(at: u32) -> Post {
{% for word in range(kernel.item_words) %}
{{ see_word("at", word, "POST_STRIDE") }}
{%- endfor %}
    // True if every word has this run's epoch, without `&&`, which is a branch for each.
    let tag = {{ tag }};
    let strange ={% for word in range(kernel.item_words) %} {{ strange(word) }}{{ ";" if loop.last else " |" }}{% endfor %}

    let ready = (strange >> {{ kernel.post_format.payload_bits }}u) == {{ "0lu" if kernel.post_format.in_64_bits else "0u" }};
    return Post(ready, item_from_words(Words(
{% for word in range(kernel.item_words) %}
        {{ word_seen(word) }},
{% endfor %}
    )));
}

fn post_aggregate(tile: u32, aggregate: Item) {
{% if kernel.test_build.withheld_period %}
    if (tile % {{ kernel.test_build.withheld_period }}u == 1u) {
        return;  // a test build: this tile's post never comes
    }
{% endif %}
    write_post(aggregate_of(tile), aggregate);
}

{% include "shared/tickets.wgsl" %}
