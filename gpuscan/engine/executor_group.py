"""Scan NumPy arrays on several devices: cut them, pass carries from device to device, and put the results together.

Rows are divided between the devices where there are enough of them; no device then waits for another. Otherwise the
axis of the scan is cut into round-robin chunks, which the devices take in turn. A device uploads one, reduces it, waits
for the carry of the chunk before, joins it with its own total for the next one, and scans. So uploads, kernels and
downloads of several chunks overlap, and each element is uploaded once. WebGPU has no copies between devices: carries
go through the CPU.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device import disk_cache
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.tile_cache import key_of
from gpuscan.device.transfer import serve_devices
from gpuscan.engine.carries import Carry, join_carry, reduce_rows, seeds_of, start_from_carry
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.executor import Executor
from gpuscan.engine.host_arrays import scan_host
from gpuscan.engine.preparation import check_elements
from gpuscan.planning.partition import (
    DeviceRange,
    cut_by_speed,
    cut_segments_by_speed,
    next_devices,
    round_robin_chunks,
    round_robin_length,
)
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.problem_parts import parts_from_axis, range_in_memory, slice_problem
from gpuscan.problem.segments import Offsets

T = TypeVar("T")
Arrays = list[AnyArray]


class GivenUpError(Exception):
    """A round-robin chunk's carry does not come, because another one failed."""


@dataclass(frozen=True)
class RoundRobinChunk:
    """A round-robin chunk as a problem of its own.

    Attributes:
        device: the number of its device.
        problem: the round-robin chunk's scan, with the seeds of the whole one.
        outputs: the arrays (*shape, *element shape) for its results.
        last: True if no round-robin chunk follows.
        heads: the first and the last place, in the order of the scan, where a segment begins; None if none does.
    """

    device: int
    problem: Problem
    outputs: Arrays
    last: bool
    heads: tuple[int, int] | None = None


class ExecutorGroup:
    """Several devices that share the work of a call.

    Args:
        executors: of the devices.
        speeds: their relative speeds, 1 or more.
    """

    def __init__(self, executors: Sequence[Executor], speeds: Sequence[int]) -> None:
        self.executors, self.speeds = tuple(executors), tuple(speeds)
        serve_devices(len(self.executors))

    # ----- Whole arrays

    def scan(self, problem: Problem, strategy: str = "auto", outputs: Arrays | None = None) -> Arrays:
        """Return what `scan_host` returns, computed by all devices.

        Raises:
            GpuscanError: as `scan_host`, of any device. No thread of this call runs on after it.
        """
        for executor in self.executors:
            check_elements(executor.context, problem)
        if self._is_for_one(problem):
            return scan_host(self.executors[0], problem, strategy, outputs=outputs)
        lead, fields = problem.results_shape, problem.destination.fields
        results = outputs or [np.empty((*lead, *f.shape), f.scalar.dtype) for f in fields]
        if (axis := self._axis_between_rows(problem)) is not None:
            self._scan_shares(problem, strategy, results, axis)
        elif problem.keep_last_only and problem.heads is not None:
            self._reduce_segments(problem, strategy, results)
        else:
            for part, outputs_of_part in parts_from_axis(problem, results):
                for _ in self.run(self._round_robin_chunks(part, outputs_of_part), strategy):
                    pass
        return results

    def _is_for_one(self, problem: Problem) -> bool:
        """Return True if one device computes the scan: it is short, or its elements use their neighbours or indices."""
        if problem.compacts or problem.lists_key_runs or self._is_short(problem):
            return True
        if self._axis_between_rows(problem) is not None:
            return False
        if any(problem.field_offsets) or problem.indexed:
            # A round-robin chunk knows neither its neighbours nor the index of its first element.
            return True
        return round_robin_length(problem.row_length, self._place_bytes(problem), self.speeds) >= problem.row_length

    def axis_of_shares(self, problem: Problem) -> int | None:
        """Return the axis along which devices take rows of their own; None if the array is short or has few rows."""
        return None if self._is_short(problem) else self._axis_between_rows(problem)

    def _is_short(self, problem: Problem) -> bool:
        return problem.row_length * self._place_bytes(problem) < 2 * DEVICE_GROUPS.min_round_robin_bytes

    @staticmethod
    def _place_bytes(problem: Problem) -> int:
        widest = max(problem.source.storage_bytes, problem.destination.storage_bytes)
        return max(1, problem.rows * widest)

    def _axis_between_rows(self, problem: Problem) -> int | None:
        """Return the axis along which to divide rows; None if no axis has enough of them for all devices.

        An axis before the scanned one is preferred: its shares are neighbours in memory.
        """
        enough = DEVICE_GROUPS.min_rows_each * sum(self.speeds)
        alike = problem.heads is None or problem.heads.cuts_rows_alike
        before, after = range(problem.axis), range(problem.axis + 1, len(problem.shape))
        long_axes = [axis for axis in before if problem.shape[axis] >= enough]
        if not long_axes and (not alike or any(problem.field_offsets)):
            long_axes = [axis for axis in after if problem.shape[axis] >= enough]
        return long_axes[0] if long_axes else None

    def _scan_shares(self, problem: Problem, strategy: str, results: Arrays, axis: int) -> None:
        """Let each device scan some of the rows."""
        before = (slice(None),) * axis
        lead = problem.shape[: problem.axis] + problem.shape[problem.axis + 1 :]
        result_axis = axis - (axis > problem.axis)

        def call(device: int, low: int, high: int) -> None:
            share = slice_problem(problem, axis, low, high)
            index = (*before, slice(low, high))
            if not problem.keep_last_only or problem.heads is not None:
                scan_host(self.executors[device], share, strategy, outputs=[result[index] for result in results])
                return
            for result, scanned in zip(results, scan_host(self.executors[device], share, strategy), strict=True):
                view = result.reshape((*lead, *result.shape[1:]))[index[axis - result_axis :]]
                view[...] = scanned.reshape(view.shape)

        self.share(problem.shape[axis], call)

    def _reduce_segments(self, problem: Problem, strategy: str, results: Arrays) -> None:
        """Let each device reduce some of the segments, of all rows."""
        heads, axis = problem.heads, problem.axis
        assert heads is not None
        assert isinstance(heads.cut, Offsets)
        given, offsets = heads.cut, heads.cut.array

        def call(device: int, first: int, last: int) -> None:
            outputs = [result[(*(slice(None),) * axis, slice(first, last))] for result in results]
            low, high = int(offsets[first]), int(offsets[last])
            if low == high:
                others = [n for i, n in enumerate(problem.shape) if i != axis]
                for output, fill in zip(outputs, problem.fill or (), strict=True):
                    output[...] = np.expand_dims(fill.reshape((*others, *fill.shape[1:])), axis)
                return
            part = slice_problem(problem, axis, low, high)
            own = replace(heads, shape=part.shape, cut=replace(given, array=offsets[first : last + 1] - low))
            scan_host(self.executors[device], replace(part, heads=own), strategy, outputs=outputs)

        self._on_devices(cut_segments_by_speed(offsets, self.speeds), call)

    def share(self, length: int, call: Callable[[int, int, int], T]) -> list[T]:
        """Return the results of a call for each device's share of an axis: (device, low, high).

        All of an axis without entries is the share of the first device.

        Raises:
            Exception: the first error of a call. No thread runs on after it.
        """
        return self._on_devices(cut_by_speed(length, self.speeds) or [DeviceRange(0, 0, length, True)], call)

    def _on_devices(self, parts: Sequence[DeviceRange], call: Callable[[int, int, int], T]) -> list[T]:
        """Return the results of a call for the range of each device, made by a thread for each."""

        def call_on_device(device: int, low: int, high: int) -> T:
            with naming(self.executors[device], device):
                return call(device, low, high)

        with ThreadPoolExecutor(len(parts), thread_name_prefix="gpuscan-device-group") as threads:
            calls = [threads.submit(call_on_device, part.device, part.start, part.stop) for part in parts]
            raise_first(calls)
        return [future.result() for future in calls]

    def _round_robin_chunks(self, problem: Problem, results: Arrays) -> Iterator[RoundRobinChunk]:
        """Cut a scan along the first axis."""
        length = round_robin_length(problem.row_length, self._place_bytes(problem), self.speeds)
        for device_range in round_robin_chunks(problem.row_length, length, next_devices(self.speeds)):
            low, high = device_range.start, device_range.stop
            if problem.reverse:
                low, high = problem.row_length - device_range.stop, problem.row_length - device_range.start
            views = results if problem.keep_last_only else [result[low:high] for result in results]
            ends = first_and_last_head(problem, device_range.start, high - low)
            yield RoundRobinChunk(
                device_range.device, slice_problem(problem, 0, low, high), views, device_range.last, ends
            )

    # ----- Chunks

    def scan_stream(self, opening: Problem, others: Iterable[Problem], strategy: str) -> Generator[Arrays, None, None]:
        """Yield the results of each chunk of a row, as `gpuscan.engine.streams.scan_stream` does.

        Args:
            opening: the first chunk.
            others: the chunks after it, with the same element type.
            strategy: as in `gpuscan.scan`.
        """
        for executor in self.executors:
            check_elements(executor.context, opening)
        # For each round-robin chunk under way, the results of its chunk if it is the chunk's last one, else None.
        ended: deque[Arrays | None] = deque()
        devices = next_devices(self.speeds)

        def pieces() -> Iterator[RoundRobinChunk]:
            for chunk in chain([opening], others):
                # The caller may fill the same array with the next chunk, so each chunk is copied.
                problem = chunk.with_leaves(tuple(np.array(leaf, order="C") for leaf in chunk.leaves))
                results = [np.empty((problem.size, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
                length = round_robin_length(problem.size, self._place_bytes(problem), self.speeds)
                for device_range in round_robin_chunks(max(1, problem.size), max(1, length), devices):
                    views = [result[device_range.start : device_range.stop] for result in results]
                    ended.append(results if device_range.last else None)
                    stop = min(device_range.stop, problem.size)
                    ends = first_and_last_head(problem, device_range.start, stop - device_range.start)
                    yield RoundRobinChunk(
                        device_range.device, slice_problem(problem, 0, device_range.start, stop), views, False, ends
                    )

        with closing(self.run(pieces(), strategy)) as landing:
            for _ in landing:
                results = ended.popleft()
                if results is not None:
                    yield results

    # ----- Round-robin chunks

    def run(self, pieces: Iterable[RoundRobinChunk], strategy: str) -> Generator[RoundRobinChunk, None, None]:
        """Scan chunks that follow each other along the scan; yield each, in order, once its results are there.

        Every thread has ended when the generator has.
        """
        under_way: deque[tuple[RoundRobinChunk, Future[None]]] = deque()
        carries: list[Future[Carry]] = []
        most = DEVICE_GROUPS.chunks_in_flight * len(self.executors)
        pools = [
            ThreadPoolExecutor(DEVICE_GROUPS.chunks_in_flight, thread_name_prefix=f"gpuscan-device-group-{number}")
            for number in range(len(self.executors))
        ]
        carry: Future[Carry] = Future()
        carry.set_result(None)
        try:
            for round_robin_chunk in pieces:
                while len(under_way) >= most:
                    yield await_round_robin_chunk(under_way)
                following: Future[Carry] = Future()
                carries = [*(pending for pending in carries if not pending.done()), following]
                executor = self.executors[round_robin_chunk.device]
                job = pools[round_robin_chunk.device].submit(
                    scan_round_robin_chunk, executor, round_robin_chunk, strategy, carry, following
                )
                under_way.append((round_robin_chunk, job))
                carry = following
            while under_way:
                yield await_round_robin_chunk(under_way)
        finally:
            # After an error or an interrupt no thread computes these carries any more.
            for pending in carries:
                with suppress(InvalidStateError):
                    pending.set_exception(GivenUpError())
            for pool in pools:
                pool.shutdown(wait=True, cancel_futures=True)


def first_and_last_head(problem: Problem, start: int, count: int) -> tuple[int, int] | None:
    """Return the first and the last of `count` places from `start` on where a segment begins; None if none does."""
    if problem.heads is None:
        return None
    heads = np.flatnonzero(problem.heads.flags(start, count))
    return (int(heads[0]), int(heads[-1])) if len(heads) else None


def await_round_robin_chunk(under_way: deque[tuple[RoundRobinChunk, Future[None]]]) -> RoundRobinChunk:
    """Wait for the first round-robin chunk.

    Raises:
        Exception: what it raised, or what the round-robin chunk raised that made it give up.
    """
    round_robin_chunk, job = under_way.popleft()
    raise_first([job])
    return round_robin_chunk


def raise_first(jobs: Sequence[Future[Any]]) -> None:
    """Wait for all jobs, and raise the first error in their order that is not a consequence of another."""
    errors = [error for error in (job.exception() for job in jobs) if error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, GivenUpError)):
        raise error


@contextmanager
def naming(executor: Executor, device: int) -> Iterator[None]:
    """Note in errors on which device of a list they happened."""
    try:
        yield
    except BaseException as error:
        add_device(error, executor, device)
        raise


def add_device(error: BaseException, executor: Executor, device: int) -> None:
    """Note in an error on which device of a list it happened, since equal cards may have equal names."""
    error.add_note(f"This was on device {device} of the list, {executor.context.capabilities.summary}.")


def scan_round_robin_chunk(
    executor: Executor, round_robin_chunk: RoundRobinChunk, strategy: str, before: Future[Carry], after: Future[Carry]
) -> None:
    """Scan a round-robin chunk on its device, between the carry that comes in and the one that goes out."""
    try:
        with naming(executor, round_robin_chunk.device):
            _scan_round_robin_chunk(executor, round_robin_chunk, strategy, before, after)
    except BaseException:
        with suppress(InvalidStateError):
            after.set_exception(GivenUpError())
        raise


def _scan_round_robin_chunk(
    executor: Executor, round_robin_chunk: RoundRobinChunk, strategy: str, before: Future[Carry], after: Future[Carry]
) -> None:
    problem, context = round_robin_chunk.problem, executor.context
    if problem.empty:
        after.set_result(before.result())
        return
    leaves = [upload_array(context, leaf) for leaf in problem.numpy_leaves]
    length = problem.row_length
    first, last = round_robin_chunk.heads or (length, 0)
    if not round_robin_chunk.last:
        # The carry depends only on the elements from the last head on. They are combined with the initial value.
        start = seeds_of(problem) if round_robin_chunk.heads else None
        total = reduce_rows(executor, cut_round_robin_chunk(problem, leaves, last, length), start)
        if round_robin_chunk.heads:
            after.set_result(total)
    carry = before.result()
    if not round_robin_chunk.last and not round_robin_chunk.heads:
        after.set_result(join_carry(executor, problem, seeds_of(problem) if carry is None else carry, total))
    if not problem.keep_last_only:
        for begin, end, start in ((0, first, carry), (first, length, None)):
            if begin < end:
                part = start_from_carry(cut_round_robin_chunk(problem, leaves, begin, end), start)
                low, high = range_in_memory(problem, begin, end)
                write(scan_device(executor, part, strategy), [output[low:high] for output in round_robin_chunk.outputs])
    elif round_robin_chunk.last:
        whole = start_from_carry(cut_round_robin_chunk(problem, leaves, 0, length), carry)
        write(scan_device(executor, whole, strategy), round_robin_chunk.outputs)
    context.check()


def cut_round_robin_chunk(problem: Problem, leaves: Sequence[DeviceArray], begin: int, end: int) -> Problem:
    """Return the scan of a part of a round-robin chunk, along the first axis, of arrays on the device."""
    return slice_problem(replace(problem, leaves=tuple(leaves)), 0, *range_in_memory(problem, begin, end))


def write(results: Sequence[DeviceArray], outputs: Arrays) -> None:
    """Read results from a device into arrays of as many elements."""
    for result, output in zip(results, outputs, strict=True):
        shaped = result._view_as(output.shape)
        if output.flags.c_contiguous and output.dtype == result.dtype:
            shaped._read(output)
        else:
            output[...] = shaped._read()


# ----- Speeds
#
# Measure how fast devices are, to give each its share of the work.


# The folder of the speeds on disk.
SPEEDS_FOLDER = "speeds"

# The slowest and the fastest speed that are accepted from a file, in bytes a second.
_PLAUSIBLE = (1e3, 1e15)


def relative_speeds(executors: Sequence[Executor]) -> list[int]:
    """Return the speeds of devices as multiples of the slowest one's: powers of two. Equal cards have equal speeds.

    Speeds are measured once and kept on disk, since the order of combination depends on them.
    """
    keys = [key_of(executor.context.capabilities) for executor in executors]
    if all(key == keys[0] for key in keys):
        return [1] * len(executors)
    speeds = [_speed(executor) for executor in executors]
    slowest = min(speeds)
    ratios = [round(np.log2(speed / slowest)) for speed in speeds]
    return [min(1 << int(ratio), DEVICE_GROUPS.max_speed_ratio) for ratio in ratios]


def _speed(executor: Executor) -> float:
    """Return the bytes a second that the device scans from NumPy to NumPy, as kept on disk or measured."""
    if executor.speed is not None:
        return executor.speed
    key = key_of(executor.context.capabilities)
    kept = disk_cache.read(SPEEDS_FOLDER, key)
    if isinstance(kept, float) and _PLAUSIBLE[0] <= kept <= _PLAUSIBLE[1]:
        executor.speed = kept
        return kept
    sample = np.ones(DEVICE_GROUPS.speed_sample_bytes // 4, np.uint32)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        scan_host(executor, make_problem(sample, "add"))
        seconds.append(time.perf_counter() - started)
    # The first scan also compiles the shaders, so its time does not count.
    speed = sample.nbytes / min(seconds[1:])
    disk_cache.write(SPEEDS_FOLDER, key, speed)
    executor.speed = speed
    return speed
