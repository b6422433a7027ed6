"""Counts the different results of many runs of a float32 sum, under every strategy: 1 is right.

Run:  python benchmarks/reproducible.py [--runs 1000] [--size 20] [--device SUBSTRING]
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np

import gpuscan as gs
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--size", type=int, default=20, help="power of two")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    print(device, device.capabilities.driver)
    x = device.asarray(np.random.default_rng(0).standard_normal(1 << arguments.size).astype(np.float32))
    seen: set[str] = set()
    for strategy in STRATEGIES:
        if reason := unsafe_reason(strategy, device.capabilities):
            print(f"{strategy:15} refused: {reason}")
            continue
        bits = {
            hashlib.sha256(gs.scan(x, strategy=strategy).numpy().tobytes()).hexdigest() for _ in range(arguments.runs)
        }
        seen |= bits
        print(f"{strategy:15} {arguments.runs} runs, {len(bits)} set of bits", flush=True)
    print(f"all strategies: {len(seen)} set of bits")


if __name__ == "__main__":
    main()
