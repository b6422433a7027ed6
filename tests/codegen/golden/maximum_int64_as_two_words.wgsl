fn wide_signed_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) | ((a.y == b.y) & (a.x < b.x));
}

fn wide_signed_maximum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, wide_signed_less(a, b));
}

fn combine(a: Element, b: Element) -> Element {
    return wide_signed_maximum(a, b);
}
