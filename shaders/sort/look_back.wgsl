{#- How a tile learns, in the pass that moves its elements, how many elements with each digit are in the tiles before
    it: decoupled look-back (Merrill & Garland 2016), for each value of the digit by itself (Adinets & Merrill,
    "Onesweep", 2022). Under fallback, a workgroup that has waited long enough counts the late tile's digits itself and
    posts them (Smith, Levien & Owens 2025).
    in:  the tile state: the counts of each tile; for the end of each block, the sums of all counts of the row up to it
    out: before: the counts of all tiles of the row before this one
    Sums of integers do not depend on their order. Each word of a post carries a tag, as in shared/tile_state.wgsl. A
    tile has fewer than 65,536 elements, so a count takes one word, and a sum takes two.
    Assumes, except under fallback: workgroups that have started keep making progress. Every wait is also bounded.
    Values: the values of sort/scatter_digits.wgsl. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% from "shared/wait.wgsl" import wait with context %}
struct State {
    ticket: atomic<u32>,  // the next ticket
    status: atomic<u32>,  // the epoch of a sort that timed out
    subgroup_size: atomic<u32>,  // not used
    unused: array<u32, {{ kernel.header_words - 3 }}>,
    // Counts: (tiles of all rows, digit values); sums: (blocks of all rows, halves, digit values).
    posts: array<atomic<u32>>,
}
@group(0) @binding(5) var<storage, read_write> state: State;

const BLOCK = {{ kernel.block }}u;  // tiles that a look covers
const NO_TILE = 0xffffffffu;
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

{% include "shared/tickets.wgsl" %}

{% include "shared/pause.wgsl" %}
// ----- Posts
// The tag of this step's posts. All steps of a sort share `params.epoch`, so none waits once one has timed out.
fn tag() -> u32 {
    return params.epoch + params.step;
}

fn offset_of_count(index: u32, digit: u32) -> u32 {
    return index * RADIX + digit;
}

// The low half; the high one is RADIX words later. A last block that is not full has no sum.
fn offset_of_sum(row: u32, block: u32, digit: u32) -> u32 {
    return (params.tiles + 2u * (row * (params.tiles_per_row / BLOCK) + block)) * RADIX + digit;
}

fn write_count(index: u32, digit: u32, count: u32) {
    atomicStore(&state.posts[offset_of_count(index, digit)], (tag() << 16u) | count);
}

fn post_count(index: u32, digit: u32, count: u32) {
{% if kernel.test_build.withheld_period %}
    if (index % {{ kernel.test_build.withheld_period }}u == 1u) {
        return;  // a test build: this tile's posts never come
    }
{% endif %}
    write_count(index, digit, count);
}

// Post the sum of the counts up to a tile, if it is the last one of its block.
fn post_sum(index: u32, tile: Tile, digit: u32, sum: u32) {
    if (tile.number % BLOCK != BLOCK - 1u) {
        return;
    }
{% if kernel.test_build.withheld_period %}
    if (index % {{ kernel.test_build.withheld_period }}u == 1u) {
        return;  // a test build
    }
{% endif %}
    let at = offset_of_sum(tile.row, tile.number / BLOCK, digit);
    atomicStore(&state.posts[at], (tag() << 16u) | (sum & 0xffffu));
    atomicStore(&state.posts[at + RADIX], (tag() << 16u) | (sum >> 16u));
}

// ----- Look-back
// What is posted for some tiles of a block, and for all tiles of the row before them.
struct Look {
    late: u32,  // the first of the tiles without counts; NO_TILE if all are there
    count: u32,
    has_sum: bool,  // the sum before the tiles is there
    sum: u32,
}

// Look at the tiles from `begin`, where a block begins, up to `end` in the same block. All loads are under way
// together.
fn look_at(row: u32, begin: u32, end: u32, digit: u32) -> Look {
    let first = row * params.tiles_per_row;
    let last = max(end, 1u) - 1u;
{% for i in range(kernel.block) %}
    let seen{{ i }} = {{ peek("posts[offset_of_count(first + min(begin + %du, last), digit)]" % i) }};
{% endfor %}
    let at = offset_of_sum(row, max(begin / BLOCK, 1u) - 1u, digit);
    let low = {{ peek("posts[at]") }};
    let high = {{ peek("posts[at + RADIX]") }};
    var late = NO_TILE;
    var count = 0u;
{% for i in range(kernel.block - 1, -1, -1) %}
    late = select(late, begin + {{ i }}u, (begin + {{ i }}u < end) & (seen{{ i }} >> 16u != tag()));
    count += select(0u, seen{{ i }} & 0xffffu, begin + {{ i }}u < end);
{% endfor %}
    let posted = (low >> 16u == tag()) & (high >> 16u == tag());
    return Look(late, count, (begin == 0u) | posted, select((low & 0xffffu) | (high << 16u), 0u, begin == 0u));
}

// The number of elements with the digit in earlier tiles, if no tile is late.
struct Found {
    late: u32,  // of all rows
    count: u32,
}

fn count_before(tile: Tile, digit: u32) -> Found {
    let first = tile.row * params.tiles_per_row;
    var count = 0u;
    var end = tile.number;
    for (var block = tile.number / BLOCK + 1u; block > 0u; block--) {
        let begin = (block - 1u) * BLOCK;
        var look = look_at(tile.row, begin, end, digit);
{% call wait("look.late == NO_TILE", "given_up()") %}
        if ({{ peek("posts[offset_of_count(first + look.late, digit)]") }} >> 16u == tag()) {
            look = look_at(tile.row, begin, end, digit);
        }
{% endcall %}
        if (look.late != NO_TILE) {
{% if kernel.strategy != "fallback" %}
            report_timeout();  // now, so that no other invocation waits as long
{% endif %}
            return Found(first + look.late, 0u);
        }
        count += look.count;
        if (look.has_sum) {
            return Found(NO_TILE, count + look.sum);
        }
        end = begin;
    }
    return Found(first, 0u);  // the driver ended the loop
}

var<workgroup> before: array<u32, RADIX>;
var<workgroup> late_tile: atomic<u32>;
var<workgroup> shared_late: u32;

// Look back for all digits. Return NO_TILE if `before` is complete, otherwise a late tile.
fn look_back(invocation: u32, tile: Tile) -> u32 {
    if (invocation == 0u) {
        atomicStore(&late_tile, NO_TILE);
    }
    workgroupBarrier();
    var digit = invocation;
    for (; digit < RADIX; digit += WORKGROUP_SIZE) {
        let before_tile = count_before(tile, digit);
        before[digit] = before_tile.count;
        if (before_tile.late != NO_TILE) {
            atomicMin(&late_tile, before_tile.late);
        }
    }
{% if kernel.target.driver_ends_loops %}
    if (digit < RADIX) {  // the driver ended the loop
        atomicMin(&late_tile, tile.row * params.tiles_per_row);
    }
{% endif %}
    workgroupBarrier();
    if (invocation == 0u) {
        shared_late = atomicLoad(&late_tile);
    }
    return workgroupUniformLoad(&shared_late);
}
{% if kernel.strategy == "fallback" %}

var<workgroup> recounts: array<atomic<u32>, RADIX>;

// Count the digits of a late tile, and post the counts for it.
fn count_late_tile(invocation: u32, late: u32, step: Step) {
    let tile = tile_at(late);
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        atomicStore(&recounts[digit], 0u);
    }
    workgroupBarrier();
    var at = tile.begin + invocation;
    for (; at < tile.end; at += WORKGROUP_SIZE) {
        atomicAdd(&recounts[digit_of(load_key(step.source, at), step.mask)], 1u);
    }
{% if kernel.target.driver_ends_loops %}
    if (at < tile.end) {  // the driver ended the loop
        report_timeout();
    }
{% endif %}
    workgroupBarrier();
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        write_count(late, digit, atomicLoad(&recounts[digit]));
    }
    storageBarrier();
}
{% endif %}

// Learn `before`. Return false if the wait timed out.
fn learn_before(invocation: u32, tile: Tile, step: Step) -> bool {
{% if kernel.strategy == "fallback" %}
    var late = NO_TILE;
    loop {  // each iteration but the last posts counts that were missing
        late = look_back(invocation, tile);
        if (late == NO_TILE) {
            break;
        }
        count_late_tile(invocation, late, step);
    }
{% else %}
    let late = look_back(invocation, tile);
{% endif %}
    // Under fallback, only if the driver ended the loop, perhaps for some invocations alone.
    if (late != NO_TILE) {
        report_timeout();
    }
    return late == NO_TILE;
}
