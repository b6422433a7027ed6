{#- The main function of sort/scatter_digits.wgsl with subgroups. The elements of a tile are kept in registers and
    ranked. Then they are put in order in workgroup memory, where elements with the same digit are neighbours, and
    stored. Positions behind the end of the tile have the greatest digit, so they come last.
    Values: the values of sort/scatter_digits.wgsl; items: the elements of an invocation; batches: the number of parts
        in which the ordered tile is stored. -#}
{% set key_words = 2 if scalar.bits == 64 else 1 %}
{% set items_per_batch = (items + batches - 1) // batches %}
{% set batch_items = items_per_batch * workgroup_size %}
{% set value_words = 2 if payload in ("pairs", "both") else 1 %}
{% set shared_words = [groups * 2 ** radix_bits + 1, batch_items * key_words, batch_items * value_words] | max %}
{% set moves = "before" if kernel else "moves" %}
{% set rounds = (2 ** radix_bits + workgroup_size - 1) // workgroup_size %}
// First: the counters of the groups, one for each digit, and a word for lanes that count nothing. Then: the keys of the
// ordered tile, and after them its payloads, one part of the tile in each batch. With less workgroup memory more
// workgroups run at a time.
var<workgroup> scratch: array<atomic<u32>, {{ shared_words }}>;
var<workgroup> registered: atomic<u32>;  // the number of subgroups
// Of the digits of each subgroup.
var<workgroup> totals: array<u32, {{ [2 ** radix_bits * groups // workgroup_size, 1] | max }}>;
// For each digit, the number to add to a position in the ordered tile to get the position in the row's result. A single
// pass has this number in `before`.
{% if not kernel %}
var<workgroup> moves: array<u32, RADIX>;
{% endif %}

const PARKED = GROUPS * RADIX;

{% include "shared/lanes.wgsl" %}

// Return which of these lanes have the digit.
fn peers_of(digit: u32, lanes: vec4<u32>) -> vec4<u32> {
    var peers = lanes;
{% for bit in range(radix_bits) %}
    let votes{{ bit }} = subgroupBallot((digit & {{ 2 ** bit }}u) != 0u);
    peers &= select(~votes{{ bit }}, votes{{ bit }}, (digit & {{ 2 ** bit }}u) != 0u);
{% endfor %}
    return peers;
}
{% macro load_items(name, array) %}
{% for i in range(items) %}
        {{ name }}{{ i }} = {{ array % ("min(first_at + %du * lanes, tile.end - 1u)" % i) }};
{% endfor %}
{% endmacro %}
{% macro put_in_order(name, batch, words) %}
{% for i in range(items) %}
{% set at = "position%d - %du" % (i, batch * batch_items) %}
    if ({{ at }} < {{ batch_items }}u) {
{% if words == 2 %}
        atomicStore(&scratch[{{ at }}], {{ name }}{{ i }}.x);
        atomicStore(&scratch[{{ at }} + {{ batch_items }}u], {{ name }}{{ i }}.y);
{% else %}
        atomicStore(&scratch[{{ at }}], {{ name }}{{ i }});
{% endif %}
    }
{% endfor %}
{% endmacro %}
{% macro ordered(position, batch, words) %}
{% set at = "%s - %du" % (position, batch * batch_items) %}
{{ "vec2<u32>(atomicLoad(&scratch[%s]), atomicLoad(&scratch[%s + %du]))" % (at, at, batch_items) if words == 2 else "atomicLoad(&scratch[%s])" % at }}
{%- endmacro %}
{% macro store_items(array, name, batch) %}
{% for i in range(batch * items_per_batch, [batch * items_per_batch + items_per_batch, items] | min) %}
        if (from{{ i }} < count) {
            {{ array }}[to{{ i }}] = {{ name }}{{ i }};
        }
{% endfor %}
{% endmacro %}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_invocation_id) lane: u32") }} {
{% include "sort/take_tile.wgsl" %}
    for (var i = invocation; i < GROUPS * RADIX; i += WORKGROUP_SIZE) {
        atomicStore(&scratch[i], 0u);
    }
{% include "sort/number_subgroups.wgsl" %}
{% if scheduler == "random" %}
    idle(LOADS, index, group, LONGEST_DELAY);
{% endif %}
    let slot = group * lanes + member;
    let count = tile.end - tile.begin;
    let first_at = tile.begin + group * {{ items }}u * lanes + member;
    // One branch for all loads, so that they are under way together.
{% for i in range(items) %}
    var key{{ i }}: Key;
{% endfor %}
    if (step.source == 0u) {
{{ load_items("key", "key_at(%s)").rstrip() }}
    } else if (step.source == 1u) {
{{ load_items("key", "keys[%s]").rstrip() }}
    } else {
{{ load_items("key", "temporary[%s]").rstrip() }}
    }
    // Rank each element among the elements of its group with the same digit. The last lane with the digit counts for
    // all of them. A subgroup votes between two such counts, so its lanes see each other's counts in order.
{% for i in range(items) %}
    let counter{{ i }} = group * RADIX + select(RADIX - 1u, digit_of(key{{ i }}, step.mask), first_at + {{ i }}u * lanes < tile.end);
    let peers{{ i }} = peers_of(counter{{ i }}, members);
    let counted{{ i }} = atomicLoad(&scratch[counter{{ i }}]) + count_bits(peers{{ i }} & below);
    let counts{{ i }} = all((peers{{ i }} & above) == vec4<u32>());
    atomicStore(&scratch[select(PARKED, counter{{ i }}, counts{{ i }})], counted{{ i }} + 1u);
    let rank{{ i }} = (counted{{ i }} << 16u) | counter{{ i }};  // in one register
{% endfor %}
{% if scheduler == "random" %}
    idle(POSTS, index, 0u, LONGEST_POST_DELAY);
{% endif %}
    workgroupBarrier();
    // Scan the counts over groups and digits. A subgroup has the digits of its lanes' slots.
{% for round in range(rounds) %}
    let digit{{ round }} = slot + {{ round * workgroup_size }}u;
    let is_digit{{ round }} = digit{{ round }} < RADIX;
{% for group in range(groups) %}
    let count{{ round }}_{{ group }} = select(0u, atomicLoad(&scratch[{{ group }}u * RADIX + min(digit{{ round }}, RADIX - 1u)]), is_digit{{ round }});
{% endfor %}
    let sum{{ round }} = {% for group in range(groups) %}count{{ round }}_{{ group }}{{ " + " if not loop.last }}{% endfor %};
    let elements{{ round }} = sum{{ round }} - select(0u, {{ items * workgroup_size }}u - count, digit{{ round }} == RADIX - 1u);
{% if kernel %}
    if (is_digit{{ round }}) {
        post_count(index, digit{{ round }}, elements{{ round }});
    }
{% endif %}
    let up_to{{ round }} = subgroupInclusiveAdd(sum{{ round }});
    if (is_digit{{ round }} && member == lanes - 1u) {
        totals[digit{{ round }} / lanes] = up_to{{ round }};
    }
{% endfor %}
    workgroupBarrier();
{% for round in range(rounds) %}
    var first{{ round }} = up_to{{ round }} - sum{{ round }};
    if (is_digit{{ round }}) {
        for (var i = 0u; i < digit{{ round }} / lanes; i++) {
            first{{ round }} += totals[i];
        }
        // Turn each counter into the position of its group's first element with the digit.
        var position = first{{ round }};
{% for group in range(groups) %}
        atomicStore(&scratch[{{ group }}u * RADIX + digit{{ round }}], position);
        position += count{{ round }}_{{ group }};
{% endfor %}
{% if not kernel %}
        {{ moves }}[digit{{ round }}] = offsets[(tile.row * RADIX + digit{{ round }}) * params.tiles_per_row + tile.number] - first{{ round }};
{% endif %}
    }
{% endfor %}
    workgroupBarrier();
{% if scheduler == "random" %}
    idle(STORES, index, group, LONGEST_DELAY);
{% endif %}
{% for i in range(items) %}
    let position{{ i }} = atomicLoad(&scratch[rank{{ i }} & 0xffffu]) + (rank{{ i }} >> 16u);
{% endfor %}
{% if keeps_destinations %}
{% for i in range(items) %}
    if (first_at + {{ i }}u * lanes < tile.end) {
        destinations[first_at + {{ i }}u * lanes] = moves[digit_of(key{{ i }}, step.mask)] + position{{ i }};
    }
{% endfor %}
{% endif %}
{% if payload != "none" %}
{% for i in range(items) %}
    var value{{ i }}: Payload;
{% endfor %}
    if (step.is_first == 1u) {
{{ load_items("value", "given_payload(%s, tile.row * params.row_length)").rstrip() }}
    } else if (step.source == 1u) {
{{ load_items("value", "kept_payload(%s)").rstrip() }}
    } else {
{{ load_items("value", "temporary_payloads[%s]").rstrip() }}
    }
{% endif %}
{% for batch in range(batches) %}
    workgroupBarrier();
{{ put_in_order("key", batch, key_words).rstrip() }}
    workgroupBarrier();
{% if kernel and batch == 0 %}
    // Other tiles had the time since `post_count` to post theirs.
    if (!learn_before(invocation, tile, step)) {
        return;
    }
{% for round in range(rounds) %}
    if (is_digit{{ round }}) {
        let earlier = before[digit{{ round }}];
        post_sum(index, tile, digit{{ round }}, earlier + elements{{ round }});
        {{ moves }}[digit{{ round }}] = base_of(tile.row, digit{{ round }}) + earlier - first{{ round }};
    }
{% endfor %}
    workgroupBarrier();
{% endif %}
{% for i in range(batch * items_per_batch, [batch * items_per_batch + items_per_batch, items] | min) %}
    let from{{ i }} = invocation + {{ i * workgroup_size }}u;
    let moved{{ i }} = {{ ordered("from%d" % i, batch, key_words) }};
    let to{{ i }} = {{ moves }}[digit_of(moved{{ i }}, step.mask)] + from{{ i }};
{% endfor %}
    if (step.destination == 2u) {
{{ store_items("temporary", "moved", batch).rstrip() }}
    } else{{ "" if with_keys else " if (step.is_last == 0u)" }} {
{{ store_items("keys", "moved", batch).rstrip() }}
    }
{% endfor %}
{% if payload != "none" %}
{% for batch in range(batches) %}
    workgroupBarrier();
{{ put_in_order("value", batch, value_words).rstrip() }}
    workgroupBarrier();
{% for i in range(batch * items_per_batch, [batch * items_per_batch + items_per_batch, items] | min) %}
    let taken{{ i }} = {{ ordered("from%d" % i, batch, value_words) }};
{% endfor %}
    if (step.destination == 2u) {
{{ store_items("temporary_payloads", "taken", batch).rstrip() }}
    } else {
{% for i in range(batch * items_per_batch, [batch * items_per_batch + items_per_batch, items] | min) %}
        if (from{{ i }} < count) {
            keep_payload(to{{ i }}, taken{{ i }});
        }
{% endfor %}
    }
{% endfor %}
{% endif %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
