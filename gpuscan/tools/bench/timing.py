"""Time GPU work and calls: the median after a warm-up, by GPU timestamps where they work and else by the wall clock.

The copy of a buffer is here too. Its speed is the limit for every scan, and it keeps the clocks of a GPU high.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpuscan import Device
from gpuscan.device.backends import webgpu
from gpuscan.planning.plan import grid_of
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu

# Seconds of work before a measurement. An idle GPU lowers its clocks, and cold figures are up to 2.5 times too slow.
WARM_SECONDS = 0.3

# Work is warm once the medians of two batches differ by no more than this share.
STEADY = 0.03

# Work that does not become steady is measured after the warm-up times this factor.
PATIENCE = 5

# Bytes of a copy before each batch, and seconds of such copies, since short work alone does not raise the clocks.
HEAT_BYTES, HEAT_SECONDS = 64 << 20, 0.02

# The copies by which their time is learnt.
HEAT_TRIALS = 8

# Runs in a batch.
REPEATS = 20
MIN_REPEATS = 3

# The seconds that a batch of slow work may take. It has fewer runs for that.
BATCH_SECONDS = 1.0

TICKS, WALL = "timestamps", "wall clock"

# Invocations of a workgroup of the copy, or the most that the adapter allows.
WORKGROUP_SIZE = 256

# Neighbouring vectors that are copied together: one a lane.
LANES = 32

# Vectors that one invocation copies.
STEPS = 8

# Bytes of a vector of four words.
VECTOR_BYTES = 16

# Records work into an encoder, in one compute pass with these timestamps.
Recording = Callable[["wgpu.GPUCommandEncoder", "dict[str, object] | None"], object]


# ----- Medians


def measure_median(
    batch: Callable[[int], Sequence[float]], warm_seconds: float | None = None, repeats: int | None = None
) -> float:
    """Return the median time of a batch of runs, once the warm-up is over and two batches agree.

    Args:
        batch: makes a number of runs, and returns their times.
        warm_seconds: the least seconds of work before the measurement (default: `WARM_SECONDS`).
        repeats: the most runs in a batch (default: `REPEATS`).
    """
    warm = WARM_SECONDS if warm_seconds is None else warm_seconds
    batch(1)  # compiles
    seconds = max(batch(1))
    count = int(min(REPEATS if repeats is None else repeats, max(MIN_REPEATS, BATCH_SECONDS / max(seconds, 1e-9))))
    begin, before = time.perf_counter(), 0.0
    while True:
        median = statistics.median(batch(count))
        taken = time.perf_counter() - begin
        if taken > warm and (abs(median - before) <= STEADY * median or taken > PATIENCE * warm):
            return median
        before = median


def wall_seconds(run: Callable[[], object], warm_seconds: float | None = None, repeats: int | None = None) -> float:
    """Return the median time of a call that returns when its work is done."""

    def once() -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    return measure_median(lambda count: [once() for _ in range(count)], warm_seconds, repeats)


class GpuTimer:
    """Times work on a device.

    Attributes:
        clock: ``"timestamps"``, or ``"wall clock"`` if the device has none that work. The wall clock measures a
            submission of several runs and divides the time by their number, so short work seems longer than it is.
    """

    def __init__(self, device: Device, warm_seconds: float | None = None, repeats: int = REPEATS) -> None:
        self.device = device
        self.clock = TICKS if device.capabilities.timestamps else WALL
        self._warm_seconds, self._repeats = warm_seconds, repeats
        self._gpu = device.wgpu_device
        usage = webgpu().BufferUsage
        self._word = self._gpu.create_buffer(size=4, usage=usage.COPY_SRC)
        self._heat: Recording | None = None
        self._heat_runs = HEAT_TRIALS
        if device.capabilities.adapter_type != "CPU":  # a CPU adapter needs none
            size = min(HEAT_BYTES, device._context.binding_limit)
            source, target = (self._gpu.create_buffer(size=size, usage=usage.STORAGE) for _ in range(2))
            self._heat = copy_recording(device, source, target, size)
            self._heat_runs = self._count_heat_runs()
        if self.clock == TICKS:
            self._queries = self._gpu.create_query_set(type="timestamp", count=2 * repeats)
            self._ticks = self._gpu.create_buffer(size=16 * repeats, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)

    def time_recording(self, recording: Recording) -> float:
        """Return the median time of one run. The runs of a batch follow each other in one submission."""
        return measure_median(lambda count: self._record_batch(recording, count), self._warm_seconds, self._repeats)

    def time_copy(self, moved_bytes: int) -> float:
        """Return the median time of a copy that reads and writes `moved_bytes` together."""
        half = max(VECTOR_BYTES, moved_bytes // 2 // VECTOR_BYTES * VECTOR_BYTES)
        usage = webgpu().BufferUsage.STORAGE
        source, target = (self._gpu.create_buffer(size=half, usage=usage) for _ in range(2))
        taken = self.time_recording(copy_recording(self.device, source, target, half))
        source.destroy()
        target.destroy()
        return taken

    def time_call(self, call: Callable[[], object]) -> float:
        """Return the median time of a call on arrays of the device: the sum of its stages on the GPU."""
        return measure_median(lambda count: self._call_batch(call, count), self._warm_seconds, self._repeats)

    def _record_batch(self, recording: Recording, count: int) -> Sequence[float]:
        encoder = self._gpu.create_command_encoder()
        self._record_heat(encoder)
        for i in range(count):
            recording(encoder, self._timestamps_of(i))
        if self.clock == TICKS:
            encoder.resolve_query_set(self._queries, 0, 2 * count, self._ticks, 0)
        commands = encoder.finish()
        begin = time.perf_counter()
        self._gpu.queue.submit([commands])
        if self.clock == WALL:
            self._gpu.queue.read_buffer(self._word)
            return [(time.perf_counter() - begin) / count]
        ticks = np.frombuffer(self._gpu.queue.read_buffer(self._ticks, 0, 16 * count), np.uint64).reshape(-1, 2)
        period = self.device.capabilities.timestamp_period * 1e-9
        return [int(stop - start) * period for start, stop in ticks]

    def _timestamps_of(self, run: int) -> dict[str, object] | None:
        if self.clock == WALL:
            return None
        return {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 2 * run,
            "end_of_pass_write_index": 2 * run + 1,
        }

    def _call_batch(self, call: Callable[[], object], count: int) -> Sequence[float]:
        encoder = self._gpu.create_command_encoder()
        self._record_heat(encoder)
        self._gpu.queue.submit([encoder.finish()])
        if self.clock == WALL:
            self.device.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            self.device.synchronize()
            return [(time.perf_counter() - begin) / count]
        with self.device.profile() as profile:
            for _ in range(count):
                call()
        stages = [span.gpu_seconds or 0.0 for span in profile.spans]
        per_call = len(stages) // count
        return [sum(stages[i * per_call : (i + 1) * per_call]) for i in range(count)]

    def _record_heat(self, encoder: wgpu.GPUCommandEncoder) -> None:
        if self._heat is not None:
            for _ in range(self._heat_runs):
                self._heat(encoder, None)

    def _count_heat_runs(self) -> int:
        """Return how many copies take `HEAT_SECONDS`."""

        def trial() -> None:
            encoder = self._gpu.create_command_encoder()
            self._record_heat(encoder)
            self._gpu.queue.submit([encoder.finish()])
            self.device.synchronize()

        trial()  # compiles
        begin = time.perf_counter()
        trial()
        return max(1, round(HEAT_SECONDS * HEAT_TRIALS / (time.perf_counter() - begin)))


# ----- The copy


def copy_recording(device: Device, source: wgpu.GPUBuffer, destination: wgpu.GPUBuffer, nbytes: int) -> Recording:
    """Return a function that records the copy of `nbytes`, in whole vectors: a dispatch for each binding."""
    limits = device.capabilities.limits
    workgroup = min(WORKGROUP_SIZE, limits["max-compute-invocations-per-workgroup"])
    code = render("arrays/copy.wgsl", workgroup_size=workgroup, lanes=LANES, steps=STEPS)
    gpu = device.wgpu_device
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"}
    )
    alignment = limits["min-storage-buffer-offset-alignment"]
    most = limits["max-storage-buffer-binding-size"] // alignment * alignment

    def part(start: int) -> tuple[wgpu.GPUBindGroup, tuple[int, int, int]]:
        size = min(most, nbytes - start)
        group = gpu.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": i, "resource": {"buffer": buffer, "offset": start, "size": size}}
                for i, buffer in enumerate((source, destination))
            ],
        )
        workgroups = -(-size // (VECTOR_BYTES * workgroup * STEPS))
        return group, grid_of(workgroups, limits["max-compute-workgroups-per-dimension"])

    parts = [part(start) for start in range(0, nbytes, most)]

    def recording(encoder: wgpu.GPUCommandEncoder, writes: Mapping[str, object] | None) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=writes)
        compute.set_pipeline(pipeline)
        for group, grid in parts:
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*grid)
        compute.end()

    return recording
