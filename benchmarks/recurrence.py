"""GPU time of linear recurrences and their gradients on arrays of the device, compared with a copy of the same bytes.

Run:  python benchmarks/recurrence.py [--device SUBSTRING] [--shapes 8x2048x1536@1,8x1536x8192@2]

A shape is the arrays' and, behind the @, the axis. Forward moves three arrays (a, b and h), backward five.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.tools.bench.timing import GpuTimer

SHAPES = "8x2048x1536@1,4x4096x2048@1,1x131072x512@1,8x1536x8192@2,8x1536x2048@2"
CHECKED_ROWS = 64


def check(a: Any, b: Any, h: Any, axis: int) -> None:
    """Compare a few rows with a loop in float64."""
    rows = [np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)[:, :CHECKED_ROWS] for array in (a, b, h)]
    state = np.zeros(rows[0].shape[1])
    for gate, step, found in zip(*rows, strict=True):
        state = gate.astype(np.float64) * state + step
        if not np.allclose(found, state, rtol=1e-3, atol=1e-3):
            raise SystemExit("wrong states")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--shapes", default=SHAPES)
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device)
    print(device, device.capabilities.driver)
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
        print(
            f"{shape!s:18} axis {axis}: forward {forward * 1e6:7.1f} us {moved / forward / 1e9:5.0f} GB/s "
            f"{copied / forward:.3f} of the copy; backward {backward * 1e6:7.1f} us "
            f"{5 / 3 * copied / backward:.3f}; together {(forward + backward) * 1e6:7.1f} us",
            flush=True,
        )
        del a, b, h


if __name__ == "__main__":
    main()
