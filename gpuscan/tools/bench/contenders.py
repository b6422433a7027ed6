"""Contenders: the copy, gpuscan's scans and sorts, or another library on one case. A failure is a measurement too.

Everything of gpuscan is called through the public functions, as a program calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

import gpuscan as gs
from gpuscan.array_types import AnyArray as Array
from gpuscan.planning.strategies import Strategy
from gpuscan.tools.bench.cases import SORT, Inputs, ScanCase, bundle
from gpuscan.tools.bench.results import COPY, OURS, Measurement
from gpuscan.tools.bench.timing import VECTOR_BYTES, GpuTimer, copy_recording

# Returns the results at some elements in memory order, one array for each output.
Sampler = Callable[[Array], Sequence[Array]]

# Called with a line before each contender runs.
Progress = Callable[[str], None]


class Unsupported(Exception):
    """The contender cannot run the case. The message gives the reason."""


@dataclass
class Subject:
    """A contender with the inputs of one case loaded.

    Attributes:
        seconds: returns the median time of one run after a warm-up.
        sample: returns the results at some elements.
        clock: what times it.
        note: the version of a library, or a strategy.
        close: releases the memory of the device.
    """

    seconds: Callable[[], float]
    sample: Sampler
    clock: str
    note: str = ""
    close: Callable[[], object] = lambda: None

    def error(self, inputs: Inputs) -> float:
        """Return the largest error of the results at the sampled elements, as `Inputs.error` does."""
        return inputs.error([np.asarray(values) for values in self.sample(inputs.indices)])


class CopySubject(Subject):
    """A copy of `nbytes`. It checks the copied words, not the case's results."""

    def __init__(self, timer: GpuTimer, nbytes: int) -> None:
        words = np.arange(-(-nbytes // VECTOR_BYTES) * VECTOR_BYTES // 4, dtype=np.uint32)
        arrays = [timer.device.asarray(words), timer.device.empty(words.shape, words.dtype)]
        recording = copy_recording(timer.device, arrays[0].buffer, arrays[1].buffer, words.nbytes)
        self._words, self._target = words, arrays[1]
        super().__init__(lambda: timer.time_recording(recording), lambda at: [], timer.clock, close=arrays.clear)

    def error(self, inputs: Inputs) -> float:
        return 0.0 if np.array_equal(self._target.numpy(), self._words) else float("inf")


class DeviceSubject(Subject):
    """A call on arrays of the device, which writes the results."""

    def __init__(
        self,
        timer: GpuTimer,
        case: ScanCase,
        call: Callable[[], object],
        arrays: list[gs.Array],
        results: list[gs.Array],
    ) -> None:
        self.arrays, self.results, self._case = arrays, results, case
        super().__init__(lambda: timer.time_call(call), self._sample, timer.clock, close=self._close)

    def _sample(self, at: Array) -> list[Array]:
        shape = (self._case.elements, *self._case.element_shape)
        return [result.numpy().reshape(shape)[at] for result in self.results]

    def _close(self) -> None:
        self.arrays.clear()
        self.results.clear()


@dataclass(frozen=True)
class Contender:
    """Something to measure.

    Attributes:
        library: ``"gpuscan"``, ``"copy"`` or a peer's name.
        name: the strategy or the function.
        prepare: loads the inputs of a case, or raises if it cannot.
    """

    library: str
    name: str
    prepare: Callable[[Inputs], Subject]


def copy_contender(timer: GpuTimer, case: ScanCase) -> Contender:
    """Return a contender that copies half the case's bytes, and so moves the bytes that a scan moves."""
    return Contender(COPY, "kernel", lambda inputs: CopySubject(timer, max(1, case.moved_bytes // 2)))


def scan_contenders(timer: GpuTimer, case: ScanCase, strategies: Sequence[str]) -> list[Contender]:
    """Return one contender of gpuscan for each strategy, or one for a sort."""
    if case.op == SORT:
        return [Contender(OURS, SORT, partial(device_sort, timer, case))]
    return [Contender(OURS, name, partial(device_scan, timer, case, name)) for name in strategies]


def device_scan(timer: GpuTimer, case: ScanCase, strategy: str, inputs: Inputs) -> DeviceSubject:
    """Return the case's scan, from arrays on the device into others."""
    axis = 0 if case.rows == 1 else 1
    arrays = [timer.device.asarray(array[0] if axis == 0 else array) for array in inputs.arrays]
    results = [timer.device.empty(array.shape, array.dtype) for array in arrays]

    def call() -> None:
        gs.scan(bundle(arrays), case.operator, axis=axis, out=bundle(results), strategy=cast("Strategy", strategy))

    return DeviceSubject(timer, case, call, arrays, results)


def device_sort(timer: GpuTimer, case: ScanCase, inputs: Inputs) -> DeviceSubject:
    """Return the case's sort of an array on the device."""
    arrays = [timer.device.asarray(inputs.arrays[0])]
    results: list[gs.Array] = []

    def call() -> None:
        results[:] = [gs.sort(arrays[0], axis=1)]

    return DeviceSubject(timer, case, call, arrays, results)


# ----- Measuring


def measure(contender: Contender, case: ScanCase, inputs: Inputs) -> Measurement:
    """Time and check one contender on one case."""
    blank = Measurement(case, contender.library, contender.name)
    try:
        subject = contender.prepare(inputs)
        try:
            seconds = subject.seconds()
            error = subject.error(inputs)
            return Measurement(
                case,
                contender.library,
                contender.name,
                seconds=seconds,
                clock=subject.clock,
                error=error,
                right=error <= inputs.tolerance,
                note=subject.note,
            )
        finally:
            subject.close()
    except Unsupported as reason:
        return blank.with_reason(str(reason))
    except Exception as error:  # a peer may raise anything
        return blank.with_reason(f"{type(error).__name__}: {error}")


def run_suite(
    entrants: Iterable[tuple[ScanCase, Sequence[Contender]]],
    progress: Progress,
    report: Callable[[Measurement], None],
) -> list[Measurement]:
    """Measure every contender on its case, one at a time.

    Args:
        entrants: the cases with their contenders, the copy first.
        progress: called with a line before each measurement.
        report: called with each measurement.
    """
    measurements = []
    for case, contenders in entrants:
        progress(f"inputs of {case.series}, {case.size}")
        try:
            inputs = case.inputs()
        except MemoryError:
            inputs = None
        for contender in contenders:
            progress(f"{case.series}, {case.size}: {contender.library} {contender.name}")
            if inputs is None:
                outcome = Measurement(case, contender.library, contender.name).with_reason("no memory for the inputs")
            else:
                outcome = measure(contender, case, inputs)
            measurements.append(outcome)
            report(outcome)
    return measurements
