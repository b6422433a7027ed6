"""Counts the different results of many runs of a float32 sum, and times reproducible="everywhere" and the default.

Every run must give the same bits, under every strategy. The digest of ``everywhere`` is the same on every device. With
--cost, scans of arrays on the device are timed instead, with and without the option.

Run:  python benchmarks/reproducible.py [--runs 1000] [--size 20] [--device SUBSTRING]
      python benchmarks/reproducible.py --cost [--size 25] [--device SUBSTRING] [--json FILE]
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import gpuscan as gs
from elements import affine
from figures import FigureList, option_parser
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.problem.problem import make_problem
from gpuscan.tools.bench.timing import GpuTimer
from recorded import RecordedScan, plan_of_problem


def count_results(device: gs.Device, size: int, runs: int) -> None:
    """Print the number of different results under each strategy, and of ``everywhere``."""
    numbers = np.random.default_rng(0).standard_normal(1 << size).astype(np.float32)
    x = device.asarray(numbers)
    seen: set[str] = set()
    for strategy in STRATEGIES:
        if reason := unsafe_reason(strategy, device.capabilities):
            print(f"{strategy:15} refused: {reason}")
            continue
        bits = {digest(gs.scan(x, strategy=strategy)) for _ in range(runs)}
        seen |= bits
        print(f"{strategy:15} {runs} runs, {len(bits)} set of bits", flush=True)
    print(f"all strategies: {len(seen)} set of bits")
    bits = {digest(gs.scan(x, reproducible="everywhere")) for _ in range(runs)}
    bits |= {digest(gs.scan(numbers, reproducible="everywhere", device="numpy"))}
    print(f"everywhere, with NumPy: {len(bits)} set of bits, {min(bits)[:16]}")


def digest(result: Any) -> str:
    content = result.numpy() if isinstance(result, gs.Array) else result
    return hashlib.sha256(content.tobytes()).hexdigest()


def time_costs(device: gs.Device, size: int) -> FigureList:
    """Return the times of scans and a reduction with and without the option."""
    figures, timer, rng = FigureList(device), GpuTimer(device), np.random.default_rng(0)
    strategy, _ = device._context.strategy()
    x = rng.standard_normal(1 << size).astype(np.float32)
    cases: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("sums of float32", x, "add", {}),
        ("products of float32", x, "multiply", {}),
        ("sums of float16", x.astype(np.float16), "add", {}),
        ("sums in rows of 1,000", x[: len(x) // 1000 * 1000].reshape(-1, 1000), "add", {"axis": 1}),
        (f"sums of 2^{size - 5} elements", x[: len(x) >> 5], "add", {}),
    ]
    for least in (0.9999, 0.5):
        gates = rng.uniform(least, 1, 1 << size).astype(np.float32)
        cases.append((f"linear recurrences, gates of {least} to 1", (gates, x), affine, {}))
    for name, array, op, options in cases:
        for reproducible in (None, "everywhere"):
            problem = make_problem(array, op, reproducible=reproducible, **options)
            sources = [device.asarray(leaf) for leaf in problem.leaves]
            results = [device.empty((*problem.shape, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
            moved = sum(operand.nbytes for operand in (*sources, *results))
            copied = timer.time_copy(moved)
            plan = plan_of_problem(device, problem, strategy)
            taken = timer.time_recording(RecordedScan(device, plan, sources, results))
            figures.add(name, reproducible or "default", taken, copied)
    numbers = device.asarray(x)
    copied = timer.time_copy(x.nbytes)
    for reproducible in (None, "everywhere"):
        taken = timer.time_call(lambda option=reproducible: gs.reduce(numbers, reproducible=option))
        figures.add("a reduction to one sum", reproducible or "default", taken, copied)
    return figures


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=20, help="power of two")
    parser.add_argument("--cost", action="store_true", help="time scans instead")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    if arguments.cost:
        time_costs(device, arguments.size).write(arguments.json)
    else:
        print(device, device.capabilities.driver)
        count_results(device, arguments.size, arguments.runs)


if __name__ == "__main__":
    main()
