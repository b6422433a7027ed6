{#- The memory through which tiles exchange their aggregates and prefixes. Each value in it is called a post. WGSL's
    atomics are relaxed, so a flag cannot publish other memory. Therefore each word of a post has two parts: the run's
    epoch and a payload (shared/posts.wgsl). A post is complete when all its words have the epoch of the run. The order
    of combination is fixed, so several workgroups may write the same post: all of them write the same bits. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% from "shared/posts.wgsl" import tag, write_word, see_word, all_tagged, word_seen with context %}
// ----- Tile state
struct State {
    ticket: atomic<u32>,  // the next ticket, if tickets number the tiles
    status: atomic<u32>,  // the epoch of a run that timed out
    subgroup_size: atomic<u32>,  // the epoch of a run in which subgroups had another size than planned
    loop_limit: atomic<u32>,  // the epoch of a run in which a loop of the operator did not end
    folding: atomic<u32>,  // the epoch of a run in which a workgroup folds
    frontier: atomic<u32>,  // a hint: the epoch, and below it the first block with a missing prefix
{% if kernel.in_columns %}
    // The posts of columns.
{% elif spec.everywhere %}
    // An aggregate for each tile, then the fold up to each span.
{% elif kernel.wait_policy.one_workgroup_folds %}
    // An aggregate for each tile, then what comes after each.
{% else %}
    // An aggregate for each tile, then a total and a prefix for each block.
{% endif %}
    posts: array<atomic<{{ "u64" if kernel.post_format.in_64_bits else "u32" }}>>,
}
@group(0) @binding({{ kernel.state_binding }}) var<storage, read_write> state: State;

const NO_TILE = 0xffffffffu;
const POST_WORDS = {{ kernel.post_format.words }}u;

struct Post {
    ready: bool,
    item: Item,
}

{% if kernel.wide %}
// The posts of wide items are interleaved for BLOCK neighbours: the first words of all of them, then the second words,
// and so on. So the lanes of a block read whole cache lines. The posts of narrow items are contiguous, so that fewer
// tiles write to one cache line.
fn offset_of_post(post: u32) -> u32 {
    return post / BLOCK * (BLOCK * POST_WORDS) + post % BLOCK;
}

{% endif %}
{% macro offset_of(post) %}{{ "offset_of_post(" ~ post ~ ")" if kernel.wide else post ~ " * POST_WORDS" }}{% endmacro %}
fn aggregate_of(tile: u32) -> u32 {
    return {{ offset_of("tile") }};
}

{% if spec.everywhere %}
// Return the post that holds the fold of all spans up to this one.
fn fold_of(span: u32) -> u32 {
    return {{ offset_of("(blocks_of(params.tiles) * BLOCK + span)") }};
}
{% elif kernel.wait_policy.one_workgroup_folds %}
// Return the post that holds the prefix of the next tile.
fn prefix_after(tile: u32) -> u32 {
    return {{ offset_of("(blocks_of(params.tiles) * BLOCK + tile)") }};
}
{% else %}
fn total_of(block: u32) -> u32 {
    return {{ offset_of("(blocks_of(params.tiles) * BLOCK + block)") }};
}

fn prefix_of(block: u32) -> u32 {
    let blocks = blocks_of(params.tiles);
    return {{ offset_of("((blocks + blocks_of(blocks)) * BLOCK + block)") }};
}
{% endif %}

fn blocks_of(count: u32) -> u32 {
    return (count + BLOCK - 1u) / BLOCK;
}

{% set stride = "BLOCK" if kernel.wide else "1u" %}
{#- Make the functions that write and read a post of an item.
    numbers: the indices of the words that are posted. The other words of the item that is read are 0. -#}
{% macro post_functions(name, numbers) %}
fn write_{{ name }}(at: u32, item: Item) {
    let tag = {{ tag }};
{% for number in numbers %}
{{ write_word(number, stride, text.item_words("item")[number]) }}
{%- endfor %}
}

fn read_{{ name }}(at: u32) -> Post {
    let tag = {{ tag }};
{% for number in numbers %}
{{ see_word(number, stride) }}
{%- endfor %}
    return Post({{ all_tagged(numbers) }}, {{ text.item_from_words(word_seen, known=numbers) }});
}
{% endmacro %}
{{ post_functions("post", range(kernel.item_words) | list) }}
{% if kernel.prefix_post == "prefix" %}

// A prefix has only the words that results depend on.
{{ post_functions("prefix", kernel.prefix_words) }}
{% endif %}

{% include "shared/tickets.wgsl" %}
