{#- Count the digits of a tile. The tile is divided among groups of invocations, one stretch after the other; each group has
    a counter for each digit. A group is a subgroup of any size{{ "" if subgroups else "; here it is one invocation" }}.
    in:  input, keys, temporary: the arrays that steps read
    Values: scalar; descending; digits; radix_bits; workgroup_size; groups; subgroups. -#}
{% include "sort/call.wgsl" %}
{% include "sort/keys.wgsl" %}

const GROUPS = {{ groups }}u;  // that have counters; others are idle

{% if subgroups %}
// Behind the counters there is a word for each invocation, which receives what is to be counted nowhere.
var<workgroup> counters: array<atomic<u32>, {{ groups * 2 ** radix_bits + workgroup_size }}>;
var<workgroup> registered: atomic<u32>;  // the number of subgroups
{% else %}
var<workgroup> counters: array<u32, {{ groups * 2 ** radix_bits }}>;
{% endif %}

// One group's stretch of a tile, and this invocation's part in the group.
struct Share {
    begin: u32,
    end: u32,
    group: u32,
    lanes: u32,  // in the group
    rank: u32,  // of this lane among them
}

// The elements of a tile.
struct Tile {
    row: u32,
    number: u32,  // in its row
    begin: u32,
    end: u32,
}

fn tile_at(index: u32) -> Tile {
    let row = index / call.tiles_per_row;
    let number = index % call.tiles_per_row;
    let begin = row * call.row_length + number * call.tile_size;
    return Tile(row, number, begin, min(begin + call.tile_size, (row + 1u) * call.row_length));
}

fn load_key(source: u32, at: u32) -> Key {
    if (source == 0u) {
        return input[at];
    }
    if (source == 1u) {
        return keys[at];
    }
    return temporary[at];
}

fn digit_of(key: Key, mask: u32) -> u32 {
    let bit = call.step * RADIX_BITS;
{% if scalar.bits == 64 %}
    let order = order_of(key);
    return (select(order.x, order.y, bit >= 32u) >> (bit % 32u)) & mask;
{% else %}
    return (order_of(key) >> bit) & mask;
{% endif %}
}

{% if subgroups %}
fn count_bits(lanes: vec4<u32>) -> u32 {
    let counts = countOneBits(lanes);
    return counts.x + counts.y + counts.z + counts.w;
}

// Return the lanes with smaller numbers.
fn lanes_below(lane: u32) -> vec4<u32> {
    let bits = (1u << (lane % 32u)) - 1u;
    let word = vec4<u32>(lane / 32u);
    let numbers = vec4<u32>(0u, 1u, 2u, 3u);
    return select(select(vec4<u32>(0u), vec4<u32>(bits), numbers == word), vec4<u32>(0xffffffffu), numbers < word);
}

// Return the lowest of these lanes.
fn lowest_lane(lanes: vec4<u32>) -> u32 {
    var lane = 96u + firstTrailingBit(lanes.w);
    lane = select(lane, 64u + firstTrailingBit(lanes.z), lanes.z != 0u);
    lane = select(lane, 32u + firstTrailingBit(lanes.y), lanes.y != 0u);
    return select(lane, firstTrailingBit(lanes.x), lanes.x != 0u);
}
{% endif %}

// Count the digits of the tile, and return this invocation's share of the tile.
fn count_digits(tile: Tile, step: Step, invocation: u32{{ ", lane: u32" if subgroups }}) -> Share {
    for (var i = invocation; i < GROUPS * RADIX; i += WORKGROUP_SIZE) {
        {{ "atomicStore(&counters[i], 0u)" if subgroups else "counters[i] = 0u" }};
    }
{% if subgroups %}
    // Some drivers do not clear workgroup memory (lavapipe).
    atomicStore(&registered, 0u);
    workgroupBarrier();
    // Subgroups number themselves, so it does not matter how large they are and which invocations they consist of.
    let members = subgroupBallot(true);
    let rank = count_bits(members & lanes_below(lane));
    let lanes = count_bits(members);
    let ticket = atomicAdd(&registered, select(0u, 1u, rank == 0u));
    let group = subgroupShuffle(ticket, lowest_lane(members));
    workgroupBarrier();
    let workers = min(GROUPS, atomicLoad(&registered));
{% else %}
    let rank = 0u;
    let lanes = 1u;
    let group = invocation;
    workgroupBarrier();
    let workers = GROUPS;
{% endif %}
    let stretch = (call.tile_size + workers - 1u) / workers;
    let begin = min(tile.begin + group * stretch, tile.end);
    let end = select(begin, min(begin + stretch, tile.end), group < workers);
    for (var at = begin + rank; at < end; at += lanes) {
        let counter = digit_of(load_key(step.source, at), step.mask) * GROUPS + group;
        {{ "atomicAdd(&counters[counter], 1u)" if subgroups else "counters[counter]++" }};
    }
    workgroupBarrier();
    return Share(begin, end, group, lanes, rank);
}
