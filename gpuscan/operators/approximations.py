"""Elementary functions of float32 by polynomials, in fewer steps than the exact ones of shaders/shared/elementary.

They are for sums that round more than these functions do. The polynomials interpolate at Chebyshev points. Their errors
are below 2^-27 of the result, so that the rounding of float32 dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import log
from typing import Any

import numpy as np

from gpuscan.operators.traced_array import Number

# A float32 of this size has no fractional bits. If a whole number is added, it is in the low bits of the sum.
_WHOLE = np.float32(1.5 * 2**23)
# The logarithm of 2 in two parts. The product of the first one and a whole number below 2^11 is exact.
_LOG_TWO_HIGH = round(log(2) * 2**12) / 2**12
# Below this number an exponential has a result of 0.
_LOWEST_BITS, _MINUS_INFINITY_BITS = np.float32(-86).view(np.uint32), np.uint32(0xFF800000)


def fit(function: Callable[[Any], Any], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Return the coefficients of a polynomial close to the function between two numbers, the highest power first."""
    polynomial = np.polynomial.Chebyshev.interpolate(function, degree, [low, high])
    return tuple(
        float(np.float32(coefficient)) for coefficient in polynomial.convert(kind=np.polynomial.Polynomial).coef[::-1]
    )


# NumPy's polynomials take longer to import than this module, and few programs need them.
@cache
def _power_coefficients() -> tuple[float, ...]:
    return fit(np.exp2, -0.5, 0.5, 6)


@cache
def _exponential_coefficients() -> tuple[float, ...]:
    return fit(np.exp, -log(2) / 2, log(2) / 2, 6)


def polynomial(coefficients: Sequence[float], x: Number) -> Number:
    """Return the value of a polynomial by Horner's rule."""
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + np.float32(coefficient)
    return result


def power_of_two(x: Number) -> Number:
    """Return 2^x for x from -126 to 127."""
    whole = np.rint(x)
    return polynomial(_power_coefficients(), x - whole) * _scale(whole)


def exponential(x: Number) -> Number:
    """Return e^x for x up to 87, and 0 for x below -86."""
    whole = np.rint(x * np.float32(1 / log(2)))
    rest = (x - whole * np.float32(_LOG_TWO_HIGH)) - whole * np.float32(log(2) - _LOG_TWO_HIGH)
    power = polynomial(_exponential_coefficients(), rest) * _scale(whole)
    # Bits are compared, so that NaN stays NaN.
    lower = np.less_equal(x.view(np.uint32) - _LOWEST_BITS, _MINUS_INFINITY_BITS - _LOWEST_BITS)
    return np.where(lower, np.float32(0), power)


def _scale(whole: Number) -> Number:
    """Return 2 to the power of a whole number."""
    return (((whole + _WHOLE).view(np.int32) << np.int32(23)) + np.float32(1).view(np.int32)).view(np.float32)
