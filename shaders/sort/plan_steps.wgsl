{#- Choose the digits that are sorted by, and the arrays between which each step moves the elements. The last step
    writes the result, and those before it alternate between the temporary array and the result. Rows that are in order
    already take one step, which keeps the order.
    in:  differences: the bits in which keys differ, and 1 unless rows are in order
    out: steps
    Values: digits; radix_bits; workgroup_size. -#}
{% include "sort/params.wgsl" %}

@group(0) @binding(0) var<storage, read> differences: array<u32, 3>;
@group(0) @binding(1) var<storage, read_write> steps: array<Step, DIGITS>;

fn is_needed(digit: u32) -> bool {
    if (differences[2] == 0u) {
        return digit == 0u;
    }
    let bit = digit * RADIX_BITS;
    return ((differences[bit / 32u] >> (bit % 32u)) & (RADIX - 1u)) != 0u;
}

@compute @workgroup_size(1)
fn main() {
    var first = DIGITS;
    for (var digit = 0u; digit < DIGITS; digit++) {
        if (first == DIGITS && is_needed(digit)) {
            first = digit;
        }
    }
    first %= DIGITS;
    let mask = select(0u, RADIX - 1u, differences[2] == 1u);
    var destination = 1u;
    var is_last = 1u;
    for (var digit = DIGITS; digit > 0u; digit--) {
        let number = digit - 1u;
        if (number == first || is_needed(number)) {
            let is_first = number == first;
            let source = select(3u - destination, 0u, is_first);
            steps[number] = Step(1u, source, destination, u32(is_first), is_last, mask);
            destination = 3u - destination;
            is_last = 0u;
        } else {
            steps[number] = Step();
        }
    }
}
