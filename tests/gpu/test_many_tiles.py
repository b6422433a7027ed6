"""Where tiles are many, one workgroup folds for all: the same bits as under three_dispatch, for whatever is scanned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpuscan.api.device import Device
from gpuscan.engine import host_arrays as runner
from gpuscan.planning.heuristics import GPU
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from tests.oracle import (
    AFFINE,
    MATRICES,
    Array,
    assert_same,
    boundaries,
    posed,
    small_tiles,
    strategies_on,
    tile_in_turn,
    words,
)
from tests.strategies import numbers

WAITING = ("lookback", "fallback")


def waiting_on(device: Device) -> list[str]:
    return [strategy for strategy in WAITING if strategy in strategies_on(device)]


def compare(device: Device, problem: Problem, tile: TileShape, strategies: list[str], note: object = None) -> None:
    """Strategies that wait, by a fold, beside the one that does not."""
    wanted = runner.run(device, problem, "three_dispatch", tile=tile)
    for strategy in strategies:
        got = runner.run(device, problem, strategy, tile=tile, one_workgroup_folds=True)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, (strategy, tile, note))


KINDS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "floats": lambda rng: posed(rng.standard_normal(50_001).astype(np.float32)),
    "two words": lambda rng: posed(words(rng, 2, (30_007,)), AFFINE, exclusive=True),
    "four words": lambda rng: posed(words(rng, 4, (12_345,)), MATRICES, reverse=True),
    "64 bits": lambda rng: posed(numbers(rng, "int64", (20_003,)), initial=-5),
    "bytes": lambda rng: posed(numbers(rng, "uint8", (50_003,)), reverse=True),
    "bools": lambda rng: posed(numbers(rng, "bool", (20_003,)), np.logical_xor),
    "rows": lambda rng: posed(words(rng, 2, (7, 3001)), AFFINE, axis=1, exclusive=True, reverse=True),
    "segments": lambda rng: posed(numbers(rng, "int32", (30_000,)), segments=[0, 3, 3, 8_000, 8_001, 30_000]),
}


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_the_bits_are_those_of_three_dispatch(device: Device, number: int, kind: str) -> None:
    for turn, tile in enumerate(small_tiles(device), number):
        in_turn = waiting_on(device)[turn % len(waiting_on(device))]
        compare(device, KINDS[kind](np.random.default_rng(1)), tile, [in_turn])


def test_a_fold_that_reads_one_block_at_a_time(device: Device) -> None:
    """As it does for matrices, and for operators whose code is long."""
    rng, tile = np.random.default_rng(6), small_tiles(device)[-1]
    matrices = (rng.random((6001, 2, 2)) * 0.6).astype(np.float32)
    for problem, shape in (
        (posed(matrices, "matmul", axis=0), replace(tile, chunk=1)),
        (posed(rng.standard_normal(20_001).astype(np.float32), "logaddexp"), tile),
    ):
        plan = plan_scan(
            runner.work_of(device, problem), device.capabilities, "lookback", "", tile=shape, one_workgroup_folds=True
        )
        assert plan.stages[0].kernel.blocks_ahead == 1
        compare(device, problem, shape, waiting_on(device))


def test_a_fold_that_reads_ahead(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As look-ahead's does, which no adapter on the CPU runs: here every one does, in a tile that no other test has."""
    monkeypatch.setattr(Kernel, "reads_ahead", property(lambda kernel: kernel.blocks_ahead == 1))
    tile = small_tiles(device)[-1]
    shape = replace(tile, workgroup_size=2 * tile.workgroup_size, steps=1, chunk=1 if tile.subgroup_size else 3)
    x = np.random.default_rng(7).standard_normal(9001).astype(np.float32)
    problem = posed(x, "logaddexp")
    for strategy in waiting_on(device):
        plan = plan_scan(
            runner.work_of(device, problem), device.capabilities, strategy, "", tile=shape, one_workgroup_folds=True
        )
        assert plan.stages[0].kernel.reads_ahead
        compare(device, problem, shape, [strategy])


def test_sizes_about_every_boundary(device: Device) -> None:
    """Tiles that are not full, blocks that are not, and just as many blocks as a fold reads at a time."""
    rng = np.random.default_rng(2)
    for tile in small_tiles(device):
        for length in boundaries(tile):
            compare(device, posed(rng.standard_normal(length).astype(np.float32)), tile, waiting_on(device), length)


@pytest.mark.parametrize("period", [0, 2])
def test_pieces_carry_what_the_fold_has_posted(device: Device, period: int) -> None:
    """The carry is what comes after the last tile of a piece, which no tile of it waits for."""
    x = np.random.default_rng(3).standard_normal(60_000).astype(np.float32)
    tile = tile_in_turn(device, period // 2)
    (wanted,) = runner.run(device, posed(x), "three_dispatch", tile=tile)
    for strategy in waiting_on(device):
        withhold = period if strategy == "fallback" else 0
        (got,) = runner.run(
            device,
            posed(x),
            strategy,
            tile=tile,
            piece_bytes=1,
            one_workgroup_folds=True,
            test_build=InjectedFaults(withhold),
        )
        assert_same(got, wanted, (strategy, tile))


def test_many_tiles_are_folded_for(device: Device) -> None:
    """The planner's own choice, by the number of tiles on a GPU; the results are exact."""
    tile = small_tiles(device)[0]
    for tiles, many in ((GPU.min_tiles_for_fold - 1, False), (GPU.min_tiles_for_fold, True)):
        x: Array = numbers(np.random.default_rng(tiles), "uint32", (tiles * tile.tile_size,))
        for strategy in waiting_on(device):
            plan = plan_scan(runner.work_of(device, posed(x)), device.capabilities, strategy, "asked", tile=tile)
            assert plan.stages[-1].kernel.wait_policy.one_workgroup_folds == (
                many and device.capabilities.adapter_type != "CPU"
            )
            (got,) = runner.run(device, posed(x), strategy, tile=tile)
            assert_same(got[0], np.cumsum(x, dtype=np.uint32), (strategy, tiles))
