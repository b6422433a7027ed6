"""Counts the different results of many runs of a float32 sum, and times reproducible="everywhere" and the default.

Every run must give the same bits, under every strategy. The digest of ``everywhere`` is the same on every device. With
--cost, scans of arrays on the device are timed instead, with and without the option. Their times are printed as ratios
to the time of a copy of the same bytes.

Run:  python benchmarks/reproducible.py [--runs 1000] [--size 20] [--device SUBSTRING] [--cost]
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import numpy as np

import gpuscan as gs
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


def digest(found: Any) -> str:
    content = found.numpy() if isinstance(found, gs.Array) else found
    return hashlib.sha256(content.tobytes()).hexdigest()


def affine(left: Any, right: Any) -> Any:
    """Compose maps ``x -> a x + b``."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def time_costs(device: gs.Device, size: int) -> None:
    """Print the time of scans with and without the option."""
    timer, rng = GpuTimer(device), np.random.default_rng(0)
    strategy, _ = device._context.strategy()
    x = rng.standard_normal(1 << size).astype(np.float32)
    pair = (rng.uniform(-1, 1, 1 << size).astype(np.float32), x)
    cases: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("sums of float32", x, "add", {}),
        ("products of float32", x, "multiply", {}),
        ("sums of float16", x.astype(np.float16), "add", {}),
        ("sums in rows of 1000", x[: len(x) // 1000 * 1000].reshape(-1, 1000), "add", {"axis": 1}),
        ("linear recurrences", pair, affine, {}),
    ]
    for name, array, op, options in cases:
        for reproducible in (None, "everywhere"):
            problem = make_problem(array, op, reproducible=reproducible, **options)
            sources = [device.asarray(leaf) for leaf in problem.leaves]
            results = [device.empty((*problem.shape, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
            moved = sum(each.nbytes for each in (*sources, *results))
            copied = timer.time_copy(moved)
            plan = plan_of_problem(device, problem, strategy)
            taken = timer.time_recording(RecordedScan(device, plan, sources, results))
            print(
                f"{name:22} {reproducible or 'default':10} {plan.strategy:14} {taken * 1e6:9.1f} us, "
                f"{taken / copied:.2f} copies",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=20, help="power of two")
    parser.add_argument("--device")
    parser.add_argument("--cost", action="store_true", help="time scans instead")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    print(device, device.capabilities.driver)
    if arguments.cost:
        time_costs(device, arguments.size)
    else:
        count_results(device, arguments.size, arguments.runs)


if __name__ == "__main__":
    main()
