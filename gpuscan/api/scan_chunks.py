"""`gpuscan.scan_chunks`: the scan of a row that comes in chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from math import prod
from numbers import Number
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, new_array
from gpuscan.api.call_device import Devices, choose_device_for, find_call_device, find_device_or_group
from gpuscan.api.device import Device
from gpuscan.api.device_group import DeviceGroup
from gpuscan.api.launches import launchable_with
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import in_form_of
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.engine.carries import reduce_on_device
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.engine.element_copy import duplicate, slice_axis
from gpuscan.engine.executor import Executor
from gpuscan.engine.streams import scan_stream
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.strategies import Strategy, check_strategy
from gpuscan.problem.arguments import as_flag
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.chunk_cuts import ChunkCuts, chunk_cuts
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.fixed_bits import is_everywhere
from gpuscan.problem.problem import Problem, ProblemOptions, make_unrounded
from gpuscan.problem.problem_parts import slice_problem
from gpuscan.problem.results import over_arrays, parts_of
from gpuscan.problem.segments import Heads, Marks, as_words
from gpuscan.reference import scan as reference
from gpuscan.reference.chunks import accumulate_stream

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from gpuscan.api.annotations import B, DTypeOf, Mapped, MappedChunks, Operation, PlainChunks, T

Leaves = list[AnyArray]


@overload
def scan_chunks(
    chunks: Iterable[B], op: Operation = ..., *, dtype: None = ..., **options: Unpack[PlainChunks]
) -> Iterator[B]: ...
@overload
def scan_chunks(
    chunks: Iterable[AnyArray], op: Operation = ..., *, dtype: DTypeOf[T], **options: Unpack[PlainChunks]
) -> Iterator[NDArray[T]]: ...
@overload
def scan_chunks(
    chunks: Iterable[object], op: Operation = ..., *, dtype: DTypeLike, **options: Unpack[PlainChunks]
) -> Iterator[Any]: ...
@overload
def scan_chunks(
    chunks: Iterable[object],
    op: Operation = ...,
    *,
    before: Mapped,
    after: Mapped | None = ...,
    **options: Unpack[MappedChunks],
) -> Iterator[Any]: ...
@overload
def scan_chunks(
    chunks: Iterable[object], op: Operation = ..., *, before: None = ..., after: Mapped, **options: Unpack[MappedChunks]
) -> Iterator[Any]: ...
def scan_chunks(
    chunks: Iterable[object],
    op: object = "add",
    *,
    exclusive: bool = False,
    initial: object = None,
    segments: object = None,
    keys: Iterable[object] | None = None,
    dtype: object = None,
    before: Mapped | None = None,
    after: Mapped | None = None,
    compensated: bool = False,
    device: Devices = None,
    strategy: Strategy = "auto",
    reproducible: str | None = None,
) -> Iterator[object]:
    """Scan a sequence that arrives in chunks: yield the parts of ``scan(concatenate(chunks))``, one for each chunk.

    Only a few chunks are in memory at a time, so the sequence may be larger than memory. The iterator reads ahead: it
    may take later chunks before it yields the result of an earlier one. It copies each chunk, so you may read the next
    chunk into the same array. Chunks that are `gpuscan.Array` stay on their device, and each result is yielded at once,
    unless `reproducible` is passed.

    The results have the bits of `scan` over the whole sequence, with two exceptions. If the chunks are on a device, the
    last bits of floats depend on where the chunks are cut. So do the last bits of floats that ``device="numpy"``
    combines by a Python function, by ``"matmul"`` or in segments. With `reproducible` there are no exceptions.

    Args:
        chunks: an iterable of 1-D arrays of any lengths, or of bundles of them, all with the same dtypes. One array is
            not an iterable of chunks: pass ``[x]``.
        op, exclusive, initial, dtype, compensated, device, strategy: as in `scan`.
        segments: the offsets where the scan restarts, counted over all chunks from the first element of the first
            chunk. The first offset is 0, the last one is the number of elements of all chunks, and they never decrease.
        keys: an iterable with an array of keys for each chunk, one key for each element. The scan restarts where a key
            differs from the previous key. The first key of a chunk is compared with the last key of the chunk before.
            gpuscan takes a chunk, then its keys, then the next chunk. So ``itertools.tee`` can split one iterator that
            yields both.
        before, after: as in `scan`; `before` has one parameter.
        reproducible: as in `scan`.

    Yields:
        For each chunk an array of its length, or a bundle of such arrays: a `gpuscan.Array` if the first chunk is one,
        else a NumPy array.

    Raises:
        ValueError: a chunk is not 1-D, or is on another device than the first one; both `segments` and `keys` are
            passed; the offsets do not begin with 0, decrease, or do not end where the chunks do; or there is not one
            key for each element of each chunk.
        TypeError: a chunk has another dtype than the first one; the offsets are not integers; or `keys` is one array,
            or its arrays have different types.
        GpuscanError: as `scan` does.

    An error in a chunk or its keys is raised after the results of all earlier chunks. Each chunk is scanned with the
    last result of the chunk before as its `initial` (Blelloch, "Prefix Sums and Their Applications", 1990).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> chunks = (np.full(n, n, np.uint32) for n in (1, 2, 3))
        >>> [part.tolist() for part in gs.scan_chunks(chunks)]
        [[1], [3, 5], [8, 11, 14]]
        >>> chunks, keys = np.split(np.ones(6, np.uint32), [2, 4]), np.split(np.array([7, 7, 7, 8, 8, 8]), [2, 4])
        >>> [part.tolist() for part in gs.scan_chunks(chunks, keys=keys)]
        [[1, 2], [3, 1], [2, 3]]
        >>> [part.tolist() for part in gs.scan_chunks(chunks, segments=[0, 1, 6])]
        [[1, 1], [2, 3], [4, 5]]
    """
    options: ProblemOptions = {
        "axis": 0,
        "exclusive": as_flag("exclusive", exclusive),
        "reverse": False,
        "initial": initial,
        "dtype": dtype,
        "before": before,
        "after": after,
        "reproducible": reproducible,
    }
    is_everywhere(reproducible)
    resolve(op)
    check_strategy(strategy)
    if not isinstance(chunks, Iterable):
        raise TypeError(f"chunks={chunks!r} was passed, but chunks must be an iterable of arrays. Pass a list of them")
    if isinstance(chunks, (np.ndarray, Array)) and chunks.ndim < 2:
        raise TypeError(
            f"an array of shape {chunks.shape} was passed as chunks, but chunks must be an iterable of arrays. Pass "
            "[x] for one chunk, np.array_split(x, n) for n of them, or use gpuscan.scan"
        )
    stream = Stream(op, options, as_flag("compensated", compensated), chunk_cuts(segments, keys), strategy)
    # The default device is opened for chunks of NumPy only.
    return _scan_each(chunks, stream, None if device is None else find_device_or_group((), device), device)


@dataclass(frozen=True)
class Stream:
    """A call of `scan_chunks`, without its chunks.

    Attributes:
        op, compensated, strategy: as in `scan_chunks`.
        options: its other options.
        cuts: where the row restarts; None without segments and keys.
    """

    op: object
    options: ProblemOptions
    compensated: bool
    cuts: ChunkCuts | None
    strategy: str

    def problem_of(self, chunk: object) -> Problem:
        """Return the `Problem` of one chunk."""
        return _problem_of(chunk, self.op, self.options, self.compensated)


def chunk_problems(chunks: Iterable[object], stream: Stream) -> Iterator[tuple[object, Problem]]:
    """Yield each chunk with its problem. Heads are marks, since a chunk may begin within a segment."""
    number, cuts = 0, stream.cuts
    for number, chunk in enumerate(chunks, 1):
        problem = stream.problem_of(chunk)
        if cuts is not None:
            problem = _with_marks(problem, cuts.marks(number, problem.size))
        yield chunk, problem
    if cuts is not None:
        cuts.finish(number)


def _problem_of(chunk: object, op: object, options: ProblemOptions, compensated: bool) -> Problem:
    """Return the `Problem` of one chunk.

    Raises:
        TypeError: the chunk is a number.
        ValueError: the chunk is not 1-D.
    """
    if isinstance(chunk, (Number, np.generic)):
        raise TypeError(
            f"the number {chunk!r} was passed as a chunk, but a chunk is an array. Pass [x] for one chunk of the "
            "numbers x, or use gpuscan.scan"
        )
    x, op, options = as_pairs(chunk, op, options) if compensated else (chunk, op, options)
    problem = find_or_make_problem(x, op, **(options | {"seeds_on_device": True}))
    if problem.indexed:
        raise TypeError(
            "before= was passed as a function of an element and its index, but chunks have no axis to count along. "
            "Pass a function of one element, and the indices as one more array of each chunk"
        )
    if len(problem.shape) != 1:
        raise ValueError(
            f"a chunk of shape {problem.shape} was passed, but a chunk has one axis. Scan arrays of several axes with "
            "gpuscan.scan, which takes memory-mapped files of any size"
        )
    return problem


def _with_marks(problem: Problem, marks: AnyArray | Array) -> Problem:
    """Return the problem with heads at the marks, or at the bits of an array on a device."""
    return replace(problem, heads=Heads(problem.shape, 0, reverse=False, cut=Marks(marks)))


def _scan_each(
    chunks: Iterable[object], stream: Stream, device: Device | DeviceGroup | None, requested: Devices
) -> Iterator[object]:
    """Yield the result of each chunk.

    Args:
        stream: what to do with them.
        device: where to scan chunks of NumPy.
        requested: the device that the caller asked for.
    """
    given = iter(chunks)
    begin = list(islice(given, 1))
    chunks = chain(begin, given)
    leaves: list[Array] = []
    with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
        _form_of(tuple(begin), leaves)
    on_device = bool(leaves)
    if on_device and not (stream.options["reproducible"] and _has_canonical_order(stream.problem_of(begin[0]))):
        yield from _scan_on_device(chunks, stream, requested)
        return
    problems = chunk_problems(chunks, stream)
    first = next(problems, None)
    if first is None:
        return
    x, opening = first
    if on_device or requested is None:
        device = find_device_or_group(opening.arrays if on_device else (), requested)
    device = choose_device_for(opening, device)
    if _has_canonical_order(opening) and device is None:
        yield from _scan_spans_on_cpu(first, problems)
        return
    if device is None or not opening.source.storage_bytes:
        yield from _scan_on_cpu(first, problems)
        return
    failures: list[Exception] = []
    owner: Any = device

    def others() -> Iterator[Problem]:
        try:
            for number, (_, problem) in enumerate(problems, 2):
                check_alike(number, problem, opening)
                if on_device:
                    find_call_device(problem.arrays, owner)
                yield problem
        except Exception as error:
            # It is raised once the results of the chunks before it are out.
            failures.append(error)

    # Closed by name, because some versions of Python keep the frame of a generator that was closed, and so its memory.
    scanned: Any
    if isinstance(device, DeviceGroup):
        scanned = device.executor_group.scan_stream(opening, others(), stream.strategy)
    else:
        scanned = scan_stream(device._executor, opening, others(), stream.strategy, on_device=on_device)
    with closing(scanned) as results_of_chunks:
        for results in results_of_chunks:
            yield in_form_of(opening, x, [Array._of(owner, part) for part in results] if on_device else results)
    if failures:
        raise failures[0]


def _has_canonical_order(problem: Problem) -> bool:
    """Return True if the elements are combined in the canonical order, whatever the chunks."""
    return problem.everywhere and problem.source.storage_bytes > 0


# ----- Chunks on a device


def _scan_on_device(chunks: Iterable[object], stream: Stream, requested: Devices) -> Iterator[object]:
    """Yield the results of chunks that are on a device. The carry from chunk to chunk stays there as well."""
    op, cuts = stream.op, stream.cuts
    options: dict[str, Any] = {**stream.options, "compensated": stream.compensated, "strategy": stream.strategy}
    del options["axis"], options["reverse"]
    if cuts is not None:
        # Each segment begins with the initial value, which the caller may overwrite in the meantime.
        options["initial"] = over_arrays(_own, options["initial"])
    opening: Problem | None = None
    ends_with_carry = True
    device: Device | None = None
    carry: tuple[Array, ...] | None = None
    known: set[Hashable] = set()
    number = 0
    for number, x in enumerate(chunks, 1):
        leaves: list[Array] = []
        form = _form_of(x, leaves)
        if form not in known:
            problem = stream.problem_of(x)
            if opening is None:
                opening = problem
                ends_with_carry = cuts is None or _ends_with_carry(problem)
            else:
                check_alike(number, problem, opening)
            found = find_device_or_group(problem.arrays, device or requested)
            assert isinstance(found, Device)
            device = found
            if form is None:
                x = over_arrays(device.asarray, x)
                _form_of(x, leaves := [])
            else:
                known.add(form)
        cut = None
        if cuts is not None:
            cut = _cut_chunk(x, cuts.marks(number, leaves[0]._shape[0]), leaves[0].device, ends_with_carry)
        result, carry = _scan_chunk(x, op, carry, cut, **options)
        yield result
    if cuts is not None:
        cuts.finish(number)


def _cut_chunk(x: object, marks: AnyArray, device: OpenedDevice, ends_with_carry: bool) -> tuple[object, ...] | None:
    """Return the argument `cut` of `_scan_chunk`.

    Args:
        x: the chunk.
        marks: a bool for each element: True if it is a head.
        device: the device of the chunk.
        ends_with_carry: True if the last result of a chunk is the carry after it.
    """

    def between(low: int, high: int) -> object:
        return over_arrays(lambda array: slice_axis(array, 0, low, high), x)

    heads = marks.nonzero()[0]
    if not len(heads):
        return None
    first, last, size = int(heads[0]), int(heads[-1]), len(marks)
    head, tail = between(0, first) if first else None, None if ends_with_carry else between(last, size)
    return head, between(first, size), tail, new_array(device, as_words(marks[first:]))


def _own(value: object) -> object:
    """Return a copy of an array; other values as they are."""
    return value.copy() if isinstance(value, (Array, np.ndarray)) else value


def _form_of(x: object, leaves: list[Array]) -> Hashable:
    """Return a value that is equal for chunks with equal fields of equal dtypes on one device; None if none is known.

    Args:
        x: the chunk.
        leaves: takes its arrays on a device, depth first.
    """
    if isinstance(x, Array):
        leaves.append(x)
        return x.device, x._dtype, len(x._shape), x._shape[1:]
    parts = parts_of(x)
    if parts is None:
        return None
    forms = [_form_of(part, leaves) for part in parts]
    return None if None in forms else (type(x), tuple(x) if isinstance(x, dict) else None, *forms)


@launchable_with("initial", data=["initial"], integers=["initial"])
def _scan_chunk(
    x: object,
    op: object,
    carry: tuple[Array, ...] | None,
    cut: tuple[Any, ...] | None,
    *,
    exclusive: bool = False,
    initial: object = None,
    dtype: object = None,
    before: Mapped | None = None,
    after: Mapped | None = None,
    compensated: bool = False,
    strategy: str = "auto",
    reproducible: str | None = None,
) -> tuple[object, tuple[Array, ...] | None]:
    """Return the results of a chunk on a device, and the carry after it.

    Args:
        x: the chunk.
        op, exclusive, initial, dtype, before, after, compensated, strategy, reproducible: as in `scan_chunks`.
        carry: the combination of the elements since the last head, an array for each field; None without elements.
        cut: the elements before the first head in the chunk, or None; those from it on; those from the last head on,
            or None if the carry is the last result; and the bits of the heads from the first one on. None if the chunk
            has no head.
    """
    options: ProblemOptions = {
        "axis": 0,
        "exclusive": exclusive,
        "reverse": False,
        "initial": initial,
        "dtype": dtype,
        "before": before,
        "after": after,
        "reproducible": reproducible,
    }
    whole = _problem_of(x, op, options, compensated)
    device = find_device_or_group(whole.arrays, None)
    assert isinstance(device, Device)
    executor = device._executor
    spans = []
    tail = whole
    if cut is None or cut[0] is not None:
        span = whole if cut is None else _problem_of(cut[0], op, options, compensated)
        tail = seeds_by_rows(span) if carry is None else replace(span, initial=True, seeds=carry)
        spans.append(tail)
    if cut is not None:
        following = seeds_by_rows(_problem_of(cut[1], op, options, compensated))
        spans.append(_with_marks(following, cut[3]))
        tail = following if cut[2] is None else seeds_by_rows(_problem_of(cut[2], op, options, compensated))
    results = [empty(executor.context, (whole.size, *f.shape), f.scalar.dtype) for f in whole.destination.fields]
    start = 0
    for span in spans:
        if span.size:
            own = [slice_axis(result, 0, start, start + span.size) for result in results]
            scan_device(executor, span, strategy, out=own)
            start += span.size
    if whole.size:
        carry = tuple(Array._of(device, array) for array in _carry_after(executor, tail, results))
    return in_form_of(whole, x, [Array._of(device, result) for result in results]), carry


def _ends_with_carry(problem: Problem) -> bool:
    """Return True if the last result of a chunk is the carry after it."""
    return not problem.exclusive and make_unrounded(problem) is problem


def _carry_after(executor: Executor, tail: Problem, results: Sequence[DeviceArray]) -> Sequence[DeviceArray]:
    """Return the combination of the elements since the last head, one array for each field.

    Args:
        tail: the scan of these elements.
        results: the results of the chunk.
    """
    if _ends_with_carry(tail):
        return [duplicate(slice_axis(result, 0, result.shape[0] - 1, result.shape[0])) for result in results]
    return reduce_on_device(executor, tail, tail.seeds if tail.initial else None)


# ----- Chunks of NumPy without a device


def _scan_spans_on_cpu(first: tuple[object, Problem], others: Iterator[tuple[object, Problem]]) -> Iterator[object]:
    """Yield the same without a device, in the canonical order. A span may begin anywhere in a chunk."""
    opening = first[1]
    given: deque[object] = deque()

    def problems() -> Iterator[Problem]:
        for number, (x, problem) in enumerate(chain([first], others), 1):
            check_alike(number, problem, opening)
            given.append(x)
            yield problem

    for results in accumulate_stream(problems()):
        yield in_form_of(opening, given.popleft(), results)


def _scan_on_cpu(first: tuple[object, Problem], others: Iterator[tuple[object, Problem]]) -> Iterator[object]:
    """Yield the same without a device: the last result of a chunk is the next one's `initial`."""
    opening = first[1]
    seeds: tuple[AnyArray, ...] | None = None
    number = 0
    following: tuple[object, Problem] | None = first
    while following is not None:
        number += 1
        x, problem = following
        check_alike(number, problem, opening)
        spans: list[Leaves] = []
        for span in _spans(problem, seeds):
            plain = make_unrounded(replace(span, after=None, destination=problem.element))
            spans.append([row[0] for row in reference.accumulate(plain)])
            if span.size:
                # Before the caller can write to the chunk, or to its results.
                seeds = as_seeds(after_last(plain, [row[-1] for row in spans[-1]]))
        rows = spans[0] if len(spans) == 1 else [np.concatenate(parts) for parts in zip(*spans, strict=True)]
        yield in_form_of(problem, x, reference.to_storage(problem, rows))
        following = next(others, None)


def _spans(problem: Problem, carry: tuple[AnyArray, ...] | None) -> list[Problem]:
    """Return the parts of a chunk: one that continues the chunk before, and one that begins at a head.

    Args:
        problem: the chunk.
        carry: the seeds that stand for all elements before; None if there are none.
    """
    if carry is None:
        return [problem]
    if problem.heads is None:
        return [replace(problem, initial=True, seeds=carry)]
    marks = problem.heads.cut.array
    first = int(marks.argmax()) if marks.any() else problem.size
    going_on = replace(slice_problem(problem, 0, 0, first), initial=True, seeds=carry, heads=None)
    return [going_on, slice_problem(problem, 0, first, problem.size)]


def check_alike(number: int, problem: Problem, first: Problem) -> None:
    """Raise TypeError if a chunk has other fields, or other elements, than the first one."""
    paths, wanted = ([*leaf.structure.paths()] for leaf in (problem.source, first.source))
    if paths != wanted:
        raise TypeError(
            f"chunk {number} is {describe_fields(paths)}, the first one {describe_fields(wanted)}; "
            "all chunks must have the same fields in the same order"
        )
    if problem.source != first.source:
        raise TypeError(
            f"chunk {number} has the elements {describe_dtypes(problem)}, the first one {describe_dtypes(first)}; all "
            "chunks must have the same. Convert them to one dtype, such as np.result_type of all"
        )


def after_last(problem: Problem, carry: list[object]) -> list[object]:
    """Return what the next chunk begins with: the last result, and for exclusive scans the last element as well."""
    if not problem.exclusive:
        return carry
    last_elements = [leaf[-1:] for leaf in problem.numpy_leaves]
    again = replace(
        problem,
        leaves=tuple(last_elements),
        shape=(1,),
        exclusive=False,
        initial=True,
        seeds=as_seeds(carry),
        heads=None,
    )
    return [row[0, -1] for row in reference.accumulate(again)]


def as_seeds(carry: Sequence[object]) -> tuple[AnyArray, ...]:
    """Return the fields of one element as the seed of one row."""
    return tuple(np.array(value)[np.newaxis] for value in carry)


def describe_fields(paths: list[tuple[object, ...]]) -> str:
    """Return the fields of a bundle as a message shows them."""
    fields = ", ".join(".".join(map(str, path)) for path in paths)
    return f"a bundle of the fields {fields}" if paths != [()] else "one array"


def describe_dtypes(problem: Problem) -> str:
    """Return the dtypes of a bundle as a message shows them."""
    return ", ".join(f"{f.scalar.name}{list(f.shape) if prod(f.shape) > 1 else ''}" for f in problem.source.fields)
