"""GPU times of random operations on arrays of random shapes, compared with a copy of the same bytes and PyTorch.

Shapes, axes, dtypes and operations are drawn by a seed, so that no one chooses the cases that look well. The last lines
show for each family the share of a copy's speed: the worst, the worst tenth and the median.

Run:  python benchmarks/random_shapes.py [--seeds 1,2,3] [--seconds 60] [--elements 33554432] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.contenders import Unsupported
from gpuscan.tools.bench.peers import need
from sorts import gpu_times

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Call = Callable[[], Any]

DTYPES = ("float32", "float32", "int32", "float16", "int64", "uint8")
# What PyTorch calls a scan by an operator, and a reduction by it.
TORCH = {"add": ("cumsum", "sum"), "maximum": ("cummax", "amax"), "multiply": ("cumprod", "prod")}


@dataclass(frozen=True)
class Case:
    """One operation on arrays on the device.

    Attributes:
        family: the kind of operation.
        name: the operation with its dtype, shape and axis.
        call: the operation.
        nbytes: the bytes that it reads and writes at least.
        torch: the same operation of PyTorch, if there is one.
    """

    family: str
    name: str
    call: Call
    nbytes: int
    torch: Call | None = None


@dataclass(frozen=True)
class Row:
    """One measured case: seconds of the GPU, of a copy of as many bytes, and of PyTorch."""

    seed: int
    family: str
    name: str
    seconds: float
    copy_seconds: float
    torch_seconds: float | None


def _affine(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


def _greater(left: Any, right: Any) -> Any:
    is_greater = right[0] > left[0]
    return np.where(is_greater, right[0], left[0]), np.where(is_greater, right[1], left[1])


class Drawer:
    """Draws cases for a device, each family in turn."""

    def __init__(self, device: gs.Device, elements: int, seed: int, torch: Any) -> None:
        self.device, self.elements, self.torch = device, elements, torch
        self.rng = np.random.default_rng(seed)

    def cases(self) -> Iterator[Case]:
        """Yield cases without end."""
        families = (
            self.scan,
            self.reduction,
            self.sort,
            self.groups,
            self.recurrence,
            self.gradient,
            self.bundle,
            self.movement,
        )
        while True:
            for family in families:
                yield family()

    def shape_and_axis(self) -> tuple[Shape, int]:
        """Return a shape of one to three axes, and one of its axes."""
        count = int(self.rng.integers(1, 4))
        if count == 1:
            return (self.elements - int(self.rng.integers(1000)),), 0
        inner = [int(2 ** self.rng.uniform(1, 20 if count == 2 else 9)) for _ in range(count - 1)]
        shape = [max(1, self.elements // int(np.prod(inner))), *inner]
        return tuple(int(n) for n in self.rng.permutation(shape)), int(self.rng.integers(count))

    def values(self, shape: Shape, dtype: str) -> Array:
        """Return numbers of 0 to 1, or integers below 100."""
        if dtype.startswith("float"):
            return self.rng.random(shape, np.float32).astype(dtype)
        return self.rng.integers(0, 100, shape).astype(dtype)

    def quarter(self, shape: Shape) -> Array:
        """Return `float32` numbers of 0 to 1 in this shape with a quarter of its longest axis."""
        return self.values(tuple(max(1, n // 4) if n == max(shape) else n for n in shape), "float32")

    def draw(self, choices: tuple[str, ...]) -> str:
        return str(self.rng.choice(choices))

    def on_torch(self, x: Array, call: Callable[[Any], Any]) -> Call | None:
        """Return a call of PyTorch for an array, which is put on its device."""
        if self.torch is None:
            return None
        tensor = self.torch.from_numpy(x).cuda()
        return lambda: call(tensor)

    # ----- Families

    def scan(self) -> Case:
        (shape, axis), dtype, op = self.shape_and_axis(), self.draw(DTYPES), self.draw(tuple(TORCH))
        x, reverse = self.values(shape, dtype), bool(self.rng.random() < 0.25)
        a, function = self.device.asarray(x), TORCH[op][0]
        dtype_option = {} if op == "maximum" or self.torch is None else {"dtype": getattr(self.torch, dtype)}
        name = f"{op} of {dtype} {shape} along {axis}{', reversed' if reverse else ''}"
        peer = self.on_torch(x, lambda t: getattr(self.torch, function)(t, axis, **dtype_option))
        return Case("scan", name, lambda: gs.scan(a, op, axis=axis, reverse=reverse), 2 * x.nbytes, peer)

    def reduction(self) -> Case:
        (shape, axis), dtype, op = self.shape_and_axis(), self.draw(DTYPES), self.draw(("add", "maximum"))
        x = self.values(shape, dtype)
        a, function = self.device.asarray(x), TORCH[op][1]
        dtype_option = {} if op == "maximum" or self.torch is None else {"dtype": getattr(self.torch, dtype)}
        peer = self.on_torch(x, lambda t: getattr(self.torch, function)(t, axis, **dtype_option))
        return Case(
            "reduction", f"{op} of {dtype} {shape} along {axis}", lambda: gs.reduce(a, op, axis=axis), x.nbytes, peer
        )

    def sort(self) -> Case:
        (shape, axis), dtype = self.shape_and_axis(), self.draw(DTYPES)
        x, by_index = self.values(shape, dtype), bool(self.rng.random() < 0.4)
        a, function = self.device.asarray(x), gs.argsort if by_index else gs.sort
        peer = self.on_torch(x, lambda t: self.torch.sort(t, stable=True, dim=axis))
        name = f"{'indices' if by_index else 'keys'} of {dtype} {shape} along {axis}"
        return Case("sort", name, lambda: function(a, axis=axis), 2 * x.nbytes, peer)

    def groups(self) -> Case:
        labels = int(2 ** self.rng.uniform(1, 22))
        x = self.values((self.elements,), self.draw(("float32", "int32", "int64")))
        a, what = self.device.asarray(x), self.draw(("scan", "reduction", "keys", "segments"))
        if what == "segments":
            return self.segments(x, a, labels)
        g = self.rng.integers(0, labels, x.size).astype(np.int32)
        by, nbytes = self.device.asarray(np.sort(g) if what == "keys" else g), x.nbytes + g.nbytes
        if what == "keys":
            name = f"scan of {x.dtype} by {labels} sorted keys"
            return Case("groups", name, lambda: gs.scan(a, keys=by), nbytes + x.nbytes)
        if what == "scan":
            name = f"scan of {x.dtype} by {labels} labels"
            return Case("groups", name, lambda: gs.scan(a, groups=by), nbytes + x.nbytes)
        name = f"reduction of {x.dtype} by {labels} labels"
        call = lambda: gs.reduce(a, groups=by, num_groups=labels)  # noqa: E731
        if self.torch is None:
            return Case("groups", name, call, nbytes)
        index, values = self.torch.from_numpy(g.astype(np.int64)).cuda(), self.torch.from_numpy(x).cuda()
        zeros = self.torch.zeros(labels, dtype=values.dtype, device="cuda")
        return Case("groups", name, call, nbytes, lambda: zeros.index_add(0, index, values))

    def segments(self, x: Array, a: gs.Array, count: int) -> Case:
        inner = self.rng.integers(0, x.size, count)
        offsets = np.unique(np.concatenate([[0], inner, [x.size]])).astype(np.int32)
        cuts = self.device.asarray(offsets)
        peer = None
        if self.torch is not None and x.dtype.kind == "f":
            torch_offsets = self.torch.from_numpy(offsets.astype(np.int64)).cuda()
            peer = self.on_torch(x, lambda t: self.torch.segment_reduce(t, "sum", offsets=torch_offsets))
        name = f"reduction of {x.dtype} by {len(offsets) - 1} segments"
        return Case("groups", name, lambda: gs.reduce(a, segments=cuts), x.nbytes, peer)

    def recurrence(self) -> Case:
        (shape, axis), backward = self.shape_and_axis(), bool(self.rng.random() < 0.5)
        x = self.quarter(shape)
        gates, inputs = self.device.asarray(x), self.device.asarray(x.copy())
        if not backward:
            name = f"recurrence {x.shape} along {axis}"
            return Case("recurrence", name, lambda: gs.linear_recurrence(gates, inputs, axis=axis), 3 * x.nbytes)
        states = gs.linear_recurrence(gates, inputs, axis=axis)
        name = f"gradient of a recurrence {x.shape} along {axis}"
        call = lambda: gs.linear_recurrence_vjp(gates, states, inputs, axis=axis)  # noqa: E731
        return Case("recurrence", name, call, 5 * x.nbytes)

    def gradient(self) -> Case:
        (shape, axis), op = self.shape_and_axis(), self.draw(("add", "maximum", "multiply", "logaddexp"))
        x = self.quarter(shape)
        a, grad = self.device.asarray(x), self.device.asarray(x.copy())
        y = gs.scan(a, op, axis=axis)
        name = f"gradient of {op} {x.shape} along {axis}"
        nbytes = (2 if op == "add" else 4) * x.nbytes
        return Case("gradient", name, lambda: gs.scan_vjp(a, y, grad, op, axis=axis), nbytes)

    def bundle(self) -> Case:
        shape, axis = self.shape_and_axis()
        x = self.quarter(shape)
        pair = self.device.asarray(x), self.device.asarray(x.copy())
        op, what = (_affine, "affine maps") if self.rng.random() < 0.5 else (_greater, "maxima with another value")
        return Case("bundle", f"{what} {x.shape} along {axis}", lambda: gs.scan(pair, op, axis=axis), 4 * x.nbytes)

    def movement(self) -> Case:
        shape, _ = self.shape_and_axis()
        x, layout = (
            self.values(shape, self.draw(("float32", "float16", "int64"))),
            self.draw(("transposed", "flipped", "where")),
        )
        a, what = self.device.asarray(x), f"{layout} {x.dtype} {shape}"
        if layout == "transposed":
            axes = tuple(range(x.ndim))[::-1]
            return Case(
                "movement",
                what,
                lambda: a.T.copy(),
                2 * x.nbytes,
                self.on_torch(x, lambda t: t.permute(axes).contiguous()),
            )
        if layout == "flipped":
            axes = tuple(range(x.ndim))
            return Case(
                "movement", what, lambda: np.flip(a).copy(), 2 * x.nbytes, self.on_torch(x, lambda t: t.flip(axes))
            )
        zero = x.dtype.type(0)
        peer = self.on_torch(x, lambda t: self.torch.where(t > 0, t, 0))
        return Case("movement", what, lambda: np.where(a > zero, a, zero), 2 * x.nbytes, peer)


# ----- Measurement


def time_torch(torch: Any, call: Call) -> float:
    """Return the seconds of a call of PyTorch by the events of CUDA: the least of five."""
    best = float("inf")
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


def measure(device: gs.Device, elements: int, seed: int, seconds: float, torch: Any) -> Iterator[Row]:
    """Yield the rows of a seed, for about as many seconds. The copy is timed after each case, at the same clock."""
    block = device.asarray(np.zeros(2 * elements, np.float32))
    end = time.monotonic() + seconds
    for case in Drawer(device, elements, seed, torch).cases():
        if time.monotonic() > end:
            return
        took = sum(gpu_times(device, case.call).values())
        byte_seconds = sum(gpu_times(device, block.copy).values()) / (2 * block.nbytes)
        peer = None if case.torch is None else time_torch(torch, case.torch)
        yield Row(seed, case.family, case.name, took, case.nbytes * byte_seconds, peer)


def summarise(rows: list[Row]) -> dict[str, dict[str, float | int | str]]:
    """Return for each family the shares of a copy's speed, and how often PyTorch is faster."""
    summary: dict[str, dict[str, float | int | str]] = {}
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        shares = sorted(row.copy_seconds / row.seconds for row in own)
        ratios = sorted(row.torch_seconds / row.seconds for row in own if row.torch_seconds is not None)
        summary[family] = {
            "cases": len(own),
            "worst": round(shares[0], 3),
            "worst case": min(own, key=lambda row: row.copy_seconds / row.seconds).name,
            "tenth": round(shares[len(shares) // 10], 3),
            "median": round(shares[len(shares) // 2], 3),
            "torch cases": len(ratios),
            "torch is faster": sum(ratio < 1 for ratio in ratios),
            "torch median": round(ratios[len(ratios) // 2], 2) if ratios else 0,
        }
    return summary


def main() -> None:
    """Measure, and print a line for each case and for each family."""
    parser = option_parser(__doc__)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--seconds", type=float, default=60, help="for each seed")
    parser.add_argument("--elements", type=int, default=1 << 25)
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    figures = FigureList(device)
    try:
        torch = need("torch")
        torch = torch if torch.cuda.is_available() else None
    except Unsupported as reason:
        print(f"  {reason}")
        torch = None
    rows: list[Row] = []
    for seed in map(int, arguments.seeds.split(",")):
        for row in measure(device, arguments.elements, seed, arguments.seconds, torch):
            rows.append(row)
            peer = "" if row.torch_seconds is None else f"PyTorch {row.torch_seconds * 1e6:8.0f} us"
            share = row.copy_seconds / row.seconds
            print(
                f"  {row.family:10} {row.name:60} {row.seconds * 1e6:8.0f} us  of a copy {share:5.2f}  {peer}",
                flush=True,
            )
    summary = summarise(rows)
    for family, statistics in summary.items():
        print(f"{family:10}", ", ".join(f"{name} {value}" for name, value in statistics.items()))
    figures.write(arguments.json, families=summary, rows=[asdict(row) for row in rows])


if __name__ == "__main__":
    main()
