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

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> steps: array<Step, DIGITS>;
@group(0) @binding(2) var<storage, read> input: array<Key>;
@group(0) @binding(3) var<storage, read> keys: array<Key>;
@group(0) @binding(4) var<storage, read> temporary: array<Key>;
@group(0) @binding(5) var<storage, read_write> counts: array<u32>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if subgroups %}
    @builtin(subgroup_invocation_id) lane: u32,
{% endif %}
) {
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= call.tiles) {
        return;
    }
    let tile = tile_at(index);
    _ = count_digits(tile, steps[call.step], invocation{{ ", lane" if subgroups }});
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var count = 0u;
        for (var group = 0u; group < GROUPS; group++) {
            count += {{ "atomicLoad(&counters[digit * GROUPS + group])" if subgroups else "counters[digit * GROUPS + group]" }};
        }
        counts[(tile.row * RADIX + digit) * call.tiles_per_row + tile.number] = count;
    }
}
