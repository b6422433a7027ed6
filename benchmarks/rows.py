"""GPU time of scans along rows, forwards and backwards, compared with a copy of the same bytes.

Run:  python benchmarks/rows.py [--log 26] [--device SUBSTRING]

Rows of 256 elements and more have tiles of their own. Shorter rows share tiles; some are whole chunks, some are not.
"""

from __future__ import annotations

import argparse

import numpy as np

import gpuscan as gs
from gpuscan.tools.bench.timing import GpuTimer

CASES = [(1024, "float32"), (256, "float32"), (64, "float32"), (63, "float32"), (64, "float16"), (63, "float16")]
CASES += [(100, "int16"), (64, "uint8"), (100, "uint8"), (99, "uint8")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=26, help="of the number of elements, about")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device)
    print(device, device.capabilities.driver)
    for length, dtype in CASES:
        x = np.random.default_rng(0).integers(0, 4, ((1 << arguments.log) // length, length)).astype(dtype)
        array = device.asarray(x)
        copied = timer.time_copy(2 * x.nbytes)
        taken = []
        for reverse in (False, True):
            wanted = np.cumsum(x[:, ::-1] if reverse else x, axis=1, dtype=x.dtype)
            got = gs.scan(array, axis=1, reverse=reverse).numpy()
            if not np.array_equal(got, wanted[:, ::-1] if reverse else wanted):
                raise SystemExit(f"{x.shape} {dtype}, reverse={reverse}: wrong sums")
            taken.append(timer.time_call(lambda a=array, r=reverse: gs.scan(a, axis=1, reverse=r)))
        shares = [f"{seconds * 1e6:8.1f} us ({copied / seconds:.2f})" for seconds in taken]
        name = f"{len(x):8} x {length:4} {dtype:8}"
        print(f"{name} copy {copied * 1e6:8.1f} us, forwards {shares[0]}, backwards {shares[1]}", flush=True)


if __name__ == "__main__":
    main()
