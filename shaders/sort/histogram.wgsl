{#- Count, in one pass over the keys, the values of all digits in each row (Adinets & Merrill, "Onesweep", 2022). Find
    the bits in which keys differ, and whether rows are in order, as sort/differences.wgsl does.
    in:  input: the keys
    out: differences, as in sort/differences.wgsl; counts: (rows, digits, digit values)
    Values: scalar; unit; descending; digits; radix_bits; workgroup_size; tiles_per_workgroup; copies: of the
        counters. -#}
{% include "sort/params.wgsl" %}
{% include "sort/given_keys.wgsl" %}

const TILES_PER_WORKGROUP = {{ tiles_per_workgroup }}u;  // tiles of a workgroup
const COPIES = {{ copies }}u;  // of the counters, so that fewer invocations share one

struct Findings {
    differences: array<atomic<u32>, 4>,
    counts: array<atomic<u32>>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<Given>;
@group(0) @binding(2) var<storage, read_write> findings: Findings;

var<workgroup> counters: array<atomic<u32>, {{ copies * digits * 2 ** radix_bits }}>;
var<workgroup> differences: array<atomic<u32>, 3>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let index = workgroup.x + workgroup.y * grid.x;
    let workgroups_per_row = (params.tiles_per_row + TILES_PER_WORKGROUP - 1u) / TILES_PER_WORKGROUP;
    let row = index / workgroups_per_row;
    if (row >= params.tiles / params.tiles_per_row) {
        return;
    }
    for (var i = invocation; i < COPIES * DIGITS * RADIX; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);  // some drivers do not clear workgroup memory (lavapipe)
    }
    if (invocation == 0u) {
        atomicStore(&differences[0], 0u);
        atomicStore(&differences[1], 0u);
        atomicStore(&differences[2], 0u);
    }
    workgroupBarrier();
    let row_begin = row * params.row_length;
    let begin = index % workgroups_per_row * TILES_PER_WORKGROUP * params.tile_size;
    let end = min(begin + TILES_PER_WORKGROUP * params.tile_size, params.row_length);
    let copy = invocation % COPIES * (DIGITS * RADIX);
    let first = order_of(key_at(row_begin));
    var bits = Key();
    var falls = false;
    // Several loads are under way at a time.
{% set loads = 8 %}
    for (var position = begin + invocation; position < end; position += {{ loads }}u * WORKGROUP_SIZE) {
{% for i in range(loads) %}
        let at{{ i }} = min(position + {{ i }}u * WORKGROUP_SIZE, end - 1u);
        let key{{ i }} = key_at(row_begin + at{{ i }});
        let previous{{ i }} = key_at(row_begin + max(at{{ i }}, 1u) - 1u);
{% endfor %}
{% for i in range(loads) %}
        let order{{ i }} = order_of(key{{ i }});
        let is_there{{ i }} = select(0u, 1u, position + {{ i }}u * WORKGROUP_SIZE < end);
        bits |= order{{ i }} ^ first;
        falls = falls || precedes(order{{ i }}, order_of(previous{{ i }}));
{% for digit in range(digits) %}
{% set bit = digit * radix_bits %}
        atomicAdd(&counters[copy + {{ digit * 2 ** radix_bits }}u + ((order{{ i }}{{ (".y" if bit >= 32 else ".x") if scalar.bits == 64 }} >> {{ bit % 32 }}u) & (RADIX - 1u))], is_there{{ i }});
{% endfor %}
{% endfor %}
    }
    atomicOr(&differences[2], u32(falls));
{% for word in range(2 if scalar.bits == 64 else 1) %}
    atomicOr(&differences[{{ word }}], bits{{ "[%d]" % word if scalar.bits == 64 }});
{% endfor %}
    workgroupBarrier();
    if (invocation < 3u) {
        atomicOr(&findings.differences[invocation], atomicLoad(&differences[invocation]));
    }
    for (var i = invocation; i < DIGITS * RADIX; i += WORKGROUP_SIZE) {
        var count = 0u;
        for (var number = 0u; number < COPIES; number++) {
            count += atomicLoad(&counters[number * (DIGITS * RADIX) + i]);
        }
        if (count > 0u) {
            atomicAdd(&findings.counts[row * (DIGITS * RADIX) + i], count);
        }
    }
}
