"""Arrays of any length, piece by piece: upload, scan and download of successive pieces overlap.

A piece is whole blocks of tiles of the shape that the whole array has, and what comes before it travels in a small
buffer on the GPU; or it is whole rows, where tiles end where rows do. So the result has the bits of one piece.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.backends import webgpu
from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.submission import submit
from gpuscan.device.transfer import Bytes, fill_mapped, map_for_reading, padded, read_mapped, upload
from gpuscan.engine.attempts import note_size, plan_for, retry
from gpuscan.engine.record import REPORT_BYTES, Origin, Run, record
from gpuscan.errors import GpuscanError, smaller
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import ScanPlan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tuned_tiles import best_tile

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device

LANES = 3  # pieces under way: one filled, one on the GPU, one read
PIECE_BYTES = 32 << 20  # of the elements of one piece, at most, beyond a bus
CPU_PIECE_BYTES = 8 << 20  # on adapters that share the CPU's memory and caches
LEAST_PIECE_BYTES = 2 << 20
PIECES_WANTED = 8  # so that the first upload and the last download, which nothing overlaps, are short


@dataclass(frozen=True)
class Piece:
    """A stretch of the elements, in the order of the scan.

    Attributes:
        start, length: the stretch.
        last: no piece comes after it.
        fill: writes a source field's bytes, given its number.
        drain: takes a destination field's bytes.
        heads: where segments begin, a bit for each element, in 32-bit words; None without segments.
    """

    start: int
    length: int
    last: bool
    fill: Callable[[int, Bytes], None]
    drain: Callable[[int, Bytes], None]
    heads: np.ndarray[Any, Any] | None = None


class Lane:
    """The buffers of one piece under way."""

    def __init__(self, device: Device, work: ScanSpec, length: int) -> None:
        usage, self._pool = webgpu().BufferUsage, device.pool
        self.mapped = device.capabilities.mappable_storage
        sizes = [padded(f.storage_bytes * length, ALIGNMENT) for f in work.source.fields]
        results = [padded(f.storage_bytes * length, ALIGNMENT) for f in work.destination.fields]
        up = usage.STORAGE | usage.MAP_WRITE if self.mapped else usage.STORAGE | usage.COPY_DST
        down = usage.STORAGE | usage.COPY_DST | (usage.MAP_READ if self.mapped else usage.COPY_SRC)
        self._taken: list[wgpu.GPUBuffer] = []
        try:
            self.sources = [self._take(size, up) for size in sizes]
            self.destinations = [self._take(size, down) for size in results]
            self.report = self._take(REPORT_BYTES, usage.MAP_READ | usage.COPY_DST)
            self.heads = (
                self._take(padded(-(-length // 8)), usage.STORAGE | usage.COPY_DST) if work.has_segment_bits else None
            )
            if self.mapped:
                self.up, self.down = self.sources, self.destinations
            else:
                self.up = [self._take(size, usage.MAP_WRITE | usage.COPY_SRC) for size in sizes]
                self.down = [self._take(size, usage.MAP_READ | usage.COPY_DST) for size in results]
        except BaseException:
            self.close(clean=False)
            raise
        self.writable: list[Any] = []  # promises of `up`, mapped again as soon as the GPU is done with it
        self.readable: list[Any] = []
        self.piece: Piece | None = None
        self.run: Run | None = None

    def _take(self, size: int, usage: int) -> wgpu.GPUBuffer:
        self._taken.append(self._pool.take(size, usage))
        return self._taken[-1]

    def map_for_filling(self) -> None:
        self.writable = [buffer.map_async(webgpu().MapMode.WRITE) for buffer in self.up]

    def map_results(self) -> None:
        self.readable = [map_for_reading(buffer) for buffer in (*self.down, self.report)]

    def close(self, *, clean: bool) -> None:
        """Give the buffers back, unmapped; or up, where an error has left them in any state."""
        if clean:
            for promise, buffer in zip(self.writable, self.up, strict=False):
                promise.sync_wait()
                buffer.unmap()
        for buffer in self._taken:
            (self._pool.give if clean else self._pool.discard)(buffer)
        self._taken = []


class Stream:
    """A scan whose pieces come one after the other.

    Args:
        device: where.
        work: the whole array; of a stream whose end is not known, any length that has its tile's shape.
        strategy: as in `gpuscan.scan`.
        seeds: 32-bit words of each row's seed.
        piece_bytes: of the elements of one piece, at most; one block of tiles at least.
        tile, one_workgroup_folds, test_build: as in `plan_scan`.
    """

    def __init__(
        self,
        device: Device,
        work: ScanSpec,
        strategy: str,
        *,
        seeds: np.ndarray[Any, Any] | None = None,
        piece_bytes: int | None = None,
        tile: TileShape | None = None,
        one_workgroup_folds: bool | None = None,
        test_build: InjectedFaults | None = None,
    ) -> None:
        self._device, self._work, self._seeds = device, work, seeds
        self._strategy = strategy
        self._options: dict[str, Any] = {
            "tile": tile,
            "one_workgroup_folds": one_workgroup_folds,
            "test_build": test_build,
        }
        self._plans: dict[tuple[bool, bool, int], ScanPlan] = {}
        capabilities = device.capabilities
        shapes = (
            [tile]
            if tile
            else [best_tile(work, device.capabilities, device.tuned, subgroups) for subgroups in (True, False)]
        )
        self.unit = math.lcm(*(work.row_length if s.per_row else s.tile_size * s.block for s in shapes))
        widest = max(f.storage_bytes for f in (*work.source.fields, *work.destination.fields))
        whole = max(work.source.storage_bytes, work.destination.storage_bytes)
        if piece_bytes is None:
            most = CPU_PIECE_BYTES if capabilities.adapter_type == "CPU" else PIECE_BYTES
            piece_bytes = min(most, max(LEAST_PIECE_BYTES, work.length * whole // PIECES_WANTED))
        self.piece_length = max(1, piece_bytes // (self.unit * whole)) * self.unit
        limit = capabilities.limits["max-storage-buffer-binding-size"]
        if self.unit * widest > limit:
            raise GpuscanError(
                f"a scan in pieces was asked for, of which the smallest, {self.unit} elements of {whole} bytes, does "
                f"not fit the {limit} bytes that {capabilities.summary} binds. {smaller(work.rows)}"
            )
        self.piece_length = min(self.piece_length, limit // (self.unit * widest) * self.unit)

    def run(self, pieces: Iterable[Piece]) -> Generator[Piece, None, None]:
        """Scan the pieces; gives each, in order, once its results are drained."""
        device = self._device
        usage = webgpu().BufferUsage
        carry_usage = usage.STORAGE | usage.COPY_SRC
        self._carries: list[wgpu.GPUBuffer] = []
        self._seed_binding: Binding | None = None
        lanes: list[Lane] = []
        under_way: deque[tuple[int, Lane]] = deque()
        clean = False
        try:
            while len(self._carries) < LANES + 2:
                self._carries.append(device.pool.take(4 * self._work.item_words, carry_usage))
            if self._seeds is not None:
                buffer = device.pool.take(self._seeds.nbytes, usage.STORAGE | usage.COPY_DST | usage.COPY_SRC)
                self._seed_binding = Binding(buffer, 0, padded(self._seeds.nbytes, ALIGNMENT))
                upload(device.wgpu_device, self._seeds, buffer, pool=device.pool)
            for number, piece in enumerate(pieces):
                if len(under_way) == LANES:
                    yield self._land(under_way)
                if len(lanes) < LANES:
                    lanes.append(Lane(device, self._work, min(self.piece_length, padded(piece.length, 4))))
                lane = next(lane for lane in lanes if lane.piece is None)
                self._launch(number, lane, piece)
                under_way.append((number, lane))
            while under_way:
                yield self._land(under_way)
            clean = True
        finally:
            for lane in lanes:
                lane.close(clean=clean)
            for carry in self._carries:
                device.pool.give(carry)
            if self._seed_binding is not None:
                device.pool.give(self._seed_binding.buffer)

    def _launch(self, number: int, lane: Lane, piece: Piece) -> None:
        """Fill the lane's buffers and set the GPU to work on them."""
        device, work = self._device, self._work
        if not lane.writable:
            lane.map_for_filling()
        for field, (promise, buffer) in enumerate(zip(lane.writable, lane.up, strict=True)):
            promise.sync_wait()
            size = piece.length * work.source.fields[field].storage_bytes
            fill_mapped(buffer, size, lambda memory, field=field: piece.fill(field, memory))  # type: ignore[misc]
            buffer.unmap()
        plan = self._plan(carried=piece.start > 0, carry_out=not piece.last, length=piece.length)
        sizes = [padded(piece.length * f.storage_bytes, ALIGNMENT) for f in work.source.fields]
        results = [padded(piece.length * f.storage_bytes, ALIGNMENT) for f in work.destination.fields]
        with device.lock:
            heads = {}
            if piece.heads is not None and lane.heads is not None:
                upload(device.wgpu_device, piece.heads, lane.heads)
                heads["heads"] = Binding(lane.heads)
            encoder = device.wgpu_device.create_command_encoder()
            if not lane.mapped:
                for staging, source, size in zip(lane.up, lane.sources, sizes, strict=True):
                    encoder.copy_buffer_to_buffer(staging, 0, source, 0, size)
            lane.run = record(
                device,
                plan,
                encoder,
                [Binding(b, 0, n) for b, n in zip(lane.sources, sizes, strict=True)],
                [Binding(b, 0, n) for b, n in zip(lane.destinations, results, strict=True)],
                self._seed_binding,
                Binding(self._carries[number % len(self._carries)]),
                Binding(self._carries[(number + 1) % len(self._carries)]),
                Origin.at(piece.start, work.row_length),
                beside=heads,
            )
            if not lane.mapped:
                for staging, result, size in zip(lane.down, lane.destinations, results, strict=True):
                    encoder.copy_buffer_to_buffer(result, 0, staging, 0, size)
            encoder.copy_buffer_to_buffer(lane.run.state, 0, lane.report, 0, REPORT_BYTES)
            submit(device.wgpu_device, encoder.finish())
        lane.piece = piece
        lane.map_results()
        lane.map_for_filling()

    def _land(self, under_way: deque[tuple[int, Lane]]) -> Piece:
        """Wait for the oldest piece and drain it; where it failed, do it and those after it again another way."""
        while True:
            _, lane = under_way[0]
            outcome = self._wait(lane)
            if outcome == "done":
                break
            for _, other in list(under_way)[1:]:
                self._wait(other)
                self._unmap(other)
            self._unmap(lane)
            self._plans.clear()
            assert lane.run is not None
            retry(self._device, outcome, lane.run.plan.strategy, self._strategy)
            if outcome == "width":
                self._options["subgroups"] = False
            for number, again in under_way:
                assert again.piece is not None
                self._launch(number, again, again.piece)
        under_way.popleft()
        piece = lane.piece
        assert piece is not None
        for field, buffer in enumerate(lane.down):
            piece.drain(field, read_mapped(buffer, piece.length * self._work.destination.fields[field].storage_bytes))
        self._unmap(lane)
        lane.piece = lane.run = None
        return piece

    def _wait(self, lane: Lane) -> str:
        for promise in lane.readable:
            promise.sync_wait()
        assert lane.run is not None
        report = read_mapped(lane.report, REPORT_BYTES).view(np.uint32).tolist()
        lane.run.check_turns(report)
        if lane.run.width_differed(report):
            note_size(self._device, lane.run.plan, differed=True)
            return "width"
        return "timeout" if lane.run.timed_out(report) else "done"

    @staticmethod
    def _unmap(lane: Lane) -> None:
        for buffer in (*lane.down, lane.report):
            buffer.unmap()

    def _plan(self, *, carried: bool, carry_out: bool, length: int) -> ScanPlan:
        key = (carried, carry_out, length)
        if key not in self._plans:
            work = replace(self._work, carried=carried, carry_out=carry_out)
            self._plans[key] = plan_for(self._device, work, self._strategy, piece=length, **self._options)
        return self._plans[key]
