"""Affine recurrences ``v = b + M v'`` as operators that store only those entries of the matrices M that vary.

The entries of the matrices of one recurrence fall into classes: 0 everywhere, 1 everywhere, and classes of entries that
are equal in every matrix and in every product. A diagonal matrix of one gate has a single class; the matrices of a
product of k x k matrices have k**2 instead of k**4.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.elements import Element, Field, Scalar, tuple_of
from gpuscan.operators.operator import Operator

# The classes of the entries that are 0 or 1 in every product. The others count from 0.
ZERO, ONE = -1, -2

# The class of each entry of a matrix.
Pattern = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Transitions:
    """The operator that combines affine maps with matrices of one pattern.

    Attributes:
        pattern: the class of each entry.
        places: for each class that is stored, an entry of it.
        operator: combines an earlier and a later map. Each is a tuple: the numbers of the classes, then b, then numbers
            that are carried along. The result has the carried numbers of the later map.
        width: the count of numbers in a tuple.
    """

    pattern: Pattern
    places: tuple[tuple[int, int], ...]
    operator: Operator
    width: int

    @property
    def size(self) -> int:
        """The number of rows of a matrix."""
        return len(self.pattern)

    def element(self, scalars: Sequence[Scalar]) -> Element:
        """Return the element that the operator combines: one field for each number, of these types."""
        fields = tuple(Field(f"f{i}", scalar) for i, scalar in enumerate(scalars))
        if self.width == 1:
            return Element(fields)
        return Element(fields, tuple_of(self.width))


def pattern_of(entries: Sequence[Sequence[Hashable]], zero: Hashable, one: Hashable) -> Pattern:
    """Return the classes of a matrix's entries, such that products of matrices with these classes have them too.

    Args:
        entries: a value for each entry. Entries with equal values are equal in every matrix.
        zero, one: the values of the entries that are always 0 and 1.
    """
    size = range(len(entries))
    numbers: dict[Hashable, int] = {zero: ZERO, one: ONE}
    classes = [[numbers.setdefault(entry, len(numbers)) for entry in row] for row in entries]
    while True:
        keys: dict[Hashable, int] = {(ZERO, ()): ZERO, (ONE, ((ONE, ONE),)): ONE}
        refined = [[keys.setdefault((classes[i][j], _terms(classes, i, j)), len(keys)) for j in size] for i in size]
        if refined == classes:
            break
        classes = refined
    stored = sorted({entry for row in classes for entry in row if entry not in (ZERO, ONE)})
    order = {ZERO: ZERO, ONE: ONE} | {entry: place for place, entry in enumerate(stored)}
    return tuple(tuple(order[entry] for entry in row) for row in classes)


def _terms(classes: Sequence[Sequence[int]], i: int, j: int) -> tuple[tuple[int, int], ...]:
    """Return the products of classes that are summed in entry (i, j) of a product of two matrices."""
    pairs = ((classes[i][k], classes[k][j]) for k in range(len(classes)))
    return tuple(sorted(pair for pair in pairs if ZERO not in pair))


@lru_cache(maxsize=256)
def transitions(pattern: Pattern, carried: int = 0) -> Transitions:
    """Return the transitions with this pattern; the same object each time, so that its kernels are compiled once.

    Args:
        pattern: the class of each entry of a matrix.
        carried: how many numbers an element carries along.
    """
    found: Mapping[int, tuple[int, int]] = {
        entry: (i, j)
        for i, row in reversed(list(enumerate(pattern)))
        for j, entry in reversed(list(enumerate(row)))
        if entry >= 0
    }
    places = tuple(found[entry] for entry in range(len(found)))
    terms = [_terms(pattern, i, j) for i, j in places]
    rows = [[(entry, j) for j, entry in enumerate(row) if entry != ZERO] for row in pattern]
    stored = len(places)
    width = stored + len(rows) + carried

    def combine(left: Any, right: Any) -> Any:
        if width == 1:
            left, right = (left,), (right,)
        matrix = [
            _total([_entries(left, right, *pair, like=right[stored]) for pair in pairs])
            if pairs
            else np.zeros_like(right[stored])
            for pairs in terms
        ]
        vector = [
            _total([right[stored + i], *(_times(right, entry, left[stored + j]) for entry, j in row)])
            for i, row in enumerate(rows)
        ]
        result = (*matrix, *vector, *(right[i] for i in range(stored + len(rows), width)))
        return result if width > 1 else result[0]

    return Transitions(pattern, places, Operator("transition", combine), width)


def _entries(earlier: Any, later: Any, entry: int, other: int, like: Any) -> Any:
    """Return the product of an entry of the later matrix and one of the earlier, in the type of `like`."""
    if other == ONE:
        return np.ones_like(like) if entry == ONE else later[entry]
    return _times(later, entry, earlier[other])


def _times(matrix: Any, entry: int, number: Any) -> Any:
    return number if entry == ONE else matrix[entry] * number


def _total(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
