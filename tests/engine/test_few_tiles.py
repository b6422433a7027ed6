"""Look-back over few tiles: each looks at all tiles before it at once, a block by each subgroup."""

from __future__ import annotations

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.builds import narrow_blocks
from tests.harness.scans import make_problem, plan_with, scan_with
from tests.oracle import AFFINE, assert_same, strategies_on, words


def test_several_subgroups_look(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Assert that the bits equal the bits of three_dispatch, and that a wait for a post that never comes ends."""
    size = own_device.capabilities.subgroup_size
    if not size or "lookback" not in strategies_on(own_device):
        assert not size or own_device.capabilities.backend == "OpenGL" or not own_device.capabilities.progress_earlier
        return
    narrow_blocks(monkeypatch, request, size)
    tile = TileShape(4 * size, size, 1, 4)
    rng = np.random.default_rng(0)
    length = 2 * tile.block * 4 * tile.tile_size - 5  # each subgroup of the last tile looks at two blocks
    initial = tuple(np.uint32(value) for value in (3, 5))
    floats = make_problem(rng.standard_normal(length).astype(np.float32))
    for problem in (floats, make_problem(words(rng, 2, (length // 3,)), AFFINE, exclusive=True, initial=initial)):
        plan = plan_with(own_device, problem, "lookback", tile=tile)
        assert plan.stages[0].kernel.wait_policy.at_once
        wanted = scan_with(own_device, problem, "three_dispatch", tile=tile)
        for got, field in zip(scan_with(own_device, problem, "lookback", tile=tile), wanted, strict=True):
            assert_same(got, field)
    with pytest.raises(gs.ProgressTimeoutError):
        scan_with(own_device, floats, "lookback", tile=tile, withheld=7)
