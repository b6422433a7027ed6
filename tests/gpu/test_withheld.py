"""Posts that never come: a test build of the shader leaves out every 2nd, 7th and 64th tile's post."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import host_arrays as runner
from gpuscan.planning import heuristics
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.tile_shapes import TileShape
from tests.oracle import AFFINE, assert_same, posed, small_tiles, strategies_on, tile_in_turn, ufunc_scan, words

PERIODS = [2, 7, 64]
WAITING = ("lookahead", "lookback")  # strategies that have nothing else to do
SECONDS = 2.0  # within which a wait in vain has ended


def withheld(period: int, many: bool | None) -> dict[str, Any]:
    """The options of a run in which the tiles of this period post nothing; where `many`, one folds for all."""
    return {"test_build": InjectedFaults(period), "one_workgroup_folds": many}


# Where `many`, one folds for all.
@pytest.mark.parametrize(("period", "many"), [(2, False), (7, False), (64, False), (7, True)])
def test_fallback_does_the_late_tiles_work_itself(device: Device, period: int, many: bool) -> None:
    """The bits are those of three_dispatch: a tile that is reduced by another has the same aggregate."""
    x = np.random.default_rng(0).standard_normal(60_000).astype(np.float32)
    rows = words(np.random.default_rng(1), 2, (7, 3001))
    for tile in small_tiles(device):
        problems = [posed(x)] if period != 7 else [posed(x), posed(rows, AFFINE, axis=1, exclusive=True, reverse=True)]
        for problem in problems:
            wanted = runner.run(device, problem, "three_dispatch", tile=tile)
            got = runner.run(
                device, problem, "fallback", tile=tile, test_build=InjectedFaults(period), one_workgroup_folds=many
            )
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, tile)


@pytest.mark.parametrize(("period", "many"), [(0, False), (2, False), (7, False), (0, True), (2, True)])
def test_helpers_let_go_of_their_own_tile(device: Device, period: int, many: bool) -> None:
    """Where a subgroup looks at a block at once, as on GPUs: float sums, and rows of a bundle backwards or segments."""
    size = device.capabilities.subgroup_size
    tile = TileShape(size or 32, size, 2 if size else 1, 4)
    rng = np.random.default_rng(4)
    x = rng.standard_normal(20_000).astype(np.float32)
    rows = words(rng, 2, (7, 1501))
    backwards = posed(rows, AFFINE, axis=1, exclusive=True, reverse=True)
    segments = posed(x, segments=[0, 3, 3, 8_000, 8_001, 20_000])
    for problem in (posed(x), segments if many or period == 7 else backwards):
        plan = plan_scan(runner.work_of(device, problem), device.capabilities, "fallback", "asked", tile=tile)
        assert plan.stages[-1].kernel.reloads_after_help == (size > 0)
        wanted = runner.run(device, problem, "three_dispatch", tile=tile)
        got = runner.run(
            device, problem, "fallback", tile=tile, test_build=InjectedFaults(period), one_workgroup_folds=many
        )
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field)


@pytest.mark.parametrize(("strategy", "many"), [("lookahead", None), ("lookback", False), ("lookback", True)])
def test_who_only_waits_gives_up_in_time(own_device: Device, strategy: str, many: bool | None) -> None:
    """It ends in an error that says what to do instead, and leaves the device in order."""
    device = own_device
    x = np.random.default_rng(2).integers(0, 2**32, 60_000, dtype=np.uint32)
    for turn, period in enumerate(PERIODS, bool(many)):
        tile = tile_in_turn(device, turn)
        with pytest.raises(gs.ProgressTimeoutError, match="three_dispatch"):
            runner.run(
                device, posed(x), strategy, tile=tile, test_build=InjectedFaults(period), one_workgroup_folds=many
            )  # compiles
        begin = time.perf_counter()
        with pytest.raises(gs.ProgressTimeoutError):
            runner.run(
                device, posed(x), strategy, tile=tile, test_build=InjectedFaults(period), one_workgroup_folds=many
            )
        assert time.perf_counter() - begin < SECONDS
        for other in ("three_dispatch", "fallback"):
            (got,) = runner.run(device, posed(x), other, tile=tile)
            assert_same(got[0], ufunc_scan("add", x), other)


def test_a_strategy_that_gave_up_is_remembered(own_device: Device, adapter: wgpu.GPUAdapter) -> None:
    device = own_device
    x = np.arange(60_000, dtype=np.uint32)
    with pytest.raises(gs.ProgressTimeoutError):
        runner.run(device, posed(x), "lookback", tile=small_tiles(device)[0], test_build=InjectedFaults(2))
    assert device.capabilities.distrusted == ("lookback",)
    assert device.strategy("auto")[0] != "lookback"
    assert Device(adapter).capabilities.distrusted == ("lookback",)  # and by later processes


def test_auto_goes_on_by_another_path(own_device: Device) -> None:
    device = own_device
    x = np.random.default_rng(3).integers(0, 2**32, 60_000, dtype=np.uint32)
    chosen = device.strategy("auto")[0]
    (got,) = runner.run(device, posed(x), "auto", tile=small_tiles(device)[0], test_build=InjectedFaults(2))
    assert_same(got[0], ufunc_scan("add", x))
    if chosen in WAITING:
        assert device.capabilities.distrusted
        assert set(device.capabilities.distrusted) <= set(WAITING)
        assert device.strategy("auto")[0] in ("fallback", "three_dispatch")
    else:
        assert device.capabilities.distrusted == ()
        assert chosen in strategies_on(device)


NVIDIA = {
    "adapter_type": "DiscreteGPU",
    "vendor": "NVIDIA",
    "progress_earlier": True,
    "progress_later": True,
    "starts_in_order": True,
}
SHAPES = {"a few tiles": (2000,), "a few hundred": (40_000,), "thousands": (400_000,), "rows of several": (64, 20_000)}


@pytest.mark.parametrize("shape", SHAPES)
def test_auto_comes_to_an_end_whatever_it_began_with(
    own_device: Device, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the plan's strategy is another than the adapter's first: each attempt leaves one out."""
    device = own_device
    few = replace(heuristics.GPU, min_lookback_spins=16)  # llvmpipe leaves loops after 65,535 turns
    monkeypatch.setattr(heuristics, "GPU", few)
    device.capabilities = replace(device.capabilities, **NVIDIA, spins_per_second=2e4)  # what auto trusts most
    x = np.random.default_rng(5).integers(0, 2**32, SHAPES[shape], dtype=np.uint32)
    tile = None if x.ndim == 2 else small_tiles(device)[0]
    (got,) = runner.run(device, posed(x, axis=x.ndim - 1), "auto", tile=tile, test_build=InjectedFaults(2))
    assert_same(got, ufunc_scan("add", x, axis=x.ndim - 1).reshape(got.shape))
    assert "lookback" in device.capabilities.distrusted
    assert not device.capabilities.starts_in_order  # which may have been at fault
    assert device.strategy("auto")[0] in ("fallback", "three_dispatch")
