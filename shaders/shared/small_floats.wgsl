{#- 16-bit floats, exact and rounded to nearest even. By their bits, since WGSL's own packing may flush or round
    differently, unless the probe found that it does not.
    Values: conversions, the names in use; packs_halves. -#}
{% if packs_halves %}
{% if "half_to_float" in conversions %}
fn half_to_float(half: u32) -> f32 {
    return unpack2x16float(half).x;
}
{% endif %}
{% if "float_to_half" in conversions %}
fn float_to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let nan = ((bits >> 16u) & 0x8000u) | 0x7e00u | ((bits >> 13u) & 0x3ffu);  // an H100 packs all NaN as 0x7fff
    return select(pack2x16float(vec2<f32>(value, 0.0f)), nan, (bits & 0x7fffffffu) > 0x7f800000u);
}
{% endif %}
{% else %}
{% if "half_to_float" in conversions %}
fn half_to_float(half: u32) -> f32 {
    let sign = (half & 0x8000u) << 16u;
    let rest = half & 0x7fffu;
    let normal = (rest << 13u) + select(0x38000000u, 0x70000000u, rest >= 0x7c00u);  // infinity and NaN keep all ones
    let small = bitcast<u32>(f32(rest) * 0x1p-24f);  // a subnormal half is a normal float
    return bitcast<f32>(sign | select(normal, small, rest < 0x400u));
}
{% endif %}
{% if "float_to_half" in conversions %}
fn float_to_half(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let rest = bits & 0x7fffffffu;
    let normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u;
    let small = bitcast<u32>(bitcast<f32>(rest) + 0.5f) - 0x3f000000u;  // the sum rounds at 2^-24, a half's last place
    let finite = select(normal, small, rest < 0x38800000u);
    let large = select(0x7c00u, 0x7e00u | ((rest >> 13u) & 0x3ffu), rest > 0x7f800000u);
    return sign | select(finite, large, rest >= 0x477ff000u);
}
{% endif %}
{% endif %}
{% if "bfloat_to_float" in conversions %}
fn bfloat_to_float(bfloat: u32) -> f32 {
    return bitcast<f32>(bfloat << 16u);
}
{% endif %}
{% if "float_to_bfloat" in conversions %}
fn float_to_bfloat(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
{% endif %}
