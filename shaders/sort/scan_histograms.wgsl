{#- Turn the counts of the values of a digit into the positions where the elements with these values begin, by a scan in
    workgroup memory (Hillis & Steele 1986). There is a workgroup for each row and digit.
    in:  findings: the counts that sort/histogram.wgsl leaves
    out: plan: bases: (rows, digits, digit values), positions in all rows together
    Values: digits; radix_bits; workgroup_size. -#}
{% include "sort/params.wgsl" %}

struct Findings {
    differences: array<u32, 4>,
    counts: array<u32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> findings: Findings;
@group(0) @binding(2) var<storage, read_write> plan: Plan;

var<workgroup> sums: array<u32, RADIX>;

{% from "shared/main.wgsl" import main %}
{{ main(size="RADIX", invocation="value") }} {
    let index = workgroup.x + workgroup.y * grid.x;
    let row = index / DIGITS;
    if (row >= params.tiles / params.tiles_per_row) {
        return;
    }
    let count = findings.counts[index * RADIX + value];
    var sum = count;
    for (var distance = 1u; distance < RADIX; distance *= 2u) {
        sums[value] = sum;
        workgroupBarrier();
        sum += select(0u, sums[max(value, distance) - distance], value >= distance);
        workgroupBarrier();
    }
    plan.bases[index * RADIX + value] = row * params.row_length + sum - count;
}
