{#- 64-bit integers as two words (low, high), for adapters without native ones. Comes in: helpers. -#}
{% if "wide_add" in helpers %}

fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
{% endif %}
{% if "wide_subtract" in helpers %}

fn wide_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
{% endif %}
{% if "wide_negative" in helpers %}

fn wide_negative(a: vec2<u32>) -> vec2<u32> {
    return wide_subtract(vec2<u32>(), a);
}
{% endif %}
{% if "wide_product" in helpers %}

// Return all 64 bits of a product of two words, by half words.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}
{% endif %}
{% if "wide_multiply" in helpers %}

fn wide_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = wide_product(a.x, b.x);
    return vec2<u32>(product.x, product.y + a.x * b.y + a.y * b.x);
}
{% endif %}
{% if "wide_unsigned_less" in helpers %}

fn wide_unsigned_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (a.y < b.y) | ((a.y == b.y) & (a.x < b.x));
}
{% endif %}
{% if "wide_signed_less" in helpers %}

fn wide_signed_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}
{% endif %}
{% for sign in ("unsigned", "signed") %}
{% if "wide_" ~ sign ~ "_power" in helpers %}

// By repeated squaring. A negative exponent, which NumPy refuses, gives zero.
fn wide_{{ sign }}_power(base: vec2<u32>, exponent: vec2<u32>) -> vec2<u32> {
    var product = vec2<u32>(1u, 0u);
    var factor = base;
    var rest = exponent;
    while (any(rest != vec2<u32>())) {
        product = select(product, wide_multiply(product, factor), (rest.x & 1u) != 0u);
        factor = wide_multiply(factor, factor);
        rest = vec2<u32>((rest.x >> 1u) | (rest.y << 31u), rest.y >> 1u);
    }
{% if sign == "signed" %}
    return select(product, vec2<u32>(), (exponent.y >> 31u) != 0u);
{% else %}
    return product;
{% endif %}
}
{% endif %}
{% for name, first, second in (("minimum", "b", "a"), ("maximum", "a", "b")) %}
{% if "wide_" ~ sign ~ "_" ~ name in helpers %}

fn wide_{{ sign }}_{{ name }}(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, wide_{{ sign }}_less({{ first }}, {{ second }}));
}
{% endif %}
{% endfor %}
{% endfor %}
{% if "wide_signed_absolute" in helpers %}

fn wide_signed_absolute(a: vec2<u32>) -> vec2<u32> {
    return select(a, wide_negative(a), (a.y >> 31u) != 0u);
}
{% endif %}
{% if "wide_signed_sign" in helpers %}

fn wide_signed_sign(a: vec2<u32>) -> vec2<u32> {
    let unit = vec2<u32>(select(0u, 1u, any(a != vec2<u32>())), 0u);
    return select(unit, vec2<u32>(0xffffffffu, 0xffffffffu), (a.y >> 31u) != 0u);
}
{% endif %}
{% if "wide_left_shift" in helpers %}

// An amount that is negative or not below 64 shifts every bit out.
fn wide_left_shift(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let by = amount.x & 31u;
    let carried = (a.x >> 1u) >> (31u - by);
    let near = vec2<u32>(a.x << by, (a.y << by) | carried);
    let shifted = select(near, vec2<u32>(0u, near.x), amount.x >= 32u);
    return select(vec2<u32>(), shifted, (amount.y == 0u) & (amount.x < 64u));
}
{% endif %}
{% for sign, fill in (("unsigned", "0u"), ("signed", "bitcast<u32>(bitcast<i32>(a.y) >> 31u)")) %}
{% if "wide_" ~ sign ~ "_right_shift" in helpers %}

fn wide_{{ sign }}_right_shift(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let fill = {{ fill }};  // what comes in from above
    let by = amount.x & 31u;
    let low = (a.x >> by) | ((a.y << 1u) << (31u - by));
    let high = (a.y >> by) | ((fill << 1u) << (31u - by));
    let shifted = select(vec2<u32>(low, high), vec2<u32>(high, fill), amount.x >= 32u);
    return select(vec2<u32>(fill, fill), shifted, (amount.y == 0u) & (amount.x < 64u));
}
{% endif %}
{% endfor %}
{% if "wide_unsigned_bitwise_count" in helpers %}

fn wide_unsigned_bitwise_count(a: vec2<u32>) -> u32 {
    return countOneBits(a.x) + countOneBits(a.y);
}
{% endif %}
{% if "wide_trailing_zeros" in helpers %}

fn wide_trailing_zeros(a: vec2<u32>) -> u32 {
    return select(countTrailingZeros(a.x), 32u + countTrailingZeros(a.y), a.x == 0u);
}
{% endif %}
{% if "wide_unsigned_gcd" in helpers %}

// The binary algorithm (Stein 1967), which needs no division: each step takes at least one bit off the two numbers.
fn wide_unsigned_gcd(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (all(a == vec2<u32>())) {
        return b;
    }
    let shared_twos = vec2<u32>(wide_trailing_zeros(a | b), 0u);
    var x = wide_unsigned_right_shift(a, vec2<u32>(wide_trailing_zeros(a), 0u));
    var y = b;
    while (any(y != vec2<u32>())) {
        y = wide_unsigned_right_shift(y, vec2<u32>(wide_trailing_zeros(y), 0u));
        let swapped = wide_unsigned_less(y, x);
        let low = select(x, y, swapped);
        y = wide_subtract(select(y, x, swapped), low);
        x = low;
    }
    return wide_left_shift(x, shared_twos);
}
{% endif %}
{% if "wide_division" in helpers %}

// Quotient (xy) and remainder (zw), one bit a step; both are zero where the divisor is.
fn wide_division(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if ((a.y == 0u) & (b.y == 0u)) {
        let divisor = max(b.x, 1u);
        return select(vec4<u32>(), vec4<u32>(a.x / divisor, 0u, a.x % divisor, 0u), b.x != 0u);
    }
    if (all(b == vec2<u32>())) {
        return vec4<u32>();
    }
    var quotient = a;  // shifts out at the top as the quotient's bits shift in at the bottom
    var rest = vec2<u32>();
    for (var step = 0u; step < 64u; step++) {
        rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
        let fits = !wide_unsigned_less(rest, b);
        rest = select(rest, wide_subtract(rest, b), fits);
        quotient = vec2<u32>((quotient.x << 1u) | select(0u, 1u, fits), (quotient.y << 1u) | (quotient.x >> 31u));
    }
    return vec4<u32>(quotient, rest);
}
{% endif %}
{% if "wide_unsigned_floor_divide" in helpers %}

fn wide_unsigned_floor_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return wide_division(a, b).xy;
}
{% endif %}
{% if "wide_unsigned_remainder" in helpers %}

fn wide_unsigned_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return wide_division(a, b).zw;
}
{% endif %}
{% if "wide_signed_floor_divide" in helpers %}

fn wide_signed_floor_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let parts = wide_division(wide_signed_absolute(a), wide_signed_absolute(b));
    let down = vec2<u32>(select(0u, 1u, any(parts.zw != vec2<u32>())), 0u);
    let below = wide_subtract(wide_negative(parts.xy), down);
    return select(parts.xy, below, ((a.y ^ b.y) >> 31u) != 0u);
}
{% endif %}
{% if "wide_signed_fmod" in helpers %}

// Return the remainder with the sign of `a`.
fn wide_signed_fmod(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = wide_division(wide_signed_absolute(a), wide_signed_absolute(b)).zw;
    return select(rest, wide_negative(rest), (a.y >> 31u) != 0u);
}
{% endif %}
{% if "wide_signed_remainder" in helpers %}

// Return the remainder with the sign of `b`.
fn wide_signed_remainder(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = wide_signed_fmod(a, b);
    let across = any(rest != vec2<u32>()) & (((rest.y ^ b.y) >> 31u) != 0u);
    return select(rest, wide_add(rest, b), across);
}
{% endif %}
{% if "wide_from_i32" in helpers %}

fn wide_from_i32(x: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}
{% endif %}
{% if "wide_unsigned_to_f32" in helpers %}

// To the nearest: the leading 31 bits, the last of them set where any bit is below them, times a power of two.
fn wide_unsigned_to_f32(a: vec2<u32>) -> f32 {
    let shift = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    let leading = wide_left_shift(a, vec2<u32>(shift, 0u));
    let below = select(0u, 1u, ((leading.y & 1u) != 0u) | (leading.x != 0u));
    let rounded = f32(i32((leading.y >> 1u) | below));
    return select(rounded * bitcast<f32>((160u - shift) << 23u), 0.0f, all(a == vec2<u32>()));
}
{% endif %}
{% if "wide_signed_to_f32" in helpers %}

fn wide_signed_to_f32(a: vec2<u32>) -> f32 {
    let size = wide_unsigned_to_f32(wide_signed_absolute(a));
    return select(size, -size, (a.y >> 31u) != 0u);
}
{% endif %}
{% if "f32_to_wide_magnitude" in helpers %}

// Return the whole part of |x|, by its significand; from 2^64 on, its low bits.
fn f32_to_wide_magnitude(x: f32) -> vec2<u32> {
    let exponent = i32(f32_magnitude(x) >> 23u) - 150i;  // of the significand's last place
    let significand = vec2<u32>((bitcast<u32>(x) & 0x7fffffu) | 0x800000u, 0u);
    let down = vec2<u32>(significand.x >> u32(clamp(-exponent, 0i, 31i)), 0u);
    return select(wide_left_shift(significand, vec2<u32>(u32(max(exponent, 0i)), 0u)), down, exponent < 0i);
}
{% endif %}
{% if "f32_to_wide_signed" in helpers %}

// Towards zero. What does not fit is the lowest number, as on x86-64.
fn f32_to_wide_signed(x: f32) -> vec2<u32> {
    let size = f32_to_wide_magnitude(x);
    let inside = f32_magnitude(x) < 0x5f000000u;  // 2^63
    return select(vec2<u32>(0u, 0x80000000u), select(size, wide_negative(size), f32_signbit(x)), inside);
}
{% endif %}
{% if "f32_to_wide_unsigned" in helpers %}

// Towards zero. A negative number wraps, as on x86-64. NaN and numbers that are too large give 0.
fn f32_to_wide_unsigned(x: f32) -> vec2<u32> {
    let positive = select(vec2<u32>(), f32_to_wide_magnitude(x), f32_magnitude(x) < 0x5f800000u);  // 2^64
    return select(positive, f32_to_wide_signed(x), f32_signbit(x) & !f32_isnan(x));
}
{% endif %}
