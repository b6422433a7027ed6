{#- Define `index_at`, which loads an index or a label from `array`: integers of any kind, or bools. -#}
{% macro index_at(array, scalar) %}
struct Index {
    negative: bool,
    size: u32,  // without the sign; numbers of more than 32 bits become 0xffffffff
}

fn index_at(at: u32) -> Index {
{% if scalar.words == 2 %}
    let low = {{ array }}[2u * at];
    let high = {{ array }}[2u * at + 1u];
{% if scalar.kind == "signed" %}
    if (high >= 0x80000000u) {
        let rest = ~high + select(0u, 1u, low == 0u);
        return Index(true, select(~low + 1u, 0xffffffffu, rest != 0u));
    }
{% endif %}
    return Index(false, select(low, 0xffffffffu, high != 0u));
{% elif scalar.kind == "signed" %}
{% if scalar.packed %}
    let word = bitcast<i32>({{ array }}[at / {{ scalar.per_word }}u]);
    let value = extractBits(word, at % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
{% else %}
    let value = bitcast<i32>({{ array }}[at]);
{% endif %}
    // The difference wraps for the least number, and is its size all the same.
    return Index(value < 0, select(u32(value), 0u - bitcast<u32>(value), value < 0));
{% elif scalar.packed %}
    let bits = extractBits({{ array }}[at / {{ scalar.per_word }}u], at % {{ scalar.per_word }}u * {{ scalar.bits }}u, {{ scalar.bits }}u);
    return Index(false, {{ "min(bits, 1u)" if scalar.kind == "bool" else "bits" }});
{% else %}
    return Index(false, {{ array }}[at]);
{% endif %}
}
{% endmacro %}
