"""Records a plan into a command encoder, and reads what the run reported."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscan.kernels import STATE_HEADER_WORDS, STATUS_WORD, WIDTH_WORD

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device import Device
    from gpuscan.planning import ScanPlan

PARAMS = struct.Struct("<6I")  # length, tiles, epoch, spin_rounds, row_length, first_row: see shaders/parts/header.wgsl
PARAMS_BYTES = PARAMS.size
LAST_EPOCH = 0xFFFF  # epochs are 16 bits and begin at 1: see shaders/parts/tile_state.wgsl


@dataclass(frozen=True)
class Binding:
    """A part of a buffer, as a shader sees it."""

    buffer: wgpu.GPUBuffer
    offset: int = 0
    size: int | None = None

    def resource(self) -> dict[str, object]:
        entry: dict[str, object] = {"buffer": self.buffer, "offset": self.offset}
        if self.size is not None:
            entry["size"] = self.size
        return entry


class TileState:
    """The buffers that tiles tell each other through, kept from run to run.

    Runs on one queue follow each other, so all of a device's runs share one buffer; each run's epoch tells its posts
    from what earlier ones left, so nothing is cleared between runs. Plain totals lie in a buffer of their own, since
    their words could look like posts.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._posts: wgpu.GPUBuffer | None = None
        self._totals: wgpu.GPUBuffer | None = None
        self._epoch = 0
        self._lock = threading.Lock()

    def begin(self, plan: ScanPlan) -> tuple[wgpu.GPUBuffer, int]:
        """The buffer and the epoch for one run of the plan."""
        import wgpu

        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
        with self._lock:
            if self._epoch == LAST_EPOCH:
                self._posts = self._totals = None  # a new buffer is all zeros
                self._epoch = 0
            self._epoch += 1
            buffer = self._posts if plan.posts else self._totals
            if buffer is None or buffer.size < plan.state_bytes:
                size = max(plan.state_bytes, 2 * buffer.size if buffer else 1 << 16)
                buffer = self._device.create_buffer(size=-(-size // 16) * 16, usage=usage)
                if plan.posts:
                    self._posts = buffer
                else:
                    self._totals = buffer
            return buffer, self._epoch


@dataclass(frozen=True)
class Run:
    """One run of a plan, and where its report is once the GPU has done it.

    Attributes:
        plan: what was run.
        state: the buffer whose first `REPORT_BYTES` are the report.
        epoch: the run's own, by which the report tells it from earlier runs.
    """

    plan: ScanPlan
    state: wgpu.GPUBuffer
    epoch: int

    def timed_out(self, report: Sequence[int]) -> bool:
        """Whether a tile gave up waiting."""
        return self.plan.posts and report[STATUS_WORD] == self.epoch

    def width_differed(self, report: Sequence[int]) -> bool:
        """Whether subgroups had another size than the plan's."""
        return report[WIDTH_WORD] == self.epoch


REPORT_BYTES = 4 * STATE_HEADER_WORDS


def record(
    device: Device,
    plan: ScanPlan,
    encoder: wgpu.GPUCommandEncoder,
    sources: Sequence[Binding],
    destinations: Sequence[Binding],
    seeds: Binding | None = None,
    carries: Binding | None = None,
    timestamps: dict[str, Any] | None = None,
) -> Run:
    """Record the plan's dispatches into `encoder`. Submits nothing.

    Args:
        timestamps: WebGPU's `timestampWrites` of the compute pass.
    """
    state, epoch = device.tile_state.begin(plan)
    params = PARAMS.pack(plan.length, plan.tiles, epoch, plan.spin_rounds, plan.row_length, 0)
    compute = encoder.begin_compute_pass(timestamp_writes=timestamps)
    for stage in plan.stages:
        kernel = stage.kernel
        pipeline, layout = device.pipeline(kernel)
        bound = {kernel.state_binding: Binding(state)}
        if kernel.stage != "scan_totals":
            bound |= {array.binding: part for array, part in zip(kernel.sources, sources, strict=True)}
            if kernel.destinations:
                bound |= {array.binding: part for array, part in zip(kernel.destinations, destinations, strict=True)}
        for binding, part in ((kernel.seed_binding, seeds), (kernel.carry_binding, carries)):
            if part is not None and any(array.binding == binding for array in kernel.bindings):
                bound[binding] = part
        if not kernel.immediates:
            bound[0] = device.uniform(params)
        entries = [{"binding": binding, "resource": part.resource()} for binding, part in sorted(bound.items())]
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.wgpu_device.create_bind_group(layout=layout, entries=entries))
        if kernel.immediates:
            compute.set_immediates(0, params, 0, len(params))
        compute.dispatch_workgroups(*stage.grid)
    compute.end()
    return Run(plan, state, epoch)
