"""Compilers may give a shader another subgroup size than the probe saw: the results are right all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.strategies import Strategy
from tests.harness.builds import count_runs, has_mismatched_kernels, has_verified_kernels, pretend_wrong_subgroup_size
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem, record_and_submit, scan_with
from tests.oracle import assert_same, strategies_on

X = np.random.default_rng(0).integers(0, 1000, 100_000, dtype=np.int32)
SUMS = X.cumsum(dtype=np.int32)


@pytest.fixture
def varying_device(own_device: gs.Device) -> gs.Device:
    """Return a device of a vendor with compilers that choose the subgroup size."""
    return device_as_if(own_device, vendor="Intel", adapter_type="IntegratedGPU")


def run_recorded(device: gs.Device, strategy: Strategy, *, in_place: bool = False) -> Any:
    """Record a plan, submit it without waiting, and return the array that it writes."""
    plan = device.plan(X.shape, X.dtype, strategy=strategy)
    source = device.asarray(X)
    target = source if in_place else device.asarray(np.zeros_like(X))
    return record_and_submit(device.wgpu_device, plan, source, target)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_recorded_plan_does_without_subgroups(
    varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: True)
    for _ in range(2):
        assert_same(run_recorded(varying_device, "three_dispatch", in_place=in_place), SUMS)
    varying_device.synchronize()


@pytest.mark.parametrize("stage", ["reduce", "scan_totals", "scan"])
def test_every_stage_tells(varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: kernel.stage == stage)
    assert_same(gs.scan(X, device=varying_device, strategy="three_dispatch"), SUMS)
    assert has_mismatched_kernels(varying_device) == (varying_device.capabilities.subgroup_size > 0)


@pytest.mark.parametrize("from_later", [False, True])
def test_rows_in_pieces_continue_without_subgroups(
    varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, from_later: bool
) -> None:
    """Assert that pieces of both kinds of tiles fit together, whether both end with rows, or one of them, or neither.

    Pieces of whole rows take no carry, so only rows of 300,001 lose their subgroups in a later piece.
    """
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: kernel.spec.carried >= from_later)
    for count, length in ((7, 20_206), (7, 8_192), (9, 300_001)):
        rows = np.resize(X, (count, length))
        problem = make_problem(rows, axis=1)
        (got,) = scan_with(varying_device, problem, "three_dispatch", piece_bytes=1 << 17)
        assert_same(got, rows.cumsum(axis=1, dtype=np.int32), length)
    assert has_mismatched_kernels(varying_device) == (varying_device.capabilities.subgroup_size > 0)


def test_a_recorded_single_pass_does_without_subgroups(
    varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, adapter: wgpu.GPUAdapter
) -> None:
    """Assert that a software adapter that plays a GPU runs only fallback: its threads need longer waits."""
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: True)
    cpu = adapter.info["adapter_type"] == "CPU"
    strategies: list[Strategy] = ["fallback"] if cpu else strategies_on(varying_device)
    for strategy in strategies:
        assert_same(run_recorded(varying_device, strategy), SUMS, strategy)
    varying_device.synchronize()


def test_a_recorded_plan_keeps_subgroups_that_are_as_planned(varying_device: gs.Device) -> None:
    """Assert that the first record of a kind runs one tile of its own to learn the size."""
    target = run_recorded(varying_device, "three_dispatch")
    assert has_verified_kernels(varying_device) == (varying_device.capabilities.subgroup_size > 0)
    assert not has_mismatched_kernels(varying_device)
    assert_same(target, SUMS)


def test_where_one_size_is_known_a_recorded_plan_says_that_it_differed(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that nothing is submitted ahead, and no strategy is distrusted."""
    device = device_as_if(own_device, vendor="NVIDIA", adapter_type="DiscreteGPU")
    if not device.capabilities.subgroup_size:
        return  # there is nothing to mistake
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: True)
    target = run_recorded(device, "three_dispatch")
    with pytest.raises(gs.GpuscanError, match="another size"):
        target.numpy()
    assert not device.capabilities.distrusted
    assert_same(run_recorded(device, "three_dispatch"), SUMS)


@pytest.mark.parametrize("cut", [False, True])
def test_in_place_where_only_some_shaders_differ(
    varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Assert that a run that has overwritten its input is not repeated without subgroups."""
    x = X
    if cut:
        # The smallest piece takes 6 MiB where tiles with subgroups and tiles without have to fit into it.
        x = np.tile(X, 40)
        limits = dict(varying_device.capabilities.limits) | {"max-storage-buffer-binding-size": 7 << 20}
        varying_device = device_as_if(varying_device, limits=limits)
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: kernel.spec.carried if cut else kernel.stage == "reduce")
    for _ in range(2):
        array = varying_device.asarray(x)
        gs.scan(array, out=array)
        assert_same(array, x.cumsum(dtype=np.int32))


@pytest.mark.parametrize("way", ["array", "long array", "device array", "plan"])
def test_a_size_that_differed_is_remembered(
    varying_device: gs.Device, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pretend_wrong_subgroup_size(monkeypatch, lambda kernel: True)
    runs = count_runs(varying_device, monkeypatch)
    x = np.tile(X, 3) if way == "long array" else X[:4000]
    given: Any = varying_device.asarray(x) if way in ("device array", "plan") else x
    plan = varying_device.plan(x.shape, x.dtype, strategy="three_dispatch")
    for call in range(3):
        runs.clear()
        got = plan(given) if way == "plan" else gs.scan(given, device=varying_device, strategy="three_dispatch")
        assert_same(got, x.cumsum(dtype=np.int32))
        assert call == 0 or len(runs) == 1
