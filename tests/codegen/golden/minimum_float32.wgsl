// Return the bits without the sign.
fn f32_magnitude(x: f32) -> u32 {
    return bitcast<u32>(x) & 0x7fffffffu;
}

fn f32_isnan(x: f32) -> bool {
    return f32_magnitude(x) > 0x7f800000u;
}

// An integer that orders floats as their values do, -0 below +0.
fn f32_order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffffi);
}

// Return a NaN operand if there is one.
fn f32_minimum(a: f32, b: f32) -> f32 {
    let ahead = f32_order(a) <= f32_order(b);
    return select(b, a, f32_isnan(a) | (ahead & !f32_isnan(b)));
}

fn combine(a: Element, b: Element) -> Element {
    return f32_minimum(a, b);
}
