{#- Count labels, or count numbers by the bins that they belong to. A workgroup counts in its own memory, with a few
    copies of each bin; if there are too many bins, in storage. An invocation keeps the length of a run of one bin, and
    adds it at once. A few elements of other bins do not end a run. So it does not matter how many elements share a bin.
    in:  values; edges: see bins.wgsl
    out: counts, cleared before; validation_flag: see bins.wgsl
    Values: as in bins.wgsl; copies: the copies of each bin in workgroup memory; slots: the counters there, or 0 if
        there are too many bins. -#}
{% from "shared/packed_keys.wgsl" import key_in_vector with context %}
{% include "counting/bins.wgsl" %}
@group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;

{% if slots %}
var<workgroup> counters: array<atomic<u32>, {{ slots }}>;

{% endif %}
fn add(bin: u32, run: u32, invocation: u32) {
    if (bin != NO_BIN) {
{% if slots %}
        atomicAdd(&counters[bin * {{ copies }}u + invocation % {{ copies }}u], run);
{% else %}
        atomicAdd(&counts[bin], run);
{% endif %}
    }
}

{% include "counting/runs.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
{% if slots %}
    for (var i = invocation; i < call.bins * {{ copies }}u; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
    }
{% endif %}
    prepare_bins(invocation);
    workgroupBarrier();
    read_ends();
    let vectors = (call.length + PER_VECTOR - 1u) / PER_VECTOR;
    let begin = (workgroup.x + workgroup.y * grid.x) * call.share;
    let end = min(begin + call.share, vectors);
    for (var at = begin + invocation; at < end; at += WORKGROUP_SIZE) {
        let vector = values[at];
        for (var i = 0u; i < PER_VECTOR; i++) {
            if (at * PER_VECTOR + i < call.length) {
                count(bin_of({{ key_in_vector("vector", "i") }}), invocation);
            }
        }
    }
    add(bin, run, invocation);
    keep_largest();
    workgroupBarrier();
    report_largest(invocation);
{% if slots %}
    for (var i = invocation; i < call.bins; i += WORKGROUP_SIZE) {
        var sum = 0u;
        for (var copy = 0u; copy < {{ copies }}u; copy++) {
            sum += atomicLoad(&counters[i * {{ copies }}u + copy]);
        }
        if (sum > 0u) {
            atomicAdd(&counts[i], sum);
        }
    }
{% endif %}
}
