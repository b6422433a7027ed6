{#- Find the bits in which the keys of a row differ, and whether rows are in order already. A digit without such a bit
    needs no step.
    in:  input: the keys
    out: differences: for each of two words of a key, the bits that differ between any key and the first key of its row;
         then 1 if a key comes before its predecessor
    Values: scalar; unit; descending; workgroup_size; keys_per_invocation: up to 8, or a multiple of 8. -#}
struct Call {
    length: u32,  // of all rows together
    row_length: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const KEYS = {{ keys_per_invocation }}u;  // that an invocation reads

{% include "sort/given_keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> input: array<Given>;
@group(0) @binding(2) var<storage, read_write> differences: array<atomic<u32>, 3>;

var<workgroup> own_differences: array<atomic<u32>, 3>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let begin = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE * KEYS + invocation;
    if (invocation < 3u) {
        atomicStore(&own_differences[invocation], 0u);  // some drivers do not clear workgroup memory (lavapipe)
    }
    workgroupBarrier();
    var bits = Key();
    var falls = false;
    // Several loads are under way at a time.
{% set loads = [keys_per_invocation, 8] | min %}
    for (var i = 0u; i < KEYS; i += {{ loads }}u) {
{% for k in range(loads) %}
        let at{{ k }} = min(begin + (i + {{ k }}u) * WORKGROUP_SIZE, call.length - 1u);
        let position{{ k }} = at{{ k }} % call.row_length;
        let key{{ k }} = key_at(at{{ k }});
        let first{{ k }} = key_at(at{{ k }} - position{{ k }});
        let previous{{ k }} = key_at(at{{ k }} - min(position{{ k }}, 1u));
{% endfor %}
{% for k in range(loads) %}
        let order{{ k }} = order_of(key{{ k }});
        bits |= order{{ k }} ^ order_of(first{{ k }});
        falls = falls || precedes(order{{ k }}, order_of(previous{{ k }}));
{% endfor %}
    }
    atomicOr(&own_differences[2], u32(falls));
{% for word in range(2 if scalar.bits == 64 else 1) %}
    atomicOr(&own_differences[{{ word }}], bits{{ "[%d]" % word if scalar.bits == 64 }});
{% endfor %}
    workgroupBarrier();
    if (invocation < 3u) {
        atomicOr(&differences[invocation], atomicLoad(&own_differences[invocation]));
    }
}
