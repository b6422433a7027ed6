#!/usr/bin/env python3
"""Write shaders/shared/elementary/constants.wgsl: the polynomials and constants of the elementary functions.

Needs mpmath. ``--check`` compares the file with what would be written and fails if they differ.

Every polynomial is a near-minimax approximation (Chebyshev interpolation in 120 digits). Its argument g is a signed
fixed-point number with 32 fractional bits and |g| < 1/2, so that each Horner step is one high product. The coefficient
of g^k is an integer: the coefficient times 2^bits.
"""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

PATH = Path(__file__).resolve().parent.parent / "shaders" / "shared" / "elementary" / "constants.wgsl"

mp.dps = 120


def polynomial(function: Callable[[Any], Any], low: float, high: float, degree: int, bits: int, unit: int = 1) -> str:
    """Return the coefficients of a polynomial in g = x / unit as integers, from the constant term on."""
    coefficients = mpmath.chebyfit(function, [mpf(low), mpf(high)], degree + 1)[::-1]
    numbers = [
        int(mpmath.nint(mpf(unit) ** power * coefficient * mpf(2) ** bits))
        for power, coefficient in enumerate(coefficients)
    ]
    assert all(abs(number) < 2**31 for number in numbers)
    return "(" + ", ".join(map(str, numbers)) + ")"


def floats(values: Iterable[Any]) -> str:
    """Return the nearest numbers of float32 as literals."""
    texts = [np.format_float_positional(np.float32(mpmath.nstr(value, 20)), trim="0") for value in values]
    return "(" + ", ".join(f'"{text}f"' for text in texts) + ")"


def split(value: Any, high_bits: int, low_bits: int) -> str:
    """Return a constant as two floats: a multiple of 2^-high_bits, and the rest as a multiple of 2^-low_bits."""
    high = mpmath.nint(value * mpf(2) ** high_bits) / mpf(2) ** high_bits
    return floats([high, mpmath.nint((value - high) * mpf(2) ** low_bits) / mpf(2) ** low_bits])


def fit_near_zero(function: Callable[[Any], Any], low: float, high: float, degree: int, power: int) -> list[Any]:
    """Return the polynomial with the smallest error times x^power, from the constant term on."""
    return fit(function, low, high, degree, lambda x: max(abs(x), mpf(2) ** -20) ** power)


def fit(
    function: Callable[[Any], Any], low: float, high: float, degree: int, weight: Callable[[Any], Any]
) -> list[Any]:
    """Return the polynomial with the smallest error times a weight, from the constant term on: by Remez's exchanges."""
    points = [(mpf(low) + high) / 2 - (mpf(high) - low) / 2 * mpmath.cos(mp.pi * (k + 0.5) / 101) for k in range(101)]
    values = [function(x) for x in points]
    weights = [weight(x) for x in points]
    chosen = [round(50 - 50 * float(mpmath.cos(mp.pi * k / (degree + 1)))) for k in range(degree + 2)]
    for _ in range(8):
        rows = [[points[k] ** power for power in range(degree + 1)] for k in chosen]
        ends = [(-1) ** count / weights[k] for count, k in enumerate(chosen)]
        solution = mpmath.lu_solve(
            mpmath.matrix([[*row, end] for row, end in zip(rows, ends, strict=True)]),
            mpmath.matrix([values[k] for k in chosen]),
        )
        coefficients = [solution[power] for power in range(degree + 1)]
        errors = [
            (mpmath.polyval(coefficients[::-1], x) - value) * weight
            for x, value, weight in zip(points, values, weights, strict=True)
        ]
        # The largest error of each run of one sign
        sizes = [abs(error) for error in errors]
        runs = [list(run) for _, run in itertools.groupby(range(101), [error > 0 for error in errors].__getitem__)]
        peaks = [max(run, key=sizes.__getitem__) for run in runs]
        while len(peaks) > len(chosen):
            peaks.pop(0 if sizes[peaks[0]] < sizes[peaks[-1]] else -1)
        if len(peaks) < len(chosen):
            break
        chosen = peaks
    return coefficients


def fit_after_rounding(function: Callable[[Any], Any], low: float, high: float, degree: int, power: int) -> list[Any]:
    """Return such a polynomial with a first coefficient that is a float. The others make up for its rounding."""
    return fit_rounded(function, low, high, degree, lambda x: max(abs(x), mpf(2) ** -20) ** power, 1)


def fit_rounded(
    function: Callable[[Any], Any], low: float, high: float, degree: int, weight: Callable[[Any], Any], count: int
) -> list[Any]:
    """Return such a polynomial with `count` first coefficients that are floats."""
    coefficients = fit(function, low, high, degree, weight)
    if count == 0:
        return coefficients
    first = mpf(float(np.float32(float(coefficients[0]))))
    rest = lambda x: (function(x) - first) / x  # noqa: E731
    return [first, *fit_rounded(rest, low, high, degree - 1, lambda x: weight(x) * abs(x), count - 1)]


def with_rough_end(coefficients: list[Any]) -> str:
    """Return the coefficients as floats, the last one with 12 bits."""
    return floats([*coefficients[:-1], round_to_bits(coefficients[-1], 12)])


def alternating(coefficients: list[Any]) -> str:
    """Return coefficients with alternating signs as floats, without their signs."""
    sizes = [(-1) ** power * coefficient for power, coefficient in enumerate(coefficients)]
    assert all(size > 0 for size in sizes)
    return floats(sizes)


def round_to_bits(value: Any, bits: int) -> Any:
    """Return a constant, rounded to this number of significant bits."""
    unit = mpf(2) ** (mpmath.floor(mpmath.log(abs(value), 2)) + 1 - bits)
    return mpmath.nint(value / unit) * unit


def pieces(value: Any, bits: int, count: int) -> list[Any]:
    """Return numbers with few bits and one more, which add up to a number between 1 and 2."""
    parts = []
    for number in range(1, count + 1):
        unit = mpf(2) ** (1 - bits * number)
        parts.append(mpmath.nint((value - sum(parts)) / unit) * unit)
    return [*parts, value - sum(parts)]


def series(first: int, coefficient: Callable[[int], Any]) -> Callable[[Any], Any]:
    """Return the power series of the coefficients from `first` on: quotients near 0 would cancel."""
    return lambda x: mpmath.fsum(coefficient(first + power) * x**power for power in range(90))


def word(value: Any, bits: int) -> str:
    """Return a positive constant times 2^bits, rounded, as hexadecimal."""
    return f'"{int(mpmath.nint(value * mpf(2) ** bits)):#x}u"'


def words(value: Any, bits: int) -> str:
    """Return a constant times 2^bits as its low and its high word; a negative one is in two's complement."""
    number = int(mpmath.nint(value * mpf(2) ** bits)) % 2**64
    return f'("{number % 2**32:#x}u", "{number >> 32:#x}u")'


def words_with_signed_low(value: Any, bits: int) -> str:
    """Return a constant times 2^bits as a signed low word and a high word, their decimals."""
    number = int(mpmath.nint(value * mpf(2) ** bits))
    low = (number + 2**31) % 2**32 - 2**31
    return f'("{low}i", "{(number - low) >> 32}i")'


def power_of_two(f: Any) -> Any:
    """Return (2^f - 1) / f - 1/2."""
    return series(1, lambda k: mp.ln2**k / mpmath.factorial(k))(f) - mpf(1) / 2


def part_of_exp(first: int) -> Callable[[Any], Any]:
    """Return every second term of the series of exp(sqrt(g)) from a power on, over the first one's power."""
    return series(0, lambda k: 1 / mpmath.factorial(first + 2 * k))


def cosine(t: Any) -> Any:
    """Return (t - 1 + cos(sqrt(2 t))) / t^2."""
    return mpmath.fsum((-1) ** k * 2**k / mpmath.factorial(2 * k) * t ** (k - 2) for k in range(2, 40))


def sine(t: Any) -> Any:
    """Return (1 - sin(sqrt(2 t)) / sqrt(2 t)) / t."""
    return mpmath.fsum(-((-1) ** k) * 2**k / mpmath.factorial(2 * k + 1) * t ** (k - 1) for k in range(1, 40))


def after_first_term(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return (f(sqrt(g)) / sqrt(g) - 1) / g, for an odd function f that begins with x."""

    def rest(g: Any) -> Any:
        root = mpmath.sqrt(g)
        return (function(root) / root - 1) / g

    return rest


def hyperbolic_tangent(g: Any) -> Any:
    """Return (tanh(sqrt(g)) / sqrt(g) - 1) / g."""
    terms = (
        mpf(2) ** (2 * k) * (mpf(2) ** (2 * k) - 1) * mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) * g ** (k - 2)
        for k in range(2, 60)
    )
    return mpmath.fsum(terms)


def tangent(g: Any) -> Any:
    """Return (tan(sqrt(g)) / sqrt(g) - 1) / g."""
    terms = (
        mpf(2) ** (2 * k)
        * (mpf(2) ** (2 * k) - 1)
        * abs(mpmath.bernoulli(2 * k))
        / mpmath.factorial(2 * k)
        * g ** (k - 2)
        for k in range(2, 90)
    )
    return mpmath.fsum(terms)


def error_near_zero(y: Any) -> Any:
    """Return (2 / sqrt(pi) - erf(sqrt(y)) / sqrt(y)) / y."""
    terms = ((-1) ** (k + 1) / (mpmath.factorial(k) * (2 * k + 1)) * y ** (k - 1) for k in range(1, 60))
    return 2 / mpmath.sqrt(mp.pi) * mpmath.fsum(terms)


# Logarithms are computed of significands from 11/16 on. This is 1 less the smallest one.
LOG_START = mpf(5) / 16
# A number with 12 bits. The logarithm of 1 - erf of it is close to a multiple of 2^-16.
ERFC_CENTER = mpf(4142) / 4096
ERFC_LOG = float(mpmath.nint(mpmath.log(mpmath.erfc(ERFC_CENTER)) * 2**16)) / 2**16


def near_error(g: Any) -> Any:
    """Return erf(sqrt(g)) / sqrt(g) - 1."""
    return 2 / mpmath.sqrt(mp.pi) - 1 - g * error_near_zero(g)


def far_error(u: Any) -> Any:
    """Return (log(1 - erf(ERFC_CENTER + u)) - log(1 - erf(ERFC_CENTER))) / u."""
    return (mpmath.log(mpmath.erfc(ERFC_CENTER + u)) - mpmath.log(mpmath.erfc(ERFC_CENTER))) / u


def wrap_assignment(name: str, value: str) -> str:
    """Return the assignment of a value, in lines of at most 120 characters."""
    line = f"{{%- set {name} = {value} -%}}"
    return "\n".join(textwrap.wrap(line, 120, subsequent_indent="    ", break_long_words=False)) + "\n"


def text() -> str:
    """Return the file."""
    quarter_turn = pieces(mp.pi / 2, 11, 3)
    logarithm = series(3, lambda k: (-1) ** (k + 1) / mpf(k))
    half_root = mpf(1) / mpmath.sqrt(2)
    lines = {
        "(exp(r) - 1 - r) / r^2 for |r| <= 0.36": (
            "EXP",
            polynomial(series(2, lambda k: 1 / mpmath.factorial(k)), -0.36, 0.36, 5, 31),
        ),
        "(log(1 + r) - r + r^2 / 2) / r^3 for |r| <= 1/8, in g = 4 r": (
            "LOG",
            polynomial(logarithm, -0.125, 0.125, 6, 32, mpf(1) / 4),
        ),
        "the same on floats, in u = r + 9/64 for 0.0046 <= u <= 0.2657, with alternating signs": (
            "LOG_TAIL_FLOATS",
            alternating(
                fit_rounded(
                    lambda u: logarithm(u - mpf(9) / 64),
                    0.0046,
                    0.2657,
                    5,
                    lambda u: max(abs(u - mpf(9) / 64), mpf(2) ** -20) ** 2,
                    5,
                )
            ),
        ),
        "(r - log(1 + r)) / r^2 on floats, in u = r + 5/16 for 0 <= u <= 11/16, with alternating signs": (
            "LOG_CURVE",
            alternating(
                fit_rounded(
                    lambda u: mpmath.fsum((-1) ** k * (u - LOG_START) ** (k - 2) / mpf(k) for k in range(2, 170)),
                    0,
                    0.6875,
                    8,
                    lambda u: max(abs(u - LOG_START), mpf(2) ** -20),
                    8,
                )
            ),
        ),
        "log(2) / 2^23, -log(13/16) and log(13/10) as sums of two floats with few bits": (
            "LN2_FLOATS, LOG_16_13, LOG_13_10",
            f"{split(mp.ln2 / 2**23, 39, 56)}, {split(mpmath.log(mpf(16) / 13), 16, 33)}, "
            + split(mpmath.log(mpf(13) / 10), 16, 33),
        ),
        "(exp(r) - 1 - r) / r^2 on floats for -0.43 <= r <= 0.44": (
            "EXP_FLOATS",
            floats(fit_after_rounding(series(2, lambda k: 1 / mpmath.factorial(k)), -0.43, 0.44, 5, 2)),
        ),
        "the same in v = r + 7/16 for 0.03 <= v <= 0.85": (
            "EXP_RISE_FLOATS",
            floats(
                fit_rounded(
                    lambda v: series(2, lambda k: 1 / mpmath.factorial(k))(v - mpf(7) / 16),
                    0.03,
                    0.85,
                    5,
                    lambda v: max(abs(v - mpf(7) / 16), mpf(2) ** -20) ** 2,
                    5,
                )
            ),
        ),
        "the same for -0.4 <= r <= 0.41, with fewer terms": (
            "EXP_FLOATS_5",
            floats(fit_after_rounding(series(2, lambda k: 1 / mpmath.factorial(k)), -0.4, 0.41, 4, 2)),
        ),
        "(2^f - 1) / f - 1/2 on floats for -0.5 <= f <= 0.51": (
            "EXP2_FLOATS",
            floats(fit_after_rounding(power_of_two, -0.5, 0.51, 5, 1)),
        ),
        "(cosh(r) - 1) / g for g = r^2 <= 0.17 and (sinh(r) / r - 1) / g for g <= 0.31, both on floats": (
            "COSH_FLOATS, SINH_FLOATS",
            f"{floats(fit_near_zero(part_of_exp(2), 0, 0.17, 2, 1))}, "
            + floats(fit_near_zero(part_of_exp(3), 0, 0.31, 2, 1)),
        ),
        "(1 - tanh(x) / x) / g on floats for g = x^2 <= 0.3025, with alternating signs": (
            "TANH_FLOATS",
            alternating(fit_rounded(lambda g: -hyperbolic_tangent(g), 0, 0.3025, 4, lambda g: g, 4)),
        ),
        "(r - 1 + exp(-r)) / r^2 on floats for 0 <= r <= log(2), with alternating signs": (
            "EXP_FALL_FLOATS",
            alternating(
                fit_rounded(
                    series(2, lambda k: (-1) ** k / mpmath.factorial(k)),
                    0,
                    0.6932,
                    4,
                    lambda r: max(abs(r), mpf(2) ** -20) ** 1.5,
                    4,
                )
            ),
        ),
        "2 log2(e), a little less": ("TWO_LOG2_E", floats([2 / mp.ln2 * (1 - mpf(2) ** -22)])[1:-1]),
        "log(2) as the sum of two floats with 16 bits": ("LN2_SHORT", split(mp.ln2, 16, 33)),
        "1 / (1/2 + t) for 0 <= t <= 1/6, roughly and from below, with alternating signs": (
            "RECIPROCAL_FLOATS",
            alternating(
                [
                    round_to_bits(value, 12)
                    for value in fit(lambda t: 0.9985 / (0.5 + t), 0, 0.167, 2, lambda t: 0.5 + t)
                ]
            ),
        ),
        "log2(e) with 12 bits": ("LOG2_E_ROUGH", floats([round_to_bits(1 / mp.ln2, 12)])[1:-1]),
        "1 - log(1 + w) / w for 0 <= w <= 1, in g = w - 1/2": (
            "LOG1P",
            polynomial(lambda g: 1 - mpmath.log1p(g + 0.5) / (g + 0.5), -0.5, 0.5, 10, 32),
        ),
        "(1 - sin(r) / r) / g for g = r^2 / 2 <= 0.31": ("SIN", polynomial(sine, 0, 0.31, 4, 32)),
        "(g - 1 + cos(r)) / g^2 for g = r^2 / 2 <= 0.31": ("COS", polynomial(cosine, 0, 0.31, 4, 32)),
        "(1 - sin(r) / r) / g on floats for g = r^2 <= 0.62, with alternating signs": (
            "SIN_FLOATS",
            alternating(fit_after_rounding(lambda g: sine(g / 2) / 2, 0, 0.62, 3, 1)),
        ),
        "2 / pi, pi / 2 as the sum of four floats, three of them with 11 bits, and the sum of the last two": (
            "TWO_OVER_PI_FLOAT, HALF_PI, HALF_PI_END",
            f"{floats([2 / mp.pi])[1:-1]}, {floats(quarter_turn)}, {floats([sum(quarter_turn[2:])])[1:-1]}",
        ),
        "(1 - arctan(t) / t) / g with alternating signs and (arcsin(t) / t - 1) / g for g = t^2 <= 1/4, on floats": (
            "ARCTAN_FLOATS, ARCSIN_FLOATS",
            alternating([-value for value in fit_rounded(after_first_term(mpmath.atan), 0, 0.25, 4, lambda g: g, 2)])
            + ", "
            + floats(fit_rounded(after_first_term(mpmath.asin), 0, 0.25, 4, lambda g: g, 2)),
        ),
        "pi / 4 as the sum of two floats with few bits, and the bits of pi / 2 and pi": (
            "EIGHTH_TURN, HALF_TURNS_BITS",
            f'{split(mp.pi / 4, 20, 44)}, ("0x3fc90fdbu", "0x40490fdbu")',
        ),
        "erf(x) / x - 1 in x^2 to 0.85, from there to 4 (log(1 - erf(c + u)) - d) / u, on floats, c and d": (
            "ERF_FLOATS, ERFC_FLOATS, ERFC_CENTER, ERFC_LOG",
            floats(fit_rounded(near_error, 0, 0.7226, 6, lambda _: mpf(1), 3))
            + ", "
            + floats(
                fit_rounded(far_error, -0.1613, 2.99, 6, lambda u: max(abs(u), 0.1) * mpmath.erfc(u + ERFC_CENTER), 2)
            )
            + f', "{float(ERFC_CENTER)}f", "{ERFC_LOG}f"',
        ),
        "(tan(r) / r - 1) / g on floats for g = r^2 <= 0.62": (
            "TAN_FLOATS",
            floats(fit_rounded(tangent, 0, 0.62, 6, lambda g: g, 3)),
        ),
        "(arctanh(t) / t - 1) / g and (1 - arcsinh(t) / t) / g with alternating signs for g = t^2 <= 0.09, on floats": (
            "ARCTANH_FLOATS, ARCSINH_FLOATS",
            floats(fit_rounded(after_first_term(mpmath.atanh), 0, 0.0901, 3, lambda g: g, 2))
            + ", "
            + alternating(
                [-value for value in fit_rounded(after_first_term(mpmath.asinh), 0, 0.0901, 3, lambda g: g, 2)]
            ),
        ),
        "2 / sqrt(pi) as a significand": ("TWO_OVER_ROOT_PI", word(2 / mpmath.sqrt(mp.pi), 31)),
        "1 / sqrt(3/2 + g) for |g| <= 1/2": (
            "ROOT",
            polynomial(lambda g: 1 / mpmath.sqrt(mpf(3) / 2 + g), -0.5, 0.5, 4, 30),
        ),
        "1 / (3/2 + g) for |g| <= 1/2": (
            "RECIPROCAL",
            polynomial(lambda g: 1 / (mpf(3) / 2 + g), -0.5, 0.5, 5, 30),
        ),
        "sqrt(1/2) with 32 fractional bits": ("HALF_ROOT", word(half_root, 32)),
        "log(2) with 32 fractional bits, and the 16 bits below": (
            "LN2",
            f'("{int(mpmath.floor(mp.ln2 * 2**32)):#x}u", "{int(mpmath.nint(mp.ln2 * mpf(2) ** 48)) % 2**16}i")',
        ),
        "log(2) with 56 fractional bits; the low word is signed": ("LN2_WORDS", words_with_signed_low(mp.ln2, 56)),
        "-log(5/4) with 56 fractional bits": ("MINUS_LOG_5_4", words(-mpmath.log(mpf(5) / 4), 56)),
        "log(32/25) with 56 fractional bits": ("LOG_32_25", words(mpmath.log(mpf(32) / 25), 56)),
        "log(2) with 31 fractional bits": ("LN2_SIGNED", f'"{int(mpmath.nint(mp.ln2 * 2**31))}i"'),
        "pi / 2 and pi / 4 as significands": ("PI", word(mp.pi, 30)),
        "the first bits of 2 / pi after the point": (
            "TWO_OVER_PI",
            "("
            + ", ".join(f'"{int(mpmath.floor(2 / mp.pi * mpf(2) ** (32 * k + 32))) % 2**32:#x}u"' for k in range(8))
            + ")",
        ),
        "log2(e) and log10(e): 12 bits, the rest, and all": (
            "LOG2_E_FLOATS, LOG10_E_FLOATS",
            ", ".join(
                floats([round_to_bits(value, 12), value - round_to_bits(value, 12), value])
                for value in (1 / mp.ln2, 1 / mp.ln10)
            ),
        ),
        "log2(e), to choose a power of two by": ("LOG2_E_FLOAT", '"1.4426950f"'),
    }
    body = "".join(f"{{#- {comment} -#}}\n{wrap_assignment(name, value)}" for comment, (name, value) in lines.items())
    return "{#- Written by script/polynomials.py; see there. -#}\n" + body


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PATH.read_text() != text():
            sys.exit(f"{PATH.name} is not what script/polynomials.py writes; run script/polynomials.py")
    else:
        PATH.write_text(text())
