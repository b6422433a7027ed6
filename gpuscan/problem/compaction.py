"""Describe a compaction as a scan of its mask: the sums are the places of the entries that the mask picks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import Any

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
_Kinds = tuple[tuple[AnyDType, tuple[int, ...]], ...]


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
    kinds = tuple((leaf.dtype, leaf.shape[1:]) for leaf in words)
    length = words[0].shape[0]
    if isinstance(mask, Map):
        return _problem(kinds, length, mask).with_leaves(tuple(words))
    if has_size((length, *(size for _, shape in kinds for size in shape))):
        return _problem(kinds, length, None, partitions=partitions).with_leaves((mask, *words))
    return _make_mask_problem(kinds, length, partitions).with_leaves((mask, *words))


def runs_problem(words: Leaf, keys: Leaf) -> Problem:
    """Return the scan that picks the first entry of each run of equal keys, and its index.

    Args:
        words: (n, words of an entry), as `words_of_entry` says.
        keys: (n,): the keys, which are compared as NumPy compares them, so each NaN is a run.
    """
    kind, length = (words.dtype, words.shape[1:]), words.shape[0]
    sized = has_size((length, *kind[1]))
    problem = _make_runs_problem(kind, length) if sized else _keep_runs_problem(kind, length)
    return problem.with_leaves((words,)).cut(None, keys, checks_later=False)


def _make_runs_problem(kind: tuple[AnyDType, tuple[int, ...]], length: int) -> Problem:
    """Return the scan that picks entries and their indices, without its arrays and keys."""
    index = (np.dtype(np.uint32), ())
    return replace(_problem((kind,), length, None), source=_element((kind,)), destination=_element((kind, index)))


@lru_cache(maxsize=256)
def _keep_runs_problem(kind: tuple[AnyDType, tuple[int, ...]], length: int) -> Problem:
    """Return the same, for scans of one kind to share."""
    return _make_runs_problem(kind, length).drop_arrays()


@lru_cache(maxsize=256)
def _make_mask_problem(kinds: _Kinds, length: int, partitions: bool) -> Problem:
    """Return the scan of a mask of bytes, without its arrays. Scans of one kind share it."""
    return _problem(kinds, length, None, partitions=partitions).drop_arrays()


def _problem(kinds: _Kinds, length: int, mask: Map | None, *, partitions: bool = False) -> Problem:
    """Return the scan of arrays of these dtypes and shapes of an entry, without the arrays."""
    moved = source = _element(kinds)
    before = None
    if mask is not None:
        before = trace_function(_selects(mask), moved, "mask")
    else:
        source = _element(((np.dtype(np.uint8), ()), *kinds))
    return Problem(
        operator=resolve("add"),
        leaves=(),
        source=source,
        element=element_of([np.dtype(np.uint32)]),
        destination=_element((*kinds, *kinds)) if partitions else moved,
        shape=(length,),
        axis=0,
        before=before,
        compacts=True,
        partitions=partitions,
    )


def _element(kinds: _Kinds) -> Element:
    return element_of([dtype for dtype, _ in kinds], tuple_of(len(kinds)), [shape for _, shape in kinds])


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
        picked = predicate(element.structure.unflatten(parts))
        return np.where(picked, np.full_like(vectors[0][..., 0], 1, np.uint32), np.uint32(0))

    return select
