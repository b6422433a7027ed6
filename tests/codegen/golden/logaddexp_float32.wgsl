// Return the bits without the sign.
fn f32_magnitude(x: f32) -> u32 {
    return bitcast<u32>(x) & 0x7fffffffu;
}

fn f32_isfinite(x: f32) -> bool {
    return f32_magnitude(x) < 0x7f800000u;
}

// An integer that orders floats as their values do, -0 below +0.
fn f32_order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffffi);
}

// The same with every NaN at one place above all numbers. By their bits, NaN of one sign are at each end of the order.
// The shift wraps around and brings them together, and the bound makes them equal.
fn f32_order_nan_above(x: f32) -> i32 {
    return min(f32_order(x) - 0x007fffffi, 0x7f000002i);
}

// The same with every NaN at one place below all numbers. By their bits, NaN of one sign are at each end of the order.
// The shift wraps around and brings them together, and the bound makes them equal.
fn f32_order_nan_below(x: f32) -> i32 {
    return max(f32_order(x) + 0x007fffffi, -0x7f000003i);
}

// A NaN operand is the result; of two, `a` is.
fn f32_minimum(a: f32, b: f32) -> f32 {
    return select(b, a, f32_order_nan_below(a) <= f32_order_nan_below(b));
}

// A NaN operand is the result; of two, `a` is.
fn f32_maximum(a: f32, b: f32) -> f32 {
    return select(b, a, f32_order_nan_above(a) >= f32_order_nan_above(b));
}

// log(exp(a) + exp(b)). Terms further apart than 18 leave the larger one as it is.
fn f32_logaddexp(a: f32, b: f32) -> f32 {
    let high = f32_maximum(a, b);
    let low = f32_minimum(a, b);
    let near = f32_isfinite(high) & f32_isfinite(low) & (high - low < 18.0f);
    let ratio = exp(select(0.0f, low - high, near));
    return select(high, high + f32_log1p(ratio), near);
}

// log(1 + x); for small x by the series of 2 atanh(x / (2 + x)).
fn f32_log1p(x: f32) -> f32 {
    let s = x / (2.0f + x);
    let z = s * s;
    var series = 0.09090909090909091f;
    series = 0.1111111111111111f + z * series;
    series = 0.14285714285714285f + z * series;
    series = 0.2f + z * series;
    series = 0.3333333333333333f + z * series;
    series = 1.0f + z * series;
    return select(log(1.0f + x), 2.0f * s * series, abs(x) < 0.5f);
}

fn combine(a: Element, b: Element) -> Element {
    return f32_logaddexp(a, b);
}
