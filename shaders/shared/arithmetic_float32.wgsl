{#- Functions of float32 that WGSL lacks or leaves undefined for part of their arguments, complex64, and 16-bit floats.
    Comes in: helpers. -#}
{#- Some CPU adapters give numbers for NaN: SwiftShader in exp, exp2, log and log2, llvmpipe in atan. -#}
{% for name in ("exp", "exp2") %}
{% if "f32_" + name in helpers %}

fn f32_{{ name }}(x: f32) -> f32 {
    return select({{ name }}(x), x, f32_isnan(x));
}
{% endif %}
{% endfor %}
{% if "f32_arctan" in helpers %}

// llvmpipe's own gives 0.0 for -0.0.
fn f32_arctan(x: f32) -> f32 {
    return select(atan(x), x, f32_isnan(x) | !f32_to_bool(x));
}
{% endif %}
{% for name in ("log", "log2") %}
{% if "f32_" + name in helpers %}

// WGSL leaves the result open where x is negative, and SwiftShader may give a number for zero.
fn f32_{{ name }}(x: f32) -> f32 {
    let known = select(f32_from_bits(0xff800000u), {{ name }}(x), f32_to_bool(x));
    return select(known, f32_from_bits(0x7fc00000u), (x < 0.0f) | f32_isnan(x));
}
{% endif %}
{% endfor %}
{% if "f32_log1p" in helpers %}

// log(1 + x); for small x by the series of 2 atanh(x / (2 + x)).
fn f32_log1p(x: f32) -> f32 {
    let s = x / (2.0f + x);
    let z = s * s;
    var series = {{ 1 / 11 }}f;
{% for k in (9, 7, 5, 3, 1) %}
    series = {{ 1 / k }}f + z * series;
{% endfor %}
    return select(log(1.0f + x), 2.0f * s * series, abs(x) < 0.5f);
}
{% endif %}
{% if "f32_checked_log1p" in helpers %}

// What f32_log1p does not check, since functions that use it know that x is above -1 and not NaN.
fn f32_checked_log1p(x: f32) -> f32 {
    let known = select(f32_log1p(x), f32_from_bits(0xff800000u), x == -1.0f);
    return select(known, f32_from_bits(0x7fc00000u), (x < -1.0f) | f32_isnan(x));
}
{% endif %}
{% if "f32_expm1" in helpers %}

// exp(x) - 1; for small x by its series.
fn f32_expm1(x: f32) -> f32 {
    var series = 1.0f;
{% for k in range(8, 1, -1) %}
    series = 1.0f + series * x * {{ 1 / k }}f;
{% endfor %}
    return select(f32_exp(x) - 1.0f, series * x, abs(x) < 0.5f);
}
{% endif %}
{% if "f32_log10" in helpers %}

fn f32_log10(x: f32) -> f32 {
    return f32_log2(x) * 0.30103f;
}
{% endif %}
{% if "f32_sinh" in helpers %}

fn f32_sinh(x: f32) -> f32 {
    let size = abs(x);
    let less_one = f32_expm1(min(size, 10.0f));
    let root = f32_exp(0.5f * size);  // exp(size) itself may overflow
    return f32_copysign(select(0.5f * root * root, 0.5f * (less_one + less_one / (less_one + 1.0f)), size < 10.0f), x);
}
{% endif %}
{% if "f32_cosh" in helpers %}

fn f32_cosh(x: f32) -> f32 {
    let root = f32_exp(0.5f * abs(x));  // exp(|x|) itself may overflow
    return 0.5f * root * root + 0.5f / (root * root);
}
{% endif %}
{% if "f32_tanh" in helpers %}

fn f32_tanh(x: f32) -> f32 {
    let less_one = f32_expm1(2.0f * min(abs(x), 10.0f));
    return select(f32_copysign(less_one / (less_one + 2.0f), x), x, f32_isnan(x));
}
{% endif %}
{% if "f32_arcsinh" in helpers %}

fn f32_arcsinh(x: f32) -> f32 {
    let size = abs(x);
    let near = min(size, 1e4f);  // the square of a larger number may overflow
    let small = f32_log1p(near + near * near / (1.0f + sqrt(near * near + 1.0f)));
    let angle = select(small, log(max(size, 1.0f)) + 0.6931472f, size > 1e4f);
    return select(f32_copysign(angle, x), x, !f32_isfinite(x));
}
{% endif %}
{% if "f32_arccosh" in helpers %}

fn f32_arccosh(x: f32) -> f32 {
    let above = clamp(x - 1.0f, 0.0f, 1e4f);  // the square of a larger number may overflow
    let small = f32_log1p(above + sqrt(above * (above + 2.0f)));
    let angle = select(small, log(max(x, 1.0f)) + 0.6931472f, x > 1e4f);
    let undefined = select(angle, f32_from_bits(0x7fc00000u), x < 1.0f);
    return select(undefined, x, f32_isnan(x) | (f32_isinf(x) & (x > 0.0f)));
}
{% endif %}
{% if "f32_arctanh" in helpers %}

fn f32_arctanh(x: f32) -> f32 {
    let size = min(abs(x), 0.99999994f);  // the largest number below one
    let angle = f32_copysign(0.5f * f32_log1p(2.0f * size / (1.0f - size)), x);
    let at_one = f32_copysign(f32_from_bits(0x7f800000u), x);
    let outside = select(f32_from_bits(0x7fc00000u), at_one, abs(x) == 1.0f);
    return select(select(angle, outside, abs(x) >= 1.0f), x, f32_isnan(x));
}
{% endif %}
{% if "f32_cbrt" in helpers %}

fn f32_cbrt(x: f32) -> f32 {
    let size = abs(x);
    let guess = exp2(log2(size) / 3.0f);
    let root = guess - (guess - size / (guess * guess)) / 3.0f;  // one step of Newton's method
    return select(x, f32_copysign(root, x), f32_isfinite(x) & f32_to_bool(x));
}
{% endif %}
{% if "f32_arctan2" in helpers %}

fn f32_arctan2(y: f32, x: f32) -> f32 {
    let high = f32_maximum(abs(y), abs(x));
    let low = f32_minimum(abs(y), abs(x));
    let diagonal = f32_isinf(low);
    let ratio = select(low / select(1.0f, high, high > 0.0f), 1.0f, diagonal);  // where quotients flush subnormals, > does
    let octant = atan(select(ratio, 0.0f, f32_isinf(high) & !diagonal));
    let quadrant = select(octant, 1.5707964f - octant, abs(y) > abs(x));
    let angle = select(quadrant, 3.1415927f - quadrant, f32_signbit(x));
    return select(f32_copysign(angle, y), high, f32_isnan(high));
}
{% endif %}
{% if "f32_power" in helpers %}

// |base|^exponent by logarithms; zero, one, infinity, NaN and the sign by cases, as C's pow has them.
fn f32_power(base: f32, exponent: f32) -> f32 {
    let size = abs(base);
    let limit = !f32_to_bool(base) | f32_isinf(base) | f32_isinf(exponent);
    let infinite = select(0.0f, f32_from_bits(0x7f800000u), (size > 1.0f) == (exponent > 0.0f));
    let power = select(exp2(exponent * log2(select(size, 1.0f, limit))), infinite, limit);
    let whole = floor(exponent) == exponent;
    let odd = whole & (floor(0.5f * exponent) * 2.0f != exponent);
    let undefined = f32_signbit(base) & !limit & !whole;
    let signed = select(power, -power, f32_signbit(base) & odd & !f32_isinf(exponent));
    let nan = undefined | f32_isnan(base) | f32_isnan(exponent);
    let one = !f32_to_bool(exponent) | ((base == 1.0f) & !f32_isnan(base)) | ((size == 1.0f) & f32_isinf(exponent));
    return select(select(signed, f32_from_bits(0x7fc00000u), nan), 1.0f, one);
}
{% endif %}
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
    let ratio = select(b.y, b.x, swapped) / select(large, 1.0f, zero);
    let scale = 1.0f / (large + select(b.y, b.x, swapped) * ratio);
    let real = select(a.x + a.y * ratio, a.x * ratio + a.y, swapped);
    let imag = select(a.y - a.x * ratio, a.y * ratio - a.x, swapped);
    return select(vec2<f32>(real, imag) * scale, a / abs(b.x), zero);
}
{% endif %}
{% if "c64_exp" in helpers %}

fn c64_exp(z: vec2<f32>) -> vec2<f32> {
    let size = f32_exp(z.x);
    return vec2<f32>(size * cos(z.y), select(z.y, size * sin(z.y), f32_to_bool(z.y)));
}
{% endif %}
{% if "c64_log" in helpers %}

fn c64_log(z: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(f32_log(f32_hypot(z.x, z.y)), f32_arctan2(z.y, z.x));
}
{% endif %}
{% if "c64_sqrt" in helpers %}

// Return the root with a real part that is not negative. The larger part comes first, so that nothing cancels.
fn c64_sqrt(z: vec2<f32>) -> vec2<f32> {
    let larger = sqrt(0.5f * abs(z.x) + 0.5f * f32_hypot(z.x, z.y));
    let smaller = 0.5f * abs(z.y) / select(1.0f, larger, f32_to_bool(larger));
    let root = select(vec2<f32>(larger, smaller), vec2<f32>(smaller, larger), z.x < 0.0f);
    return vec2<f32>(root.x, f32_copysign(root.y, z.y));
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
