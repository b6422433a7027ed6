"""GPU time of scans and reductions by segments, keys and groups, and of compaction, compared with a copy and others.

The GPU is busy for half a second before each line. CUB's InclusiveScanByKey and ReduceByKey are measured if there is an
nvcc, and NumPy and pandas on the CPU.

Run:  python benchmarks/cuts.py [--log 26] [--segments 1000000] [--groups 1000] [--density 0.5]
          [--device SUBSTRING] [--json FILE]
"""

from __future__ import annotations

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
from figures import FigureList, option_parser
from gpuscan.tools.bench.timing import GpuTimer

SOURCE = Path(__file__).with_name("cuts.cu")
# How often a call on the CPU is repeated unless it takes longer than a second. The fastest one counts.
CPU_CALLS = 3
# Seconds of the same call before it is measured: an idle GPU lowers its clocks.
WARM_SECONDS = 0.5


def cut_places(rng: np.random.Generator, length: int, segments: int) -> np.ndarray[Any, Any]:
    cuts = np.sort(rng.integers(0, length + 1, segments - 1))
    return np.concatenate([[0], cuts, [length]])


def scans(figures: FigureList, timer: GpuTimer, shape: tuple[int, ...], axis: int, segments: int) -> None:
    """Compare scans by offsets and by keys with the scan of the same shape that is not cut."""
    device = timer.device
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32)
    elements, copied = device.asarray(x), timer.time_copy(2 * x.nbytes)
    plain = timer.time_call(lambda: gs.scan(elements, axis=axis))
    sums = "sums" if len(shape) == 1 else f"sums of {shape}, axis {axis}"
    figures.add(sums, "gpuscan", plain, copied)
    offsets = cut_places(rng, shape[axis], segments)
    row = np.repeat(np.arange(segments, dtype=np.uint32), np.diff(offsets))
    cuts: dict[str, dict[str, Any]] = {"offsets": {"segments": offsets}, "keys": {"keys": device.asarray(row)}}
    wanted = gs.scan(x, axis=axis, segments=offsets, device="numpy") if x.size <= 1 << 22 else None
    for name, options in cuts.items():
        got = np.asarray(gs.scan(elements, axis=axis, **options))
        wanted = got if wanted is None else wanted
        if not np.array_equal(got, wanted):
            raise SystemExit(f"{name}: wrong sums")
        taken = timer.time_call(lambda options=options: gs.scan(elements, axis=axis, **options))
        figures.add(f"{sums}, {segments:,} segments by {name}", "gpuscan", taken, copied)


def reductions(figures: FigureList, timer: GpuTimer, length: int, segments: int) -> None:
    """Compare reductions by offsets and by keys with one of the whole array, and with CUB, NumPy and pandas."""
    device = timer.device
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, length, dtype=np.uint32)
    offsets = cut_places(rng, length, segments)
    keys = np.repeat(np.arange(segments, dtype=np.uint32), np.diff(offsets))
    elements, keys_on_device = device.asarray(x), device.asarray(keys)
    copied = timer.time_copy(x.nbytes)
    whole = timer.time_call(lambda: gs.reduce(elements))
    figures.add("reduction", "gpuscan", whole, copied)
    sums = np.concatenate([[0], np.cumsum(x, dtype=np.uint32)]).astype(np.uint32)
    wanted = np.diff(sums[offsets])
    if not np.array_equal(np.asarray(gs.reduce(elements, segments=offsets)), wanted):
        raise SystemExit("reduce by segments: wrong sums")
    _, results = gs.reduce_by_key(keys_on_device, elements)
    if not np.array_equal(np.asarray(results), wanted[np.diff(offsets) > 0]):
        raise SystemExit("reduce by key: wrong sums")
    taken = timer.time_call(lambda: gs.reduce(elements, segments=offsets))
    by_offsets, by_keys = (f"reduction, {segments:,} segments by {name}" for name in ("offsets", "keys"))
    figures.add(by_offsets, "gpuscan", taken, copied)
    taken = timer.time_call(lambda: gs.reduce_by_key(keys_on_device, elements))
    figures.add(by_keys, "gpuscan", taken, copied)
    scan_by_keys = f"sums, {segments:,} segments by keys"
    copied_twice = timer.time_copy(2 * x.nbytes)
    for name, seconds in cub_seconds(keys).items():
        if name == "InclusiveScanByKey":
            figures.add(scan_by_keys, "CUB", seconds, copied_twice)
        else:
            figures.add(by_keys, "CUB", seconds, copied)
    full = offsets[:-1][np.diff(offsets) > 0]
    series = pd.Series(x).groupby(keys, sort=False)
    figures.add(by_offsets, "NumPy", cpu_seconds(lambda: np.add.reduceat(x, full)), copied)
    figures.add(by_keys, "pandas", cpu_seconds(series.sum), copied)
    figures.add(scan_by_keys, "pandas", cpu_seconds(series.cumsum), copied_twice)
    figures.add("sums", "NumPy", cpu_seconds(lambda: np.cumsum(x, dtype=np.uint32)), copied_twice)


def compare_groups(figures: FigureList, timer: GpuTimer, length: int, groups: int) -> None:
    """Compare scans and reductions by labels in any order with a copy and with plain reductions, for some dtypes."""
    device, rng = timer.device, np.random.default_rng(0)
    labels = rng.integers(0, groups, length, dtype=np.uint32)
    labels_on_device = device.asarray(labels)
    for dtype in (np.uint32, np.float32):
        x = rng.integers(0, 2, length).astype(dtype)  # sums of float32 are exact
        elements = device.asarray(x)
        name = np.dtype(dtype).name
        scans_copied, reductions_copied = timer.time_copy(2 * x.nbytes), timer.time_copy(x.nbytes)
        series = pd.Series(x).groupby(labels, sort=False)
        sums = np.bincount(labels, x, groups)
        if not np.array_equal(np.asarray(gs.reduce(elements, groups=labels_on_device)), sums):
            raise SystemExit(f"reduce by groups of {name}: wrong sums")
        if not np.array_equal(np.asarray(gs.scan(elements, groups=labels_on_device)), series.cumsum().to_numpy(dtype)):
            raise SystemExit(f"scan by groups of {name}: wrong sums")
        taken = timer.time_call(lambda elements=elements: gs.scan(elements, groups=labels_on_device))
        scan_case, reduction_case = (f"{what} by {groups:,} groups, `{name}`" for what in ("sums", "reduction"))
        figures.add(scan_case, "gpuscan", taken, scans_copied)
        taken = timer.time_call(lambda elements=elements: gs.reduce(elements, groups=labels_on_device))
        figures.add(reduction_case, "gpuscan", taken, reductions_copied)
        if dtype == np.uint32:
            figures.add(scan_case, "pandas", cpu_seconds(series.cumsum), scans_copied)
            figures.add(reduction_case, "pandas", cpu_seconds(series.sum), reductions_copied)
            seconds = cpu_seconds(lambda x=x: np.bincount(labels, x, groups))
            figures.add(reduction_case, "NumPy", seconds, reductions_copied)


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


def compaction(figures: FigureList, timer: GpuTimer, length: int, density: float) -> None:
    device, rng = timer.device, np.random.default_rng(0)
    x, mask = rng.integers(0, 2**32, length, dtype=np.uint32), rng.random(length) < density
    elements, mask_on_device = device.asarray(x), device.asarray(mask)
    if not np.array_equal(np.asarray(gs.compact(elements, mask_on_device)), x[mask]):
        raise SystemExit("compact: wrong elements")
    moved = x.nbytes + mask.nbytes + 4 * int(np.count_nonzero(mask))
    taken = timer.time_call(lambda: gs.compact(elements, mask_on_device))
    figures.add(f"compaction, density {density}", "gpuscan", taken, timer.time_copy(moved))


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--log", type=int, default=26, help="of the number of elements")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--density", type=float, default=0.5, help="share of the elements that compaction keeps")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    timer = GpuTimer(device, WARM_SECONDS)
    figures = FigureList(device)
    length = 1 << arguments.log
    rows = 1 << (arguments.log + 2) // 2
    scans(figures, timer, (length,), 0, arguments.segments)
    for axis in (0, 1):
        scans(figures, timer, (rows, length // rows), axis, max(2, arguments.segments * rows // length))
    reductions(figures, timer, length, arguments.segments)
    compare_groups(figures, timer, length, arguments.groups)
    compaction(figures, timer, length, arguments.density)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
