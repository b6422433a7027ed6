"""A scan over an iterable of arrays, with the carry kept between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.scan import bundle
from gpuscan.device.guards import guarded_steps
from gpuscan.device.transfer import Bytes, bytes_of, copy
from gpuscan.engine.host_arrays import check_dtypes, seed_words, work_of
from gpuscan.engine.streams import Piece, Stream
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tuned_tiles import best_tile
from gpuscan.problem.field_packing import binds_too_many, packed, unpacked
from gpuscan.problem.problem import Problem, pose, unrounded

if TYPE_CHECKING:
    from gpuscan.api.device import Device

Leaves = list[np.ndarray[Any, Any]]


@dataclass
class Chunk:
    """One of the caller's arrays, and its result as far as it is there."""

    leaves: Leaves
    results: Leaves
    length: int
    done: int = 0


class Conveyor:
    """The elements of the chunks, as one row whose end is not known before it comes."""

    def __init__(self, problems: Iterator[Problem], chunks: deque[Chunk]) -> None:
        self._problems = problems
        self.chunks = chunks  # those with elements whose results are not all there
        self.arrived = 0  # elements
        self._fresh: deque[tuple[Chunk, int]] = deque()  # chunks, and where in them the elements not yet taken begin
        self._waiting = 0  # elements not yet taken

    def await_elements(self, count: int) -> bool:
        """Take chunks in until so many elements wait; whether they do, or the end came before."""
        while self._waiting < count:
            problem = next(self._problems, None)
            if problem is None:
                return False
            fields = problem.destination.fields
            results = [np.empty((problem.size, *f.shape), f.scalar.dtype) for f in fields]
            # Copies, for whoever makes the chunks may fill one array again and again.
            chunk = Chunk([np.array(leaf, order="C") for leaf in problem.leaves], results, problem.size)
            self.chunks.append(chunk)
            self._fresh.append((chunk, 0))
            self._waiting += chunk.length
            self.arrived += chunk.length
        return True

    def pieces(self, length: int) -> Iterator[Piece]:
        """The elements in pieces of `length`; the last one is what is left. One element more tells that it is not."""
        start = 0
        while True:
            more = self.await_elements(length + 1)
            count = length if more else self._waiting
            if count == 0:
                return
            parts = self._take(count)
            yield Piece(start, count, not more, filler(parts), drainer(parts))
            start += count
            if not more:
                return

    def _take(self, count: int) -> list[tuple[Chunk, int, int]]:
        """The next elements as stretches of chunks."""
        parts = []
        self._waiting -= count
        while count:
            chunk, begin = self._fresh.popleft()
            n = min(count, chunk.length - begin)
            if n:
                parts.append((chunk, begin, begin + n))
            if begin + n < chunk.length:
                self._fresh.appendleft((chunk, begin + n))
            count -= n
        return parts

    def finished(self) -> Iterator[Chunk]:
        """The chunks at the front whose results are all there."""
        while self.chunks and self.chunks[0].done == self.chunks[0].length:
            yield self.chunks.popleft()


def filler(parts: list[tuple[Chunk, int, int]]) -> Any:
    def fill(field: int, memory: Bytes) -> None:
        at = 0
        for chunk, begin, end in parts:
            data = bytes_of(chunk.leaves[field][begin:end])
            copy(memory[at : at + data.nbytes], data)
            at += data.nbytes

    return fill


def drainer(parts: list[tuple[Chunk, int, int]]) -> Any:
    def drain(field: int, memory: Bytes) -> None:
        at = 0
        for chunk, begin, end in parts:
            target = bytes_of(chunk.results[field][begin:end])
            copy(target, memory[at : at + target.nbytes])
            at += target.nbytes
            if field == len(chunk.results) - 1:
                chunk.done = end

    return drain


def scan_in_chunks(
    chunks: Iterable[Any],
    op: Any,
    device: Device,
    strategy: str,
    options: dict[str, Any],
    piece_bytes: int | None = None,
) -> Iterator[Any]:
    """The results of the chunks, in order: each has the chunk's length, and the kind of the chunk.

    The tile's shape, which fixes the order of combination, follows the length of the whole. So results are held back
    until so many elements have come that more would not change it, or the end.
    """
    iterator = iter(chunks)
    first = next(iterator, None)
    if first is None:
        return
    as_given = posed(first, op, options)
    if not as_given.source.storage_bytes:  # such as matrices of 0 by 0
        yield from scan_on_cpu(chain([first], iterator), op, options)
        return
    check_dtypes(device, as_given.source, as_given.element, as_given.destination)
    too_many = binds_too_many(device, as_given)
    opening = packed(device, as_given) if too_many else as_given

    failures: list[Exception] = []

    def problems() -> Iterator[Problem]:
        yield opening
        try:
            for number, chunk in enumerate(iterator, 2):
                problem = posed(chunk, op, options)
                check_alike(number, problem, as_given)
                yield packed(device, problem) if too_many else problem
        except Exception as error:  # told when the results of what came before it are out
            failures.append(error)

    def in_form(chunk: Chunk) -> Any:
        results = unpacked(as_given, chunk.results) if too_many else chunk.results
        return bundle(as_given, results, first)

    waiting: deque[Chunk] = deque()
    conveyor = Conveyor(problems(), waiting)
    work = replace(work_of(device, opening), rows=1, row_length=LENGTH_LIMIT - 1)
    enough = settled_length(work, device)
    if not conveyor.await_elements(enough) and conveyor.arrived:
        work = replace(work, row_length=conveyor.arrived)

    stream = Stream(device, work, strategy, seeds=seed_words(device, opening), piece_bytes=piece_bytes)
    with closing(stream.run(conveyor.pieces(stream.piece_length))) as landed:  # also when the caller has seen enough
        for _ in guarded_steps(device, landed):
            for chunk in conveyor.finished():
                yield in_form(chunk)
    for chunk in conveyor.finished():
        yield in_form(chunk)
    if failures:
        raise failures[0]


def scan_on_cpu(chunks: Iterable[Any], op: Any, options: dict[str, Any]) -> Iterator[Any]:
    """The same without a GPU: the last result of a chunk is the next one's `initial`."""
    from gpuscan.reference import scan as reference

    first: Problem | None = None
    seeds: tuple[np.ndarray[Any, Any], ...] | None = None
    for number, chunk in enumerate(chunks, 1):
        problem = posed(chunk, op, options)
        first = first or problem
        check_alike(number, problem, first)
        if seeds is not None:
            problem = replace(problem, initial=True, seeds=seeds)
        plain = unrounded(replace(problem, after=None, destination=problem.element))
        rows = [row[0] for row in reference.accumulate(plain)]
        if problem.size:  # before the caller can write to the chunk, or to its results
            seeds = as_seeds(after_last(plain, [row[-1] for row in rows]))
        yield bundle(problem, stored(problem, rows), chunk)


def check_alike(number: int, problem: Problem, first: Problem) -> None:
    """Raise TypeError where a chunk has other fields, or other elements, than the first one."""
    found, wanted = ([*leaf.structure.paths()] for leaf in (problem.source, first.source))
    if found != wanted:
        raise TypeError(
            f"chunk {number} is {shown(found)}, the first one {shown(wanted)}; all chunks must have the "
            "same fields in the same order"
        )
    if problem.source != first.source:
        raise TypeError(
            f"chunk {number} has the elements {described(problem)}, the first one {described(first)}; all "
            "chunks must be alike. Convert them to one dtype, such as np.result_type of all"
        )


def stored(problem: Problem, rows: Leaves) -> Leaves:
    """The results of what was combined: mapped by `after`, and rounded."""
    from gpuscan.reference import scan as reference

    with np.errstate(all="ignore"):
        if problem.after is not None:
            rows = reference.mapped_by_after(problem, rows)
        fields = zip(rows, problem.destination.fields, strict=True)
        return [reference.filled(row, field.scalar.dtype, (problem.row_length, *field.shape)) for row, field in fields]


def after_last(problem: Problem, carry: list[Any]) -> list[Any]:
    """What comes before the next chunk: the last result, of an exclusive scan combined with the last element."""
    from gpuscan.reference import scan as reference

    if not problem.exclusive:
        return carry
    ends = [leaf[-1:] for leaf in problem.leaves]
    again = replace(
        problem,
        leaves=tuple(ends),
        shape=(1,),
        exclusive=False,
        initial=True,
        seeds=as_seeds(carry),
    )
    return [row[0, -1] for row in reference.accumulate(again)]


def as_seeds(carry: list[Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """The fields of one element as the seed of one row."""
    return tuple(np.array(value)[np.newaxis] for value in carry)


def posed(chunk: Any, op: Any, options: dict[str, Any]) -> Problem:
    """The `Problem` of one chunk.

    Raises:
        ValueError: it has several axes.
    """
    problem = pose(chunk, op, **(options | {"axis": 0}))
    if len(problem.shape) != 1:
        raise ValueError(
            f"a chunk of shape {problem.shape} was passed; chunks are stretches of one row. Scan the rows of larger "
            "arrays with gpuscan.scan, which takes memory-mapped files of any size"
        )
    return problem


def shown(paths: list[tuple[Any, ...]]) -> str:
    fields = ", ".join(".".join(map(str, path)) for path in paths)
    return f"a bundle of the fields {fields}" if paths != [()] else "one array"


def described(problem: Problem) -> str:
    return ", ".join(f"{f.scalar.name}{list(f.shape) if prod(f.shape) > 1 else ''}" for f in problem.source.fields)


def settled_length(work: ScanSpec, device: Device) -> int:
    """The least length from which on the tile's shape is that of the longest array."""
    wanted = best_tile(work, device.capabilities, device.tuned)
    low, high = 1, work.row_length
    while low < high:
        middle = (low + high) // 2
        if best_tile(replace(work, row_length=middle), device.capabilities, device.tuned) == wanted:
            high = middle
        else:
            low = middle + 1
    return low
