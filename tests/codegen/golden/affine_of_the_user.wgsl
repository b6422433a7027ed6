fn combine(a: Element, b: Element) -> Element {
    return Element(a.gain * b.gain, b.gain * a.shift + b.shift);
}
