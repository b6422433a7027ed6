"""The GPU time of calls of public functions on arrays of the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from gpuscan import Device
from gpuscan.tools.bench.timer import PATIENCE, STEADY, WARM_SECONDS, Heat, repeats_for


def call_seconds(device: Device, call: Callable[[], object], warm_seconds: float = WARM_SECONDS) -> float:
    """Return the median time of a call after a warm-up: the sum of its stages on the GPU.

    Copies run before each batch of calls, since short calls alone leave the GPU idle in between, and its clocks low.
    There the warm-up ends when two batches agree. On a device without timestamps the wall clock is read.
    """
    heat = Heat(device)
    _batch(device, call, 1, heat)  # compiles
    repeats = repeats_for(_batch(device, call, 1, heat)[0])
    begin, before = time.perf_counter(), 0.0
    while True:
        median = statistics.median(_batch(device, call, repeats, heat))
        taken = time.perf_counter() - begin
        steady = not heat or abs(median - before) <= STEADY * median or taken > PATIENCE * warm_seconds
        if taken > warm_seconds and steady:
            return median
        before = median


def _batch(device: Device, call: Callable[[], object], repeats: int, heat: Heat) -> list[float]:
    """Return the times of a number of calls."""
    if not device.capabilities.timestamps:
        heat.submit()
        device.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        device.synchronize()
        return [(time.perf_counter() - begin) / repeats]
    heat.submit()
    with device.profile() as profile:
        for _ in range(repeats):
            call()
    stages = [span.gpu_seconds or 0.0 for span in profile.spans]
    per_call = len(stages) // repeats
    return [sum(stages[i * per_call : (i + 1) * per_call]) for i in range(repeats)]
