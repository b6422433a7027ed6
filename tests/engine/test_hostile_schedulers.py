"""Scans under schedulers that delay workgroups, run them one at a time, or let them start in bursts."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import BLOCK, TileShape
from gpuscan.problem.problem import Problem
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem, plan_with, scan_with
from tests.oracle import AFFINE, Array, assert_same, half_of, small_tiles, strategies_on, ufunc_scan, words

SCHEDULERS = ["random", "serial", "bursts"]
# Seconds within which a call with bounded waits ends even on a busy machine. A call that hangs never ends.
SECONDS = 60.0


def tiles_on(device: gs.Device) -> list[TileShape]:
    """Return small tiles: one without subgroups, and one with blocks that a whole subgroup looks at, as on GPUs."""
    size = device.capabilities.subgroup_size
    return [TileShape(32, 0, 1, 4), *([TileShape(size, size, 2, 4)] if size else [])]


def waiting_on(device: gs.Device, folds: bool = False) -> list[str]:
    """Return the strategies with tiles that wait for each other and that can finish under the scheduler.

    On a CPU adapter the planner never lets one workgroup fold for all: look-back's bound is too short there to outlast
    both the hostile scheduler and an operating system that takes the core away.
    """
    barred = {"three_dispatch"}
    if folds and device.capabilities.adapter_type == "CPU":
        barred.add("lookback")
    return [strategy for strategy in strategies_on(device) if strategy not in barred]


def scan_when_hindered(
    device: gs.Device, problem: Problem, strategy: str, scheduler: str, **options: Any
) -> list[Array]:
    """Scan twice under a hostile scheduler, require the same bits in bounded time, and return the result.

    Only the second run is timed: the first compiles.
    """
    first = scan_with(device, problem, strategy, scheduler=scheduler, **options)
    begin = time.perf_counter()
    second = scan_with(device, problem, strategy, scheduler=scheduler, **options)
    assert time.perf_counter() - begin < SECONDS
    for field, again in zip(first, second, strict=True):
        assert_same(again, field)
    return second


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_float_sums_have_the_bits_of_unhindered_ones(device: gs.Device, scheduler: str, folds: bool) -> None:
    x = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    for tile in half_of(device, tiles_on(device), int(folds)):
        for n in (tile.tile_size + 1, 5_000, len(x)):
            problem = make_problem(x[:n])
            (wanted,) = scan_with(device, problem, "three_dispatch", tile=tile)
            np.testing.assert_allclose(wanted, np.cumsum(x[:n], dtype=np.float64), rtol=1e-3, atol=1e-3)
            for strategy in waiting_on(device, folds):
                options: dict[str, Any] = {"tile": tile, "one_workgroup_folds": folds}
                assert plan_with(device, problem, strategy, scheduler=scheduler, **options).posts
                (got,) = scan_when_hindered(device, problem, strategy, scheduler, **options)
                assert_same(got, wanted, (strategy, tile, n))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_operator_that_does_not_commute(device: gs.Device, scheduler: str) -> None:
    """Scan rows in reverse."""
    x = words(np.random.default_rng(1), 2, (7, 1_501))
    options: dict[str, Any] = {"axis": 1, "exclusive": True, "reverse": True}
    wanted = gs.scan(x, AFFINE, device="numpy", **options)
    for strategy in waiting_on(device):
        got = scan_when_hindered(
            device, make_problem(x, AFFINE, **options), strategy, scheduler, tile=tiles_on(device)[-1]
        )
        for field, result in zip(wanted, got, strict=True):
            assert_same(result, field, strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_fold_of_matrices(device: gs.Device, scheduler: str) -> None:
    """Assert that the folding workgroup reads a block while it scans another one, except under fallback."""
    x = np.random.default_rng(6).integers(0, 2**32, (4_001, 2, 2), dtype=np.uint32)
    wanted = gs.scan(x, "matmul", device="numpy")
    options: dict[str, Any] = {"tile": replace(tiles_on(device)[-1], chunk=1), "one_workgroup_folds": True}
    for strategy in waiting_on(device, folds=True):
        (got,) = scan_when_hindered(device, make_problem(x, "matmul"), strategy, scheduler, **options)
        assert_same(got, wanted, strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_columns(device: gs.Device, scheduler: str) -> None:
    x = np.random.default_rng(2).integers(0, 2**32, (9_000, 5), dtype=np.uint32)
    for strategy in waiting_on(device):
        (got,) = scan_when_hindered(device, make_problem(x, axis=0), strategy, scheduler)
        assert_same(got, ufunc_scan("add", x), strategy)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_posts_that_never_come_besides(device: gs.Device, scheduler: str) -> None:
    x = np.random.default_rng(3).integers(0, 2**32, 20_000, dtype=np.uint32)
    (got,) = scan_when_hindered(device, make_problem(x), "fallback", scheduler, tile=tiles_on(device)[-1], withheld=3)
    assert_same(got, ufunc_scan("add", x))


def test_auto_ends_in_a_right_result(own_device: gs.Device) -> None:
    device = own_device
    x = np.random.default_rng(4).integers(0, 2**32, 400_000, dtype=np.uint32)
    for scheduler in SCHEDULERS:
        for options in ({"tile": small_tiles(device)[-1]}, {}):
            (got,) = scan_when_hindered(device, make_problem(x), "auto", scheduler, **options)
            assert_same(got, ufunc_scan("add", x), scheduler)


def test_look_ahead_hands_the_fold_over(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one workgroup at a time: no tile starts before the first workgroup has ended, with nothing to fold."""
    device, rng = device_as_if(own_device, unsafe=True), np.random.default_rng(5)
    numbers, matrices = (rng.integers(0, 2**32, shape, dtype=np.uint32) for shape in ((20_000,), (2_000, 4, 4)))
    problem = make_problem(numbers)
    cases = [(problem, tile, False) for tile in half_of(device, tiles_on(device))]
    cases.append((replace(problem, keep_last_only=True), tiles_on(device)[-1], False))
    size = device.capabilities.subgroup_size
    if size >= BLOCK:  # all subgroups of the first workgroup fold wide items
        cases.append((make_problem(matrices, "matmul"), TileShape(2 * size, size, 2, 1), True))
    for problem, tile, in_rounds in cases:
        options: dict[str, Any] = {"tile": tile, "scheduler": "serial"}
        kernel = plan_with(device, problem, "lookahead", **options).stages[0].kernel
        assert (kernel.strategy, kernel.wait_policy.in_rounds) == ("lookahead", in_rounds)
        (wanted,) = scan_with(device, problem, "three_dispatch", tile=tile)
        for piece_bytes in (None, 20_000):  # pieces carry a prefix into the next one
            (got,) = scan_when_hindered(device, problem, "lookahead", piece_bytes=piece_bytes, **options)
            assert_same(got, wanted, tile)
