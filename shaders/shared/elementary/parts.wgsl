{#- What several elementary functions consist of; see shared/elementary.wgsl. Comes in: helpers. -#}
{% from "shared/elementary/constants.wgsl" import EXP, LOG, LOG_CURVE, SIN, COS, LN2, LN2_FLOATS, LN2_WORDS,
    LOG_13_10, LOG_16_13, MINUS_LOG_5_4, LOG_32_25, PI, TWO_OVER_PI, TWO_OVER_PI_FLOAT, HALF_PI, HALF_PI_END,
    SIN_FLOATS, EXP_FLOATS, LN2_SHORT, LOG2_E_FLOAT, EIGHTH_TURN %}
{% from "shared/elementary/horner.wgsl" import horner, clamped_horner %}
{#- ----- Exponentials -#}
{% if "exp_fixed" in helpers %}

// exp of words in two's complement with 32 fractional bits, below 2^8: 2^k exp(r) with |r| <= 0.36.
fn exp_fixed(a: vec2<u32>) -> vec2<u32> {
    let eighth_bits = bitcast<i32>((a.y << 8u) | (a.x >> 24u));
    let k = (eighth_bits * 23637i + 0x200000i) >> 22u;  // log2(e) with 14 fractional bits
    let r = bitcast<i32>(a.x - bitcast<u32>(k) * {{ LN2[0] }}) - ((k * {{ LN2[1] }}) >> 16u);
    return exp_reduced(r, bitcast<u32>(k));
}
{% endif %}
{% if "exp_reduced" in helpers %}

// 2^k exp(r), with r of 32 fractional bits.
fn exp_reduced(r: i32, k: u32) -> vec2<u32> {
    let value = 0x80000000u + bitcast<u32>((r >> 1u) + signed_high_product(exp_slope(r), r));
    let top = value >> 31u;
    return vec2<u32>(value << (1u - top), k + top - 1u);
}
{% endif %}
{% if "exp_slope" in helpers %}

// (exp(r) - 1) / r - 1 for |r| <= 0.36: r with 32 fractional bits, the result with 31.
fn exp_slope(r: i32) -> i32 {
{{ horner(EXP, "r") }}
    return signed_high_product(h0, r);
}
{% endif %}
{% if "exp_parts" in helpers %}

// exp(x) = 2^k (1 + high + rest) as vec4<u32>(high, rest, k << 23, zero), with 2^k near exp(size).
fn exp_parts(x: f32, size: f32) -> vec4<u32> {
    let k = round(size * {{ LOG2_E_FLOAT }});
    let zero = bitcast<u32>(k) & 0xffffu;
    let high = f32_sealed(x - k * {{ LN2_SHORT[0] }}, zero);
    let low = f32_sealed(k * {{ LN2_SHORT[1] }}, zero);
    let f = high - low;
    let h5 = {{ EXP_FLOATS[5] }};
{% for power in range(4, 0, -1) %}
    let h{{ power }} = {{ EXP_FLOATS[power] }} + f32_sealed(h{{ power + 1 }} * f, zero);
{% endfor %}
    let square = f32_clamped(f * f);
    let curve = f32_sealed(0.5f * square + f32_sealed(f32_sealed(h1 * f, zero) * square, zero), zero);
    let rest = curve - low;
    let power = bitcast<u32>(k + 12582912.0f) << 23u;
    return vec4<u32>(bitcast<u32>(high), bitcast<u32>(rest) ^ zero, power, zero);
}
{% endif %}
{% if "exp_sum" in helpers %}

// The same as 2^k (top + rest).
fn exp_sum(parts: vec4<u32>) -> vec4<u32> {
    let high = bitcast<f32>(parts.x);
    let top = f32_sealed(1.0f + high, parts.w);
    let lost = f32_sealed(high - f32_sealed(top - 1.0f, parts.w), parts.w);
    let rest = lost + bitcast<f32>(parts.y);
    return vec4<u32>(bitcast<u32>(top), bitcast<u32>(rest) ^ parts.w, parts.z, parts.w);
}
{% endif %}
{% if "scaled_expm1" in helpers %}

// |exp(x) - 1| of a float. Near 0 the argument is a factor, so that the error is relative.
fn scaled_expm1(x: u32, scale: u32) -> vec2<u32> {
    let size = scaled_from_bits(x);
    let a = vec2<u32>(size.x, size.y + scale);
    let negative = x >= 0x80000000u;
    let near = bitcast<i32>(a.y) < -2i;
    let fixed = words_negate(scaled_to_words(a), negative);
    let slope = exp_slope(select(0i, bitcast<i32>(fixed.x), near));
    let factor = 0x80000000u + bitcast<u32>(slope);
    let top = factor >> 31u;
    let small = scaled_multiply(a, vec2<u32>(factor << (1u - top), top - 1u));
    let power = exp_fixed(fixed);
    let one = vec2<u32>(0x80000000u, 0u);
    let large = scaled_subtract(select(power, one, negative), select(one, power, negative));
    return select(large, small, near);
}
{% endif %}
{% if "scaled_sinh" in helpers %}

// sinh of a positive float below 2^8. With u = exp(x) - 1: (u + u / (u + 1)) / 2.
fn scaled_sinh(x: u32) -> vec2<u32> {
    let less_one = scaled_expm1(x, 0u);
    let twice = scaled_add(less_one, scaled_divide(less_one, scaled_add(less_one, vec2<u32>(0x80000000u, 0u))));
    return vec2<u32>(twice.x, twice.y - 1u);
}
{% endif %}
{% if "scaled_cosh" in helpers %}

// cosh of a positive float below 2^8.
fn scaled_cosh(x: u32) -> vec2<u32> {
    let power = exp_fixed(scaled_to_words(scaled_from_bits(x)));
    let twice = scaled_add(power, scaled_divide(vec2<u32>(0x80000000u, 0u), power));
    return vec2<u32>(twice.x, twice.y - 1u);
}
{% endif %}
{#- ----- Logarithms -#}
{% if "log_reduced" in helpers %}

// A positive normal float is 2^k m with 7/8 <= m < 7/4, and r = c m - 1 with c of 1, 13/16 and 5/8. Returns r, the
// logarithm of 2^(k - shift / 2^23) / c as the sum of two floats, and 0. All steps are exact.
fn log_reduced(bits: u32, shift: u32) -> vec4<u32> {
    let power = (bits - 0x3f600000u) & 0xff800000u;
    let m = bitcast<f32>(bits - power);
    let k = f32(bitcast<i32>(power - shift));  // times 2^23
    let zero = bitcast<u32>(k) & 0xffffu;  // compilers do not know that k has few bits
    let above = select(0.0f, 1.0f, m >= 1.125f);
    let far = select(0.0f, 1.0f, m >= 1.3828125f);
    let steps = above + far;
    let c = 1.0f - 0.1875f * steps;
    let step = 0.015625f * above - 0.078125f * far;
    let r = (m - (1.0f + 0.25f * steps)) * c + step;
{% for part in range(2) %}
    let offset{{ part }} = k * {{ LN2_FLOATS[part] }} + (above * {{ LOG_16_13[part] }} + far * {{ LOG_13_10[part] }});
{% endfor %}
    return vec4<u32>(bitcast<u32>(r) ^ zero, bitcast<u32>(offset0) ^ zero, bitcast<u32>(offset1), zero);
}
{% endif %}
{% if "log_split" in helpers %}

// A normal float is 2^k m with m from 11/16 to 11/8. Returns r = m - 1, k - shift times 2^23, 0 and what log_pair adds to
// the logarithm: the second part of (k - shift) log(2). All steps are exact.
fn log_split(bits: u32, shift: u32) -> vec4<u32> {
    let power = (bits - 0x3f300000u) & 0xff800000u;
    let k = f32(bitcast<i32>(power - shift));
    let zero = bitcast<u32>(k) & 0xffffu;  // compilers do not know that k has few bits
    let r = bitcast<f32>(bits - power) - 1.0f;
    return vec4<u32>(bitcast<u32>(r) ^ zero, bitcast<u32>(k), zero, bitcast<u32>(k * {{ LN2_FLOATS[1] }}));
}
{% endif %}
{% if "log_pair" in helpers %}

// k log(2) + log(1 + r) as vec4<u32>(high, low, zero, 0), the sum of two floats, from what log_split returns. The
// logarithm of 1 + r is r - r^2 h(r).
fn log_pair(parts: vec4<u32>) -> vec4<u32> {
    let r = bitcast<f32>(parts.x);
    let k = bitcast<f32>(parts.y);
    let zero = parts.z;
    let u = r + 0.3125f;
{{ clamped_horner(LOG_CURVE, "u") }}
    let bend = f32_clamped(f32_clamped(abs(r) * h0) * abs(r));
    let high = f32_sealed(k * {{ LN2_FLOATS[0] }} + r, zero);
    let lost = f32_sealed(r - f32_sealed(high - k * {{ LN2_FLOATS[0] }}, zero), zero);
    let low = f32_sealed(lost + bitcast<f32>(parts.w), zero) - bend;
    return vec4<u32>(bitcast<u32>(high), bitcast<u32>(low) ^ zero, zero, 0u);
}
{% endif %}
{% if "log_corrected" in helpers %}

// What log_split returns of a sum, changed to the logarithm of the sum and a number that is lost in it. The guess of the
// reciprocal of the sum is closest where the logarithm is smallest, from 11/16 to 11/8.
fn log_corrected(parts: vec4<u32>, sum: u32, lost: f32) -> vec4<u32> {
    let guess = bitcast<f32>(0x7eea2339u - min(sum, 0x7e000000u));
    let more = f32_sealed(lost * guess, parts.z);
    let second = bitcast<u32>(bitcast<f32>(parts.w) + more) ^ parts.z;
    return vec4<u32>(parts.x, parts.y, parts.z, second);
}
{% endif %}
{% if "log_words" in helpers %}

// The natural logarithm, in two's complement with 56 fractional bits. The argument is 2^k m, and r = c m - 1 with c of
// 4/5 (25/32), 1 and 5/4 is at most 1/8.
fn log_words(a: vec2<u32>) -> vec2<u32> {
    let above = a.x >= 0xb504f334u;
    let k = bitcast<i32>(a.y) + select(0i, 1i, above);
    let low = above & (a.x < 0xe6666666u);
    let high = !above & (a.x >= 0x90000000u);
    let unit = select(a.x << 3u, a.x << 2u, above);
    let change = select(select(0u, a.x, low), (a.x >> 2u) - (a.x << 1u), high);
    let r = bitcast<i32>(unit + change);  // 34 fractional bits
{{ horner(LOG, "r") }}
    // log(1 + r) = r (1 + slope), slope = r (r h - 1/2)
    let slope = signed_high_product(r, (signed_high_product(h0, r) >> 3u) - 0x40000000i);  // 33 fractional bits
    let bend = signed_high_product(r, slope);
    let bend_low = bitcast<u32>(r) * bitcast<u32>(slope);
    let bent = vec2<u32>((bitcast<u32>(bend) << 21u) | (bend_low >> 11u), bitcast<u32>(bend >> 11u));
    let part = words_add(vec2<u32>(bitcast<u32>(r) << 22u, bitcast<u32>(r >> 10u)), bent);
    let offset_low = select(select(0u, {{ MINUS_LOG_5_4[0] }}, low), {{ LOG_32_25[0] }}, high);
    let offset_high = select(select(0u, {{ MINUS_LOG_5_4[1] }}, low), {{ LOG_32_25[1] }}, high);
    let power_high = bitcast<u32>(k * {{ LN2_WORDS[1] }} + signed_high_product(k, {{ LN2_WORDS[0] }}));
    let power = vec2<u32>(bitcast<u32>(k * {{ LN2_WORDS[0] }}), power_high);
    return words_add(part, words_add(vec2<u32>(offset_low, offset_high), power));
}
{% endif %}
{% if "scaled_log1p" in helpers %}

// |log(1 + a)|, or |log(1 - a)| of a below 1. Near 0 the argument is a factor, so that the error is relative.
fn scaled_log1p(a: vec2<u32>, negative: bool) -> vec2<u32> {
    let near = bitcast<i32>(a.y) < -3i;
    let fixed = bitcast<i32>(words_negate(scaled_to_words(a), negative).x);  // 32 fractional bits
    let r = select(0i, fixed << 2u, near);
    // log(1 + r) / r - 1 = r (r h - 1/2)
{{ horner(LOG, "r") }}
    let slope = signed_high_product(r, (signed_high_product(h0, r) >> 3u) - 0x40000000i) >> 2u;  // 31 fractional bits
    let factor = 0x80000000u + bitcast<u32>(slope);
    let top = factor >> 31u;
    let small = scaled_multiply(a, vec2<u32>(factor << (1u - top), top - 1u));
    let one = vec2<u32>(0x80000000u, 0u);
    let sum = scaled_add(a, one);
    let rest = scaled_subtract(one, select(a, one, near | !negative));
    let words = log_words(select(sum, rest, negative));
    return select(scaled_from_words(words_negate(words, words.y >= 0x80000000u), 7u), small, near);
}
{% endif %}
{#- ----- Trigonometric functions -#}
{% if "turn_words" in helpers %}

// The words of 2/pi from that of bit `first` on; the first 64 bits are 0. Arguments below 2^25 need few of them.
fn turn_words(first: u32) -> vec4<u32> {
{% set table = ["0u", "0u"] + TWO_OVER_PI | list %}
    let by_4 = (first & 128u) != 0u;
    let by_2 = (first & 64u) != 0u;
    let by_1 = (first & 32u) != 0u;
    let third = select({{ table[2] }}, {{ table[3] }}, by_1);
    if (first < 64u) {
        return vec4<u32>(0u, select(0u, {{ table[2] }}, by_1), third, select({{ table[3] }}, {{ table[4] }}, by_1));
    }
{% for k in range(4) %}
    let far{{ k }} = select(select({{ table[k] }}, {{ table[k + 4] }}, by_4), {{ table[k + 2] }}, by_2);
{% endfor %}
    let far4 = select(select({{ table[4] }}, {{ table[8] }}, by_4), {{ table[6] }}, by_2);
    let near0 = select(far0, far1, by_1);
    let near1 = select(far1, far2, by_1);
    return vec4<u32>(near0, near1, select(far2, far3, by_1), select(far3, far4, by_1));
}
{% endif %}
{% if "scaled_turn" in helpers %}

// Payne and Hanek's reduction: |x| = q pi/2 + r with |r| <= pi/4. Returns |r| as a scaled number, q, and 1 if r < 0.
// Three words of 2/pi are enough. They start 23 bits before the point of the product.
fn scaled_turn(x: u32) -> vec4<u32> {
    let first = max((x >> 23u) & 255u, 115u) - 88u;
    let words = turn_words(first);
    let shift = first & 31u;
{% for k in range(3) %}
    let word{{ k }} = (words.{{ "xyzw"[k] }} << shift) | ((words.{{ "xyzw"[k + 1] }} >> 1u) >> (31u - shift));
{% endfor %}
    let significand = (x & 0x7fffffu) | 0x800000u;
    let carried = high_product(significand, word2);
    let low = significand * word1 + carried;
    let high = significand * word0 + high_product(significand, word1) + select(0u, 1u, low < carried);
    let quarters = (high + 0x20000000u) >> 30u;
    let rest = vec2<u32>(low, high - (quarters << 30u));
    let negative = rest.y >= 0x80000000u;
    let angle = scaled_multiply(scaled_from_words(words_negate(rest, negative), 1u), vec2<u32>({{ PI }}, 0u));
    return vec4<u32>(angle.x, angle.y, quarters, select(0u, 1u, negative));
}
{% endif %}
{% if "turn_near" in helpers %}

// x = q pi/2 + r with |r| <= pi/4 for |x| < 12800, as vec4<u32>(r, r_low, q, zero). r is the sum of two floats.
fn turn_near(x: f32) -> vec4<u32> {
    let q = round(x * {{ TWO_OVER_PI_FLOAT }});
    let zero = bitcast<u32>(q) & 0x7ffu;
    // The products by numbers of 11 bits are exact.
    let first = f32_sealed(x - q * {{ HALF_PI[0] }}, zero);
    let second = f32_sealed(first - q * {{ HALF_PI[1] }}, zero);
    let r = f32_sealed(second - f32_sealed(q * {{ HALF_PI_END }}, zero), zero);
    let lost = f32_sealed(f32_sealed(second - r, zero) - q * {{ HALF_PI[2] }}, zero);
    let r_low = f32_sealed(lost - f32_sealed(q * {{ HALF_PI[3] }}, zero), zero);
    return vec4<u32>(bitcast<u32>(r), bitcast<u32>(r_low), bitcast<u32>(q + 12582912.0f), zero);
}
{% endif %}
{% if "wave_near" in helpers %}

// sin(x + quarter pi/2) for |x| < 12800 as vec4<u32>(high, low, quarters, zero). The magnitude is high - low.
// x = q pi/2 + r with |r| <= pi/4, and r = first - rest, where `first` is exact. The sine is r - d(r), the cosine
// 1 - 2 (r / 2 - d(r / 2))^2.
fn wave_near(x: f32, quarter: u32) -> vec4<u32> {
    let q = round(x * {{ TWO_OVER_PI_FLOAT }});
    let zero = bitcast<u32>(q) & 0x7ffu;
    let quarters = bitcast<u32>(q + 12582912.0f) + quarter;
    let is_cosine = (quarters & 1u) != 0u;
    // The products by numbers of 11 bits are exact. A third one makes an exact difference if that is small.
    let two_parts = f32_sealed(f32_sealed(x - q * {{ HALF_PI[0] }}, zero) - q * {{ HALF_PI[1] }}, zero);
    let three_parts = two_parts - q * {{ HALF_PI[2] }};
    let small = abs(three_parts) < 0.00390625f;
    let first = select(two_parts, three_parts, small);
    let rest = f32_sealed(q * select({{ HALF_PI_END }}, {{ HALF_PI[3] }}, small), zero);
    let r = f32_sealed(first - rest, zero);
    let t = select(r, 0.5f * r, is_cosine);
    let g = f32_clamped(t * t);
{{ clamped_horner(SIN_FLOATS, "g") }}
    let bend = f32_sealed(f32_clamped(h0 * g) * t, zero);
    let square = f32_clamped(first * first);
    let top = f32_sealed(1.0f - 0.5f * square, zero);
    let cut = f32_sealed(0.5f * square - f32_clamped(1.0f - top), zero);
    let twice = f32_sealed(2.0f * bend + rest, zero);
    let fall = f32_sealed(twice * (0.5f * twice - first), zero);
    let low = select(rest, cut, is_cosine) + select(bend, fall, is_cosine);
    return vec4<u32>(bitcast<u32>(select(first, top, is_cosine)), bitcast<u32>(low) ^ zero, quarters, zero);
}
{% endif %}
{% if "scaled_wave" in helpers %}

// sin(r) or cos(r) for 0 <= r <= pi/4: both are 1 - d, or r (1 - d), with d by a polynomial in g = r^2 / 2.
fn scaled_wave(r: vec2<u32>, is_cosine: bool) -> vec2<u32> {
    let fixed = r.x >> min(0u - 1u - r.y, 31u);  // 32 fractional bits
    let g = bitcast<i32>(high_product(fixed, fixed) >> 1u);
{% for power in range(SIN | length) %}
    let c{{ power }} = select({{ SIN[power] }}i, {{ COS[power] }}i, is_cosine);
{% endfor %}
{% for power in range(SIN | length - 1, -1, -1) %}
    let h{{ power }} = c{{ power }}{% if not loop.first %} + signed_high_product(h{{ power + 1 }}, g){% endif %};
{% endfor %}
    let product = signed_high_product(h0, g);
    let change = bitcast<u32>(select(product, g - signed_high_product(product, g), is_cosine));
    let factor = vec2<u32>(~change, 0xffffffffu);
    let sine = scaled_multiply(r, factor);
    return select(sine, factor, is_cosine);
}
{% endif %}
{#- ----- Inverse trigonometric functions -#}
{% if "angle_sum" in helpers %}

// An angle plus some eighths of a full turn, as the sum of two floats. The sign of the angle is changed by `flip`.
fn angle_sum(eighths: f32, flip: u32, angle: vec2<u32>, zero: u32) -> vec2<u32> {
    let start = eighths * {{ EIGHTH_TURN[0] }};  // exact
    let top = bitcast<f32>(angle.x ^ flip);
    let sum = f32_sealed(start + top, zero);
    let lost = f32_sealed(top - f32_sealed(sum - start, zero), zero);
    let low = f32_sealed(bitcast<f32>(angle.y ^ flip ^ zero) + f32_sealed(eighths * {{ EIGHTH_TURN[1] }}, zero), zero);
    return vec2<u32>(bitcast<u32>(sum), bitcast<u32>(lost + low) ^ zero);
}
{% endif %}
