"""Scan from zarr to zarr on a Dask cluster an array that is larger than the memory limit of its workers.

The workers do not spill: a worker that kept more than its limit would be ended, and the scan would fail. Each worker's
largest memory is measured by the kernel.

    python benchmarks/dask_larger_than_memory.py [--limit MIB] [--times 4] [--workers 4] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster

import gpuscan.dask
from gpuscan.dask.scans import METHODS

MIB = 1 << 20


def memory_peak() -> int:
    """Return the most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def ramp(start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the numbers from `start` on, modulo 2^32."""
    return np.arange(start, start + count, dtype=np.uint64).astype(np.uint32)


def sums(start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the sums of all numbers up to those from `start` on, modulo 2^32."""
    i = np.arange(start, start + count, dtype=np.uint64)
    return (np.where(i % 2 == 0, i // 2 * (i + 1), (i + 1) // 2 * i)).astype(np.uint32)


def measure(client: Client, source: Any, folder: Path, method: str) -> dict[str, Any]:
    """Scan the array, check every result, and return the time and what the workers held and spilled."""
    before = max(client.run(memory_peak).values())
    target = zarr.create_array(
        folder / method, shape=source.shape, chunks=source.chunks, dtype=source.dtype, compressors=None
    )
    started = time.perf_counter()
    gpuscan.dask.scan(da.from_zarr(source), method=method).store(target, lock=False)
    seconds = time.perf_counter() - started
    spilled = client.run(lambda dask_worker: len(getattr(dask_worker.data, "slow", None) or ()))
    (step,) = source.chunks
    wrong = [
        start
        for start in range(0, source.shape[0], step)
        if not np.array_equal(target[start : start + step], sums(start, min(step, source.shape[0] - start)))
    ]
    return {
        "method": method,
        "s": round(seconds, 1),
        "MiB before": before // MIB,
        "MiB at most": max(client.run(memory_peak).values()) // MIB,
        "spilled": sum(spilled.values()),
        "wrong chunks": len(wrong),
    }


def main() -> None:
    """Write the array, and scan it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=400, help="memory limit of each worker, in MiB")
    parser.add_argument("--times", type=int, default=4, help="bytes of the array, as a multiple of the limit")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=4, help="bytes of a chunk, in MiB")
    parser.add_argument("--method", default="totals", choices=METHODS)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpuscan-", dir=args.folder))
    chunk = args.chunk * MIB // 4
    count = -(-args.limit * args.times * MIB // 4 // chunk) * chunk
    # Workers are stopped for good where they would otherwise write to disk, so spilling cannot help.
    memory = {"target": False, "spill": False, "pause": False, "terminate": 1.0}
    try:
        source = zarr.create_array(folder / "in", shape=(count,), chunks=(chunk,), dtype="u4", compressors=None)
        for start in range(0, count, chunk):
            source[start : start + chunk] = ramp(start, chunk)
        print(f"{source.nbytes >> 20} MiB in {count // chunk} chunks, {args.workers} workers of {args.limit} MiB each")
        with (
            dask.config.set({f"distributed.worker.memory.{name}": value for name, value in memory.items()}),
            LocalCluster(
                n_workers=args.workers,
                threads_per_worker=1,
                dashboard_address=None,
                memory_limit=args.limit * MIB,
            ) as cluster,
            Client(cluster) as client,
        ):
            print(measure(client, source, folder, args.method))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
