"""Compilers that give a shader's subgroups another size than the probe saw: nothing is wrong, and nobody is blamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.planning.kernel import Kernel
from tests.oracle import assert_same, strategies_on

Compiler = Callable[[Callable[[Kernel], bool]], None]
X = np.random.default_rng(0).integers(0, 1000, 100_000, dtype=np.int32)
SUMS = X.cumsum(dtype=np.int32)
CHECK = "subgroup_size != SUBGROUP_SIZE"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Has the shaders that are picked find another size than they were built for."""

    def differ(picks: Callable[[Kernel], bool]) -> None:
        def render(kernel: Kernel) -> str:
            text = render_kernel(kernel)
            return text.replace(CHECK, f"true || {CHECK}") if picks(kernel) else text

        monkeypatch.setattr("gpuscan.api.device.render_kernel", render)

    return differ


@pytest.fixture
def varied(own_device: Device) -> Device:
    """A device of a vendor whose compilers choose; kernels for CPUs do without subgroups."""
    own_device.capabilities = replace(own_device.capabilities, vendor="Intel", adapter_type="IntegratedGPU")
    return own_device


def recorded(device: Device, strategy: str, *, in_place: bool = False) -> Any:
    """The array that a recorded plan writes: submitted, and not waited for."""
    plan = device.plan(X.shape, X.dtype, strategy=strategy)
    source = device.asarray(X)
    target = source if in_place else device.asarray(np.zeros_like(X))
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, source, target)
    device.wgpu_device.queue.submit([encoder.finish()])
    return target


@pytest.mark.parametrize("in_place", [False, True])
def test_a_recorded_plan_does_without_subgroups(varied: Device, compiler: Compiler, in_place: bool) -> None:
    compiler(lambda kernel: True)
    for _ in range(2):
        assert_same(recorded(varied, "three_dispatch", in_place=in_place), SUMS)
    varied.synchronize()


@pytest.mark.parametrize("stage", ["reduce", "scan_totals", "scan"])
def test_every_stage_tells(varied: Device, compiler: Compiler, stage: str) -> None:
    compiler(lambda kernel: kernel.stage == stage)
    assert_same(gs.scan(X, device=varied, strategy="three_dispatch"), SUMS)
    assert bool(varied.misfits) == (varied.capabilities.subgroup_size > 0)


def test_a_recorded_single_pass_does_without_subgroups(
    varied: Device, compiler: Compiler, adapter: wgpu.GPUAdapter
) -> None:
    """A software adapter that plays a GPU waits as long as one, which is not long enough for its few threads."""
    compiler(lambda kernel: True)
    cpu = adapter.info["adapter_type"] == "CPU"
    for strategy in ["fallback"] if cpu else strategies_on(varied):
        assert_same(recorded(varied, strategy), SUMS, strategy)
    varied.synchronize()


def test_a_recorded_plan_keeps_subgroups_that_are_as_planned(varied: Device) -> None:
    """One tile of its own tells, at the first record of a kind."""
    target = recorded(varied, "three_dispatch")
    assert bool(varied.proven) == (varied.capabilities.subgroup_size > 0)
    assert not varied.misfits
    assert_same(target, SUMS)


def test_where_one_size_is_known_a_recorded_plan_says_that_it_differed(own_device: Device, compiler: Compiler) -> None:
    """Nothing is submitted ahead, and no strategy distrusted."""
    device = own_device
    device.capabilities = replace(device.capabilities, vendor="NVIDIA", adapter_type="DiscreteGPU")
    if not device.capabilities.subgroup_size:
        return  # there is nothing to mistake
    compiler(lambda kernel: True)
    target = recorded(device, "three_dispatch")
    with pytest.raises(gs.GpuscanError, match="another size"):
        target.numpy()
    assert not device.capabilities.distrusted
    assert_same(recorded(device, "three_dispatch"), SUMS)


@pytest.mark.parametrize("cut", [False, True])
def test_in_place_where_only_some_shaders_differ(varied: Device, compiler: Compiler, cut: bool) -> None:
    """What one stage or piece has overwritten cannot be scanned again without subgroups."""
    x = X
    if cut:
        x = np.tile(X, 15)
        limits = dict(varied.capabilities.limits) | {"max-storage-buffer-binding-size": 3 << 20}
        varied.capabilities = replace(varied.capabilities, limits=limits)
    compiler(lambda kernel: kernel.spec.carried if cut else kernel.stage == "reduce")
    for _ in range(2):
        array = varied.asarray(x)
        gs.scan(array, out=array)
        assert_same(array, x.cumsum(dtype=np.int32))


@pytest.mark.parametrize("way", ["array", "long array", "device array", "plan"])
def test_a_size_that_differed_is_remembered(
    varied: Device, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    compiler(lambda kernel: True)
    begin, runs = varied.tile_state.begin, []

    def counted(plan: Any, place: Any) -> Any:
        runs.append(plan)
        return begin(plan, place)

    monkeypatch.setattr(varied.tile_state, "begin", counted)
    x = np.tile(X, 3) if way == "long array" else X[:4000]
    given: Any = varied.asarray(x) if way in ("device array", "plan") else x
    plan = varied.plan(x.shape, x.dtype, strategy="three_dispatch")
    for call in range(3):
        runs.clear()
        got = plan(given) if way == "plan" else gs.scan(given, device=varied, strategy="three_dispatch")
        assert_same(got, x.cumsum(dtype=np.int32))
        assert call == 0 or len(runs) == 1
