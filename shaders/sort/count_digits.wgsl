{#- Count, for each tile, the keys with each value of a digit: the first of the three dispatches of a step of a radix
    sort (Satish, Harris & Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009). The second one
    scans the counts.
    in:  input, keys, temporary: the keys in one of them; steps
    out: counts: rows of (digit values, tiles of a row)
    Values: the values of sort/tile_counters.wgsl; enable_subgroups; copies: of the counters, with subgroups. -#}
{% if enable_subgroups %}
enable subgroups;
diagnostic(off, subgroup_uniformity);
{% endif %}
{% include "sort/tile_counters.wgsl" %}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> steps: array<Step, DIGITS>;
@group(0) @binding(2) var<storage, read> input: array<Given>;
@group(0) @binding(3) var<storage, read> keys: array<Key>;
@group(0) @binding(4) var<storage, read> temporary: array<Key>;
@group(0) @binding(5) var<storage, read_write> counts: array<u32>;

{% if subgroups %}
{% set loads = 8 %}
const COPIES = {{ copies }}u;  // of the counters, so that fewer invocations share one
var<workgroup> counters: array<atomic<u32>, {{ copies * 2 ** radix_bits }}>;

{% macro load_keys(array) %}
{% for i in range(loads) %}
            key{{ i }} = {{ array % ("min(at + %du * WORKGROUP_SIZE, tile.end - 1u)" % i) }};
{% endfor %}
{% endmacro %}
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let index = workgroup.x + workgroup.y * grid.x;
    let step = steps[params.step];
    if (index >= params.tiles || step.is_needed == 0u) {
        return;
    }
    let tile = tile_at(index);
{% if subgroups %}
    for (var i = invocation; i < COPIES * RADIX; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
    }
    workgroupBarrier();
    let own = invocation * COPIES / WORKGROUP_SIZE * RADIX;
    // One branch for several loads, so that they are under way together.
    for (var at = tile.begin + invocation; at < tile.end; at += {{ loads }}u * WORKGROUP_SIZE) {
{% for i in range(loads) %}
        var key{{ i }}: Key;
{% endfor %}
        if (step.source == 0u) {
{{ load_keys("key_at(%s)").rstrip() }}
        } else if (step.source == 1u) {
{{ load_keys("keys[%s]").rstrip() }}
        } else {
{{ load_keys("temporary[%s]").rstrip() }}
        }
        if (at - invocation + {{ loads }}u * WORKGROUP_SIZE <= tile.end) {
{% for i in range(loads) %}
            atomicAdd(&counters[own + digit_of(key{{ i }}, step.mask)], 1u);
{% endfor %}
        } else {
{% for i in range(loads) %}
            let is_there{{ i }} = select(0u, 1u, at + {{ i }}u * WORKGROUP_SIZE < tile.end);
            atomicAdd(&counters[own + digit_of(key{{ i }}, step.mask)], is_there{{ i }});
{% endfor %}
        }
    }
    workgroupBarrier();
{% else %}
    _ = count_digits(tile, step, invocation);
{% endif %}
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var count = 0u;
{% if subgroups %}
        for (var number = 0u; number < COPIES; number++) {
            count += atomicLoad(&counters[number * RADIX + digit]);
        }
{% else %}
        for (var group = 0u; group < GROUPS; group++) {
            count += counters[digit * GROUPS + group];
        }
{% endif %}
        counts[(tile.row * RADIX + digit) * params.tiles_per_row + tile.number] = count;
    }
}
