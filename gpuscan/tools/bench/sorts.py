"""gpuscan's own sorts of arrays on the device, through the public functions."""

from __future__ import annotations

import numpy as np

import gpuscan
from gpuscan import Array, Device
from gpuscan.tools.bench.calls import call_seconds
from gpuscan.tools.bench.cases import SortCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timer import TICKS, WALL, WARM_SECONDS


def sort_contender(device: Device, warm_seconds: float = WARM_SECONDS) -> Contender:
    """Return a contender that sorts keys on the device."""
    return Contender(OURS, "sort", lambda inputs: SortSubject(device, inputs, warm_seconds))


class SortSubject:
    """Keys on the device, and the call that sorts them. The device's profile times it."""

    note = ""

    def __init__(self, device: Device, inputs: Inputs, warm_seconds: float) -> None:
        assert isinstance(inputs.case, SortCase)
        self._device, self._warm_seconds = device, warm_seconds
        self.clock = TICKS if device.capabilities.timestamps else WALL
        self._keys: list[Array] = [device.asarray(inputs.arrays[0])]
        self._results: list[Array] = []

    def _run(self) -> None:
        self._results = [gpuscan.sort(self._keys[0], axis=1)]

    def seconds(self) -> float:
        return call_seconds(self._device, self._run, self._warm_seconds)

    def error(self, inputs: Inputs) -> float:
        return inputs.error([np.asarray(result).reshape(-1)[inputs.indices] for result in self._results])

    def close(self) -> None:
        self._keys.clear()
        self._results.clear()
