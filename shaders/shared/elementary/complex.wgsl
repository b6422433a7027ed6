{#- The elementary functions of complex64: each part is rounded once; see shared/elementary.wgsl. Comes in: helpers. -#}
{% if "wave_of_bits" in helpers %}

// |sin(x)| or |cos(x)| of a finite float and its sign, as vec4<u32>(significand, exponent, sign, 0).
fn wave_of_bits(bits: u32, reduced: vec4<u32>, quarter: u32) -> vec4<u32> {
    let quarters = reduced.z + quarter;
    let is_cosine = (quarters & 1u) == 1u;
    let wave = scaled_wave(reduced.xy, is_cosine);
    let side = (quarters >> 1u) ^ select(reduced.w, 0u, is_cosine);
    let tiny = select(scaled_from_bits(bits), vec2<u32>(0x80000000u, 0u), quarter == 1u);
    let computed = select(wave, tiny, (bits & 0x7fffffffu) < 0x39800000u);
    return vec4<u32>(computed.x, computed.y, (side << 31u) ^ select(bits & 0x80000000u, 0u, quarter == 1u), 0u);
}
{% endif %}
{% if "c64_exp" in helpers %}

// NaN has no sign.
fn c64_exp(z: vec2<f32>) -> vec2<f32> {
    let bits = bitcast<u32>(z.x);
    let size = bits & 0x7fffffffu;
    let angle = bitcast<u32>(z.y) & 0x7fffffffu;
    let power = exp_fixed(words_negate(scaled_to_words(scaled_from_bits(min(size, 0x437f0000u))), bits >= 0x80000000u));
    let reduced = scaled_turn(bitcast<u32>(z.y));
    let cosine = wave_of_bits(bitcast<u32>(z.y), reduced, 1u);
    let sine = wave_of_bits(bitcast<u32>(z.y), reduced, 0u);
    let real = scaled_round(scaled_multiply(power, cosine.xy), cosine.z);
    let imag = scaled_round(scaled_multiply(power, sine.xy), sine.z);
    let zero = bits == 0xff800000u;
    let infinite = bits == 0x7f800000u;
    let turning = angle >= 0x7f800000u;
    let y_sign = bitcast<u32>(z.y) & 0x80000000u;
    let real_limit = select(select(real, 0x7f800000u | cosine.z, infinite), select(cosine.z, 0u, turning), zero);
    let imag_limit = select(select(imag, 0x7f800000u | sine.z, infinite), select(sine.z, y_sign, turning), zero);
    let lost = (turning & !zero) | (size > 0x7f800000u);
    let real_end = select(real_limit, select(0x7fc00000u, 0x7f800000u, infinite), lost);
    let imag_end = select(imag_limit, 0x7fc00000u, lost);
    return vec2<f32>(bitcast<f32>(real_end), bitcast<f32>(select(imag_end, bitcast<u32>(z.y), angle == 0u)));
}
{% endif %}
{% if "c64_log" in helpers %}

// The real part is the logarithm of the modulus. Near 1 it is log1p(x^2 + y^2 - 1) / 2, and the difference is exact.
fn c64_log(z: vec2<f32>) -> vec2<f32> {
    let first = bitcast<u32>(z.x) & 0x7fffffffu;
    let second = bitcast<u32>(z.y) & 0x7fffffffu;
    let high = scaled_from_bits(max(first, second));
    let low = scaled_from_bits(min(first, second));
    let square = scaled_add(scaled_multiply(high, high), scaled_multiply(low, low));
    let far_words = log_words(scaled_root(square));
    let far_below = far_words.y >= 0x80000000u;
    let far = scaled_from_words(words_negate(far_words, far_below), 7u);
    // Parts below 2 with 31 fractional bits, squares with 62
    let long = high.x >> min(0u - high.y, 31u);
    let short = select(low.x >> min(0u - low.y, 31u), 0u, bitcast<i32>(low.y) < -31i);
    let long_square = vec2<u32>(long * long, high_product(long, long));
    let short_square = vec2<u32>(short * short, high_product(short, short));
    let squares = words_add(long_square, short_square);
    let excess = vec2<u32>(squares.x, squares.y - 0x40000000u);
    let below = excess.y >= 0x80000000u;
    let near = scaled_log1p(scaled_from_words(words_negate(excess, below), 1u), below);
    let close = (square.y + 1u) < 2u;
    let size = select(far, vec2<u32>(near.x, near.y - 1u), close);
    let real = scaled_round(size, select(0u, 0x80000000u, select(far_below, below, close)));
    let computed = select(real, 0xff800000u, max(first, second) == 0u);
    let nan = select(computed, 0x7fc00000u, max(first, second) > 0x7f800000u);
    let infinite = (first == 0x7f800000u) | (second == 0x7f800000u);
    return vec2<f32>(bitcast<f32>(select(nan, 0x7f800000u, infinite)), f32_arctan2(z.y, z.x));
}
{% endif %}
{% if "c64_sqrt" in helpers %}

// The root with a real part that is not negative: sqrt((|x| + |z|) / 2), and |y| / 2 over it.
fn c64_sqrt(z: vec2<f32>) -> vec2<f32> {
    let first = bitcast<u32>(z.x) & 0x7fffffffu;
    let second = bitcast<u32>(z.y) & 0x7fffffffu;
    let sign = bitcast<u32>(z.y) & 0x80000000u;
    let x = scaled_from_bits(first);
    let y = scaled_from_bits(second);
    let modulus = scaled_root(scaled_add(scaled_multiply(x, x), scaled_multiply(y, y)));
    let twice = scaled_add(select(modulus, x, second == 0u), x);
    let larger = scaled_root(vec2<u32>(twice.x, twice.y - 1u));
    let quotient = scaled_divide(y, larger);
    let smaller = vec2<u32>(quotient.x, quotient.y - 1u);
    let left = bitcast<u32>(z.x) >= 0x80000000u;
    let real = scaled_round(select(larger, smaller, left), 0u);
    let imag = scaled_round(select(smaller, larger, left), sign);
    let zero = max(first, second) == 0u;
    let lost = max(first, second) > 0x7f800000u;
    let wide = first == 0x7f800000u;
    let real_limit = select(select(real, 0u, zero), select(0x7f800000u, 0u, left), wide);
    let imag_limit = select(select(imag, sign, zero), select(0u, 0x7f800000u, left) | sign, wide);
    let real_kept = lost & wide & !left;
    let imag_kept = lost & wide & left;
    let real_end = select(select(real_limit, 0x7fc00000u, lost & !real_kept), 0x7f800000u, second == 0x7f800000u);
    let nan_imag = select(select(imag_limit, 0x7fc00000u, lost & !imag_kept), 0x7f800000u | sign, imag_kept);
    return vec2<f32>(bitcast<f32>(real_end), bitcast<f32>(select(nan_imag, 0x7f800000u | sign, second == 0x7f800000u)));
}
{% endif %}
{% if "hyperbolic_wave" in helpers %}

// Return sinh(h) or cosh(h) times sin(t) or cos(t) as a float, from their magnitudes. The sine of 0 is 0 whatever the
// factor, and so is the hyperbolic sine. An infinite h times the cosine of what is not finite is infinite.
fn hyperbolic_wave(h: u32, size: vec2<u32>, is_sinh: bool, t: u32, wave: vec4<u32>, is_sine: bool) -> u32 {
    let sign = wave.z ^ select(0u, h & 0x80000000u, is_sinh);
    let infinite = (h & 0x7fffffffu) == 0x7f800000u;
    let turning = (t & 0x7fffffffu) >= 0x7f800000u;
    let limit = 0x7f800000u | select(sign, 0u, turning);
    let computed = select(scaled_round(scaled_multiply(size, wave.xy), sign), limit, infinite);
    let lost = ((h & 0x7fffffffu) > 0x7f800000u) | (turning & (!infinite | is_sine));
    let flat = (is_sine & ((t & 0x7fffffffu) == 0u)) | (is_sinh & ((h & 0x7fffffffu) == 0u));
    return select(select(computed, 0x7fc00000u, lost), select(sign, select(h & 0x80000000u, 0u, is_sine), turning), flat);
}
{% endif %}
{% for name, h, t, real, imag in (
    ("sinh", "x", "y", ("true", "false"), ("false", "true")), ("cosh", "x", "y", ("false", "false"), ("true", "true")),
    ("sin", "y", "x", ("false", "true"), ("true", "false")), ("cos", "y", "x", ("false", "false"), ("true", "true")),
) %}
{% if "c64_" + name in helpers %}

fn c64_{{ name }}(z: vec2<f32>) -> vec2<f32> {
    let h = bitcast<u32>(z.{{ h }}){{ " ^ 0x80000000u" if name == "cos" }};
    let t = bitcast<u32>(z.{{ t }});
    let size = min(h & 0x7fffffffu, 0x437f0000u);
    let rise = scaled_sinh(size);
    let mean = scaled_cosh(size);
    let reduced = scaled_turn(t);
    let cosine = wave_of_bits(t, reduced, 1u);
    let sine = wave_of_bits(t, reduced, 0u);
{% for part, (is_sinh, is_sine) in (("real", real), ("imag", imag)) %}
{% set factors = ("rise" if is_sinh == "true" else "mean", "sine" if is_sine == "true" else "cosine") %}
    let {{ part }} = hyperbolic_wave(h, {{ factors[0] }}, {{ is_sinh }}, t, {{ factors[1] }}, {{ is_sine }});
{% endfor %}
    return vec2<f32>(bitcast<f32>(real), bitcast<f32>(imag));
}
{% endif %}
{% endfor %}
{% if "c64_tanh" in helpers %}

// (sinh x cosh x + i sin y cos y) / (sinh(x)^2 + cos(y)^2).
fn c64_tanh(z: vec2<f32>) -> vec2<f32> {
    let x = bitcast<u32>(z.x);
    let y = bitcast<u32>(z.y);
    let size = min(x & 0x7fffffffu, 0x437f0000u);
    let rise = scaled_sinh(size);
    let reduced = scaled_turn(y);
    let cosine = wave_of_bits(y, reduced, 1u);
    let sine = wave_of_bits(y, reduced, 0u);
    let square = scaled_add(scaled_multiply(rise, rise), scaled_multiply(cosine.xy, cosine.xy));
    let sign = sine.z ^ cosine.z;
    let real = scaled_round(scaled_divide(scaled_multiply(rise, scaled_cosh(size)), square), x);
    let imag = scaled_round(scaled_divide(scaled_multiply(sine.xy, cosine.xy), square), sign);
    let infinite = (x & 0x7fffffffu) == 0x7f800000u;
    let turning = (y & 0x7fffffffu) >= 0x7f800000u;
    let flat = (y & 0x7fffffffu) == 0u;
    let lost = ((x & 0x7fffffffu) > 0x7f800000u) | (turning & !infinite);
    let real_known = select(real, 0x3f800000u | (x & 0x80000000u), infinite);
    let imag_known = select(imag, select(sign, 0u, turning), infinite);
    let real_end = select(select(real_known, 0x7fc00000u, lost), x, (x & 0x7fffffffu) == 0u);
    let imag_end = select(select(imag_known, 0x7fc00000u, lost), y, flat);
    return vec2<f32>(bitcast<f32>(real_end), bitcast<f32>(imag_end));
}
{% endif %}
