"""Compute elementary functions on NumPy with the bits that the kernels give: the same WGSL, translated line by line.

The functions under shaders/shared/elementary/ are straight lines: ``let``, ``return``, and at most one early return.
Each expression means the same in Python on arrays of uint32, int32, float32 and bool, once literals, conversions and
``!`` are spelled in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpuscan.array_types import AnyArray as Array
from gpuscan.operators.code import arithmetic_functions, helpers_of


class Vector(NamedTuple):
    """A WGSL vector of up to four words."""

    x: Any
    y: Any
    z: Any = None
    w: object = None

    @property
    def xy(self) -> Vector:
        """The first two components."""
        return Vector(self.x, self.y)


def elementary(name: str, *args: Array, odd: bool = False) -> Array:
    """Return a function of float32 arrays, element by element, bit by bit as on every device.

    Args:
        name: the name of the NumPy ufunc, such as ``exp``.
        args: its arguments, of the same shape.
        odd: round to odd, as for a 16-bit float that is rounded from the result.

    Raises:
        KeyError: there is no such function in shaders/shared/elementary/.
    """
    function = _python_function(f"f32_{name}" + ("_odd" if odd else ""))
    with np.errstate(all="ignore"):
        computed = function(*(np.ascontiguousarray(arg, np.float32).reshape(-1) for arg in args))
    return np.asarray(computed, np.float32).reshape(np.shape(args[0]))


def errors_in_units(results: Array, exact: Array) -> Array:
    """Return |found - exact| of float32 and float64 arrays in units of the last place of the exact number's float32.

    Where one of the two is not finite, the error is 0 if they agree and infinite if they do not. A zero of the wrong
    sign is an infinite error too.
    """
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        exponents = (nearest.view(np.uint32) >> 23) & 255
        errors = np.abs(results.astype(np.float64) - exact) * _UNITS_IN_ONE[exponents]
        special = np.flatnonzero((exponents == 255) | ~np.isfinite(results) | ((nearest == 0) & (results == 0)))
        computed, wanted = results[special], nearest[special]
        same = np.where(np.isnan(wanted), np.isnan(computed), computed == wanted)
        same &= np.isnan(wanted) | (np.signbit(computed) == np.signbit(wanted))
    errors[special] = np.where(same, 0, np.inf)
    return np.asarray(errors)


# How many units of the last place are in 1, by the exponent field of a float32.
_UNITS_IN_ONE = 2.0 ** (150 - np.maximum(np.arange(256), 1))


@cache
def _python_function(name: str) -> Callable[..., object]:
    """Return a WGSL function of the library, and all that it calls, in Python."""
    names: dict[str, Any] = dict(_NAMES)
    for helper in helpers_of(f"{name}("):
        if helper not in _NAMES:
            exec(python_of(arithmetic_functions()[helper]), names)
    function: Callable[..., object] = names[name]
    return function


def python_of(wgsl: str) -> str:
    """Return one WGSL function in straight lines as Python."""
    text = re.sub(r"//.*", "", wgsl)
    head, body = text.split("{", 1)
    arguments = re.findall(r"(\w+): ", head.split("->")[0])
    (name,) = re.findall(r"fn (\w+)", head)
    lines = [f"def {name}({', '.join(arguments)}):"]
    body, early = re.subn(r"if \((.*)\) \{\s*return (.*);\s*\}", r"let early = \1; let result = \2;", body)
    if early:
        body = re.sub(r"return (.*);", r"return select(\1, result, early);", body)
    for statement in body.rsplit("}", 1)[0].split(";"):
        line = " ".join(statement.split())
        if line:
            lines.append("    " + _expression(line.removeprefix("let ")))
    return "\n".join(lines)


def _expression(text: str) -> str:
    # A shift by a constant keeps the type of the left side only if Python's int stands on the right.
    text = re.sub(r"(<<|>>) (\d+)u\b", r"\1 \2", text)
    if "f32(" not in text:  # a quotient of integers
        text = text.replace(" / ", " // ")
    text = re.sub(r"\b(0x[0-9a-f]+|\d+)u\b", r"u32(\1)", text)
    text = re.sub(r"\b(0x[0-9a-f]+|\d+)i\b", r"i32(\1)", text)
    text = re.sub(r"\b(\d+\.\d+)f\b", r"f32(\1)", text)
    text = re.sub(r"bitcast<(\w+)>", r"bits_as_\1", text)
    return re.sub(r"vec[24]<u32>", "Vector", re.sub(r"!(?!=)", "~", text))


def _select(other: Any, chosen: Any, condition: Any) -> object:
    if isinstance(other, Vector):
        return Vector(*(None if a is None else np.where(condition, b, a) for a, b in zip(other, chosen, strict=True)))
    return np.where(condition, chosen, other)


def _leading_zeros(x: object) -> object:
    x, zeros = np.array(x), np.zeros(np.shape(x), np.uint32)
    for step in (16, 8, 4, 2, 1):
        empty = x < np.uint32(1 << (32 - step))
        zeros += np.where(empty, np.uint32(step), np.uint32(0))
        x = np.where(empty, x << step, x)
    return zeros + (x == 0)


def _bits_as(dtype: DTypeLike) -> Callable[..., object]:
    return lambda x: np.asarray(x).view(dtype)


def _as(dtype: DTypeLike) -> Callable[..., Array]:
    return lambda x: np.asarray(x).astype(dtype)


_TYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32}
_NAMES = {
    "high_product": lambda a, b: ((np.uint64(1) * a * b) >> np.uint64(32)).astype(np.uint32),
    "f32_settled": lambda x: np.asarray(x).view(np.uint32),
    "f32_hidden": lambda bits: np.asarray(bits).view(np.float32),
    "signed_high_product": lambda a, b: ((np.int64(1) * a * b) >> np.int64(32)).astype(np.int32),
    "true": np.True_,
    "false": np.False_,
    "Vector": Vector,
    "select": _select,
    "countLeadingZeros": _leading_zeros,
    "min": np.minimum,
    "max": np.maximum,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "abs": np.abs,
    "sqrt": np.sqrt,
    "round": np.rint,
    "trunc": np.trunc,
    **{name: _as(dtype) for name, dtype in _TYPES.items()},
    **{f"bits_as_{name}": _bits_as(dtype) for name, dtype in _TYPES.items()},
}
