{#- What tiles tell each other. WGSL's atomics are relaxed, so a flag cannot publish other memory: each half of each
    32-bit word carries the run's epoch beside its 16 bits of payload, and a post is there when all its halves are.
    The order of combination is fixed, so whoever posts a thing posts the same bits: posts may be repeated. -#}
{% from "parts/peek.wgsl" import peek with context %}
// ----- Tile state
@group(0) @binding({{ kernel.state_binding }}) var<storage, read_write> state: array<atomic<u32>>;

const TICKET = 0u;  // tiles handed out so far
const STATUS = 1u;  // the epoch of a run that gave up waiting
const WIDTH = 2u;  // the epoch of a run whose subgroups had another size than planned
const POSTS = 4u;  // from here on: an aggregate for each tile, then {{ "each tile's prefix" if kernel.strategy == "lookahead" else "a total and a prefix for each block" }}
const POST_WORDS = {{ 2 * kernel.item_words }}u;
const POST_STRIDE = {{ kernel.post_stride }}u;  // from one word of a post to the next

struct Post {
    ready: bool,
    item: Item,
}

// Posts of wide items lie by BLOCK neighbours, each word of all of them side by side, so that the lanes of a block
// read whole cache lines; narrow ones lie one after the other, so that fewer tiles write to one line.
fn place_of_post(post: u32) -> u32 {
    return POSTS + post / POST_STRIDE * (POST_STRIDE * POST_WORDS) + post % POST_STRIDE;
}

fn aggregate_of(tile: u32) -> u32 {
    return place_of_post(tile);
}

{% if kernel.strategy == "lookahead" %}
// What comes before the next tile.
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
    let tag = params.epoch << 16u;
{% for word in range(kernel.item_words) %}
    atomicStore(&state[at + {{ 2 * word }}u * POST_STRIDE], tag | (words[{{ word }}] & 0xffffu));
    atomicStore(&state[at + {{ 2 * word + 1 }}u * POST_STRIDE], tag | (words[{{ word }}] >> 16u));
{% endfor %}
}

fn read_post(at: u32) -> Post {
{% for word in range(kernel.item_words) %}
    let low{{ word }} = {{ peek("at + " ~ 2 * word ~ "u * POST_STRIDE") }};
    let high{{ word }} = {{ peek("at + " ~ (2 * word + 1) ~ "u * POST_STRIDE") }};
{% endfor %}
    // Whether every half has this run's epoch, without `&&`, which is a branch for each.
    let tag = params.epoch << 16u;
    let strange ={% for word in range(kernel.item_words) %} (low{{ word }} ^ tag) | (high{{ word }} ^ tag){{ ";" if loop.last else " |" }}{% endfor %}

    let ready = (strange >> 16u) == 0u;
    return Post(ready, item_from_words(Words(
{% for word in range(kernel.item_words) %}
        (low{{ word }} & 0xffffu) | (high{{ word }} << 16u),
{% endfor %}
    )));
}

fn post_aggregate(tile: u32, aggregate: Item) {
{% if kernel.withhold %}
    if (tile % {{ kernel.withhold }}u == 1u) {
        return;  // a test build: this tile's post never comes
    }
{% endif %}
    write_post(aggregate_of(tile), aggregate);
}

fn report_timeout() {
    atomicStore(&state[STATUS], params.epoch);
}

fn given_up() -> bool {
    return {{ peek("STATUS") }} == params.epoch;
}

var<workgroup> ticket: u32;

// Tiles are handed out in the order in which workgroups start, so a tile waits only on tiles that already run.
// The last ticket leaves the counter at zero for the next run.
fn take_ticket(invocation: u32, grid: vec3<u32>) -> u32 {
    if (invocation == 0u) {
        ticket = atomicAdd(&state[TICKET], 1u);
        if (ticket == grid.x * grid.y * grid.z - 1u) {
            atomicStore(&state[TICKET], 0u);
        }
    }
    return workgroupUniformLoad(&ticket);
}
