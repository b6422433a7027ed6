"""Scans from file to file: any axis and memory order, bounded memory, and an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.tools.files import scan_in_pieces
from tests.oracle import assert_same, ufunc_scan

# Seconds within which a process that a test starts gets anywhere, also on a busy machine.
SECONDS = 120


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


def with_gpuscan() -> dict[str, str]:
    """Return an environment in which another Python finds this gpuscan."""
    root = str(Path(gs.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


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
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=with_gpuscan(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    most, before = (int(word) * 1024 for word in done.stdout.split())
    assert most < before + 3 * (32 << 20) + (32 << 20), (most, before)
    got = np.load(tmp_path / "out.npy", mmap_mode="r")
    places = np.random.default_rng(7).integers(0, n, 1000)
    triangles = (places.astype(np.uint64) * (places.astype(np.uint64) + 1) // 2).astype(np.uint32)
    np.testing.assert_array_equal(got[places], triangles)
    assert got[-1] == np.uint32((n * (n - 1) // 2) % 2**32)


@pytest.mark.skipif(os.name != "posix", reason="SIGINT to another process")
@pytest.mark.usefixtures("default_signals")
def test_interrupted(adapter: wgpu.GPUAdapter, tmp_path: Path) -> None:
    """Assert that Ctrl-C in the middle leaves no partial file behind.

    It comes at any moment after the first piece. The scan waits for it before its end, so it is never too late.
    """
    np.lib.format.open_memmap(tmp_path / "in.npy", "w+", np.float32, (24 << 20,)).flush()
    code = f"""
import contextlib, pathlib, time
from gpuscan import cli
from gpuscan.tools import files
def show(total):
    def shown(done):
        pathlib.Path("begun").touch()
        if done == total:
            time.sleep({SECONDS})
    return contextlib.nullcontext(shown)
files.display_bar = show
cli.main(["scan", "in.npy", "out.npy", "--device", {adapter.summary!r}])
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, env=with_gpuscan(), stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + SECONDS
            while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=SECONDS)
        finally:
            running.kill()
    assert (running.returncode, err) == (130, "gpuscan: interrupted\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["begun", "in.npy"]
