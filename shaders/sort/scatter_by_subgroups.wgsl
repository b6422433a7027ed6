{#- The main function of sort/scatter_digits.wgsl with subgroups. The elements of a tile are kept in registers, ranked, put in
    order in workgroup memory, where those with one digit are neighbours, and then stored.
    Values: those of sort/scatter_digits.wgsl; items: the elements of an invocation. -#}
{% set tile_words = items * workgroup_size %}
{% set key_words = 2 if scalar.bits == 64 else 1 %}
{% set shared_words = [groups * 2 ** radix_bits + workgroup_size, tile_words * key_words] | max %}
// At first the counters of the groups, one for each digit, and a word for each invocation that counts nothing. Then the
// keys of the ordered tile, and after them its places.
var<workgroup> room: array<atomic<u32>, {{ shared_words }}>;
var<workgroup> registered: atomic<u32>;  // the number of subgroups
// Sums of counts over the digits up to one: of neighbours at first, then of twice as many each round.
var<workgroup> sums: array<u32, {{ 2 ** (radix_bits + 1) }}>;
// What to add to a place in the ordered tile for the place in the row's result, for each digit.
var<workgroup> moves: array<u32, RADIX>;

const PARKED = GROUPS * RADIX;

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

// Return how many elements with the digit come before a lane's in its group, and count the elements of all lanes.
fn rank_of(digit: u32, valid: bool, group: u32, below: vec4<u32>, invocation: u32) -> u32 {
    var peers = subgroupBallot(valid);
{% for bit in range(radix_bits) %}
    let votes{{ bit }} = subgroupBallot((digit & {{ 2 ** bit }}u) != 0u);
    peers &= select(~votes{{ bit }}, votes{{ bit }}, (digit & {{ 2 ** bit }}u) != 0u);
{% endfor %}
    let earlier = count_bits(peers & below);
    // The first lane with the digit counts for all of them.
    let counts = valid && earlier == 0u;
    let counter = select(PARKED + invocation, group * RADIX + digit, counts);
    let before = atomicAdd(&room[counter], count_bits(peers));
    return subgroupShuffle(before, lowest_lane(peers)) + earlier;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
{% include "sort/take_tile.wgsl" %}
    for (var i = invocation; i < GROUPS * RADIX; i += WORKGROUP_SIZE) {
        atomicStore(&room[i], 0u);
    }
    // Some drivers do not clear workgroup memory (lavapipe).
    atomicStore(&registered, 0u);
    workgroupBarrier();
    // Subgroups number themselves, so it does not matter which invocations they consist of. All have as many lanes.
    let below = lanes_below(lane);
    let members = subgroupBallot(true);
    let member = count_bits(members & below);
    let lanes = count_bits(members);
    let number = atomicAdd(&registered, select(0u, 1u, member == 0u));
    let group = subgroupShuffle(number, lowest_lane(members));
{% if scheduler == "random" %}
    idle(LOADS, index, group, LONGEST_DELAY);
{% endif %}
    let stretch = (params.tile_size * lanes + WORKGROUP_SIZE - 1u) / WORKGROUP_SIZE;
    let begin = tile.begin + group * stretch;
    let end = min(begin + stretch, tile.end);
{% for i in range(items) %}
    let at{{ i }} = begin + {{ i }}u * lanes + member;
    let key{{ i }} = load_key(step.source, min(at{{ i }}, tile.end - 1u));
{% endfor %}
{% for i in range(items) %}
    let digit{{ i }} = digit_of(key{{ i }}, step.mask);
    let rank{{ i }} = rank_of(digit{{ i }}, at{{ i }} < end, group, below, invocation);
{% endfor %}
{% if scheduler == "random" %}
    idle(POSTS, index, 0u, LONGEST_POST_DELAY);
{% endif %}
    workgroupBarrier();
    // Turn each counter into the number of elements with its digit in earlier groups.
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var count = 0u;
        for (var earlier = 0u; earlier < GROUPS; earlier++) {
            let own = atomicLoad(&room[earlier * RADIX + digit]);
            atomicStore(&room[earlier * RADIX + digit], count);
            count += own;
        }
        sums[digit] = count;
{% if kernel %}
        post_count(index, digit, count);
{% endif %}
    }
    workgroupBarrier();
{% for round in range(radix_bits) %}
{% set from, to = ("0u", "RADIX") if round % 2 == 0 else ("RADIX", "0u") %}
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        let before = select(0u, sums[{{ from }} + max(digit, {{ 2 ** round }}u) - {{ 2 ** round }}u], digit >= {{ 2 ** round }}u);
        sums[{{ to }} + digit] = sums[{{ from }} + digit] + before;
    }
    workgroupBarrier();
{% endfor %}
{% set total = "RADIX" if radix_bits % 2 else "0u" %}
{% if kernel %}
    if (!learn_before(invocation, tile, step)) {
        return;
    }
{% endif %}
    var digit = invocation;
    for (; digit < RADIX; digit += WORKGROUP_SIZE) {
        let first = select(0u, sums[{{ total }} + max(digit, 1u) - 1u], digit > 0u);
{% if kernel %}
        post_sum(index, tile, digit, before[digit] + sums[{{ total }} + digit] - first);
        moves[digit] = base_of(tile.row, digit) + before[digit] - first;
{% else %}
        moves[digit] = offsets[(tile.row * RADIX + digit) * params.tiles_per_row + tile.number] - first;
{% endif %}
        for (var earlier = 0u; earlier < GROUPS; earlier++) {
            let counter = earlier * RADIX + digit;
            atomicStore(&room[counter], atomicLoad(&room[counter]) + first);
        }
    }
{% if kernel and kernel.target.driver_ends_loops %}
    if (digit < RADIX) {  // the driver ended the loop
        report_timeout();
    }
{% endif %}
    workgroupBarrier();
{% if scheduler == "random" %}
    idle(STORES, index, group, LONGEST_DELAY);
{% endif %}
{% for i in range(items) %}
    let place{{ i }} = atomicLoad(&room[group * RADIX + digit{{ i }}]) + rank{{ i }};
{% endfor %}
    workgroupBarrier();
{% for i in range(items) %}
    if (at{{ i }} < end) {
{% if key_words == 2 %}
        atomicStore(&room[place{{ i }}], key{{ i }}.x);
        atomicStore(&room[{{ tile_words }}u + place{{ i }}], key{{ i }}.y);
{% else %}
        atomicStore(&room[place{{ i }}], key{{ i }});
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
    let count = tile.end - tile.begin;
{% for i in range(items) %}
    let from{{ i }} = min(invocation + {{ i * workgroup_size }}u, count - 1u);
{% if key_words == 2 %}
    let moved{{ i }} = Key(atomicLoad(&room[from{{ i }}]), atomicLoad(&room[{{ tile_words }}u + from{{ i }}]));
{% else %}
    let moved{{ i }} = atomicLoad(&room[from{{ i }}]);
{% endif %}
    let to{{ i }} = moves[digit_of(moved{{ i }}, step.mask)] + from{{ i }};
{% endfor %}
{% for i in range(items) %}
    if (invocation + {{ i * workgroup_size }}u < count) {
        store_key(step, moved{{ i }}, to{{ i }});
    }
{% endfor %}
{% if payload != "none" %}
    workgroupBarrier();
{% for i in range(items) %}
    if (at{{ i }} < end) {
        atomicStore(&room[place{{ i }}], load_place(step, at{{ i }}, tile.row * params.row_length));
    }
{% endfor %}
    workgroupBarrier();
{% for i in range(items) %}
    if (invocation + {{ i * workgroup_size }}u < count) {
        store_place(step, atomicLoad(&room[from{{ i }}]), to{{ i }});
    }
{% endfor %}
{% endif %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
