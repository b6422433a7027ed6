{#- Square roots, hypot and quotients of float32; see shared/elementary.wgsl. Comes in: helpers. -#}
{% if "f32_hypot" in helpers %}

// The root of the sum of two squares, without the exponent of the larger number. The squares of 12 bits are exact. The
// root has 12 bits, by a guess of its reciprocal to 4 %, and a remainder.
fn f32_hypot(a: f32, b: f32) -> f32 {
    let first = bitcast<u32>(a) & 0x7fffffffu;
    let second = bitcast<u32>(b) & 0x7fffffffu;
    let high = max(first, second);
    let low = min(first, second);
    if ((low < 0x800000u) | (high >= 0x7f000000u) | (high - low >= 0x1e000000u)) {
        return hypot_limit(first, second);
    }
    let unit = (high & 0x7f800000u) - 0x3f800000u;
    let h = bitcast<f32>(high - unit);
    let l = bitcast<f32>(low - unit);
    let zero = bitcast<u32>(h + 12582912.0f) & 0x30000000u;
    let h_rough = f32_rough(h);
    let l_rough = f32_rough(l);
    let square = h_rough * h_rough;
    let sum = f32_sealed(square + l_rough * l_rough, zero);
    let lost = f32_sealed(l_rough * l_rough - f32_sealed(sum - square, zero), zero);
    let more = f32_clamped(f32_clamped((h - h_rough) * (h + h_rough)) + f32_clamped((l - l_rough) * (l + l_rough)));
    let tail = f32_sealed(more + lost, zero);
    let radicand = f32_sealed(sum + tail, zero);
    let guess = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(radicand) >> 1u));
    let excess = f32_sealed(1.0f - f32_sealed(radicand * f32_sealed(guess * guess, zero), zero), zero);
    let factor = f32_sealed(excess * (0.5011f + f32_sealed(0.375f * excess, zero)), zero);  // (1 - e)^(-1/2) - 1
    let inverse = f32_sealed(guess + f32_sealed(guess * factor, zero), zero);
    let root = bitcast<f32>((bitcast<u32>(radicand * inverse) + 0x800u) & 0xfffff000u);
    let rest = f32_sealed(f32_sealed(sum - root * root, zero) + tail, zero);
    let computed = root + f32_sealed(rest * (0.5f * inverse), zero);
    return bitcast<f32>(bitcast<u32>(computed) + unit);
}
{% endif %}
{% if "hypot_limit" in helpers %}

// The same in integers, for zeros, subnormal numbers, infinity, NaN, and numbers that are large or far apart.
fn hypot_limit(first: u32, second: u32) -> f32 {
    let high = scaled_from_bits(max(first, second));
    let low = scaled_from_bits(min(first, second));
    let root = scaled_root(scaled_add(scaled_multiply(high, high), scaled_multiply(low, low)));
    let computed = select(scaled_round(root, 0u), max(first, second), min(first, second) == 0u);
    let nan = select(computed, 0x7fc00000u, max(first, second) > 0x7f800000u);
    return bitcast<f32>(select(nan, 0x7f800000u, (first == 0x7f800000u) | (second == 0x7f800000u)));
}
{% endif %}
{% if "f32_sqrt" in helpers %}

// The driver's root is a guess. An exact remainder makes it the nearest float, if it is within 8 units.
fn f32_sqrt(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 0x800000u >= 0x7f000000u) {
        return sqrt_limit(bits);
    }
    let significand = ((bits & 0x7fffffu) | 0x800000u) << ((~bits >> 23u) & 1u);
    let square = significand << 23u;
    let guess = u32(sqrt(f32(bitcast<i32>(significand)) * 8388608.0f));
    let first = bitcast<i32>(square - guess * guess);
    let inverse = bitcast<f32>(0x7e7311c7u - bitcast<u32>(f32(bitcast<i32>(guess))));  // 1 / (2 guess), to 5 %
    let next = guess + bitcast<u32>(i32(f32(first) * inverse));
    let rest = bitcast<i32>(square - next * next);  // from -3 to 3 times the root
    let up = select(0u, 1u, rest > bitcast<i32>(next));
    let down = select(0u, 1u, rest <= 0i - bitcast<i32>(next));
    let exponent = ((bits >> 23u) + 125u) >> 1u;
    return bitcast<f32>((exponent << 23u) + next + up - down);
}
{% endif %}
{% if "sqrt_limit" in helpers %}

// The same for zeros, negative and subnormal numbers, infinity and NaN.
fn sqrt_limit(bits: u32) -> f32 {
    let a = scaled_from_bits(bits);
    let significand = (a.x >> 8u) << (a.y & 1u);
    let square = significand << 23u;
    let guess = u32(sqrt(f32(bitcast<i32>(significand)) * 8388608.0f)) - 20u;
    let first = bitcast<i32>(square - guess * guess);
    let root1 = guess + bitcast<u32>(i32(f32(first >> 1u) / f32(bitcast<i32>(guess))));
    let root2 = root1 - select(0u, 1u, bitcast<i32>(square - root1 * root1) < 0i);
    let root3 = root2 + select(0u, 1u, bitcast<i32>(square - root2 * root2) > bitcast<i32>(root2 << 1u));
    let root = root3 + select(0u, 1u, bitcast<i32>(square - root3 * root3) > bitcast<i32>(root3));
    let exponent = bitcast<u32>((bitcast<i32>(a.y) >> 1u) + 126i);
    let computed = select((exponent << 23u) + root, bits, ((bits & 0x7fffffffu) == 0u) | (bits == 0x7f800000u));
    return bitcast<f32>(select(computed, 0x7fc00000u, (bits > 0x7f800000u) & (bits != 0x80000000u)));
}
{% endif %}
{% if "f32_divide" in helpers %}

// The driver's quotient is a guess. An exact remainder makes it the nearest float, if it is within 8 units.
fn f32_divide(a: f32, b: f32) -> f32 {
    let above = bitcast<u32>(a) & 0x7fffffffu;
    let below = bitcast<u32>(b) & 0x7fffffffu;
    let estimate = above - below + 0x3f800000u;  // has the exponent of the quotient
    if ((above - 0x800000u >= 0x7f000000u) | (below - 0x800000u >= 0x7f000000u) | (estimate - 0x1000000u >= 0x7d000000u)) {
        return divide_limit(a, b);
    }
    let dividend = (above & 0x7fffffu) | 0x800000u;
    let low = (below & 0x7fffffu) | 0x800000u;
    let less = select(0u, 1u, dividend < low);
    let high = dividend << less;
    let unit = f32(bitcast<i32>(low));
    let guess = bitcast<u32>(i32(f32(bitcast<i32>(high)) / unit * 8388608.0f));
    let first = bitcast<i32>((high << 23u) - guess * low);
    let inverse = bitcast<f32>(0x7ef311c7u - bitcast<u32>(unit));  // 1 / unit, to 5 %
    let step = i32(f32(first) * inverse);
    let rest = first - step * bitcast<i32>(low);  // from -3/2 to 3/2 of the divisor, never a half
    let up = select(0u, 1u, rest + rest > bitcast<i32>(low));
    let down = select(0u, 1u, rest + rest < 0i - bitcast<i32>(low));
    let significand = guess + bitcast<u32>(step) + up - down;
    let exponent = (above & 0x7f800000u) - (below & 0x7f800000u) - (less << 23u) + 0x3f000000u;
    return bitcast<f32>((exponent + significand) | ((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u));
}
{% endif %}
{% if "divide_limit" in helpers %}

// The same for zeros, infinity, NaN, and numbers and quotients that are subnormal or large.
fn divide_limit(a: f32, b: f32) -> f32 {
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    let above = bitcast<u32>(a) & 0x7fffffffu;
    let below = bitcast<u32>(b) & 0x7fffffffu;
    let dividend = scaled_from_bits(above);
    let divisor = scaled_from_bits(below);
    let less = dividend.x < divisor.x;
    let high = (dividend.x >> 8u) << select(0u, 1u, less);
    let low = divisor.x >> 8u;
    let unit = f32(bitcast<i32>(low));
    let guess = bitcast<u32>(i32(f32(bitcast<i32>(high)) / unit * 16777216.0f)) - 40u;
    let first = bitcast<i32>((high << 24u) - guess * low);
    let next = guess + bitcast<u32>(i32(f32(first) / unit));
    let second = bitcast<i32>((high << 24u) - next * low);
    let down = next - select(0u, 1u, second < 0i);
    let third = bitcast<u32>(second) + select(0u, low, second < 0i);
    let up = third >= low;
    let quotient = down + select(0u, 1u, up);
    let inexact = third != select(0u, low, up);
    let exponent = dividend.y - divisor.y - select(0u, 1u, less);
    // 25 bits, and one more for all that follow
    let value = scaled_round(vec2<u32>((quotient << 7u) | select(0u, 1u, inexact), exponent), sign);
    let zero = (above == 0u) | (below == 0x7f800000u);
    let computed = select(select(value, 0x7f800000u | sign, (below == 0u) | (above == 0x7f800000u)), sign, zero);
    let equal = (above == below) & ((above == 0u) | (above == 0x7f800000u));
    return bitcast<f32>(select(computed, 0x7fc00000u, equal | (max(above, below) > 0x7f800000u)));
}
{% endif %}
