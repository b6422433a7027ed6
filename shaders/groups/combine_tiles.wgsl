{#- Scan the elements of each label of each section, for any number of labels. A workgroup walks along its section tile
    by tile. It sorts the labels of a tile with the positions of their elements, by a radix sort in its memory. Then
    elements with one label are neighbours: a run. A run goes on from its label's carry in the table, and leaves the
    next one.
    in:  the sources, the labels
    out: the table: for each section and label, the combination of its elements; locals: the result of each element, as
         if its section were the whole row
    Values: kernel.tile.chunk: the elements of an invocation; kernel.max_subgroups: the most subgroups of a workgroup,
        for any size that the compiler may choose. -#}
{% set items = kernel.tile.chunk %}
{% set groups = kernel.max_subgroups %}
{% set bits = kernel.digit_bits %}
{% set radix = 2 ** bits %}
{% set position_bits = (kernel.tile.tile_size - 1).bit_length() %}
{% set slots = kernel.tile.tile_size + kernel.tile.workgroup_size %}
{% include "groups/table.wgsl" %}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_section, load_elements with context %}
{% include "groups/locals.wgsl" %}
{% include "scan/item_exchange.wgsl" %}
{% include "shared/lanes.wgsl" %}

const ITEMS = {{ items }}u;
const TILE = ITEMS * WORKGROUP_SIZE;
const MAX_DIGIT_BITS = {{ bits }}u;
const RADIX = {{ radix }}u;
const GROUPS = {{ groups }}u;
const PARKED = GROUPS * RADIX;
const POSITION_BITS = {{ position_bits }}u;
const NO_LABEL = {{ 2 ** (32 - position_bits) - 1 }}u;  // no label is greater

// First: the counters of the subgroups, one for each digit, and a word for lanes that count nothing. Then: the labels
// of the tile in order, with the positions of their elements in the tile. Then, word by word, the elements and the
// results of the tile, in the order of the array. With less workgroup memory more workgroups run at a time.
var<workgroup> scratch: array<atomic<u32>, {{ [groups * radix + 1, slots] | max }}>;
var<workgroup> totals: array<u32, GROUPS>;  // of the digits of each subgroup
// The scan of each subgroup's elements, from its last head on.
var<workgroup> ends: array<{{ text.shared_item }}, GROUPS>;
var<workgroup> cuts: array<u32, GROUPS>;  // 1 if it has a head
var<workgroup> registered: atomic<u32>;  // the number of subgroups

// Return which of these lanes have the same digit of `bits` bits.
fn peers_of(digit: u32, bits: u32, lanes: vec4<u32>) -> vec4<u32> {
    var peers = lanes;
{% for bit in range(bits) %}
{% if bit > 1 %}
    if (bits > {{ bit }}u) {
{% endif %}
    let votes{{ bit }} = subgroupBallot((digit & {{ 2 ** bit }}u) != 0u);
    peers &= select(~votes{{ bit }}, votes{{ bit }}, (digit & {{ 2 ** bit }}u) != 0u);
{% endfor %}
    {{ "}" * (bits - 2) }}
    return peers;
}

// Return the index in `scratch` of a position in the tile's order. After the positions of each invocation one word is
// free. So neighbours use different banks of workgroup memory.
fn slot_of(position: u32) -> u32 {
    return position + position / ITEMS;
}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_invocation_id) lane: u32") }} {
    let section = workgroup.x + workgroup.y * grid.x;
    if (section >= params.total) {
        return;
    }
{{ bounds_of_section() -}}
{% if kernel.partitioned %}
    let lowest_label = (label_at(row, begin) >> params.bucket_bits) << params.bucket_bits;
    let labels_here = (((label_at(row, end - 1u) >> params.bucket_bits) + 1u) << params.bucket_bits) - lowest_label;
    let carries = carry_index(section, lowest_label);
{% else %}
    let labels_here = params.groups;
    let carries = section * labels_here;
{% endif %}
    for (var label = invocation; label < labels_here; label += WORKGROUP_SIZE) {
        write_carry(carries + label, neutral());
    }
{% include "sort/number_subgroups.wgsl" %}
    let slot = group * lanes + member;
    let own = group * ITEMS * lanes + member;
    // Digits are as short as the number of steps allows.
    let label_bits = max(1u, 32u - countLeadingZeros(labels_here - 1u));
    let steps = (label_bits + MAX_DIGIT_BITS - 1u) / MAX_DIGIT_BITS;
    let digit_bits = (label_bits + steps - 1u) / steps;
    let digits = 1u << digit_bits;
    for (var first = begin; first < end; first += TILE) {
        let count = min(end - first, TILE);
{% for i in range(items) %}
        let own_position{{ i }} = own + {{ i }}u * lanes;
        let number{{ i }} = min(first + own_position{{ i }}, end - 1u);
{% endfor %}
{{ load_elements() | indent(4) -}}
{% for i in range(items) %}
        var key{{ i }} = (select(NO_LABEL, label{{ i }}{{ " - lowest_label" if kernel.partitioned }}, own_position{{ i }} < count) << POSITION_BITS) | own_position{{ i }};
{% endfor %}
        var shift = POSITION_BITS;
        loop {
            workgroupBarrier();
            for (var i = invocation; i < GROUPS * digits; i += WORKGROUP_SIZE) {
                atomicStore(&scratch[i], 0u);
            }
            workgroupBarrier();
            // Rank each key among the keys of its subgroup with the same digit. The last lane with the digit counts for
            // all of them. A subgroup votes between two such counts, so its lanes see each other's counts in order.
{% for i in range(items) %}
            let digit{{ i }} = extractBits(key{{ i }}, shift, min(digit_bits, 32u - shift));
            let counter{{ i }} = group * digits + digit{{ i }};
            let peers{{ i }} = peers_of(digit{{ i }}, digit_bits, members);
            let counted{{ i }} = atomicLoad(&scratch[counter{{ i }}]) + count_bits(peers{{ i }} & below);
            let counts{{ i }} = all((peers{{ i }} & above) == vec4<u32>());
            atomicStore(&scratch[select(PARKED, counter{{ i }}, counts{{ i }})], counted{{ i }} + 1u);
            let rank{{ i }} = (counted{{ i }} << 16u) | counter{{ i }};  // in one register
{% endfor %}
            workgroupBarrier();
            // Scan the counts over subgroups and digits. Each invocation has one digit at most.
            let digit = min(slot, digits - 1u);
{% for other in range(groups) %}
            let count{{ other }} = select(0u, atomicLoad(&scratch[{{ other }}u * digits + digit]), slot < digits);
{% endfor %}
            let sum = {% for other in range(groups) %}count{{ other }}{{ " + " if not loop.last }}{% endfor %};
            let up_to = subgroupInclusiveAdd(sum);
            if (member == lanes - 1u) {
                totals[group] = up_to;
            }
            workgroupBarrier();
            var next = up_to - sum;
            for (var i = 0u; i < group; i++) {
                next += totals[i];
            }
            if (slot < digits) {
{% for other in range(groups) %}
                atomicStore(&scratch[{{ other }}u * digits + digit], next);
                next += count{{ other }};
{% endfor %}
            }
            workgroupBarrier();
{% for i in range(items) %}
            let target{{ i }} = atomicLoad(&scratch[rank{{ i }} & 0xffffu]) + (rank{{ i }} >> 16u);
{% endfor %}
            workgroupBarrier();
{% for i in range(items) %}
            atomicStore(&scratch[slot_of(target{{ i }})], key{{ i }});
{% endfor %}
            workgroupBarrier();
            shift += digit_bits;
            if (shift >= POSITION_BITS + label_bits) {
                break;
            }
{% for i in range(items) %}
            key{{ i }} = atomicLoad(&scratch[slot_of(own_position{{ i }})]);
{% endfor %}
        }
        // Each invocation scans neighbours in the order of the labels.
        let lowest = slot * ITEMS;
        let key_before = atomicLoad(&scratch[slot_of(max(lowest, 1u) - 1u)]);
        let key_after = atomicLoad(&scratch[slot_of(min(lowest + ITEMS, TILE - 1u))]);
{% for i in range(items) %}
        let sorted{{ i }} = atomicLoad(&scratch[slot_of(lowest) + {{ i }}u]);
{% endfor %}
{% for i in range(items) %}
        let head{{ i }} = {{ "(lowest == 0u) | ((key_before >> POSITION_BITS) != (sorted0 >> POSITION_BITS))" if i == 0 else "(sorted%d >> POSITION_BITS) != (sorted%d >> POSITION_BITS)" % (i - 1, i) }};
        let carry_at{{ i }} = carries + min(sorted{{ i }} >> POSITION_BITS, labels_here - 1u);
        let carry{{ i }} = read_carry(carry_at{{ i }});
        let words{{ i }} = item_to_words(e{{ i }});
        var moved{{ i }}: Words;
{% endfor %}
{% for word in range(kernel.item_words) %}
        workgroupBarrier();
{% for i in range(items) %}
        atomicStore(&scratch[own_position{{ i }}], words{{ i }}[{{ word }}]);
{% endfor %}
        workgroupBarrier();
{% for i in range(items) %}
        moved{{ i }}[{{ word }}] = atomicLoad(&scratch[sorted{{ i }} & (TILE - 1u)]);
{% endfor %}
{% endfor %}
{% for i in range(items) %}
        let element{{ i }} = item_from_words(moved{{ i }});
{% endfor %}
        var led0 = head0;
        var run0 = pick(head0, join(carry0, element0), element0);
{% for i in range(1, items) %}
        let led{{ i }} = led{{ i - 1 }} | head{{ i }};
        var run{{ i }} = join(pick(head{{ i }}, carry{{ i }}, run{{ i - 1 }}), element{{ i }});
{% endfor %}
        // Then the lanes of a subgroup scan their last elements, and each invocation the ends of the subgroups.
        var total = run{{ items - 1 }};
        var cut = select(0u, 1u, led{{ items - 1 }});
        for (var reach = 1u; reach < lanes; reach *= 2u) {
            let other = item_up(total, reach);
            let other_cut = subgroupShuffleUp(cut, reach);
            let reaches = member >= reach;
            total = pick(reaches & (cut == 0u), join(other, total), total);
            cut |= select(0u, other_cut, reaches);
        }
        if (member == lanes - 1u) {
            ends[group] = {{ text.to_shared("total") }};
            cuts[group] = cut;
        }
        let left = item_up(total, 1u);
        let left_cut = subgroupShuffleUp(cut, 1u);
        workgroupBarrier();
        var before = {{ text.from_shared("ends[0]") }};
        for (var i = 1u; i < group; i++) {
            let end_of_group = {{ text.from_shared("ends[i]") }};
            before = pick(cuts[i] != 0u, end_of_group, join(before, end_of_group));
        }
        before = pick(member == 0u, before, pick((left_cut != 0u) | (group == 0u), left, join(before, left)));
{% for i in range(items) %}
        run{{ i }} = pick(led{{ i }}, run{{ i }}, join(before, run{{ i }}));
{% endfor %}
{% for i in range(items) %}
{% if spec.exclusive %}
        let stored{{ i }} = pick(head{{ i }}, carry{{ i }}, {{ "before" if i == 0 else "run%d" % (i - 1) }});
{% else %}
        let stored{{ i }} = run{{ i }};
{% endif %}
        let result{{ i }} = item_to_words(stored{{ i }});
{% set follower = "((sorted%d >> POSITION_BITS) != (key_after >> POSITION_BITS))" % i if i == items - 1 else "head%d" % (i + 1) %}
        if ((lowest + {{ i }}u < count) & ((lowest + {{ i + 1 }}u == count) | {{ follower }})) {
            write_carry(carry_at{{ i }}, run{{ i }});
        }
{% endfor %}
        // The next tile reads these carries.
        storageBarrier();
{% for word in range(kernel.item_words) %}
        workgroupBarrier();
{% for i in range(items) %}
        atomicStore(&scratch[sorted{{ i }} & (TILE - 1u)], result{{ i }}[{{ word }}]);
{% endfor %}
        workgroupBarrier();
{% for i in range(items) %}
        moved{{ i }}[{{ word }}] = atomicLoad(&scratch[own_position{{ i }}]);
{% endfor %}
{% endfor %}
{% for i in range(items) %}
        if (own_position{{ i }} < count) {
            store_local(at{{ i }}, moved{{ i }});
        }
{% endfor %}
    }
}
