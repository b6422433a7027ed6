{#- Divide bins among parts of neighbouring bins, and bring the elements of each tile in the order of their parts. Of
    each element only the offset of its bin in the part is stored, in 16 bits. count_parts.wgsl counts them.
    Counters have a copy for each lane of a subgroup, so that no two lanes of it add to one bank of workgroup memory. So
    it does not matter how many elements share a part.
    in:  values; edges: see bins.wgsl
    out: bin_offsets: two in a word, TILE for each tile; ranges: for each tile and part the beginning and, in the high
         half, the end of the part's elements in the tile; totals, cleared before: the elements of each part;
         validation_flag: see bins.wgsl
    Values: as in bins.wgsl; vectors: of an invocation; parts; part_bins: bins of a part; copies: of a part's
        counter. -#}
{% from "shared/packed_keys.wgsl" import key_in_vector with context %}
{% include "counting/bins.wgsl" %}
{% set per_vector = 128 // scalar.bits %}
{% set tile = workgroup_size * vectors * per_vector %}
{% set own_counters = (parts * copies + workgroup_size - 1) // workgroup_size %}
const TILE = {{ tile }}u;
const PARTS = {{ parts }}u;
const PART_BINS = {{ part_bins }}u;
const COPIES = {{ copies }}u;

@group(0) @binding(2) var<storage, read_write> bin_offsets: array<u32>;
@group(0) @binding(4) var<storage, read_write> ranges: array<u32>;
@group(0) @binding(5) var<storage, read_write> totals: array<atomic<u32>>;

var<workgroup> counters: array<atomic<u32>, {{ own_counters * workgroup_size }}>;  // for each part, COPIES of them
var<workgroup> sums: array<u32, {{ 2 * workgroup_size }}>;  // of the counters of each invocation, of two rounds
var<workgroup> staged: array<atomic<u32>, TILE / 2u>;

// Return where a word is staged. If a tile has elements of one part alone, the lanes of a subgroup store words that are
// this far apart; so they use different banks of workgroup memory.
fn bank_of(word: u32) -> u32 {
    return word ^ (word / max(TILE / COPIES / 2u, 32u) % 32u);
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let tile = workgroup.x + workgroup.y * grid.x;
    let vectors = (call.length + PER_VECTOR - 1u) / PER_VECTOR;
    if (tile * (TILE / PER_VECTOR) >= vectors) {
        return;
    }
{% for v in range(vectors) %}
    let at{{ v }} = tile * (TILE / PER_VECTOR) + {{ v }}u * WORKGROUP_SIZE + invocation;
    let vector{{ v }} = values[min(at{{ v }}, vectors - 1u)];
{% endfor %}
    for (var i = invocation; i < {{ own_counters * workgroup_size }}u; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
    }
    for (var i = invocation; i < TILE / 2u; i += WORKGROUP_SIZE) {
        atomicStore(&staged[i], 0u);
    }
    prepare_bins(invocation);
    workgroupBarrier();
    read_ends();
{% for v in range(vectors) %}
{% for i in range(per_vector) %}
    // The bin, and above it the number of elements that were counted before.
    var element{{ v }}_{{ i }} = NO_BIN;
    if (at{{ v }} * PER_VECTOR + {{ i }}u < call.length) {
        let bin = bin_of({{ key_in_vector("vector%d" % v, "%du" % i) }});
        if (bin != NO_BIN) {
            let before = atomicAdd(&counters[bin / PART_BINS * COPIES + invocation % COPIES], 1u);
            element{{ v }}_{{ i }} = (before << 22u) | bin;
        }
    }
{% endfor %}
{% endfor %}
    keep_largest();
    workgroupBarrier();
    report_largest(invocation);

    // Replace each counter by the sum of the counters before it.
{% for i in range(own_counters) %}
    let own{{ i }} = atomicLoad(&counters[invocation * {{ own_counters }}u + {{ i }}u]);
{% endfor %}
    let own = {% for i in range(own_counters) %}own{{ i }}{{ " + " if not loop.last }}{% endfor %};
    sums[invocation] = own;
    var first = 0u;
    for (var distance = 1u; distance < WORKGROUP_SIZE; distance *= 2u) {
        workgroupBarrier();
        let before = select(0u, sums[first + invocation - min(distance, invocation)], invocation >= distance);
        let sum = before + sums[first + invocation];
        first = WORKGROUP_SIZE - first;
        sums[first + invocation] = sum;
    }
    var before = sums[first + invocation] - own;
{% for i in range(own_counters) %}
    atomicStore(&counters[invocation * {{ own_counters }}u + {{ i }}u], before);
    before += own{{ i }};
{% endfor %}
    workgroupBarrier();
    let element_count = sums[first + WORKGROUP_SIZE - 1u];
    for (var part = invocation; part < PARTS; part += WORKGROUP_SIZE) {
        let begin = atomicLoad(&counters[part * COPIES]);
        let end = select(element_count, atomicLoad(&counters[min(part + 1u, PARTS - 1u) * COPIES]), part + 1u < PARTS);
        ranges[tile * PARTS + part] = (end << 16u) | begin;
        if (end > begin) {
            atomicAdd(&totals[part], end - begin);
        }
    }
{% for v in range(vectors) %}
{% for i in range(per_vector) %}
    if (element{{ v }}_{{ i }} != NO_BIN) {
        let bin = element{{ v }}_{{ i }} & 0x3fffffu;
        let to = atomicLoad(&counters[bin / PART_BINS * COPIES + invocation % COPIES]) + (element{{ v }}_{{ i }} >> 22u);
        atomicOr(&staged[bank_of(to / 2u)], (bin % PART_BINS) << (to % 2u * 16u));
    }
{% endfor %}
{% endfor %}
    workgroupBarrier();
    for (var i = invocation; i < (element_count + 1u) / 2u; i += WORKGROUP_SIZE) {
        bin_offsets[tile * (TILE / 2u) + i] = atomicLoad(&staged[bank_of(i)]);
    }
}
