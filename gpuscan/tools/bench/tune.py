"""What ``gpuscan tune`` does: search the fastest tile shapes on an adapter, and keep them for later scans."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
import numpy as np

from gpuscan import Array, Device
from gpuscan.device import tile_cache
from gpuscan.engine.device_arrays import scan_device
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tiles import tile_shape
from gpuscan.planning.tuned_tiles import UNTUNED, Tuned, runs_on
from gpuscan.problem.problem import make_problem
from gpuscan.tools.bench.cases import ScanCase, bundle
from gpuscan.tools.bench.timing import GpuTimer
from gpuscan.tools.output import progress_console, table_console

if TYPE_CHECKING:
    from rich.console import RenderableType

# The share of a case's time that goes to trying every shape once. The finalists get the rest.
SCREENING = 0.6

# A shape replaces the default if it takes at most this share of the default's time.
WORTH = 0.97

# The number of fastest shapes that are measured again, for longer, together with the default.
FINALISTS = 3

# The operator and dtype that stand for elements of 1, 2 and 4 words of 32 bits.
REPRESENTATIVES = {1: ("add", "uint32"), 2: ("affine", "float32"), 4: ("matmul", "float32")}

# The sizes of the arrays in 32-bit words, on GPUs and on software adapters.
GPU_WORDS = tuple(1 << exponent for exponent in (18, 22, 26))
CPU_WORDS = tuple(1 << exponent for exponent in (16, 20))

QUICK_WARM_SECONDS, QUICK_REPEATS = 0.02, 5
FINAL_WARM_SECONDS, FINAL_REPEATS = 0.1, 9

# The 32-bit words of elements that an invocation may hold. With more its registers spill.
MAX_REGISTER_WORDS = 64


def tune(device: Device, seconds: float) -> None:
    """Search for a number of seconds, print what was found, and keep it."""
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} seconds are not a finite time. Give a number.", param_hint="'--seconds'")
    _store(device, device._context.tuned)  # fails before the search if the folder cannot be written
    with progress_console().status("") as status:
        results = list(search(device, seconds, lambda what: status.update(f"tuning {what}")))
    table_console().print(tuning_table(results))
    _tell(device, "Kept", _store(device, collect_tuned(results)))


def forget(device: Device) -> None:
    """Forget the shapes that were kept for the device."""
    _tell(device, "Forgot", _store(device, UNTUNED))


def _store(device: Device, tuned: Tuned) -> Path:
    path = tile_cache.store(device.capabilities, tuned)
    if path is None:
        raise click.ClickException(
            "tile shapes are kept in the user's cache folder, and it cannot be written. Set XDG_CACHE_HOME to another"
        )
    return path


def _tell(device: Device, done: str, path: Path) -> None:
    click.echo(f"{done} the shapes for {device.capabilities.summary} in {path}")


# ----- The search


@dataclass(frozen=True)
class TunedCase:
    """The fastest shape for one element and length.

    Attributes:
        case: what was measured.
        words: the 32-bit words of its element.
        default, best: the planner's shape and the fastest; the same if none is faster enough.
        default_seconds, best_seconds: the times of a scan with each.
        tried: the number of shapes that were measured.
    """

    case: ScanCase
    words: int
    default: TileShape
    best: TileShape
    default_seconds: float
    best_seconds: float
    tried: int


def search(device: Device, seconds: float, progress: Callable[[str], None] = lambda what: None) -> Iterator[TunedCase]:
    """Yield the fastest shape for each representative element and length, in `seconds` overall."""
    end = time.perf_counter() + seconds
    cells = cases(device)
    for index, (words, case) in enumerate(cells):
        now = time.perf_counter()
        progress(f"{case.series}, {case.size}")
        yield _search_case(device, case, words, max(0.0, end - now) / (len(cells) - index))


def cases(device: Device) -> list[tuple[int, ScanCase]]:
    """Return the cases to search: every representative element at short and long lengths, with its words."""
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    lengths = CPU_WORDS if device.capabilities.adapter_type == "CPU" else GPU_WORDS
    cases_by_words = []
    for words, (op, dtype) in REPRESENTATIVES.items():
        for total in lengths:
            case = ScanCase(op, np.dtype(dtype), total // words)
            if case.moved_bytes // 2 <= limit:
                cases_by_words.append((words, case))
    return cases_by_words


def collect_tuned(results: list[TunedCase]) -> Tuned:
    """Return the mapping for the planner, with all lengths of each element for which a better shape was found."""
    changed = {f.words for f in results if f.best != f.default}
    return MappingProxyType({(f.words, f.case.length): f.best for f in results if f.words in changed})


def candidates(device: Device, default: TileShape, words: int) -> list[TileShape]:
    """Return the shapes to try for elements of `words` 32-bit words: the default first, the nearest to it next.

    All of them combine elements in the order of the default, so none of them changes a result.
    """
    usable = [
        shape
        for shape in default.same_order()
        if shape != default
        and shape.steps * shape.chunk * words <= MAX_REGISTER_WORDS
        and runs_on(shape, words, device.capabilities)
    ]
    return [default, *sorted(usable, key=lambda shape: abs(math.log2(shape.steps / default.steps)))]


class TiledScan:
    """A case's scan on the device, with any tile shape."""

    def __init__(self, device: Device, case: ScanCase) -> None:
        self._device = device
        problem = make_problem(bundle([array[0] for array in case.arrays()]), case.operator, axis=0)
        self.default = tile_shape(scan_spec(problem, device.capabilities), device.capabilities)
        self._problem = problem.with_leaves(tuple(device.asarray(leaf) for leaf in problem.leaves))
        self._results: list[Array] = [device.empty(leaf.shape, leaf.dtype) for leaf in problem.leaves]
        self._wanted = b""

    def seconds(self, timer: GpuTimer, shape: TileShape) -> float:
        """Return the time of the scan with a shape."""

        def call() -> None:
            scan_device(self._device._executor, self._problem, out=self._results, tile=shape)

        return timer.time_call(call)

    def right(self) -> bool:
        """Return True if the last scan has the bits of the first one."""
        bits = b"".join(result.numpy().tobytes() for result in self._results)
        self._wanted = self._wanted or bits
        return bits == self._wanted


def _search_case(device: Device, case: ScanCase, words: int, seconds: float) -> TunedCase:
    begin = time.perf_counter()
    quick = GpuTimer(device, QUICK_WARM_SECONDS, QUICK_REPEATS)
    final = GpuTimer(device, FINAL_WARM_SECONDS, FINAL_REPEATS)
    scan = TiledScan(device, case)
    scan.seconds(quick, scan.default)  # raises the GPU's clocks
    times: dict[TileShape, float] = {}
    for shape in candidates(device, scan.default, words):
        if times and time.perf_counter() > begin + SCREENING * seconds:
            break
        taken = scan.seconds(quick, shape)
        if scan.right():
            times[shape] = taken
    finalists = sorted(times, key=times.__getitem__)[:FINALISTS]
    long: dict[TileShape, float] = {}
    for shape in dict.fromkeys([scan.default, *finalists]):
        if len(long) > 1 and time.perf_counter() > begin + seconds:
            break
        long[shape] = scan.seconds(final, shape)
    best = min(long, key=long.__getitem__)
    if long[best] > WORTH * long[scan.default]:
        best = scan.default
    return TunedCase(case, words, scan.default, best, long[scan.default], long[best], len(times))


def tuning_table(results: Sequence[TunedCase]) -> RenderableType:
    """Return the table of the shapes that a search found."""
    from rich import box
    from rich.table import Table

    table = Table(header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("element", "length", "tried", "default", "µs", "fastest", "µs", "gain"):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("tried", "µs", "gain") else "left")
    for f in results:
        gain = f.default_seconds / f.best_seconds - 1
        times = (f"{f.default_seconds * 1e6:,.1f}", f"{f.best_seconds * 1e6:,.1f}")
        shapes = (tile_text(f.default), "the same" if f.best == f.default else tile_text(f.best))
        table.add_row(f.case.series, f.case.size, str(f.tried), shapes[0], times[0], shapes[1], times[1], f"{gain:.1%}")
    return table


def tile_text(tile: TileShape) -> str:
    """Return workgroup x steps x chunk, the subgroup's lanes, and the bands of a subgroup if there are several."""
    bands = f" {tile.bands} bands" if tile.bands > 1 else ""
    return f"{tile.workgroup_size}x{tile.steps}x{tile.chunk}/{tile.subgroup_size}{bands}"
