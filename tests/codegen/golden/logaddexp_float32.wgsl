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

fn words_negate(a: vec2<u32>, negated: bool) -> vec2<u32> {
    return select(a, vec2<u32>(0u - a.x, ~a.y + select(0u, 1u, a.x == 0u)), negated);
}

// The magnitude of a float.
fn scaled_from_bits(bits: u32) -> vec2<u32> {
    let size = bits & 0x7fffffffu;
    let zeros = countLeadingZeros(size | 1u);
    let normal = size >= 0x800000u;
    let significand = select(size << zeros, (size << 8u) | 0x80000000u, normal);
    return vec2<u32>(significand, select(0u - 118u - zeros, (size >> 23u) - 127u, normal));
}

// A number below 2^31 with 32 fractional bits.
fn scaled_to_words(a: vec2<u32>) -> vec2<u32> {
    let left = min(a.y + 1u, 31u);
    let right = min(0u - 1u - a.y, 31u);
    let large = bitcast<i32>(a.y) >= 0i;
    let gone = bitcast<i32>(a.y) < -32i;
    let low = select(select(a.x >> right, 0u, gone), a.x << left, large);
    return vec2<u32>(low, select(0u, (a.x >> 1u) >> (31u - left), large));
}

fn scaled_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}

fn scaled_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = high_product(a.x, b.x);
    let top = product >> 31u;
    return vec2<u32>(product << (1u - top), a.y + b.y + top);
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
    let shift = bitcast<u32>(clamp(1i - exponent, 0i, 31i));
    let kept = a.x >> shift;
    let significand = kept | select(0u, 1u, (kept << shift) != a.x);
    let whole = (significand >> 8u) + (((significand & 0xffu) + 0x7fu + ((significand >> 8u) & 1u)) >> 8u);
    let bits = (bitcast<u32>(max(exponent, 1i) - 1i) << 23u) + whole;
    return select(select(bits, 0x7f800000u, exponent > 254i), 0u, a.x == 0u) | (sign & 0x80000000u);
}

// exp of words in two's complement with 32 fractional bits, below 2^8: 2^k exp(r) with |r| <= 0.36.
fn exp_fixed(a: vec2<u32>) -> vec2<u32> {
    let eighth_bits = bitcast<i32>((a.y << 8u) | (a.x >> 24u));
    let k = (eighth_bits * 23637i + 0x200000i) >> 22u;  // log2(e) with 14 fractional bits
    let r = bitcast<i32>(a.x - bitcast<u32>(k) * 0xb17217f7u) - ((k * 53711i) >> 16u);
    return exp_reduced(r, bitcast<u32>(k));
}

// 2^k exp(r), with r of 32 fractional bits.
fn exp_reduced(r: i32, k: u32) -> vec2<u32> {
    let value = 0x80000000u + bitcast<u32>((r >> 1u) + signed_high_product(exp_slope(r), r));
    let top = value >> 31u;
    return vec2<u32>(value << (1u - top), k + top - 1u);
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

// log(exp(a) + exp(b)) = high + log1p(exp(low - high)).
fn f32_logaddexp(a: f32, b: f32) -> f32 {
    let first = bitcast<u32>(a);
    let second = bitcast<u32>(b);
    let first_order = first ^ select(0x80000000u, 0xffffffffu, first >= 0x80000000u);
    let second_order = second ^ select(0x80000000u, 0xffffffffu, second >= 0x80000000u);
    let higher = select(second, first, first_order > second_order);
    let high_bits = select(higher, 0u, higher == 0x80000000u);  // what is added makes -0.0 positive
    let low_bits = select(first, second, first_order > second_order);
    let high = scaled_from_bits(high_bits);
    let low = scaled_from_bits(low_bits);
    let apart = (high_bits ^ low_bits) >= 0x80000000u;
    let swapped = scaled_less(high, low);
    let between = scaled_subtract(select(high, low, swapped), select(low, high, swapped));
    let distance = select(between, scaled_add(high, low), apart);
    let far = (distance.x != 0u) & (bitcast<i32>(distance.y) > 6i);
    let fixed = words_negate(scaled_to_words(select(distance, vec2<u32>(0u, 0u), far)), true);
    let power = exp_fixed(fixed);
    // log(1 + w) / w by a polynomial in g = w - 1/2
    let g = bitcast<i32>(select(scaled_to_words(power).x, 0xffffffffu, power.y == 0u) ^ 0x80000000u);
    let h11 = 5379813i;
    let h10 = -8746207i + signed_high_product(h11, g);
    let h9 = 10287192i + signed_high_product(h10, g);
    let h8 = -17097041i + signed_high_product(h9, g);
    let h7 = 29885589i + signed_high_product(h8, g);
    let h6 = -50914732i + signed_high_product(h7, g);
    let h5 = 88253185i + signed_high_product(h6, g);
    let h4 = -157241428i + signed_high_product(h5, g);
    let h3 = 290720580i + signed_high_product(h4, g);
    let h2 = -569554670i + signed_high_product(h3, g);
    let h1 = 1239214454i + signed_high_product(h2, g);
    let h0 = 812048538i + signed_high_product(h1, g);

    let more = scaled_multiply(power, vec2<u32>(~bitcast<u32>(max(h0, 0i)), 0xffffffffu));
    let opposed = high_bits >= 0x80000000u;
    let less = scaled_less(high, more);
    let difference = scaled_subtract(select(high, more, less), select(more, high, less));
    let sum = select(scaled_add(high, more), difference, opposed);
    let near = scaled_round(sum, select(0u, 0x80000000u, opposed & !less));
    let known = select(near, high_bits, far | (high_bits == 0x7f800000u) | (low_bits == 0xff800000u));
    let nan = max(first & 0x7fffffffu, second & 0x7fffffffu) > 0x7f800000u;
    return bitcast<f32>(select(known, 0x7fc00000u, nan));
}

fn combine(a: Element, b: Element) -> Element {
    return f32_logaddexp(a, b);
}
