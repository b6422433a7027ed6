{#- Native integers, 32 and 64 bits. Comes in: helpers.
    Division by zero is zero, and quotients round down, as NumPy has them. -#}
{% if "i32_to_i64" in helpers %}

// By bits: some compilers compare i64(x) with a constant as if x had no sign (lavapipe of Mesa 22.3).
fn i32_to_i64(x: i32) -> i64 {
    return (i64(u64(bitcast<u32>(x))) << 32u) >> 32u;
}
{% endif %}
{% if "u64_bitwise_count" in helpers %}

fn u64_bitwise_count(x: u64) -> u32 {
    return countOneBits(u32(x)) + countOneBits(u32(x >> 32u));
}
{% endif %}
{% for int, uint, bits in (("i32", "u32", 32), ("i64", "u64", 64)) %}
{% set zero = "0i" if bits == 32 else "0li" %}
{% set one = "1i" if bits == 32 else "1li" %}
{% set uzero = "0u" if bits == 32 else "0lu" %}
{% set uone = "1u" if bits == 32 else "1lu" %}
{% if uint ~ "_floor_divide" in helpers %}
fn {{ uint }}_floor_divide(a: {{ uint }}, b: {{ uint }}) -> {{ uint }} {
    return select(a / max(b, {{ uone }}), {{ uzero }}, b == {{ uzero }});
}
{% endif %}
{% if uint ~ "_remainder" in helpers %}
fn {{ uint }}_remainder(a: {{ uint }}, b: {{ uint }}) -> {{ uint }} {
    return select(a % max(b, {{ uone }}), {{ uzero }}, b == {{ uzero }});
}
{% endif %}
{% if uint ~ "_gcd" in helpers %}

// Euclid's algorithm: at most 47 steps for 32 bits and 93 for 64.
fn {{ uint }}_gcd(a: {{ uint }}, b: {{ uint }}) -> {{ uint }} {
    var x = a;
    var y = b;
    while (y != {{ uzero }}) {
        let rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}
{% endif %}
{% if int ~ "_divide" in helpers %}

// Towards zero. The divisors 0 and -1 are left to arithmetic that cannot overflow.
fn {{ int }}_divide(a: {{ int }}, b: {{ int }}) -> {{ int }} {
    let special = (b == {{ zero }}) | (b == -{{ one }});
    return select(a / select(b, {{ one }}, special), b * a, special);
}
{% endif %}
{% if int ~ "_floor_divide" in helpers %}

fn {{ int }}_floor_divide(a: {{ int }}, b: {{ int }}) -> {{ int }} {
    let quotient = {{ int }}_divide(a, b);
    let below = (quotient * b != a) & ((a < {{ zero }}) != (b < {{ zero }}));
    return select(quotient, quotient - {{ one }}, below & (b != {{ zero }}));
}
{% endif %}
{% if int ~ "_fmod" in helpers %}

// Return the remainder with the sign of `a`.
fn {{ int }}_fmod(a: {{ int }}, b: {{ int }}) -> {{ int }} {
    return select(a - {{ int }}_divide(a, b) * b, {{ zero }}, b == {{ zero }});
}
{% endif %}
{% if int ~ "_remainder" in helpers %}

// The remainder with the sign of `b`. Signs by bits: NVIDIA's compiler takes a `rest` below zero for one above it where
// 64 bits are compared, and only the low ones are used after.
fn {{ int }}_remainder(a: {{ int }}, b: {{ int }}) -> {{ int }} {
    let rest = {{ int }}_fmod(a, b);
    let opposite = (rest ^ b) >> {{ bits - 1 }}u;  // all bits, or none
    return rest + select({{ zero }}, b & opposite, rest != {{ zero }});
}
{% endif %}
{% if int ~ "_sign" in helpers %}

fn {{ int }}_sign(a: {{ int }}) -> {{ int }} {
    return select(select({{ zero }}, {{ one }}, a > {{ zero }}), -{{ one }}, a < {{ zero }});
}
{% endif %}
{% for type in (int, uint) %}
{% set signed = type == int %}
{% set nil = zero if signed else uzero %}
{% set unit = one if signed else uone %}
{% if type ~ "_power" in helpers %}

// By repeated squaring. A negative exponent, for which NumPy raises an error, gives zero.
fn {{ type }}_power(base: {{ type }}, exponent: {{ type }}) -> {{ type }} {
    var product = {{ unit }};
    var factor = base;
    var rest = exponent;
    while (rest > {{ nil }}) {
        product = select(product, product * factor, (rest & {{ unit }}) != {{ nil }});
        factor = factor * factor;
        rest = rest >> 1u;
    }
    return select(product, {{ nil }}, exponent < {{ nil }});
}
{% endif %}
{% if type ~ "_left_shift" in helpers %}

// An amount that is negative or not below the width shifts every bit out.
fn {{ type }}_left_shift(a: {{ type }}, amount: {{ type }}) -> {{ type }} {
    let inside = (amount >= {{ nil }}) & (amount < {{ bits }}{{ nil[1:] }});
    return select({{ nil }}, a << (u32(amount) & {{ bits - 1 }}u), inside);
}
{% endif %}
{% if type ~ "_right_shift" in helpers %}

fn {{ type }}_right_shift(a: {{ type }}, amount: {{ type }}) -> {{ type }} {
    let inside = (amount >= {{ nil }}) & (amount < {{ bits }}{{ nil[1:] }});
{% if signed %}
    return a >> select({{ bits - 1 }}u, u32(amount) & {{ bits - 1 }}u, inside);
{% else %}
    return select({{ nil }}, a >> (u32(amount) & {{ bits - 1 }}u), inside);
{% endif %}
}
{% endif %}
{% endfor %}
{% endfor %}
