"""Measure how fast devices are, to give each its share of the work."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from gpuscan.device import disk_cache
from gpuscan.device.tile_cache import key_of
from gpuscan.engine.executor import Executor
from gpuscan.engine.host_arrays import scan_host
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS
from gpuscan.problem.problem import make_problem

FOLDER = "speeds"

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
    kept = disk_cache.read(FOLDER, key)
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
    disk_cache.write(FOLDER, key, speed)
    executor.speed = speed
    return speed
