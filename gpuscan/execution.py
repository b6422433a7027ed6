"""Records a plan into a command encoder, and reads what the run reported."""

from __future__ import annotations

import struct
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscan.backends import webgpu
from gpuscan.errors import OperatorError
from gpuscan.kernels import STATE_HEADER_WORDS, STATUS_WORD, TURNS_WORD, WIDTH_WORD
from gpuscan.planning import grid_of

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device import Device
    from gpuscan.planning import ScanPlan, Stage

# length, tiles, epoch, spin_rounds, row_length, first_row, row_offset, inner: see shaders/parts/header.wgsl
PARAMS = struct.Struct("<8I")
PARAMS_BYTES = PARAMS.size
LAST_EPOCH = 0xFFFF  # epochs are 16 bits and begin at 1: see shaders/parts/tile_state.wgsl
BIND_GROUPS_KEPT = 512
LONGEST_ROW = 2**31  # that 32-bit indices within a piece need to know of


class Binding(NamedTuple):
    """A part of a buffer, as a shader sees it.

    Attributes:
        buffer, offset, size: the part, in bytes.
    """

    buffer: wgpu.GPUBuffer
    offset: int = 0
    size: int | None = None

    def resource(self) -> dict[str, object]:
        entry: dict[str, object] = {"buffer": self.buffer, "offset": self.offset}
        if self.size is not None:
            entry["size"] = self.size
        return entry


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

    @property
    def nbytes(self) -> int:
        """Bytes that the state holds on the device."""
        return sum(buffer.size for buffer in (self._posts, self._totals) if buffer is not None)

    def begin(self, plan: ScanPlan) -> tuple[wgpu.GPUBuffer, int]:
        """The buffer and the epoch for one run of the plan."""
        with self._lock:
            if self._epoch == LAST_EPOCH:
                self._posts = self._totals = None  # a new buffer is all zeros
                self._epoch = 0
            self._epoch += 1
            buffer = self._posts if plan.posts else self._totals
            if buffer is None or buffer.size < plan.state_bytes:
                usage = webgpu().BufferUsage.STORAGE | webgpu().BufferUsage.COPY_SRC
                size = max(plan.state_bytes, 2 * buffer.size if buffer else 1 << 16)
                buffer = self._device.create_buffer(size=-(-size // 16) * 16, usage=usage)
                if plan.posts:
                    self._posts = buffer
                else:
                    self._totals = buffer
            return buffer, self._epoch

    def release(self) -> None:
        """Let go of the buffers; recorded runs keep theirs until they are done."""
        with self._lock:
            self._posts = self._totals = None
            self._epoch = 0


class BindGroups:
    """Bind groups, kept for later calls while their buffers live.

    Making one costs more than a dispatch, and the more are made, the slower an H100 gets: 9.2 us for 2^16 elements at
    first, 12.6 us after some ten thousand.

    A group keeps its buffers' memory, so it goes when the first of them is let go of, whoever it belongs to.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], tuple[Any, ...]] = OrderedDict()
        self._keys: dict[int, set[tuple[Any, ...]]] = {}  # of the groups that a buffer is in, by the buffer's id
        self._dropped: deque[int] = deque()  # ids of buffers that have died, whose groups are still kept

    def group(
        self, layout: wgpu.GPUBindGroupLayout, bound: Sequence[tuple[int, Binding]], keep: bool
    ) -> wgpu.GPUBindGroup:
        """The group of these bindings; kept, if asked for."""
        if not keep:
            return self._make(layout, bound)
        key = (id(layout), *[(binding, id(part.buffer), part.offset, part.size) for binding, part in bound])
        with self._lock:
            self._collect()
            found = self._kept.get(key)
            if found is None:
                found = (self._make(layout, bound), layout)
                self._kept[key] = found
                for _, part in bound:
                    self._watch(part.buffer).add(key)
                if len(self._kept) > BIND_GROUPS_KEPT:
                    self._forget(next(iter(self._kept)))
            else:
                self._kept.move_to_end(key)
            return found[0]

    def _watch(self, buffer: wgpu.GPUBuffer) -> set[tuple[Any, ...]]:
        """The keys of the groups that the buffer is in; when it dies they go."""
        if id(buffer) not in self._keys:
            self._keys[id(buffer)] = set()
            weakref.finalize(buffer, _drop, weakref.ref(self), id(buffer)).atexit = False
        return self._keys[id(buffer)]

    def _forget(self, key: tuple[Any, ...]) -> None:
        self._kept.pop(key, None)
        for _, buffer, _, _ in key[1:]:
            self._keys[buffer].discard(key)

    def _collect(self) -> None:
        """Let go of the groups of buffers that have died."""
        while self._dropped:
            buffer = self._dropped.popleft()
            for key in list(self._keys[buffer]):
                self._forget(key)
            del self._keys[buffer]

    def drop(self, buffer: int) -> None:
        """The buffer of this id has died: now, or where this thread or another is at work here, at its next call."""
        self._dropped.append(buffer)
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _make(self, layout: wgpu.GPUBindGroupLayout, bound: Sequence[tuple[int, Binding]]) -> wgpu.GPUBindGroup:
        entries = [{"binding": binding, "resource": part.resource()} for binding, part in bound]
        return self._device.create_bind_group(layout=layout, entries=entries)

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        with self._lock:
            for key in list(self._kept):
                self._forget(key)


def _drop(groups: weakref.ref[BindGroups], buffer: int) -> None:
    alive = groups()
    if alive is not None:
        alive.drop(buffer)


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
        return report[WIDTH_WORD] == self.epoch

    def check_turns(self, report: Sequence[int]) -> None:
        """Raise OperatorError where a loop of the operator's WGSL made more turns than it may."""
        if self.plan.loops and report[TURNS_WORD] == self.epoch:
            raise turns_error(self.plan)


REPORT_BYTES = 4 * STATE_HEADER_WORDS


def turns_error(plan: ScanPlan) -> OperatorError:
    kernel = plan.stages[-1].kernel
    where = "all combinations of an invocation together" if kernel.software else "one combination"
    return OperatorError(
        f"a loop in the WGSL of the operator {kernel.operator_name!r} did not end: after {kernel.most_turns:,} turns, "
        f"in {where}, it was left. Make it end sooner, for every pair of elements that there is"
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
    state, epoch = device.tile_state.begin(plan)
    place = (origin.row_length, origin.first_row, origin.row_offset) if origin else (plan.row_length, 0, 0)
    params = PARAMS.pack(plan.length, plan.tiles, epoch, plan.spin_rounds, *place, plan.inner)
    uniform = None
    if length is not None:
        uniform = record_length(device, plan, encoder, length, params)
    elif not plan.stages[0].kernel.immediates:
        uniform = device.uniform(params)
    parts: dict[str, Sequence[Binding | None]] = {
        "source": sources,
        "destination": destinations,
        "state": (Binding(state),),
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
        bound: list[tuple[int, Binding]] = [(0, uniform)] if uniform else []
        for binding, role, index in kernel.slots:
            part = parts[role][index]
            assert part is not None, role
            bound.append((binding, part))
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.bind_groups.group(layout, bound, keep=uniform is None))
        if uniform is None:
            compute.set_immediates(0, params, 0, PARAMS_BYTES)
        if length is not None and uniform is not None and stage.name in ("reduce", "scan"):
            compute.dispatch_workgroups_indirect(uniform.buffer, 4 * GRID_WORD)
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
    name = template.removesuffix(".wgsl")
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


GRID_WORD = 12  # of shaders/length.wgsl's buffer: the parameters, the length's place, then the grid
CALL = struct.Struct("<16I")


def record_length(
    device: Device, plan: ScanPlan, encoder: wgpu.GPUCommandEncoder, length: Length, params: bytes
) -> Binding:
    """Record the stage that makes parameters and grid of the length; gives the buffer that holds them."""
    usage = webgpu().BufferUsage
    alignment = device.capabilities.limits["min-storage-buffer-offset-alignment"]
    start = length.offset // alignment * alignment
    words = [*PARAMS.unpack(params), (length.offset - start) // 4, *[0] * 7]
    call = device.wgpu_device.create_buffer_with_data(
        data=CALL.pack(*words), usage=usage.STORAGE | usage.UNIFORM | usage.INDIRECT
    )
    most = device.capabilities.limits["max-compute-workgroups-per-dimension"]
    bound = [Binding(length.buffer, start, length.offset + 4 - start), Binding(call)]
    values = {"tile_size": plan.tile.tile_size, "most_workgroups": most, "workgroups_beside": plan.workgroups_beside}
    record_beside(device, encoder, "length.wgsl", bound, 1, 1, **values)
    return Binding(call)
