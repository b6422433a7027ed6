"""Columns in many chains: a tile waits for the prefix from the tile above alone, and posts no aggregate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning import kernel
from gpuscan.planning.tile_shapes import ColumnTile
from tests.harness.scans import make_problem, plan_with, scan_with
from tests.oracle import AFFINE, assert_same, words

TILE = ColumnTile(8, 2, 3, 1)


@pytest.fixture
def waiting_device(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return a device on which tiles of columns wait for the tile above, even in few chains."""
    for name in ("CPU", "GPU"):
        monkeypatch.setattr(kernel, name, replace(getattr(kernel, name), min_waiting_chains=1))
    return own_device


@pytest.mark.parametrize("scheduler", ["", "random"])
def test_bits_are_those_of_a_look_back(waiting_device: gs.Device, scheduler: str) -> None:
    """Assert that tiles are joined in the same order, which floats show, and for operators that do not commute."""
    device = waiting_device
    rng = np.random.default_rng(0)
    halves = make_problem(rng.standard_normal((2, 301, 13), dtype=np.float32), axis=1, exclusive=True, reverse=True)
    assert plan_with(device, halves, "lookback", tile=TILE).stages[0].kernel.wait_policy.chained
    for problem in (halves, make_problem(words(rng, 2, (301, 9)), AFFINE, axis=0)):
        wanted = scan_with(device, problem, "three_dispatch", tile=TILE)
        got = scan_with(device, problem, "lookback", tile=TILE, scheduler=scheduler)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field)


def test_a_tile_that_waits_in_vain_gives_up(waiting_device: gs.Device) -> None:
    x = np.ones((301, 9), np.uint32)
    with pytest.raises(gs.ProgressTimeoutError, match="three_dispatch"):
        scan_with(waiting_device, make_problem(x, axis=0), "lookback", tile=TILE, withheld=7)
    (got,) = scan_with(waiting_device, make_problem(x, axis=0), "three_dispatch", tile=TILE)
    assert_same(got, np.cumsum(x, axis=0, dtype=np.uint32))
