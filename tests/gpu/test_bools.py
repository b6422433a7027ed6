"""Bools between invocations: each is written by its own subgroup, and none may be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import runner
from gpuscan.device import Device
from gpuscan.kernels import TileShape
from tests.oracle import assert_same, posed, strategies_on

RUNS = 10  # a write that is lost is lost by chance


@pytest.mark.parametrize("name", ["logical_xor", "logical_and", "logical_or"])
def test_many_subgroups(device: Device, name: str) -> None:
    ufunc: np.ufunc = getattr(np, name)
    density = {"logical_xor": 0.5, "logical_and": 0.9999, "logical_or": 0.0001}[name]
    x = np.random.default_rng(0).random(50_011) < density
    size = device.capabilities.subgroup_size
    tiles = [None, TileShape(64, 0, 1, 4), *([TileShape(max(128, 2 * size), size, 1, 4)] if size else [])]
    for strategy in strategies_on(device):
        for tile in tiles:
            for _ in range(RUNS):
                (got,) = runner.run(device, posed(x, name), strategy, **({} if tile is None else {"tile": tile}))
                assert_same(got[0], ufunc.accumulate(x), (strategy, tile))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_columns_and_bundles(device: Device, axis: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.random((700, 64)) < 0.5
    counts = rng.integers(0, 5, (700, 64), dtype=np.int32)

    def both(left: Any, right: Any) -> Any:
        return left[0] ^ right[0], left[1] + right[1]

    wanted = np.logical_xor.accumulate(x, axis=axis)
    for strategy in strategies_on(device):
        for _ in range(RUNS // 2):
            assert_same(gs.scan(x, "logical_xor", axis=axis, device=device, strategy=strategy), wanted, strategy)
            got = gs.scan((x, counts), both, axis=axis, device=device, strategy=strategy)
            assert_same(got[0], wanted, strategy)
            assert_same(got[1], np.cumsum(counts, axis=axis, dtype=np.int32), strategy)
