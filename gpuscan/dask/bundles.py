"""Bundles of dask arrays: number their arrays, and fill in others in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuscan.problem.results import over_arrays


@dataclass(frozen=True)
class Place:
    """The place of an array in a bundle. It has an axis, as arrays have, so that a list of places is a bundle, too.

    Attributes:
        number: how many arrays of the bundle come before, depth first.
    """

    ndim: ClassVar[int] = 1

    number: int


def filled(nest: Any, leaves: Sequence[Any]) -> Any:
    """Return the bundle with these leaves in their places."""
    return over_arrays(lambda place: leaves[place.number], nest)


def flattened(nest: Any, value: Any) -> Iterator[Any]:
    """Yield the leaves of a value that nests as the bundle does.

    Raises:
        TypeError, ValueError, KeyError, IndexError: it nests in another way.
    """
    if isinstance(nest, dict):
        if len(value) != len(nest):
            raise ValueError
        for key, part in nest.items():
            yield from flattened(part, value[key])
    elif isinstance(nest, (tuple, list)):
        for part, inside in zip(nest, value, strict=True):
            yield from flattened(part, inside)
    else:
        yield value
