"""GPU time of scans of numbers, bundles, matrices and linear recurrences, compared with a copy of the same bytes.

Run:  python benchmarks/elements.py [--megabytes 256] [--only numbers,bundles,matrices,recurrences]
          [--device SUBSTRING] [--json FILE]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.engine.preparation import check_elements
from gpuscan.planning.strategies import STRATEGIES
from gpuscan.planning.tile_shapes import ColumnTile
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.problem import make_problem
from gpuscan.tools.bench.timing import GpuTimer
from recorded import RecordedScan, plan_of_problem

# Numbers of one field, and how they are combined.
NUMBERS = [
    ("uint8", "add"),
    ("int8", "add"),
    ("uint16", "add"),
    ("float16", "add"),
    ("int64", "add"),
    ("float64", "multiply"),
    ("float32", "logaddexp"),
]
NAMES = {"add": "sums", "multiply": "products", "logaddexp": "`logaddexp`"}


def affine(left: Any, right: Any) -> Any:
    """Compose maps ``x -> a x + b``."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def add_fields(left: Any, right: Any) -> Any:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def last(value: Any) -> Any:
    return value[1]


class Measurer:
    """Times all strategies on a device."""

    def __init__(self, device: gs.Device) -> None:
        self.figures = FigureList(device)
        self._device = device
        self._timer = GpuTimer(device)

    def measure(
        self, name: str, arrays: list[Any], op: Any, tiles: list[ColumnTile] | None = None, **options: Any
    ) -> None:
        """Time every strategy on these arrays, in the planner's tile or in each of `tiles`."""
        device = self._device
        problem = make_problem(arrays[0] if len(arrays) == 1 else tuple(arrays), op, **options)
        try:
            check_elements(device._context, problem)
        except gs.UnsupportedDtypeError as error:  # no 64-bit floats
            print(f"{name}: {error}")
            return
        sources = [device.asarray(array) for array in arrays]
        fields = problem.destination.fields
        results = [device.empty((*problem.results_shape, *field.shape), field.scalar.dtype) for field in fields]
        copied = self._timer.time_copy(sum(array.nbytes for array in [*sources, *results]))
        for strategy in STRATEGIES:
            for tile in tiles or [None]:
                plan = plan_of_problem(device, problem, strategy, tile=tile)
                scan = RecordedScan(device, plan, sources, results)
                taken = self._timer.time_recording(scan)
                case = name if tile is None else f"{name}, {tile}"
                try:
                    scan.check()
                except gs.ProgressTimeoutError as error:
                    print(f"{case}: {error}")
                    continue
                self.figures.add(case, strategy, taken, copied)


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=256, help="of input, for all but recurrences")
    parser.add_argument("--only", default="numbers,bundles,matrices,recurrences")
    parser.add_argument("--shapes", default="8x2048x1536@1,4x4096x2048@1,1x131072x512@1,12288x2048@1,12288x8192@1")
    parser.add_argument("--tile", action="append", default=[], help="columns,groups,rows,chunk of recurrences")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    measurer = Measurer(device)
    rng = np.random.default_rng(0)
    size = arguments.megabytes << 20
    if "numbers" in arguments.only:
        for dtype, op in NUMBERS:
            numbers = rng.integers(0, 2, size // np.dtype(dtype).itemsize, dtype=np.uint8).astype(dtype)
            measurer.measure(f"{NAMES[op]} of `{dtype}`", [numbers], op, axis=0)
        x, op, options = as_pairs(rng.random(size // 4, dtype=np.float32), "add", {"axis": 0})
        measurer.measure("compensated sums of `float32`", [x], op, **options)
    if "bundles" in arguments.only:
        for count in (2, 4):
            arrays = [rng.random(size // 4 // count, dtype=np.float32) for _ in range(count)]
            measurer.measure(f"sums of {count} `float32`", arrays, add_fields, axis=0)
        arrays = [rng.random(size // 8, dtype=np.float32) for _ in range(2)]
        measurer.measure("linear recurrences, 2 `float32`", arrays, affine, axis=0)
    if "matrices" in arguments.only:
        for k in (2, 3, 4, 8):
            matrices = rng.random((size // 4 // k**2, k, k), dtype=np.float32)
            measurer.measure(f"products of {k}x{k} matrices", [matrices], "matmul", axis=0)
    if "recurrences" in arguments.only:
        tiles = [ColumnTile(*map(int, text.split(","))) for text in arguments.tile]
        for text in arguments.shapes.split(","):
            dims, axis = text.split("@")
            shape = tuple(map(int, dims.split("x")))
            arrays = [rng.random(shape, dtype=np.float32) for _ in range(2)]
            columns = int(axis) < len(shape) - 1
            chosen = tiles if columns else None
            measurer.measure(f"recurrence {shape} axis {axis}", arrays, affine, chosen, axis=int(axis), after=last)
    measurer.figures.write(arguments.json)


if __name__ == "__main__":
    main()
