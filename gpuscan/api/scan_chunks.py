"""`gpuscan.scan_chunks`: the scan of a row that comes in chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.call_device import Devices, choose_device_for, find_device_or_group
from gpuscan.api.device import Device
from gpuscan.api.device_group import DeviceGroup
from gpuscan.api.outputs import in_form_of, is_on_device
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
from gpuscan.problem.chunk_cuts import ChunkCuts, chunk_cuts
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.fixed_bits import check_not_everywhere, is_everywhere
from gpuscan.problem.problem import Problem, ProblemOptions, make_problem, make_unrounded
from gpuscan.problem.problem_parts import cut
from gpuscan.problem.segments import Heads, Marks
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
) -> Iterator[Any]:
    """Scan a sequence that arrives in chunks: yield the parts of ``scan(concatenate(chunks))``, one for each chunk.

    Only a few chunks are in memory at a time, so the sequence may be larger than memory. The iterator reads ahead: it
    may take later chunks before it yields the result of an earlier one. It copies each chunk, so you may read all
    chunks into one array. Chunks that are `gpuscan.Array` stay on their device, and each result is yielded at once.

    The results have the bits of `scan` over the whole sequence, with two exceptions. If the chunks are on a device, the
    last bits of floats depend on where the chunks are cut. So do the last bits of floats that ``device="numpy"``
    combines by a Python function, by ``"matmul"`` or in segments.

    Args:
        chunks: an iterable of 1-D arrays of any lengths, or of bundles of them, all with the same dtypes. One array is
            not an iterable of chunks: pass ``[x]``.
        op, exclusive, initial, dtype, compensated, device, strategy: as in `scan`.
        segments: the offsets where the scan restarts, counted over all chunks from the first element of the first
            chunk. The first offset is 0, the last one is the number of elements of all chunks, and they never decrease.
        keys: an iterable with an array of keys for each chunk, one key for each element. The scan restarts where a key
            differs from the previous key. The previous key of a chunk's first key is the last key of the chunk before.
            gpuscan takes a chunk, then its keys, then the next chunk. So ``itertools.tee`` can split one iterator that
            yields both.
        before, after: as in `scan`; `before` has one parameter.
        reproducible: as in `scan`. Chunks on a device are an OperatorError.

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
    cuts = chunk_cuts(segments, keys)
    problems = chunk_problems(chunks, op, options, as_flag("compensated", compensated), cuts)
    return _scan_each(problems, find_device_or_group((), device), strategy, device)


def chunk_problems(
    chunks: Iterable[object], op: object, options: ProblemOptions, compensated: bool, cuts: ChunkCuts | None
) -> Iterator[tuple[object, Problem]]:
    """Yield each chunk with its problem. Heads are marks, since a chunk may begin within a segment."""
    number = 0
    for number, chunk in enumerate(chunks, 1):
        x, operator, chunk_options = as_pairs(chunk, op, options) if compensated else (chunk, op, options)
        problem = _problem_of(x, operator, chunk_options)
        if cuts is not None:
            marks = cuts.marks(number, problem.size)
            problem = replace(problem, heads=Heads(problem.shape, 0, reverse=False, cut=Marks(marks)))
        yield chunk, problem
    if cuts is not None:
        cuts.finish(number)


def _problem_of(chunk: object, op: object, options: ProblemOptions) -> Problem:
    """Return the `Problem` of one chunk.

    Raises:
        ValueError: the chunk is not 1-D.
    """
    problem = make_problem(chunk, op, **(options | {"seeds_on_device": True}))
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


def _scan_each(
    problems: Iterator[tuple[object, Problem]], device: Device | DeviceGroup | None, strategy: str, requested: Devices
) -> Iterator[object]:
    """Yield the result of each chunk.

    Args:
        problems: the chunks.
        device: where to scan chunks of NumPy.
        strategy: as in `scan`.
        requested: the device that the caller asked for.
    """
    first = next(problems, None)
    if first is None:
        return
    x, opening = first
    if is_on_device(opening):
        check_not_everywhere(opening.everywhere, "chunks on a device")
        yield from _scan_on_device(first, problems, strategy, requested)
        return
    device = choose_device_for(opening, device)
    if opening.everywhere and device is None and opening.source.storage_bytes:
        yield from _scan_spans_on_cpu(first, problems)
        return
    if device is None or not opening.source.storage_bytes:
        yield from _scan_on_cpu(first, problems)
        return
    failures: list[Exception] = []

    def others() -> Iterator[Problem]:
        try:
            for number, (_, problem) in enumerate(problems, 2):
                check_alike(number, problem, opening)
                yield problem
        except Exception as error:
            # It is raised once the results of the chunks before it are out.
            failures.append(error)

    # Closed by name, because some versions of Python keep the frame of a generator that was closed, and so its memory.
    if isinstance(device, DeviceGroup):
        scanned = device.executor_group.scan_stream(opening, others(), strategy)
    else:
        scanned = scan_stream(device._executor, opening, others(), strategy)
    with closing(scanned) as stream:
        for results in stream:
            yield in_form_of(opening, x, results)
    if failures:
        raise failures[0]


def _scan_on_device(
    first: tuple[object, Problem], others: Iterator[tuple[object, Problem]], strategy: str, requested: Devices
) -> Iterator[object]:
    """Yield the results of chunks that are on a device. The carry from chunk to chunk stays there as well."""
    opening = seeds_by_rows(first[1])
    device = find_device_or_group(first[1].arrays, requested)
    assert isinstance(device, Device)
    executor = device._executor
    carry: tuple[Any, ...] | None = None
    for number, (x, given) in enumerate(chain([first], others), 1):
        check_alike(number, given, opening)
        find_device_or_group(given.arrays, device)
        problem = replace(given, seeds=opening.seeds)
        fields = problem.destination.fields
        results = [empty(executor.context, (problem.size, *f.shape), f.scalar.dtype) for f in fields]
        start = 0
        for span in _spans(problem, carry):
            if span.size:
                own = [slice_axis(result, 0, start, start + span.size) for result in results]
                scan_device(executor, span, strategy, out=own)
                carry = _carry_on_device(executor, span, own)
                start += span.size
        yield in_form_of(problem, x, [Array._of(device, result) for result in results])


def _carry_on_device(executor: Executor, problem: Problem, results: list[DeviceArray]) -> tuple[DeviceArray, ...]:
    """Return the seeds for the elements after a scan: the combination of the elements since its last head."""
    last = problem.size - 1
    if not problem.exclusive and make_unrounded(problem) is problem:
        return tuple(duplicate(slice_axis(result, 0, last, last + 1)) for result in results)
    marks = np.zeros(1) if problem.heads is None else problem.heads.cut.array
    begin = int(np.flatnonzero(marks)[-1]) if marks.any() else 0
    tail = replace(cut(problem, 0, begin, problem.size), heads=None)
    return tuple(reduce_on_device(executor, tail, tail.seeds if tail.initial else None))


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
        yield in_form_of(problem, x, finish_results(problem, rows))
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
    going_on = replace(cut(problem, 0, 0, first), initial=True, seeds=carry, heads=None)
    return [going_on, cut(problem, 0, first, problem.size)]


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


def finish_results(problem: Problem, rows: Leaves) -> Leaves:
    """Return the results of what was combined: mapped by `after`, and rounded."""
    with np.errstate(all="ignore"):
        if problem.after is not None:
            rows = reference.apply_after(problem, rows)
        fields = zip(rows, problem.destination.fields, strict=True)
        return [
            reference.broadcast_values(row, field.scalar.dtype, (problem.row_length, *field.shape))
            for row, field in fields
        ]


def after_last(problem: Problem, carry: list[Any]) -> list[Any]:
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
