"""GPU time of `fallback` if some tiles never post: a test build withholds the posts of every 64th, 7th or 2nd tile.

Run:  python benchmarks/withheld.py [--sizes 25,28] [--device SUBSTRING]

A line each: the time, the share of a copy of the same bytes, and the share of the speed where nothing is withheld.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.problem.problem import make_problem
from gpuscan.tools.bench.timing import GpuTimer
from recorded import RecordedScan, plan_of_problem

# The distance of two tiles that withhold their posts; 0 withholds nothing.
PERIODS = (0, 64, 7, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="25,28", help="powers of two")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    timer = GpuTimer(device)
    print(device, device.capabilities.driver)
    for exponent in map(int, arguments.sizes.split(",")):
        measure(timer, np.random.default_rng(0).integers(0, 2**32, 1 << exponent, dtype=np.uint32))


def measure(timer: GpuTimer, x: np.ndarray[Any, Any]) -> None:
    """Time every period on this array, check the last sum, and print a line each."""
    device = timer.device
    problem = make_problem(x, "add", axis=0)
    array, result = device.asarray(x), device.empty(x.shape, x.dtype)
    last = np.sum(x, dtype=np.uint32)
    copied = timer.time_copy(2 * x.nbytes)
    unblocked = 0.0
    for period in PERIODS:
        plan = plan_of_problem(device, problem, "fallback", test_build=InjectedFaults(period))
        taken = timer.time_recording(RecordedScan(device, plan, [array], [result]))
        last_result = result[-1:].numpy()[0]
        unblocked = unblocked or taken
        what = f"every {period}th post withheld" if period else "unblocked"
        print(
            f"{len(x)} elements, {what:26} {taken * 1e6:9.1f} us {copied / taken:.3f} of the copy "
            f"{unblocked / taken:.3f} of unblocked {'' if last_result == last else 'WRONG'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
