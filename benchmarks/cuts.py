"""GPU time of scans and reductions by segments, keys and groups, and of compaction, compared with a copy and others.

The GPU is busy for half a second before each line. CUB's InclusiveScanByKey and ReduceByKey are measured if there is an
nvcc, and NumPy and pandas on the CPU.

Run:  python benchmarks/cuts.py [--log 26] [--segments 1000000] [--groups 1000] [--density 0.5] [--device SUBSTRING]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gpuscan as gs
from gpuscan.tools.bench.timing import GpuTimer

SOURCE = Path(__file__).with_name("cuts.cu")
# How often a call on the CPU is repeated unless it takes longer than a second. The fastest one counts.
CPU_CALLS = 3
# Seconds of the same call before it is measured: an idle GPU lowers its clocks.
WARM_SECONDS = 0.5


def report(name: str, taken: float, moved: int, copied: float, more: str = "") -> None:
    print(
        f"{name:34} {taken * 1e6:9.1f} us {moved / taken / 1e9:7.1f} GB/s {copied / taken:.3f} of the copy{more}",
        flush=True,
    )


def cut_places(rng: np.random.Generator, length: int, segments: int) -> np.ndarray[Any, Any]:
    cuts = np.sort(rng.integers(0, length + 1, segments - 1))
    return np.concatenate([[0], cuts, [length]])


def scans(device: gs.Device, timer: GpuTimer, shape: tuple[int, ...], axis: int, segments: int) -> None:
    """Compare scans by offsets and by keys with the scan of the same shape that is not cut."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32)
    there, moved = device.asarray(x), 2 * x.nbytes
    copied = timer.time_copy(moved)
    plain = timer.time_call(lambda: gs.scan(there, axis=axis))
    report(f"scan of {shape}, axis {axis}", plain, moved, copied)
    offsets = cut_places(rng, shape[axis], segments)
    row = np.repeat(np.arange(segments, dtype=np.uint32), np.diff(offsets))
    cuts: dict[str, dict[str, Any]] = {"offsets": {"segments": offsets}, "keys of a row": {"keys": device.asarray(row)}}
    if len(shape) > 1:
        own = np.broadcast_to(np.expand_dims(row, [i for i in range(len(shape)) if i != axis]), shape)
        cuts["keys of each element"] = {"keys": device.asarray(own)}
    wanted = gs.scan(x, axis=axis, segments=offsets, device="numpy") if x.size <= 1 << 22 else None
    for name, options in cuts.items():
        got = np.asarray(gs.scan(there, axis=axis, **options))
        wanted = got if wanted is None else wanted
        if not np.array_equal(got, wanted):
            raise SystemExit(f"{name}: wrong sums")
        taken = timer.time_call(lambda options=options: gs.scan(there, axis=axis, **options))
        report(f"  {segments} by {name}", taken, moved, copied, f", {taken / plain:.2f} of the scan without")


def reductions(device: gs.Device, timer: GpuTimer, length: int, segments: int) -> None:
    """Compare reductions by offsets and by keys with one of the whole array, and with CUB, NumPy and pandas."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, length, dtype=np.uint32)
    offsets = cut_places(rng, length, segments)
    keys = np.repeat(np.arange(segments, dtype=np.uint32), np.diff(offsets))
    there, keys_there = device.asarray(x), device.asarray(keys)
    copied = timer.time_copy(x.nbytes)
    whole = timer.time_call(lambda: gs.reduce(there))
    report("reduce", whole, x.nbytes, copied)
    sums = np.concatenate([[0], np.cumsum(x, dtype=np.uint32)]).astype(np.uint32)
    wanted = np.diff(sums[offsets])
    if not np.array_equal(np.asarray(gs.reduce(there, segments=offsets)), wanted):
        raise SystemExit("reduce by segments: wrong sums")
    found, results = gs.reduce_by_key(keys_there, there)
    if not np.array_equal(np.asarray(results), wanted[np.diff(offsets) > 0]):
        raise SystemExit("reduce by key: wrong sums")
    taken = timer.time_call(lambda: gs.reduce(there, segments=offsets))
    report(f"  of {segments} segments", taken, x.nbytes, copied, f", {taken / whole:.2f} of the whole")
    taken = timer.time_call(lambda: gs.reduce_by_key(keys_there, there))
    report(f"  by {found.shape[0]} keys", taken, 2 * x.nbytes, copied, f", {taken / whole:.2f} of the whole")
    for name, seconds in cub_seconds(keys).items():
        moved = 3 * x.nbytes if name == "InclusiveScanByKey" else 2 * x.nbytes
        report(f"  CUB {name}", seconds, moved, copied)
    full = offsets[:-1][np.diff(offsets) > 0]
    series = pd.Series(x).groupby(keys, sort=False)
    on_cpu: dict[str, Callable[[], object]] = {
        "np.add.reduceat": lambda: np.add.reduceat(x, full),
        "pandas groupby.sum": series.sum,
        "pandas groupby.cumsum": series.cumsum,
        "np.cumsum": lambda: np.cumsum(x, dtype=np.uint32),
    }
    for name, call in on_cpu.items():
        report(f"  {name} on the CPU", cpu_seconds(call), x.nbytes, copied)


def compare_groups(device: gs.Device, timer: GpuTimer, length: int, groups: int) -> None:
    """Compare scans and reductions by labels in any order with a copy and with plain reductions, for some dtypes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, groups, length, dtype=np.uint32)
    labels_there = device.asarray(labels)
    for dtype in (np.uint32, np.float32):
        x = rng.integers(0, 2, length).astype(dtype)  # sums of float32 are exact
        there = device.asarray(x)
        copied, name = timer.time_copy(2 * x.nbytes), np.dtype(dtype).name
        whole = timer.time_call(lambda there=there: gs.reduce(there))
        series = pd.Series(x).groupby(labels, sort=False)
        sums = np.bincount(labels, x, groups)
        if not np.array_equal(np.asarray(gs.reduce(there, groups=labels_there)), sums):
            raise SystemExit(f"reduce by groups of {name}: wrong sums")
        if not np.array_equal(np.asarray(gs.scan(there, groups=labels_there)), series.cumsum().to_numpy(dtype)):
            raise SystemExit(f"scan by groups of {name}: wrong sums")
        taken = timer.time_call(lambda there=there: gs.scan(there, groups=labels_there))
        report(f"scan by {groups} groups, {name}", taken, 2 * x.nbytes, copied, f", {taken / copied:.2f} copies")
        taken = timer.time_call(lambda there=there: gs.reduce(there, groups=labels_there))
        report(f"reduce by {groups} groups, {name}", taken, x.nbytes, copied, f", {taken / whole:.2f} of the whole")
        on_cpu: dict[str, Callable[[], object]] = {
            "np.bincount": lambda x=x: np.bincount(labels, x, groups),
            "pandas groupby.sum": series.sum,
            "pandas groupby.cumsum": series.cumsum,
        }
        for cpu_name, call in on_cpu.items() if dtype == np.uint32 else ():
            report(f"  {cpu_name} on the CPU", cpu_seconds(call), x.nbytes, copied)


def cpu_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(CPU_CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
        if times[-1] > 1:
            break
    return min(times)


def cub_seconds(keys: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return the times of CUB's functions; none without nvcc and an NVIDIA GPU."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("  (CUB is not measured: there is no nvcc)")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program, data = Path(folder, "cuts"), Path(folder, "keys.bin")
        keys.tofile(data)
        flags = ["-O3", "-std=c++17", "-arch=native"]
        subprocess.run([nvcc, *flags, str(SOURCE), "-o", str(program)], check=True, capture_output=True)
        told = subprocess.run([str(program), str(len(keys)), str(data)], capture_output=True, text=True, check=False)
    if told.returncode:
        print(f"  (CUB is not measured: {told.stderr.strip()})")
        return {}
    pairs = (line.split() for line in told.stdout.splitlines())
    return {name: float(seconds) for name, seconds in pairs}


def compaction(device: gs.Device, timer: GpuTimer, length: int, density: float) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.integers(0, 2**32, length, dtype=np.uint32), rng.random(length) < density
    there, mask_there = device.asarray(x), device.asarray(mask)
    if not np.array_equal(np.asarray(gs.compact(there, mask_there)), x[mask]):
        raise SystemExit("compact: wrong elements")
    moved = x.nbytes + mask.nbytes + 4 * int(np.count_nonzero(mask))
    taken = timer.time_call(lambda: gs.compact(there, mask_there))
    report(f"compact, density {density}", taken, moved, timer.time_copy(moved))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=26, help="of the number of elements")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--density", type=float, default=0.5, help="share of the elements that compaction keeps")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device, WARM_SECONDS)
    print(device, device.capabilities.driver)
    length = 1 << arguments.log
    rows = 1 << (arguments.log + 2) // 2
    scans(device, timer, (length,), 0, arguments.segments)
    for axis in (0, 1):
        scans(device, timer, (rows, length // rows), axis, max(2, arguments.segments * rows // length))
    reductions(device, timer, length, arguments.segments)
    compare_groups(device, timer, length, arguments.groups)
    compaction(device, timer, length, arguments.density)


if __name__ == "__main__":
    main()
