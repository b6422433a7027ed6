"""Programs: the stages of a call, recorded once over named slots, and launched again over other buffers.

Code that computes on a device describes its work as steps (dispatches, clears and copies over buffers) and hands them
to `DeviceContext.submit`. The first call with a key is recorded meanwhile. Its program names each buffer by a slot: an
argument of the call, memory that the call allocated, a constant, or the tile state of a run. A later call with the key
launches the program over its own arguments, and runs none of the code that made the steps.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gpuscan.device.buffer_pool import Allocation, SizedAllocation
from gpuscan.device.deferred_runs import MAX_HELD, HeldRun
from gpuscan.device.error_translation import ContextLike
from gpuscan.device.reports import Run, SortRun, ValidationFlag
from gpuscan.device.steps import (
    Binding,
    Clear,
    Copy,
    Dispatch,
    Grid,
    SlotBinding,
    SlotClear,
    SlotCopy,
    SlotDispatch,
    Step,
)
from gpuscan.operators.computation import Computation
from gpuscan.operators.parameters import Expression
from gpuscan.sizes import Size, SizeTrace, formula_of

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.bind_groups import BindGroups
    from gpuscan.device.profiles import Profiles
    from gpuscan.device.reports import RunLog
    from gpuscan.device.tile_state import RunBuffers, RunDescriptor, TileState
    from gpuscan.operators.parameters import Parameters
    from gpuscan.planning.plan import ScanPlan

# ----- Steps


class Submitting(ContextLike, Protocol):
    """The parts of a `DeviceContext` that programs rely on."""

    usage: type[wgpu.BufferUsage]
    tile_state: TileState
    bind_groups: BindGroups
    profiles: Profiles
    run_log: RunLog

    def submit(self, steps: Sequence[Step], nbytes: int, *, deferrable: bool) -> None:
        """Submit steps. The caller holds the lock."""

    def submit_unrecorded(self, steps: Sequence[Step], nbytes: int) -> None:
        """Submit steps at once that are no part of what is being recorded."""

    def uniform(self, numbers: bytes) -> Binding:
        """Return a uniform buffer with these bytes."""

    def words(self, content: bytes) -> Allocation:
        """Return memory with these 32-bit words."""


def encode(
    context: Submitting,
    encoder: wgpu.GPUCommandEncoder,
    steps: Sequence[Step],
    timestamps: Mapping[str, object] | None = None,
) -> None:
    """Record steps into a command encoder without an open pass.

    Args:
        context: the device of the encoder.
        encoder: the encoder, of this module's queue or of a caller.
        timestamps: WebGPU's `timestampWrites` of the compute pass; None to use the open profiles.
    """
    dispatches = [step for step in steps if isinstance(step, Dispatch)]
    profiled = bool(dispatches) and timestamps is None and context.profiles.active
    batch = context.profiles.batch(dispatches) if profiled else None
    compute: wgpu.GPUComputePassEncoder | None = None
    number = 0
    for step in steps:
        if isinstance(step, Dispatch):
            if compute is None:
                compute = encoder.begin_compute_pass(timestamp_writes=batch.writes(number) if batch else timestamps)
            number += 1
            group = context.bind_groups.group(step.layout, step.bound, keep=step.keep)
            compute.set_pipeline(step.pipeline)
            compute.set_bind_group(0, group, [] if step.offset is None else [step.offset])
            if isinstance(step.grid, Binding):
                compute.dispatch_workgroups_indirect(step.grid.buffer, step.grid.offset)
            else:
                compute.dispatch_workgroups(*step.grid)
            if batch is None:
                continue
        if compute is not None:
            # Timestamps belong to passes, so each stage of a profile gets a pass of its own.
            compute.end()
            compute = None
        if isinstance(step, Clear):
            encoder.clear_buffer(*step)
        elif isinstance(step, Copy):
            encoder.copy_buffer_to_buffer(*step)
    if compute is not None:
        compute.end()
    if batch is not None:
        batch.resolve(encoder)


# ----- Slots


class RunStart(NamedTuple):
    """The begin of a run, which takes the tile state and parameters of its own.

    Attributes:
        run_descriptor: the run, as the tile state knows it.
        state, params: the slots that take the buffers of the tile state and of the parameters.
        report: the plan or the strategy of the report that is to be read; None if the run cannot fail.
        timeout_seconds: the shortest time after which the run can have timed out.
    """

    run_descriptor: RunDescriptor
    state: int
    params: int
    report: ScanPlan | str | None = None
    timeout_seconds: float = 0.0


Item = SlotDispatch | SlotClear | SlotCopy | RunStart


class ChangingConstant:
    """A buffer for the contents that launches of a program read in one place.

    Other contents are copied there after the held and the deferred runs, which read the earlier ones.

    Args:
        size: the bytes of the buffer.
        usage: what it is used for.
    """

    def __init__(self, size: int, usage: int) -> None:
        self._size, self._usage = size, usage
        self._buffer: wgpu.GPUBuffer | None = None
        # What the buffer contains once the deferred runs are done, and how many runs had failed when it was written.
        self._content: tuple[bytes, int] = b"", 0

    def with_content(self, context: Submitting, content: bytes) -> wgpu.GPUBuffer:
        """Return the buffer with these bytes, for a run that is appended before the next call. The lock is held."""
        buffer, queue = self._buffer, context.queue
        if buffer is None:
            usage = self._usage | context.usage.COPY_DST
            buffer = self._buffer = context.wgpu_device.create_buffer(size=self._size, usage=usage)
        wanted = content, queue.failures
        if wanted != self._content:
            if queue.held:
                queue.settle()
            queue.write_deferred(buffer, np.frombuffer(content, np.uint8))
            self._content = wanted
        return buffer


class Program:
    """The stages of one kind of call, over slots.

    The slots are, in this order: the buffers of the arguments, constants, outputs, scratch memory, and the tile states
    and parameters of the runs.

    Args:
        items: what is submitted, in order.
        constants: buffers that no launch writes to. A `ChangingConstant` stands for one with other contents at each
            launch.
        owners: what keeps the constants alive.
        outputs: usage, size and number of bytes asked for, of the memory of each output.
        scratch: usage and size of each buffer that is free again after the launch.
        runs: the number of slots of runs.
        validation_flags: what kernels find out about arguments.
        nbytes: the bytes that a launch reads, by which its time is estimated.
    """

    def __init__(
        self,
        items: Sequence[Item],
        constants: Sequence[wgpu.GPUBuffer | ChangingConstant],
        owners: Sequence[object],
        outputs: Sequence[tuple[int, int, int]],
        scratch: Sequence[tuple[int, int]],
        runs: int,
        validation_flags: Sequence[ValidationFlag],
        nbytes: int,
    ) -> None:
        self.items, self.constants, self.owners = tuple(items), tuple(constants), tuple(owners)
        self.sizes = [nbytes for _, _, nbytes in outputs]
        self.usages_and_sizes = [*((usage, size) for usage, size, _ in outputs), *scratch]
        self._changing = [
            (index, constant) for index, constant in enumerate(constants) if isinstance(constant, ChangingConstant)
        ]
        self._runs: tuple[None, ...] = (None,) * runs
        self.validation_flags, self.nbytes = tuple(validation_flags), nbytes
        # Its only memory is one output, so it may come after a run that is launched later and takes other memory.
        only_dispatches = {type(item) for item in items} == {SlotDispatch}
        self._can_be_held = only_dispatches and len(outputs) == 1 and not scratch and not runs and not validation_flags

    def launch(
        self,
        context: Submitting,
        arguments: Sequence[wgpu.GPUBuffer],
        contents: Sequence[bytes] = (),
        call: object = None,
    ) -> list[Allocation]:
        """Submit the stages over these arguments, and return the memory of the outputs. The caller holds the lock.

        Nothing is waited for.

        Args:
            contents: the contents of each `ChangingConstant`.
            call: what the arguments belong to, if the run is to be held. It writes no arguments then.
        """
        queue = context.queue
        is_held = call is not None and self._can_be_held
        if queue.held:
            # This first, so that what only held runs need can be taken below.
            queue.settle(MAX_HELD - 1 if is_held else 0)
        constants: Sequence[wgpu.GPUBuffer | ChangingConstant] = self.constants
        if contents:
            filled = [*self.constants]
            for (index, uniform), content in zip(self._changing, contents, strict=True):
                filled[index] = uniform.with_content(context, content)
            constants = filled
        pool, groups = context.pool, context.bind_groups
        taken = pool.take_all(self.usages_and_sizes)
        count = len(self.sizes)
        outputs = list(map(Allocation, repeat(pool), taken, self.sizes, self.usages_and_sizes))
        slots: list[wgpu.GPUBuffer] = [*arguments, *constants, *taken, *self._runs]
        started: list[RunBuffers] = []
        reports: list[Run | SortRun] = []
        safe_until = math.inf
        steps: list[Any] = []
        # Makes a named tuple without a call of Python's.
        new: Any = tuple.__new__
        profiled = context.profiles.active
        try:
            for item in self.items:
                if isinstance(item, SlotDispatch):
                    offset = item.offset
                    if item.run is not None:
                        assert offset is not None
                        offset += started[item.run].offset
                    if profiled:
                        steps.append(_fill_slots(item, slots, offset))
                        continue
                    group = groups.of_dispatch(item, list(map(slots.__getitem__, item.slots)))
                    grid = item.dispatch.grid
                    steps.append((item.dispatch.pipeline, group, _grid(grid, slots) if item.indirect else grid, offset))
                elif isinstance(item, RunStart):
                    run = context.tile_state.begin(item.run_descriptor)
                    started.append(run)
                    slots[item.state], slots[item.params] = run.state, run.params.buffer
                    if item.report is not None:
                        kind = SortRun if type(item.report) is str else Run
                        reports.append(new(kind, (item.report, run.state, run.epoch)))
                        safe_until = min(safe_until, time.perf_counter() + item.timeout_seconds)
                elif isinstance(item, SlotClear):
                    steps.append(new(Clear, (slots[item.slot], item.offset, item.size)))
                else:
                    source, destination = slots[item.source], slots[item.destination]
                    copy = source, item.source_offset, destination, item.destination_offset, item.size
                    steps.append(new(Copy, copy))
            if is_held:
                submit = context.submit_unrecorded if profiled else queue.run
                # Without a method that sets these, which would be another call of Python's.
                held_run = outputs[0].held_run = HeldRun()
                held_run.call, held_run.submit, held_run.program = call, partial(submit, steps, self.nbytes), self
                held_run.used = False
                with queue.lock:
                    queue.held.append(weakref.ref(held_run))
            elif profiled:
                context.submit(steps, self.nbytes, deferrable=False)
            else:
                queue.run(steps, self.nbytes)
        finally:
            if len(taken) > count:
                # Memory is used in the order of the queue, so later launches may write to it.
                pool.give_all(taken[count:], self.usages_and_sizes[count:], clean=True)
        if reports:
            context.run_log.add_pending(reports, safe_until)
        for validation_flag in self.validation_flags:
            context.run_log.add_validation_flag(validation_flag)
        return outputs


def _grid(grid: Grid | SlotBinding, slots: Sequence[object]) -> Grid:
    """Return a grid, with the buffer that holds it in the place of its slot."""
    return Binding(slots[grid.slot], grid.offset, grid.size) if isinstance(grid, SlotBinding) else grid


def _fill_slots(item: SlotDispatch, slots: Sequence[object], offset: int | None) -> Dispatch:
    """Return a dispatch over the buffers in the slots."""
    bound = [
        (number, Binding(slots[binding.slot], binding.offset, binding.size))
        for number, binding in zip(item.numbers, item.bindings, strict=True)
    ]
    return item.dispatch._replace(bound=bound, offset=offset, grid=_grid(item.dispatch.grid, slots))


class _Words(NamedTuple):
    """The 32-bit words of a validation flag, and what keeps them."""

    buffer: wgpu.GPUBuffer
    offset: int
    nbytes: int
    owner: Allocation


class ProgramTemplate:
    """The program of a call for other sizes of its arrays.

    Args:
        parts: the arguments of `Program`, which may contain sizes.
        form: what is made of the outputs, which may contain sizes.
        trace: what is computed of the sizes of the call; None if there are none.
        compute: computes the contents of the changing constants; None if there are none.
    """

    def __init__(
        self, parts: tuple[Any, ...], form: object, trace: SizeTrace | None, compute: Computation | None
    ) -> None:
        self._compute = compute
        self._parts = parts, form, () if compute is None else compute.constants
        self.owners: tuple[object, ...] = parts[2]
        self._formula = None if trace is None else formula_of(trace, self._parts)

    def program(self, context: Submitting, sizes: Sequence[int]) -> tuple[Program, Any, Computation | None] | None:
        """Return the program for these sizes, the form, and what computes the contents of its changing constants.

        Calls of sizes for which it returns None have another program.
        """
        filled = self._parts if self._formula is None else self._formula(*sizes)
        if filled is None:
            return None
        (items, constants, owners, outputs, scratch, runs, validation_flags, nbytes), form, numbers = filled
        constants, owners = list(constants), list(owners)
        for index, content in enumerate(constants):
            if type(content) is tuple:
                constants[index] = ChangingConstant(*content)
            elif type(content) is bytes and owners[index] is None:
                constants[index] = context.uniform(content).buffer
            elif type(content) is bytes:
                owners[index] = context.words(content)
                constants[index] = owners[index].buffer
        checks = []
        for index, validation_flag in validation_flags:
            if self._formula is not None:
                # Each length has a validation flag of its own, since the error names the length.
                owner = owners[index] = context.words(bytes(validation_flag.array.nbytes))
                constants[index] = owner.buffer
                validation_flag = validation_flag._replace(array=_Words(owner.buffer, 0, owner.nbytes, owner))
            checks.append(validation_flag)
        program = Program(items, constants, owners, outputs, scratch, runs, checks, nbytes)
        compute = self._compute
        return program, form, None if compute is None else compute.with_constants(numbers)


# ----- Recordings


class _Slot:
    """A buffer of the call that is being recorded.

    Attributes:
        role: ``"argument"``, ``"constant"``, ``"memory"``, ``"state"`` or ``"params"``.
        index: the argument's index, or the run's.
        buffer: the buffer of a constant; None for others, which are not kept alive.
        owner: what keeps the constant alive.
        content: the expression, or the size, that gives a constant's bytes; None if they never change.
        usage, size, nbytes: the usage, the size and the requested bytes of memory.
        first, last: the indices of the first and the last item that uses it.
        number: the number of the slot in the program; -1 until it is known.
    """

    def __init__(
        self,
        role: str,
        index: int = 0,
        buffer: wgpu.GPUBuffer | None = None,
        owner: object = None,
        content: Expression | Size | bytes | None = None,
    ) -> None:
        self.role, self.index, self.buffer, self.owner, self.content = role, index, buffer, owner, content
        self.usage = self.size = self.nbytes = 0
        self.first = self.last = -1
        self.number = -1


class _RecordedStep(NamedTuple):
    """A step, and the slots of its buffers."""

    step: Step
    slots: list[_Slot]


class _RecordedRun(NamedTuple):
    """The begin of a run, by its number, and the slots of its buffers."""

    number: int
    state: _Slot
    params: _Slot


class Recording:
    """What one call submits, recorded while the call computes its results.

    Whatever a program cannot do again ends the recording: a wait, an upload, commands of an encoder.

    Args:
        arguments: the buffers of the call's arguments.
        parameters: the floats that may be others in later calls; None if there are none.
        sizes: what is computed of the sizes that may be others in later calls; None if there are none.
    """

    def __init__(
        self,
        arguments: Sequence[wgpu.GPUBuffer],
        parameters: Parameters | None = None,
        sizes: SizeTrace | None = None,
    ) -> None:
        self.parameters, self.sizes = parameters, sizes
        self.thread = threading.get_ident()
        self.active = True
        # The slot of a buffer, by the buffer's id, at this point of the call. Buffers of the pool stay alive.
        self._slots: dict[int, _Slot] = {}
        for index, buffer in enumerate(arguments):
            self._slots.setdefault(id(buffer), _Slot("argument", index))
        self._items: list[_RecordedStep | _RecordedRun] = []
        self._runs: list[tuple[RunBuffers, RunStart]] = []
        self._validation_flags: list[ValidationFlag] = []
        self._nbytes = 0
        self._arguments = len(arguments)

    def end(self) -> None:
        """Stop: the call does what a program cannot do again."""
        self.active = False

    def note_memory(self, allocation: Allocation | SizedAllocation) -> None:
        """Note memory that the call takes. It may be memory that the call used before and gave back."""
        slot = _Slot("memory")
        slot.usage, slot.size = allocation.usage_and_size
        slot.nbytes = allocation.nbytes
        self._slots[id(allocation.buffer)] = slot

    def constant(
        self, buffer: wgpu.GPUBuffer, owner: object = None, content: Expression | Size | bytes | None = None
    ) -> None:
        """Note a buffer with the same contents in all calls with the key. The program keeps it alive.

        Args:
            owner: what keeps its memory.
            content: what gives other contents for other floats or sizes of the call; None if there are none.
        """
        if isinstance(content, Expression) and content.parameters is not self.parameters:
            content = None  # they are of another call, and a part of this one's key
        size = buffer.size
        if isinstance(owner, SizedAllocation):
            owner, (_, size) = owner.base, owner.usage_and_size
        slot = self._slots[id(buffer)] = _Slot("constant", 0, buffer, owner, content)
        slot.size = size

    def begin(self, run_descriptor: RunDescriptor, run: RunBuffers) -> None:
        """Note that a run begins."""
        number = len(self._runs)
        state, params = _Slot("state", number), _Slot("params", number)
        self._slots[id(run.state)], self._slots[id(run.params.buffer)] = state, params
        start = RunStart(run_descriptor, 0, 0)
        self._runs.append((run, start))
        self._items.append(_RecordedRun(number, state, params))

    def report(self, run: Run | SortRun, timeout_seconds: float) -> None:
        """Note that the report of a run is to be read later."""
        for number, (started, start) in enumerate(self._runs):
            if started.epoch == run.epoch and started.state is run.state:
                plan = run.plan.without_sizes() if isinstance(run, Run) else run.strategy
                self._runs[number] = started, RunStart(start.run_descriptor, 0, 0, plan, timeout_seconds)
                return
        self.end()

    def add_validation_flag(self, validation_flag: ValidationFlag) -> None:
        """Note that a kernel writes a validation flag, in memory that the program keeps.

        A flag that the call computes afresh, in memory of its own, is none that later calls could share: each would
        overwrite what the one before has found.
        """
        slot = self._slots.get(id(validation_flag.array.buffer))
        if slot is None or slot.role != "constant":
            self.end()
            return
        self._validation_flags.append(validation_flag)

    def add(self, steps: Sequence[Step], nbytes: int) -> None:
        """Note steps that are submitted."""
        self._nbytes += nbytes
        for step in steps:
            if isinstance(step, Dispatch):
                buffers = [part.buffer for _, part in step.bound]
                if isinstance(step.grid, Binding):
                    buffers.append(step.grid.buffer)
            elif isinstance(step, Clear):
                buffers = [step.buffer]
            else:
                buffers = [step.source, step.destination]
            slots = [self._slots[id(buffer)] for buffer in buffers if id(buffer) in self._slots]
            if len(slots) < len(buffers):
                # A buffer is of an earlier call, and nothing says that its contents stay.
                self.end()
                return
            for slot in slots:
                slot.last = len(self._items)
                slot.first = slot.last if slot.first < 0 else slot.first
            self._items.append(_RecordedStep(step, slots))

    def slot_of(self, buffer: wgpu.GPUBuffer) -> _Slot | None:
        """Return the slot of a buffer of the call's results; None if it is none that a program has."""
        slot = self._slots.get(id(buffer))
        return slot if slot is not None and slot.role in ("argument", "memory") else None

    def program(self, outputs: Sequence[wgpu.GPUBuffer], form: object = None) -> ProgramTemplate | None:
        """Return the program of the call, for any sizes; None if there is none.

        Args:
            outputs: the buffers of the results that the call allocated.
            form: what is made of the outputs, which may contain sizes.
        """
        if not self.active:
            return None
        results = [self._slots[id(buffer)] for buffer in outputs]
        used = [slot for item in self._items if isinstance(item, _RecordedStep) for slot in item.slots]
        constants = list(dict.fromkeys(slot for slot in used if slot.role == "constant"))
        scratch = [slot for slot in dict.fromkeys(used) if slot.role == "memory" and slot not in results]
        usages_and_sizes = _share(scratch)
        first = self._arguments
        for index, slot in enumerate((*constants, *results)):
            slot.number = first + index
        first += len(constants) + len(results)
        for slot in scratch:
            slot.number = first + slot.index
        first += len(usages_and_sizes)
        for item in self._items:
            if isinstance(item, _RecordedRun):
                item.state.number = first + 2 * item.number
                item.params.number = item.state.number + 1
        for slot in used:
            if slot.role == "argument":
                slot.number = slot.index
        contents = [slot.content for slot in constants if isinstance(slot.content, Expression)]
        parts = (
            tuple([self._item(item) for item in self._items]),
            tuple([_constant(slot) for slot in constants]),
            tuple([slot.owner for slot in constants]),
            tuple([(slot.usage, slot.size, slot.nbytes) for slot in results]),
            tuple(usages_and_sizes),
            2 * len(self._runs),
            tuple([(constants.index(self._slots[id(flag.array.buffer)]), flag) for flag in self._validation_flags]),
            self._nbytes,
        )
        return ProgramTemplate(parts, form, self.sizes, Computation(contents) if contents else None)

    def _item(self, item: _RecordedStep | _RecordedRun) -> Item:
        if isinstance(item, _RecordedRun):
            start = self._runs[item.number][1]
            return RunStart(
                start.run_descriptor, item.state.number, item.params.number, start.report, start.timeout_seconds
            )
        step, slots = item
        if isinstance(step, Dispatch):
            numbers = [slot.number for slot in slots]
            bindings = [SlotBinding(slot, b.offset, b.size) for slot, (_, b) in zip(numbers, step.bound, strict=False)]
            run = next((slot.index for slot in slots if slot.role == "params"), None)
            offset = step.offset
            if offset is None:
                run = None
            elif run is not None:
                offset -= self._runs[run][0].offset
            grid: Any = step.grid
            indirect = isinstance(grid, Binding)
            if indirect:
                grid = SlotBinding(numbers[-1], grid.offset, grid.size)
            blank = step._replace(bound=(), offset=None, grid=grid)
            bound = tuple([number for number, _ in step.bound])
            key = (id(step.layout), *[(number, binding.offset, binding.size) for number, binding in step.bound])
            own_slots = tuple(numbers[: len(bindings)])
            return SlotDispatch(blank, bound, tuple(bindings), own_slots, indirect, key, run, offset)
        if isinstance(step, Clear):
            return SlotClear(slots[0].number, step.offset, step.size)
        source, destination = (slot.number for slot in slots)
        return SlotCopy(source, step.source_offset, destination, step.destination_offset, step.size)


def _constant(slot: _Slot) -> wgpu.GPUBuffer | ChangingConstant | tuple[int, int] | Size | bytes:
    """Return what stands for a constant in a program: its buffer, or what gives it other contents.

    A `ChangingConstant` of a size that is unknown is its arguments.
    """
    if isinstance(slot.content, Expression):
        assert slot.buffer is not None
        size: Any = slot.size
        return (size, slot.buffer.usage) if type(size) is Size else ChangingConstant(size, slot.buffer.usage)
    return slot.buffer if slot.content is None else slot.content


def _share(scratch: Sequence[_Slot]) -> list[tuple[int, int]]:
    """Give each memory the index of a buffer, and return the usages and sizes of the buffers.

    Two of one usage and size share a buffer if all items that use the first come before the items of the second.
    Unknown sizes are the same if they are computed in the same way.
    """
    usages_and_sizes: list[tuple[int, int]] = []
    known: list[tuple[object, ...]] = []
    free_from: list[int] = []
    for slot in sorted(scratch, key=lambda slot: slot.first):
        size: Any = slot.size
        own = (slot.usage, Size, size.index) if type(size) is Size else (slot.usage, size)
        free = (i for i, other in enumerate(known) if other == own and free_from[i] < slot.first)
        slot.index = next(free, len(usages_and_sizes))
        if slot.index == len(usages_and_sizes):
            usages_and_sizes.append((slot.usage, slot.size))
            known.append(own)
            free_from.append(0)
        free_from[slot.index] = slot.last
    return usages_and_sizes
