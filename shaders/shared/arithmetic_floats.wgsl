{#- What float32 and float64 have in common, told apart by bits: compilers assume that there is no NaN, and may flush
    subnormals when they compare. Comes in: helpers. -#}
{% for float, int, uint, magnitude, infinity, fraction, sign, top in (
    ("f32", "i32", "u32", "0x7fffffff", "0x7f800000", "0x007fffff", "0x80000000", 31),
    ("f64", "i64", "u64", "0x7fffffffffffffff", "0x7ff0000000000000", "0x000fffffffffffff", "0x8000000000000000", 63),
) %}
{% set i = "i" if float == "f32" else "li" %}
{% set u = "u" if float == "f32" else "lu" %}
{% set f = "f" if float == "f32" else "lf" %}
{% if float ~ "_from_bits" in helpers %}

// Infinities and NaN, which WGSL has no literals for.
fn {{ float }}_from_bits(bits: {{ uint }}) -> {{ float }} {
    return bitcast<{{ float }}>(bits);
}
{% endif %}
{% if float == "f64" and "f64_from_words" in helpers %}

// The low word comes first.
fn f64_from_words(words: vec2<u32>) -> f64 {
    return bitcast<f64>(u64(words.x) | (u64(words.y) << 32u));
}
{% endif %}
{% if float ~ "_magnitude" in helpers %}

// Return the bits without the sign.
fn {{ float }}_magnitude(x: {{ float }}) -> {{ uint }} {
    return bitcast<{{ uint }}>(x) & {{ magnitude }}{{ u }};
}
{% endif %}
{% for name, comparison in (("isnan", ">"), ("isinf", "=="), ("isfinite", "<")) %}
{% if float ~ "_" ~ name in helpers %}

fn {{ float }}_{{ name }}(x: {{ float }}) -> bool {
    return {{ float }}_magnitude(x) {{ comparison }} {{ infinity }}{{ u }};
}
{% endif %}
{% endfor %}
{% if float ~ "_to_bool" in helpers %}

fn {{ float }}_to_bool(x: {{ float }}) -> bool {
    return {{ float }}_magnitude(x) != 0{{ u }};
}
{% endif %}
{% if float ~ "_signbit" in helpers %}

fn {{ float }}_signbit(x: {{ float }}) -> bool {
    return bitcast<{{ int }}>(x) < 0{{ i }};
}
{% endif %}
{% if float ~ "_copysign" in helpers %}

fn {{ float }}_copysign(x: {{ float }}, sign: {{ float }}) -> {{ float }} {
    // Flip the sign bit where it differs. llvmpipe folds a magnitude joined with a sign wrongly under a select.
    let bits = bitcast<{{ uint }}>(x);
    return bitcast<{{ float }}>(bits ^ ((bits ^ bitcast<{{ uint }}>(sign)) & {{ sign }}{{ u }}));
}
{% endif %}
{% if float ~ "_sign" in helpers %}

// -1, 0 or 1; NaN of NaN. Of -0.0 it is 0.0, as in NumPy.
fn {{ float }}_sign(x: {{ float }}) -> {{ float }} {
    let size = select(0.0{{ f }}, {{ float }}_copysign(1.0{{ f }}, x), {{ float }}_to_bool(x));
    return select(size, x, {{ float }}_isnan(x));
}
{% endif %}
{% if float ~ "_order" in helpers %}

// An integer that orders floats as their values do, -0 below +0.
fn {{ float }}_order(x: {{ float }}) -> {{ int }} {
    let bits = bitcast<{{ int }}>(x);
    return bits ^ ((bits >> {{ top }}u) & {{ magnitude }}{{ i }});
}
{% endif %}
{% for side, bound, shift, nan in (
    ("above", "min", "-", "0x7f000002i" if float == "f32" else "0x7fe0000000000002li"),
    ("below", "max", "+", "-0x7f000003i" if float == "f32" else "-0x7fe0000000000003li"),
) %}
{% if float ~ "_order_nan_" ~ side in helpers %}

// The same with every NaN equal, {{ side }} all numbers. By their bits, NaN of one sign are at each end of the order.
// The shift wraps around and brings them together, and the bound makes them equal.
fn {{ float }}_order_nan_{{ side }}(x: {{ float }}) -> {{ int }} {
    return {{ bound }}({{ float }}_order(x) {{ shift }} {{ fraction }}{{ i }}, {{ nan }});
}
{% endif %}
{% endfor %}
{% if float ~ "_not_equal" in helpers %}

// Return true also for a number and NaN, for which some compilers' != is false.
fn {{ float }}_not_equal(a: {{ float }}, b: {{ float }}) -> bool {
    return (a != b) | {{ float }}_isnan(a) | {{ float }}_isnan(b);
}
{% endif %}
{% for name, ahead, side in (
    ("minimum", "<=", "below"), ("maximum", ">=", "above"), ("fmin", "<=", "above"), ("fmax", ">=", "below"),
) %}
{% if float ~ "_" ~ name in helpers %}

{% if name in ("fmin", "fmax") %}
// A NaN operand gives way to a number; of two NaN, `a` is the result.
{% else %}
// A NaN operand is the result; of two, `a` is.
{% endif %}
fn {{ float }}_{{ name }}(a: {{ float }}, b: {{ float }}) -> {{ float }} {
    return select(b, a, {{ float }}_order_nan_{{ side }}(a) {{ ahead }} {{ float }}_order_nan_{{ side }}(b));
}
{% endif %}
{% endfor %}
{% if float == "f64" and "f64_hypot" in helpers %}

fn {{ float }}_hypot(a: {{ float }}, b: {{ float }}) -> {{ float }} {
    let high = {{ float }}_maximum(abs(a), abs(b));
    let low = {{ float }}_minimum(abs(a), abs(b));
    let ratio = low / select(1.0{{ f }}, high, high > 0.0{{ f }});  // a subnormal is zero here where quotients flush it
    let infinite = {{ float }}_isinf(a) | {{ float }}_isinf(b);
    return select(high * sqrt(1.0{{ f }} + ratio * ratio), {{ float }}_from_bits({{ infinity }}{{ u }}), infinite);
}
{% endif %}
{% for name, bits, unsigned in (("i32", 31, false), ("u32", 32, true), ("i64", 63, false), ("u64", 64, true)) %}
{% if float ~ "_to_" ~ name in helpers %}

{% if unsigned %}
// Towards zero. A negative number wraps, as on x86-64. NaN and numbers that are too large give 0.
{% else %}
// Towards zero. What does not fit is the lowest number, as on x86-64.
{% endif %}
fn {{ float }}_to_{{ name }}(x: {{ float }}) -> {{ name }} {
{% set limit = 2 ** bits ~ ".0" ~ f %}
{% if unsigned %}
{% set signed = name | replace("u", "i") %}
    let number = !{{ float }}_isnan(x);
    let positive = {{ name }}(select(0.0{{ f }}, x, (x >= 0.0{{ f }}) & (x < {{ limit }}) & number));
    return select(positive, bitcast<{{ name }}>({{ float }}_to_{{ signed }}(x)), (x < 0.0{{ f }}) & number);
{% else %}
    let inside = (x >= -{{ limit }}) & (x < {{ limit }}) & !{{ float }}_isnan(x);
    let lowest = {{ "i32(-2147483648)" if bits == 31 else "-9223372036854775807li - 1li" }};
    return select(lowest, {{ name }}(select(0.0{{ f }}, x, inside)), inside);
{% endif %}
}
{% endif %}
{% endfor %}
{% endfor %}
{% include "shared/arithmetic_float32.wgsl" %}
{% include "shared/arithmetic_float64.wgsl" %}
