"""One workgroup folds the aggregates of many tiles. Every kind of scan has the same bits as three_dispatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.strategies import ends_loops
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from tests.harness.builds import read_ahead_always
from tests.harness.scans import MANY_TILES, make_problem, plan_with, scan_with, traits_of
from tests.oracle import (
    AFFINE,
    MATRICES,
    Array,
    assert_same,
    boundaries,
    half_of,
    one_of,
    small_tiles,
    strategies_on,
    tile_in_turn,
    words,
)
from tests.strategies import numbers

WAITING = ("lookback", "fallback")
# An operator of long code, which software adapters compile ten times sooner than logaddexp: sums with a long name.
LONG = gs.wgsl_operator(
    "fn combine(a: Element, b: Element) -> Element { let NAME = a + b; return NAME; }".replace("NAME", 600 * "s"),
    name="long",
)


def waiting_on(device: gs.Device) -> list[str]:
    return [strategy for strategy in WAITING if strategy in strategies_on(device)]


def compare(device: gs.Device, problem: Problem, tile: TileShape, strategies: list[str], note: object = None) -> None:
    """Require that folds under these strategies give the bits of three_dispatch."""
    wanted = scan_with(device, problem, "three_dispatch", tile=tile)
    for strategy in strategies:
        got = scan_with(device, problem, strategy, tile=tile, one_workgroup_folds=True)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, (strategy, tile, note))


KINDS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "floats": lambda rng: make_problem(rng.standard_normal(50_001).astype(np.float32)),
    "two words": lambda rng: make_problem(words(rng, 2, (30_007,)), AFFINE, exclusive=True),
    "four words": lambda rng: make_problem(words(rng, 4, (12_345,)), MATRICES, reverse=True),
    "64 bits": lambda rng: make_problem(numbers(rng, "int64", (20_003,)), initial=-5),
    "bytes": lambda rng: make_problem(numbers(rng, "uint8", (50_003,)), reverse=True),
    "bools": lambda rng: make_problem(numbers(rng, "bool", (20_003,)), np.logical_xor),
    "rows": lambda rng: make_problem(words(rng, 2, (7, 3001)), AFFINE, axis=1, exclusive=True, reverse=True),
    "segments": lambda rng: make_problem(numbers(rng, "int32", (30_000,)), segments=[0, 3, 3, 8_000, 8_001, 30_000]),
}


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_the_bits_are_those_of_three_dispatch(device: gs.Device, number: int, kind: str) -> None:
    for rotation, tile in one_of(device, enumerate(small_tiles(device), number), number // 2):
        in_turn = waiting_on(device)[rotation % len(waiting_on(device))]
        compare(device, KINDS[kind](np.random.default_rng(1)), tile, [in_turn])


def test_a_fold_that_reads_one_block_at_a_time(device: gs.Device) -> None:
    """Assert that a fold reads one block at a time for matrices, and for operators of long code."""
    rng, tile = np.random.default_rng(6), small_tiles(device)[-1]
    matrices = (rng.random((6001, 2, 2)) * 0.6).astype(np.float32)
    for problem, shape in (
        (make_problem(matrices, "matmul", axis=0), replace(tile, chunk=1)),
        (make_problem(rng.standard_normal(20_001).astype(np.float32), LONG), tile),
    ):
        plan = plan_with(device, problem, "lookback", tile=shape, one_workgroup_folds=True)
        assert traits_of(plan)["scan"].blocks_at_once == 1
        compare(device, problem, shape, waiting_on(device))


def test_a_fold_that_reads_ahead(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every adapter read ahead, as only look-ahead on a GPU does otherwise, in a tile of this test's own."""
    read_ahead_always(monkeypatch)
    tile = small_tiles(device)[-1]
    shape = replace(tile, workgroup_size=2 * tile.workgroup_size, steps=1, chunk=1 if tile.subgroup_size else 3)
    x = np.random.default_rng(7).standard_normal(9001).astype(np.float32)
    problem = make_problem(x, LONG)
    for strategy in waiting_on(device):
        plan = plan_with(device, problem, strategy, tile=shape, one_workgroup_folds=True)
        assert traits_of(plan)["scan"].reads_ahead
        compare(device, problem, shape, [strategy])


def test_sizes_about_every_boundary(device: gs.Device) -> None:
    """Scan partial tiles, partial blocks, and exactly the number of blocks that a fold reads at a time."""
    rng = np.random.default_rng(2)
    for tile in small_tiles(device):
        for length in boundaries(tile):
            compare(
                device, make_problem(rng.standard_normal(length).astype(np.float32)), tile, waiting_on(device), length
            )


@pytest.mark.parametrize("period", [0, 2])
def test_pieces_carry_what_the_fold_has_posted(device: gs.Device, period: int) -> None:
    """Assert that the carry of a piece follows its last tile, and that no tile of the piece waits for it."""
    problem = make_problem(np.random.default_rng(3).standard_normal(24_000).astype(np.float32))
    tile = tile_in_turn(device, period // 2)
    (wanted,) = scan_with(device, problem, "three_dispatch", tile=tile)
    for strategy in ["fallback"] if period else half_of(device, waiting_on(device)):
        (got,) = scan_with(
            device, problem, strategy, tile=tile, piece_bytes=1, one_workgroup_folds=True, withheld=period
        )
        assert_same(got, wanted, (strategy, tile))


def test_many_tiles_are_folded_for(device: gs.Device) -> None:
    """Assert that one workgroup folds from a number of tiles on, only on a GPU, and that results are exact."""
    tile = small_tiles(device)[0]
    for tiles, folds in ((MANY_TILES - 1, False), (MANY_TILES, True)):
        x: Array = numbers(np.random.default_rng(tiles), "uint32", (tiles * tile.tile_size,))
        for strategy in waiting_on(device):
            traits = traits_of(plan_with(device, make_problem(x), strategy, tile=tile))
            assert traits["scan"].one_workgroup_folds == (folds and not ends_loops(device.capabilities))
            (got,) = scan_with(device, make_problem(x), strategy, tile=tile)
            assert_same(got, np.cumsum(x, dtype=np.uint32), (strategy, tiles))
