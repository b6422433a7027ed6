{#- Offsets of segments, as in CSR's indptr, of any kind of integer: `offset_at` loads one from the array `offsets`.
    With `checked`, what is wrong with them is reported in the buffer `validation_flag`, by `check_offsets`.
    Values: scalar: the type of the offsets; checked; needs_full: True to report also that a segment is empty. -#}
{% macro offset_functions(scalar, checked, needs_full) %}
// Stands for an offset that no array has: a negative one, or one of more than 32 bits.
const NO_OFFSET = 0xffffffffu;

fn offset_at(index: u32) -> u32 {
{% if scalar.packed and scalar.kind == "signed" %}
    let word = bitcast<i32>(offsets[index / {{ scalar.per_word }}u]);
    let offset = extractBits(word, index % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
    return select(u32(offset), NO_OFFSET, offset < 0);
{% elif scalar.packed %}
    return extractBits(offsets[index / {{ scalar.per_word }}u], index % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
{% elif scalar.words == 2 %}
    return select(offsets[2u * index], NO_OFFSET, offsets[2u * index + 1u] != 0u);
{% elif scalar.kind == "signed" %}
    return select(offsets[index], NO_OFFSET, offsets[index] >= 0x80000000u);
{% else %}
    return offsets[index];
{% endif %}
}
{% if checked %}

struct ValidationFlag {
    // NO_OFFSET minus the first segment that ends before it begins, or after the row; 0 if none does.
    fall: atomic<u32>,
    first: u32,  // the first offset, which has to be 0
    beyond: u32,  // the last offset + 1 if it is not the length, else 0
    empty: atomic<u32>,  // NO_OFFSET minus the first segment without elements, if there may be none; 0 if none is empty
}

// Report what is wrong with a segment, by its number among all `segments` of a row of this length.
fn check_offsets(number: u32, start: u32, stop: u32, length: u32, segments: u32) {
    if (start > stop || stop > length) {
        atomicMax(&validation_flag.fall, NO_OFFSET - number);
    }
    if (number == 0u && start != 0u) {
        validation_flag.first = start;
    }
    if (number + 1u == segments && stop != length) {
        validation_flag.beyond = stop + 1u;
    }
{% if needs_full %}
    if (start == stop) {
        atomicMax(&validation_flag.empty, NO_OFFSET - number);
    }
{% endif %}
}
{% endif %}
{% endmacro %}
