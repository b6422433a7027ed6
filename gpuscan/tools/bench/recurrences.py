"""gpuscan's own linear recurrences of arrays on the device, through the public functions."""

from __future__ import annotations

import statistics
import time

import numpy as np

import gpuscan
from gpuscan import Array, Device
from gpuscan.tools.bench.cases import RecurrenceCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timer import TICKS, WALL, WARM_SECONDS, repeats_for


def recurrence_contender(device: Device, warm_seconds: float = WARM_SECONDS) -> Contender:
    """Return a contender that runs the recurrence on arrays of the device."""
    return Contender(OURS, "linear_recurrence", lambda inputs: RecurrenceSubject(device, inputs, warm_seconds))


class RecurrenceSubject:
    """Arrays on the device, and the calls that use them. The device's profile times them."""

    note = ""

    def __init__(self, device: Device, inputs: Inputs, warm_seconds: float) -> None:
        assert isinstance(inputs.case, RecurrenceCase)
        self._device = device
        self._warm_seconds = warm_seconds
        self.clock = TICKS if device.capabilities.timestamps else WALL
        self._arrays = [self._device.asarray(array) for array in inputs.arrays]
        self._results: list[Array] = []

    def _run(self) -> None:
        a, b = self._arrays[:2]
        h = gpuscan.linear_recurrence(a, b, axis=1)
        self._results = [h]
        if len(self._arrays) == 3:
            grad_a, grad_b, _ = gpuscan.linear_recurrence_vjp(a, h, self._arrays[2], axis=1)
            self._results += [grad_a, grad_b]

    def _batch(self, repeats: int) -> list[float]:
        """Return the times of a number of runs: the sum of each run's stages, or the wall clock."""
        if self.clock == WALL:
            begin = time.perf_counter()
            for _ in range(repeats):
                self._run()
            self._device.synchronize()
            return [(time.perf_counter() - begin) / repeats]
        with self._device.profile() as profile:
            for _ in range(repeats):
                self._run()
        stages = [span.gpu_seconds or 0.0 for span in profile.spans]
        of_a_run = len(stages) // repeats
        return [sum(stages[i * of_a_run : (i + 1) * of_a_run]) for i in range(repeats)]

    def seconds(self) -> float:
        self._batch(1)  # compiles
        repeats = repeats_for(self._batch(1)[0])
        end = time.perf_counter() + self._warm_seconds
        while True:
            times = self._batch(repeats)
            if time.perf_counter() > end:
                return statistics.median(times)

    def error(self, inputs: Inputs) -> float:
        return inputs.error([np.asarray(result).reshape(-1)[inputs.indices] for result in self._results])

    def close(self) -> None:
        self._arrays.clear()
        self._results.clear()
