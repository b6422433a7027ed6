"""Scan a row that comes in chunks: a queue of chunks is the source and the sink of the executor's parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.error_translation import translate_errors_in_steps
from gpuscan.device.native_queue import Bytes
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import bytes_of, copy, round_up
from gpuscan.engine.executor import Executor
from gpuscan.engine.head_bits import HeadBits
from gpuscan.engine.host_arrays import scan_host
from gpuscan.engine.job import Job, Layout
from gpuscan.engine.part_buffers import PartBuffers
from gpuscan.engine.preparation import prepare_problem, seed_words, tile_on
from gpuscan.planning.partition import Part, host_piece_length, piece, piece_unit
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.problem.packed_fields import STORAGE_LIMIT, binds_too_many, pack_arrays, pack_problem, unpack_results
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Flags, Marks, as_words

Leaves = list[AnyArray]


@dataclass
class Chunk:
    """One of the caller's arrays, the marks of its heads, and the results that are already computed."""

    leaves: Leaves
    results: Leaves
    length: int
    marks: Flags | None = None
    done: int = 0


# A part of a chunk: the chunk, and the elements where the part begins and ends.
ChunkSlice = tuple[Chunk, int, int]


class ChunkQueue:
    """The elements of the chunks, as one row of unknown length.

    Args:
        problems: the chunks as problems; the queue copies their arrays, since callers may fill one array again.
    """

    def __init__(self, problems: Iterator[Problem]) -> None:
        self._problems = problems
        self._unfinished: deque[Chunk] = deque()
        # Chunks with elements that no part has taken yet, and the first of these elements.
        self._untaken: deque[tuple[Chunk, int]] = deque()
        self._waiting = 0
        self._slices: dict[int, list[ChunkSlice]] = {}
        self.arrived = 0

    def await_elements(self, count: int) -> bool:
        """Take chunks until `count` elements wait. Return False if the chunks end before that."""
        while self._waiting < count:
            problem = next(self._problems, None)
            if problem is None:
                return False
            fields = problem.destination.fields
            results = [np.empty((problem.size, *f.shape), f.scalar.dtype) for f in fields]
            marks = None if problem.heads is None else problem.heads.cut.array
            chunk = Chunk([np.array(leaf, order="C") for leaf in problem.leaves], results, problem.size, marks)
            self._unfinished.append(chunk)
            self._untaken.append((chunk, 0))
            self._waiting += chunk.length
            self.arrived += chunk.length
        return True

    def parts(self, spec: ScanSpec, length: int) -> Iterator[Part]:
        """Yield the elements in pieces of `length`. The last one may be shorter."""
        start = 0
        while True:
            # One element more shows that the piece is not the last one.
            more = self.await_elements(length + 1)
            count = length if more else self._waiting
            if count == 0:
                return
            self._slices[start] = self._take(count)
            yield piece(spec, start, count, last=not more)
            start += count
            if not more:
                return

    def _take(self, count: int) -> list[ChunkSlice]:
        """Take the next elements as slices of chunks."""
        slices = []
        self._waiting -= count
        while count:
            chunk, begin = self._untaken.popleft()
            n = min(count, chunk.length - begin)
            if n:
                slices.append((chunk, begin, begin + n))
            if begin + n < chunk.length:
                self._untaken.appendleft((chunk, begin + n))
            count -= n
        return slices

    def slices(self, part: Part) -> list[ChunkSlice]:
        """Return the slices of chunks that a part consists of."""
        return self._slices[part.start]

    def finish(self, part: Part) -> None:
        """Note that all results of a part are computed."""
        for chunk, _, end in self._slices.pop(part.start):
            chunk.done = end

    def as_one_row(self, opening: Problem) -> Problem:
        """Return the scan of all chunks that wait. No part has taken any of their elements.

        Args:
            opening: the first chunk.
        """
        chunks = self._unfinished
        leaves = tuple(map(np.concatenate, zip(*[chunk.leaves for chunk in chunks], strict=True)))
        heads = opening.heads
        if heads is not None:
            marks = np.concatenate([chunk.marks for chunk in chunks if chunk.marks is not None])
            heads = replace(heads, shape=(self.arrived,), cut=Marks(marks))
        whole = replace(opening, leaves=leaves, shape=(self.arrived,), heads=heads)
        return whole if heads is not None else whole.as_rewrite_of(opening, f"a row of {self.arrived}")

    def finish_all(self, results: Leaves) -> None:
        """Take the results of `as_one_row`."""
        start = 0
        for chunk in self._unfinished:
            for own, result in zip(chunk.results, results, strict=True):
                own[...] = result[start : start + chunk.length]
            start, chunk.done = start + chunk.length, chunk.length

    def pop_finished(self) -> Iterator[Chunk]:
        """Yield the chunks at the front of the queue that are completely computed."""
        while self._unfinished and self._unfinished[0].done == self._unfinished[0].length:
            yield self._unfinished.popleft()


class ChunkField:
    """One field of the queue's chunks, as a source or as a sink."""

    def __init__(self, queue: ChunkQueue, number: int, element_bytes: int) -> None:
        self._queue, self._number = queue, number
        self.element_bytes = element_bytes

    def contiguous(self, part: Part) -> Bytes | None:
        """Return None: a part may have elements of several chunks."""
        del part
        return None

    def fill(self, part: Part, memory: Bytes) -> None:
        """Write the part's elements to `memory`."""
        at = 0
        for chunk, begin, end in self._queue.slices(part):
            data = bytes_of(chunk.leaves[self._number][begin:end])
            copy(memory[at : at + data.nbytes], data)
            at += data.nbytes

    def write_back(self, part: Part, memory: Bytes) -> None:
        """Take the part's results from `memory`."""
        at = 0
        for chunk, begin, end in self._queue.slices(part):
            target = bytes_of(chunk.results[self._number][begin:end])
            copy(target, memory[at : at + target.nbytes])
            at += target.nbytes


class ChunkHeads(HeadBits):
    """The bits of heads of the queue's chunks.

    Args:
        queue: the chunks, which have marks.
    """

    def __init__(self, queue: ChunkQueue) -> None:
        self._queue = queue

    def upload_bytes(self, part: Part) -> int:
        """Return the bytes of the part's bits."""
        return round_up(-(-part.length // 8))

    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Upload the part's bits."""
        del kept
        assert buffers is not None
        marks = [chunk.marks[begin:end] for chunk, begin, end in self._queue.slices(part) if chunk.marks is not None]
        return buffers.write_heads(as_words(np.concatenate(marks)))


def scan_stream(
    executor: Executor,
    opening: Problem,
    others: Iterable[Problem],
    strategy: str,
    piece_bytes: int | None = None,
) -> Generator[Leaves, None, None]:
    """Yield the results of each chunk, in order.

    The tile, which fixes the order of combination, depends on the length of the whole row. So the first results come
    when the row is long enough that more elements would not change the tile, or when the chunks end. Chunks that end
    before that are scanned as one array.

    Args:
        executor: the executor of the device.
        opening: the first chunk. The heads of this chunk and of the others are marks.
        others: the chunks after it, with the same element type.
        strategy: as in `gpuscan.scan`.
        piece_bytes: the bytes of a piece (default: chosen for the adapter).
    """
    context = executor.context
    limit = context.capabilities.limits[STORAGE_LIMIT]
    as_given, bring_together = opening, binds_too_many(opening, limit)

    def pack(problem: Problem) -> Problem:
        problem = prepare_problem(context, problem)
        if not bring_together:
            return problem
        leaves = pack_arrays(problem.source, problem.numpy_leaves, len(problem.shape))
        return pack_problem(problem, leaves, limit, context.capabilities.summary)

    def in_form(chunk: Chunk) -> Leaves:
        return unpack_results(as_given, chunk.results) if bring_together else chunk.results

    opening = pack(opening)

    def make_layout() -> Layout:
        spec = replace(scan_spec(opening, context.capabilities, captures=True), rows=1, row_length=LENGTH_LIMIT - 1)
        return Layout(spec, (), context.capabilities, find_settled_length(spec, executor))

    queue = ChunkQueue(chain([opening], map(pack, others)))
    layout_key = opening.layout_key and (opening.layout_key, "stream")
    layout = executor.planner.layout(layout_key, strategy, make_layout)
    if not queue.await_elements(layout.settled_length):
        if queue.arrived:
            whole = queue.as_one_row(opening)
            queue.finish_all(scan_host(executor, whole, strategy, piece_bytes=piece_bytes))
        yield from map(in_form, queue.pop_finished())
        return
    spec = layout.spec
    unit = piece_unit(spec, tuple(tile_on(context, spec, subgroups) for subgroups in (True, False)))
    length = host_piece_length(spec, unit, context.capabilities, piece_bytes)
    fields = opening.source.fields, opening.destination.fields
    sources, sinks = ([ChunkField(queue, i, f.storage_bytes) for i, f in enumerate(side)] for side in fields)
    heads = None if opening.heads is None else ChunkHeads(queue)
    job = Job(spec, strategy, sources, sinks, seeds=seed_words(opening, spec, context), heads=heads)
    # The stream is closed also where the caller stops reading.
    with closing(executor.run(job, queue.parts(spec, length))) as landed:
        for part in translate_errors_in_steps(context, landed):
            queue.finish(part)
            for chunk in queue.pop_finished():
                yield in_form(chunk)
    for chunk in queue.pop_finished():
        yield in_form(chunk)


def find_settled_length(spec: ScanSpec, executor: Executor) -> int:
    """Return the smallest length for which the planner picks the same tile as for the longest row."""

    def tile(length: int) -> object:
        return tile_on(executor.context, replace(spec, row_length=length))

    wanted = tile(spec.row_length)
    low, high = 1, spec.row_length
    while low < high:
        middle = (low + high) // 2
        if tile(middle) == wanted:
            high = middle
        else:
            low = middle + 1
    return low
