"""GPU time of segmented scans and of compaction, compared with the plain scan and with a copy of the same bytes.

Run:  python benchmarks/cuts.py [--log 26] [--segments 1000000] [--density 0.5] [--device SUBSTRING]
"""

from __future__ import annotations

import argparse

import numpy as np

import gpuscan as gs
from gpuscan.tools.bench.calls import call_seconds
from gpuscan.tools.bench.copies import copy_seconds
from gpuscan.tools.bench.timer import GpuTimer


def report(name: str, taken: float, moved: int, copied: float, more: str = "") -> None:
    print(
        f"{name:34} {taken * 1e6:9.1f} us {moved / taken / 1e9:7.0f} GB/s {copied / taken:.3f} of the copy{more}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=26, help="of the number of elements")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--density", type=float, default=0.5, help="share of the elements that compaction keeps")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device)
    print(device, device.capabilities.driver)
    rng = np.random.default_rng(0)
    length = 1 << arguments.log
    x = rng.integers(0, 2**32, length, dtype=np.uint32)
    on_device = device.asarray(x)

    moved = 2 * x.nbytes
    copied = copy_seconds(timer, moved)
    plain = call_seconds(device, lambda: gs.scan(on_device))
    report("scan", plain, moved, copied)
    cuts = np.sort(rng.integers(0, length + 1, arguments.segments - 1))
    offsets = np.concatenate([[0], cuts, [length]])
    keys = np.repeat(np.arange(arguments.segments, dtype=np.uint32), np.diff(offsets))
    sums = np.cumsum(x, dtype=np.uint32)
    before = np.where(offsets[:-1] > 0, sums[offsets[:-1] - 1], 0)
    wanted = sums - np.repeat(before, np.diff(offsets))
    keys_there = device.asarray(keys)
    for name, options in (("segments", {"segments": offsets}), ("keys", {"keys": keys_there})):
        if not np.array_equal(np.asarray(gs.scan(on_device, **options)), wanted):
            raise SystemExit(f"{name}: wrong sums")
        taken = call_seconds(device, lambda options=options: gs.scan(on_device, **options))
        report(f"{arguments.segments} {name}", taken, moved, copied, f", {taken / plain:.2f} of the scan without")

    mask = rng.random(length) < arguments.density
    mask_there = device.asarray(mask)
    if not np.array_equal(np.asarray(gs.compact(on_device, mask_there)), x[mask]):
        raise SystemExit("compact: wrong elements")
    moved = x.nbytes + mask.nbytes + 4 * int(np.count_nonzero(mask))
    taken = call_seconds(device, lambda: gs.compact(on_device, mask_there))
    report(f"compact, density {arguments.density}", taken, moved, copy_seconds(timer, moved))


if __name__ == "__main__":
    main()
