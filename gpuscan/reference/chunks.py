"""Scan a row that comes in chunks on NumPy, in the canonical order of reproducible="everywhere"."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.planning.tile_shapes import SPAN
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Heads, Marks
from gpuscan.reference.everywhere import FixedJoiner, scan_span
from gpuscan.reference.scan import load, store
from gpuscan.reference.stages import Items, stack


@dataclass
class _Chunk:
    """One of the caller's arrays: its items, and the results that are computed."""

    problem: Problem
    items: Items
    results: list[list[Array]] = field(default_factory=list)
    taken: int = 0

    @property
    def rest(self) -> int:
        """The number of items that no span has taken."""
        return self.problem.size - self.taken


def accumulate_stream(problems: Iterator[Problem]) -> Iterator[list[Array]]:
    """Yield the results of each chunk, one array for each field: the bits of one scan of all chunks.

    Results come when a span of elements is there, or when the chunks end. The elements of a chunk are read before the
    next chunk is taken.
    """
    chunks: deque[_Chunk] = deque()
    fold: Items | None = None
    waiting, has_elements = 0, False
    for problem in chain(problems, [None]):
        if problem is not None:
            marked = _with_marks(problem, begins=not has_elements)
            with np.errstate(all="ignore"):
                items = tuple(array.copy() for array in load(marked, marked.numpy_leaves))
            chunks.append(_Chunk(marked.with_leaves(()), items))
            waiting += marked.size
            has_elements = has_elements or marked.size > 0
        while waiting >= SPAN or (problem is None and waiting):
            count = min(waiting, SPAN)
            with np.errstate(all="ignore"):
                fold = _scan_next(chunks, count, fold)
            waiting -= count
        while chunks and not chunks[0].rest:
            chunk = chunks.popleft()
            fields = chunk.problem.destination.fields
            parts = chunk.results or [[np.empty((0, *f.shape), f.scalar.dtype) for f in fields]]
            yield [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _with_marks(problem: Problem, *, begins: bool) -> Problem:
    """Return the chunk with marks of its heads. Without segments there is one, the first element of all chunks."""
    if problem.heads is not None:
        return problem
    marks = np.zeros(problem.size, bool)
    marks[:1] = begins
    return replace(problem, heads=Heads(problem.shape, 0, reverse=False, cut=Marks(marks)))


def _scan_next(chunks: deque[_Chunk], count: int, fold: Items | None) -> Items:
    """Scan the next items of the chunks as one span, after the fold of those before, and return the next fold."""
    taken: list[tuple[_Chunk, int, int]] = []
    for chunk in chunks:
        begin, end = chunk.taken, chunk.taken + min(count, chunk.rest)
        taken.append((chunk, begin, end))
        chunk.taken = end
        count -= end - begin
    problem = chunks[0].problem
    join = FixedJoiner(problem.operator, problem.element, segmented=True)
    items = stack([tuple(a[i:j] for a in chunk.items) for chunk, i, j in taken])
    inclusive, exclusive, after = scan_span(join, items, fold)
    results = exclusive if problem.exclusive else inclusive
    at = 0
    for chunk, begin, end in taken:
        part = tuple(array[at : at + end - begin] for array in results)
        if end > begin:
            chunk.results.append(store(chunk.problem, part, begin))
        at += end - begin
    return after
