"""CPU twins of the stages that take and put elements at indices, each of the name of its template."""

from __future__ import annotations

import numpy as np

from tests.oracle import Array

# Stands for an index that the axis does not have.
NO_INDEX = 2**32 - 1


def resolve_indices(indices: Array, length: int, places: Array | None = None) -> tuple[Array, int, int]:
    """Return the places of indices, joined with the places of earlier axes, and how far wrong indices are off.

    The second result is the largest index above the axis, the third is the most negative index below it without its
    sign. Each is 0 if there is no such index.
    """
    wide = [int(index) for index in indices.ravel()]
    joined = []
    for index, before in zip(wide, [0] * len(wide) if places is None else places.ravel().tolist(), strict=True):
        exists = -length <= index < length and before != NO_INDEX
        joined.append(before * length + index % length if exists else NO_INDEX)
    above = max([index for index in wide if index >= length], default=0)
    below = max([-index for index in wide if index < -length], default=0)
    return np.array(joined, np.uint32).reshape(indices.shape), min(above, NO_INDEX), min(below, NO_INDEX)


def places_of_elements(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    place_strides: tuple[int, ...],
    rows: tuple[tuple[int, int], ...],
    places: Array,
) -> tuple[Array, Array]:
    """Return for each element of a result if its place exists, and how far from the first element it is.

    The arguments have the meaning of the attributes of `gpuscan.engine.array_indices.IndexedArray`, with strides in
    elements.
    """
    which = np.zeros(shape, np.int64)
    at = np.zeros(shape, np.int64)
    for axis, index in enumerate(np.indices(shape)):
        which += index * place_strides[axis]
        at += index * strides[axis]
    chosen = places.ravel()[which].astype(np.int64)
    exists = chosen != NO_INDEX
    for length, stride in reversed(rows[1:]):
        at += chosen % length * stride
        chosen //= length
    return exists, at + chosen * rows[0][1]


def take(source: Array, first: int, exists: Array, at: Array) -> Array:
    """Return the elements of a flat array at these distances from its `first` one; zeros where there is no place."""
    return np.where(exists, source[np.where(exists, first + at, 0)], np.zeros((), source.dtype))


def put(destination: Array, first: int, exists: Array, at: Array, values: Array) -> None:
    """Write the elements to a flat array at these distances from its `first` one, where there is a place."""
    destination[first + at[exists]] = values[exists]


def keep_last(places: Array) -> Array:
    """Return the places with `NO_INDEX` where a later one is equal."""
    flat, kept = places.ravel(), places.ravel().copy()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    kept[order[:-1][ordered[:-1] == ordered[1:]]] = NO_INDEX
    return kept
