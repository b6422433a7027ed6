fn combine(a: Element, b: Element) -> Element {
    return a + b;
}
