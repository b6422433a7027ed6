"""gpuscan's own linear recurrences of arrays on the device, through the public functions."""

from __future__ import annotations

import numpy as np

import gpuscan
from gpuscan import Array, Device
from gpuscan.tools.bench.calls import call_seconds
from gpuscan.tools.bench.cases import RecurrenceCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timer import TICKS, WALL, WARM_SECONDS


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

    def seconds(self) -> float:
        return call_seconds(self._device, self._run, self._warm_seconds)

    def error(self, inputs: Inputs) -> float:
        return inputs.error([np.asarray(result).reshape(-1)[inputs.indices] for result in self._results])

    def close(self) -> None:
        self._arrays.clear()
        self._results.clear()
