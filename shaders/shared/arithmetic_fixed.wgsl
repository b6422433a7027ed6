{#- Steps on float32 and complex64 with the same bits on every device: correctly rounded, with subnormals, and one NaN.
    Comes in: helpers; branches, True to compute in integers only where a branch leads there, which is seldom. CPU
    adapters take long to compile branches. The kernel has the word `params.epoch`, of 16 bits that compilers do not know.
    Compilers fuse products with sums, reorder sums and drop operands if they see them, and drivers may flush
    subnormals. So the operands and the result of each step pass through an opaque word, and what involves subnormals is
    computed in integers. The functions are straight lines, as in shared/elementary.wgsl, so that
    gpuscan/reference/elementary.py can run them. -#}
{% if "f32_settled" in helpers %}

// The same number, but compilers cannot know that, so they compute it by itself.
fn f32_settled(x: f32) -> u32 {
    return bitcast<u32>(x) ^ (params.epoch >> 16u);  // epochs have 16 bits
}
{% endif %}
{% if "f32_hidden" in helpers %}

// A float of these bits, but compilers cannot know them. They would take x - x and x * 0 for 0 if x is infinite.
fn f32_hidden(bits: u32) -> f32 {
    return bitcast<f32>(bits ^ (params.epoch >> 16u));
}
{% endif %}
{% if "f32_enlarged" in helpers %}

// A number below 2^-62 times 2^64. A subnormal is a whole number of 2^-149.
fn f32_enlarged(bits: u32) -> u32 {
    let size = bits & 0x7fffffffu;
    let whole = bitcast<u32>(f32(size & 0x7fffffu)) - 0x2a800000u;
    let small = select(whole, 0u, size == 0u);
    return select(small, size + 0x20000000u, size >= 0x800000u) | (bits & 0x80000000u);
}
{% endif %}
{% if "f32_reduced" in helpers %}

// A multiple of 2^-85 below 1, times 2^-64.
fn f32_reduced(bits: u32) -> u32 {
    let size = bits & 0x7fffffffu;
    let shift = min(65u - min(size >> 23u, 65u), 31u);
    let small = ((size & 0x7fffffu) | 0x800000u) >> shift;
    return select(small, size - 0x20000000u, size >= 0x20800000u) | (bits & 0x80000000u);
}
{% endif %}
{% if "f32_sum" in helpers %}

// Small terms are enlarged before they are added: their sum has no more bits than a float if it is subnormal.
fn f32_sum(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let small = max(x & 0x7fffffffu, y & 0x7fffffffu) < 0x0d800000u;  // 2^-100
{% if branches %}
    let quick = f32_settled(f32_hidden(x) + f32_hidden(y));
    if (!small & ((quick & 0x7fffffffu) <= 0x7f800000u)) {
        return bitcast<f32>(quick);
    }
{% endif %}
    let left = select(x, f32_enlarged(x), small);
    let right = select(y, f32_enlarged(y), small);
    let sum = f32_settled(f32_hidden(left) + f32_hidden(right));
    let computed = select(sum, f32_reduced(sum), small);
    return bitcast<f32>(select(computed, 0x7fc00000u, (computed & 0x7fffffffu) > 0x7f800000u));
}
{% endif %}
{% if "f32_difference" in helpers %}

fn f32_difference(a: f32, b: f32) -> f32 {
    return f32_sum(a, f32_opposite(b));
}
{% endif %}
{% if "f32_product" in helpers %}

// A product that is no normal number above the smallest one is computed from the significands.
fn f32_product(a: f32, b: f32) -> f32 {
    let product = f32_settled(f32_hidden(bitcast<u32>(a)) * f32_hidden(bitcast<u32>(b)));
    let size = product & 0x7fffffffu;
    let x = bitcast<u32>(a) & 0x7fffffffu;
    let y = bitcast<u32>(b) & 0x7fffffffu;
{% if branches %}
    if (((size > 0x00800000u) & (size < 0x7f800000u)) | ((size == 0u) & (min(x, y) == 0u))) {
        return bitcast<f32>(product);
    }
{% endif %}
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    let p = scaled_from_bits(x);
    let q = scaled_from_bits(y);
    let high = high_product(p.x, q.x);
    let low = p.x * q.x;
    let top = high >> 31u;
    let significand = select((high << 1u) | (low >> 31u), high, top == 1u);
    let lost = select(low << 1u, low, top == 1u) != 0u;
    let exact = scaled_round(vec2<u32>(significand | select(0u, 1u, lost), p.y + q.y + top), sign);
    let special = select(sign | 0x7f800000u, 0x7fc00000u, (max(x, y) > 0x7f800000u) | (min(x, y) == 0u));
    let computed = select(exact, special, max(x, y) >= 0x7f800000u);
    return bitcast<f32>(select(computed, product, (size > 0x00800000u) & (size < 0x7f800000u)));
}
{% endif %}
{#- ----- Quick steps
    They have the same bits if neither an operand nor the result is subnormal, which callers make sure of (see "Quick
    steps" in gpuscan/operators/code.py). NaN of a result has another pattern. -#}
{% if "f32_size" in helpers %}

// Grows with the size of a number, but is the largest word for 0.
fn f32_size(x: f32) -> u32 {
    return (bitcast<u32>(x) << 1u) - 1u;
}
{% endif %}
{% for step, sign in (("sum", "+"), ("difference", "-")) %}
{% if "f32_quick_" + step in helpers %}

// Products by 1 are exact, and compilers that do not know the factors reorder no sums across them. With one factor for
// both operands, or for one of them, NVIDIA's compiler would take p - (p - b) for b, where p is a * factor.
fn f32_quick_{{ step }}(a: f32, b: f32) -> f32 {
    return a * f32_hidden(0x3f800000u) {{ sign }} b * bitcast<f32>(0x3f800000u ^ (params.epoch >> 17u));
}
{% endif %}
{% endfor %}
{% if "f32_quick_product" in helpers %}

fn f32_quick_product(a: f32, b: f32) -> f32 {
    return bitcast<f32>(f32_settled(a * b));
}
{% endif %}
{% if "u32_to_f32" in helpers %}

// To the nearest. Drivers agree on signed integers, so large numbers are halved. The lowest bit of a half is set if a bit
// is lost.
fn u32_to_f32(a: u32) -> f32 {
    let half = f32(i32((a >> 1u) | (a & 1u)));
    return select(f32(i32(a)), half + half, a >= 0x80000000u);
}
{% endif %}
{% for name, sign in (("i64", "signed"), ("u64", "unsigned")) %}
{% if name + "_to_f32" in helpers %}

fn {{ name }}_to_f32(a: {{ name }}) -> f32 {
    let words = u64(a);
    return wide_{{ sign }}_to_f32(vec2<u32>(u32(words & 0xfffffffflu), u32(words >> 32u)));
}
{% endif %}
{% endfor %}
{% if "f32_opposite" in helpers %}

fn f32_opposite(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}
{% endif %}
{% if "f32_absolute" in helpers %}

fn f32_absolute(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}
{% endif %}
{% if "f32_part_below_1" in helpers %}

// The bits of a significand that are worth less than 1. They are all but the sign if the number is below 1.
fn f32_part_below_1(size: u32) -> u32 {
    let exponent = size >> 23u;
    return select(0x7fffffu >> min(exponent - 127u, 31u), 0x7fffffffu, exponent < 127u);
}
{% endif %}
{% if "f32_truncate" in helpers %}

// Rounded towards 0.
fn f32_truncate(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return bitcast<f32>(bits & ~f32_part_below_1(bits & 0x7fffffffu));
}
{% endif %}
{% if "f32_outward" in helpers %}

// Rounded away from 0.
fn f32_outward(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let below = f32_part_below_1(size);
    let whole = select((size + below) & ~below, select(0x3f800000u, 0u, size == 0u), size < 0x3f800000u);
    return bitcast<f32>(whole | (bits & 0x80000000u));
}
{% endif %}
{% for name, negative in (("f32_round_down", ">="), ("f32_round_up", "<")) %}
{% if name in helpers %}

fn {{ name }}(x: f32) -> f32 {
    return bitcast<f32>(select(bitcast<u32>(f32_outward(x)), bitcast<u32>(f32_truncate(x)), bitcast<i32>(x) {{ negative }} 0i));
}
{% endif %}
{% endfor %}
{% if "f32_round_to_even" in helpers %}

// The nearest whole number, of two the even one. The bit above the part below 1 tells odd numbers, also if it is the
// lowest of the exponent, which is odd for numbers from 1 to 2.
fn f32_round_to_even(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let below = f32_part_below_1(size);
    let odd = (size >> countOneBits(below)) & below & 1u;
    let whole = select((size + (below >> 1u) + odd) & ~below, select(0u, 0x3f800000u, size > 0x3f000000u), size < 0x3f800000u);
    return bitcast<f32>(whole | (bits & 0x80000000u));
}
{% endif %}
{% if "f32_rank" in helpers %}

// An integer that orders floats as their values do. Both zeros are 0.
fn f32_rank(x: f32) -> i32 {
    let size = bitcast<i32>(bitcast<u32>(x) & 0x7fffffffu);
    return select(size, 0i - size, bitcast<i32>(x) < 0i);
}
{% endif %}
{% for name, comparison in (
    ("less", "<"), ("less_equal", "<="), ("greater", ">"), ("greater_equal", ">="), ("equal", "=="),
) %}
{% if "f32_is_" + name in helpers %}

fn f32_is_{{ name }}(a: f32, b: f32) -> bool {
    return (f32_rank(a) {{ comparison }} f32_rank(b)) & !f32_isnan(a) & !f32_isnan(b);
}
{% endif %}
{% endfor %}
{% if "f32_differs" in helpers %}

fn f32_differs(a: f32, b: f32) -> bool {
    return (f32_rank(a) != f32_rank(b)) | f32_isnan(a) | f32_isnan(b);
}
{% endif %}
{% if "c64_sum" in helpers %}

fn c64_sum(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(f32_sum(a.x, b.x), f32_sum(a.y, b.y));
}
{% endif %}
{% if "c64_difference" in helpers %}

fn c64_difference(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(f32_difference(a.x, b.x), f32_difference(a.y, b.y));
}
{% endif %}
{% if "c64_product" in helpers %}

fn c64_product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let real = f32_difference(f32_product(a.x, b.x), f32_product(a.y, b.y));
    return vec2<f32>(real, f32_sum(f32_product(a.x, b.y), f32_product(a.y, b.x)));
}
{% endif %}
{% if "c64_opposite" in helpers %}

fn c64_opposite(a: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(f32_opposite(a.x), f32_opposite(a.y));
}
{% endif %}
