"""The workgroup that folds under look-ahead, alone: its posts are compared with a fold on NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning import kernel
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.reference.stages import Joiner, scan_totals
from tests.harness.builds import narrow_blocks
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem
from tests.harness.stages import run_fold
from tests.oracle import AFFINE, shares_opengl, words


@pytest.mark.parametrize(("in_rounds", "late"), [(True, False), (True, True), (False, True)])
def test_rows(
    own_device: gs.Device,
    in_rounds: bool,
    late: bool,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Assert that every tile up to the first missing aggregate gets its prefix, and no other one."""
    device = own_device
    size = device.capabilities.subgroup_size
    if not size or shares_opengl(device):
        return
    narrow_blocks(monkeypatch, request, size)
    for name in ("CPU", "GPU"):
        monkeypatch.setattr(kernel, name, replace(getattr(kernel, name), min_words_for_rounds=2 if in_rounds else 99))
    device = device_as_if(device, int64_atomics=device.capabilities.int64_atomics and not late)
    tile, tiles = TileShape(4 * size, size, 1, 1), 9 * size + 3  # three rounds; the last block is not full
    rng = np.random.default_rng(0)
    problem = make_problem(words(rng, 2, (tiles * tile.tile_size,)), AFFINE)
    aggregates = words(rng, 2, (tiles,))
    places = -(-tiles // size) * size
    posted = np.full((2 * places, 2), -1)
    posted[:tiles] = np.stack(aggregates, axis=1)
    last = 5 * size + 2 if late else tiles - 1
    posted[last] = -1
    run = run_fold(device, problem, tile, posted)
    assert run.plan.stages[0].kernel.wait_policy.in_rounds == in_rounds
    prefixes, _ = scan_totals(Joiner(problem.operator, problem.element, False), size, aggregates)
    epochs, payloads = run.posts(2)
    np.testing.assert_array_equal(epochs[places : places + last], run.epoch)
    np.testing.assert_array_equal(payloads[places : places + last], np.stack(prefixes, axis=1)[1 : last + 1])
    assert (epochs[places + last :] != run.epoch).all()
