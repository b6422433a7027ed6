"""GPU time of segmented scans and of compaction, beside the scan without segments and a copy of the same bytes.

Run:  python benchmarks/cuts.py [--log 26] [--segments 1000000] [--density 0.5] [--device SUBSTRING]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.api import compact as compaction
from gpuscan.engine.device_arrays import parts
from gpuscan.engine.host_arrays import planned
from gpuscan.engine.record import record
from gpuscan.engine.segment_heads import mark
from gpuscan.planning.kernel_parts import Placement
from gpuscan.problem.problem import Problem, pose
from gpuscan.tools.bench.buffers import place, release
from gpuscan.tools.bench.copying import VECTOR_BYTES, copy_recording
from gpuscan.tools.bench.timing import GpuTimer

REPEATS = 9


def beside_seconds(device: gs.Device, call: Callable[[], Any], stage: str) -> float:
    """The least GPU time of a stage beside the scan's: what a call does on the CPU lets the GPU's clocks fall."""
    taken = []
    for _ in range(REPEATS):
        with device.profile() as profile:
            call()
        taken += [span.gpu_seconds for span in profile.spans if span.stage == stage]
    return min(seconds for seconds in taken if seconds is not None)


def scan_seconds(timer: GpuTimer, problem: Problem, sources: list[gs.Array], **beside: gs.Array) -> float:
    """The median GPU time of the problem's scan of arrays on the device."""
    device = timer.device
    plan = planned(device, problem, "auto", placement=Placement(), subgroups=True)
    fields = problem.destination.fields
    targets = [device.empty((problem.size, *f.shape), f.scalar.dtype) for f in fields]
    others = dict(zip(beside, parts([*beside.values()]), strict=True))

    def recording(encoder: Any, writes: Any) -> None:
        record(device, plan, encoder, parts(sources), parts(targets), timestamps=writes, beside=others)

    return timer.seconds(recording)


def copy_seconds(timer: GpuTimer, moved: int) -> float:
    """The median GPU time of a copy that reads and writes so many bytes together."""
    half = moved // 2 // VECTOR_BYTES * VECTOR_BYTES
    buffers = [place(timer.device, None, half), place(timer.device, None, half)]
    taken = timer.seconds(copy_recording(timer.device, *buffers, half // VECTOR_BYTES))
    release(buffers)
    return taken


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
    plain = scan_seconds(timer, posed(x), [on_device])
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
        problem = posed(x, **options)
        assert problem.heads is not None
        taken = scan_seconds(timer, problem, [on_device], heads=mark(device, problem.heads))
        taken += beside_seconds(device, lambda options=options: gs.scan(on_device, **options), f"mark_{name}")
        report(f"{arguments.segments} {name}", taken, moved, copied, f", {taken / plain:.2f} of the scan without")

    mask = rng.random(length) < arguments.density
    mask_there = device.asarray(mask)
    if not np.array_equal(np.asarray(gs.compact(on_device, mask_there)), x[mask]):
        raise SystemExit("compact: wrong elements")
    moved = x.nbytes + mask.nbytes + 4 * int(np.count_nonzero(mask))
    problem = compaction.problem_of([compaction.words_of(on_device)], mask_there)
    taken = scan_seconds(timer, problem, list(problem.leaves), count=device.asarray(np.zeros(1, np.uint32)))
    report(f"compact, density {arguments.density}", taken, moved, copy_seconds(timer, moved))


def posed(x: Any, **options: Any) -> Problem:
    return pose(x, "add", axis=0, **options)


if __name__ == "__main__":
    main()
