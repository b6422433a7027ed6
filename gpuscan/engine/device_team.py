"""Scan NumPy arrays on several devices: cut them, pass carries from device to device, and put the results together.

Rows are divided between the devices where there are enough of them; no device then waits for another. Otherwise the
axis of the scan is cut into stripes, which the devices take in turn. A device uploads a stripe and reduces it, waits
for the carry of the stripe before, joins it with its own total for the next one, and scans. So uploads, kernels and
downloads of several stripes overlap, and each element is uploaded once. WebGPU has no copies between devices: carries
go through the CPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.transfer import serve_devices
from gpuscan.engine.carries import Carry, join_carry, reduce_rows, seeds_of, start_from_carry
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.executor import Executor
from gpuscan.engine.host_arrays import scan_host
from gpuscan.engine.preparation import check_elements
from gpuscan.planning.partition import Stretch, next_devices, segment_shares, shares, stripe_length, stripes
from gpuscan.planning.transfer_heuristics import TEAMS
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import cut, in_memory, parts_from_axis
from gpuscan.problem.segments import Offsets

T = TypeVar("T")
Arrays = list[AnyArray]


class GivenUpError(Exception):
    """A stripe's carry does not come, because another stripe failed."""


@dataclass(frozen=True)
class Stripe:
    """A stripe as a problem of its own.

    Attributes:
        device: the number of its device.
        problem: the stripe's scan, with the seeds of the whole one.
        outputs: the arrays (*shape, *element shape) for its results.
        last: True if no stripe follows.
        heads: the first and the last place, in the order of the scan, where a segment begins; None if none does.
    """

    device: int
    problem: Problem
    outputs: Arrays
    last: bool
    heads: tuple[int, int] | None = None


class DeviceTeam:
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
            for part, places in parts_from_axis(problem, results):
                for _ in self.run(self._stripes(part, places), strategy):
                    pass
        return results

    def _is_for_one(self, problem: Problem) -> bool:
        """Return True if one device computes the scan: it is short, or its elements use their neighbours or indices."""
        if problem.compacts or problem.lists_runs or self._is_short(problem):
            return True
        if self._axis_between_rows(problem) is not None:
            return False
        if any(problem.field_offsets) or problem.indexed:
            # A stripe knows neither its neighbours nor the index of its first element.
            return True
        return stripe_length(problem.row_length, self._place_bytes(problem), self.speeds) >= problem.row_length

    def axis_of_shares(self, problem: Problem) -> int | None:
        """Return the axis along which devices take rows of their own; None if the array is short or has few rows."""
        return None if self._is_short(problem) else self._axis_between_rows(problem)

    def _is_short(self, problem: Problem) -> bool:
        return problem.row_length * self._place_bytes(problem) < 2 * TEAMS.min_stripe_bytes

    @staticmethod
    def _place_bytes(problem: Problem) -> int:
        widest = max(problem.source.storage_bytes, problem.destination.storage_bytes)
        return max(1, problem.rows * widest)

    def _axis_between_rows(self, problem: Problem) -> int | None:
        """Return the axis along which to divide rows; None if no axis has enough of them for all devices.

        An axis before the scanned one is preferred: its shares are neighbours in memory.
        """
        enough = TEAMS.min_rows_each * sum(self.speeds)
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
        place = axis - (axis > problem.axis)

        def call(device: int, low: int, high: int) -> None:
            share = cut(problem, axis, low, high)
            index = (*before, slice(low, high))
            if not problem.keep_last_only or problem.heads is not None:
                scan_host(self.executors[device], share, strategy, outputs=[result[index] for result in results])
                return
            for result, scanned in zip(results, scan_host(self.executors[device], share, strategy), strict=True):
                view = result.reshape((*lead, *result.shape[1:]))[index[axis - place :]]
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
            part = cut(problem, axis, low, high)
            own = replace(heads, shape=part.shape, cut=replace(given, array=offsets[first : last + 1] - low))
            scan_host(self.executors[device], replace(part, heads=own), strategy, outputs=outputs)

        self._on_devices(segment_shares(offsets, self.speeds), call)

    def share(self, length: int, call: Callable[[int, int, int], T]) -> list[T]:
        """Return the results of a call for each device's share of an axis: (device, low, high).

        All of an axis without entries is the share of the first device.

        Raises:
            Exception: the first error of a call. No thread runs on after it.
        """
        return self._on_devices(shares(length, self.speeds) or [Stretch(0, 0, length, True)], call)

    def _on_devices(self, parts: Sequence[Stretch], call: Callable[[int, int, int], T]) -> list[T]:
        """Return the results of a call for the stretch of each device, made by a thread for each."""

        def call_on_device(device: int, low: int, high: int) -> T:
            with naming(self.executors[device], device):
                return call(device, low, high)

        with ThreadPoolExecutor(len(parts), thread_name_prefix="gpuscan-team") as threads:
            calls = [threads.submit(call_on_device, part.device, part.start, part.stop) for part in parts]
            raise_first(calls)
        return [each.result() for each in calls]

    def _stripes(self, problem: Problem, results: Arrays) -> Iterator[Stripe]:
        """Cut a scan along the first axis."""
        length = stripe_length(problem.row_length, self._place_bytes(problem), self.speeds)
        for each in stripes(problem.row_length, length, next_devices(self.speeds)):
            low, high = each.start, each.stop
            if problem.reverse:
                low, high = problem.row_length - each.stop, problem.row_length - each.start
            views = results if problem.keep_last_only else [result[low:high] for result in results]
            ends = first_and_last_head(problem, each.start, high - low)
            yield Stripe(each.device, cut(problem, 0, low, high), views, each.last, ends)

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
        # For each stripe under way, the results of its chunk if the stripe is the chunk's last one, else None.
        ended: deque[Arrays | None] = deque()
        devices = next_devices(self.speeds)

        def pieces() -> Iterator[Stripe]:
            for chunk in chain([opening], others):
                # The caller may fill the same array with the next chunk, so each chunk is copied.
                problem = chunk.with_leaves(tuple(np.array(leaf, order="C") for leaf in chunk.leaves))
                results = [np.empty((problem.size, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
                length = stripe_length(problem.size, self._place_bytes(problem), self.speeds)
                for each in stripes(max(1, problem.size), max(1, length), devices):
                    views = [result[each.start : each.stop] for result in results]
                    ended.append(results if each.last else None)
                    stop = min(each.stop, problem.size)
                    ends = first_and_last_head(problem, each.start, stop - each.start)
                    yield Stripe(each.device, cut(problem, 0, each.start, stop), views, False, ends)

        with closing(self.run(pieces(), strategy)) as landing:
            for _ in landing:
                results = ended.popleft()
                if results is not None:
                    yield results

    # ----- Stripes

    def run(self, pieces: Iterable[Stripe], strategy: str) -> Generator[Stripe, None, None]:
        """Scan stripes that follow each other along the scan; yield each, in order, once its results are there.

        Every thread has ended when the generator has.
        """
        under_way: deque[tuple[Stripe, Future[None]]] = deque()
        carries: list[Future[Carry]] = []
        most = TEAMS.stripes_in_flight * len(self.executors)
        pools = [
            ThreadPoolExecutor(TEAMS.stripes_in_flight, thread_name_prefix=f"gpuscan-team-{number}")
            for number in range(len(self.executors))
        ]
        carry: Future[Carry] = Future()
        carry.set_result(None)
        try:
            for stripe in pieces:
                while len(under_way) >= most:
                    yield await_stripe(under_way)
                following: Future[Carry] = Future()
                carries = [*(each for each in carries if not each.done()), following]
                executor = self.executors[stripe.device]
                job = pools[stripe.device].submit(scan_stripe, executor, stripe, strategy, carry, following)
                under_way.append((stripe, job))
                carry = following
            while under_way:
                yield await_stripe(under_way)
        finally:
            # After an error or an interrupt no thread computes these carries any more.
            for each in carries:
                with suppress(InvalidStateError):
                    each.set_exception(GivenUpError())
            for pool in pools:
                pool.shutdown(wait=True, cancel_futures=True)


def first_and_last_head(problem: Problem, start: int, count: int) -> tuple[int, int] | None:
    """Return the first and the last of `count` places from `start` on where a segment begins; None if none does."""
    if problem.heads is None:
        return None
    heads = np.flatnonzero(problem.heads.flags(start, count))
    return (int(heads[0]), int(heads[-1])) if len(heads) else None


def await_stripe(under_way: deque[tuple[Stripe, Future[None]]]) -> Stripe:
    """Wait for the first stripe.

    Raises:
        Exception: what it raised, or what the stripe raised that made it give up.
    """
    stripe, job = under_way.popleft()
    raise_first([job])
    return stripe


def raise_first(jobs: Sequence[Future[Any]]) -> None:
    """Wait for all jobs, and raise the first error in their order that is not a consequence of another."""
    errors = [error for error in (job.exception() for job in jobs) if error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, GivenUpError)):
        raise error


@contextmanager
def naming(executor: Executor, device: int) -> Iterator[None]:
    """Note in errors on which device of a list they happened, since equal cards may have equal names."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"This was on device {device} of the list, {executor.context.capabilities.summary}.")
        raise


def scan_stripe(executor: Executor, stripe: Stripe, strategy: str, before: Future[Carry], after: Future[Carry]) -> None:
    """Scan a stripe on its device, between the carry that comes in and the one that goes out."""
    try:
        with naming(executor, stripe.device):
            _scan_stripe(executor, stripe, strategy, before, after)
    except BaseException:
        with suppress(InvalidStateError):
            after.set_exception(GivenUpError())
        raise


def _scan_stripe(
    executor: Executor, stripe: Stripe, strategy: str, before: Future[Carry], after: Future[Carry]
) -> None:
    problem, context = stripe.problem, executor.context
    if problem.empty:
        after.set_result(before.result())
        return
    leaves = [upload_array(context, leaf) for leaf in problem.numpy_leaves]
    length = problem.row_length
    first, last = stripe.heads or (length, 0)
    if not stripe.last:
        # The carry depends only on the elements from the last head on. They are combined with the initial value.
        start = seeds_of(problem) if stripe.heads else None
        total = reduce_rows(executor, cut_stripe(problem, leaves, last, length), start)
        if stripe.heads:
            after.set_result(total)
    carry = before.result()
    if not stripe.last and not stripe.heads:
        after.set_result(join_carry(executor, problem, seeds_of(problem) if carry is None else carry, total))
    if not problem.keep_last_only:
        for begin, end, start in ((0, first, carry), (first, length, None)):
            if begin < end:
                part = start_from_carry(cut_stripe(problem, leaves, begin, end), start)
                low, high = in_memory(problem, begin, end)
                write(scan_device(executor, part, strategy), [output[low:high] for output in stripe.outputs])
    elif stripe.last:
        whole = start_from_carry(cut_stripe(problem, leaves, 0, length), carry)
        write(scan_device(executor, whole, strategy), stripe.outputs)
    context.check()


def cut_stripe(problem: Problem, leaves: Sequence[DeviceArray], begin: int, end: int) -> Problem:
    """Return the scan of a part of a stripe, along the first axis, of arrays on the device."""
    return cut(replace(problem, leaves=tuple(leaves)), 0, *in_memory(problem, begin, end))


def write(results: Sequence[DeviceArray], outputs: Arrays) -> None:
    """Read results from a device into arrays of as many elements."""
    for result, output in zip(results, outputs, strict=True):
        shaped = result._view_as(output.shape)
        if output.flags.c_contiguous and output.dtype == result.dtype:
            shaped._read(output)
        else:
            output[...] = shaped._read()
