"""The GPU time of calls of public functions on arrays of the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from gpuscan import Device
from gpuscan.tools.bench.timer import WARM_SECONDS, repeats_for


def call_seconds(device: Device, call: Callable[[], object], warm_seconds: float = WARM_SECONDS) -> float:
    """Return the median time of a call after a warm-up: the sum of its stages on the GPU.

    Calls follow each other, so that the GPU stays warm. On a device without timestamps the wall clock is read.
    """
    _batch(device, call, 1)  # compiles
    repeats = repeats_for(_batch(device, call, 1)[0])
    end = time.perf_counter() + warm_seconds
    while True:
        times = _batch(device, call, repeats)
        if time.perf_counter() > end:
            return statistics.median(times)


def _batch(device: Device, call: Callable[[], object], repeats: int) -> list[float]:
    """Return the times of a number of calls."""
    if not device.capabilities.timestamps:
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        device.synchronize()
        return [(time.perf_counter() - begin) / repeats]
    with device.profile() as profile:
        for _ in range(repeats):
            call()
    stages = [span.gpu_seconds or 0.0 for span in profile.spans]
    per_call = len(stages) // repeats
    return [sum(stages[i * per_call : (i + 1) * per_call]) for i in range(repeats)]
