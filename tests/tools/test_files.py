"""Scans from file to file: any axis and memory order, in bounded memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.tools.files import scan_in_pieces
from tests.harness.processes import python
from tests.oracle import assert_same, ufunc_scan


def save_array(path: Path, x: np.ndarray[Any, Any]) -> Path:
    np.save(path, x)
    return path


def test_file_to_file(device: gs.Device, tmp_path: Path) -> None:
    """Scan files along any axis and of any memory order; the progress ends at the input's size."""
    x = np.random.default_rng(6).integers(0, 2**31, (7, 300_001), dtype=np.uint32)
    for order in "CF":
        source = np.load(save_array(tmp_path / "in.npy", np.asarray(x, order=order)), mmap_mode="r")  # type: ignore[call-overload]
        for options in ({"axis": 0}, {"axis": 1, "reverse": True}):
            steps: list[int] = []
            scan_in_pieces(source, tmp_path / "out.npy", steps.append, op="add", device=device, **options)
            wanted = ufunc_scan("add", x, 0) if options["axis"] == 0 else ufunc_scan("add", x[:, ::-1], 1)[:, ::-1]
            assert_same(np.load(tmp_path / "out.npy"), wanted, (order, options))
            assert steps == sorted(steps)
            assert steps[-1] == x.nbytes
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_is_bounded(adapter: wgpu.GPUAdapter, tmp_path: Path) -> None:
    """Assert that a scan of a file of 160 MiB leaves no more in memory than pieces do."""
    n = (160 << 20) // 4
    x = np.lib.format.open_memmap(tmp_path / "in.npy", "w+", np.uint32, (n,))
    for start in range(0, n, 1 << 22):
        x[start : start + (1 << 22)] = np.arange(start, start + (1 << 22))
    x.flush()
    del x
    code = f"""
import resource, sys
import numpy as np, gpuscan as gs
from pathlib import Path
from gpuscan.tools.files import scan_in_pieces
device = gs.Device({adapter.summary!r})
gs.scan(np.ones(3 << 20, np.uint32), device=device)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = np.load("in.npy", mmap_mode="r")
scan_in_pieces(source, Path("out.npy"), lambda done: None, device=device)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, before)
"""
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    most, before = (int(word) * 1024 for word in done.stdout.split())
    assert most < before + 3 * (32 << 20) + (32 << 20), (most, before)
    got = np.load(tmp_path / "out.npy", mmap_mode="r")
    places = np.random.default_rng(7).integers(0, n, 1000)
    triangles = (places.astype(np.uint64) * (places.astype(np.uint64) + 1) // 2).astype(np.uint32)
    np.testing.assert_array_equal(got[places], triangles)
    assert got[-1] == np.uint32((n * (n - 1) // 2) % 2**32)
