"""The numbers of a dtype that are nearest to numbers of another one, as NumPy compares them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType

# The integers below this are floats of 64 bits.
_EXACT_IN_FLOAT64 = 2.0**53


def nearest_in(dtype: AnyDType, numbers: AnyArray, *, up: bool) -> tuple[AnyArray, AnyArray]:
    """Return for each number the least number of a dtype that is not below it, and True where there is one.

    If not `up`, it is the greatest number of the dtype that is not above it. Where there is none, it is the last one.
    """
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = numbers if numbers.dtype.kind in "iu" else (np.ceil if up else np.floor)(numbers.astype(np.float64))
        if wide.dtype.kind == "f":
            # NaN comes after all numbers. The powers of two are exact.
            wide = np.where(np.isnan(wide), np.inf, wide)
            exists = (wide < float(info.max + 1)) if up else (wide >= float(info.min))
            inside = (wide >= float(info.min)) & (wide < float(info.max + 1))
        else:
            exists = (wide <= info.max) if up else (wide >= info.min)
            inside = (wide >= info.min) & (wide <= info.max)
        ends = np.where(wide < 0, dtype.type(info.min), dtype.type(info.max))
        rounded = np.where(inside, np.where(inside, wide, 0).astype(dtype), ends)
        if wide.dtype.kind == "f" and dtype.itemsize == 8:
            # NumPy compares 64-bit integers with floats in float64, which rounds them.
            for index in np.flatnonzero(np.abs(wide) >= _EXACT_IN_FLOAT64):
                rounded.flat[index], exists.flat[index] = _nearest_in_float64(info, float(wide.flat[index]), up=up)
        return rounded, exists
    wide = numbers.astype(np.float64)
    with np.errstate(over="ignore"):
        nearest = wide.astype(dtype)
    rounds_wrong_way = nearest.astype(np.float64) < wide if up else nearest.astype(np.float64) > wide
    np.nextafter(nearest, dtype.type(np.inf if up else -np.inf), out=nearest, where=rounds_wrong_way)
    return nearest, np.isfinite(wide) | True


def _nearest_in_float64(info: np.iinfo[Any], number: float, *, up: bool) -> tuple[int, bool]:
    """Return what `nearest_in` does, where integers are rounded to float64 before they are compared."""
    end = int(info.max if up else info.min)
    if number > float(end) if up else number < float(end):
        return end, False
    # Halfway to the next float on the other side, which an integer is rounded to if that is even.
    other = np.nextafter(number, -np.inf if up else np.inf)
    if not np.isfinite(number) or not np.isfinite(other):
        return int(info.min if up else info.max), True
    middle = int(number) + int(other)
    nearest = -(-middle // 2) if up else middle // 2
    if float(nearest) < number if up else float(nearest) > number:
        nearest += 1 if up else -1
    return min(max(nearest, int(info.min)), int(info.max)), True


# ----- Edges of bins


@lru_cache(maxsize=64, typed=True)
def divide_range(first: float, last: float, bins: int, dtype: AnyDType, text: str) -> AnyArray:
    """Return the edges of bins of equal width for numbers of a dtype.

    The `text` of the range tells 0.0 from -0.0, which are equal.
    """
    del text
    edges = np.histogram_bin_edges(np.zeros(0, dtype), bins, (first, last))
    edges.flags.writeable = False
    return edges


def check_edges(edges: AnyArray, dtype: AnyDType, limits: tuple[float, float] | None) -> AnyArray:
    """Return the edges of bins, which may not fall."""
    if edges.ndim == 1 and not (edges[:-1] > edges[1:]).any():
        return edges
    return np.histogram_bin_edges(np.zeros(0, dtype), edges, limits)


def thresholds_of(edges: AnyArray, dtype: AnyDType, uniform: bool) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the edges of bins as numbers of a dtype, how many bins are usable, and the floats of `Edges`."""
    return _thresholds_of(edges.tobytes(), edges.dtype, dtype, uniform)


# A call computes them to find its program, and again for the constants of the program.
@lru_cache(maxsize=16)
def _thresholds_of(
    content: bytes, edges_dtype: AnyDType, dtype: AnyDType, uniform: bool
) -> tuple[AnyArray, AnyArray, AnyArray]:
    edges = np.frombuffer(content, edges_dtype)
    starts, exist = nearest_in(dtype, edges, up=True)
    last, reached = nearest_in(dtype, edges[-1:], up=False)
    usable = int(exist[:-1].sum()) if len(edges) and reached[0] else 0
    width = float(edges[-1]) - float(edges[0]) if len(edges) else 0.0
    scale = (len(edges) - 1) / width if uniform and width > 0 else 0.0
    # A division finds no bin nearby if it exceeds float32, or if the first edge was moved over several bins.
    float32 = np.finfo(np.float32)
    divides = width <= float(float32.max) and float(float32.tiny) <= scale <= float(float32.max)
    if not divides or abs(float(starts[0]) - float(edges[0])) * scale > 1:
        scale = 0.0
    thresholds = np.concatenate((starts[:-1], last)).astype(dtype)
    floats = np.array([scale, _margin_of(starts[:usable], scale)], np.float32)
    return thresholds, np.array([usable], np.uint32), floats


# Devices may flush subnormal numbers, which are far smaller than bins of this width.
_LEAST_WIDTH = 2.0**-100


def _margin_of(starts: AnyArray, scale: float) -> float:
    """Return how far a bin's start is from where `scale` puts it, in bins and in float32: at most 1.

    A device computes ``(number - starts[0]) * scale``, which never falls as the number rises. If the result is farther
    than this from all integers, its whole part is the bin.
    """
    if not starts.size or not 0 < scale <= 1 / _LEAST_WIDTH:
        return 1.0
    with np.errstate(all="ignore"):
        if starts.dtype.kind in "iu":
            # Numbers of 64 bits are searched, and need no margin.
            wide = starts.astype(np.int64)
            distances = (wide - wide[0]).astype(np.float32)
        else:
            distances = starts.astype(np.float32) - np.float32(starts[0])
        errors = np.abs(distances * np.float32(scale) - np.arange(starts.size, dtype=np.float64))
    # Devices may round each of the steps to the other neighbour.
    return min(1.0, float(errors.max()) + starts.size * 2.0**-21)
