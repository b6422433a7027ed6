// The high word of a * b.
fn high_product(a: u32, b: u32) -> u32 {
    let middle = (a >> 16u) * (b & 0xffffu) + (((a & 0xffffu) * (b & 0xffffu)) >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

// The high word of a * b.
fn signed_high_product(a: i32, b: i32) -> i32 {
    let low = (bitcast<u32>(a) & 0xffffu) * (bitcast<u32>(b) & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffi) + bitcast<i32>(low >> 16u);
    let other = (a & 0xffffi) * (b >> 16u) + (middle & 0xffffi);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

// The magnitude of a float.
fn scaled_from_bits(bits: u32) -> vec2<u32> {
    let size = bits & 0x7fffffffu;
    let zeros = countLeadingZeros(size | 1u);
    let normal = size >= 0x800000u;
    let significand = select(size << zeros, (size << 8u) | 0x80000000u, normal);
    return vec2<u32>(significand, select(0u - 118u - zeros, (size >> 23u) - 127u, normal));
}

fn scaled_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}

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

// b must not be above a.
fn scaled_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let shift = a.y - b.y;
    let rest = a.x - select(0u, b.x >> (shift & 31u), shift < 32u);
    let zeros = countLeadingZeros(rest | 1u);
    return vec2<u32>(rest << zeros, a.y - zeros);
}

// The bits of the nearest float, ties to even.
fn scaled_round(a: vec2<u32>, sign: u32) -> u32 {
    let exponent = bitcast<i32>(a.y) + 127i;
    let normal = (a.x >> 8u) + (((a.x & 0xffu) + 0x7fu + ((a.x >> 8u) & 1u)) >> 8u);
    if ((bitcast<u32>(exponent - 1i) < 254u) & (a.x != 0u)) {
        return ((bitcast<u32>(exponent - 1i) << 23u) + normal) | (sign & 0x80000000u);
    }
    let shift = bitcast<u32>(clamp(1i - exponent, 0i, 31i));
    let kept = a.x >> shift;
    let significand = kept | select(0u, 1u, (kept << shift) != a.x);
    let whole = (significand >> 8u) + (((significand & 0xffu) + 0x7fu + ((significand >> 8u) & 1u)) >> 8u);
    let bits = (bitcast<u32>(max(exponent, 1i) - 1i) << 23u) + whole;
    return select(select(bits, 0x7f800000u, exponent > 254i), 0u, a.x == 0u) | (sign & 0x80000000u);
}

// (exp(r) - 1) / r - 1 for |r| <= 0.36: r with 32 fractional bits, the result with 31.
fn exp_slope(r: i32) -> i32 {
    let h5 = 427240i;
    let h4 = 2992987i + signed_high_product(h5, r);
    let h3 = 17895641i + signed_high_product(h4, r);
    let h2 = 89477981i + signed_high_product(h3, r);
    let h1 = 357913942i + signed_high_product(h2, r);
    let h0 = 1073741828i + signed_high_product(h1, r);

    return signed_high_product(h0, r);
}

// log(exp(a) + exp(b)) = high + log1p(exp(low - high)). Both are chosen by their bits, so that no compiler can fuse the
// steps that follow with steps that made them. Every step on floats but the last one is exact, or gives no bit of the
// result.
fn f32_logaddexp(a: f32, b: f32) -> f32 {
    let first = bitcast<u32>(a);
    let second = bitcast<u32>(b);
    let first_order = bitcast<i32>(first ^ (bitcast<u32>(bitcast<i32>(first) >> 31u) >> 1u));
    let second_order = bitcast<i32>(second ^ (bitcast<u32>(bitcast<i32>(second) >> 31u) >> 1u));
    let ordered = first_order > second_order;
    let high_bits = select(second, first, ordered);
    let low_bits = select(first, second, ordered);
    let high = bitcast<f32>(high_bits);
    let low = bitcast<f32>(low_bits);
    let distance = high - low;
    // low - high = r - k log(2). Whole numbers overflow in what r is computed from, but r is below 1/2.
    let k = i32(round(min(distance, 128.0f) * 1.4426950f));
    let high_part = i32((high - trunc(high)) * 2147483648.0f);
    let low_part = i32((low - trunc(low)) * 2147483648.0f);
    let r = (low_part - high_part + k * 1488522236i) << 1u;
    let power = 0x80000000u + bitcast<u32>((r >> 1u) + signed_high_product(exp_slope(r), r));  // exp(r)
    // 1 - log(1 + w) / w by a polynomial in g = w - 1/2
    let g = bitcast<i32>((min(power >> bitcast<u32>(clamp(k, 0i, 31i)), 0x7fffffffu) << 1u) ^ 0x80000000u);
    let h10 = -8532797i;
    let h9 = 13977299i + signed_high_product(h10, g);
    let h8 = -17230081i + signed_high_product(h9, g);
    let h7 = 28965709i + signed_high_product(h8, g);
    let h6 = -50885725i + signed_high_product(h7, g);
    let h5 = 88353427i + signed_high_product(h6, g);
    let h4 = -157244007i + signed_high_product(h5, g);
    let h3 = 290716127i + signed_high_product(h4, g);
    let h2 = -569554590i + signed_high_product(h3, g);
    let h1 = 1239214510i + signed_high_product(h2, g);
    let h0 = 812048538i + signed_high_product(h1, g);

    let more = high_product(power, ~bitcast<u32>(max(h0, 0i)));
    let more_bits = bitcast<u32>(f32(bitcast<i32>(more >> 1u))) - ((bitcast<u32>(k) + 30u) << 23u);
    if ((bitcast<u32>(distance) & 0x7fffffffu) < 0x428a0000u) {  // 69
        return high + bitcast<f32>(more_bits);
    }
    return f32_logaddexp_far(high_bits, low_bits, power, bitcast<u32>(k));
}

// The same of numbers that are so far apart that log1p(w) = w = 2^-k power, or infinite, or NaN.
fn f32_logaddexp_far(high_bits: u32, low_bits: u32, power: u32, k: u32) -> f32 {
    let alone = select(high_bits, 0u, high_bits == 0x80000000u);  // what is added makes -0.0 positive
    let high = scaled_from_bits(alone);
    let zeros = countLeadingZeros(power);
    let more = vec2<u32>(power << zeros, 0u - k - zeros);
    let opposed = alone >= 0x80000000u;
    let less = scaled_less(high, more);
    let difference = scaled_subtract(select(high, more, less), select(more, high, less));
    let sum = select(scaled_add(high, more), difference, opposed);
    let near = scaled_round(sum, select(0u, 0x80000000u, opposed & !less));
    let finite = max(high_bits & 0x7fffffffu, low_bits & 0x7fffffffu) < 0x7f800000u;
    let computed = select(alone, near, finite & (bitcast<i32>(k) < 152i));
    let nan = max(high_bits & 0x7fffffffu, low_bits & 0x7fffffffu) > 0x7f800000u;
    return bitcast<f32>(select(computed, 0x7fc00000u, nan));
}

fn combine(a: Element, b: Element) -> Element {
    return f32_logaddexp(a, b);
}
