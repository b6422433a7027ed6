{#- Functions of float64. GPUs have only its basic arithmetic. Comes in: helpers. -#}
{% if "f64_trunc" in helpers %}

// Clear the bits below 1. lavapipe's own loses the sign of zero, and leaves large numbers as they are.
fn f64_trunc(x: f64) -> f64 {
    let exponent = i32(f64_magnitude(x) >> 52u) - 1023i;
    let below_one = 0x000ffffffffffffflu >> u32(clamp(exponent, 0i, 52i));
    let whole = bitcast<f64>(bitcast<u64>(x) & ~below_one);
    return select(whole, f64_copysign(0.0lf, x), exponent < 0i);
}
{% endif %}
{% if "f64_rint" in helpers %}

// To the nearest, ties to even. lavapipe's own rounds most ties towards zero.
fn f64_rint(x: f64) -> f64 {
    let whole = abs(f64_trunc(x));
    let rest = abs(x) - whole;
    let odd = floor(0.5lf * whole) * 2.0lf != whole;
    let size = whole + select(0.0lf, 1.0lf, (rest > 0.5lf) | ((rest == 0.5lf) & odd));
    return select(f64_copysign(size, x), x, !f64_isfinite(x));
}
{% endif %}
{% if "f64_as_rounded" in helpers %}

// Return a finite x unchanged, in a way that compilers cannot see: NVIDIA's makes (x - n a) - n b into x - n (a + b).
fn f64_as_rounded(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    return bitcast<f64>(bits ^ select(0lu, 1lu, (bits >> 52u) == 0x7fflu));
}

{% endif %}
{% for name, lowest, highest in (("exp", "-745.9lf", "709.9lf"), ("exp2", "-1075.0lf", "1024.0lf")) %}
{% if "f64_" ~ name in helpers %}

// 2^n e^r with |r| <= log(2) / 2, e^r by its series. 2^n in two steps reaches the subnormals.
fn f64_{{ name }}(x: f64) -> f64 {
    let inside = clamp(x, {{ lowest }}, {{ highest }});
{% if name == "exp" %}
    let n = round(inside * 1.4426950408889634lf);
    let r = f64_as_rounded(x - n * 0.6931471803691238lf) - n * 1.9082149292705877e-10lf;
{% else %}
    let n = round(inside);
    let r = (inside - n) * 0.6931471805599453lf;
{% endif %}
    var series = 1.0lf;
{% for k in range(14, 0, -1) %}
    series = 1.0lf + series * r * {{ 1 / k }}lf;
{% endfor %}
    let half = i64(n) / 2li;
    let first = bitcast<f64>((half + 1023li) << 52u);
    let second = bitcast<f64>((i64(n) - half + 1023li) << 52u);
    let large = select(0.0lf, f64_from_bits(0x7ff0000000000000lu), x > 0.0lf);
    let outside = (x > {{ highest }}) | (x < {{ lowest }});
    return select(select(series * first * second, large, outside), x, f64_isnan(x));
}
{% endif %}
{% endfor %}
{% if "f64_atanh_series" in helpers %}

// 2 atanh(s) = log((1 + s) / (1 - s)) for |s| < 0.18.
fn f64_atanh_series(s: f64) -> f64 {
    let z = s * s;
    var series = {{ 1 / 25 }}lf;
{% for k in range(23, 0, -2) %}
    series = {{ 1 / k }}lf + series * z;
{% endfor %}
    return 2.0lf * s * series;
}
{% endif %}
{% if "f64_log" in helpers %}

// log(2^n m) with m between sqrt(1/2) and sqrt(2).
fn f64_log(x: f64) -> f64 {
    let tiny = x < 2.2250738585072014e-308lf;
    let bits = bitcast<i64>(select(x, x * 18014398509481984.0lf, tiny));  // 2^54 lifts a subnormal
    let n = ((bits - 0x3fe6a09e667f3bcdli) >> 52u);
    let m = bitcast<f64>(bits - (n << 52u));
    let exponent = f64(n) - select(0.0lf, 54.0lf, tiny);
    let small = f64_atanh_series((m - 1.0lf) / (m + 1.0lf)) + exponent * 1.9082149292705877e-10lf;
    let finite = small + exponent * 0.6931471803691238lf;
    let zero = select(f64_from_bits(0x7ff8000000000000lu), f64_from_bits(0xfff0000000000000lu), !f64_to_bool(x));
    return select(select(finite, zero, x <= 0.0lf), x, f64_isnan(x) | (f64_isinf(x) & (x > 0.0lf)));
}
{% endif %}
{% if "f64_log1p" in helpers %}

fn f64_log1p(x: f64) -> f64 {
    return select(f64_log(1.0lf + x), f64_atanh_series(x / (2.0lf + x)), abs(x) < 0.25lf);
}
{% endif %}
{% if "f64_expm1" in helpers %}

fn f64_expm1(x: f64) -> f64 {
    var series = 1.0lf;
{% for k in range(15, 1, -1) %}
    series = 1.0lf + series * x * {{ 1 / k }}lf;
{% endfor %}
    return select(f64_exp(x) - 1.0lf, series * x, abs(x) < 0.35lf);
}
{% endif %}
{% if "f64_logaddexp" in helpers %}

// log(exp(a) + exp(b)). Infinities and NaN are the maximum.
fn f64_logaddexp(a: f64, b: f64) -> f64 {
    let high = f64_maximum(a, b);
    let low = f64_minimum(a, b);
    // e^-1000 is 0. Compilers may assume that no difference is infinite.
    let ratio = f64_exp(select(-1000.0lf, low - high, f64_isfinite(low)));
    return select(high, high + f64_log1p(ratio), f64_isfinite(high));
}
{% endif %}
