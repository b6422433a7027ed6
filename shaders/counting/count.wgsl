{#- Count labels, or count numbers by the bins that they belong to. A workgroup counts in its own memory, with a few
    copies of each bin. If there are too many bins, it counts there only the bins that it meets first, and the other
    bins in storage. An invocation takes neighbours, and adds the length of a run of one bin at once. So it does not
    matter how many elements share a bin.
    in:  values; edges: where each bin begins, and the greatest number of the last one
    out: counts, cleared before; verdict, cleared before: the largest label, and 1 if one is below 0
    Values: scalar; workgroup_size; copies: the copies of each bin in workgroup memory, or 0 if there are too many bins;
        slots: the counters in workgroup memory; edged: True to count by bins; cached: the edges in workgroup memory, at
        most, or 0; uniform: True if bins have about one width, so that a division finds the bin. -#}
{% from "shared/packed_keys.wgsl" import key_at, key_in_vector with context %}
{% set descending = False %}
struct Call {
    length: u32,  // values
    bins: u32,
    share: u32,  // vectors of a workgroup
    usable: u32,  // bins that begin at a number of the values' type; the others are empty
    scale: f32,  // bins to a unit
    margin: f32,  // a number that is as close to an edge, in bins, is compared with the edges
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const SLOTS = {{ slots }}u;
const PER_VECTOR = {{ 128 // scalar.bits }}u;  // values
const NO_BIN = 0xffffffffu;

{% include "sort/keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> counts: array<atomic<u32>>;
{% if edged %}
@group(0) @binding(3) var<storage, read> edges: array<Key>;
{% else %}
struct Verdict {
    largest: atomic<u32>,
    below: atomic<u32>,
}
@group(0) @binding(3) var<storage, read_write> verdict: Verdict;

var<workgroup> own_largest: atomic<u32>;
{% endif %}

var<workgroup> counters: array<atomic<u32>, SLOTS>;
{% if not copies %}
var<workgroup> owners: array<atomic<u32>, SLOTS>;  // the bin of each counter
{% endif %}

// Add the length of a run to a bin.
fn add(bin: u32, run: u32, invocation: u32) {
    if (bin == NO_BIN) {
        return;
    }
{% if copies %}
    atomicAdd(&counters[bin * {{ copies }}u + invocation % {{ copies }}u], run);
{% else %}
    let slot = bin % SLOTS;
    var owner = atomicLoad(&owners[slot]);
    if (owner == NO_BIN) {
        let claimed = atomicCompareExchangeWeak(&owners[slot], NO_BIN, bin);
        owner = select(claimed.old_value, bin, claimed.exchanged);
    }
    if (owner == bin) {
        atomicAdd(&counters[slot], run);
    } else {
        atomicAdd(&counts[bin], run);
    }
{% endif %}
}

{% if edged %}
{% if cached %}
var<workgroup> orders: array<Key, {{ cached }}>;

fn edge(number: u32) -> Key {
    return orders[number];
}
{% else %}
fn edge(number: u32) -> Key {
    return order_of({{ key_at("edges", "number") }});
}
{% endif %}

{% if uniform %}
// Return a number of bins, perhaps a wrong one, from the first edge to a number.
fn distance(key: Key, first: Key) -> f32 {
{% if scalar.kind == "float" %}
    return (number_of(key) - number_of(first)) * call.scale;
{% else %}
    return f32(order_of(key) - order_of(first)) * call.scale;
{% endif %}
}

{% if scalar.kind == "float" %}
{% if scalar.bits == 16 %}
{% set conversions, packs_halves = ["half_to_float" if scalar.name == "float16" else "bfloat_to_float"], False %}
{% include "shared/small_floats.wgsl" %}
{% endif %}

fn number_of(key: Key) -> f32 {
    return {{ {"float16": "half_to_float(key)", "bfloat16": "bfloat_to_float(key)"}.get(scalar.name, "bitcast<f32>(key)") }};
}
{% endif %}
{% endif %}

// Return the bin of a number, given the first edge as a number and in the order of keys, and the last one.
fn bin_of(key: Key, first: Key, least: Key, greatest: Key) -> u32 {
    let order = order_of(key);
    if (call.usable == 0u || precedes(order, least) || precedes(greatest, order)) {
        return NO_BIN;
    }
{% if uniform %}
    let place = clamp(distance(key, first), 0.0f, 4294967040.0f);
    var bin = min(u32(place), call.usable - 1u);
    let beyond = place - f32(bin);
    if (beyond < call.margin || beyond > 1.0f - call.margin) {
        for (; bin > 0u && precedes(order, edge(bin)); bin--) {}
        for (; bin + 1u < call.usable && !precedes(order, edge(bin + 1u)); bin++) {}
    }
    return bin;
{% else %}
    var bin = 0u;
    for (var left = call.usable; left > 1u;) {
        let half = left / 2u;
        bin += select(half, 0u, precedes(order, edge(bin + half)));
        left -= half;
    }
    return bin;
{% endif %}
}
{% else %}
// Return the bin of a label; 2**32 - 2 stands for a label that is larger.
fn label_of(key: Key) -> u32 {
{% if scalar.bits == 64 %}
    return select(min(key.x, 0xfffffffeu), 0xfffffffeu, key.y != 0u);
{% elif scalar.kind == "bool" %}
    return min(key, 1u);
{% else %}
    return min(key, 0xfffffffeu);
{% endif %}
}
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    for (var i = invocation; i < SLOTS; i += WORKGROUP_SIZE) {
        atomicStore(&counters[i], 0u);
{% if not copies %}
        atomicStore(&owners[i], NO_BIN);
{% endif %}
    }
{% if edged %}
{% if cached %}
    for (var i = invocation; i <= call.bins; i += WORKGROUP_SIZE) {
        orders[i] = order_of({{ key_at("edges", "i") }});
    }
{% endif %}
    let first = {{ key_at("edges", "0u") }};
{% else %}
    atomicStore(&own_largest, 0u);
    var largest = 0u;
    var is_below = false;
{% endif %}
    workgroupBarrier();
{% if edged %}
    let least = edge(0u);
    let greatest = edge(call.bins);
{% endif %}
    let vectors = (call.length + PER_VECTOR - 1u) / PER_VECTOR;
    let begin = (workgroup.x + workgroup.y * grid.x) * call.share;
    let end = min(begin + call.share, vectors);
    var bin = NO_BIN;
    var run = 0u;
    for (var at = begin + invocation; at < end; at += WORKGROUP_SIZE) {
        let vector = values[at];
        for (var i = 0u; i < PER_VECTOR; i++) {
            let is_there = at * PER_VECTOR + i < call.length;
            let key = {{ key_in_vector("vector", "i") }};
{% if edged %}
            let next = select(NO_BIN, bin_of(key, first, least, greatest), is_there);
{% else %}
            let label = select(0u, label_of(key), is_there);
            largest = max(largest, label);
{% if scalar.kind == "signed" %}
            is_below |= is_there && ({{ "key.y" if scalar.bits == 64 else "key" }} & SIGN) != 0u;
{% endif %}
            let next = select(NO_BIN, label, is_there && label < call.bins);
{% endif %}
            if (next != bin) {
                add(bin, run, invocation);
                bin = next;
                run = 0u;
            }
            run++;
        }
    }
    add(bin, run, invocation);
{% if not edged %}
    atomicMax(&own_largest, largest);
{% if scalar.kind == "signed" %}
    if (is_below) {
        atomicStore(&verdict.below, 1u);
    }
{% endif %}
{% endif %}
    workgroupBarrier();
{% if not edged %}
    if (invocation == 0u) {
        atomicMax(&verdict.largest, atomicLoad(&own_largest));
    }
{% endif %}
{% if copies %}
    for (var i = invocation; i < call.bins; i += WORKGROUP_SIZE) {
        var count = 0u;
        for (var copy = 0u; copy < {{ copies }}u; copy++) {
            count += atomicLoad(&counters[i * {{ copies }}u + copy]);
        }
        if (count > 0u) {
            atomicAdd(&counts[i], count);
        }
    }
{% else %}
    for (var i = invocation; i < SLOTS; i += WORKGROUP_SIZE) {
        let count = atomicLoad(&counters[i]);
        if (count > 0u) {
            atomicAdd(&counts[atomicLoad(&owners[i])], count);
        }
    }
{% endif %}
}
