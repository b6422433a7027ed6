"""Timers of GPU work: the median of timestamps after a warm-up, or of the wall clock where there are none."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan import Device
from gpuscan.device.backends import webgpu
from gpuscan.tools.bench.copy_kernel import VECTOR_BYTES, copy_recording

if TYPE_CHECKING:
    import wgpu

# Seconds of work before a measurement. An idle GPU lowers its clocks, and cold figures are up to 2.5 times too slow.
WARM_SECONDS = 0.3

# The longest warm-up in seconds. After a pause, such as a compilation, the warm-up is as long as the pause.
MAX_WARM_SECONDS = 1.0

# A GPU is warm once the medians of two batches differ by no more than this share.
STEADY = 0.03

# A GPU that does not become steady is measured after the warm-up times this factor.
PATIENCE = 5

# Bytes and number of the copies before each batch, since short work alone does not raise the clocks.
HEAT_BYTES, HEAT_RUNS = 64 << 20, 40

# Runs in a batch.
REPEATS = 20
MIN_REPEATS = 3

# The seconds that a batch of slow work may take. It has fewer runs for that.
BATCH_SECONDS = 1.0

TICKS, WALL = "timestamps", "wall clock"

Recording = Callable[["wgpu.GPUCommandEncoder", "dict[str, Any] | None"], object]


class Heat:
    """Copies that keep the clocks of a GPU high. A CPU adapter needs none."""

    def __init__(self, device: Device) -> None:
        self._gpu = device.wgpu_device
        self._copy: Recording | None = None
        if device.capabilities.adapter_type != "CPU":
            usage = webgpu().BufferUsage.STORAGE
            source, target = (self._gpu.create_buffer(size=HEAT_BYTES, usage=usage) for _ in range(2))
            self._copy = copy_recording(device, source, target, HEAT_BYTES // VECTOR_BYTES)

    def __bool__(self) -> bool:
        return self._copy is not None

    def record(self, encoder: wgpu.GPUCommandEncoder) -> None:
        """Record the copies that go before a batch."""
        if self._copy is not None:
            for _ in range(HEAT_RUNS):
                self._copy(encoder, None)

    def submit(self) -> None:
        """Submit these copies, and do not wait for them."""
        if self._copy is not None:
            encoder = self._gpu.create_command_encoder()
            self.record(encoder)
            self._gpu.queue.submit([encoder.finish()])


class GpuTimer:
    """Times what a `Recording` puts into one compute pass.

    Attributes:
        warm_seconds: the least seconds of work before a measurement.
        clock: ``"timestamps"``, or ``"wall clock"`` if the device has none that work. The wall clock measures a
            submission of several passes and divides the time by their number, so short work seems longer than it is.
    """

    def __init__(self, device: Device, warm_seconds: float = WARM_SECONDS, repeats: int = REPEATS) -> None:
        self.device = device
        self.clock = TICKS if device.capabilities.timestamps else WALL
        self.warm_seconds = warm_seconds
        self._repeats = repeats
        self._gpu = device.wgpu_device
        usage = webgpu().BufferUsage
        self._active = -math.inf  # when the GPU was last seen at work
        self._word = self._gpu.create_buffer(size=4, usage=usage.COPY_SRC)
        self._heat = Heat(device)
        if self.clock == TICKS:
            self._queries = self._gpu.create_query_set(type="timestamp", count=2 * repeats)
            self._ticks = self._gpu.create_buffer(size=16 * repeats, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)

    def seconds(self, recording: Recording) -> float:
        """Return the median time of one run."""
        self._batch(recording, 1)  # compiles
        warm = self.warm_seconds
        if self._heat:
            warm = max(warm, min(time.perf_counter() - self._active, MAX_WARM_SECONDS))
        repeats = repeats_for(max(self._batch(recording, 1)), self._repeats)
        begin, before = time.perf_counter(), 0.0
        while True:
            median = statistics.median(self._batch(recording, repeats))
            taken = time.perf_counter() - begin
            steady = abs(median - before) <= STEADY * median or taken > PATIENCE * warm
            if taken > warm and steady:
                self._active = time.perf_counter()
                return median
            before = median

    def _batch(self, recording: Recording, repeats: int) -> Sequence[float]:
        """Return the times of a number of runs that follow each other in one submission."""
        encoder = self._gpu.create_command_encoder()
        self._heat.record(encoder)
        for i in range(repeats):
            writes = None
            if self.clock == TICKS:
                writes = {
                    "query_set": self._queries,
                    "beginning_of_pass_write_index": 2 * i,
                    "end_of_pass_write_index": 2 * i + 1,
                }
            recording(encoder, writes)
        if self.clock == TICKS:
            encoder.resolve_query_set(self._queries, 0, 2 * repeats, self._ticks, 0)
        commands = encoder.finish()
        begin = time.perf_counter()
        self._gpu.queue.submit([commands])
        if self.clock == WALL:
            self._gpu.queue.read_buffer(self._word)
            return [(time.perf_counter() - begin) / repeats]
        ticks = np.frombuffer(self._gpu.queue.read_buffer(self._ticks, 0, 16 * repeats), np.uint64).reshape(-1, 2)
        period = self.device.capabilities.timestamp_period * 1e-9
        return [int(stop - start) * period for start, stop in ticks]


def repeats_for(seconds: float, most: int = REPEATS) -> int:
    """Return the number of runs in a batch of work that takes `seconds` once."""
    return int(min(most, max(MIN_REPEATS, BATCH_SECONDS / max(seconds, 1e-9))))


def wall_seconds(run: Callable[[], object], warm_seconds: float = WARM_SECONDS, repeats: int = REPEATS) -> float:
    """Return the median time of a call that returns when its work is done."""

    def once() -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    once()  # compiles
    end = time.perf_counter() + warm_seconds
    first = once()
    while time.perf_counter() < end:
        once()
    return statistics.median(once() for _ in range(repeats_for(first, repeats)))
