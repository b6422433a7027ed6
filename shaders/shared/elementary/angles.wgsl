{#- The trigonometric functions of float32 and their inverses; see shared/elementary.wgsl. Comes in: helpers. -#}
{% from "shared/elementary/constants.wgsl" import TAN_FLOATS, ARCSIN_FLOATS, ARCTAN_FLOATS, HALF_TURNS_BITS %}
{% from "shared/elementary/horner.wgsl" import clamped_horner, joined %}
{#- ----- Trigonometric functions -#}
{% for suffix in ("", "_odd") %}
{% for name, quarter in (("sin", 0), ("cos", 1)) %}
{% if "f32_" + name + suffix in helpers %}

fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    if (bitcast<u32>(x) + bitcast<u32>(x) - 0x73000000u >= 0x19900000u) {
        return f32_{{ name }}_far{{ suffix }}(x);
    }
    let wave = wave_near(x, {{ quarter }}u);
    let high = bitcast<f32>(wave.x);
{% if suffix %}
    let size = f32_join_odd(high, bitcast<f32>(wave.y ^ 0x80000000u), wave.w);
{% else %}
    let size = high - bitcast<f32>(wave.y);
{% endif %}
    return bitcast<f32>(bitcast<u32>(size) ^ ((wave.z << 30u) & 0x80000000u));
}
{% endif %}
{% if "f32_" + name + "_far" + suffix in helpers %}

// The same for any float.
fn f32_{{ name }}_far{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let reduced = scaled_turn(bits);
    let quarters = reduced.z{% if quarter %} + 1u{% endif %};
    let is_cosine = (quarters & 1u) == 1u;
    let wave = scaled_wave(reduced.xy, is_cosine);
    let side = (quarters >> 1u) ^ select(reduced.w, 0u, is_cosine);
{% if quarter %}
    let computed = select(scaled_round_normal{{ suffix }}(wave, side << 31u), 0x3f800000u, size < 0x39800000u);
{% else %}
    let computed = select(scaled_round_normal{{ suffix }}(wave, (side << 31u) ^ bits), bits, size < 0x39800000u);
{% endif %}
    return bitcast<f32>(select(computed, 0x7fc00000u, size >= 0x7f800000u));
}
{% endif %}
{% endfor %}
{% if "f32_tan" + suffix in helpers %}

fn f32_tan{{ suffix }}(x: f32) -> f32 {
    if (bitcast<u32>(x) + bitcast<u32>(x) - 0x73000000u >= 0x19900000u) {
        return f32_tan_far{{ suffix }}(x);
    }
    let reduced = turn_near(x);
    let zero = reduced.w;
    let r = bitcast<f32>(reduced.x);
    let g = f32_clamped(r * r);
    // One product is below 0 if g is near 0, and then gives no bit of the result.
{{ clamped_horner(TAN_FLOATS, "g", sign="+") }}
    let bend = f32_sealed(f32_clamped(h0 * g) * r, zero);
    let low = f32_sealed(bend + f32_sealed(bitcast<f32>(reduced.y) * (1.0f + f32_clamped(1.5f * g)), zero), zero);
    let rough = f32_rough(r + low);
    let rough_rest = f32_sealed(r - rough, zero) + low;
    let inverse = reciprocal_pair(rough, rough_rest, zero);
    let odd = (reduced.z & 1u) != 0u;
    let high = select(r, bitcast<f32>(inverse.x), odd);
    let rest = select(low, bitcast<f32>(inverse.y), odd);
    let value = {{ joined(suffix, "high", "rest", "zero") }};
    return bitcast<f32>(bitcast<u32>(value) ^ (reduced.z << 31u));
}
{% endif %}
{% if "f32_tan_far" + suffix in helpers %}

// The same for any float.
fn f32_tan_far{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let reduced = scaled_turn(bits);
    let sine = scaled_wave(reduced.xy, false);
    let cosine = scaled_wave(reduced.xy, true);
    let odd = (reduced.z & 1u) == 1u;
    let ratio = scaled_divide(select(sine, cosine, odd), select(cosine, sine, odd));
    let sign = bits ^ ((reduced.w ^ reduced.z) << 31u);
    let computed = select(scaled_round_normal{{ suffix }}(ratio, sign), bits, size < 0x39800000u);
    return bitcast<f32>(select(computed, 0x7fc00000u, size >= 0x7f800000u));
}
{% endif %}
{% endfor %}
{#- ----- Inverse trigonometric functions -#}
{% if "f32_arctan2" in helpers %}

// The smaller number over the larger one, both with the exponent of the larger one taken off.
fn f32_arctan2(y: f32, x: f32) -> f32 {
    let rise = bitcast<u32>(y) & 0x7fffffffu;
    let run = bitcast<u32>(x) & 0x7fffffffu;
    let high = max(rise, run);
    let low = min(rise, run);
    if ((low < 0x800000u) | (high >= 0x7f800000u) | (high - low >= 0x1e000000u)) {
        return f32_arctan2_limit(y, x);
    }
    let unit = (high & 0x7f800000u) - 0x3f800000u;
    let angle = angle_of(low - unit, high - unit, rise > run, bitcast<u32>(x) >= 0x80000000u);
    return bitcast<f32>(angle_joined(angle.xy, angle.z) | (bitcast<u32>(y) & 0x80000000u));
}
{% endif %}
{% if "f32_arctan2_limit" in helpers %}

// The same for numbers that are zero, subnormal, infinite, NaN, or of very different sizes.
fn f32_arctan2_limit(y: f32, x: f32) -> f32 {
    let rise = bitcast<u32>(y) & 0x7fffffffu;
    let run = bitcast<u32>(x) & 0x7fffffffu;
    let left = bitcast<u32>(x) >= 0x80000000u;
    let steep = rise > run;
    let both = rise == run;
    let high = scaled_from_bits(max(rise, run));
    let low = scaled_from_bits(min(rise, run));
    let apart = high.y - low.y;
    let scaled = (low.x >> 8u) + ((126u - min(apart, 60u)) << 23u);
    let angle = angle_of(scaled, (high.x >> 8u) + 0x3f000000u, steep, left);
    let quotient = bitcast<u32>(f32_divide(bitcast<f32>(rise), bitcast<f32>(run)));
    let flat = select(quotient, {{ HALF_TURNS_BITS[1] }}, left);
    let far = select(flat, {{ HALF_TURNS_BITS[0] }}, steep);
    let computed = select(angle_joined(angle.xy, angle.z), far, (low.x == 0u) | (apart >= 60u) | ((max(rise, run) == 0x7f800000u) & !both));
    let level = select(computed, select(0u, {{ HALF_TURNS_BITS[1] }}, left), rise == 0u);
    let value = level | (bitcast<u32>(y) & 0x80000000u);
    return bitcast<f32>(select(value, 0x7fc00000u, max(rise, run) > 0x7f800000u));
}
{% endif %}
{% if "angle_of" in helpers %}

// The angle, 0 to pi, of a point in one of eight octants, as vec4<u32>(high, low, zero, 0), the sum of two floats.
// `high` is the larger coordinate, from 1 to 2. The quotient of the coordinates, or of their difference and sum, is at
// most 1/2.
fn angle_of(low: u32, high: u32, steep: bool, left: bool) -> vec4<u32> {
    let h = bitcast<f32>(high);
    let l = bitcast<f32>(low);
    let zero = bitcast<u32>(h + 12582912.0f) & 0x30000000u;
    let turned = low + 0x800000u > high;
    let sum = f32_sealed(h + l, zero);
    let lost = f32_sealed(l - f32_sealed(sum - h, zero), zero);
    let above = select(l, h - l, turned);
    let below = select(h, sum, turned);
    let below_rough = f32_rough(below);
    let below_rest = f32_sealed(below - below_rough, zero) + select(0.0f, lost, turned);
    let inverse = reciprocal_pair(below_rough, below_rest, zero);
    let factor = bitcast<f32>(inverse.x);
    let above_rough = f32_rough(above);
    let top = above_rough * factor;  // exact
    let rest = f32_sealed((above - above_rough) * factor + f32_sealed(above * bitcast<f32>(inverse.y), zero), zero);
    let t = f32_sealed(top + rest, zero);
    let g = f32_clamped(t * t);
{{ clamped_horner(ARCTAN_FLOATS, "g") }}
    let bend = f32_clamped(f32_clamped(h0 * g) * t);
    let octant = select(0.0f, 1.0f, turned);
    let quadrant = select(octant, 2.0f - octant, steep);
    let eighths = select(quadrant, 4.0f - quadrant, left);
    let flip = select(0u, 0x80000000u, (turned != steep) != left);
    let angle = angle_sum(eighths, flip, vec2<u32>(bitcast<u32>(top), bitcast<u32>(rest - bend)), zero);
    return vec4<u32>(angle.x, angle.y, zero, 0u);
}
{% endif %}
{% for suffix in ("", "_odd") %}
{% if "f32_arctan" + suffix in helpers %}

fn f32_arctan{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size - 0x39000000u >= 0x46800001u) {
        return bitcast<f32>(select(bits, 0x7fc00000u, size > 0x7f800000u));
    }
    let a = min(size, 0x5d800000u);
    let high = max(a, 0x3f800000u);
    let unit = (high & 0x7f800000u) - 0x3f800000u;
    let angle = angle_of(min(a, 0x3f800000u) - unit, high - unit, size > 0x3f800000u, false);
    return bitcast<f32>(angle_joined{{ suffix }}(angle.xy, angle.z) | (bits & 0x80000000u));
}
{% endif %}
{% if "angle_joined" + suffix in helpers %}

// The bits of the sum of two floats.
fn angle_joined{{ suffix }}(sum: vec2<u32>, zero: u32) -> u32 {
    return bitcast<u32>({{ joined(suffix, "bitcast<f32>(sum.x)", "bitcast<f32>(sum.y)", "zero") }});
}
{% endif %}
{% for name in ("arcsin", "arccos") %}
{% if "f32_" + name + suffix in helpers %}

{% if name == "arcsin" %}
// From 1/2 on it is pi/2 less twice the arcsine of sqrt((1 - x) / 2).
{% else %}
// pi/2 less the arcsine, or twice the arcsine of sqrt((1 - x) / 2).
{% endif %}
fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
{% if name == "arcsin" %}
    if (size - 0x39000000u >= 0x06800001u) {
        return bitcast<f32>(select(bits, 0x7fc00000u, size > 0x3f800000u));
    }
{% else %}
    if (size > 0x3f800000u) {
        return bitcast<f32>(select(bits, 0x7fc00000u, size > 0x3f800000u));  // a constant NaN is an error
    }
    let left = bits >= 0x80000000u;
{% endif %}
    let near = size < 0x3f000000u;
    let a = bitcast<f32>(size);
    let zero = bitcast<u32>(a + 12582912.0f) & 0x30000000u;
    let g = select(0.5f - 0.5f * a, f32_clamped(a * a), near);
    let root = root_pair(g, zero);
{{ clamped_horner(ARCSIN_FLOATS, "g", sign="+") }}
    let side = select(bitcast<f32>(root.x) + bitcast<f32>(root.y), a, near);
    let bend = f32_clamped(f32_clamped(h0 * g) * side);
    let top = select(2.0f * bitcast<f32>(root.x), a, near);
    let low = select(2.0f * f32_sealed(bitcast<f32>(root.y) + bend, zero), bend, near);
    let angle = vec2<u32>(bitcast<u32>(top), bitcast<u32>(low));
{% if name == "arcsin" %}
    let sum = angle_sum(select(2.0f, 0.0f, near), select(0x80000000u, 0u, near), angle, zero);
    return bitcast<f32>(angle_joined{{ suffix }}(sum, zero) | (bits & 0x80000000u));
{% else %}
    let start = select(select(0.0f, 4.0f, left), 2.0f, near);
    let sum = angle_sum(start, select(0u, 0x80000000u, near != left), angle, zero);
    return bitcast<f32>(angle_joined{{ suffix }}(sum, zero));
{% endif %}
}
{% endif %}
{% endfor %}
{% endfor %}
