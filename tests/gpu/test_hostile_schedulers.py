"""Schedulers that delay workgroups, run them one at a time or let them begin in bursts: a test build plays them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import host_arrays as runner
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from tests.oracle import AFFINE, assert_same, posed, small_tiles, strategies_on, ufunc_scan, words

SCHEDULERS = ["random", "serial", "bursts"]
SECONDS = 5.0  # within which a call has ended

WAITS_FOR_LATER = "lookahead"  # its first workgroup waits for later ones, which "serial" does not let begin


def tiles_on(device: Device) -> list[TileShape]:
    """Small shapes without subgroups, and with blocks that one subgroup looks at, as on GPUs."""
    size = device.capabilities.subgroup_size
    return [TileShape(32, 0, 1, 4), *([TileShape(size, size, 2, 4)] if size else [])]


def waiting_on(device: Device, scheduler: str, many: bool = False) -> list[str]:
    """The strategies whose tiles wait for each other, and which the scheduler lets come to an end.

    On CPU adapters, where the planner has none fold for all, a fold's turns are too few for look-back to outlast both
    a scheduler of ours and one that takes the core away.
    """
    barred = {"three_dispatch", WAITS_FOR_LATER if scheduler == "serial" else ""}
    if many and device.capabilities.adapter_type == "CPU":
        barred.add("lookback")
    return [strategy for strategy in strategies_on(device) if strategy not in barred]


def hindered(
    device: Device, problem: Problem, strategy: str, scheduler: str, withheld_period: int = 0, **options: Any
) -> runner.Rows:
    """The result, twice the same, and the second time (the first compiles) within bounds."""
    options["test_build"] = InjectedFaults(withheld_period, scheduler)
    first = runner.run(device, problem, strategy, **options)
    begin = time.perf_counter()
    second = runner.run(device, problem, strategy, **options)
    assert time.perf_counter() - begin < SECONDS
    for field, again in zip(first, second, strict=True):
        assert_same(again, field)
    return second


@pytest.mark.parametrize("many", [False, True])  # whether one folds for all
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_float_sums_have_the_bits_of_unhindered_ones(device: Device, scheduler: str, many: bool) -> None:
    x = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    for tile in tiles_on(device):
        for n in (tile.tile_size + 1, 5_000, len(x)):
            problem = posed(x[:n])
            (wanted,) = runner.run(device, problem, "three_dispatch", tile=tile)
            np.testing.assert_allclose(wanted[0], np.cumsum(x[:n], dtype=np.float64), rtol=1e-3, atol=1e-3)
            for strategy in waiting_on(device, scheduler, many):
                options = {"tile": tile, "one_workgroup_folds": many}
                work = runner.work_of(device, problem)
                faults = InjectedFaults(scheduler=scheduler)
                plan = plan_scan(work, device.capabilities, strategy, "", test_build=faults, **options)
                assert plan.posts  # else nothing would be hindered
                (got,) = hindered(device, problem, strategy, scheduler, **options)
                assert_same(got, wanted, (strategy, tile, n))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_operator_that_does_not_commute(device: Device, scheduler: str) -> None:
    """Rows that are read backwards."""
    x = words(np.random.default_rng(1), 2, (7, 1_501))
    options: dict[str, Any] = {"axis": 1, "exclusive": True, "reverse": True}
    wanted = gs.scan(x, AFFINE, device="numpy", **options)
    for strategy in waiting_on(device, scheduler):
        got = hindered(device, posed(x, AFFINE, **options), strategy, scheduler, tile=tiles_on(device)[-1])
        for field, result in zip(wanted, got, strict=True):
            assert_same(result.reshape(x[0].shape), field, strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_fold_of_matrices(device: Device, scheduler: str) -> None:
    """Who folds them reads one block's aggregates while it scans another's, but under fallback."""
    x = np.random.default_rng(6).integers(0, 2**32, (4_001, 2, 2), dtype=np.uint32)
    wanted = gs.scan(x, "matmul", device="numpy")
    options: dict[str, Any] = {"tile": replace(tiles_on(device)[-1], chunk=1), "one_workgroup_folds": True}
    for strategy in waiting_on(device, scheduler, many=True):
        (got,) = hindered(device, posed(x, "matmul"), strategy, scheduler, **options)
        assert_same(got[0], wanted, strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_columns(device: Device, scheduler: str) -> None:
    x = np.random.default_rng(2).integers(0, 2**32, (9_000, 5), dtype=np.uint32)
    for strategy in waiting_on(device, scheduler):
        (got,) = hindered(device, posed(x, axis=0), strategy, scheduler)
        assert_same(got.T, ufunc_scan("add", x), strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_posts_that_never_come_besides(device: Device, scheduler: str) -> None:
    x = np.random.default_rng(3).integers(0, 2**32, 20_000, dtype=np.uint32)
    (got,) = hindered(device, posed(x), "fallback", scheduler, tile=tiles_on(device)[-1], withheld_period=3)
    assert_same(got[0], ufunc_scan("add", x))


def test_auto_ends_in_a_right_result(own_device: Device) -> None:
    device = own_device
    x = np.random.default_rng(4).integers(0, 2**32, 400_000, dtype=np.uint32)
    for scheduler in SCHEDULERS:
        for options in ({"tile": small_tiles(device)[-1]}, {}):
            (got,) = hindered(device, posed(x), "auto", scheduler, **options)
            assert_same(got[0], ufunc_scan("add", x), scheduler)


def test_look_ahead_gives_up_in_time_where_workgroups_run_one_at_a_time(own_device: Device) -> None:
    """Or gives the right result, where the lock's own bound lets the others in; then `"auto"` goes on without it."""
    device = own_device
    x = np.random.default_rng(5).integers(0, 2**32, 20_000, dtype=np.uint32)
    options: dict[str, Any] = {"tile": small_tiles(device)[0], "test_build": InjectedFaults(scheduler="serial")}
    for _ in range(2):  # the first compiles
        begin = time.perf_counter()
        try:
            (got,) = runner.run(device, posed(x), WAITS_FOR_LATER, **options)
            assert_same(got[0], ufunc_scan("add", x))
        except gs.ProgressTimeoutError:
            assert device.strategy("auto")[0] != WAITS_FOR_LATER
    assert time.perf_counter() - begin < SECONDS
    (got,) = runner.run(device, posed(x), "auto", **options)
    assert_same(got[0], ufunc_scan("add", x))
