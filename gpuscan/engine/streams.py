"""Scan a row that comes in chunks: a queue of chunks is the source and the sink of the executor's parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType, Bytes
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.error_translation import translate_errors_in_steps
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import bytes_of, copy, round_up
from gpuscan.engine.device_arrays import pack_device_arrays, unpack
from gpuscan.engine.device_seeds import bind_seeds, seeds_by_rows
from gpuscan.engine.element_copy import StridedView, bindable, copy_elements, duplicate, elements_of, slice_axis
from gpuscan.engine.endpoints import DeviceSink, DeviceSource, HostSink, HostSource
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

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Field

# Arrays of NumPy; or all are on the device.
Leaves = list[Any]


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
        context: the device that the copies and the results are on; None for NumPy.
    """

    def __init__(self, problems: Iterator[Problem], context: DeviceContext | None = None) -> None:
        self._problems, self._context = problems, context
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
            results = [self._empty((problem.size, *f.shape), f.scalar.dtype) for f in fields]
            marks = None if problem.heads is None else problem.heads.cut.array
            leaves = [copy_of(leaf, self._context) for leaf in problem.leaves]
            chunk = Chunk(leaves, results, problem.size, marks)
            self._unfinished.append(chunk)
            self._untaken.append((chunk, 0))
            self._waiting += chunk.length
            self.arrived += chunk.length
        return True

    def _empty(self, shape: tuple[int, ...], dtype: AnyDType) -> AnyArray | DeviceArray:
        return np.empty(shape, dtype) if self._context is None else empty(self._context, shape, dtype)

    def parts(self, spec: ScanSpec, unit: int, most: int) -> Iterator[Part]:
        """Yield the elements in pieces of one unit or more, and at most of `most`. The last one may be shorter."""
        start = 0
        while True:
            # One element more shows that the piece is not the last one.
            more = self.await_elements(unit + 1)
            count = min((self._waiting - 1) // unit * unit, most) if more else self._waiting
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


class DeviceChunkSource(DeviceSource):
    """One field of the queue's chunks, which are on the device."""

    def __init__(self, queue: ChunkQueue, number: int) -> None:
        self._queue, self._number = queue, number
        self.array = self.view = None  # type: ignore[assignment] # of the caller's; the queue has copies

    def binding(self, part: Part) -> tuple[Binding, object]:
        """Return what the shader binds, and the array that has to stay alive until the run is submitted."""
        slices = [slice_axis(c.leaves[self._number], 0, begin, end) for c, begin, end in self._queue.slices(part)]
        joined = bindable(slices[0]) if len(slices) == 1 else join_on_device(slices)
        return joined._binding(), joined


class DeviceChunkSink(DeviceSink):
    """One field of the results of the queue's chunks, which are on the device."""

    def __init__(self, queue: ChunkQueue, number: int, field: Field, context: DeviceContext) -> None:
        self._queue, self._number, self._field, self._context = queue, number, field, context
        self.array = self.view = None  # type: ignore[assignment] # of the caller's; each chunk has an array of its own

    def binding(self, part: Part) -> tuple[Binding, DeviceArray | None]:
        """Return what the shader binds, and the temporary array that `finish` copies from."""
        temporary = empty(self._context, (part.length * self._field.count,), self._field.scalar.dtype)
        return temporary._binding(), temporary

    def finish(self, part: Part, temporary: DeviceArray) -> None:
        """Submit copies of a part's results to the results of the chunks."""
        size, at = self._field.storage_bytes, 0
        for chunk, begin, end in self._queue.slices(part):
            results = StridedView(temporary, at, (end - begin,), (size,), size)
            copy_elements(results, chunk.results[self._number], offset=begin * size)
            at += results.nbytes


def copy_of(array: Any, context: DeviceContext | None) -> Any:
    """Return a copy of an array in C order on a device; without one, in NumPy."""
    if context is None:
        return np.array(array, order="C")
    with context.errors:
        return duplicate(array) if isinstance(array, DeviceArray) else upload_array(context, array)


def join_on_device(arrays: Sequence[DeviceArray]) -> DeviceArray:
    """Return arrays in C order on one device, joined along their first axis."""
    first = arrays[0]
    joined = empty(first._context, (sum(array.shape[0] for array in arrays), *first.shape[1:]), first.dtype)
    for array, start in zip(arrays, accumulate([array.nbytes for array in arrays], initial=0), strict=False):
        copy_elements(elements_of(array), joined, offset=start)
    return joined


class ChunkHeads(HeadBits):
    """The bits of heads of the queue's chunks.

    Args:
        queue: the chunks, which have marks.
    """

    def __init__(self, queue: ChunkQueue, context: DeviceContext) -> None:
        self._queue, self._context = queue, context

    def upload_bytes(self, part: Part) -> int:
        """Return the bytes of the part's bits."""
        return round_up(-(-part.length // 8))

    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Upload the part's bits."""
        marks = [chunk.marks[begin:end] for chunk, begin, end in self._queue.slices(part) if chunk.marks is not None]
        words = as_words(np.concatenate(marks))
        if buffers is not None:
            return buffers.write_heads(words)
        array = upload_array(self._context, words)
        kept.append(array)
        return array._binding()


def scan_stream(
    executor: Executor,
    opening: Problem,
    others: Iterable[Problem],
    strategy: str,
    piece_bytes: int | None = None,
    *,
    on_device: bool = False,
) -> Generator[Leaves, None, None]:
    """Yield the results of each chunk, in order.

    The tile, which fixes the order of combination, depends on the length of the whole row. So the first results come
    when the row is long enough that more elements would not change the tile, or when the chunks end. Chunks that end
    before that are scanned as one array.

    Args:
        opening: the first chunk. The heads of this chunk and of the others are marks.
        others: the chunks after it, with the same element type.
        strategy: as in `gpuscan.scan`.
        piece_bytes: the bytes of a piece (default: chosen for the adapter).
        on_device: True if the chunks and their results are on the device. The order of combination must be the
            canonical one, in which no tile depends on the length.
    """
    context = executor.context
    limit = context.capabilities.limits[STORAGE_LIMIT]
    as_given, bring_together = opening, binds_too_many(opening, limit)

    def pack(problem: Problem) -> Problem:
        problem = prepare_problem(context, problem)
        if not bring_together:
            return problem
        leaves: Leaves
        if on_device:
            leaves = pack_device_arrays(problem, [copy_of(leaf, context) for leaf in problem.leaves])
        else:
            leaves = pack_arrays(problem.source, problem.numpy_leaves, len(problem.shape))
        return pack_problem(problem, leaves, limit, context.capabilities.summary)

    def in_form(chunk: Chunk) -> Leaves:
        if not bring_together:
            return chunk.results
        if not on_device:
            return unpack_results(as_given, chunk.results)
        fields = as_given.destination.fields
        results = [empty(context, (chunk.length, *f.shape), f.scalar.dtype) for f in fields]
        unpack(as_given, chunk.results, results)
        return results

    opening = pack(seeds_by_rows(opening) if on_device else opening)

    def make_layout() -> Layout:
        spec = replace(scan_spec(opening, context.capabilities, captures=True), rows=1, row_length=LENGTH_LIMIT - 1)
        return Layout(spec, (), context.capabilities, find_settled_length(spec, executor))

    queue = ChunkQueue(chain([opening], map(pack, others)), context if on_device else None)
    layout_key = opening.cache_key and (opening.cache_key, "stream")
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
    numbered, written = enumerate(opening.source.fields), enumerate(opening.destination.fields)
    sources: list[HostSource | DeviceSource]
    sinks: list[HostSink | DeviceSink]
    if on_device:
        sources = [DeviceChunkSource(queue, i) for i, _ in numbered]
        sinks = [DeviceChunkSink(queue, i, f, context) for i, f in written]
    else:
        sources = [ChunkField(queue, i, f.storage_bytes) for i, f in numbered]
        sinks = [ChunkField(queue, i, f.storage_bytes) for i, f in written]
    heads = None if opening.heads is None else ChunkHeads(queue, context)
    with context.errors, context.lock:
        seeds = (bind_seeds if on_device else seed_words)(opening, spec, context)
    job = Job(spec, strategy, sources, sinks, seeds=seeds, heads=heads)
    # The stream is closed also where the caller stops reading.
    # Arrays on the device need no upload that is worth waiting for.
    with closing(executor.run(job, queue.parts(spec, unit if on_device else length, length))) as landed:
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
