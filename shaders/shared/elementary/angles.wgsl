{#- The trigonometric functions of float32 and their inverses; see shared/elementary.wgsl. Comes in: helpers. -#}
{% from "shared/elementary/constants.wgsl" import PI, TAN_FLOATS %}
{#- ----- Trigonometric functions -#}
{% for suffix in ("", "_odd") %}
{% for name, quarter in (("sin", 0), ("cos", 1)) %}
{% if "f32_" + name + suffix in helpers %}

fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    if ((bitcast<u32>(x) & 0x7fffffffu) - 0x39800000u >= 0x0cc80000u) {
        return f32_{{ name }}_far{{ suffix }}(x);
    }
    let wave = wave_near(x, {{ quarter }}u);
{% if suffix %}
    let size = f32_join_odd(bitcast<f32>(wave.x), bitcast<f32>(wave.y), wave.w);
{% else %}
    let size = bitcast<f32>(wave.x) + bitcast<f32>(wave.y);
{% endif %}
    return bitcast<f32>(bitcast<u32>(size) ^ ((wave.z << 30u) & 0x80000000u));
}
{% endif %}
{% if "f32_" + name + "_far" + suffix in helpers %}

// The same for any float.
fn f32_{{ name }}_far{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let turn = scaled_turn(bits);
    let quarters = turn.z{% if quarter %} + 1u{% endif %};
    let is_cosine = (quarters & 1u) == 1u;
    let wave = scaled_wave(turn.xy, is_cosine);
    let side = (quarters >> 1u) ^ select(turn.w, 0u, is_cosine);
{% if quarter %}
    let known = select(scaled_round_normal{{ suffix }}(wave, side << 31u), 0x3f800000u, size < 0x39800000u);
{% else %}
    let known = select(scaled_round_normal{{ suffix }}(wave, (side << 31u) ^ bits), bits, size < 0x39800000u);
{% endif %}
    return bitcast<f32>(select(known, 0x7fc00000u, size >= 0x7f800000u));
}
{% endif %}
{% endfor %}
{% if "f32_tan" + suffix in helpers %}

fn f32_tan{{ suffix }}(x: f32) -> f32 {
    if ((bitcast<u32>(x) & 0x7fffffffu) - 0x39800000u >= 0x0cc80000u) {
        return f32_tan_far{{ suffix }}(x);
    }
    let turn = turn_near(x);
    let zero = turn.w;
    let r = bitcast<f32>(turn.x);
    let g = f32_sealed(r * r, zero);
    let h6 = {{ TAN_FLOATS[6] }};
{% for power in range(5, -1, -1) %}
    let h{{ power }} = {{ TAN_FLOATS[power] }} + f32_sealed(h{{ power + 1 }} * g, zero);
{% endfor %}
    let bend = f32_sealed(f32_sealed(h0 * g, zero) * r, zero);
    let low = f32_sealed(bend + f32_sealed(bitcast<f32>(turn.y) * (1.0f + f32_sealed(1.5f * g, zero)), zero), zero);
    // 1 / (r + low) by a guess to 5 %, then to 12 bits, then with an error e
    let rough = f32_rough(r + low);
    let rough_rest = f32_sealed(r - rough, zero) + low;
    let guess = bitcast<f32>(0x7ef311c7u - bitcast<u32>(rough));
    let excess = f32_sealed(1.0f - f32_sealed(rough * guess, zero), zero);
    let inverse = f32_rough(guess + f32_sealed(guess * (excess + f32_sealed(excess * excess, zero)), zero));
    let e = f32_sealed(f32_sealed(1.0f - rough * inverse, zero) - f32_sealed(rough_rest * inverse, zero), zero);
    let change = f32_sealed(inverse * (e + f32_sealed(e * e, zero)), zero);
    let odd = (turn.z & 1u) == 1u;
    let high = select(r, inverse, odd);
    let rest = select(low, change, odd);
    let found = {% if suffix %}f32_join_odd(high, rest, zero){% else %}high + rest{% endif %};
    return bitcast<f32>(bitcast<u32>(found) ^ (turn.z << 31u));
}
{% endif %}
{% if "f32_tan_far" + suffix in helpers %}

// The same for any float.
fn f32_tan_far{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let turn = scaled_turn(bits);
    let sine = scaled_wave(turn.xy, false);
    let cosine = scaled_wave(turn.xy, true);
    let odd = (turn.z & 1u) == 1u;
    let ratio = scaled_divide(select(sine, cosine, odd), select(cosine, sine, odd));
    let sign = bits ^ ((turn.w ^ turn.z) << 31u);
    let known = select(scaled_round_normal{{ suffix }}(ratio, sign), bits, size < 0x39800000u);
    return bitcast<f32>(select(known, 0x7fc00000u, size >= 0x7f800000u));
}
{% endif %}
{% endfor %}
{#- ----- Inverse trigonometric functions -#}
{% if "f32_arctan2" in helpers %}

fn f32_arctan2(y: f32, x: f32) -> f32 {
    let sign = bitcast<u32>(y);
    let rise = bitcast<u32>(y) & 0x7fffffffu;
    let run = bitcast<u32>(x) & 0x7fffffffu;
    let both = (rise == run) & ((rise == 0x7f800000u) | (rise == 0u));
    let one = vec2<u32>(0x80000000u, 0u);
    let up = select(scaled_from_bits(rise), one, both);
    let across = select(scaled_from_bits(run), one, both);
    let left = bitcast<u32>(x) >= 0x80000000u;
    let half_turn = vec2<u32>({{ PI }}, 1u);
    let infinite = select(up, vec2<u32>(0u, 0xffffff00u), (run == 0x7f800000u) & !both);
    let flat = select(infinite, vec2<u32>(0u, 0xffffff00u), (rise == 0u));
    let steep = select(across, vec2<u32>(0u, 0xffffff00u), (run == 0u) | ((rise == 0x7f800000u) & !both));
    let angle = scaled_angle(flat, steep);
    let found = scaled_round(select(angle, scaled_subtract(half_turn, angle), left), sign);
    let level = scaled_round(select(vec2<u32>(0u, 0u), half_turn, left), sign);
    let known = select(found, level, rise == 0u);
    return bitcast<f32>(select(known, 0x7fc00000u, max(rise, run) > 0x7f800000u));
}
{% endif %}
{% for suffix in ("", "_odd") %}
{% if "f32_arctan" + suffix in helpers %}

fn f32_arctan{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let finite = scaled_from_bits(min(size, 0x7f000000u));
    let angle = scaled_round_normal{{ suffix }}(scaled_angle(finite, vec2<u32>(0x80000000u, 0u)), bits);
    let known = select(angle, bits, size < 0x39000000u);
    return bitcast<f32>(select(known, 0x7fc00000u, size > 0x7f800000u));
}
{% endif %}
{% for name in ("arcsin", "arccos") %}
{% if "f32_" + name + suffix in helpers %}

// The angle of the point ({{ "sqrt(1 - x^2), x" if name == "arcsin" else "x, sqrt(1 - x^2)" }}).
fn f32_{{ name }}{{ suffix }}(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let one = vec2<u32>(0x80000000u, 0u);
    let side = scaled_from_bits(min(size, 0x3f800000u));
    let other = scaled_root(scaled_multiply(scaled_subtract(one, side), scaled_add(one, side)));
    let inner = size < 0x3f800000u;
{% if name == "arcsin" %}
    let angle = select(vec2<u32>({{ PI }}, 0u), scaled_angle(side, other), inner);
    let known = select(scaled_round{{ suffix }}(angle, bits), bits, size < 0x39000000u);
{% else %}
    let angle = scaled_angle(other, side);
    let turned = select(angle, scaled_subtract(vec2<u32>({{ PI }}, 1u), angle), bits >= 0x80000000u);
    let edge = select(vec2<u32>(0u, 0u), vec2<u32>({{ PI }}, 1u), bits >= 0x80000000u);
    let near = select(turned, vec2<u32>({{ PI }}, 0u), size < 0x32000000u);
    let known = scaled_round{{ suffix }}(select(edge, near, inner), 0u);
{% endif %}
    return bitcast<f32>(select(known, 0x7fc00000u, size > 0x3f800000u));
}
{% endif %}
{% endfor %}
{% endfor %}
