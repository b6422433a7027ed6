"""Compute arrays of the host in pieces: one is uploaded while a device computes another, and results are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gpuscan.array_types import AnyArray

# A function that waits for an array.
Pending = Callable[[], AnyArray]
# What tells one piece from the others.
P = TypeVar("P")


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
