{#- Count the bins that divide_bins.wgsl stored. A workgroup counts a part's bins in its own memory. A part has the more
    workgroups, the more elements it has; they take its ranges in turn.
    in:  bin_offsets, ranges, totals: as divide_bins.wgsl stored them
    out: counts, cleared before
    Values: workgroup_size; lanes: invocations that take a range together, at least; at_once:
        words that each of them loads at a time; parts; part_bins; tile: elements of a tile. -#}
struct Call {
    tiles: u32,
    bins: u32,
    unit: u32,  // elements that are worth a further workgroup for their part
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const LANES = {{ lanes }}u;
const AT_ONCE = {{ at_once }}u;
const PARTS = {{ parts }}u;
const PART_BINS = {{ part_bins }}u;
const TILE = {{ tile }}u;
const NO_BIN = 0xffffffffu;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> bin_offsets: array<u32>;
@group(0) @binding(2) var<storage, read> ranges: array<u32>;
@group(0) @binding(3) var<storage, read> totals: array<u32>;
@group(0) @binding(4) var<storage, read_write> counts: array<atomic<u32>>;

// The share of a workgroup.
struct Share {
    part: u32,
    number: u32,  // of the workgroup, among the workgroups of its part
    workgroups: u32,  // of the part; 0 if the workgroup has no part
}

// The elements of a part in a tile.
struct TileRange {
    tile: u32,
    begin: u32,
    end: u32,
}

var<workgroup> share: Share;
var<workgroup> list: array<TileRange, WORKGROUP_SIZE>;
var<workgroup> listed: atomic<u32>;
var<workgroup> listed_elements: atomic<u32>;
var<workgroup> part_workgroups: array<u32, PARTS>;
var<workgroup> counters: array<atomic<u32>, PART_BINS>;

fn add(bin: u32, run: u32, invocation: u32) {
    if (bin != NO_BIN) {
        atomicAdd(&counters[bin], run);
    }
}

{% include "counting/runs.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let index = workgroup.x + workgroup.y * grid.x;
    for (var i = invocation; i < PART_BINS; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
    }
    for (var part = invocation; part < PARTS; part += WORKGROUP_SIZE) {
        let total = totals[part];
        part_workgroups[part] = select(0u, 1u + total / call.unit, total > 0u);
    }
    if (invocation == 0u) {
        share = Share();
        atomicStore(&listed, 0u);
        atomicStore(&listed_elements, 0u);
    }
    workgroupBarrier();
    for (var part = invocation; part < PARTS; part += WORKGROUP_SIZE) {
        var before = 0u;
        for (var i = 0u; i < part; i++) {
            before += part_workgroups[i];
        }
        if (index >= before && index - before < part_workgroups[part]) {
            share = Share(part, index - before, part_workgroups[part]);
        }
    }
    let own = workgroupUniformLoad(&share);
    if (own.workgroups == 0u) {
        return;
    }
    // List a range for each invocation, without empty ones, and go through the list.
    let step = own.workgroups * WORKGROUP_SIZE;
    for (var begin = own.number; begin < call.tiles; begin += step) {
        let tile = begin + invocation * own.workgroups;
        if (tile < call.tiles) {
            let packed_range = ranges[tile * PARTS + own.part];
            let elements = (packed_range >> 16u) - (packed_range & 0xffffu);
            if (elements > 0u) {
                list[atomicAdd(&listed, 1u)] = TileRange(tile, packed_range & 0xffffu, packed_range >> 16u);
                atomicAdd(&listed_elements, elements);
            }
        }
        workgroupBarrier();
        let range_count = atomicLoad(&listed);
        // As many invocations take a range together as a range has loads, about.
        let wanted = atomicLoad(&listed_elements) / (max(range_count, 1u) * 2u * AT_ONCE);
        let lanes = min(max(1u << (31u - countLeadingZeros(max(wanted, 1u))), LANES), WORKGROUP_SIZE);
        let lane = invocation % lanes;
        for (var i = invocation / lanes; i < range_count; i += WORKGROUP_SIZE / lanes) {
            let range = list[i];
            for (var at = range.begin / 2u + lane; 2u * at < range.end; at += AT_ONCE * lanes) {
{% for i in range(at_once) %}
                let at{{ i }} = at + {{ i }}u * lanes;
                let word{{ i }} = bin_offsets[range.tile * (TILE / 2u) + min(at{{ i }}, TILE / 2u - 1u)];
{% endfor %}
{% for i in range(at_once) %}
                if (2u * at{{ i }} >= range.begin && 2u * at{{ i }} < range.end) {
                    count(word{{ i }} & 0xffffu, invocation);
                }
                if (2u * at{{ i }} + 1u < range.end) {
                    count(word{{ i }} >> 16u, invocation);
                }
{% endfor %}
            }
        }
        workgroupBarrier();
        if (invocation == 0u) {
            atomicStore(&listed, 0u);
            atomicStore(&listed_elements, 0u);
        }
        workgroupBarrier();
    }
    add(bin, run, invocation);
    workgroupBarrier();
    let first = own.part * PART_BINS;
    for (var i = invocation; i < min(PART_BINS, call.bins - first); i += WORKGROUP_SIZE) {
        let sum = atomicLoad(&counters[i]);
        if (sum > 0u) {
            atomicAdd(&counts[first + i], sum);
        }
    }
}
