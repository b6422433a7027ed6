{#- Compare numbers of any kind by their bits. 0.0 equals -0.0. Every NaN equals every other NaN and comes after all
    numbers, in descending sorts too.
    Values: scalar: the type of the keys; descending: True to put the greatest key first. -#}
{% set wide = scalar.bits == 64 %}
{% set mask = {8: "0xffu", 16: "0xffffu"}.get(scalar.bits, "0xffffffffu") %}
{% set sign = {8: "0x80u", 16: "0x8000u"}.get(scalar.bits, "0x80000000u") %}
// A key's bits as the array has them. Keys of 8 and 16 bits were widened to a word. 64-bit keys are (low, high).
alias Key = {{ "vec2<u32>" if wide else "u32" }};

const SIGN = {{ sign }};  // of the highest word
const MASK = {{ mask }};  // the bits of the highest word

// Return unsigned words that compare as the keys do: equal for equal keys, and smaller for keys that come first.
fn order_of(key: Key) -> Key {
{% if scalar.kind == "bool" %}
    let order = min(key, 1u);  // any byte but 0 is true
{% elif scalar.kind == "signed" %}
    let order = key ^ {{ "vec2<u32>(0u, SIGN)" if wide else "SIGN" }};
{% elif scalar.kind == "float" %}
{% set infinity = {16: "0x7c00u" if scalar.name == "float16" else "0x7f80u", 32: "0x7f800000u", 64: "0x7ff00000u"}[scalar.bits] %}
{% if wide %}
    let magnitude = key.y & ~SIGN;
    let is_zero = (magnitude | key.x) == 0u;
    let is_nan = magnitude > {{ infinity }} || (magnitude == {{ infinity }} && key.x != 0u);
    let positive = select(vec2<u32>(key.x, key.y | SIGN), vec2<u32>(0u, SIGN), is_zero);
    let number = select(positive, ~key, key.y >= SIGN && !is_zero);
    return select({{ "~number" if descending else "number" }}, vec2<u32>(MASK, MASK), is_nan);
{% else %}
    let magnitude = key & ~SIGN & MASK;
    let is_zero = magnitude == 0u;
    let number = select(select(key | SIGN, SIGN, is_zero), ~key & MASK, key >= SIGN && !is_zero);
    return select({{ "~number & MASK" if descending else "number" }}, MASK, magnitude > {{ infinity }});
{% endif %}
{% else %}
    let order = key;
{% endif %}
{% if scalar.kind != "float" %}
    return {{ "order" if not descending else "~order" if wide else "~order & MASK" }};
{% endif %}
}

// Return true if the key of order `a` comes before that of `b`.
fn precedes(a: Key, b: Key) -> bool {
    return {{ "(a.y < b.y) | ((a.y == b.y) & (a.x < b.x))" if wide else "a < b" }};
}
