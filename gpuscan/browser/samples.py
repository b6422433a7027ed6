"""Samples with known results, for an exported page to check itself with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.elements import Element, Field, compute_dtype
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import heads_of
from gpuscan.reference.scan import accumulate

# The longest array that a page checks, in elements.
MAX_CHECKED = 100_003

# How far floats may be from NumPy's, relative to the value or to 1: sums of many of them round in another order.
TOLERANCE = 2e-3

# The mean length of a segment, in elements. It is no divisor of a tile.
SEGMENT = 611

# The share of the elements that a mask picks.
DENSITY = 0.4


@dataclass(frozen=True)
class Samples:
    """Arrays and the result of their scan.

    Attributes:
        given: an array for each field of the source.
        expected: an array for each field of the result.
        offsets: the offsets of the segments, or None.
        mask: for a compaction, a byte for each element: 1 if the element is picked, else 0.
    """

    given: list[Array]
    expected: list[Array]
    offsets: Array | None = None
    mask: Array | None = None


def samples_of(problem: Problem) -> Samples | None:
    """Return samples for a scan, as long as it is or as `MAX_CHECKED`, with the result of NumPy.

    There are none for an operator that is written in WGSL only, which NumPy cannot compute.
    """
    if problem.operator.function is None and problem.operator.wgsl is not None:
        return None
    length = min(problem.size, MAX_CHECKED)
    rng = np.random.default_rng(0)
    given = [_values(rng, field, length, problem.operator.name) for field in problem.source.fields]
    offsets, heads = None, None
    if problem.heads is not None:
        inner = rng.integers(0, length + 1, max(1, length // SEGMENT))
        offsets = np.concatenate([[0], np.sort(inner), [length]])
        heads = heads_of(offsets, None, (length,), 0, problem.reverse)
    sampled = replace(problem, leaves=tuple(given), shape=(length,), axis=0, heads=heads)
    expected = [np.ascontiguousarray(rows[0]) for rows in accumulate(sampled)]
    return Samples(given, expected, offsets)


def make_compaction_samples(element: Element, length: int, pick: Callable[[list[Array]], Array] | None) -> Samples:
    """Return samples for a compaction, with what NumPy picks.

    Args:
        element: the type of the elements.
        length: the longest array, in elements.
        pick: gives a bool for each element of some arrays; None for a mask of chance.
    """
    length = min(length, MAX_CHECKED)
    rng = np.random.default_rng(0)
    given = [_values(rng, field, length, "compact") for field in element.fields]
    mask = rng.random(length) < DENSITY if pick is None else pick(given)
    return Samples(given, [array[mask] for array in given], mask=mask.astype(np.uint8))


def _values(rng: np.random.Generator, field: Field, length: int, name: str) -> Array:
    """Return numbers with which no sum grows beyond its type."""
    shape, dtype = (length, *field.shape), field.scalar.dtype
    numbers: Array
    if field.scalar.kind == "bool":
        numbers = rng.random(shape) < 0.5
    elif field.scalar.is_integer:
        info = np.iinfo(dtype)
        numbers = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    elif field.scalar.kind == "complex":
        numbers = np.exp(2j * np.pi * rng.random(shape)).astype(dtype)
    elif name == "multiply":
        numbers = rng.choice(np.array([-1, 1], compute_dtype(field.scalar)), shape).astype(dtype)
    else:
        numbers = rng.uniform(-1, 1, shape).astype(dtype)
    return numbers
