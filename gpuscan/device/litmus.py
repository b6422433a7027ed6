"""Run the probe's shaders (`shaders/probe/*.wgsl`) on a device, and read their results."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscan.device.backends import timestamp_period, webgpu
from gpuscan.device.interrupts import interrupts_held
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu


# The first words of ProbeResults in shaders/probe/results.wgsl.
_RESULTS = (
    "next_ticket",
    "timed_out",
    "started",
    "started_while_spinning",
    "polls",
    "subgroup_sizes",
    "lanes_out_of_order",
    "never",
    "waited_by_number",
    "found_by_number",
    "halves_alike",
)
_RESULT_BYTES = 4 * len(_RESULTS)
# The number of 16-bit patterns. The probe compares the packing of each of them.
HALVES = 1 << 16
# The bytes of two timestamps.
_TICK_BYTES = 16


@dataclass(frozen=True)
class Litmus:
    """The size of the litmus tests.

    Attributes:
        workgroups: several times more than can run at once.
        workgroup_size: invocations in a workgroup.
        chain_seconds: how long a workgroup waits for the one before it. Only a chain that fails takes as long.
        later_seconds: how long the first workgroup waits for the later ones to start.
        pauses: divisions that pass the time between two polls; see shaders/shared/pause.wgsl.
    """

    workgroups: int
    workgroup_size: int
    chain_seconds: float
    later_seconds: float
    pauses: int


@dataclass(frozen=True)
class ProbeRun:
    """The results of one submission of the bench, and its time.

    Attributes:
        words: the first words of ProbeResults, by name.
        gpu_seconds: the time of the last pass, by timestamps; 0.0 if the device has none.
        wall_seconds: the time from the submission to the end of the read-back.
    """

    words: dict[str, int]
    gpu_seconds: float
    wall_seconds: float


class ProbeBench:
    """The probe's buffers and compiled shaders. It runs several of them in one submission."""

    def __init__(self, wgpu_device: wgpu.GPUDevice, litmus: Litmus, *, enable_subgroups: bool) -> None:
        self._device = wgpu_device
        self._values: dict[str, Any] = {
            "workgroups": litmus.workgroups,
            "workgroup_size": litmus.workgroup_size,
            "pauses": litmus.pauses,
            "enable_subgroups": enable_subgroups,
        }
        self._grids = {"spin": 1, "subgroups": 4, "halves": -(-HALVES // litmus.workgroup_size)}
        self._grids |= dict.fromkeys(("chain", "order", "later"), litmus.workgroups)
        self._pipelines: dict[str, wgpu.GPUComputePipeline] = {}
        usage = webgpu().BufferUsage
        self._results = wgpu_device.create_buffer(
            label="gpuscan probe: results",
            size=_RESULT_BYTES + 4 * litmus.workgroups,
            usage=usage.STORAGE | usage.COPY_SRC,
        )
        self._readback = wgpu_device.create_buffer(
            label="gpuscan probe: readback", size=_RESULT_BYTES + _TICK_BYTES, usage=usage.COPY_DST | usage.MAP_READ
        )
        self._queries: wgpu.GPUQuerySet | None = None
        if "timestamp-query" in wgpu_device.features:
            self._queries = wgpu_device.create_query_set(type="timestamp", count=2)
            self._ticks = wgpu_device.create_buffer(
                label="gpuscan probe: ticks", size=_TICK_BYTES, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
            )
        self.timestamp_period = timestamp_period(wgpu_device)

    def run(self, bounds: Mapping[str, tuple[int, int]]) -> ProbeRun:
        """Run stages in order, time the last one, and read the results.

        Args:
            bounds: for each stage's name the bound of its waits: rounds, and polls in a round.
        """
        encoder = self._device.create_command_encoder()
        for stage, bound in bounds.items():
            timed = self._queries is not None and stage == list(bounds)[-1]
            writes = {
                "query_set": self._queries,
                "beginning_of_pass_write_index": 0,
                "end_of_pass_write_index": 1,
            }
            pipeline = self._pipeline(stage, bound)
            bindings = self._device.create_bind_group(
                layout=pipeline.get_bind_group_layout(0),
                entries=[{"binding": 0, "resource": {"buffer": self._results}}],
            )
            compute = encoder.begin_compute_pass(timestamp_writes=writes if timed else None)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, bindings)
            compute.dispatch_workgroups(self._grids[stage])
            compute.end()
        encoder.copy_buffer_to_buffer(self._results, 0, self._readback, 0, _RESULT_BYTES)
        if self._queries is not None:
            encoder.resolve_query_set(self._queries, 0, 2, self._ticks, 0)
            encoder.copy_buffer_to_buffer(self._ticks, 0, self._readback, _RESULT_BYTES, _TICK_BYTES)
        commands = encoder.finish()

        start = time.perf_counter()
        with interrupts_held():
            self._device.queue.submit([commands])
        self._readback.map_sync("READ")
        wall_seconds = time.perf_counter() - start
        data = self._readback.read_mapped(copy=True)
        self._readback.unmap()
        return ProbeRun(_named(data[:_RESULT_BYTES]), self._seconds(data[_RESULT_BYTES:]), wall_seconds)

    def _pipeline(self, stage: str, bound: tuple[int, int]) -> wgpu.GPUComputePipeline:
        if stage not in self._pipelines:
            rounds, polls = bound
            code = render(f"probe/{stage}.wgsl", rounds=rounds, polls=polls, **self._values)
            module = self._device.create_shader_module(label=f"gpuscan probe: {stage}", code=code)
            self._pipelines[stage] = self._device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        return self._pipelines[stage]

    def _seconds(self, ticks: memoryview) -> float:
        if self._queries is None:
            return 0.0
        begin, end = ticks.cast("Q")
        return (end - begin) * self.timestamp_period * 1e-9


def _named(data: memoryview) -> dict[str, int]:
    return dict(zip(_RESULTS, data.cast("I"), strict=True))
