{#- Read units of 1 or 2 bytes of `source`, an array<u32>, that begin anywhere, as words.
    Values: unit: bytes, 1 or 2; and the constant UNITS, the units in a word. -#}
const UNIT_BITS = {{ 8 * unit }}u;

// Return the units from `at` on that a word holds.
fn neighbours_at(at: u32) -> u32 {
    let word = at / UNITS;
    let shift = at % UNITS * UNIT_BITS;
    return (source[word] >> shift) | ((source[word + 1u] << 1u) << (31u - shift));
}
