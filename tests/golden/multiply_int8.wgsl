fn combine(a: Element, b: Element) -> Element {
    return extractBits(a * b, 0u, 8u);
}
