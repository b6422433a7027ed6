"""GPU time of scans along rows, forwards and backwards, compared with a copy of the same bytes.

Run:  python benchmarks/rows.py [--log 26] [--device SUBSTRING] [--json FILE]

Rows of 256 elements and more have tiles of their own. Shorter rows share tiles; some are whole chunks, some are not.
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.timing import GpuTimer

CASES = [(1024, "float32"), (256, "float32"), (64, "float32"), (63, "float32"), (64, "float16"), (63, "float16")]
CASES += [(100, "int16"), (64, "uint8"), (100, "uint8"), (99, "uint8")]


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--log", type=int, default=26, help="of the number of elements, about")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device)
    figures = FigureList(device)
    for length, dtype in CASES:
        x = np.random.default_rng(0).integers(0, 4, ((1 << arguments.log) // length, length)).astype(dtype)
        array = device.asarray(x)
        copied = timer.time_copy(2 * x.nbytes)
        for column, reverse in (("forwards", False), ("backwards", True)):
            wanted = np.cumsum(x[:, ::-1] if reverse else x, axis=1, dtype=x.dtype)
            got = gs.scan(array, axis=1, reverse=reverse).numpy()
            if not np.array_equal(got, wanted[:, ::-1] if reverse else wanted):
                raise SystemExit(f"{x.shape} {dtype}, reverse={reverse}: wrong sums")
            taken = timer.time_call(lambda a=array, r=reverse: gs.scan(a, axis=1, reverse=r))
            figures.add(f"{len(x):,} x {length} `{dtype}`", column, taken, copied)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
