"""GPU times of the functions that count, rank and select, compared with a copy of the input, NumPy, PyTorch and CuPy.

Each row says how long a call takes on the GPU, its speed as a share of the speed of a copy or a read, and the times of
the other libraries. The GPU is busy for half a second before each row.

Run:  python benchmarks/counting.py [--log 26] [--device SUBSTRING] [--only NAME ...] [--stages] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gpuscan as gs
from benchmarks.sorts import NUMPY_LIMIT, gpu_times, wall_time
from gpuscan.tools.bench.contenders import Unsupported
from gpuscan.tools.bench.peers import need

Array = np.ndarray[Any, Any]


@dataclass
class Row:
    """One measured call.

    Attributes:
        name: the function and its input.
        elements: the elements of the input.
        seconds: of the GPU.
        of_copy: the time of a copy of the input, in shares of this time.
        of_read: the time of a reduction of the input, in shares of this time.
        stages: the seconds of each stage.
        peers: the seconds of other libraries, by their names.
    """

    name: str
    elements: int
    seconds: float
    of_copy: float
    of_read: float
    stages: dict[str, float] = field(default_factory=dict)
    peers: dict[str, float] = field(default_factory=dict)


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
    found = [
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
        found.append(
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
            found.append(
                Case(
                    f"bincount, {most} labels, {name}",
                    (labels,),
                    gs.bincount,
                    np.bincount,
                    lambda t, x: t.bincount(x),
                    lambda c, x: c.bincount(x),
                )
            )
    return found


def time_peers(case: Case) -> dict[str, float]:
    """Return the seconds of other libraries."""
    peers = {}
    if case.arrays[0].size <= NUMPY_LIMIT:
        peers["numpy"] = wall_time(lambda: case.check(*case.arrays), repeats=1)
    try:
        torch = need("torch")
    except Unsupported:
        return peers
    if not torch.cuda.is_available():
        return peers
    tensors = [
        torch.from_numpy(each.view(np.int32) if each.dtype == np.uint32 else each).cuda() for each in case.arrays
    ]
    if (in_torch := case.torch) is not None:
        peers["torch"] = wall_time(lambda: in_torch(torch, *tensors), torch.cuda.synchronize)
    try:
        cupy = need("cupy")
    except Unsupported:
        return peers
    if (in_cupy := case.cupy) is not None:
        arrays = [cupy.asarray(tensor).view(each.dtype) for tensor, each in zip(tensors, case.arrays, strict=True)]
        peers["cupy"] = wall_time(lambda: in_cupy(cupy, *arrays), torch.cuda.synchronize)
    return peers


def measure(device: gs.Device, case: Case) -> Row:
    """Return the row of a case, once its result was checked."""
    arrays = [device.asarray(each) for each in case.arrays]
    if not np.array_equal(np.asarray(case.call(*arrays)), case.check(*case.arrays)):
        raise SystemExit(f"{case.name}: wrong result")
    stages = gpu_times(device, lambda: case.call(*arrays))
    seconds = sum(stages.values())
    main = max(arrays, key=lambda array: array.nbytes)
    flat = main.reshape(-1)
    words = flat._view_as((flat.nbytes // 4,), np.uint32)
    copy = sum(gpu_times(device, lambda: gs.map(lambda v: v, words)).values())
    read = sum(gpu_times(device, lambda: gs.reduce(words)).values())
    return Row(case.name, main.size, seconds, copy / seconds, read / seconds, stages, time_peers(case))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=22, help="of the number of elements")
    parser.add_argument("--device")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="measure only rows with one of these parts in their names"
    )
    parser.add_argument("--stages", action="store_true", help="print the time of each stage")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    print(device, device.capabilities.driver)
    rows = []
    for case in cases(1 << arguments.log):
        if not any(part in case.name for part in arguments.only):
            continue
        row = measure(device, case)
        rows.append(row)
        others = "  ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in row.peers.items())
        shares = f"copy / it {row.of_copy:5.2f}  read / it {row.of_read:5.2f}"
        print(f"{row.name:40} {row.seconds * 1e3:9.3f} ms  {shares}  {others}", flush=True)
        if arguments.stages:
            print("    " + "  ".join(f"{stage} {seconds * 1e3:.3f}" for stage, seconds in row.stages.items()))
    if arguments.json:
        record = {"device": device.capabilities.summary, "driver": device.capabilities.driver}
        arguments.json.write_text(json.dumps(record | {"rows": [asdict(row) for row in rows]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
