"""A whole run of ``gpuscan bench``: a request, and its measurements with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan import Device
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.tools.bench.cases import SORT, Case, RecurrenceCase, ScanCase, SortCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.copies import copy_contender
from gpuscan.tools.bench.peers import peer_contenders
from gpuscan.tools.bench.recurrences import recurrence_contender
from gpuscan.tools.bench.results import Measurement
from gpuscan.tools.bench.scans import problem_of, scan_contenders
from gpuscan.tools.bench.sorts import sort_contender
from gpuscan.tools.bench.suite import run_suite
from gpuscan.tools.bench.timer import GpuTimer

if TYPE_CHECKING:
    from rich.console import Console

# The numbers of elements of the arrays, on GPUs and on software adapters.
GPU_SIZES = tuple(1 << exponent for exponent in (16, 18, 20, 22, 25, 28))
CPU_SIZES = tuple(1 << exponent for exponent in (12, 16, 20, 22))


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        ops: the names of operators, or "sort".
        dtypes: element types. Each operator runs on those that it combines.
        sizes: numbers of elements in an array. Empty: sizes that suit the adapter.
        rows: the number of rows that the elements are cut into.
        strategies: gpuscan's strategies. Empty: every one that is safe on the adapter.
        tiles: shapes to try; None is the planner's choice.
        recurrence: (batch, sequence, channels) of a linear recurrence to measure instead of scans.
        backward: True to measure the gradients of the recurrence as well.
        peers: the names of other libraries.
        calls: True to measure the wall-clock time of calls from Python as well.
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
    calls: bool = False

    def cases(self, device: Device) -> list[Case]:
        """Return every case, ordered by operator, dtype and size."""
        if self.recurrence is not None:
            return [RecurrenceCase(*self.recurrence, dtype, self.backward) for dtype in self.dtypes]
        limits = device.capabilities.limits
        largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        usual = CPU_SIZES if device.capabilities.adapter_type == "CPU" else GPU_SIZES
        return [
            case_of(op, dtype, max(1, size // self.rows), self.rows)
            for op in self.ops
            for dtype in self.dtypes
            if takes(op, dtype)
            for size in self.sizes or [n for n in usual if case_of(op, dtype, n).moved_bytes // 2 <= largest]
        ]

    def contenders(self, device: Device, timer: GpuTimer, case: Case) -> list[Contender]:
        """Return the contenders of a case: the copy, gpuscan, and the peers."""
        if isinstance(case, RecurrenceCase):
            ours = [recurrence_contender(device)]
        elif isinstance(case, SortCase):
            ours = [sort_contender(device)]
        else:
            ours = scan_contenders(device, timer, self.strategies or safe_strategies(device), self.tiles)
        return [copy_contender(device, timer), *ours, *peer_contenders(self.peers, case)]


def case_of(op: str, dtype: np.dtype[Any], length: int, rows: int = 1) -> ScanCase | SortCase:
    """Return the case of an operator, or of a sort."""
    return SortCase(dtype, length, rows) if op == SORT else ScanCase(op, dtype, length, rows)


def takes(op: str, dtype: np.dtype[Any]) -> bool:
    """Return True if the operator combines elements of the dtype, or if a sort orders them."""
    if op == SORT:
        return dtype.kind != "c"
    case = ScanCase(op, dtype, 1)
    if case.fields > 1 and dtype.kind == "b":
        return False  # affine maps would add truth values
    try:
        problem_of(case, [np.zeros((1, 1, *case.element_shape), dtype)] * case.fields)
    except (TypeError, ValueError):
        return False
    return True


def safe_strategies(device: Device) -> list[str]:
    """Return the strategies that the probe found safe on this adapter."""
    return [name for name in STRATEGIES if unsafe_reason(name, device.capabilities) is None]


def run_request(device: Device, request: Request, console: Console) -> list[Measurement]:
    """Measure everything in the request, with a progress bar on the console."""
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
