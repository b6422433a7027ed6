{#- The main function of stages that combine stretches, by subgroups: each workgroup walks along one stretch, with the
    carries of all labels in its memory. In a step, each lane takes one element. Lanes whose elements have the same label
    are peers: they find each other by votes on the bits of the label, and scan their elements by links from each peer to
    the one before, which are twice as long each round (Hillis & Steele, "Data parallel algorithms", 1986).
    A workgroup has one subgroup, or several if the compiler chooses a smaller size; these take turns. -#}
{% set starts = kernel.stores_results and spec.exclusive %}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import load_elements, store_result with context %}
{#- Statements of step `i` of the workgroup's subgroup whose turn it is. -#}
{% macro in_turn(turn, statements) %}
{% if kernel.turns > 1 %}
        if (turn == {{ turn }}u) {
{{ statements | indent(4, first=true) -}}
        }
{% else %}
{{ statements -}}
{% endif %}
{% endmacro %}
{% macro read_carries(i, turn) %}
        let carry{{ i }}_{{ turn }} = {{ text.from_shared("carries[label%d]" % i) }};
        let known{{ i }}_{{ turn }} = is_known[label{{ i }}] != 0u;
        let whole{{ i }}_{{ turn }} = join(carry{{ i }}_{{ turn }}, item{{ i }});
        item{{ i }} = pick(known{{ i }}_{{ turn }}, whole{{ i }}_{{ turn }}, item{{ i }});
{% if starts %}
        let seed{{ i }}_{{ turn }} = seed(row);
        start{{ i }} = pick(known{{ i }}_{{ turn }}, carry{{ i }}_{{ turn }}, seed{{ i }}_{{ turn }});
{% endif %}
{% endmacro %}
{% macro write_carries(i) %}
        carries[slot{{ i }}] = {{ text.to_shared("item%d" % i) }};
        is_known[slot{{ i }}] = 1u;
{% endmacro %}
{% include "scan/item_exchange.wgsl" %}
{% include "groups/lanes.wgsl" %}

const CAPACITY = {{ kernel.capacity }}u;  // labels
const NO_PEER = 0x100u;  // a link to itself has this bit

// The carry of each label, and if it is there. The last place takes values that are not read.
var<workgroup> carries: array<{{ text.shared_item }}, {{ kernel.capacity + 1 }}>;
var<workgroup> is_known: array<u32, {{ kernel.capacity + 1 }}>;
{% if kernel.turns > 1 %}
var<workgroup> registered: atomic<u32>;  // the number of subgroups
{% endif %}

// Return the highest of these lanes, or `none` if there are none.
fn highest_lane(lanes: vec4<u32>, none: u32) -> u32 {
    var lane = select(none, firstLeadingBit(lanes.x), lanes.x != 0u);
    lane = select(lane, 32u + firstLeadingBit(lanes.y), lanes.y != 0u);
    lane = select(lane, 64u + firstLeadingBit(lanes.z), lanes.z != 0u);
    return select(lane, 96u + firstLeadingBit(lanes.w), lanes.w != 0u);
}

{% if kernel.turns > 1 %}
fn lowest_lane(lanes: vec4<u32>) -> u32 {
    var lane = 96u + firstTrailingBit(lanes.w);
    lane = select(lane, 64u + firstTrailingBit(lanes.z), lanes.z != 0u);
    lane = select(lane, 32u + firstTrailingBit(lanes.y), lanes.y != 0u);
    return select(lane, firstTrailingBit(lanes.x), lanes.x != 0u);
}
{% endif %}

// Return the lanes with elements of the same label.
fn peers_of(label: u32, is_there: bool) -> vec4<u32> {
    var peers = subgroupBallot(is_there);
{% for bit in range(kernel.label_bits) %}
    let votes{{ bit }} = subgroupBallot((label & {{ 2 ** bit }}u) != 0u);
    peers &= select(~votes{{ bit }}, votes{{ bit }}, (label & {{ 2 ** bit }}u) != 0u);
{% endfor %}
    return peers;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let stretch = workgroup.x + workgroup.y * grid.x;
    if (stretch >= params.total) {
        return;
    }
    for (var label = invocation; label < params.groups; label += WORKGROUP_SIZE) {
{% if kernel.stores_results %}
        let carry = read_carry(stretch * params.groups + label);
        carries[label] = {{ text.to_shared("carry") }};
        is_known[label] = table[stretch * params.groups + label];
{% else %}
        is_known[label] = 0u;
{% endif %}
    }
    let below = lanes_below(lane);
    let members = subgroupBallot(true);
    let member = count_bits(members & below);
{% if kernel.turns > 1 %}
    // Subgroups number themselves, so it does not matter which invocations they consist of. All have as many lanes.
    atomicStore(&registered, 0u);
    workgroupBarrier();
    let joined = atomicAdd(&registered, select(0u, 1u, member == 0u));
    let turn = subgroupShuffle(joined, lowest_lane(members));
    let own_place = turn * count_bits(members) + member;
{% else %}
    let turn = 0u;
    let own_place = member;
{% endif %}
    workgroupBarrier();
    let row = stretch / params.stretches;
    let begin = stretch % params.stretches * params.stretch;
    let end = min(begin + params.stretch, params.row_length);
    for (var first = begin; first < end; first += STEPS * WORKGROUP_SIZE) {
{% for i in range(kernel.tile.chunk) %}
        let next{{ i }} = first + {{ i }}u * WORKGROUP_SIZE + own_place;
        let number{{ i }} = min(next{{ i }}, end - 1u);
{% endfor %}
{{ load_elements() | indent(4) -}}
        // Link each element to the one before it among its peers. No step waits for another.
{% for i in range(kernel.tile.chunk) %}
        let peers{{ i }} = peers_of(label{{ i }}, next{{ i }} < end);
        let earlier{{ i }} = highest_lane(peers{{ i }} & below, NO_PEER | lane);
        let is_last{{ i }} = next{{ i }} < end && highest_lane(peers{{ i }}, lane) == lane;
        var item{{ i }} = e{{ i }};
        var link{{ i }} = earlier{{ i }};
{% endfor %}
        for (var reach = 1u; reach < WORKGROUP_SIZE; reach *= 2u) {
            var nearest = link0;
{% for i in range(1, kernel.tile.chunk) %}
            nearest = min(nearest, link{{ i }});
{% endfor %}
            if (!subgroupAny(nearest < NO_PEER)) {
                break;
            }
{% for i in range(kernel.tile.chunk) %}
            let other{{ i }} = link{{ i }} & (NO_PEER - 1u);
            let joined{{ i }} = join(item_at(item{{ i }}, other{{ i }}), item{{ i }});
            item{{ i }} = pick(link{{ i }} < NO_PEER, joined{{ i }}, item{{ i }});
            link{{ i }} = subgroupShuffle(link{{ i }}, other{{ i }});
{% endfor %}
        }
        // Join the carries, one step after the other.
{% for i in range(kernel.tile.chunk) %}
        let slot{{ i }} = select(CAPACITY, label{{ i }}, is_last{{ i }});
{% if starts %}
        var start{{ i }} = e{{ i }};
{% endif %}
{% for turn in range(kernel.turns) %}
{{ in_turn(turn, read_carries(i, turn)) -}}
{% if kernel.stores_results %}
        workgroupBarrier();  // all have read the carries
{% endif %}
{{ in_turn(turn, write_carries(i)) -}}
        workgroupBarrier();
{% endfor %}
{% if starts %}
        let result{{ i }} = pick(earlier{{ i }} < NO_PEER, item_at(item{{ i }}, earlier{{ i }} & (NO_PEER - 1u)), start{{ i }});
{% else %}
        let result{{ i }} = item{{ i }};
{% endif %}
{% endfor %}
{% if kernel.stores_results %}
{% for i in range(kernel.tile.chunk) %}
        if (next{{ i }} < end) {
{{ store_result("at%d" % i, "result%d" % i) | indent(8) -}}
        }
{% endfor %}
{% endif %}
    }
{% if not kernel.stores_results %}
    for (var label = invocation; label < params.groups; label += WORKGROUP_SIZE) {
        table[stretch * params.groups + label] = 0u;
        if (is_known[label] != 0u) {
            write_carry(stretch * params.groups + label, {{ text.from_shared("carries[label]") }});
        }
    }
{% endif %}
}
