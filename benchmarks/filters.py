"""Time of `gpuscan.signal.lfilter` compared with `scipy.signal.lfilter`, for Butterworth filters of some orders.

Run:  python benchmarks/filters.py [--device SUBSTRING] [--samples 100000000] [--orders 1,2,4]

"device" is the GPU time of a call on an array of the device, and its share of the speed of a copy of the signal.
"NumPy" is the wall-clock time of a call from NumPy to NumPy. SciPy filters float32 in one thread, with coefficients of
float32.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.signal

import gpuscan as gs
from gpuscan import signal
from gpuscan.tools.bench.timing import GpuTimer, wall_seconds

CUTOFF = 0.1
# This many samples from the beginning are compared with SciPy in float64. The tolerance is relative to the largest.
CHECKED, TOLERANCE = 100_000, 1e-4
WARM_SECONDS = 0.5
# The number of timed calls. Their median is printed.
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--orders", default="1,2,4")
    arguments = parser.parse_args()
    # Filters of NumPy arrays run on the default device.
    device = gs.default_device() if arguments.device is None else gs.Device(arguments.device)
    print(device, device.capabilities.driver)
    x = np.random.default_rng(0).standard_normal(arguments.samples, dtype=np.float32)
    signal_on_device = device.asarray(x)
    timer = GpuTimer(device, WARM_SECONDS)
    copied = timer.time_copy(2 * x.nbytes)

    def wall(function: Any) -> float:
        return wall_seconds(function, WARM_SECONDS, REPEATS)

    for order in map(int, arguments.orders.split(",")):
        b, a = scipy.signal.butter(order, CUTOFF)
        narrow = b.astype(np.float32), a.astype(np.float32)
        wanted = scipy.signal.lfilter(b, a, x[:CHECKED].astype(np.float64))
        filtered = np.asarray(signal.lfilter(b, a, signal_on_device)[:CHECKED])
        if not np.abs(filtered - wanted).max() <= TOLERANCE * np.abs(wanted).max():
            raise SystemExit("wrong results")
        on_device = timer.time_call(lambda b=b, a=a: signal.lfilter(b, a, signal_on_device))
        line = f"order {order}: device {on_device * 1e3:8.2f} ms, {copied / on_device:.2f} of a copy"
        if arguments.device is None:
            ours = wall(lambda b=b, a=a: signal.lfilter(b, a, x))
            theirs = wall_seconds(lambda narrow=narrow: scipy.signal.lfilter(*narrow, x), 0, 1)
            line += f"; NumPy {ours * 1e3:8.1f} ms; SciPy {theirs * 1e3:8.1f} ms, {theirs / ours:.1f} times that"
        print(line, flush=True)


if __name__ == "__main__":
    main()
