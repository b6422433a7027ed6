{#- Move each element of a tile to the place that its digit gives: the last of the three dispatches of a step of a radix sort.
    Elements with equal digits keep their order. With subgroups, lanes with equal digits find each other by ballots
    (Ashkiani et al., "GPU Multisplit", 2016).
    in:  input, keys, temporary: the keys in one of them; steps; offsets: where the first element of each tile with each
         digit belongs, in rows of (digit values, tiles of a row){{ "; words: a word for each key" if payload == "words" }}
    out: keys or temporary{{ ", with the keys' indices or words in places or temporary_places" if payload != "none" }}
    Values: those of sort/tile_counters.wgsl; enable_subgroups; with_keys: True to store the keys in the last step; payload:
        "none", "index" or "words". -#}
{% if enable_subgroups %}
enable subgroups;
diagnostic(off, subgroup_uniformity);
{% endif %}
{% include "sort/tile_counters.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> steps: array<Step, DIGITS>;
@group(0) @binding(2) var<storage, read> input: array<Key>;
@group(0) @binding(3) var<storage, read_write> keys: array<Key>;
@group(0) @binding(4) var<storage, read_write> temporary: array<Key>;
@group(0) @binding(5) var<storage, read> offsets: array<u32>;
{% if payload != "none" %}
@group(0) @binding(6) var<storage, read_write> places: array<u32>;
@group(0) @binding(7) var<storage, read_write> temporary_places: array<u32>;
{% endif %}
{% if payload == "words" %}
@group(0) @binding(8) var<storage, read> words: array<u32>;
{% endif %}

{% if payload != "none" %}
fn load_place(step: Step, at: u32, row_begin: u32) -> u32 {
    if (step.is_first == 1u) {
        return {{ "words[at]" if payload == "words" else "at - row_begin" }};
    }
    if (step.source == 1u) {
        return places[at];
    }
    return temporary_places[at];
}
{% endif %}

fn move_element(step: Step, tile: Tile, key: Key, at: u32, position: u32) {
    if (step.destination == 1u) {
{% if with_keys %}
        keys[position] = key;
{% else %}
        if (step.is_last == 0u) {
            keys[position] = key;
        }
{% endif %}
{% if payload != "none" %}
        places[position] = load_place(step, at, tile.row * call.row_length);
{% endif %}
    } else {
        temporary[position] = key;
{% if payload != "none" %}
        temporary_places[position] = load_place(step, at, tile.row * call.row_length);
{% endif %}
    }
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if subgroups %}
    @builtin(subgroup_invocation_id) lane: u32,
{% endif %}
) {
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= call.tiles) {
        return;
    }
    let tile = tile_at(index);
    let step = steps[call.step];
    let share = count_digits(tile, step, invocation{{ ", lane" if subgroups }});
    // Turn each counter into the place for the group's first element with the digit.
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var place = offsets[(tile.row * RADIX + digit) * call.tiles_per_row + tile.number];
        for (var group = 0u; group < GROUPS; group++) {
            let counter = digit * GROUPS + group;
{% if subgroups %}
            let count = atomicLoad(&counters[counter]);
            atomicStore(&counters[counter], place);
{% else %}
            let count = counters[counter];
            counters[counter] = place;
{% endif %}
            place += count;
        }
    }
    workgroupBarrier();
{% if subgroups %}
    let below = lanes_below(lane);
    // Lanes may not part between two votes, so the last elements, which fill a part of the lanes, come after the loop.
    let full = share.begin + (share.end - share.begin) / share.lanes * share.lanes;
    for (var at = share.begin + share.rank; at < full; at += share.lanes) {
        let key = load_key(step.source, at);
        move_element(step, tile, key, at, position_of(digit_of(key, step.mask), true, share.group, below, invocation));
    }
    let at = full + share.rank;
    let key = load_key(step.source, min(at, tile.end - 1u));
    let position = position_of(digit_of(key, step.mask), at < share.end, share.group, below, invocation);
    if (at < share.end) {
        move_element(step, tile, key, at, position);
    }
{% else %}
    for (var at = share.begin; at < share.end; at++) {
        let key = load_key(step.source, at);
        let counter = digit_of(key, step.mask) * GROUPS + share.group;
        let position = counters[counter];
        counters[counter] = position + 1u;
        move_element(step, tile, key, at, position);
    }
{% endif %}
}

{% if subgroups %}
// Return the place of a lane's element, and count the elements of all its lanes.
fn position_of(digit: u32, valid: bool, group: u32, below: vec4<u32>, invocation: u32) -> u32 {
    var peers = subgroupBallot(valid);
    for (var bit = 0u; bit < RADIX_BITS; bit++) {
        let is_set = ((digit >> bit) & 1u) == 1u;
        let votes = subgroupBallot(is_set);
        peers &= select(~votes, votes, is_set);
    }
    let rank = count_bits(peers & below);
    // The first lane with the digit counts for all of them.
    let counts = valid && rank == 0u;
    let counter = select(GROUPS * RADIX + invocation, digit * GROUPS + group, counts);
    let place = atomicAdd(&counters[counter], count_bits(peers));
    return subgroupShuffle(place, lowest_lane(peers)) + rank;
}
{% endif %}
