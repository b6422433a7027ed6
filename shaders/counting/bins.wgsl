{#- The bins that elements belong to: labels are their own bins, and numbers have the bins between edges.
    in:  values; edges: where each bin begins, and the greatest number of the last one
    out: validation_flag, cleared before: the largest label, and 1 if one is below 0
    An invocation calls prepare_bins, waits at a barrier, and calls read_ends; after its last bin it calls keep_largest,
    waits at a barrier, and calls report_largest.
    Values: scalar; workgroup_size; edged: True to count by bins; cached: the edges in workgroup memory, at most, or 0;
        uniform: True if bins have about one width, so that a division finds the bin. -#}
{% from "shared/packed_keys.wgsl" import key_at with context %}
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
const PER_VECTOR = {{ 128 // scalar.bits }}u;  // values
const NO_BIN = 0xffffffffu;

{% include "sort/keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> values: array<vec4<u32>>;
{% if edged %}
@group(0) @binding(3) var<storage, read> edges: array<Key>;
{% else %}
struct ValidationFlag {
    largest: atomic<u32>,
    below: atomic<u32>,
}
@group(0) @binding(3) var<storage, read_write> validation_flag: ValidationFlag;

var<workgroup> own_largest: atomic<u32>;
var<private> largest: u32;
var<private> is_below: bool;
{% endif %}

{% if edged %}
var<private> first: Key;  // edge
var<private> least: Key;  // the same, in the order of keys
var<private> greatest: Key;

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
fn distance(key: Key) -> f32 {
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

// Return the bin of a number.
fn bin_of(key: Key) -> u32 {
    let order = order_of(key);
    if (call.usable == 0u || precedes(order, least) || precedes(greatest, order)) {
        return NO_BIN;
    }
{% if uniform %}
    let bins_below = clamp(distance(key), 0.0f, 4294967040.0f);
    var bin = min(u32(bins_below), call.usable - 1u);
    let beyond = bins_below - f32(bin);
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
// Return the bin of a label, and note whether it is the largest, or below 0.
fn bin_of(key: Key) -> u32 {
{% if scalar.bits == 64 %}
    let label = select(min(key.x, 0xfffffffeu), 0xfffffffeu, key.y != 0u);
{% elif scalar.kind == "bool" %}
    let label = min(key, 1u);
{% else %}
    let label = min(key, 0xfffffffeu);  // NO_BIN is no label
{% endif %}
    largest = max(largest, label);
{% if scalar.kind == "signed" %}
    is_below |= ({{ "key.y" if scalar.bits == 64 else "key" }} & SIGN) != 0u;
{% endif %}
    return select(NO_BIN, label, label < call.bins);
}
{% endif %}

fn prepare_bins(invocation: u32) {
{% if not edged %}
    atomicStore(&own_largest, 0u);
{% elif cached %}
    for (var i = invocation; i <= call.bins; i += WORKGROUP_SIZE) {
        orders[i] = order_of({{ key_at("edges", "i") }});
    }
{% endif %}
}

fn read_ends() {
{% if edged %}
    first = {{ key_at("edges", "0u") }};
    least = edge(0u);
    greatest = edge(call.bins);
{% endif %}
}

fn keep_largest() {
{% if not edged %}
    atomicMax(&own_largest, largest);
    if (is_below) {
        atomicStore(&validation_flag.below, 1u);
    }
{% endif %}
}

fn report_largest(invocation: u32) {
{% if not edged %}
    if (invocation == 0u) {
        atomicMax(&validation_flag.largest, atomicLoad(&own_largest));
    }
{% endif %}
}
