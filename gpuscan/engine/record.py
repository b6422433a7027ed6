"""Record a plan's dispatches into a command encoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.held_runs import Clear, Dispatch
from gpuscan.device.reports import Run
from gpuscan.device.tile_state import PARAMS, parameters
from gpuscan.device.transfer import padded
from gpuscan.planning.plan import grid_of

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.plan import ScanPlan, Stage

# The longest length of a row, in elements, that shaders get. Longer rows are described as this long, since indices
# within a piece have 32 bits.
LONGEST_ROW = 2**31

# Invocations in a workgroup of a stage that treats elements, or words, one by one: the most that every adapter has.
WORKGROUP_SIZE = 256


@dataclass(frozen=True)
class Origin:
    """The place in a longer array where a piece begins.

    Attributes:
        first_row: the row of the piece's first element.
        row_offset: elements of that row before it.
        row_length: elements from one row's head to the next's.
    """

    first_row: int
    row_offset: int
    row_length: int

    @classmethod
    def at(cls, start: int, row_length: int) -> Origin:
        """Return the origin of the piece from element `start` on. Rows may be longer than 32-bit indices reach."""
        first_row, offset = divmod(start, max(row_length, 1))
        if row_length < LONGEST_ROW:
            return cls(first_row, offset, row_length)
        if offset == 0:
            return cls(first_row, 0, LONGEST_ROW)
        # A piece is shorter than such a row, so at most one head is in it. The offset puts that head where it is.
        return cls(first_row, max(1, LONGEST_ROW - (row_length - offset)), LONGEST_ROW)


@dataclass(frozen=True)
class Buffers:
    """The parts of buffers that one run of a plan binds.

    Attributes:
        sources: the arrays to load, one for each field.
        destinations: the arrays to store, one for each field.
        seeds: the initial values or identities of the rows.
        carry_in: the carry from the piece before.
        carry_out: the buffer for the carry into the next piece.
        heads: one bit for each element that begins a segment.
        count: the buffer for the number of elements that a mask picks, or for the list of runs.
        captured: the uniform buffer of the constants that the user's functions captured.
        views: the uniform buffer of what finds the words of arrays that are views.
    """

    sources: Sequence[Binding]
    destinations: Sequence[Binding]
    seeds: Binding | None = None
    carry_in: Binding | None = None
    carry_out: Binding | None = None
    heads: Binding | None = None
    count: Binding | None = None
    captured: Binding | None = None
    views: Binding | None = None

    def bound(self, role: str, index: int) -> Binding:
        """Return the binding for a kernel's slot."""
        if role == "source":
            return self.sources[index]
        if role == "destination":
            return self.destinations[index]
        part: Binding | None = getattr(self, "carry_in" if role == "carries" else role)
        assert part is not None, role
        return part


@dataclass(frozen=True)
class Length:
    """A length that only the GPU knows: a 32-bit word in one of its buffers, at `offset` bytes."""

    buffer: wgpu.GPUBuffer
    offset: int = 0


def record(
    context: DeviceContext,
    plan: ScanPlan,
    encoder: wgpu.GPUCommandEncoder,
    buffers: Buffers,
    *,
    origin: Origin | None = None,
    length: Length | None = None,
    timestamps: dict[str, Any] | None = None,
    clear: bool = True,
) -> Run:
    """Record the plan's dispatches into `encoder`. Nothing is submitted.

    Args:
        context: the device of the plan.
        plan: the plan to record.
        encoder: an encoder without an open pass.
        buffers: the buffers that the kernels bind.
        origin: the place of the piece in the array; None for the start of the array.
        length: a length that only the GPU knows, at most the plan's.
        timestamps: WebGPU's `timestampWrites` of the compute pass; None for those of the open profiles.
        clear: False to keep the results that an earlier run stored in words that are shared.
    """
    place = (origin.row_length, origin.first_row, origin.row_offset) if origin else (plan.row_length, 0, 0)
    state, epoch, params, offset = context.tile_state.begin(plan, place)
    if length is not None:
        params, offset = _record_length(context, plan, encoder, length, parameters(plan, place, epoch)), 0
    state_binding = Binding(state, 0, padded(plan.state_bytes, ALIGNMENT))
    for i in plan.stages[-1].kernel.cleared if clear else ():
        destination = buffers.destinations[i]
        encoder.clear_buffer(destination.buffer, destination.offset, destination.size)

    def dispatch(compute: wgpu.GPUComputePassEncoder, stage: Stage) -> None:
        pipeline, layout = context.pipeline(stage.kernel)
        bound = [(0, params)]
        for binding, role, index in stage.kernel.slots:
            bound.append((binding, state_binding if role == "state" else buffers.bound(role, index)))
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, context.bind_groups.group(layout, bound, keep=length is None), [offset])
        if length is not None and stage.name in ("reduce", "scan"):
            compute.dispatch_workgroups_indirect(params.buffer, 4 * _GRID_WORD)
        else:
            compute.dispatch_workgroups(*stage.grid)

    if timestamps is None and context.profiles.active:
        batch = context.profiles.batch([stage.name for stage in plan.stages], plan.strategy, plan.length)
        # Timestamps belong to passes, so each stage gets a pass of its own.
        for stage in plan.stages:
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


class StageDispatch(NamedTuple):
    """A dispatch of a stage that is no part of a scan plan.

    Attributes:
        name: the stage's name, for profiles.
        dispatch: its pipeline, bind group and grid.
        elements: the number of elements that the stage works on, for profiles.
    """

    name: str
    dispatch: Dispatch
    elements: int


def stage_dispatch(
    context: DeviceContext,
    template: str,
    bound: Sequence[Binding],
    workgroups: int,
    elements: int,
    keep: bool = False,
    /,
    **values: Any,
) -> StageDispatch:
    """Return the dispatch of a stage that is no part of a scan plan, such as a copy.

    Args:
        context: the device.
        template: the path of a template under shaders/. Its bindings are `bound`, in order.
        bound: the buffers.
        workgroups: the number of workgroups; the grid may have a few more.
        elements: the number of elements that the stage works on, for profiles.
        keep: True to keep the bind group, because later calls may bind the same buffers of the pool.
        values: the variables of the template.
    """
    pipeline, layout = context.stage(template, **values)
    name = template.rpartition("/")[2].removesuffix(".wgsl")
    group = context.bind_groups.group(layout, list(enumerate(bound)), keep=keep)
    return StageDispatch(name, (pipeline, group, grid_of(workgroups, max_workgroups(context))), elements)


def record_stages(
    context: DeviceContext,
    encoder: wgpu.GPUCommandEncoder,
    stages: Sequence[StageDispatch],
    offset: int | None = None,
) -> None:
    """Record stages into an encoder without an open pass, each in a pass of its own.

    Args:
        context: the device of the encoder.
        encoder: the encoder.
        stages: the stages.
        offset: the dynamic offset of their bind groups; None without.
    """
    for name, (pipeline, group, grid), elements in stages:
        batch = context.profiles.batch([name], "", elements) if context.profiles.active else None
        compute = encoder.begin_compute_pass(timestamp_writes=batch and batch.writes(name))
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group, [] if offset is None else [offset])
        compute.dispatch_workgroups(*grid)
        compute.end()
        if batch is not None:
            batch.resolve(encoder)


def record_stage(
    context: DeviceContext,
    encoder: wgpu.GPUCommandEncoder,
    template: str,
    bound: Sequence[Binding],
    workgroups: int,
    elements: int,
    keep: bool = False,
    /,
    **values: Any,
) -> Dispatch:
    """Record a stage that is no part of a scan plan into an encoder without an open pass, and return what was recorded.

    The other arguments are those of `stage_dispatch`.
    """
    stage = stage_dispatch(context, template, bound, workgroups, elements, keep, **values)
    record_stages(context, encoder, [stage])
    return stage.dispatch


def submit_stages(
    context: DeviceContext,
    stages: Sequence[StageDispatch],
    nbytes: int,
    *,
    held: bool,
    offset: int | None = None,
    clears: Sequence[Clear] = (),
) -> None:
    """Submit stages that are no part of a scan plan.

    Args:
        context: the device.
        stages: the stages.
        nbytes: the bytes that they read, by which their time is estimated.
        held: True to submit them with what comes next, if they are short. All buffers have to be those of the pool.
        offset: as in `record_stages`.
        clears: what is set to zero before.
    """
    if held and not context.profiles.active:
        context.queue.run([stage.dispatch for stage in stages], offset, nbytes, clears)
        return
    encoder = context.queue.encoder()
    for cleared in clears:
        encoder.clear_buffer(*cleared)
    record_stages(context, encoder, stages, offset)
    context.queue.submit(encoder)


def submit_stage(
    context: DeviceContext,
    template: str,
    numbers: Sequence[int],
    bound: Sequence[Binding],
    invocations: int,
    elements: int,
    held: bool = False,
    /,
    **values: Any,
) -> Dispatch:
    """Submit a stage that is no part of a scan plan, in workgroups of `WORKGROUP_SIZE`.

    Args:
        context: the device.
        template: the path of a template under shaders/. Its bindings are the call's numbers and then `bound`, in order.
        numbers: the parameters of the call, as `uniform_of` takes them.
        bound: the buffers.
        invocations: the number of invocations; there may be more of them.
        elements: the number of elements that the stage works on, for profiles.
        held: as in `submit_stages`.
        values: the variables of the template, without `workgroup_size`.

    Returns:
        What was submitted.
    """
    bindings = [uniform_of(context, numbers), *bound]
    values["workgroup_size"] = WORKGROUP_SIZE
    workgroups = -(-invocations // WORKGROUP_SIZE)
    # Later calls often bind the same buffers of the pool.
    stage = stage_dispatch(context, template, bindings, workgroups, elements, True, **values)
    submit_stages(context, [stage], sum(part.size or 0 for part in bound), held=held)
    return stage.dispatch


def uniform_of(context: DeviceContext, numbers: Sequence[int]) -> Binding:
    """Return a uniform buffer of 32-bit numbers, filled up with zeros to whole vec4s. Numbers below zero wrap."""
    words = np.zeros(padded(len(numbers), 4), np.uint32)
    words[: len(numbers)] = np.array(numbers, np.int64).astype(np.uint32)
    return context.uniform(words.tobytes())


# The buffer that arrays/length.wgsl writes: the parameters of the run, the place of the length, and the grid.
_CALL = struct.Struct("<16I")
# The word of that buffer at which the grid begins.
_GRID_WORD = 12


def _record_length(
    context: DeviceContext, plan: ScanPlan, encoder: wgpu.GPUCommandEncoder, length: Length, params: tuple[int, ...]
) -> Binding:
    """Record the stage that computes parameters and grid from the length; return where the parameters are."""
    usage = context.usage
    start = length.offset // context.offset_alignment * context.offset_alignment
    words = [*params, (length.offset - start) // 4, *[0] * 7]
    call = context.wgpu_device.create_buffer_with_data(
        data=_CALL.pack(*words), usage=usage.STORAGE | usage.UNIFORM | usage.INDIRECT
    )
    bound = [Binding(length.buffer, start, length.offset + 4 - start), Binding(call)]
    values = {
        "tile_size": plan.tile.tile_size,
        "max_workgroups": max_workgroups(context),
        "workgroups_without_tile": plan.workgroups_without_tile,
    }
    record_stage(context, encoder, "arrays/length.wgsl", bound, 1, 1, **values)
    return Binding(call, 0, PARAMS.size)


def max_workgroups(context: DeviceContext) -> int:
    """Return how many workgroups one side of a grid can have."""
    return context.capabilities.limits["max-compute-workgroups-per-dimension"]
