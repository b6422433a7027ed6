"""GPU time of scans and their gradients on arrays of the device, compared with a copy of the bytes that they must move.

Run:  python benchmarks/gradients.py [--shapes 25165824@0,8x2048x1536@1] [--only add,affine] [--device SUBSTRING]
          [--json FILE]

A shape is the arrays' and, behind the @, the axis. A scan must move each array twice (x and y), its gradient four times
(x, y, grad_y and grad_x). `linear_recurrence` moves three arrays and its gradient five. A share of 1 is the speed of a
copy; the goal for the affine scans is 1.5 times the bytes, a share of 0.67.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.timing import GpuTimer

SHAPES = "25165824@0,8x2048x1536@1,8x1536x2048@2"
# The ends of this many rows, of this length, are compared with NumPy. The gradient there does not depend on the
# elements before.
CHECKED_ROWS, CHECKED_LENGTH = 4, 1 << 16
# Seconds of calls before each figure, on a GPU that was idle while NumPy computed.
WARM_SECONDS = 0.5
# Products of a million float32 factors near 1, as in long scans of logaddexp, keep two digits.
TOLERANCE = 2e-2


@gs.operator(name="affine", identity=(1, 0))
def affine(left: Any, right: Any) -> Any:
    """Compose two affine maps: first `left`, then `right`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


OPERATORS: dict[str, tuple[Any, int]] = {
    "add": ("add", 1),
    "multiply": ("multiply", 1),
    "maximum": ("maximum", 1),
    "logaddexp": ("logaddexp", 1),
    "affine": (affine, 2),
}
RECURRENCE = "linear_recurrence"


@contextmanager
def on_numpy() -> Iterator[None]:
    """Let NumPy compute within the block."""
    before = os.environ.get("GPUSCAN_ADAPTER")
    os.environ["GPUSCAN_ADAPTER"] = "numpy"
    yield
    os.environ.pop("GPUSCAN_ADAPTER")
    if before is not None:
        os.environ["GPUSCAN_ADAPTER"] = before


def few_rows(array: Any, axis: int) -> np.ndarray[Any, Any]:
    """Return the ends of a few rows in float64: (length, rows)."""
    moved = np.moveaxis(array.numpy(), axis, 0)[-CHECKED_LENGTH:]
    return moved.reshape(moved.shape[0], -1)[:, :CHECKED_ROWS].astype(np.float64)


def bundle_arrays(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def check(op: Any, axis: int, bundles: list[list[Any]]) -> None:
    """Compare a few rows of the gradient with NumPy's in float64."""
    x, y, grad_y, gradients = ([few_rows(array, axis) for array in bundle] for bundle in bundles)
    with on_numpy():
        wanted = gs.scan_vjp(bundle_arrays(x), bundle_arrays(y), bundle_arrays(grad_y), op, axis=0)
    for one, other in zip(gradients, [wanted] if len(x) == 1 else wanted, strict=True):
        # The first element follows a state that was not passed.
        if np.abs(one - other)[1:].max() > TOLERANCE * max(1, np.abs(other).max()):
            raise SystemExit("wrong gradients")


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--only", default=",".join((*OPERATORS, RECURRENCE)))
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device, WARM_SECONDS)
    figures = FigureList(device)
    rng = np.random.default_rng(0)
    only = arguments.only.split(",")

    for text in arguments.shapes.split(","):
        dims, axis = text.split("@")
        shape, axis = tuple(map(int, dims.split("x"))), int(axis)
        arrays = [device.asarray(rng.uniform(0.9, 1, shape).astype(np.float32)) for _ in range(4)]
        nbytes = arrays[0].nbytes
        per_byte = timer.time_copy(4 * nbytes) / (4 * nbytes)
        shown = f"{shape}, axis {axis}, "
        for name, (op, count) in OPERATORS.items():
            if name not in only:
                continue
            x, grad = bundle_arrays(arrays[:count]), bundle_arrays(arrays[2 : 2 + count])
            y = gs.scan(x, op, axis=axis)
            gradients = gs.scan_vjp(x, y, grad, op, axis=axis)
            check(op, axis, [list(bundle) if count > 1 else [bundle] for bundle in (x, y, grad, gradients)])
            del gradients
            forward = timer.time_call(lambda x=x, op=op, axis=axis: gs.scan(x, op, axis=axis))
            backward = timer.time_call(lambda x=x, y=y, g=grad, op=op, axis=axis: gs.scan_vjp(x, y, g, op, axis=axis))
            figures.add(shown + name, "scan", forward, 2 * count * nbytes * per_byte)
            figures.add(shown + name, "gradient", backward, 4 * count * nbytes * per_byte)
            del x, y, grad
        if RECURRENCE not in only:
            continue
        a, b, grad = arrays[:3]
        h = gs.linear_recurrence(a, b, axis=axis)
        forward = timer.time_call(lambda a=a, b=b, axis=axis: gs.linear_recurrence(a, b, axis=axis))
        backward = timer.time_call(lambda a=a, h=h, g=grad, axis=axis: gs.linear_recurrence_vjp(a, h, g, axis=axis))
        figures.add(shown + RECURRENCE, "scan", forward, 3 * nbytes * per_byte)
        figures.add(shown + RECURRENCE, "gradient", backward, 5 * nbytes * per_byte)
        del a, b, grad, h
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
