"""GPU time of chosen strategies and tiles, compared with a copy of the same bytes; a line each as soon as it is known.

Run:  python benchmarks/kernels.py [--dtype uint32] [--op add] [--sizes 16,20,22,25,28] [--strategies lookback,fallback]
          [--tile 256,32,12,4 …] [--device SUBSTRING]

`--tile` is workgroup size, subgroup size, steps, chunk and, if not 1, bands. It may be given more than once. Strategies
that the probe found unsafe may be given too. ``gpuscan bench`` runs the same code, with other libraries and plots.
"""

from __future__ import annotations

import argparse

import numpy as np

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.tools.bench.results import COPY, Measurement
from gpuscan.tools.bench.session import Request
from gpuscan.tools.bench.suite import run_suite
from gpuscan.tools.bench.tables import verdict
from gpuscan.tools.bench.timer import GpuTimer


def tile_from(text: str) -> TileShape:
    """Read the shape of a tile from the command line."""
    numbers = [int(number) for number in text.split(",")]
    return TileShape(*numbers[:4], bands=(numbers[4:] or [1])[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="uint32")
    parser.add_argument("--op", default="add")
    parser.add_argument("--sizes", default="16,20,22,25,28", help="powers of two")
    parser.add_argument("--tile", action="append", default=[], help="W,S,STEPS,CHUNK[,BANDS]")
    parser.add_argument("--strategies", default="lookback,fallback,three_dispatch")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    print(device, device.capabilities.driver)
    timer = GpuTimer(device)
    request = Request(
        ops=[arguments.op],
        dtypes=[np.dtype(arguments.dtype)],
        sizes=[1 << int(exponent) for exponent in arguments.sizes.split(",")],
        strategies=arguments.strategies.split(","),
        tiles=[tile_from(text) for text in arguments.tile] or [None],
    )
    copied: dict[object, float] = {}

    def show(m: Measurement) -> None:
        name = f"{m.case.size} {m.case.series} copy" if m.library == COPY else f"    {m.name:15}"
        if m.seconds is None:
            print(f"{name} {m.note}", flush=True)
            return
        name = f"{name} {m.note}"
        if m.library == COPY:
            copied[m.case] = m.seconds
        share = copied.get(m.case, 0.0) / m.seconds
        speed = m.case.moved_bytes / m.seconds / 1e9
        print(
            f"{name:40} {m.seconds * 1e6:9.1f} us {speed:7.1f} GB/s {share:6.3f} of the copy  {verdict(m)}", flush=True
        )

    run_suite(request.cases(device), lambda case: request.contenders(device, timer, case), each=show)


if __name__ == "__main__":
    main()
