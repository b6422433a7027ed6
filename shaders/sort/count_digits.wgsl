{#- Count, for each tile, the keys with each value of a digit: the first of the three dispatches of a step of a radix sort
    (Satish, Harris & Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009). The second one scans the
    counts.
    in:  input, keys, temporary: the keys in one of them; steps
    out: counts: rows of (digit values, tiles of a row)
    Values: those of sort/tile_counters.wgsl; enable_subgroups. -#}
{% if enable_subgroups %}
enable subgroups;
diagnostic(off, subgroup_uniformity);
{% endif %}
{% include "sort/tile_counters.wgsl" %}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> steps: array<Step, DIGITS>;
@group(0) @binding(2) var<storage, read> input: array<Key>;
@group(0) @binding(3) var<storage, read> keys: array<Key>;
@group(0) @binding(4) var<storage, read> temporary: array<Key>;
@group(0) @binding(5) var<storage, read_write> counts: array<u32>;

{% if subgroups %}
{% set loads = 8 %}
// Each group of neighbouring invocations has its counters, one for each digit.
var<workgroup> counters: array<atomic<u32>, {{ groups * 2 ** radix_bits }}>;
{% endif %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= params.tiles) {
        return;
    }
    let tile = tile_at(index);
{% if subgroups %}
    for (var i = invocation; i < GROUPS * RADIX; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
    }
    workgroupBarrier();
    let step = steps[params.step];
    let own = invocation * GROUPS / WORKGROUP_SIZE * RADIX;
    // Several loads are under way at a time.
    for (var at = tile.begin + invocation; at < tile.end; at += {{ loads }}u * WORKGROUP_SIZE) {
{% for i in range(loads) %}
        let key{{ i }} = load_key(step.source, min(at + {{ i }}u * WORKGROUP_SIZE, tile.end - 1u));
{% endfor %}
{% for i in range(loads) %}
        let is_there{{ i }} = select(0u, 1u, at + {{ i }}u * WORKGROUP_SIZE < tile.end);
        atomicAdd(&counters[own + digit_of(key{{ i }}, step.mask)], is_there{{ i }});
{% endfor %}
    }
    workgroupBarrier();
{% else %}
    _ = count_digits(tile, steps[params.step], invocation);
{% endif %}
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var count = 0u;
        for (var group = 0u; group < GROUPS; group++) {
            count += {{ "atomicLoad(&counters[group * RADIX + digit])" if subgroups else "counters[digit * GROUPS + group]" }};
        }
        counts[(tile.row * RADIX + digit) * params.tiles_per_row + tile.number] = count;
    }
}
