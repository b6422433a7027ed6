"""One set of bits: on every run and under every strategy, floats included."""

from __future__ import annotations

import numpy as np

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.scans import find_tile, make_problem
from tests.harness.stages import twin_of
from tests.oracle import strategies_on

# Runs of each scan under each strategy: an order that depends on timing shows within a few.
RUNS = 8


def test_float_sums_have_one_set_of_bits(device: gs.Device) -> None:
    """Assert that the bits equal the CPU twin's bits, and that another order of adding gives other bits."""
    length = 2**18 if device.capabilities.adapter_type == "CPU" else 2**20
    x = np.random.default_rng(0).standard_normal(length).astype(np.float32)
    seen = {
        gs.scan(x, device=device, strategy=strategy).tobytes()
        for strategy in strategies_on(device)
        for _ in range(RUNS)
    }
    problem = make_problem(x)
    tile = find_tile(device, problem)
    assert isinstance(tile, TileShape)
    (twin,) = twin_of(problem, tile)
    assert seen == {twin.tobytes()}
    assert np.add.accumulate(x).tobytes() not in seen


def test_the_bits_do_not_depend_on_what_ran_before(device: gs.Device) -> None:
    """Assert that neither junk in the tile state nor its size changes the bits."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(50_000).astype(np.float32)
    first = gs.scan(x, device=device).tobytes()
    for length in (1, 50_000, 2**21, 12_345):
        gs.scan(rng.standard_normal(length).astype(np.float32), "maximum", device=device, reverse=True)
        assert gs.scan(x, device=device).tobytes() == first
