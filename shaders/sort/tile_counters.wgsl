{#- The tiles of a step of a radix sort, their keys and digits. A tile is divided among groups of invocations, one share
    after the other: subgroups, or single invocations, which count the digits of their share here.
    in:  input, keys, temporary: the arrays that steps read
    Values: scalar; unit; descending; digits; radix_bits; workgroup_size; groups; subgroups. -#}
{% include "sort/params.wgsl" %}
{% include "sort/given_keys.wgsl" %}

const GROUPS = {{ groups }}u;  // that have counters

{% if not subgroups %}
// A counter for each digit and invocation, so that neighbours use different banks of workgroup memory.
var<workgroup> counters: array<u32, {{ groups * 2 ** radix_bits }}>;

// One invocation's share of a tile.
struct Share {
    begin: u32,
    end: u32,
}
{% endif %}

// The elements of a tile.
struct Tile {
    row: u32,
    number: u32,  // in its row
    begin: u32,
    end: u32,
}

fn tile_at(index: u32) -> Tile {
    let row = index / params.tiles_per_row;
    let number = index % params.tiles_per_row;
    let begin = row * params.row_length + number * params.tile_size;
    return Tile(row, number, begin, min(begin + params.tile_size, (row + 1u) * params.row_length));
}

fn load_key(source: u32, at: u32) -> Key {
    if (source == 0u) {
        return key_at(at);
    }
    if (source == 1u) {
        return keys[at];
    }
    return temporary[at];
}

fn digit_of(key: Key, mask: u32) -> u32 {
    let bit = params.step * RADIX_BITS + (mask >> 16u);
{% if scalar.bits == 64 %}
    let order = order_of(key);
    return (select(order.x, order.y, bit >= 32u) >> (bit % 32u)) & mask & 0xffffu;
{% else %}
    return (order_of(key) >> bit) & mask & 0xffffu;
{% endif %}
}

{% if not subgroups %}
// Count the digits of the tile, and return this invocation's share of the tile.
fn count_digits(tile: Tile, step: Step, invocation: u32) -> Share {
    for (var i = invocation; i < GROUPS * RADIX; i += WORKGROUP_SIZE) {
        counters[i] = 0u;
    }
    workgroupBarrier();
    let share = (params.tile_size + GROUPS - 1u) / GROUPS;
    let begin = min(tile.begin + invocation * share, tile.end);
    let end = min(begin + share, tile.end);
    for (var at = begin; at < end; at++) {
        counters[digit_of(load_key(step.source, at), step.mask) * GROUPS + invocation]++;
    }
    workgroupBarrier();
    return Share(begin, end);
}
{% endif %}
