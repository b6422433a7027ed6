"""The copy kernel: the ceiling that every scan is measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.planning.plan import grid_of
from gpuscan.templates import render
from gpuscan.tools.bench.buffers import gather, place, release
from gpuscan.tools.bench.inputs import SAMPLES, Inputs
from gpuscan.tools.bench.measuring import Contender, Unsupported
from gpuscan.tools.bench.results import COPY

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device
    from gpuscan.tools.bench.timing import GpuTimer

WORKGROUP_SIZE = 256
LANES = 32
STEPS = 8
VECTOR_BYTES = 16


def copy_contender(device: Device, timer: GpuTimer) -> Contender:
    """A copy of half the case's bytes, so that as many are read and written as a scan moves."""
    return Contender(COPY, "kernel", lambda inputs: CopySubject(device, timer, inputs.case.moved_bytes // 2))


class CopySubject:
    """Two buffers and the kernel between them; it checks its own copy, not the case's results."""

    note = ""

    def __init__(self, device: Device, timer: GpuTimer, nbytes: int) -> None:
        self.clock = timer.clock
        self._device = device
        self._timer = timer
        self._vectors = max(1, -(-nbytes // VECTOR_BYTES))
        limit = device.capabilities.limits["max-storage-buffer-binding-size"]
        if self._vectors * VECTOR_BYTES > limit:
            raise Unsupported(f"{nbytes} bytes do not fit a binding of {limit}")
        self._words = np.random.default_rng(0).integers(0, 2**32, 4 * self._vectors, dtype=np.uint32)
        self._buffers = [place(device, self._words), place(device, None, self._words.nbytes)]

    def seconds(self) -> float:
        recording = copy_recording(self._device, self._buffers[0], self._buffers[1], self._vectors)
        return self._timer.seconds(recording)

    def error(self, inputs: Inputs) -> float:
        """Whether words of the copy differ from the source."""
        at = np.append(np.random.default_rng(1).integers(0, len(self._words), SAMPLES), len(self._words) - 1)
        got = gather(self._device, self._buffers[1], at, np.dtype(np.uint32))
        return 0.0 if np.array_equal(got, self._words[at]) else float("inf")

    def close(self) -> None:
        release(self._buffers)


def copy_recording(device: Device, source: wgpu.GPUBuffer, destination: wgpu.GPUBuffer, vectors: int) -> Any:
    """Records the copy of so many vectors of four words."""
    limits = device.capabilities.limits
    workgroup = min(WORKGROUP_SIZE, limits["max-compute-invocations-per-workgroup"])
    code = render("arrays/copy.wgsl", workgroup_size=workgroup, lanes=LANES, steps=STEPS)
    gpu = device.wgpu_device
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"}
    )
    size = vectors * VECTOR_BYTES
    group = gpu.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[
            {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": size}}
            for i, buffer in enumerate((source, destination))
        ],
    )
    grid = grid_of(-(-vectors // (workgroup * STEPS)), limits["max-compute-workgroups-per-dimension"])

    def recording(encoder: wgpu.GPUCommandEncoder, writes: dict[str, Any] | None) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=writes)
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(*grid)
        compute.end()

    return recording
