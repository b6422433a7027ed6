"""Scan and reduce arrays in shards on several devices. Only the carries between shards pass through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.engine.carries import (
    Carry,
    combine_values,
    ends_with_carry,
    join_carry,
    last_carry,
    read_values,
    reduce_rows,
    seeds_of,
    start_from_carry,
)
from gpuscan.engine.device_arrays import launch_of_kind, scan_device
from gpuscan.engine.element_copy import slice_axis, write_elements
from gpuscan.engine.executor import Executor
from gpuscan.engine.executor_group import GivenUpError, add_device, naming, raise_first
from gpuscan.engine.segment_heads import segment_heads
from gpuscan.operators.operator import operator
from gpuscan.operators.traced_array import Number
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS
from gpuscan.problem.arguments import Leaf
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.problem_parts import range_in_memory, slice_problem
from gpuscan.problem.segments import Offsets

if TYPE_CHECKING:
    from gpuscan.problem.segments import Heads


T = TypeVar("T")
Arrays = list[AnyArray]


@dataclass(frozen=True)
class Shard:
    """The part of a call that belongs to one shard.

    Attributes:
        executor: of the shard's device.
        device: the number of the device. Several shards may be on one.
        problem: the scan or reduction of the shard, with the seeds of the whole one. Its heads are those between the
            shard's own places; without segments it has none.
        continues: True if the shard's first element, in the order of the scan, belongs to the segment of the element
            before, which is in another shard.
        out: the arrays on the device to write; None for new ones.
    """

    executor: Executor
    device: int
    problem: Problem
    continues: bool = False
    out: Sequence[DeviceArray] | None = None

    def part(self, begin: int, end: int) -> Problem:
        """Return the scan between two indices of the axis, counted in the order of the scan, without heads."""
        if self.problem.heads is None and end - begin == self.problem.row_length:
            return self.problem
        low, high = range_in_memory(self.problem, begin, end)
        return slice_problem(replace(self.problem, heads=None), self.problem.axis, low, high)


# ----- Shards that follow each other along the scan


def scan_shards(shards: Sequence[Shard], strategy: str) -> list[list[DeviceArray]]:
    """Return the scan of shards that follow each other along the scan's axis: for each, an array for each field.

    Every device reduces its shard, takes the carry of the shard before, and scans. The last shard needs no reduction.
    Neither does the first one if its device has a later shard to scan: then its last result is the carry, see
    `gpuscan.planning.partition.cut_scan_axis`.

    Args:
        shards: the shards, in the order of the scan.
        strategy: as in `gpuscan.scan`.

    Raises:
        GpuscanError: of any device. No thread of this call runs on after it.
    """
    first = shards[0]
    ahead = first.device in [shard.device for shard in shards[1:]] and ends_with_carry(first.problem)
    middle = middle_of(first, shards[1]) if ahead else 0
    if middle:
        with naming(first.executor, first.device):
            results = scan_out(first)
        halves = [half(first, results, *edges) for edges in ((0, middle), (middle, first.problem.row_length))]
        _, _, *others = scan_shards([*halves, *shards[1:]], strategy)
        return [results, *others]
    carries: list[Future[Carry]] = [Future() for _ in range(len(shards) + 1)]
    carries[0].set_result(None)

    def scan(number: int) -> list[DeviceArray]:
        shard = shards[number]
        try:
            if number == 0 and ahead:
                results = scan_shard(shard, strategy)
                carries[1].set_result(last_carry(shard.executor, shard.problem, results))
                return results
            ends = head_ends(shard.executor, shard.problem)
            if number + 1 < len(shards):
                carries[number + 1].set_result(carry_after(shard, ends, carries[number]))
            return scan_between(shard, ends, carries[number], strategy)
        except BaseException:
            # This device scans none of its later shards.
            for later in range(number, len(shards)):
                if shards[later].device == shard.device and not carries[later + 1].done():
                    carries[later + 1].set_exception(GivenUpError())
            raise

    return on_devices(shards, scan)


def middle_of(first: Shard, second: Shard) -> int:
    """Return where to cut the first shard of a scan, so that the other devices wait for half of it only; 0 for nowhere.

    The first shard of a reversed scan is as long as the second one. While the first device scans the first half and
    reduces the other one, the second device does not have to wait for twice as long as its own reduction takes.
    """
    problem = first.problem
    if not problem.reverse or problem.axis or 2 * problem.row_length <= second.problem.row_length:
        return 0
    return problem.row_length // 2 // DEVICE_GROUPS.whole_places * DEVICE_GROUPS.whole_places


def scan_out(shard: Shard) -> list[DeviceArray]:
    """Return the arrays that a shard's results are written to."""
    problem, context = shard.problem, shard.executor.context
    if shard.out is not None:
        return list(shard.out)
    return [empty(context, (*problem.shape, *f.shape), f.scalar.dtype) for f in problem.destination.fields]


def half(shard: Shard, results: Sequence[DeviceArray], begin: int, end: int) -> Shard:
    """Return a part of a shard without segments as a shard, which writes to its part of the results."""
    low, high = range_in_memory(shard.problem, begin, end)
    out = [slice_axis(result, shard.problem.axis, low, high) for result in results]
    return replace(shard, problem=shard.part(begin, end), continues=begin > 0, out=out)


def carry_after(shard: Shard, ends: HeadEnds, before: Future[Carry]) -> Carry:
    """Return the combination of the elements from the last head up to the end of a shard."""
    executor, problem, (_, last) = shard.executor, shard.problem, ends
    if last or not shard.continues:
        # These elements do not depend on the shards before.
        return reduce_rows(executor, shard.part(last, problem.row_length), seeds_of(problem))
    total = reduce_rows(executor, problem, None)
    return join_carry(executor, problem, before.result(), total)


def scan_between(shard: Shard, ends: HeadEnds, before: Future[Carry], strategy: str) -> list[DeviceArray]:
    """Return the scan of a shard, in which a segment of the shard before may go on."""
    executor, problem, (second, _) = shard.executor, shard.problem, ends
    if not shard.continues:
        return scan_shard(shard, strategy)
    carry = before.result()
    if second == problem.row_length:
        return scan_shard(shard, strategy, carry)
    # The shard as a whole begins where shaders can bind it. Its first elements are then written over.
    first_results = scan_device(executor, start_from_carry(shard.part(0, second), carry), strategy)
    results = scan_device(executor, problem, strategy, out=shard.out)
    low, high = range_in_memory(problem, 0, second)
    for part, result in zip(first_results, results, strict=True):
        write_elements(part, slice_axis(result, problem.axis, low, high))
    return results


def scan_shard(shard: Shard, strategy: str, carry: Carry = None) -> list[DeviceArray]:
    """Return the scan or the reduction of a shard, which begins with a carry if there is one."""
    executor, problem, out = shard.executor, shard.problem, shard.out

    def scan(seeds: tuple[Leaf, ...] | None) -> list[DeviceArray]:
        return scan_device(executor, start_from_carry(problem, seeds), strategy, out=out)

    # `start_from_carry` drops the heads. The elements from a head on begin with the seeds of the problem.
    seeds = seeds_of(problem) if carry is None and problem.heads is None else carry
    return launch_of_kind(problem, strategy, scan, seeds=seeds, out=out)


def reduce_shards(shards: Sequence[Shard], finish: Callable[[Problem, tuple[AnyArray, ...]], Arrays]) -> Arrays:
    """Return the reduction along the shards' axis: an array (rows, *element shape) for each field.

    Args:
        shards: the shards, in the order of the reduction.
        finish: applies the map on store to the combination of all elements, and rounds it.

    Raises:
        GpuscanError: as `scan_shards`.
    """
    first, problem = shards[0], shards[0].problem
    if len(shards) == 1:
        (results,) = scan_apart(shards, "auto")
        return list(read_values(first.executor, results))
    totals = on_devices(shards, lambda number: reduce_rows(shards[number].executor, shards[number].problem, None))
    carry = seeds_of(problem)
    for total in totals:
        carry = join_carry(first.executor, problem, carry, total)
    assert carry is not None
    return finish(problem, carry)


def reduce_segments(shards: Sequence[Shard], results: Arrays, segment_numbers: Sequence[AnyArray]) -> None:
    """Reduce the segments of rows that are divided between shards. Write a result for each segment with elements.

    Each device reduces its own segments. If a segment is cut by the end of a shard, the CPU combines its parts.

    Args:
        shards: the shards, in order, with the heads of the segments that have elements.
        results: for each field an array of the results, (*lead, segments, *tail, *element shape).
        segment_numbers: for each shard, the numbers of its segments.

    Raises:
        GpuscanError: as `scan_shards`.
    """
    axis = shards[0].problem.axis

    def reduce(number: int) -> tuple[Arrays, Carry, Carry]:
        """Return the results of a shard's segments, and the parts of its first and its last one that are cut."""
        shard, problem = shards[number], shards[number].problem
        executor, length = shard.executor, problem.row_length
        second, last = head_ends(executor, problem)
        goes_on = number + 1 < len(shards) and shards[number + 1].continues
        begin = end = None
        if shard.continues:
            begin = reduce_rows(executor, shard.part(0, second), None)
        if goes_on and (last or not shard.continues):
            end = reduce_rows(executor, shard.part(last, length), seeds_of(problem))
        whole = [result._read() for result in scan_device(executor, problem)]
        executor.context.check()
        return whole, begin, end

    reduced = on_devices(shards, reduce)
    parts: list[tuple[AnyArray, ...]] = []
    for number, (whole, begin, end) in enumerate(reduced):
        for result, values in zip(results, whole, strict=True):
            np.moveaxis(result, axis, 0)[segment_numbers[number]] = np.moveaxis(values, axis, 0)
        if begin is not None:
            parts.append(begin)
        if parts and (end is not None or number + 1 == len(shards) or not shards[number + 1].continues):
            # The segment that an earlier shard has begun ends here.
            _write_combined(shards[number], parts, results, int(segment_numbers[number][0]))
            parts = []
        if end is not None:
            parts = [end]


def _write_combined(shard: Shard, parts: Sequence[tuple[AnyArray, ...]], results: Arrays, segment: int) -> None:
    problem = shard.problem
    alone = replace(problem, heads=None, fill=None)
    for result, values in zip(results, combine_values(shard.executor, alone, parts, whole=True), strict=True):
        segments = np.moveaxis(result, problem.axis, 0)
        segments[segment] = values.reshape(segments.shape[1:])


# ----- Shards that do not depend on each other


def scan_apart(shards: Sequence[Shard], strategy: str) -> list[list[DeviceArray]]:
    """Return the scans, or reductions, of shards that do not depend on each other."""
    return on_devices(shards, lambda number: scan_shard(shards[number], strategy))


def on_devices(shards: Sequence[Shard], call: Callable[[int], T]) -> list[T]:
    """Return the results of a call for the number of each shard, made by a thread for each device if there are several.

    Raises:
        Exception: the first error of a call. No thread runs on after it.
    """
    devices = list(dict.fromkeys([shard.device for shard in shards]))
    by_number: dict[int, T] = {}

    def work(device: int) -> None:
        for number, shard in enumerate(shards):
            if shard.device == device:
                try:
                    by_number[number] = call(number)
                except BaseException as error:
                    add_device(error, shard.executor, device)
                    raise

    if len(devices) == 1:
        work(devices[0])
        return [by_number[number] for number in range(len(shards))]
    with ThreadPoolExecutor(len(devices), thread_name_prefix="gpuscan-shard") as threads:
        raise_first([threads.submit(work, device) for device in devices])
    return [by_number[number] for number in range(len(shards))]


# ----- Where segments end
#
# Find the segment heads at the ends of a row: those between which a part of a scan meets its neighbours.


# The index of a word without heads, where the first one is looked for.
_NOWHERE = np.int32(2**31 - 1)


# The places of two heads of a row, in the order of the scan: the second one, which is the row's length if there is
# none, and the last one, which may be the first. The first head is always at 0.
HeadEnds = tuple[int, int]


def head_ends(executor: Executor, problem: Problem) -> HeadEnds:
    """Return the heads at the ends of a problem's rows. All rows must be cut at the same places."""
    heads, length = problem.heads, problem.row_length
    if heads is None:
        return length, 0
    if isinstance(heads.cut, Offsets):
        starts = heads.head_indices
    elif heads.on_device:
        return _ends_on_device(executor, heads)
    else:
        starts = np.flatnonzero(heads.flags(0, length))
    return int(starts[1]) if len(starts) > 1 else length, int(starts[-1])


@operator(name="first and last")
def _first_and_last(left: Sequence[Number], right: Sequence[Number]) -> tuple[Number, ...]:
    return np.minimum(left[0], right[0]), np.maximum(left[1], right[1])


def _words_with_heads(word: Number, index: Number) -> object:
    """Return the index of a word as the first and as the last one with heads, if it has any but the row's first."""
    others = np.where(index == 0, word & np.uint32(0xFFFFFFFE), word) != np.uint32(0)
    return np.where(others, index, _NOWHERE), np.where(others, index, np.int32(-1))


def _ends_on_device(executor: Executor, heads: Heads) -> HeadEnds:
    """Look for the words of the segment bits that have heads, and read only these."""
    bits = segment_heads(executor.context, heads, in_columns=True)
    problem = make_problem(bits, _first_and_last, before=_words_with_heads)
    ends = scan_device(executor, replace(problem, keep_last_only=True))
    first, last = (int(end._read()[0]) for end in ends)
    executor.context.check()
    if last < 0:
        return heads.row_length, 0
    return min(bit for bit in _heads_in(bits, first) if bit), max(_heads_in(bits, last))


def _heads_in(bits: DeviceArray, word: int) -> list[int]:
    """Return the indices of the heads that a word has the bits of."""
    (value,) = slice_axis(bits, 0, word, word + 1)._read()
    return [32 * word + bit for bit in range(32) if int(value) >> bit & 1]
