{#- Assemble words from units of 1, 2 or 4 bytes. The template that includes this defines `unit_at`.
    Values: unit: bytes, 1, 2 or 4; source: array<u32>. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
const UNITS = {{ 4 // unit }}u;  // in a word

// Return the unit of the source at this index.
fn unit_of_source(at: u32) -> u32 {
    return {{ unit_of("source", "at") }};
}

// Return the word of the result that begins with unit `first`, from the units before `end`.
fn word_at(first: u32, end: u32) -> u32 {
{% if unit == 4 %}
    return unit_at(first);
{% else %}
    var bits = 0u;
    for (var i = 0u; i < min(UNITS, end - first); i++) {
        bits |= unit_at(first + i) << (i * {{ 8 * unit }}u);
    }
    return bits;
{% endif %}
}
