// An integer that orders floats as their values do, -0 below +0.
fn f32_order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffffi);
}

// The same with every NaN equal, below all numbers. By their bits, NaN of one sign are at each end of the order.
// The shift wraps around and brings them together, and the bound makes them equal.
fn f32_order_nan_below(x: f32) -> i32 {
    return max(f32_order(x) + 0x007fffffi, -0x7f000003i);
}

// A NaN operand is the result; of two, `a` is.
fn f32_minimum(a: f32, b: f32) -> f32 {
    return select(b, a, f32_order_nan_below(a) <= f32_order_nan_below(b));
}

fn combine(a: Element, b: Element) -> Element {
    return f32_minimum(a, b);
}
