"""Bools that subgroups pass to each other: each subgroup writes its own, and none may be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.scans import make_problem, scan_with
from tests.oracle import assert_same, some, strategies_in_turn

# Runs of each scan: whether a write is lost depends on chance.
RUNS = 10
DENSITIES = {"logical_xor": 0.5, "logical_and": 0.9999, "logical_or": 0.0001}


@pytest.mark.parametrize(("number", "name"), list(enumerate(DENSITIES)))
def test_many_subgroups(device: gs.Device, number: int, name: str) -> None:
    ufunc: np.ufunc = getattr(np, name)
    x = np.random.default_rng(0).random(50_011) < DENSITIES[name]
    size = device.capabilities.subgroup_size
    tiles = [None, TileShape(64, 0, 1, 4), *([TileShape(max(128, 2 * size), size, 1, 4)] if size else [])]
    for rotation, tile in some(device, enumerate(tiles, number)):
        for strategy in strategies_in_turn(device, rotation):
            for _ in range(RUNS):
                (got,) = scan_with(device, make_problem(x, name), strategy, tile=tile)
                assert_same(got, ufunc.accumulate(x), (strategy, tile))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_columns_and_bundles(device: gs.Device, axis: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.random((700, 64)) < 0.5
    counts = rng.integers(0, 5, (700, 64), dtype=np.int32)

    def both(left: Any, right: Any) -> Any:
        return left[0] ^ right[0], left[1] + right[1]

    wanted = np.logical_xor.accumulate(x, axis=axis)
    for _ in range(RUNS // 2):
        for strategy in strategies_in_turn(device, axis)[:1]:
            assert_same(gs.scan(x, "logical_xor", axis=axis, device=device, strategy=strategy), wanted, strategy)
        for strategy in strategies_in_turn(device, axis + 1):
            got = gs.scan((x, counts), both, axis=axis, device=device, strategy=strategy)
            assert_same(got[0], wanted, strategy)
            assert_same(got[1], np.cumsum(counts, axis=axis, dtype=np.int32), strategy)
