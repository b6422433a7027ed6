{#- Functions of float32 that WGSL lacks or leaves undefined for part of their arguments, complex64, and 16-bit floats.
    Comes in: helpers. -#}
{% if "f32_fmod" in helpers %}

// a - b trunc(a / b), exactly: long division of the significands, eight bits a step.
fn f32_fmod(a: f32, b: f32) -> f32 {
    let x = f32_magnitude(a);
    let y = f32_magnitude(b);
    if ((x >= 0x7f800000u) | (y > 0x7f800000u) | (y == 0u)) {
        return f32_from_bits(0x7fc00000u);
    }
    if (x < y) {
        return a;
    }
    // Significands with their leading bit at 23, and exponents; subnormals are shifted up.
    let x_shift = select(0u, countLeadingZeros(x) - 8u, x < 0x800000u);
    let y_shift = select(0u, countLeadingZeros(y) - 8u, y < 0x800000u);
    let x_exponent = select(i32(x >> 23u), 1i - i32(x_shift), x < 0x800000u);
    let y_exponent = select(i32(y >> 23u), 1i - i32(y_shift), y < 0x800000u);
    let divisor = select((y & 0x7fffffu) | 0x800000u, y << y_shift, y < 0x800000u);
    var rest = select((x & 0x7fffffu) | 0x800000u, x << x_shift, x < 0x800000u) % divisor;
    for (var steps = x_exponent - y_exponent; steps > 0i; steps -= 8i) {
        rest = (rest << u32(min(steps, 8i))) % divisor;
    }
    let shift = countLeadingZeros(max(rest, 1u)) - 8u;
    let exponent = y_exponent - i32(shift);
    let normal = ((rest << shift) & 0x7fffffu) | (u32(max(exponent, 0i)) << 23u);
    let subnormal = (rest << shift) >> u32(clamp(1i - exponent, 0i, 31i));
    let bits = select(select(subnormal, normal, exponent > 0i), 0u, rest == 0u);
    return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}
{% endif %}
{% if "f32_remainder" in helpers %}

// Return the remainder with the sign of `b`.
fn f32_remainder(a: f32, b: f32) -> f32 {
    let rest = f32_fmod(a, b);
    let shifted = select(rest, rest + b, f32_signbit(rest) != f32_signbit(b));
    return select(f32_copysign(0.0f, b), shifted, f32_to_bool(rest));
}
{% endif %}
{% if "f32_floor_divide" in helpers %}

// floor(a / b) of the exact quotient.
fn f32_floor_divide(a: f32, b: f32) -> f32 {
    let rest = f32_fmod(a, b);
    let below = f32_to_bool(rest) & (f32_signbit(rest) != f32_signbit(b));
    let quotient = (a - rest) / b - select(0.0f, 1.0f, below);
    let lower = floor(quotient);
    let nearest = select(lower, lower + 1.0f, quotient - lower > 0.5f);
    let whole = select(f32_copysign(0.0f, a / b), nearest, f32_to_bool(nearest));
    return select(whole, a / b, !f32_to_bool(b));
}
{% endif %}
{% if "c64_multiply" in helpers %}

fn c64_multiply(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
{% endif %}
{% if "c64_divide" in helpers %}

// Smith's algorithm (1962), as NumPy has it: no square of the divisor is formed, which might overflow.
fn c64_divide(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let swapped = abs(b.x) < abs(b.y);
    let large = select(b.x, b.y, swapped);
    let zero = abs(large) <= 0.0f;  // also of a subnormal where quotients flush it
    let ratio = f32_divide(select(b.y, b.x, swapped), select(large, 1.0f, zero));
    let scale = f32_divide(1.0f, large + select(b.y, b.x, swapped) * ratio);
    let real = select(a.x + a.y * ratio, a.x * ratio + a.y, swapped);
    let imag = select(a.y - a.x * ratio, a.y * ratio - a.x, swapped);
    return select(vec2<f32>(real, imag) * scale, a / abs(b.x), zero);
}
{% endif %}
{% if "f32_to_float16_bits" in helpers %}

// To the nearest, ties to even.
fn f32_to_float16_bits(x: f32) -> u32 {
    let size = f32_magnitude(x);
    let normal = (size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    let small = bitcast<u32>(bitcast<f32>(size) + 0.5f) - 0x3f000000u;  // the sum rounds at 2^-24, the last place
    let finite = select(normal, small, size < 0x38800000u);
    let large = select(0x7c00u, 0x7e00u | ((size >> 13u) & 0x3ffu), size > 0x7f800000u);
    return select(finite, large, size >= 0x477ff000u) | ((bitcast<u32>(x) >> 16u) & 0x8000u);
}
{% endif %}
{% if "f32_from_float16_bits" in helpers %}

fn f32_from_float16_bits(bits: u32) -> f32 {
    let size = bits & 0x7fffu;
    let normal = (size << 13u) + select(0x38000000u, 0x70000000u, size >= 0x7c00u);  // of infinity and NaN all ones
    let small = bitcast<u32>(f32(size) * 0.000000059604645f);  // 2^-24: a subnormal half is a normal float
    return bitcast<f32>(select(normal, small, size < 0x400u) | ((bits & 0x8000u) << 16u));
}
{% endif %}
{% if "f32_round_to_float16" in helpers %}

fn f32_round_to_float16(x: f32) -> f32 {
    return f32_from_float16_bits(f32_to_float16_bits(x));
}
{% endif %}
{% if "f32_to_bfloat16_bits" in helpers %}

// To the nearest, ties to even.
fn f32_to_bfloat16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, f32_isnan(x));
}
{% endif %}
{% if "f32_from_bfloat16_bits" in helpers %}

fn f32_from_bfloat16_bits(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}
{% endif %}
{% if "f32_round_to_bfloat16" in helpers %}

fn f32_round_to_bfloat16(x: f32) -> f32 {
    return f32_from_bfloat16_bits(f32_to_bfloat16_bits(x));
}
{% endif %}
