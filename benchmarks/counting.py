"""GPU times of the functions that count, rank and select, compared with a copy of the input, NumPy, PyTorch and CuPy.

Each line says how long a call takes, and its speed as a share of the speed of a copy of the input. gpuscan's times are
the GPU's. The GPU is busy for half a second before each case.

Run:  python benchmarks/counting.py [--log 26] [--only NAME ...] [--stages] [--device SUBSTRING] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.contenders import Unsupported
from gpuscan.tools.bench.peers import need
from gpuscan.tools.bench.timing import GpuTimer
from sorts import NUMPY_LIMIT, WARM_SECONDS, gpu_times, wall_time

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """One call, and the same call of other libraries.

    Attributes:
        name: the function and its input.
        arrays: the NumPy arrays that are put on the device.
        call: the call, given these arrays on the device.
        check: the same in NumPy, to compare with; it gives one array.
        torch, cupy: the call of these libraries, given the package and the arrays there; None if they have none.
    """

    name: str
    arrays: tuple[Array, ...]
    call: Callable[..., Any]
    check: Callable[..., Array]
    torch: Callable[..., Any] | None = None
    cupy: Callable[..., Any] | None = None


def labels_of(count: int, most: int) -> dict[str, Array]:
    """Return labels below a number, in several distributions."""
    rng = np.random.default_rng(0)
    random = rng.integers(0, most, count).astype(np.int32)
    return {
        "random": random,
        "all equal": np.full(count, most // 2, np.int32),
        "sorted": np.sort(random),
        "half of them one": np.where(rng.random(count) < 0.5, np.int32(most // 3), random),
    }


def cases(count: int) -> list[Case]:
    """Return what is measured, for inputs of about this many elements."""
    rng = np.random.default_rng(1)
    floats = rng.random(count, np.float32)
    words = rng.integers(0, 2**32, count, np.uint32)
    runs = np.repeat(rng.integers(0, 99, count // 8 + 1).astype(np.int32), 8)[:count]
    mask = rng.random(count) < 0.5
    table = np.sort(rng.random(1 << 20, np.float32))
    rows = floats[: count >> 10 << 10].reshape(-1, 1 << 10)
    few = rng.integers(0, 1000, count).astype(np.int32)
    calls = [
        Case(
            "run_length_encode, runs of 8",
            (runs,),
            lambda x: gs.run_length_encode(x)[1],
            lambda x: np.diff(np.append(np.flatnonzero(np.append(True, x[1:] != x[:-1])), x.size)),
            lambda t, x: t.unique_consecutive(x, return_counts=True),
        ),
        Case(
            "run_length_encode, runs of 1",
            (words,),
            lambda x: gs.run_length_encode(x)[0],
            lambda x: x[np.append(True, x[1:] != x[:-1])],
            lambda t, x: t.unique_consecutive(x.view(t.int32), return_counts=True),
        ),
        Case(
            "partition_by, half",
            (floats, mask),
            lambda x, m: gs.partition_by(x, m)[1],
            lambda x, m: x[~m],
            lambda t, x, m: (x[m], x[~m]),
        ),
        Case(
            "unique_counts, random words",
            (words,),
            lambda x: gs.unique_counts(x)[0],
            lambda x: np.unique(x),
            lambda t, x: t.unique(x.view(t.int32), return_counts=True),
            lambda c, x: c.unique(x, return_counts=True),
        ),
        Case(
            "unique_counts, 1000 values",
            (few,),
            lambda x: gs.unique_counts(x)[1],
            lambda x: np.unique(x, return_counts=True)[1],
            lambda t, x: t.unique(x, return_counts=True),
            lambda c, x: c.unique(x, return_counts=True),
        ),
        Case(
            "sort, for comparison",
            (words,),
            gs.sort,
            np.sort,
            lambda t, x: t.sort(x.view(t.int32)),
            lambda c, x: c.sort(x),
        ),
        Case(
            "searchsorted in 2^20",
            (table, floats),
            gs.searchsorted,
            np.searchsorted,
            lambda t, a, v: t.searchsorted(a, v),
            lambda c, a, v: c.searchsorted(a, v),
        ),
        Case(
            "top_k, 100",
            (floats,),
            lambda x: gs.top_k(x, 100)[0],
            lambda x: np.sort(np.partition(x, x.size - 100)[-100:])[::-1],
            lambda t, x: t.topk(x, 100),
        ),
        Case(
            "top_k of rows of 2^10, 10",
            (rows,),
            lambda x: gs.top_k(x, 10)[0],
            lambda x: np.sort(np.partition(x, 1014, axis=1)[:, -10:], axis=1)[:, ::-1],
            lambda t, x: t.topk(x, 10),
        ),
        Case("median", (floats,), gs.median, np.median, lambda t, x: t.median(x), lambda c, x: c.median(x)),
        Case(
            "repeat, by 0 to 3",
            (floats[: count // 2], rng.integers(0, 4, count // 2).astype(np.int32)),
            gs.repeat,
            np.repeat,
            lambda t, x, r: t.repeat_interleave(x, r),
        ),
    ]
    for name, values in (
        ("random", floats),
        ("all equal", np.full(count, 0.3, np.float32)),
        ("sorted", np.sort(floats)),
        ("skewed", floats**8),
    ):
        calls.append(
            Case(
                f"histogram, 256 bins, {name}",
                (values,),
                lambda x: gs.histogram(x, 256, (0, 1))[0],
                lambda x: np.histogram(x, 256, (0, 1))[0],
                lambda t, x: t.histc(x, 256, 0, 1),
                lambda c, x: c.histogram(x, 256, (0, 1)),
            )
        )
    for most in (10**3, 10**4, 10**5, 10**6):
        for name, labels in labels_of(count, most).items():
            calls.append(
                Case(
                    f"bincount, {most} labels, {name}",
                    (labels,),
                    gs.bincount,
                    np.bincount,
                    lambda t, x: t.bincount(x),
                    lambda c, x: c.bincount(x),
                )
            )
    return calls


def time_peers(case: Case) -> dict[str, float]:
    """Return the seconds of other libraries."""
    peers = {}
    if case.arrays[0].size <= NUMPY_LIMIT:
        peers["NumPy"] = wall_time(lambda: case.check(*case.arrays), repeats=1)
    try:
        torch = need("torch")
    except Unsupported:
        return peers
    if not torch.cuda.is_available():
        return peers
    tensors = [
        torch.from_numpy(array.view(np.int32) if array.dtype == np.uint32 else array).cuda() for array in case.arrays
    ]
    if (in_torch := case.torch) is not None:
        peers["PyTorch"] = wall_time(lambda: in_torch(torch, *tensors), torch.cuda.synchronize)
    try:
        cupy = need("cupy")
    except Unsupported:
        return peers
    if (in_cupy := case.cupy) is not None:
        arrays = [cupy.asarray(tensor).view(array.dtype) for tensor, array in zip(tensors, case.arrays, strict=True)]
        peers["CuPy"] = wall_time(lambda: in_cupy(cupy, *arrays), torch.cuda.synchronize)
    return peers


def measure(figures: FigureList, timer: GpuTimer, case: Case) -> dict[str, float]:
    """Measure a case, once its result was checked, and return the seconds of each stage."""
    arrays = [timer.device.asarray(array) for array in case.arrays]
    if not np.array_equal(np.asarray(case.call(*arrays)), case.check(*case.arrays)):
        raise SystemExit(f"{case.name}: wrong result")
    stages = gpu_times(timer.device, lambda: case.call(*arrays))
    copied = timer.time_copy(2 * max(array.nbytes for array in arrays))
    figures.add(case.name, "gpuscan", sum(stages.values()), copied)
    for name, seconds in time_peers(case).items():
        figures.add(case.name, name, seconds, copied)
    return stages


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--log", type=int, default=22, help="of the number of elements")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="measure only rows with one of these parts in their names"
    )
    parser.add_argument("--stages", action="store_true", help="print the time of each stage")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    figures, timer = FigureList(device), GpuTimer(device, WARM_SECONDS)
    for case in cases(1 << arguments.log):
        if not any(part in case.name for part in arguments.only):
            continue
        stages = measure(figures, timer, case)
        if arguments.stages:
            print("   ", "  ".join(f"{stage} {seconds * 1e3:.3f}" for stage, seconds in stages.items()))
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
