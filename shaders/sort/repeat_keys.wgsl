{#- Write each key as often as it is there: the last stage of a counting sort of keys of 8 bits (Seward 1954). Each
    invocation writes words of UNITS keys, and searches for the first of them among the positions where keys begin.
    in:  plan: bases: where the keys with each value begin, from sort/scan_histograms.wgsl
    out: keys
    Values: scalar; descending; digits: 1; radix_bits: 8; workgroup_size; words: that an invocation writes. -#}
{% include "sort/params.wgsl" %}
{% include "sort/keys.wgsl" %}

const WORDS = {{ words }}u;  // that an invocation writes
const UNITS = 4u;  // keys in a word
const KEYS = WORDS * UNITS * WORKGROUP_SIZE;  // that a workgroup writes

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> plan: Plan;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;

// Where keys begin in the row of the workgroup's first key, and in the next row.
var<workgroup> bases: array<u32, 2u * RADIX>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let begin = (workgroup.x + workgroup.y * grid.x) * KEYS;
    if (begin >= params.length) {
        return;
    }
    let first_row = begin / params.row_length;
    for (var i = invocation; i < 2u * RADIX; i += WORKGROUP_SIZE) {
        let is_there = (first_row + i / RADIX) * params.row_length < params.length;
        bases[i] = select(params.length, plan.bases[select(0u, first_row * RADIX + i, is_there)], is_there);
    }
    workgroupBarrier();
    let second_row = (first_row + 1u) * params.row_length;
    for (var i = 0u; i < WORDS; i++) {
        let position = begin + (i * WORKGROUP_SIZE + invocation) * UNITS;
        if (position >= params.length) {
            return;
        }
        // The greatest key that begins here or earlier. In the last row there may be no key that begins later.
        let end = select(2u * RADIX, RADIX, position < second_row);
        var run = end - RADIX;
{% for bit in range(radix_bits - 1, -1, -1) %}
        run += select(0u, {{ 2 ** bit }}u, bases[run + {{ 2 ** bit }}u] <= position);
{% endfor %}
        var bits = 0u;
        for (var unit = 0u; unit < UNITS; unit++) {
            while (run + 1u < {{ 2 * 2 ** radix_bits }}u && bases[run + 1u] <= position + unit) {
                run++;
            }
            bits |= order_of(run % RADIX) << (8u * unit);
        }
        keys[position / UNITS] = bits;
    }
}
