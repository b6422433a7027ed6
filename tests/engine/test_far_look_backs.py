"""Columns with tiles that look back over several windows. A window has one tile for each group of a tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import min_chunk
from gpuscan.planning.tile_shapes import ColumnTile
from tests.harness.scans import make_problem, scan_with
from tests.oracle import AFFINE, MATRICES, Array, assert_same, some, strategies_on, words

# Windows of 1, 2 and 7 tiles, of the bits of two words, and of all bits of two words.
TILES = [ColumnTile(8, 1, 1, 1), ColumnTile(4, 2, 2, 1), ColumnTile(8, 7, 1, 1), ColumnTile(4, 34, 1, 1)]
TILES.append(ColumnTile(4, 64, 1, 1))
# One of how many tiles publishes a prefix, which ends a look-back: some, or only the first of a chain.
PERIODS = [5, 100_000]


def count_rows(tile: ColumnTile) -> int:
    """Return how many rows several windows of tiles have. The last tile is not full."""
    return (50 + tile.groups) * tile.height - 1


def problems(tile: ColumnTile) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Return arrays, with operators that show the order of combination."""
    rng, rows = np.random.default_rng(tile.groups), count_rows(tile)
    marks = rng.random((rows, 6)) < 0.02
    later = gs.operator(lambda l, r: (l[0] | r[0], np.where(r[0], r[1], l[1] + r[1])), name="after marks")
    return [
        (rng.standard_normal((2, rows, 6), dtype=np.float32), "add", {"axis": 1, "reverse": True}),
        (words(rng, 2, (rows, 5)), AFFINE, {"axis": 0, "exclusive": True}),
        (words(rng, 4, (rows, 5)), MATRICES, {"axis": 0}),
        ((marks, rng.integers(0, 2**32, marks.shape, dtype=np.uint32)), later, {"axis": 0}),
        (rng.integers(0, 2**32, marks.shape, dtype=np.uint32), "add", {"axis": 0, "keys": np.arange(rows) // 50}),
    ]


def check(
    device: gs.Device, x: Any, op: Any, options: dict[str, Any], tile: ColumnTile, strategy: str, **o: Any
) -> None:
    """Compare the bits with the results of three dispatches, in which one dispatch combines all totals."""
    problem = make_problem(x, op, **options)
    tile = replace(tile, chunk=min_chunk(problem.source, problem.destination))
    wanted: list[Array] = scan_with(device, problem, "three_dispatch", tile=tile)
    got = scan_with(device, problem, strategy, tile=tile, **o)
    for result, field in zip(got, wanted, strict=True):
        assert_same(result, field, (tile, strategy, options, o))


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_few_tiles_post_prefixes(device: gs.Device, tile: ColumnTile) -> None:
    for number, (x, op, options) in some(device, list(enumerate(problems(tile)))):
        # Fallback has all of lookback in it.
        strategy = "lookback" if number == 0 and "lookback" in strategies_on(device) else "fallback"
        check(device, x, op, options, tile, strategy, prefix_period=PERIODS[number % 2])


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_far_tiles_are_late(device: gs.Device, tile: ColumnTile) -> None:
    """Assert that fallback does the work of the farthest of several late tiles, and then of the others."""
    for period in PERIODS:
        # Other numbers each time, since posts of equal ones stay in the tile state.
        x = words(np.random.default_rng(period), 2, (count_rows(tile), 5))
        check(device, x, AFFINE, {"axis": 0}, tile, "fallback", prefix_period=period, withheld=7)
