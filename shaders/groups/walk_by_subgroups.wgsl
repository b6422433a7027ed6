{#- The main function of stages that combine sections, by subgroups: each workgroup walks along one section, with the
    carries of all labels in its memory. In a step, each lane takes one element. Lanes with elements of the same label
    are peers. They find each other by votes on the bits of the label. They scan their elements by links from each peer
    to an earlier one. The links get twice as long in each round (Hillis & Steele, "Data parallel algorithms", 1986).
    The subgroups of a workgroup take turns with the carries: in each step, the last lane of a label reads its carry and
    writes the next one. They do the rest of a step at the same time.
    Values: kernel.max_subgroups: the most subgroups of a workgroup, for any size that the compiler may choose. -#}
{% set starts = kernel.stores_results and spec.exclusive %}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_section, load_step, store_result with context %}
{% include "scan/item_exchange.wgsl" %}
{% include "shared/lanes.wgsl" %}

const CAPACITY = {{ kernel.capacity }}u;  // labels
const MAX_SUBGROUPS = {{ kernel.max_subgroups }}u;  // the most subgroups that a workgroup has
const NO_PEER = 0x100u;  // a link to itself has this bit

// The carry of each label{{ ", and if it is there" if kernel.marked }}.
var<workgroup> carries: array<{{ text.shared_item }}, CAPACITY>;
{% if kernel.marked %}
var<workgroup> is_known: array<u32, CAPACITY>;
{% endif %}
{% if kernel.max_subgroups > 1 %}
var<workgroup> registered: atomic<u32>;  // the number of subgroups
{% endif %}

// Return the highest of these lanes, or `none` if there are none.
fn highest_lane(lanes: vec4<u32>, none: u32) -> u32 {
    var lane = select(none, firstLeadingBit(lanes.x), lanes.x != 0u);
    lane = select(lane, 32u + firstLeadingBit(lanes.y), lanes.y != 0u);
    lane = select(lane, 64u + firstLeadingBit(lanes.z), lanes.z != 0u);
    return select(lane, 96u + firstLeadingBit(lanes.w), lanes.w != 0u);
}

// Combine an element with the earlier ones of its label, and return what is stored for it.
fn combine_step(row: u32, label: u32, own: Item, is_there: bool, lane: u32, below: vec4<u32>, subgroup: u32) -> Item {
    var peers = subgroupBallot(is_there);
{% for bit in range(kernel.label_bits) %}
    let votes{{ bit }} = subgroupBallot((label & {{ 2 ** bit }}u) != 0u);
    peers &= select(~votes{{ bit }}, votes{{ bit }}, (label & {{ 2 ** bit }}u) != 0u);
{% endfor %}
    let earlier = highest_lane(peers & below, NO_PEER | lane);
    let last = highest_lane(peers, lane);
    var item = own;
    var link = earlier;
    for (var reach = 1u; reach < WORKGROUP_SIZE; reach *= 2u) {
        let is_linked = link < NO_PEER;
        if (!subgroupAny(is_linked)) {
            break;
        }
        let other = link & (NO_PEER - 1u);
        item = pick(is_linked, join(item_at(item, other), item), item);
        link = subgroupShuffle(link, other);
    }
    // The last of the peers reads the carry and writes the next one.
    let own_round = select(MAX_SUBGROUPS, subgroup, is_there && last == lane);
    var carry = own;
{% if kernel.marked %}
    var known = false;
{% endif %}
{# No loop: wgpu counts the iterations of loops, which takes as long as a round. #}
{% for now in range(kernel.max_subgroups) %}
    if (own_round == {{ now }}u) {
        carry = {{ text.from_shared("carries[label]") }};
{% if kernel.marked %}
        known = is_known[label] != 0u;
        is_known[label] = 1u;
        let next{{ now }} = pick(known, join(carry, item), item);
{% else %}
        let next{{ now }} = join(carry, item);
{% endif %}
        carries[label] = {{ text.to_shared("next%d" % now) }};
    }
    workgroupBarrier();
{% endfor %}
{% if kernel.stores_results %}
    carry = item_at(carry, last);
{% if kernel.marked %}
    known = subgroupShuffle(select(0u, 1u, known), last) != 0u;
    item = pick(known, join(carry, item), item);
{% else %}
    item = join(carry, item);
{% endif %}
{% endif %}
{% if starts %}
{% if kernel.marked %}
    let first = seed(row);
    carry = pick(known, carry, first);
{% endif %}
    return pick(earlier < NO_PEER, item_at(item, earlier & (NO_PEER - 1u)), carry);
{% else %}
    return item;
{% endif %}
}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_invocation_id) lane: u32") }} {
    let section = workgroup.x + workgroup.y * grid.x;
    if (section >= params.total) {
        return;
    }
    for (var label = invocation; label < params.groups; label += WORKGROUP_SIZE) {
{% if kernel.stores_results and not kernel.alone %}
        let carry = read_carry(section * params.groups + label);
        carries[label] = {{ text.to_shared("carry") }};
{% if kernel.marked %}
        is_known[label] = table[section * params.groups + label];
{% endif %}
{% elif kernel.marked %}
        is_known[label] = 0u;
{% else %}
        carries[label] = {{ text.to_shared("seed(section / params.sections)" if kernel.alone and spec.seeded else "neutral()") }};
{% endif %}
    }
    let below = lanes_below(lane);
    let members = subgroupBallot(true);
    let member = count_bits(members & below);
{% if kernel.max_subgroups > 1 %}
    // Subgroups number themselves, so it does not matter which invocations they consist of. All have as many lanes.
    atomicStore(&registered, 0u);
    workgroupBarrier();
    let joined = atomicAdd(&registered, select(0u, 1u, member == 0u));
    let subgroup = subgroupShuffle(joined, lowest_lane(members));
    let own_position = subgroup * count_bits(members) + member;
{% else %}
    let subgroup = 0u;
    let own_position = member;
{% endif %}
    workgroupBarrier();
{{ bounds_of_section().rstrip() }}
    for (var first = begin; first < end; first += STEPS * WORKGROUP_SIZE) {
{{ load_step("own_position") | indent(4) -}}
{% for i in range(kernel.tile.chunk) %}
        let is_there{{ i }} = (next{{ i }} < end){{ " & (label%d < params.groups)" % i if kernel.checked }};
        let result{{ i }} = combine_step(row, label{{ i }}, e{{ i }}, is_there{{ i }}, lane, below, subgroup);
{% endfor %}
{% if kernel.stores_results %}
{% for i in range(kernel.tile.chunk) %}
        if (next{{ i }} < end) {
{{ (store_result("at%d" % i, "result%d" % i) | indent(8)).rstrip() }}
        }
{% endfor %}
{% endif %}
    }
{% if kernel.checked %}
    report_labels();
{% endif %}
{% if not kernel.stores_results %}
    for (var label = invocation; label < params.groups; label += WORKGROUP_SIZE) {
{% if kernel.marked %}
        table[section * params.groups + label] = 0u;
        if (is_known[label] != 0u) {
            write_carry(section * params.groups + label, {{ text.from_shared("carries[label]") }});
        }
{% else %}
        write_carry(section * params.groups + label, {{ text.from_shared("carries[label]") }});
{% endif %}
    }
{% endif %}
}
