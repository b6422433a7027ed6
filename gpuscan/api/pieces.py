"""Compute arrays of the host in pieces: one is uploaded while a device computes another, and results are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TypeVar

from gpuscan.array_types import AnyArray
from gpuscan.sizes import spans

# A function that waits for an array.
Pending = Callable[[], AnyArray]
# What tells one piece from the others.
P = TypeVar("P")
# The slices that cut a part out of the first axes of an array.
PartSlices = tuple[slice, ...]


def in_flight(computed: Callable[[P], list[Pending]], parts: Iterable[P]) -> Iterator[tuple[P, list[Pending]]]:
    """Yield each part with its results, after the next one has been submitted. A device computes one meanwhile."""
    earlier = None
    for part in parts:
        submitted = part, computed(part)
        if earlier is not None:
            yield earlier
        earlier = submitted
    if earlier is not None:
        yield earlier


def cut_axes(lengths: Sequence[int], inner: int, limit: int) -> Iterator[PartSlices]:
    """Yield parts of axes. The first axes are cut first.

    Args:
        lengths: the lengths of these axes.
        inner: the numbers of one entry of all axes.
        limit: the most numbers of a part, which has one entry at least.
    """
    sizes = list(lengths)
    for axis in range(len(sizes)):
        sizes[axis] = max(1, min(sizes[axis], limit // max(1, prod(sizes[axis + 1 :]) * inner)))
    for parts in product(*map(spans, lengths, sizes)):
        yield tuple(slice(start, start + length) for start, length in parts)
