"""Compare the GPU time of scans with a copy of the same bytes and with CUB, CuPy, PyTorch, JAX, Triton and NumPy.

It made the files in benchmarks/results. `gpuscan bench` answers the same question with what a user has installed. Here
the scans of a batch follow each other in one submission, tiles and unsafe strategies may be named, and linear
recurrences are compared too.

    python benchmarks/compare.py --peers torch,cub --calls --sizes 2^20,2^28 --json figures.json --plot figures.png

    python benchmarks/compare.py --strategy lookback,fallback --tile 256,32,12,4 --tile 512,32,6,4

    python benchmarks/compare.py --recurrence 8,2048,1536 --dtype float32 --peers
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import gpuscan as gs
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.command import Request, measure_all, safe_strategies, show, time_calls
from gpuscan.tools.bench.contenders import Contender, copy_contender
from gpuscan.tools.bench.timing import GpuTimer
from gpuscan.tools.option_types import CountType, DtypeType, ListType, OperatorType, TargetType
from gpuscan.tools.output import progress_console
from peers import PEERS, peer_contenders
from recorded import list_recorded
from recurrences import RecurrenceCase, recurrence_case, recurrence_contender


def tile_from(text: str) -> TileShape:
    """Return the tile that an option names: workgroup size, subgroup size, steps, chunk and, if not 1, bands."""
    workgroup_size, subgroup_size, steps, chunk, *bands = (int(number) for number in text.split(","))
    return TileShape(workgroup_size, subgroup_size, steps, chunk, bands=bands[0] if bands else 1)


@click.command(help=__doc__)
@click.option("--sizes", type=ListType(CountType()), default="", help="Numbers of elements: 1000,2^20,…")
@click.option("--op", "ops", type=ListType(OperatorType(extra=("affine", "sort"))), default="add", show_default=True)
@click.option("--dtype", "dtypes", type=ListType(DtypeType()), default="uint32", show_default=True)
@click.option("--rows", type=click.IntRange(min=1), default=1, show_default=True, help="Rows to cut the elements into.")
@click.option("--strategy", "strategies", type=ListType(click.Choice(["auto", *STRATEGIES])), default="")
@click.option("--tile", "tiles", multiple=True, metavar="W,S,STEPS,CHUNK[,BANDS]", help="A tile to try; repeatable.")
@click.option("--recurrence", metavar="BATCH,SEQUENCE,CHANNELS", help="Measure a linear recurrence instead.")
@click.option("--backward", is_flag=True, help="Measure the gradients of the linear recurrence too.")
@click.option(
    "--peers",
    type=ListType(click.Choice(PEERS), all_of=PEERS),
    is_flag=False,
    flag_value="all",
    default="",
    metavar="[NAMES]",
    help=f"Other libraries: all of {','.join(PEERS)}, or those named.",
)
@click.option("--calls", is_flag=True, help="Measure the wall-clock time of calls from Python as well.")
@click.option("--device", help="A part of an adapter's name.")
@click.option("--json", "json_path", metavar="FILE", type=TargetType(allow_dash=True), help="Write the figures.")
@click.option("--plot", metavar="FILE.png", type=TargetType(suffix=".png"), help="Draw the figures.")
def compare(
    device: str | None,
    tiles: tuple[str, ...],
    recurrence: str | None,
    backward: bool,
    json_path: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    opened = gs.Device(device, unsafe=True)
    timer = GpuTimer(opened)
    request = Request(**options)
    cases: list[ScanCase] = list(request.cases(opened))
    if recurrence is not None:
        batch, sequence, channels = map(int, recurrence.split(","))
        cases = [recurrence_case((batch, sequence, channels), dtype, backward) for dtype in request.dtypes]
    shapes: list[TileShape | None] = [*map(tile_from, tiles)] or [None]
    strategies = request.strategies or safe_strategies(opened)

    def ours(case: ScanCase) -> list[Contender]:
        if isinstance(case, RecurrenceCase):
            return [recurrence_contender(timer, case)]
        return list_recorded(timer, case, strategies, shapes)

    entrants = [
        (case, [copy_contender(timer, case), *ours(case), *peer_contenders(request.peers, case)]) for case in cases
    ]
    measurements = measure_all(entrants, progress_console())
    calls = time_calls(opened, request.sizes, request.peers) if request.calls else []
    command = ["python", "benchmarks/compare.py", *sys.argv[1:]]
    show([opened], measurements, calls, json_path, plot, command)


if __name__ == "__main__":
    compare(prog_name="python benchmarks/compare.py")
