"""gpuscan's own scans of arrays on the device: one contender for each strategy and tile.

This is the only module of the benchmarks that plans and records scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan import Array, Device
from gpuscan.device.bind_groups import Binding
from gpuscan.device.reports import Outcome, Run, read_report
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.preparation import check_elements, tile_on
from gpuscan.engine.record import Buffers, record
from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from gpuscan.planning.tiles import tile_shape
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.tools.bench.buffers import gather, place, release
from gpuscan.tools.bench.calls import call_seconds
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.contender import Contender, Unsupported
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timer import GpuTimer

if TYPE_CHECKING:
    import wgpu


def scan_contenders(
    device: Device, timer: GpuTimer, strategies: Sequence[str], tiles: Sequence[TileShape | None] = (None,)
) -> list[Contender]:
    """Return one contender for each strategy and tile; a tile of None is the planner's choice."""

    def contender(strategy: str, tile: TileShape | None) -> Contender:
        name = strategy if tile is None else f"{strategy} {tile_text(tile)}"
        return Contender(OURS, name, lambda inputs: subject_of(device, timer, inputs, strategy, tile))

    return [contender(strategy, tile) for strategy in strategies for tile in tiles]


def subject_of(
    device: Device, timer: GpuTimer, inputs: Inputs, strategy: str, tile: TileShape | None
) -> ScanSubject | ScanInParts:
    """Return the case's scan: of arrays that a shader binds as a whole, or of larger ones in parts.

    Raises:
        Unsupported: an array does not fit a buffer.
    """
    limits = device.capabilities.limits
    largest = max(array.nbytes for array in inputs.arrays)
    if largest > limits["max-buffer-size"]:
        raise Unsupported(f"{largest} bytes do not fit a buffer of {limits['max-buffer-size']}")
    if largest > limits["max-storage-buffer-binding-size"]:
        return ScanInParts(device, timer, inputs, strategy, tile)
    return ScanSubject(device, timer, inputs, strategy, tile)


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
        scan = RecordedScan(self._device, self.plan, self._sources, self._destinations)
        taken = self.timer.seconds(scan)
        scan.check()
        return taken

    def retile(self, inputs: Inputs, tile: TileShape) -> None:
        """Change the tile, and keep the buffers and the strategy."""
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


class ScanInParts:
    """A scan of arrays that exceed a binding, as calls from Python run it. The device's profile times its parts."""

    def __init__(
        self, device: Device, timer: GpuTimer, inputs: Inputs, strategy: str, tile: TileShape | None = None
    ) -> None:
        assert isinstance(inputs.case, ScanCase)
        self.clock = timer.clock
        self.note = f"{tile_text(tile or tile_on(device._context, spec_of(device, inputs)))} in parts"
        self._device, self._strategy, self._warm_seconds = device, strategy, timer.warm_seconds
        self._options: dict[str, Any] = {} if tile is None else {"tile": tile}
        problem = problem_of(inputs.case, inputs.arrays)
        self._problem: Problem | None = problem.with_leaves(tuple(device.asarray(leaf) for leaf in problem.leaves))
        self._results: list[Array] = [device.empty(leaf.shape, leaf.dtype) for leaf in problem.leaves]

    def _run(self) -> None:
        assert self._problem is not None
        scan_device(self._device._executor, self._problem, self._strategy, out=self._results, **self._options)

    def seconds(self) -> float:
        return call_seconds(self._device, self._run, self._warm_seconds)

    def error(self, inputs: Inputs) -> float:
        case = inputs.case
        assert isinstance(case, ScanCase)
        buffers = [result.buffer for result in self._results]
        return inputs.error(
            [gather(self._device, buffer, inputs.indices, case.dtype, case.element_shape) for buffer in buffers]
        )

    def close(self) -> None:
        self._results.clear()
        self._problem = None


class RecordedScan:
    """A planned scan over buffers, which a timer records again and again."""

    def __init__(
        self,
        device: Device,
        plan: ScanPlan,
        sources: Sequence[wgpu.GPUBuffer],
        destinations: Sequence[wgpu.GPUBuffer],
    ) -> None:
        self._context = device._context
        self._plan = plan
        self._buffers = Buffers(
            [Binding(buffer, 0, buffer.size) for buffer in sources],
            [Binding(buffer, 0, buffer.size) for buffer in destinations],
        )
        self._last: Run | None = None

    def __call__(self, encoder: wgpu.GPUCommandEncoder, writes: dict[str, Any] | None) -> None:
        """Record the scan, with timestamps where `writes` says."""
        self._last = record(self._context, self._plan, encoder, self._buffers, timestamps=writes)

    def check(self) -> None:
        """Raise ProgressTimeoutError if the last run gave up waiting."""
        assert self._last is not None
        if self._last.outcome(read_report(self._context, self._last.state)) is Outcome.TIMEOUT:
            raise ProgressTimeoutError(
                f"{self._plan.strategy} was measured, and a workgroup waited too long for another one. "
                "Name another strategy"
            )


def plan_of_problem(device: Device, problem: Problem, strategy: str, **options: Any) -> ScanPlan:
    """Return the plan of a problem for a strategy, safe or not.

    Args:
        device: where it runs.
        problem: what to scan.
        strategy: the strategy to use.
        **options: as in `plan_scan`, such as `tile`.
    """
    spec = replace(scan_spec(problem, device.capabilities), inner=problem.inner)  # columns are not transposed first
    return plan_scan(spec, device.capabilities, strategy, "benchmark", **options)


def spec_of(device: Device, inputs: Inputs) -> ScanSpec:
    """Return what decides the shaders of the case's scan on this device."""
    assert isinstance(inputs.case, ScanCase)
    problem = problem_of(inputs.case, inputs.arrays)
    check_problem(device, problem)
    return scan_spec(problem, device.capabilities)


def check_problem(device: Device, problem: Problem) -> None:
    """Raise UnsupportedDtypeError if the device lacks the element type."""
    check_elements(device._context, problem)


def problem_of(case: ScanCase, arrays: Sequence[np.ndarray[Any, Any]]) -> Problem:
    """Return the problem that `gpuscan.scan` would make of the case.

    Raises:
        TypeError, ValueError: the operator does not take the dtype.
    """
    if case.rows == 1:
        arrays = [array.reshape(case.length, *case.element_shape) for array in arrays]
    x = arrays[0] if len(arrays) == 1 else tuple(arrays)
    return make_problem(x, case.operator, axis=0 if case.rows == 1 else 1)


def plan_of(device: Device, inputs: Inputs, strategy: str, tile: TileShape | None) -> ScanPlan:
    """Return the case's plan for a strategy, with the given tile or the planner's."""
    chosen, reason = device._context.strategy(strategy)
    spec = spec_of(device, inputs)
    return plan_scan(spec, device.capabilities, chosen, reason, tile=tile or tile_on(device._context, spec))


def default_tile(device: Device, inputs: Inputs) -> TileShape:
    """Return the shape that the planner chooses on an untuned device."""
    return tile_shape(spec_of(device, inputs), device.capabilities)


def tile_text(tile: TileShape | ColumnTile) -> str:
    """Return workgroup x steps x chunk, the subgroup's lanes, and the bands of a subgroup if there are several."""
    assert isinstance(tile, TileShape)  # the cases scan along the last axis
    bands = f" {tile.bands} bands" if tile.bands > 1 else ""
    return f"{tile.workgroup_size}x{tile.steps}x{tile.chunk}/{tile.subgroup_size}{bands}"
