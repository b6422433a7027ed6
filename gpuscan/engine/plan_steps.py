"""Describe the dispatches of a plan, or of a single stage, as steps to submit or to encode."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.program import encode
from gpuscan.device.reports import Run, ValidationFlag
from gpuscan.device.steps import Binding, Clear, Dispatch, Step
from gpuscan.device.tile_state import PARAMS, describe_run, parameters
from gpuscan.device.transfer import round_up
from gpuscan.operators.computation import QUIET
from gpuscan.operators.parameters import Expression, derive
from gpuscan.planning.plan import grid_of
from gpuscan.sizes import apply

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.plan import ScanPlan

# The longest length of a row, in elements, that shaders get. Longer rows are described as this long, since indices
# within a piece have 32 bits.
LONGEST_ROW = 2**31

# Invocations in a workgroup of a stage that treats elements, or words, one by one: the most that every adapter has.
WORKGROUP_SIZE = 256


def find_piece_position(start: int, row_length: int) -> tuple[int, int, int]:
    """Return the place in a longer array where a piece begins, made small enough for 32-bit indices.

    Args:
        start: the piece's first element.
        row_length: elements from one row's head to the next's.

    Returns:
        The row length, the row of the first element, and the elements of that row before it.
    """
    first_row, offset = divmod(start, max(row_length, 1))
    if row_length >= LONGEST_ROW:
        # A piece is shorter than such a row, so at most one head is in it. The offset puts that head where it is.
        offset = offset and max(1, LONGEST_ROW - (row_length - offset))
    return min(row_length, LONGEST_ROW), first_row, offset


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

    def find_binding(self, role: str, index: int) -> Binding:
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


def steps_of_plan(
    context: DeviceContext,
    plan: ScanPlan,
    buffers: Buffers,
    *,
    piece_position: tuple[int, int, int] | None = None,
    length: Length | None = None,
    clear: bool = True,
) -> tuple[Run, list[Step]]:
    """Begin a run of a plan, and return the run with the steps to submit.

    Args:
        buffers: the buffers that the kernels bind.
        piece_position: the position of the piece, as `find_piece_position` returns it; None at the start of the array.
        length: a length that only the GPU knows, at most the plan's.
        clear: False to keep the results that an earlier run stored in words that are shared.
    """
    piece_position = piece_position or plan.position
    context.tile_state.check(plan)
    state, epoch, params, offset, _ = context.begin(describe_run(plan, piece_position))
    steps: list[Step] = []
    for i in plan.stages[-1].kernel.cleared if clear else ():
        buffer, start, size = buffers.destinations[i]
        steps.append(Clear(buffer, start, buffer.size - start if size is None else size))
    grid = None
    if length is not None:
        first, params = _length_stage(context, plan, length, parameters(plan, piece_position, epoch))
        steps.append(first)
        grid, offset = Binding(params.buffer, 4 * _GRID_WORD), 0
    state_binding = Binding(state, 0, round_up(plan.state_bytes, ALIGNMENT))
    for stage in plan.stages:
        pipeline, layout = context.pipeline(stage.kernel)
        bound = [(0, params)]
        for binding, role, index in stage.kernel.slots:
            bound.append((binding, state_binding if role == "state" else buffers.find_binding(role, index)))
        bound += context.switch_entries
        own = grid if grid is not None and stage.name in ("reduce", "scan") else stage.grid
        keep = length is None
        steps.append(Dispatch(stage.name, pipeline, layout, bound, own, plan.length, offset, plan.strategy, keep))
    return Run(plan, state, epoch), steps


def encode_plan(
    context: DeviceContext,
    plan: ScanPlan,
    encoder: wgpu.GPUCommandEncoder,
    buffers: Buffers,
    *,
    length: Length | None = None,
    timestamps: dict[str, object] | None = None,
) -> Run:
    """Encode a run of a plan into an encoder without an open pass. Nothing is submitted.

    Args:
        buffers: the buffers that the kernels bind.
        length: a length that only the GPU knows, at most the plan's.
        timestamps: WebGPU's `timestampWrites` of the compute pass. With None, the open profiles set their own.
    """
    run, steps = steps_of_plan(context, plan, buffers, length=length)
    encode(context, encoder, steps, timestamps)
    return run


@contextmanager
def encode_submissions(context: DeviceContext, encoder: wgpu.GPUCommandEncoder) -> Iterator[None]:
    """Encode what is submitted in the ``with`` into a caller's encoder. The caller holds the lock."""
    context.redirection = lambda steps, nbytes, deferrable: encode(context, encoder, steps)
    try:
        yield
    finally:
        context.redirection = None


@contextmanager
def submit_together(context: DeviceContext) -> Iterator[None]:
    """Submit all steps of the ``with`` at once at its end, or none of them if it raises.

    Memory that is released in the ``with`` would be used again too early. The caller holds the lock.
    """
    parts: list[tuple[Sequence[Step], int, bool]] = []
    outer, context.redirection = context.redirection, lambda *part: parts.append(part)
    try:
        yield
    finally:
        context.redirection = outer
    if parts:
        steps = [step for part in parts for step in part[0]]
        context.submit(steps, sum(part[1] for part in parts), deferrable=all(part[2] for part in parts))


def stage_dispatch(
    context: DeviceContext,
    template: str,
    bound: Sequence[Binding],
    workgroups: int,
    elements: int,
    offset: int | None = None,
    /,
    **values: object,
) -> Dispatch:
    """Return the dispatch of a stage that is no part of a scan plan, such as a copy.

    Args:
        template: the path of a template under shaders/. Its bindings are `bound`, in order.
        workgroups: the number of workgroups; the grid may have a few more.
        elements: the number of elements that the stage works on, for profiles.
        offset: the dynamic offset of the parameters, which are binding 0; None without.
        values: the variables of the template.
    """
    pipeline, layout = context.stage(template, moving=offset is not None, **values)
    name = template.rpartition("/")[2].removesuffix(".wgsl")
    grid = grid_of(workgroups, max_workgroups(context))
    return Dispatch(name, pipeline, layout, [*enumerate(bound), *context.switch_entries], grid, elements, offset)


def new_validation_flag(
    context: DeviceContext, words: int, reader: Callable[..., Exception | None], arguments: tuple[object, ...]
) -> DeviceArray:
    """Return words of 0, in which kernels say what is wrong with an argument. They are read with the reports.

    They are not cleared before later runs, so that none hides what an earlier one has found.

    Args:
        words: the number of 32-bit words.
        reader, arguments: as in `ValidationFlag`.
    """
    validation_flag = upload_array(context, np.zeros(words, np.uint32))
    context.read_validation_flag_later(ValidationFlag(validation_flag, reader, arguments))
    return validation_flag


def submit_stage(
    context: DeviceContext,
    template: str,
    numbers: Sequence[int],
    bound: Sequence[Binding],
    invocations: int,
    elements: int,
    deferrable: bool,
    /,
    **values: object,
) -> None:
    """Submit a stage that is no part of a scan plan, in workgroups of `WORKGROUP_SIZE`. The caller holds the lock.

    Args:
        template: the path of a template under shaders/. Its bindings are the call's numbers and then `bound`, in order.
        numbers: the parameters of the call, as `uniform_of` takes them.
        invocations: the number of invocations; there may be more of them.
        elements: the number of elements that the stage works on, for profiles.
        deferrable: as in `DeviceContext.submit`.
        values: the variables of the template, without `workgroup_size`.
    """
    bindings = [uniform_of(context, numbers), *bound]
    values["workgroup_size"] = WORKGROUP_SIZE
    workgroups = -(-invocations // WORKGROUP_SIZE)
    stage = stage_dispatch(context, template, bindings, workgroups, elements, **values)
    context.submit([stage], sum(part.size or 0 for part in bound), deferrable=deferrable)


def are_owned(*arrays: DeviceArray | None) -> bool:
    """Return True if all buffers come from the pool, so that steps that use them may be deferred."""
    return all(array is None or array._owner is not None for array in arrays)


def uniform_of(context: DeviceContext, numbers: Sequence[object]) -> Binding:
    """Return a uniform buffer of 32-bit numbers, filled up with zeros to whole vec4s. Numbers below zero wrap.

    Numbers can be expressions of the call's parameters.
    """
    for each in numbers:
        if type(each) is Expression:
            return context.uniform(derive(_words, *[each.beside(number) for number in numbers]))
    return context.uniform(apply(_words, *numbers))


def _words(*numbers: int) -> bytes:
    """Return 32-bit numbers as the bytes of whole vec4s."""
    count = round_up(len(numbers), 4)
    return struct.pack(f"<{count}I", *[number % 2**32 for number in numbers], *[0] * (count - len(numbers)))


QUIET.add(_words)


# The buffer that arrays/length.wgsl writes: the parameters of the run, the index of the length, and the grid.
_CALL = struct.Struct("<16I")
# The word of that buffer at which the grid begins.
_GRID_WORD = 12


def _length_stage(
    context: DeviceContext, plan: ScanPlan, length: Length, params: tuple[int, ...]
) -> tuple[Dispatch, Binding]:
    """Return the stage that computes parameters and grid from the length, and the buffer that it writes them to."""
    usage = context.usage
    start = length.offset // context.offset_alignment * context.offset_alignment
    words = [*params, (length.offset - start) // 4, *[0] * 7]
    content = np.frombuffer(_CALL.pack(*words), np.uint8)
    call = context.buffer_of(content, usage.STORAGE | usage.UNIFORM | usage.INDIRECT)
    bound = [Binding(length.buffer, start, length.offset + 4 - start), Binding(call)]
    values = {
        "tile_size": plan.tile.tile_size,
        "max_workgroups": max_workgroups(context),
        "workgroups_without_tile": plan.workgroups_without_tile,
    }
    stage = stage_dispatch(context, "arrays/length.wgsl", bound, 1, 1, **values)
    return stage._replace(keep=False), Binding(call, 0, PARAMS.size)


def max_workgroups(context: DeviceContext) -> int:
    """Return how many workgroups one side of a grid can have."""
    return context.capabilities.limits["max-compute-workgroups-per-dimension"]
