"""gpuscan's own scans, device-resident: one contender for each strategy and tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.engine.host_arrays import check_dtypes, work_of
from gpuscan.engine.record import REPORT_BYTES, record
from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from gpuscan.planning.tuned_tiles import best_tile
from gpuscan.problem.problem import Problem, pose
from gpuscan.tools.bench.buffers import gather, place, release
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.measuring import Contender, Unsupported
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timing import GpuTimer

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device


def scan_contenders(
    device: Device, timer: GpuTimer, strategies: Sequence[str], tiles: Sequence[TileShape | None] = (None,)
) -> list[Contender]:
    """One contender for each strategy and tile; a tile of None is the planner's own choice."""

    def contender(strategy: str, tile: TileShape | None) -> Contender:
        name = strategy if tile is None else f"{strategy} {tile_text(tile)}"
        return Contender(OURS, name, lambda inputs: ScanSubject(device, timer, inputs, strategy, tile))

    return [contender(strategy, tile) for strategy in strategies for tile in tiles]


class ScanSubject:
    """A planned scan over buffers that hold the case's inputs."""

    def __init__(
        self, device: Device, timer: GpuTimer, inputs: Inputs, strategy: str, tile: TileShape | None = None
    ) -> None:
        self.clock = timer.clock
        self._device = device
        self.timer = timer
        self.plan = plan_of(device, inputs, strategy, tile)
        self.note = tile_text(self.plan.tile) if tile is None else ""
        if strategy == "auto":
            self.note = f"{self.plan.strategy} {self.note}".strip()
        limit = device.capabilities.limits["max-storage-buffer-binding-size"]
        largest = max(array.nbytes for array in inputs.arrays)
        if largest > limit:
            raise Unsupported(f"{largest} bytes do not fit a binding of {limit}")
        self._sources: list[wgpu.GPUBuffer] = []
        self._destinations: list[wgpu.GPUBuffer] = []
        try:
            for array in inputs.arrays:
                self._sources.append(place(device, array))
                self._destinations.append(place(device, None, array.nbytes))
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        sources = [Binding(buffer, 0, buffer.size) for buffer in self._sources]
        destinations = [Binding(buffer, 0, buffer.size) for buffer in self._destinations]
        last = None

        def recording(encoder: wgpu.GPUCommandEncoder, writes: dict[str, Any] | None) -> None:
            nonlocal last
            last = record(self._device, self.plan, encoder, sources, destinations, timestamps=writes)

        taken = self.timer.seconds(recording)
        if last is not None:
            words = self._device.wgpu_device.queue.read_buffer(last.state, 0, REPORT_BYTES)
            if last.timed_out(np.frombuffer(words, np.uint32).tolist()):
                raise ProgressTimeoutError(f"a tile of {self.plan.strategy} gave up waiting")
        return taken

    def retile(self, inputs: Inputs, tile: TileShape) -> None:
        """Go on with the same buffers, strategy and another tile."""
        self.plan = plan_of(self._device, inputs, self.plan.strategy, tile)

    def error(self, inputs: Inputs) -> float:
        case = inputs.case
        assert isinstance(case, ScanCase)
        return inputs.error(
            [
                gather(self._device, buffer, inputs.indices, case.dtype, case.element_shape)
                for buffer in self._destinations
            ]
        )

    def close(self) -> None:
        release([*self._sources, *self._destinations])


def work_for(device: Device, inputs: Inputs) -> ScanSpec:
    """The work of the case's scan on this device."""
    assert isinstance(inputs.case, ScanCase)
    problem = problem_of(inputs.case, inputs.arrays)
    check_dtypes(device, problem.element)
    return work_of(device, problem)


def problem_of(case: ScanCase, arrays: Sequence[np.ndarray[Any, Any]]) -> Problem:
    """The case as `gpuscan.scan` would be asked.

    Raises:
        TypeError, ValueError: the operator does not take the dtype.
    """
    if case.rows == 1:
        arrays = [array.reshape(case.length, *case.element_shape) for array in arrays]
    x = arrays[0] if len(arrays) == 1 else tuple(arrays)
    return pose(x, case.operator, axis=0 if case.rows == 1 else 1)


def plan_of(device: Device, inputs: Inputs, strategy: str, tile: TileShape | None) -> ScanPlan:
    """The case's plan by a strategy, with a tile of the caller's or the planner's."""
    chosen, reason = device.strategy(strategy)
    work = work_for(device, inputs)
    return plan_scan(
        work, device.capabilities, chosen, reason, tile=tile or best_tile(work, device.capabilities, device.tuned)
    )


def tile_text(tile: TileShape | ColumnTile) -> str:
    """Workgroup x steps x chunk, and the subgroup's lanes; rows here lie one after the other, never side by side."""
    assert isinstance(tile, TileShape)
    return f"{tile.workgroup_size}x{tile.steps}x{tile.chunk}/{tile.subgroup_size}"
