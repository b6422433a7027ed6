"""Records a plan into a command encoder, and reads what the run reported."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.device.backends import webgpu
from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.tile_state import PARAMS, parameters
from gpuscan.device.transfer import download, padded
from gpuscan.errors import OperatorError
from gpuscan.planning.kernel import LOOP_LIMIT_WORD, STATE_HEADER_WORDS, STATUS_WORD, SUBGROUP_SIZE_WORD
from gpuscan.planning.plan import grid_of

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device
    from gpuscan.planning.plan import ScanPlan, Stage

LONGEST_ROW = 2**31  # that 32-bit indices within a piece need to know of


@dataclass(frozen=True)
class Origin:
    """Where in a longer array a piece begins.

    Attributes:
        first_row: the row that the piece's first element belongs to.
        row_offset: elements of that row before it.
        row_length: elements from one row's head to the next's.
    """

    first_row: int
    row_offset: int
    row_length: int

    @classmethod
    def at(cls, start: int, row_length: int) -> Origin:
        """The origin of the piece from element `start` on. Rows may be longer than 32-bit indices reach."""
        first_row, offset = divmod(start, max(row_length, 1))
        if row_length < LONGEST_ROW:
            return cls(first_row, offset, row_length)
        if offset == 0:
            return cls(first_row, 0, LONGEST_ROW)
        # A piece is shorter than such a row, so at most one head lies in it: as far on as it is.
        return cls(first_row, max(1, LONGEST_ROW - (row_length - offset)), LONGEST_ROW)


class Run(NamedTuple):
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
        return report[SUBGROUP_SIZE_WORD] == self.epoch

    def ran_on(self, report: Sequence[int]) -> bool:
        """Whether a loop of the operator's WGSL made more turns than it may."""
        return self.plan.loops and report[LOOP_LIMIT_WORD] == self.epoch

    def check_turns(self, report: Sequence[int]) -> None:
        """Raise OperatorError where one did."""
        if self.ran_on(report):
            raise turns_error(self.plan)


REPORT_BYTES = 4 * STATE_HEADER_WORDS


def read_report(device: Device, state: wgpu.GPUBuffer) -> list[int]:
    """The report as it is once all that was submitted is done."""
    report = np.empty(STATE_HEADER_WORDS, np.uint32)
    download(device.wgpu_device, device.pool, state, 0, report)
    numbers: list[int] = report.tolist()
    return numbers


def turns_error(plan: ScanPlan) -> OperatorError:
    kernel = plan.stages[-1].kernel
    where = "all combinations of an invocation together" if kernel.target.is_cpu_adapter else "one combination"
    return OperatorError(
        f"a loop in the WGSL of the operator {kernel.spec.operator_name!r} did not end: after "
        f"{kernel.heuristics.max_loop_iterations:,} turns, in {where}, it was left. Make it end "
        "sooner, for every pair of elements that there is"
    )


def record(
    device: Device,
    plan: ScanPlan,
    encoder: wgpu.GPUCommandEncoder,
    sources: Sequence[Binding],
    destinations: Sequence[Binding],
    seeds: Binding | None = None,
    carries: Binding | None = None,
    carry_out: Binding | None = None,
    origin: Origin | None = None,
    length: Length | None = None,
    timestamps: dict[str, Any] | None = None,
    beside: Mapping[str, Binding] | None = None,
) -> Run:
    """Record the plan's dispatches into `encoder`. Submits nothing.

    Args:
        device: of the plan.
        plan: what to record.
        encoder: with no pass open.
        sources: the arrays to load, one for each field.
        destinations: the arrays to store.
        seeds: what comes before each row, where the plan has it.
        carries: what comes before the piece.
        carry_out: where to write what comes before the next piece.
        origin: where the piece begins; left out, at the begin of the array.
        length: a length that only the GPU knows, at most the plan's.
        timestamps: WebGPU's `timestampWrites` of the compute pass; left out, those of the profiles that are open.
        beside: what else the plan's kernels bind, by name: ``"heads"``, where segments begin, a bit for each element;
            ``"count"``, where the number of elements goes that a mask has picked.
    """
    place = (origin.row_length, origin.first_row, origin.row_offset) if origin else (plan.row_length, 0, 0)
    state, epoch, params, offset = device.tile_state.begin(plan, place)
    if length is not None:
        params = record_length(device, plan, encoder, length, parameters(plan, place, epoch))
        offset = 0
    parts: dict[str, Sequence[Binding | None]] = {
        "source": sources,
        "destination": destinations,
        "state": (Binding(state, 0, padded(plan.state_bytes, ALIGNMENT)),),
        "seeds": (seeds,),
        "carries": (carries,),
        "carry_out": (carry_out,),
    }
    for name, there in (beside or {}).items():
        parts[name] = (there,)
    profiling = timestamps is None and device.profiles.active
    for i in plan.stages[-1].kernel.cleared:
        encoder.clear_buffer(destinations[i].buffer, destinations[i].offset, destinations[i].size)

    def dispatch(compute: wgpu.GPUComputePassEncoder, stage: Stage) -> None:
        kernel = stage.kernel
        pipeline, layout = device.pipeline(kernel)
        bound: list[tuple[int, Binding]] = [(0, params)]
        for binding, role, index in kernel.slots:
            part = parts[role][index]
            assert part is not None, role
            bound.append((binding, part))
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.bind_groups.group(layout, bound, keep=length is None), [offset])
        if length is not None and stage.name in ("reduce", "scan"):
            compute.dispatch_workgroups_indirect(params.buffer, 4 * GRID_WORD)
        else:
            compute.dispatch_workgroups(*stage.grid)

    if profiling:
        batch = device.profiles.batch([stage.name for stage in plan.stages], plan.strategy, plan.length)
        for stage in plan.stages:  # a pass for each, since timestamps are of passes
            compute = encoder.begin_compute_pass(timestamp_writes=batch.writes(stage.name))
            dispatch(compute, stage)
            compute.end()
        batch.resolve(encoder)
    else:
        compute = encoder.begin_compute_pass(timestamp_writes=timestamps)
        for stage in plan.stages:
            dispatch(compute, stage)
        compute.end()
    return Run(plan, state, epoch)


def record_beside(
    device: Device,
    encoder: wgpu.GPUCommandEncoder,
    template: str,
    bound: Sequence[Binding],
    workgroups: int,
    elements: int,
    **values: Any,
) -> None:
    """Record a stage that stands beside the scan's, of a template that binds these buffers in order.

    Args:
        device: of the encoder.
        encoder: with no pass open.
        template: of shaders/, rendered with `values`.
        bound: the buffers.
        workgroups: how many are needed; the grid may have a few more.
        elements: that the stage works on.
        values: what the template asks for.
    """
    pipeline, layout = device.stage(template, **values)
    name = PurePosixPath(template).stem
    batch = device.profiles.batch([name], "", elements) if device.profiles.active else None
    compute = encoder.begin_compute_pass(timestamp_writes=batch and batch.writes(name))
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, device.bind_groups.group(layout, list(enumerate(bound)), keep=False))
    compute.dispatch_workgroups(
        *grid_of(workgroups, device.capabilities.limits["max-compute-workgroups-per-dimension"])
    )
    compute.end()
    if batch is not None:
        batch.resolve(encoder)


@dataclass(frozen=True)
class Length:
    """A length that only the GPU knows: a 32-bit word in one of its buffers, at `offset` bytes."""

    buffer: wgpu.GPUBuffer
    offset: int = 0


GRID_WORD = 12  # of shaders/arrays/length.wgsl's buffer: the parameters, the length's place, then the grid
CALL = struct.Struct("<16I")


def record_length(
    device: Device, plan: ScanPlan, encoder: wgpu.GPUCommandEncoder, length: Length, params: tuple[int, ...]
) -> Binding:
    """Record the stage that makes parameters and grid of the length; gives the parameters, the grid after them."""
    usage = webgpu().BufferUsage
    alignment = device.capabilities.limits["min-storage-buffer-offset-alignment"]
    start = length.offset // alignment * alignment
    words = [*params, (length.offset - start) // 4, *[0] * 7]
    call = device.wgpu_device.create_buffer_with_data(
        data=CALL.pack(*words), usage=usage.STORAGE | usage.UNIFORM | usage.INDIRECT
    )
    most = device.capabilities.limits["max-compute-workgroups-per-dimension"]
    bound = [Binding(length.buffer, start, length.offset + 4 - start), Binding(call)]
    values = {
        "tile_size": plan.tile.tile_size,
        "max_workgroups": most,
        "workgroups_without_tile": plan.workgroups_without_tile,
    }
    record_beside(device, encoder, "arrays/length.wgsl", bound, 1, 1, **values)
    return Binding(call, 0, PARAMS.size)
