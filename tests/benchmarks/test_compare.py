"""The comparison behind the published figures: its inputs, libraries and recorded scans."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from compare import compare
from gpuscan.api.device import Device
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.tools.bench import timing
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.contenders import measure
from gpuscan.tools.bench.timing import GpuTimer
from peers import PEERS, cub, peer_contenders
from recorded import list_recorded
from recurrences import numpy_contenders, recurrence_case, recurrence_contender, step_by_step
from tests.oracle import small_tiles, strategies_on

F32 = np.dtype(np.float32)
SUMS = ScanCase("add", np.dtype(np.uint32), 5000)


@pytest.fixture(autouse=True)
def _cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure without a warm-up, since times do not matter."""
    monkeypatch.setattr(timing, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(timing, "REPEATS", 3)


# ----- Linear recurrences


def test_gradients_of_the_recurrence() -> None:
    """Compare with differences of the sum of grad_h * h."""
    rng = np.random.default_rng(0)
    a, b, grad_h = (rng.uniform(-1, 1, (2, 6)) for _ in range(3))
    _, grad_a, grad_b = step_by_step(a, b, grad_h)
    for array, gradient in ((a, grad_a), (b, grad_b)):
        for at in np.ndindex(array.shape):
            kept = array[at]
            sums = []
            for step in (1e-6, -1e-6):
                array[at] = kept + step
                sums.append(float(np.sum(grad_h * step_by_step(a, b)[0])))
            array[at] = kept
            assert abs((sums[0] - sums[1]) / 2e-6 - gradient[at]) < 1e-6


@pytest.mark.parametrize("backward", [False, True])
def test_recurrence_inputs(backward: bool) -> None:
    """Expect the recurrence along axis 1."""
    inputs = recurrence_case((2, 30, 5), F32, backward).inputs()
    wide = [np.moveaxis(array.astype(np.float64), 1, 2) for array in inputs.arrays]
    outputs = [np.moveaxis(output, 2, 1).reshape(-1)[inputs.indices] for output in step_by_step(*wide)]
    assert len(outputs) == (3 if backward else 1)
    assert inputs.error([output.astype(np.float32) for output in outputs]) <= inputs.tolerance
    assert inputs.error([output + 1 for output in outputs]) > inputs.tolerance


def test_numpy_recurrence() -> None:
    """Compute the recurrence a step at a time."""
    case = recurrence_case((2, 40, 3), F32)
    (one,) = numpy_contenders(case)
    assert measure(one, case, case.inputs()).right


@pytest.mark.parametrize("backward", [False, True])
def test_own_recurrence(device: Device, backward: bool) -> None:
    case = recurrence_case((2, 40, 3), F32, backward)
    found = measure(recurrence_contender(GpuTimer(device), case), case, case.inputs())
    assert found.right, found


# ----- Other libraries


@pytest.mark.parametrize(
    "case", [ScanCase("add", F32, 300), ScanCase("add", F32, 100, 3), recurrence_case((2, 9, 3), F32)], ids=str
)
def test_a_library_that_is_missing_is_a_row(case: ScanCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Need none of the libraries."""
    for module in ("cupy", "torch", "jax", "triton", "accelerated_scan", "accelerated_scan.scalar"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("PATH", "")  # no nvcc
    inputs = case.inputs()
    found = [measure(one, case, inputs) for one in peer_contenders([name for name in PEERS if name != "numpy"], case)]
    assert len(found) >= 3
    for m in found:
        assert m.seconds is None
        assert "is not installed" in m.note or "no nvcc" in m.note or "one row" in m.note, m


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for nvcc is a shell script")
def test_an_nvcc_that_fails_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the compiler printed."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\n[ "$1" = --version ] && echo release 0 && exit 0\necho "no such arch" >&2\nexit 1\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = measure(cub.contenders(SUMS)[0], SUMS, SUMS.inputs())
    assert found.seconds is None
    assert found.note == "RuntimeError: nvcc failed: no such arch"


# ----- Recorded scans


def test_every_strategy_is_recorded_in_the_planners_tile(device: Device) -> None:
    """Note the tile's shape."""
    inputs = SUMS.inputs()
    for one in list_recorded(GpuTimer(device), SUMS, [*strategies_on(device), "auto"]):
        found = measure(one, SUMS, inputs)
        assert found.right, found
        assert re.search(r"\d+x\d+x\d+/\d+$", found.note)


def test_tiles_that_are_named(device: Device) -> None:
    inputs = SUMS.inputs()
    tiles: list[TileShape | None] = list(small_tiles(device))
    found = [measure(one, SUMS, inputs) for one in list_recorded(GpuTimer(device), SUMS, ["fallback"], tiles)]
    assert len({m.name for m in found}) == len(tiles)
    assert all(m.right for m in found), found


def test_a_wrong_result_is_told(device: Device) -> None:
    """Refuse the results of another operator."""
    (one,) = list_recorded(GpuTimer(device), replace(SUMS, op="bitwise_xor"), ["three_dispatch"])
    assert measure(one, SUMS, SUMS.inputs()).wrong


@pytest.mark.usefixtures("skip_without_adapters")
def test_the_command_writes_figures(tmp_path: Path) -> None:
    """Write a file as benchmarks/make_tables.py reads it."""
    path = tmp_path / "out.json"
    options = f"--sizes 2^10,3000 --strategy three_dispatch --tile 64,0,1,4 --peers numpy --json {path}"
    result = CliRunner().invoke(compare, options.split())
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["command"][:2] == ["python", "benchmarks/compare.py"]
    assert [m["length"] for m in data["measurements"]] == [1024] * 3 + [3000] * 3
    assert [m["library"] for m in data["measurements"][:3]] == ["copy", "gpuscan", "numpy"]
    assert all(m["right"] for m in data["measurements"])
