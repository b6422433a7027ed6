"""Describe a compaction as a scan of its mask: the sums are the places of the entries that the mask picks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any, Literal

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.elements import Element, element_of, tuple_of
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import Leaf
from gpuscan.problem.packed_fields import number_from, reshape_numbers
from gpuscan.problem.problem import Problem
from gpuscan.sizes import has_size

# The dtype of each array, and the shape of its entries.
_FieldTypes = tuple[tuple[AnyDType, tuple[int, ...]], ...]
# What a compaction stores: the entries that are picked, the others too, or the first of each run with its length.
_Stores = Literal["picked", "both", "runs"]


def words_of_entry(nbytes: int) -> tuple[AnyDType, int]:
    """Return how an entry of this many bytes is moved: the unsigned words, or parts of words, and their number."""
    size = gcd(4, nbytes)
    return np.dtype(f"u{size}"), nbytes // size


def compaction_problem(words: Sequence[Leaf], mask: Leaf | Map, *, partitions: bool = False) -> Problem:
    """Return the scan that picks entries.

    Args:
        words: arrays (n, words of an entry), as `words_of_entry` says.
        mask: an array (n,) of uint8 that are 0 or 1, or a function of an entry, traced, that gives a bool.
        partitions: True to store the entries that are not picked as well, in as many fields more.
    """
    field_types, length = _field_types_of(words), words[0].shape[0]
    if isinstance(mask, Map):
        return _make_problem(field_types, length, "picked", mask).with_leaves(tuple(words))
    return _find_problem(field_types, length, "both" if partitions else "picked").with_leaves((mask, *words))


def key_runs_problem(words: Leaf, keys: Leaf) -> Problem:
    """Return the scan that picks the first entry of each run of equal keys, and the run's length.

    Args:
        words: (n, words of an entry), as `words_of_entry` says.
        keys: (n,): the keys, which are compared as NumPy compares them, so each NaN is a run.
    """
    problem = _find_problem(_field_types_of((words,)), words.shape[0], "runs")
    return problem.with_leaves((words,)).cut(None, keys, checks_later=False)


def _field_types_of(words: Sequence[Leaf]) -> _FieldTypes:
    return tuple((leaf.dtype, leaf.shape[1:]) for leaf in words)


def _find_problem(field_types: _FieldTypes, length: int, stores: _Stores) -> Problem:
    """Return the scan of a mask of bytes, or of keys, without its arrays. Scans of equal types and length share it."""
    sized = has_size((length, *(size for _, shape in field_types for size in shape)))
    return _make_problem(field_types, length, stores) if sized else _keep_problem(field_types, length, stores)


@lru_cache(maxsize=512)
def _keep_problem(field_types: _FieldTypes, length: int, stores: _Stores) -> Problem:
    return _make_problem(field_types, length, stores).drop_arrays()


def _make_problem(field_types: _FieldTypes, length: int, stores: _Stores, mask: Map | None = None) -> Problem:
    """Return the scan of arrays of these dtypes and shapes of an entry, without the arrays."""
    words = _element(field_types)
    picks_by_bytes = mask is None and stores != "runs"
    stored: dict[_Stores, _FieldTypes] = {
        "picked": field_types,
        "both": (*field_types, *field_types),
        "runs": (*field_types, (np.dtype(np.uint32), ())),
    }
    return Problem(
        operator=resolve("add"),
        leaves=(),
        source=_element(((np.dtype(np.uint8), ()), *field_types)) if picks_by_bytes else words,
        element=element_of([np.dtype(np.uint32)]),
        destination=_element(stored[stores]),
        shape=(length,),
        axis=0,
        before=None if mask is None else trace_function(_selects(mask), words, "mask"),
        compacts=True,
        partitions=stores == "both",
    )


def _element(field_types: _FieldTypes) -> Element:
    return element_of(
        [dtype for dtype, _ in field_types], tuple_of(len(field_types)), [shape for _, shape in field_types]
    )


def _selects(predicate: Map) -> Callable[..., object]:
    """Return a function of the words of an entry: 1 if the predicate picks the entry, else 0."""
    element = predicate.source

    def select(vectors: Any) -> object:
        parts = []
        for field, words in zip(element.fields, vectors, strict=True):
            size = field.scalar.dtype.itemsize
            parts.append(
                reshape_numbers([number_from(words, i * size, field.scalar) for i in range(field.count)], field.shape)
            )
        is_selected = predicate(element.structure.unflatten(parts))
        return np.where(is_selected, np.full_like(vectors[0][..., 0], 1, np.uint32), np.uint32(0))

    return select
