{#- Return units of 1 or 2 bytes of `source`, an array<u32>, in a word. Neighbours are taken from two words at once.
    Values: unit: bytes, 1 or 2; and the constant UNITS, the units in a word. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
const UNIT_BITS = {{ 8 * unit }}u;
const BACKWARDS = 0xffffffffu;  // a stride of -1

// Return `count` units, from the unit `at` on, `stride` units apart. The rest of the word may hold any bits.
fn units_at(at: u32, stride: u32, count: u32) -> u32 {
    if (stride == 1u) {
        return neighbours_at(at);
    }
    if (stride == BACKWARDS && count == UNITS) {
        return in_reverse(neighbours_at(at - (UNITS - 1u)));
    }
    var bits = 0u;
    for (var i = 0u; i < UNITS; i++) {
        let index = at + min(i, count - 1u) * stride;
        bits |= {{ unit_of("source", "index") }} << (i * UNIT_BITS);
    }
    return bits;
}

fn neighbours_at(at: u32) -> u32 {
    let word = at / UNITS;
    let shift = at % UNITS * UNIT_BITS;
    return (source[word] >> shift) | ((source[word + 1u] << 1u) << (31u - shift));
}

fn in_reverse(word: u32) -> u32 {
    let halves = (word >> 16u) | (word << 16u);
    return {{ "((halves & 0x00ff00ffu) << 8u) | ((halves >> 8u) & 0x00ff00ffu)" if unit == 1 else "halves" }};
}
