"""GPU time of sorts of arrays on the device, and of NumPy's. With CUDA, also of PyTorch's and CuPy's, which use CUB.

The GPU is busy for half a second before each line.

Run:  python benchmarks/sorts.py [--logs 20 24 28] [--device SUBSTRING] [--stages] [--json FILE]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.contenders import Unsupported
from gpuscan.tools.bench.peers import need
from gpuscan.tools.bench.timing import GpuTimer

# Elements up to which NumPy is timed as well.
NUMPY_LIMIT = 1 << 24
# Seconds of the same call before it is measured: an idle GPU lowers its clocks.
WARM_SECONDS = 0.5
# Calls between two waits before the time of stages is measured, so that the GPU is not idle meanwhile.
WARM_CALLS = 20


def warm(call: Callable[[], Any], wait: Callable[[], Any], calls: int = 1) -> None:
    """Make a call again and again, for `WARM_SECONDS` at least, and wait after each number of calls."""
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        for _ in range(calls):
            call()
        wait()


def gpu_times(device: gs.Device, call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Return the seconds of each stage of a call. Of several runs it is the one with the median sum."""
    warm(call, device.synchronize, WARM_CALLS)
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        with device.profile() as profile:
            call()
            device.synchronize()
        stages: dict[str, float] = {}
        for span in profile.spans:
            stages[span.stage] = stages.get(span.stage, 0.0) + (span.gpu_seconds or 0.0)
        runs.append(stages)
    return sorted(runs, key=lambda stages: sum(stages.values()))[repeats // 2]


def wall_time(call: Callable[[], Any], wait: Callable[[], Any] = lambda: None, repeats: int = 5) -> float:
    """Return the median seconds of a call, by the wall clock."""
    if repeats > 1:
        warm(call, wait)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def time_peers(figures: FigureList, x: np.ndarray[Any, Any], keys: str, indices: str) -> None:
    """Time the sorts of other libraries, as the cases `keys` and `indices`."""
    if len(x) <= NUMPY_LIMIT:
        figures.add(keys, "NumPy", wall_time(lambda: np.sort(x, kind="stable"), repeats=1))
    try:
        torch, cupy = need("torch"), need("cupy")
    except Unsupported as reason:
        print(f"  {reason}")
        return
    if not torch.cuda.is_available():
        return
    tensor = torch.from_numpy(x.view(np.int32)).cuda()
    wait = torch.cuda.synchronize
    figures.add(indices, "PyTorch", wall_time(lambda: torch.sort(tensor, stable=True), wait))
    array = cupy.asarray(tensor).view(x.dtype)
    figures.add(keys, "CUB", wall_time(lambda: cupy.sort(array), wait))
    figures.add(indices, "CUB", wall_time(lambda: cupy.argsort(array), wait))


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--logs", type=int, nargs="+", default=[16, 20, 24], help="of the numbers of keys")
    parser.add_argument("--stages", action="store_true", help="print the time of each stage")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    figures, timer = FigureList(device), GpuTimer(device)
    rng = np.random.default_rng(0)
    for log in arguments.logs:
        for dtype in (np.uint32, np.float32):
            x = rng.integers(0, 2**32, 1 << log, dtype=np.uint32) if dtype == np.uint32 else rng.random(1 << log, dtype)
            keys = device.asarray(x)
            values = device.asarray(np.arange(len(x), dtype=np.uint32))
            labels = device.asarray(rng.integers(0, 1000, len(x), dtype=np.uint32))
            sort, by_key, argsort, groups = (
                f"{what}, 2^{log} `{np.dtype(dtype)}`"
                for what in ("sort", "sort by key", "indices", "sums by 1,000 groups")
            )
            copied = timer.time_copy(2 * x.nbytes)
            calls: dict[str, Callable[[], Any]] = {
                sort: lambda keys=keys: gs.sort(keys),
                by_key: lambda keys=keys, values=values: gs.sort_by_key(keys, values),
                argsort: lambda keys=keys: gs.argsort(keys),
                groups: lambda keys=keys, labels=labels: gs.scan(keys, groups=labels),
            }
            step = max(1, len(x) >> 16)
            if not np.array_equal(np.asarray(gs.sort(keys)[::step]), np.sort(x)[::step]):
                raise SystemExit("gs.sort: wrong order")
            for name, call in calls.items():
                stages = gpu_times(device, call)
                figures.add(name, "gpuscan", sum(stages.values()), copied)
                if arguments.stages:
                    print("   ", "  ".join(f"{stage} {seconds * 1e3:.3f}" for stage, seconds in stages.items()))
            time_peers(figures, x, sort, argsort)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
