"""Record scans for a timer, with any tile, unsafe strategies and test builds.

A call from Python submits each scan by itself. Here the runs of a batch follow each other in one submission, and each
scan is one compute pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuscan import Array, Device
from gpuscan.device.reports import Outcome, Run, read_report
from gpuscan.engine.plan_steps import Buffers, encode_plan
from gpuscan.engine.preparation import check_elements, tile_on
from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.tools.bench.cases import SORT, Inputs, ScanCase, bundle
from gpuscan.tools.bench.contenders import Contender, Subject, device_scan, scan_contenders
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timing import GpuTimer
from gpuscan.tools.bench.tune import tile_text

if TYPE_CHECKING:
    import wgpu


class RecordedScan:
    """A planned scan of arrays on the device into others."""

    def __init__(self, device: Device, plan: ScanPlan, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        self._context = device._context
        self._plan = plan
        self._buffers = Buffers([array._binding() for array in arrays], [array._binding() for array in results])
        self._last: Run | None = None

    def __call__(self, encoder: wgpu.GPUCommandEncoder, writes: dict[str, Any] | None) -> None:
        """Record the scan, with timestamps where `writes` says."""
        self._last = encode_plan(self._context, self._plan, encoder, self._buffers, timestamps=writes)

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

    Raises:
        UnsupportedDtypeError: the device lacks the element type.
    """
    check_elements(device._context, problem)
    spec = replace(scan_spec(problem, device.capabilities), inner=problem.inner)  # columns are not transposed first
    return plan_scan(spec, device.capabilities, strategy, "benchmark", **options)


def list_recorded(
    timer: GpuTimer, case: ScanCase, strategies: Sequence[str], tiles: Sequence[TileShape | None] = (None,)
) -> list[Contender]:
    """Return one contender for each strategy and tile, or one for a sort. A tile of None is the planner's choice."""
    if case.op == SORT:
        return scan_contenders(timer, case, strategies)
    return [
        Contender(
            OURS,
            strategy if tile is None else f"{strategy} {tile_text(tile)}",
            partial(_subject, timer, case, strategy, tile),
        )
        for strategy in strategies
        for tile in tiles
    ]


def _subject(timer: GpuTimer, case: ScanCase, strategy: str, tile: TileShape | None, inputs: Inputs) -> Subject:
    """Return the case's scan. Arrays that exceed a binding are scanned by calls, in parts."""
    device = timer.device
    subject = device_scan(timer, case, strategy, inputs)
    if max(array.nbytes for array in inputs.arrays) > device.capabilities.limits["max-storage-buffer-binding-size"]:
        subject.note = "in parts"
        return subject
    rows = [array[0] if case.rows == 1 else array for array in inputs.arrays]
    problem = make_problem(bundle(rows), case.operator, axis=0 if case.rows == 1 else 1)
    chosen, _ = device._context.strategy(strategy)
    usual = tile_on(device._context, scan_spec(problem, device.capabilities))
    plan = plan_of_problem(device, problem, chosen, tile=tile or usual)
    scan = RecordedScan(device, plan, subject.arrays, subject.results)

    def seconds() -> float:
        taken = timer.time_recording(scan)
        scan.check()
        return taken

    subject.seconds = seconds
    notes = [chosen if strategy == "auto" else "", tile_text(usual) if tile is None else ""]
    subject.note = " ".join(filter(None, notes))
    return subject
