"""GPU time of wide elements (bundles, matrices) and of linear recurrences compared with a copy of the same bytes.

Run:  python benchmarks/wide.py [--megabytes 512] [--device SUBSTRING] [--only bundles|matrices|recurrences]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.planning.tile_shapes import ColumnTile
from gpuscan.problem.problem import make_problem
from gpuscan.tools.bench.timing import GpuTimer
from recorded import RecordedScan, plan_of_problem


def affine(left: Any, right: Any) -> Any:
    """Compose maps ``x -> a x + b``."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def add_fields(left: Any, right: Any) -> Any:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def last(value: Any) -> Any:
    return value[1]


def measure(
    timer: GpuTimer, name: str, arrays: list[Any], op: Any, axis: int, after: Any = None, tiles: list[Any] | None = None
) -> None:
    """Time every strategy on these arrays and print a line for each."""
    device = timer.device
    problem = make_problem(arrays[0] if len(arrays) == 1 else tuple(arrays), op, axis=axis, after=after)
    sources = [device.asarray(array) for array in arrays]
    fields = problem.destination.fields
    results = [device.empty((*problem.results_shape, *field.shape), field.scalar.dtype) for field in fields]
    moved = sum(array.nbytes for array in [*sources, *results])
    copied = timer.time_copy(moved)
    print(f"{name}: copy {copied * 1e6:.1f} us {moved / copied / 1e9:.0f} GB/s", flush=True)
    for strategy in STRATEGIES:
        for tile in tiles or [None]:
            plan = plan_of_problem(device, problem, strategy, tile=tile)
            scan = RecordedScan(device, plan, sources, results)
            taken = timer.time_recording(scan)
            try:
                scan.check()
                late = ""
            except gs.ProgressTimeoutError:
                late = " TIMED OUT"
            print(
                f"    {strategy:15} {plan.tile} {taken * 1e6:9.1f} us {moved / taken / 1e9:7.0f} GB/s "
                f"{copied / taken:.3f} of the copy{late}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="of input, for bundles and matrices")
    parser.add_argument("--device")
    parser.add_argument("--only", default="bundles,matrices,recurrences")
    parser.add_argument("--shapes", default="8x2048x1536@1,4x4096x2048@1,1x131072x512@1,12288x2048@1,12288x8192@1")
    parser.add_argument("--tile", action="append", default=[], help="columns,groups,rows,chunk of recurrences")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    timer = GpuTimer(device)
    print(device, device.capabilities.driver)
    rng = np.random.default_rng(0)
    size = arguments.megabytes << 20
    if "bundles" in arguments.only:
        for count in (2, 3, 4, 6):
            arrays = [rng.random(size // 4 // count, dtype=np.float32) for _ in range(count)]
            measure(timer, f"bundle of {count} float32, sums", arrays, add_fields, 0)
        arrays = [rng.random(size // 8, dtype=np.float32) for _ in range(2)]
        measure(timer, "bundle of 2 float32, linear recurrence", arrays, affine, 0)
    if "matrices" in arguments.only:
        for k in (2, 3, 4, 8):
            matrices = rng.random((size // 4 // k**2, k, k), dtype=np.float32)
            measure(timer, f"{k}x{k} float32 matrices", [matrices], "matmul", 0)
    if "recurrences" in arguments.only:
        tiles = [ColumnTile(*map(int, text.split(","))) for text in arguments.tile]
        for text in arguments.shapes.split(","):
            dims, axis = text.split("@")
            shape = tuple(map(int, dims.split("x")))
            arrays = [rng.random(shape, dtype=np.float32) for _ in range(2)]
            columns = int(axis) < len(shape) - 1
            chosen = tiles if columns else None
            measure(timer, f"recurrence {shape} axis {axis}", arrays, affine, int(axis), last, chosen)


if __name__ == "__main__":
    main()
