"""A whole run of ``gpuscan bench``: what was asked for, measured with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.tools.bench.cases import Case, RecurrenceCase, ScanCase
from gpuscan.tools.bench.copying import copy_contender
from gpuscan.tools.bench.measuring import Contender
from gpuscan.tools.bench.peers import peer_contenders
from gpuscan.tools.bench.recurrences import recurrence_contender
from gpuscan.tools.bench.results import Measurement
from gpuscan.tools.bench.scans import problem_of, scan_contenders
from gpuscan.tools.bench.suite import run_suite
from gpuscan.tools.bench.timing import GpuTimer

if TYPE_CHECKING:
    from rich.console import Console

    from gpuscan.api.device import Device
    from gpuscan.planning.tile_shapes import TileShape

GPU_SIZES = tuple(1 << exponent for exponent in (16, 18, 20, 22, 25, 28))
CPU_SIZES = tuple(1 << exponent for exponent in (12, 16, 20, 22))


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        ops: names of operators.
        dtypes: element types; each operator runs on each that it takes.
        sizes: elements in all; left empty, what suits the adapter.
        rows: rows that the elements are cut into.
        strategies: gpuscan's; left empty, every one that is safe on the adapter.
        tiles: shapes to try; None is the planner's choice.
        recurrence: (batch, sequence, channels) of a linear recurrence to measure instead of scans.
        backward: the recurrence's gradients as well.
        peers: names of other libraries.
    """

    ops: Sequence[str]
    dtypes: Sequence[np.dtype[Any]]
    sizes: Sequence[int] = ()
    rows: int = 1
    strategies: Sequence[str] = ()
    tiles: Sequence[TileShape | None] = (None,)
    recurrence: tuple[int, int, int] | None = None
    backward: bool = False
    peers: Sequence[str] = ()

    def cases(self, device: Device) -> list[Case]:
        """Every case, by operator, dtype and size."""
        if self.recurrence is not None:
            return [RecurrenceCase(*self.recurrence, dtype, self.backward) for dtype in self.dtypes]
        limits = device.capabilities.limits
        largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        usual = CPU_SIZES if device.capabilities.adapter_type == "CPU" else GPU_SIZES
        return [
            ScanCase(op, dtype, max(1, size // self.rows), self.rows)
            for op in self.ops
            for dtype in self.dtypes
            if takes(op, dtype)
            for size in self.sizes or [n for n in usual if ScanCase(op, dtype, n).moved_bytes // 2 <= largest]
        ]

    def contenders(self, device: Device, timer: GpuTimer, case: Case) -> list[Contender]:
        """Who takes part in a case: the copy, gpuscan, and the peers."""
        if isinstance(case, RecurrenceCase):
            ours = [recurrence_contender(device)]
        else:
            ours = scan_contenders(device, timer, self.strategies or safe_strategies(device), self.tiles)
        return [copy_contender(device, timer), *ours, *peer_contenders(self.peers, case)]


def takes(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether the operator combines elements of the dtype."""
    case = ScanCase(op, dtype, 1)
    if case.fields > 1 and dtype.kind == "b":
        return False  # sums of truth values
    try:
        problem_of(case, [np.zeros((1, 1, *case.element_shape), dtype)] * case.fields)
    except (TypeError, ValueError):
        return False
    return True


def safe_strategies(device: Device) -> list[str]:
    """The strategies that the probe found safe on this adapter."""
    return [name for name in STRATEGIES if unsafe_reason(name, device.capabilities) is None]


def run_request(device: Device, request: Request, console: Console) -> list[Measurement]:
    """Measure all that was asked for, with a progress bar on the console."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    timer = GpuTimer(device)
    cases = request.cases(device)
    entrants = {case: request.contenders(device, timer, case) for case in cases}
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(map(len, entrants.values())))
        return run_suite(
            cases,
            entrants.__getitem__,
            lambda what: progress.update(task, description=what),
            lambda measurement: progress.advance(task),
        )
