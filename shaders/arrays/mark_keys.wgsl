{#- Mark the heads of the segments that keys define. Each invocation compares KEYS neighbouring keys, in the order of the scan,
    each with the key before it. Every word is then assembled from the bits of its invocations. Keys differ as with NumPy's
    `!=`: a NaN differs from everything, and 0.0 equals -0.0.
    in:  keys
    out: heads: one bit for each element, in the order of the scan
    Values: workgroup_size; scalar, the kind of key. -#}
struct Row {
    length: u32,
    words: u32,  // of heads
    reverse: u32,  // 1 where the scan goes from the row's end
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const KEYS = 4u;  // that an invocation compares
const SHARES = 32u / KEYS;  // invocations to a word
{% set key_words = 1 if scalar.packed else scalar.words %}

@group(0) @binding(0) var<uniform> row: Row;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read_write> heads: array<u32>;

alias Key = array<u32, {{ key_words }}>;

// Return the key of an element, given its place in the order of the scan.
fn key_at(index: u32) -> Key {
    let place = select(index, row.length - 1u - index, row.reverse == 1u);
{% if scalar.packed %}
    return Key(extractBits(keys[place / {{ scalar.per_word }}u], place % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u));
{% else %}
    return Key({% for word in range(key_words) %}keys[place * {{ key_words }}u + {{ word }}u]{{ ", " if not loop.last }}{% endfor %});
{% endif %}
}

{% if scalar.kind in ("float", "complex") %}
{% set bits = 32 if scalar.kind == "complex" else scalar.bits %}
const SIGN = {{ {16: "0x8000u", 32: "0x80000000u", 64: "0x80000000u"}[bits] }};
const INFINITY = {{ {16: "0x7c00u" if scalar.name == "float16" else "0x7f80u", 32: "0x7f800000u", 64: "0x7ff00000u"}[bits] }};

// True if two floats differ, by their bits: `high` has the sign, `low` the rest of a wide one.
fn floats_differ(high: u32, other_high: u32, low: u32, other_low: u32) -> bool {
    let magnitude = high & ~SIGN;
    let nan = magnitude > INFINITY || (magnitude == INFINITY && low != 0u);
    let zeros = (((high | other_high) & ~SIGN) | low | other_low) == 0u;
    return nan || ((high != other_high || low != other_low) && !zeros);
}
{% endif %}

fn differ(a: Key, b: Key) -> bool {
{% if scalar.kind == "complex" %}
    return floats_differ(a[0], b[0], 0u, 0u) || floats_differ(a[1], b[1], 0u, 0u);
{% elif scalar.kind == "float" and scalar.bits == 64 %}
    return floats_differ(a[1], b[1], a[0], b[0]);
{% elif scalar.kind == "float" %}
    return floats_differ(a[0], b[0], 0u, 0u);
{% elif scalar.kind == "bool" %}
    return (a[0] != 0u) != (b[0] != 0u);  // any byte but 0 is true
{% else %}
    return {% for word in range(key_words) %}a[{{ word }}] != b[{{ word }}]{{ " || " if not loop.last }}{% endfor %};
{% endif %}
}

var<workgroup> shares: array<u32, {{ workgroup_size }}>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let group = workgroup.x + workgroup.y * grid.x;
    let first = (group * WORKGROUP_SIZE + invocation) * KEYS;
    var share = select(0u, 1u, first == 0u);
    var before = key_at(max(first, 1u) - 1u);
    for (var i = 0u; i < KEYS; i++) {
        let key = key_at(first + i);
        share |= select(0u, 1u << i, differ(key, before) && first + i < row.length);
        before = key;
    }
    shares[invocation] = share << (invocation % SHARES * KEYS);
    workgroupBarrier();
    let word = group * (WORKGROUP_SIZE / SHARES) + invocation;
    if (invocation < WORKGROUP_SIZE / SHARES && word < row.words) {
        var bits = 0u;
        for (var i = 0u; i < SHARES; i++) {
            bits |= shares[invocation * SHARES + i];
        }
        heads[word] = bits;
    }
}
