"""GPU time of linear recurrences and their gradients on arrays of the device, compared with a copy of the same bytes.

Run:  python benchmarks/recurrence.py [--shapes 8x2048x1536@1,8x1536x8192@2] [--device SUBSTRING] [--json FILE]

A shape is the arrays' and, behind the @, the axis. Forward moves three arrays (a, b and h), backward five.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.timing import GpuTimer

SHAPES = "8x2048x1536@1,4x4096x2048@1,1x131072x512@1,8x1536x8192@2,8x1536x2048@2"
CHECKED_ROWS = 64


def check(a: Any, b: Any, h: Any, axis: int) -> None:
    """Compare a few rows with a loop in float64."""
    rows = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)[:, :CHECKED_ROWS] for array in (a, b, h)]
    state = np.zeros(rows[0].shape[1])
    for gate, step, computed in zip(*rows, strict=True):
        state = gate.astype(np.float64) * state + step
        if not np.allclose(computed, state, rtol=1e-3, atol=1e-3):
            raise SystemExit("wrong states")


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--shapes", default=SHAPES)
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device)
    figures = FigureList(device)
    rng = np.random.default_rng(0)
    for text in arguments.shapes.split(","):
        dims, axis = text.split("@")
        shape = tuple(map(int, dims.split("x")))
        gates, inputs = (rng.random(shape, dtype=np.float32) for _ in range(2))
        a, b = device.asarray(gates), device.asarray(inputs)
        h = gs.linear_recurrence(a, b, axis=int(axis))
        check(gates, inputs, h.numpy(), int(axis))
        moved = 3 * a.nbytes
        copied = timer.time_copy(moved)
        forward = timer.time_call(lambda a=a, b=b, axis=axis: gs.linear_recurrence(a, b, axis=int(axis)))
        backward = timer.time_call(lambda a=a, b=b, h=h, axis=axis: gs.linear_recurrence_vjp(a, h, b, axis=int(axis)))
        case = f"{shape}, axis {axis}"
        figures.add(case, "recurrence", forward, copied)
        figures.add(case, "gradient", backward, 5 / 3 * copied)
        del a, b, h
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
