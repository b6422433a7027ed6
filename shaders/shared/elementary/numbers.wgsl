{#- Words and scaled numbers: products, sums, quotients, roots and the last rounding; see shared/elementary.wgsl.
    Comes in: helpers, native_int64. -#}
{% from "shared/elementary/constants.wgsl" import ROOT, RECIPROCAL, HALF_ROOT %}
{% from "shared/elementary/horner.wgsl" import horner %}
{% if "high_product" in helpers %}

// The high word of a * b.
fn high_product(a: u32, b: u32) -> u32 {
{% if native_int64 %}
    return u32((u64(a) * u64(b)) >> 32u);
{% else %}
    let middle = (a >> 16u) * (b & 0xffffu) + (((a & 0xffffu) * (b & 0xffffu)) >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
{% endif %}
}
{% endif %}
{% if "signed_high_product" in helpers %}

// The high word of a * b.
fn signed_high_product(a: i32, b: i32) -> i32 {
{% if native_int64 %}
    return i32((i64(a) * i64(b)) >> 32u);
{% else %}
    let low = (bitcast<u32>(a) & 0xffffu) * (bitcast<u32>(b) & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffi) + bitcast<i32>(low >> 16u);
    let other = (a & 0xffffi) * (b >> 16u) + (middle & 0xffffi);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
{% endif %}
}
{% endif %}
{#- ----- Fixed-point numbers of two words -#}
{% if "words_add" in helpers %}

fn words_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
{% if native_int64 %}
    let sum = (u64(a.x) | (u64(a.y) << 32u)) + (u64(b.x) | (u64(b.y) << 32u));
    return vec2<u32>(u32(sum), u32(sum >> 32u));
{% else %}
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < b.x));
{% endif %}
}
{% endif %}
{% if "words_negate" in helpers %}

fn words_negate(a: vec2<u32>, negated: bool) -> vec2<u32> {
{% if native_int64 %}
    let opposite = 0lu - (u64(a.x) | (u64(a.y) << 32u));
    return select(a, vec2<u32>(u32(opposite), u32(opposite >> 32u)), negated);
{% else %}
    return select(a, vec2<u32>(0u - a.x, ~a.y + select(0u, 1u, a.x == 0u)), negated);
{% endif %}
}
{% endif %}
{#- ----- Floats -#}
{% if "f32_sealed" in helpers %}

// The same number. Compilers that do not know that the word is 0 cannot fuse or reorder the steps around it.
fn f32_sealed(x: f32, zero: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ zero);
}
{% endif %}
{% if "f32_clamped" in helpers %}

// The same number, which must be from 0 to 1. Compilers that do not know its bounds cannot fuse or reorder the steps
// around it. GPUs clamp a result in the step that computes it.
fn f32_clamped(x: f32) -> f32 {
    return clamp(x, 0.0f, 1.0f);
}
{% endif %}
{% if "f32_rough" in helpers %}

// The number cut to 12 bits. A product of two such numbers is exact.
fn f32_rough(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}
{% endif %}
{% if "f32_join_odd" in helpers %}

// The sum, rounded to odd. Either the first number is larger, or it is 0.
fn f32_join_odd(high: f32, low: f32, zero: u32) -> f32 {
    let sum = f32_sealed(high + low, zero);
    let rest = bitcast<u32>(low - f32_sealed(sum - high, zero));
    let bits = bitcast<u32>(sum);
    let even = ((bits & 1u) == 0u) & ((rest << 1u) != 0u);
    return bitcast<f32>(select(bits, bits + 1u - (((bits ^ rest) >> 31u) << 1u), even));
}
{% endif %}
{% if "reciprocal_pair" in helpers %}

// 1 / (high + low), with 12 bits in `high`: by a guess to 5 %, then to 12 bits, then with an error e.
fn reciprocal_pair(high: f32, low: f32, zero: u32) -> vec2<u32> {
    let guess = bitcast<f32>(0x7ef311c7u - bitcast<u32>(high));
    let excess = f32_sealed(1.0f - f32_sealed(high * guess, zero), zero);
    let inverse = f32_rough(guess + f32_sealed(guess * (excess + f32_clamped(excess * excess)), zero));
    let e = f32_sealed(f32_sealed(1.0f - high * inverse, zero) - f32_sealed(low * inverse, zero), zero);
    let change = inverse * (e + f32_clamped(e * e));
    return vec2<u32>(bitcast<u32>(inverse), bitcast<u32>(change) ^ zero);
}
{% endif %}
{% if "root_pair" in helpers %}

// The square root as the sum of two floats: by a guess of its reciprocal to 4 %, then to 12 bits, then by a remainder.
fn root_pair(a: f32, zero: u32) -> vec2<u32> {
    let guess = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(a) >> 1u));
    let excess = f32_sealed(1.0f - f32_sealed(a * f32_sealed(guess * guess, zero), zero), zero);
    let factor = f32_sealed(excess * (0.5f + f32_sealed(0.375f * excess, zero)), zero);
    let inverse = f32_sealed(guess + f32_sealed(guess * factor, zero), zero);
    let high = f32_rough(a * inverse);
    let rest = f32_sealed(a - high * high, zero);
    let change = f32_sealed(rest * (0.5f * inverse), zero);
    let twice = f32_sealed(2.0f * high + change, zero);
    let more = f32_sealed(rest - f32_sealed(change * twice, zero), zero) * (0.5f * inverse);
    return vec2<u32>(bitcast<u32>(high), bitcast<u32>(change + f32_sealed(more, zero)) ^ zero);
}
{% endif %}
{% if "root_of_square" in helpers %}

// sqrt(a^2 + b) as the sum of two floats, the first one the nearest float. The square of 12 bits of a is exact.
fn root_of_square(a: f32, b: f32, zero: u32) -> vec2<u32> {
    let rough = f32_rough(a);
    let square = f32_sealed(rough * rough, zero);
    let tail = f32_sealed(f32_sealed(a - rough, zero) * f32_sealed(a + rough, zero), zero);
    let first = f32_sealed(square + b, zero);
    let large = square > b;
    let first_lost = f32_sealed(select(square, b, large) - f32_sealed(first - select(b, square, large), zero), zero);
    let sum = f32_sealed(first + tail, zero);
    let lost = f32_sealed(f32_sealed(tail - f32_sealed(sum - first, zero), zero) + first_lost, zero);
    let root = root_pair(sum, zero);
    let inverse = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(sum) >> 1u));  // 1 / root, to 4 %
    let low = f32_sealed(bitcast<f32>(root.y) + f32_sealed(lost * (0.5f * inverse), zero), zero);
    let high = f32_sealed(bitcast<f32>(root.x) + low, zero);
    let rest = low - f32_sealed(high - bitcast<f32>(root.x), zero);
    return vec2<u32>(bitcast<u32>(high), bitcast<u32>(rest) ^ zero);
}
{% endif %}
{#- ----- Scaled numbers -#}
{% if "scaled_from_bits" in helpers %}

// The magnitude of a float.
fn scaled_from_bits(bits: u32) -> vec2<u32> {
    let size = bits & 0x7fffffffu;
    let zeros = countLeadingZeros(size | 1u);
    let normal = size >= 0x800000u;
    let significand = select(size << zeros, (size << 8u) | 0x80000000u, normal);
    return vec2<u32>(significand, select(0u - 118u - zeros, (size >> 23u) - 127u, normal));
}
{% endif %}
{% if "scaled_from_words" in helpers %}

// Scale words. `exponent` belongs to the highest bit.
fn scaled_from_words(a: vec2<u32>, exponent: u32) -> vec2<u32> {
    let wide = a.y != 0u;
    let top = select(a.x, a.y, wide);
    let next = select(0u, a.x, wide);
    let zeros = countLeadingZeros(top | 1u);
    let significand = (top << zeros) | ((next >> 1u) >> (31u - zeros));
    return vec2<u32>(significand, exponent - zeros - select(32u, 0u, wide));
}
{% endif %}
{% if "scaled_to_words" in helpers %}

// A number below 2^31 with 32 fractional bits.
fn scaled_to_words(a: vec2<u32>) -> vec2<u32> {
    let left = min(a.y + 1u, 31u);
    let right = min(0u - 1u - a.y, 31u);
    let large = bitcast<i32>(a.y) >= 0i;
    let gone = bitcast<i32>(a.y) < -32i;
    let low = select(select(a.x >> right, 0u, gone), a.x << left, large);
    return vec2<u32>(low, select(0u, (a.x >> 1u) >> (31u - left), large));
}
{% endif %}
{% if "scaled_less" in helpers %}

fn scaled_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}
{% endif %}
{% if "scaled_multiply" in helpers %}

fn scaled_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = high_product(a.x, b.x);
    let top = product >> 31u;
    return vec2<u32>(product << (1u - top), a.y + b.y + top);
}
{% endif %}
{% if "reciprocal_significand" in helpers %}

// 2^63 / b for b >= 2^31, or 2^32 - 1: a polynomial and two steps of Newton's method.
fn reciprocal_significand(b: u32) -> u32 {
    let g = bitcast<i32>((b << 1u) ^ 0x80000000u);
{{ horner(RECIPROCAL, "g") }}
    let first_error = bitcast<i32>(0x40000000u - high_product(b, bitcast<u32>(h0) << 1u));  // 30 fractional bits
    let guess = h0 + (signed_high_product(h0, first_error << 6u) >> 4u);
    let low = b * (bitcast<u32>(guess) << 1u);
    let high = high_product(b, bitcast<u32>(guess) << 1u);
    let error = bitcast<i32>(((0x40000000u - high) << 20u) - (low >> 12u));  // 50 fractional bits
    let reciprocal = (bitcast<u32>(guess) << 2u) + bitcast<u32>(signed_high_product(guess, error) >> 16u);
    return select(reciprocal, 0xffffffffu, reciprocal < 0x40000000u);  // it overflows near 2^32
}
{% endif %}
{% if "scaled_divide" in helpers %}

// By the reciprocal.
fn scaled_divide(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = high_product(a.x, reciprocal_significand(b.x));
    let top = quotient >> 31u;
    return vec2<u32>(quotient << (1u - top), a.y - b.y + top - 1u);
}
{% endif %}
{% if "scaled_add" in helpers %}

fn scaled_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let swapped = bitcast<i32>(a.y - b.y) < 0i;
    let high = select(a, b, swapped);
    let low = select(b, a, swapped);
    let shift = high.y - low.y;
    let added = select(0u, low.x >> (shift & 31u), shift < 32u);
    let sum = high.x + added;
    let carry = sum < added;
    return vec2<u32>(select(sum, (sum >> 1u) | 0x80000000u, carry), high.y + select(0u, 1u, carry));
}
{% endif %}
{% if "scaled_subtract" in helpers %}

// b must not be above a.
fn scaled_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let shift = a.y - b.y;
    let rest = a.x - select(0u, b.x >> (shift & 31u), shift < 32u);
    let zeros = countLeadingZeros(rest | 1u);
    return vec2<u32>(rest << zeros, a.y - zeros);
}
{% endif %}
{% if "scaled_root" in helpers %}

// Return the square root. The reciprocal root comes from a polynomial and a step of Newton's method, the root from a
// step of Heron's.
fn scaled_root(a: vec2<u32>) -> vec2<u32> {
    let odd = (a.y & 1u) == 1u;
    let radicand = select(a.x >> 1u, a.x, odd);  // 30 fractional bits
    let g = bitcast<i32>((a.x << 1u) ^ 0x80000000u);
{{ horner(ROOT, "g") }}
    let guess = select(bitcast<u32>(h0), high_product(bitcast<u32>(h0), {{ HALF_ROOT }}), odd);  // 30 fractional bits
    let one = high_product(high_product(guess << 1u, guess << 1u), radicand);  // 28 fractional bits
    let error = bitcast<i32>((0x10000000u - one) << 9u);
    let inverse = bitcast<i32>(guess) + (signed_high_product(bitcast<i32>(guess), error) >> 6u);
    let root = high_product(radicand, bitcast<u32>(inverse) << 1u);  // 29 fractional bits
    let low = (radicand << 28u) - root * root;
    let borrow = select(0u, 1u, (radicand << 28u) < root * root);
    let high = (radicand >> 4u) - high_product(root, root) - borrow;
    let rest = bitcast<i32>((high << 24u) | (low >> 8u));
    let near = (root << 2u) + bitcast<u32>(signed_high_product(rest, inverse) >> 18u);
    let rounded = select(max(near, 0x80000000u), 0xffffffffu, near < 0x40000000u);  // it overflows near 2
    let exponent = bitcast<u32>((bitcast<i32>(a.y) - select(0i, 1i, odd)) >> 1u);
    return vec2<u32>(rounded, exponent);
}
{% endif %}
{#- A significand without its lowest 8 bits: the nearest one, ties to even, or rounded to odd. -#}
{% macro without_8_bits(significand, odd) -%}
({{ significand }} >> 8u) {% if odd %}| select(0u, 1u, ({{ significand }} & 0xffu) != 0u){% else %}+ ((({{ significand }} & 0xffu) + 0x7fu + (({{ significand }} >> 8u) & 1u)) >> 8u){% endif %}
{%- endmacro %}
{% for suffix in ("", "_odd") %}
{% if "scaled_round" + suffix in helpers %}

{% if suffix %}
// The bits of a float: cut, with the last bit set if a cut bit was.
{% else %}
// The bits of the nearest float, ties to even.
{% endif %}
fn scaled_round{{ suffix }}(a: vec2<u32>, sign: u32) -> u32 {
    let exponent = bitcast<i32>(a.y) + 127i;
    let normal = {{ without_8_bits("a.x", suffix) }};
    if ((bitcast<u32>(exponent - 1i) < 254u) & (a.x != 0u)) {
        return ((bitcast<u32>(exponent - 1i) << 23u) + normal) | (sign & 0x80000000u);
    }
    let shift = bitcast<u32>(clamp(1i - exponent, 0i, 31i));
    let kept = a.x >> shift;
    let significand = kept | select(0u, 1u, (kept << shift) != a.x);
    let whole = {{ without_8_bits("significand", suffix) }};
    let bits = (bitcast<u32>(max(exponent, 1i) - 1i) << 23u) + whole;
    return select(select(bits, 0x7f800000u, exponent > 254i), 0u, a.x == 0u) | (sign & 0x80000000u);
}
{% endif %}
{% endfor %}
{% for suffix in ("", "_odd") %}
{% if "scaled_round_normal" + suffix in helpers %}

// The same for numbers that are normal floats, without ties.
fn scaled_round_normal{{ suffix }}(a: vec2<u32>, sign: u32) -> u32 {
{% if suffix %}
    let whole = (a.x >> 8u) | select(0u, 1u, (a.x & 0xffu) != 0u);
{% else %}
    let whole = (a.x >> 8u) + ((a.x >> 7u) & 1u);
{% endif %}
    return (((a.y + 126u) << 23u) + whole) | (sign & 0x80000000u);
}
{% endif %}
{% endfor %}
