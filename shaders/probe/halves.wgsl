// Does WGSL's own packing of 16-bit floats, which is an instruction on GPUs, do what NumPy does: is it exact, also for
// subnormal numbers, and does it round to the nearest, ties to even? WGSL also allows other roundings, and zero for
// subnormal numbers.
//
// In:  results, zeroed; 65,536 invocations.
// Out: results.halves_alike: the number of 16-bit patterns for which the packing agrees with the functions of
//      shared/small_floats.wgsl, also for all neighbouring numbers that round differently. Unless it is 65,536, the
//      answer is no.
{% set conversions, packs_halves = ("half_to_float", "float_to_half"), false %}
{% include "probe/results.wgsl" %}

{% include "shared/small_floats.wgsl" %}

const PATTERNS: u32 = 65536u;

fn is_nan(half: u32) -> bool {
    return (half & 0x7fffu) > 0x7c00u;
}

fn alike(half: u32, wanted: u32) -> bool {
    return half == wanted || (is_nan(half) && is_nan(wanted));
}

fn packed_alike(bits: u32) -> bool {
    let value = bitcast<f32>(bits);
    let wanted = float_to_half(value);
    let low = pack2x16float(vec2<f32>(value, 0.0f));
    let high = pack2x16float(vec2<f32>(0.0f, value));
    return alike(low, wanted) && (high & 0xffffu) == 0u && alike(high >> 16u, wanted);
}

fn unpacked_alike(value: f32, half: u32) -> bool {
    let bits = bitcast<u32>(value);
    return bits == bitcast<u32>(half_to_float(half)) || (is_nan(half) && (bits & 0x7fffffffu) > 0x7f800000u);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(global_invocation_id) invocation: vec3<u32>) {
    let half = invocation.x;
    if (half >= PATTERNS) {
        return;
    }
    let both = unpack2x16float(half | (half << 16u));
    let bits = bitcast<u32>(half_to_float(half));
    let rest = half & 0x7fffu;
    let small = bitcast<u32>((f32(rest) + 0.5f) * 0x1p-24f) | (bits & 0x80000000u);
    let middle = select(bits + 0x1000u, small, rest < 0x400u);  // between this number and the next one
    let any_bits = (half << 16u) | half;
    if (unpacked_alike(both.x, half) && unpacked_alike(both.y, half) && packed_alike(bits) && packed_alike(any_bits)
        && packed_alike(middle - 1u) && packed_alike(middle) && packed_alike(middle + 1u)) {
        atomicAdd(&results.halves_alike, 1u);
    }
}
