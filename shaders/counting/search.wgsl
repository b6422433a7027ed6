{#- Find for each key the index where it belongs among sorted keys, by binary search. The last key of each block of the
    sorted ones stands in workgroup memory. A search there finds the block, and a search in storage the index in it.
    Each invocation takes several keys through the same steps, so that several loads are under way.
    in:  sorted: keys in order, NaN last; searched: keys in any order; length: the number of sorted keys, which may be
         fewer than the call says, if it is `counted`
    out: indices
    Values: scalar; workgroup_size; top: the most blocks; items: the keys that an invocation takes; right: True for the
        index after equal keys, False for the index before them; counted; own: True to search for the numbers from 0
        on. -#}
{% from "shared/packed_keys.wgsl" import key_at with context %}
{% set descending = False %}
struct Call {
    count: u32,  // keys that are searched
    length: u32,  // sorted keys, at most
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const ITEMS = {{ items }}u;
const TOP = {{ top }}u;

{% include "sort/keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> sorted: array<Key>;
@group(0) @binding(2) var<storage, read_write> indices: array<u32>;
{% if not own %}
@group(0) @binding(3) var<storage, read> searched: array<Key>;
{% endif %}
{% if counted %}
@group(0) @binding({{ 3 if own else 4 }}) var<storage, read> length: array<u32>;
{% endif %}

// The last key of each block.
var<workgroup> last: array<Key, TOP>;

// Return true if a sorted key, by its order, belongs before a key that is searched.
fn is_before(key: Key, wanted: Key) -> bool {
    return {{ "!precedes(wanted, key)" if right else "precedes(key, wanted)" }};
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let sorted_keys = {{ "min(length[0], call.length)" if counted else "call.length" }};
    let block = max(1u, (sorted_keys + TOP - 1u) / TOP);
    let blocks = (sorted_keys + block - 1u) / block;
    for (var i = invocation; i < blocks; i += WORKGROUP_SIZE) {
        last[i] = order_of({{ key_at("sorted", "min((i + 1u) * block, sorted_keys) - 1u") }});
    }
    workgroupBarrier();
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * ITEMS) + invocation;
    if (begin >= call.count) {
        return;
    }
{% for i in range(items) %}
    let at{{ i }} = min(begin + {{ i }}u * WORKGROUP_SIZE, call.count - 1u);
{% endfor %}
{% for i in range(items) %}
    let wanted{{ i }} = order_of({{ "at%d" % i if own else key_at("searched", "at%d" % i) }});
    var index{{ i }} = 0u;
{% endfor %}
    // Find the first block with a last key that does not belong before the wanted key.
    var left = blocks;
    for (; left > 1u; left -= left / 2u) {
        let half = left / 2u;
{% for i in range(items) %}
        index{{ i }} += select(0u, half, is_before(last[index{{ i }} + half - 1u], wanted{{ i }}));
{% endfor %}
    }
{% for i in range(items) %}
    index{{ i }} = (index{{ i }} + select(0u, 1u, blocks > 0u && is_before(last[index{{ i }}], wanted{{ i }}))) * block;
{% endfor %}
    // The last key of the block needs no look.
    for (left = block; left > 1u; left -= left / 2u) {
        let half = left / 2u;
{% for i in range(items) %}
        let next{{ i }} = index{{ i }} + half - 1u;
        let key{{ i }} = {{ key_at("sorted", "min(next%d, max(sorted_keys, 1u) - 1u)" % i) }};
{% endfor %}
{% for i in range(items) %}
        index{{ i }} += select(0u, half, next{{ i }} < sorted_keys && is_before(order_of(key{{ i }}), wanted{{ i }}));
{% endfor %}
    }
{% for i in range(items) %}
    if (begin + {{ i }}u * WORKGROUP_SIZE < call.count) {
        indices[at{{ i }}] = min(index{{ i }}, sorted_keys);
    }
{% endfor %}
}
