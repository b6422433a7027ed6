"""Hypothesis strategies: arrays of any shape and memory order, and the options of a scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.oracle import Array

SPECIAL_FLOATS = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 3.4e38], np.float32)


@st.composite
def shapes(draw: st.DrawFn, least: int = 1, most: int = 5) -> tuple[int, ...]:
    """Draw shapes of a few hundred elements: axes of length 0 and 1 among them, one axis longer than the rest."""
    shape = draw(st.lists(st.integers(0, 5), min_size=least, max_size=most))
    long = draw(st.integers(0, len(shape) - 1))
    shape[long] = draw(st.sampled_from([0, 1, 2, 3, 31, 32, 33, 64, 100, 128, 257, 384]))
    return tuple(shape)


@st.composite
def arrays(draw: st.DrawFn, dtype: str) -> Array:
    """Draw arrays of any memory order: C, Fortran, permuted, backwards, strided, broadcast, byte-swapped."""
    shape = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    form = draw(st.sampled_from(["C", "F", "permuted", "backwards", "strided", "broadcast", "swapped"]))
    axis = draw(st.integers(0, len(shape) - 1))
    if form == "strided":
        whole = numbers(rng, dtype, tuple(2 * n for n in shape))
        return whole[tuple(slice(1, None, 2) for _ in shape)]
    if form == "broadcast":
        row = numbers(rng, dtype, tuple(1 if i == axis else n for i, n in enumerate(shape)))
        return np.broadcast_to(row, shape)
    if form == "permuted":
        order = draw(st.permutations(range(len(shape))))
        return numbers(rng, dtype, tuple(shape[i] for i in order)).transpose(np.argsort(order))
    array = numbers(rng, dtype, shape)
    if form == "backwards":
        return np.flip(array, tuple(draw(st.sets(st.integers(0, len(shape) - 1)))))
    if form == "swapped":
        return array.astype(array.dtype.newbyteorder())
    return np.asarray(array, order="F" if form == "F" else "C")


def numbers(rng: np.random.Generator, dtype: str, shape: Any) -> Array:
    """Draw integers of all bit patterns, or small whole floats, so that sums are exact."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    return rng.integers(-8, 9, shape).astype(kind)


@st.composite
def scans(draw: st.DrawFn) -> tuple[Array, str, int, dict[str, Any]]:
    """Draw an array, an operator with the identity 0, an axis, and options."""
    dtype, op = draw(st.sampled_from([("int32", "add"), ("float32", "add"), ("uint32", "maximum")]))
    x = draw(arrays(dtype))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    others = tuple(n for i, n in enumerate(x.shape) if i != axis % x.ndim)
    initial: Any = draw(st.sampled_from([None, 3, "rows"]))
    if initial == "rows":
        initial = numbers(np.random.default_rng(0), dtype, others)
    return x, op, axis, {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans()), "initial": initial}
