{#- The other elementary functions of float32; see shared/elementary.wgsl. Comes in: helpers. -#}
{% from "shared/elementary/constants.wgsl" import LOG1P, LN2_SIGNED, LOG2_E_FLOAT, LOG2_E_FLOATS, LOG10_E_FLOATS,
    ERF_FLOATS, ERFC_FLOATS, ERFC_CENTER, ERFC_LOG, TWO_OVER_ROOT_PI, EXP_FLOATS_5, EXP2_FLOATS, EXP_RISE_FLOATS, LOG_TAIL_FLOATS,
    COSH_FLOATS, SINH_FLOATS, TANH_FLOATS, EXP_FALL_FLOATS, TWO_LOG2_E, RECIPROCAL_FLOATS, LN2_SHORT, LOG2_E_ROUGH,
    ARCTANH_FLOATS, ARCSINH_FLOATS %}
{% from "shared/elementary/horner.wgsl" import horner, float_horner, clamped_horner, joined %}
{#- ----- Exponential and hyperbolic functions -#}
{% for suffix in ("", "_odd") %}
{% if "f32_exp" + suffix in helpers %}

fn f32_exp{{ suffix }}(x: f32) -> f32 {
    let parts = exp_parts(x, x);
    if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x42ae0000u) {
        return exp_limit{{ suffix }}(x, exp_sum(parts), 0x42d20000u);
    }
    return exp_joined{{ suffix }}(exp_sum(parts));
}
{% endif %}
{% if "exp_joined" + suffix in helpers %}

// 2^k (top + rest), a normal float, from vec4<u32>(top, rest, k << 23, zero).
fn exp_joined{{ suffix }}(parts: vec4<u32>) -> f32 {
    let significand = {{ joined(suffix, "bitcast<f32>(parts.x)", "bitcast<f32>(parts.y)", "parts.w") }};
    return bitcast<f32>(bitcast<u32>(significand) + parts.z);
}
{% endif %}
{% if "exp_limit" + suffix in helpers %}

// The same for results that may be no normal floats: the sum, with a bit for what it lacks, is rounded in integers.
// From `end` on results are 0 or infinite.
fn exp_limit{{ suffix }}(x: f32, parts: vec4<u32>, end: u32) -> f32 {
    let bits = bitcast<u32>(x);
    let top = bitcast<f32>(parts.x);
    let rest = bitcast<f32>(parts.y);
    let sum = f32_sealed(top + rest, parts.w);
    let lost = bitcast<u32>(rest - f32_sealed(sum - top, parts.w));
    let change = select(select(1u, 0xffffffffu, lost >= 0x80000000u), 0u, (lost << 1u) == 0u);
    let significand = ((bitcast<u32>(sum) << 8u) | 0x80000000u) + change;
    let scale = (bitcast<u32>(sum) >> 23u) - 127u + bitcast<u32>(bitcast<i32>(parts.z) >> 23u);
    let near = scaled_round{{ suffix }}(vec2<u32>(significand, scale), 0u);
    let far = select(0u, 0x7f800000u, bits < 0x80000000u);
    let computed = select(near, far, (bits & 0x7fffffffu) >= end);
    return bitcast<f32>(select(computed, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u));
}
{% endif %}
{% if "f32_exp2" + suffix in helpers %}

// 2^k 2^f. A half of f is added to 1 first, without a loss.
fn f32_exp2{{ suffix }}(x: f32) -> f32 {
    let rounded = bitcast<u32>(x + 12582912.0f);
    let zero = rounded & 0x30000000u;
    let f = x - (bitcast<f32>(rounded ^ zero) - 12582912.0f);
{{ float_horner(EXP2_FLOATS, "f") }}
    let top = f32_sealed(1.0f + 0.5f * f, zero);
    let lost = f32_sealed(0.5f * f - f32_sealed(top - 1.0f, zero), zero);
    let rest = lost + f32_sealed(h0 * f, zero);
    let parts = vec4<u32>(bitcast<u32>(top), bitcast<u32>(rest) ^ zero, rounded << 23u, zero);
    if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x42fb0000u) {
        return exp_limit{{ suffix }}(x, parts, 0x43170000u);
    }
    return exp_joined{{ suffix }}(parts);
}
{% endif %}
{% if "f32_expm1" + suffix in helpers %}

// 2^k (1 - 2^-k + high + rest). From 2^25 on, 1 - 2^-k is the sum of two floats.
fn f32_expm1{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let end = select(0x42b17218u, 0x41880000u, bits >= 0x80000000u);
    if ((bits & 0x7fffffffu) - 0x32000000u >= end - 0x32000000u) {
        return bitcast<f32>(expm1_limit(bits));
    }
    let near = (bits & 0x7fffffffu) < 0x3edc28f6u;  // 0.43
    let parts = exp_parts(x, select(x, 0.0f, near));
    let zero = parts.w;
    let high = bitcast<f32>(parts.x);
    let inverse = bitcast<f32>(0x3f800000u - bitcast<u32>(min(bitcast<i32>(parts.z), 0x20000000i)));
    let base = f32_sealed(1.0f - inverse, zero);
    let base_low = f32_sealed(f32_sealed(1.0f - base, zero) - inverse, zero);
    let top = f32_sealed(base + high, zero);
    let lost = f32_sealed(high - f32_sealed(top - base, zero), zero);
    let rest = f32_sealed(lost + base_low, zero) + bitcast<f32>(parts.y);
    return exp_joined{{ suffix }}(vec4<u32>(bitcast<u32>(top), bitcast<u32>(rest) ^ zero, parts.z, zero));
}
{% endif %}
{% if "expm1_limit" in helpers and not suffix %}

// The bits of expm1 of a number that is tiny, NaN, or has a result of -1 or infinity.
fn expm1_limit(bits: u32) -> u32 {
    let size = bits & 0x7fffffffu;
    let computed = select(select(0x7f800000u, 0xbf800000u, bits >= 0x80000000u), bits, size < 0x32000000u);
    return select(computed, 0x7fc00000u, size > 0x7f800000u);
}
{% endif %}
{% for name in ("sinh", "cosh") %}
{% set is_sinh = name == "sinh" %}
{% if "f32_" + name + suffix in helpers %}

// (2^k exp(r) {{ "-" if is_sinh else "+" }} 2^-k exp(-r)) / 2, from the even and the odd part of exp(r).
fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
{% if is_sinh %}
    if (size - 0x39000000u >= 0x09b2d4fdu) {
        return bitcast<f32>(sinh_limit(bits));
    }
    let near = size < 0x3f0ccccdu;  // 0.55
{% else %}
    if (size >= 0x42b2d4fdu) {
        return bitcast<f32>(sinh_limit(size));
    }
{% endif %}
    let a = bitcast<f32>(size);
    let k = round({{ "select(a, 0.0f, near)" if is_sinh else "a" }} * {{ LOG2_E_FLOAT }});
    let zero = bitcast<u32>(k) & 0xffffu;
    let rounded = bitcast<u32>(k + 12582912.0f);
    let high = f32_sealed(a - k * {{ LN2_SHORT[0] }}, zero);
    let low = f32_clamped(k * {{ LN2_SHORT[1] }});
    let r = f32_sealed(high - low, zero);
    let g = f32_clamped(r * r);
{{ clamped_horner(COSH_FLOATS, "g", "even", "+") }}
{{ clamped_horner(SINH_FLOATS, "g", "odd", "+") }}
    let even = f32_clamped(even0 * g);
    let odd = f32_sealed(f32_clamped(odd0 * g) * r, zero);
    let inverse = bitcast<f32>(max(0x3f800000i - (bitcast<i32>(rounded << 23u) << 1u), 0i));
{% if is_sinh %}
    let base = f32_sealed(1.0f - inverse, zero);
    let base_low = f32_sealed(f32_clamped(1.0f - base) - inverse, zero);
    let first = select(high, high + high, near);
    let opposite = f32_sealed(f32_sealed(odd - even, zero) + select(r, 0.0f, near), zero);
{% else %}
    let base = f32_sealed(1.0f + inverse, zero);
    let base_low = f32_sealed(inverse - f32_sealed(base - 1.0f, zero), zero);
    let first = high;
    let opposite = f32_sealed(f32_sealed(even - odd, zero) - r, zero);
{% endif %}
    let top = f32_sealed(base + first, zero);
    let lost = f32_sealed(first - f32_sealed(top - base, zero), zero);
    let curve = f32_sealed(f32_sealed(even + odd, zero) - low, zero);
    let other = f32_sealed(curve + f32_sealed(opposite * inverse, zero), zero);
    let rest = f32_sealed(lost + base_low, zero) + other;
    let parts = vec4<u32>(bitcast<u32>(top), bitcast<u32>(rest) ^ zero, (rounded << 23u) - 0x800000u, zero);
{% if is_sinh %}
    return bitcast<f32>(bitcast<u32>(exp_joined{{ suffix }}(parts)) | (bits & 0x80000000u));
{% else %}
    return exp_joined{{ suffix }}(parts);
{% endif %}
}
{% endif %}
{% endfor %}
{% if "sinh_limit" in helpers and not suffix %}

// The bits of sinh of a number that is tiny, infinite or NaN, or has an infinite result.
fn sinh_limit(bits: u32) -> u32 {
    let size = bits & 0x7fffffffu;
    let computed = select(0x7f800000u | (bits & 0x80000000u), bits, size < 0x39000000u);
    return select(computed, 0x7fc00000u, size > 0x7f800000u);
}
{% endif %}
{% if "f32_tanh" + suffix in helpers %}

// Below 0.55 it is x - x^3 h(x^2), from there on 2 / (1 + w) - 1 with w = exp(-2 |x|) = 2^-k (1 - p). The larger part of
// (1 + w) / 2 has 12 bits, and so has the guess of its reciprocal, which is too small by a share e.
fn f32_tanh{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits + bits - 0x72000000u >= 0x8d000001u) {
        return bitcast<f32>(tanh_limit(bits));
    }
    let a = min(abs(x), 9.5f);
    let k = trunc(a * {{ TWO_LOG2_E }});
    let zero = bitcast<u32>(k) & 0xffffu;
    let scale = bitcast<f32>(0x3f000000u - (bitcast<u32>(k + 12582912.0f) << 23u));  // 2^-k / 2
    let r = f32_clamped(f32_clamped(2.0f * a - k * {{ LN2_SHORT[0] }}) - k * {{ LN2_SHORT[1] }});
{{ clamped_horner(EXP_FALL_FLOATS, "r") }}
    let p = f32_clamped(r - f32_clamped(f32_clamped(h0 * r) * r));
    let half_w = f32_clamped(scale - p * scale);
    let sum = f32_rough(0.5f + f32_clamped(half_w - 0.00000006f));  // not too large
    let t = f32_clamped(sum - 0.5f);
    let rest = f32_clamped(f32_clamped(scale - t) - p * scale);
    let guess2 = {{ RECIPROCAL_FLOATS[2] }};
{% for power in range(1, -1, -1) %}
    let guess{{ power }} = f32_rough({{ RECIPROCAL_FLOATS[power] }} - t * guess{{ power + 1 }});
{% endfor %}
    let e = f32_clamped(f32_clamped(1.0f - sum * guess0) - f32_clamped(rest * guess0));
    let change = f32_clamped(guess0 * (e + f32_clamped(f32_clamped(e * e) * (1.0f + e))));
    let near = a < 0.55f;
    let g = f32_clamped(a * a);
{{ clamped_horner(TANH_FLOATS, "g", "near") }}
    let fall = f32_clamped(f32_clamped(near0 * g) * a);
    let high = select(f32_clamped(guess0 - 1.0f), a, near);
    let low = select(change, 0.0f - fall, near);
    let value = {{ joined(suffix, "high", "low", "zero") }};
    return bitcast<f32>(bitcast<u32>(value) | (bits & 0x80000000u));
}
{% endif %}
{% if "tanh_limit" in helpers and not suffix %}

// The bits of tanh of a number that is tiny or NaN.
fn tanh_limit(bits: u32) -> u32 {
    return select(bits, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u);
}
{% endif %}
{#- ----- Logarithms -#}
{% if "log1p_limit" in helpers and not suffix %}

// The bits of log1p of a number that is tiny, infinite, NaN, or -1 or less.
fn log1p_limit(bits: u32) -> u32 {
    let computed = select(bits, 0xff800000u, bits == 0xbf800000u);
    return select(computed, 0x7fc00000u, (bits > 0xbf800000u) | ((bits & 0x7fffffffu) > 0x7f800000u));
}
{% endif %}
{% if "arctanh_limit" in helpers and not suffix %}

// The bits of arctanh of a number that is tiny, 1, above 1 or NaN.
fn arctanh_limit(bits: u32) -> u32 {
    let size = bits & 0x7fffffffu;
    let computed = select(bits, 0x7f800000u | (bits & 0x80000000u), size == 0x3f800000u);
    return select(computed, 0x7fc00000u, size > 0x3f800000u);
}
{% endif %}
{% if "arccosh_limit" in helpers and not suffix %}

// The bits of arccosh of a number that is infinite, NaN, or 1 or less.
fn arccosh_limit(bits: u32) -> u32 {
    return select(select(0x7fc00000u, 0u, bits == 0x3f800000u), bits, bits == 0x7f800000u);
}
{% endif %}
{% for name in ("log", "log2", "log10") %}
{% if "f32_" + name + suffix in helpers %}

fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 0x800000u >= 0x7f000000u) {
        return {{ name }}_limit{{ suffix }}(bits);
    }
    return {{ name }}_normal{{ suffix }}(log_split(bits, 0u));
}
{% endif %}
{% if name + "_limit" + suffix in helpers %}

// The same for a number that is subnormal, not positive, infinite or NaN. Times 2^149 a subnormal is whole.
fn {{ name }}_limit{{ suffix }}(bits: u32) -> f32 {
    let whole = bitcast<u32>(f32(bitcast<i32>(bits)));
    let value = {{ name }}_normal{{ suffix }}(log_split(whole, 0x4a800000u));
    let special = select(select(0x7fc00000u, bits, bits == 0x7f800000u), 0xff800000u, (bits << 1u) == 0u);
    return select(value, bitcast<f32>(special), bits - 1u >= 0x7fffffu);
}
{% endif %}
{% if name + "_normal" + suffix in helpers %}

fn {{ name }}_normal{{ suffix }}(parts: vec4<u32>) -> f32 {
    let sum = log_pair(parts);
    let zero = sum.z;
{% if name == "log" %}
    let high = bitcast<f32>(sum.x);
    let low = bitcast<f32>(sum.y);
{% else %}
{% set factor = LOG2_E_FLOATS if name == "log2" else LOG10_E_FLOATS %}
    let top = f32_rough(bitcast<f32>(sum.x) + bitcast<f32>(sum.y));
    let rest = f32_sealed(bitcast<f32>(sum.x) - top, zero) + bitcast<f32>(sum.y);
    let high = f32_sealed(top * {{ factor[0] }}, zero);  // exact
    let low = f32_sealed(f32_sealed(top * {{ factor[1] }}, zero) + f32_sealed(rest * {{ factor[2] }}, zero), zero);
{% endif %}
    return {{ joined(suffix, "high", "low", "zero") }};
}
{% endif %}
{% endfor %}
{% if "f32_log1p" + suffix in helpers %}

// log(s) + (1 + x - s) / s with the float s that is nearest to 1 + x. Near 0 the rest r is x itself.
fn f32_log1p{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (((bits & 0x7fffffffu) - 0x32000000u >= 0x4d800000u) | (bits >= 0xbf800000u)) {
        return bitcast<f32>(log1p_limit(bits));
    }
    let near_sum = bitcast<u32>(1.0f + x);
    let parts = log_split(near_sum, 0u);
    let zero = parts.z;
    let lost = min(x, 1.0f) - f32_sealed(bitcast<f32>(near_sum ^ zero) - max(x, 1.0f), zero);
    let near = parts.y == 0u;
    let far = log_corrected(parts, near_sum, select(lost, 0.0f, near));
    let total = log_pair(vec4<u32>(select(far.x, bits, near), far.y, zero, far.w));
    return {{ joined(suffix, "bitcast<f32>(total.x)", "bitcast<f32>(total.y)", "zero") }};
}
{% endif %}
{% if "f32_arcsinh" + suffix in helpers %}

// log(a + sqrt(a^2 + 1)) of a = |x|, below 0.3 a + a^3 h. From 2^12 on it is log(2 a).
fn f32_arcsinh{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size - 0x39000000u >= 0x46800000u) {
        return bitcast<f32>(select(bits, 0x7fc00000u, size > 0x7f800000u));
    }
    let near = size < 0x3e99999au;
    let large = size >= 0x45800000u;
    let a = bitcast<f32>(min(size, 0x45800000u));
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let root = root_of_square(a, 1.0f, zero);
    let root_high = bitcast<f32>(root.x);
    let sum = f32_sealed(root_high + a, zero);
    let lost = f32_sealed(a - f32_sealed(sum - root_high, zero), zero) + bitcast<f32>(root.y);
    let whole = select(bitcast<u32>(sum), size + 0x800000u, large);
    let far = log_pair(log_corrected(log_split(whole, 0u), bitcast<u32>(sum), select(f32_sealed(lost, zero), 0.0f, large)));
    let g = f32_clamped(a * a);
{{ clamped_horner(ARCSINH_FLOATS, "g") }}
    let bend = f32_clamped(f32_clamped(h0 * g) * a);
    let high = select(bitcast<f32>(far.x), a, near);
    let low = select(bitcast<f32>(far.y), 0.0f - bend, near);
    let value = {{ joined(suffix, "high", "low", "zero") }};
    return bitcast<f32>(bitcast<u32>(value) | (bits & 0x80000000u));
}
{% endif %}
{% if "f32_arccosh" + suffix in helpers %}

// log1p(t + sqrt(t^2 + 2 t)) of t = x - 1. From 2^12 on it is log(2 x).
fn f32_arccosh{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 0x3f800001u >= 0x3fffffffu) {
        return bitcast<f32>(arccosh_limit(bits));
    }
    let large = bits >= 0x45800000u;
    let a = bitcast<f32>(min(bits, 0x45800000u));
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let t = f32_sealed(a - 1.0f, zero);  // exact
    let root = root_of_square(t, 2.0f * t, zero);
    let root_high = bitcast<f32>(root.x);
    let y = f32_sealed(root_high + t, zero);
    let y_low = f32_sealed(f32_sealed(t - f32_sealed(y - root_high, zero), zero) + bitcast<f32>(root.y), zero);
    let sum = f32_sealed(1.0f + y, zero);
    let above = y > 1.0f;
    let rest = f32_sealed(select(y, 1.0f, above) - f32_sealed(sum - select(1.0f, y, above), zero), zero);
    let lost = select(f32_sealed(rest + y_low, zero), 0.0f, large);
    let parts = log_split(select(bitcast<u32>(sum), bits + 0x800000u, large), 0u);
    let near = parts.y == 0u;
    let far = log_corrected(parts, bitcast<u32>(sum), select(lost, y_low, near));
    let total = log_pair(vec4<u32>(select(far.x, bitcast<u32>(y), near), far.y, far.z, far.w));
    return {{ joined(suffix, "bitcast<f32>(total.x)", "bitcast<f32>(total.y)", "zero") }};
}
{% endif %}
{% if "f32_arctanh" + suffix in helpers %}

// log((1 + a) / (1 - a)) / 2 of a = |x|, below 0.3 a + a^3 h.
fn f32_arctanh{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size - 0x39000000u >= 0x06800000u) {
        return bitcast<f32>(arctanh_limit(bits));
    }
    let near = size < 0x3e99999au;
    let a = bitcast<f32>(size);
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let above = f32_sealed(1.0f + a, zero);
    let above_lost = f32_sealed(a - f32_sealed(above - 1.0f, zero), zero);
    let below = f32_sealed(1.0f - a, zero);
    let below_lost = f32_sealed(f32_sealed(1.0f - below, zero) - a, zero);
    let below_rough = f32_rough(below);
    let inverse = reciprocal_pair(below_rough, f32_sealed(below - below_rough, zero) + below_lost, zero);
    let factor = bitcast<f32>(inverse.x);
    let above_rough = f32_rough(above);
    let top = above_rough * factor;  // exact
    let above_rest = f32_sealed(f32_sealed(above - above_rough, zero) + above_lost, zero);
    let rest = f32_sealed(f32_sealed(above_rest * factor, zero) + f32_sealed(above * bitcast<f32>(inverse.y), zero), zero);
    let ratio = bitcast<u32>(top + rest);
    let lost = f32_sealed(rest - f32_sealed(bitcast<f32>(ratio ^ zero) - top, zero), zero);
    let far = log_pair(log_corrected(log_split(ratio, 0u), ratio, lost));
    let g = f32_clamped(a * a);
{{ clamped_horner(ARCTANH_FLOATS, "g", sign="+") }}
    let bend = f32_clamped(f32_clamped(h0 * g) * a);
    let high = select(0.5f * bitcast<f32>(far.x), a, near);
    let low = select(0.5f * bitcast<f32>(far.y), bend, near);
    let value = {{ joined(suffix, "high", "low", "zero") }};
    return bitcast<f32>(bitcast<u32>(value) | (bits & 0x80000000u));
}
{% endif %}
{% if "f32_cbrt" + suffix in helpers %}

// The root of a number from 1/2 to 4, and a third of the rest of the exponent: by a guess of its reciprocal to 4 %, a
// root with 12 bits and a remainder.
fn f32_cbrt{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size - 1u >= 0x7f7fffffu) {
        return bitcast<f32>(select(bits, 0x7fc00000u, size > 0x7f800000u));
    }
    let whole = bitcast<u32>(f32(bitcast<i32>(size)));
    let subnormal = size < 0x800000u;
    let scaled = select(size, whole + 0x800000u, subnormal);  // a subnormal number times 2^150
    let third = ((scaled >> 23u) * 171u) >> 9u;
    let unit = scaled - ((3u * third) << 23u);
    let a = bitcast<f32>(unit + 0x3f000000u);
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let guess = bitcast<f32>(0x3fa1f400u - (((unit >> 8u) * 0x5555u) >> 8u));
    let cube = f32_sealed(f32_sealed(guess * guess, zero) * f32_sealed(a * guess, zero), zero);
    let e = f32_sealed(1.0f - cube, zero);
    let e2 = 0.22222222f + f32_sealed(0.17283951f * e, zero);
    let e1 = 0.33333334f + f32_sealed(e2 * e, zero);
    let inverse = f32_sealed(guess + f32_sealed(f32_sealed(e1 * e, zero) * guess, zero), zero);
    let square = f32_sealed(inverse * inverse, zero);
    let root = bitcast<f32>((bitcast<u32>(a * square) + 0x800u) & 0xfffff000u);
    let high = f32_rough(root * root);
    let rest = f32_sealed(a - high * root, zero) - (root * root - high) * root;  // products are exact
    let change = f32_sealed(f32_sealed(rest * square, zero) * 0.33333334f, zero);
    let low = f32_sealed(change + f32_sealed(f32_sealed(change * change, zero) * inverse, zero), zero);
    let computed = {{ joined(suffix, "root", "low", "zero") }};
    let power = (third << 23u) - select(0x15000000u, 0x2e000000u, subnormal);
    return bitcast<f32>((bitcast<u32>(computed) + power) | (bits & 0x80000000u));
}
{% endif %}
{% if "f32_erf" + suffix in helpers %}

// Below 0.85 it is x + x h(x^2), from there on 1 - exp(d + u h(u)) with u = x - c. The two share the steps of a
// polynomial.
fn f32_erf{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size - 0x10000000u >= 0x6f800001u) {
        return erf_limit{{ suffix }}(bits);
    }
    let near = size < 0x3f59999au;
    let a = bitcast<f32>(min(size, 0x40800000u));
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let u = a - {{ ERFC_CENTER }};  // exact
    let g = select(u, f32_clamped(a * a), near);
{% for power in range(6, -1, -1) %}
    let c{{ power }} = select({{ ERFC_FLOATS[power] }}, {{ ERF_FLOATS[power] }}, near);
    let h{{ power }} = c{{ power }}{% if not loop.first %} + f32_sealed(h{{ power + 1 }} * g, zero){% endif %};
{% endfor %}
    let bend = f32_sealed(h0 * select(u, a, near), zero);
    let rounded = bitcast<u32>(f32_rough({{ ERFC_LOG }} + bend) * {{ LOG2_E_ROUGH }} + 12582912.0f);
    let k = bitcast<f32>(rounded ^ zero) - 12582912.0f;
    let first = f32_sealed(bend - k * {{ LN2_SHORT[1] }}, zero);
    let r = f32_sealed(f32_sealed({{ ERFC_LOG }} - k * {{ LN2_SHORT[0] }}, zero) + first, zero);
{{ float_horner(EXP_FLOATS_5, "r", "e") }}
    let curve = f32_sealed(f32_sealed(f32_clamped(r * r) * e0, zero) + r, zero);
    let rest = bitcast<f32>((bitcast<u32>(1.0f + curve) + (rounded << 23u)) ^ 0x80000000u);
    let high = select(1.0f, a, near);
    let low = select(rest, bend, near);
    let computed = {{ joined(suffix, "high", "low", "zero") }};
    return bitcast<f32>(bitcast<u32>(computed) | (bits & 0x80000000u));
}
{% endif %}
{% if "erf_limit" + suffix in helpers %}

// The same for tiny numbers and NaN.
fn erf_limit{{ suffix }}(bits: u32) -> f32 {
    let computed = scaled_round{{ suffix }}(scaled_multiply(scaled_from_bits(bits), vec2<u32>({{ TWO_OVER_ROOT_PI }}, 0u)), bits);
    return bitcast<f32>(select(computed, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u));
}
{% endif %}
{% endfor %}
{#- ----- Functions of two arguments -#}
{% if "f32_logaddexp" in helpers %}

// log(exp(a) + exp(b)) = high + log1p(exp(low - high)). Both are chosen by their bits, so that no compiler can fuse the
// steps that follow with steps that made them. Every step on floats but the last one is exact, or gives no bit of the
// result.
fn f32_logaddexp(a: f32, b: f32) -> f32 {
    let first = bitcast<u32>(a);
    let second = bitcast<u32>(b);
    let first_order = bitcast<i32>(first ^ (bitcast<u32>(bitcast<i32>(first) >> 31u) >> 1u));
    let second_order = bitcast<i32>(second ^ (bitcast<u32>(bitcast<i32>(second) >> 31u) >> 1u));
    let ordered = first_order > second_order;
    let high_bits = select(second, first, ordered);
    let low_bits = select(first, second, ordered);
    let high = bitcast<f32>(high_bits);
    let low = bitcast<f32>(low_bits);
    let distance = high - low;
    // low - high = r - k log(2). Whole numbers overflow in what r is computed from, but r is below 1/2.
    let k = i32(round(min(distance, 128.0f) * {{ LOG2_E_FLOAT }}));
    let high_part = i32((high - trunc(high)) * 2147483648.0f);
    let low_part = i32((low - trunc(low)) * 2147483648.0f);
    let r = (low_part - high_part + k * {{ LN2_SIGNED }}) << 1u;
    let power = 0x80000000u + bitcast<u32>((r >> 1u) + signed_high_product(exp_slope(r), r));  // exp(r)
    // 1 - log(1 + w) / w by a polynomial in g = w - 1/2
    let g = bitcast<i32>((min(power >> bitcast<u32>(clamp(k, 0i, 31i)), 0x7fffffffu) << 1u) ^ 0x80000000u);
{{ horner(LOG1P, "g") }}
    let more = high_product(power, ~bitcast<u32>(max(h0, 0i)));
    let more_bits = bitcast<u32>(f32(bitcast<i32>(more >> 1u))) - ((bitcast<u32>(k) + 30u) << 23u);
    if ((bitcast<u32>(distance) & 0x7fffffffu) < 0x428a0000u) {  // 69
        return high + bitcast<f32>(more_bits);
    }
    return f32_logaddexp_far(high_bits, low_bits, power, bitcast<u32>(k));
}
{% endif %}
{% if "f32_logaddexp_far" in helpers %}

// The same of numbers that are so far apart that log1p(w) = w = 2^-k power, or infinite, or NaN.
fn f32_logaddexp_far(high_bits: u32, low_bits: u32, power: u32, k: u32) -> f32 {
    let alone = select(high_bits, 0u, high_bits == 0x80000000u);  // what is added makes -0.0 positive
    let high = scaled_from_bits(alone);
    let zeros = countLeadingZeros(power);
    let more = vec2<u32>(power << zeros, 0u - k - zeros);
    let opposed = alone >= 0x80000000u;
    let less = scaled_less(high, more);
    let difference = scaled_subtract(select(high, more, less), select(more, high, less));
    let sum = select(scaled_add(high, more), difference, opposed);
    let near = scaled_round(sum, select(0u, 0x80000000u, opposed & !less));
    let finite = max(high_bits & 0x7fffffffu, low_bits & 0x7fffffffu) < 0x7f800000u;
    let computed = select(alone, near, finite & (bitcast<i32>(k) < 152i));
    let nan = max(high_bits & 0x7fffffffu, low_bits & 0x7fffffffu) > 0x7f800000u;
    return bitcast<f32>(select(computed, 0x7fc00000u, nan));
}
{% endif %}
{% if "f32_power" in helpers %}

fn f32_power(base: f32, exponent: f32) -> f32 {
    let bits = bitcast<u32>(base);
    let value = power_parts(bits & 0x7fffffffu, 0u, exponent);
    if ((bits - 0x800000u >= 0x7f000000u) | (value.z >= 0x42adcccdu)) {
        return power_limit(base, exponent, value);
    }
    return bitcast<f32>(value.x + value.y);
}
{% endif %}
{% if "power_parts" in helpers %}

// exp(exponent log(base)) of a positive normal number times 2^-shift: significand, power of two, and the bits of
// |exponent log(base)|. The logarithm is the sum of two floats, and so is its product with the exponent.
fn power_parts(base: u32, shift: u32, exponent: f32) -> vec4<u32> {
    let parts = log_reduced(base, shift);
    let log_zero = parts.w;
    let r = bitcast<f32>(parts.x);
    let offset = bitcast<f32>(parts.y);
    // r^2 / 2 as the sum of two floats, the first of them exact
    let r_high = f32_rough(r);
    let fall = 0.5f * (r_high * r_high);
    let fall_low = f32_clamped((r - r_high) * (0.5f * (r + r_high)));
    let u = r + 0.140625f;
{{ clamped_horner(LOG_TAIL_FLOATS, "u", "tail") }}
    let bend = f32_sealed(f32_clamped(tail0 * f32_clamped(r * r)) * r, log_zero);
    // 12 bits of the logarithm, and the rest. The other exact terms then add up to a number with few bits.
    let log_high = f32_rough(offset + f32_sealed(r - f32_sealed(fall - bend, log_zero), log_zero));
    let left = f32_sealed(f32_sealed(offset - log_high, log_zero) + r, log_zero);
    let more = f32_sealed(bitcast<f32>(parts.z ^ log_zero) + f32_sealed(bend - fall_low, log_zero), log_zero);
    let log_low = f32_sealed(f32_sealed(left - fall, log_zero) + more, log_zero);
    // The product, with an exact part, then 2^k exp(f). If the base is a constant, compilers know `log_zero`.
    let times = f32_rough(exponent);
    let product = times * log_high;
    let k = round(product * {{ LOG2_E_FLOAT }});
    let zero = bitcast<u32>(k) & 0xffffu;
    let product_low = f32_sealed((exponent - times) * log_high + f32_sealed(exponent * log_low, zero), zero);
    let f_high = f32_sealed(product - k * {{ LN2_SHORT[0] }}, zero);
    let f_low = f32_sealed(product_low - k * {{ LN2_SHORT[1] }}, zero);
    let f = f32_sealed(f_high + f_low, zero);
    let v = f + 0.4375f;
{{ clamped_horner(EXP_RISE_FLOATS, "v", sign="+") }}
    let curve = f32_sealed(f_low + f32_clamped(f32_clamped(f * f) * h0), zero);
    let significand = bitcast<u32>(1.0f + f32_sealed(f_high + curve, zero));
    let power = bitcast<u32>(k + 12582912.0f) << 23u;
    return vec4<u32>(significand, power, bitcast<u32>(product) & 0x7fffffffu, 0u);
}
{% endif %}
{% if "power_limit" in helpers %}

// The same for bases that are no positive normal floats, and results that may be none.
fn power_limit(base: f32, exponent: f32, value: vec4<u32>) -> f32 {
    let size = bitcast<u32>(base) & 0x7fffffffu;
    let whole = bitcast<u32>(f32(bitcast<i32>(size)));  // a subnormal number times 2^149
    if (size - 1u < 0x7fffffu) {
        return power_special(base, exponent, power_parts(whole, 0x4a800000u, exponent));
    }
    return power_special(base, exponent, value);
}
{% endif %}
{% if "power_special" in helpers %}

// The result with its sign, and for zero, infinity and NaN by cases, as C's pow has them.
fn power_special(base: f32, exponent: f32, value: vec4<u32>) -> f32 {
    let bits = bitcast<u32>(base);
    let size = bits & 0x7fffffffu;
    let times = bitcast<u32>(exponent) & 0x7fffffffu;
    let is_whole = bitcast<u32>(round(exponent)) == bitcast<u32>(exponent);
    let is_odd = is_whole & (bitcast<u32>(round(exponent * 0.5f) * 2.0f) != bitcast<u32>(exponent));
    let sign = select(0u, bits & 0x80000000u, is_odd);
    let defined = (bits < 0x80000000u) | is_whole;
    let scale = (value.x >> 23u) - 127u + bitcast<u32>(bitcast<i32>(value.y) >> 23u);
    let power = scaled_round(vec2<u32>((value.x << 8u) | 0x80000000u, scale), sign);
    let limit = (size == 0u) | (size == 0x7f800000u) | (times == 0x7f800000u) | (value.z >= 0x42d06666u);
    let grows = (size > 0x3f800000u) == (bitcast<u32>(exponent) < 0x80000000u);
    let extreme = select(power, select(0u, 0x7f800000u, grows) | sign, limit);
    let undefined = !defined & (size - 1u < 0x7f7fffffu) & (times < 0x7f800000u);
    let nan = undefined | (size > 0x7f800000u) | (times > 0x7f800000u);
    let one = (times == 0u) | (bits == 0x3f800000u) | ((size == 0x3f800000u) & (times == 0x7f800000u));
    return bitcast<f32>(select(select(extreme, 0x7fc00000u, nan), 0x3f800000u, one));
}
{% endif %}
