"""Elements that take several accesses: their chunks go through workgroup memory; against folds by hand.

Vectors of an odd and an even number of accesses, in every order of memory; the operator does not commute, and is exact.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import host_arrays as runner
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.tile_shapes import TileShape
from tests.oracle import (
    Array,
    assert_same,
    boundaries,
    maps_of_vectors,
    one_by_one,
    poison,
    posed,
    small_tiles,
    strategies_in_turn,
    strategies_on,
    vectors,
)

MAPS = gs.operator(maps_of_vectors, name="maps of vectors", element_axes=1)
OFFSETS = [0, 3, 3, 700, 701, 1501]


def by_hand(x: Array, **options: Any) -> Array:
    return one_by_one(lambda l, r: (maps_of_vectors(l[0], r[0]),), (x,), **options)[0]


def tile_on(device: Device, chunk: int) -> TileShape:
    """Several subgroups of two steps, or no subgroups where there are none."""
    tile = small_tiles(device)[-1]
    return replace(tile, chunk=chunk)


# The width of the vectors, the chunk, and what is asked for.
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "words, an odd number": (5, 1, {}),
    "words, backwards": (5, 1, {"reverse": True}),
    "pairs of words, an odd number": (6, 1, {"exclusive": True, "initial": 7}),
    "vectors of four, an even number": (8, 1, {"initial": 5}),
    "vectors of four, backwards": (8, 1, {"reverse": True, "exclusive": True, "initial": 3}),
    "several elements, backwards": (5, 4, {"reverse": True}),
}


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_every_way_in_and_out(device: Device, number: int, case: str) -> None:
    width, chunk, options = CASES[case]
    x = vectors(width, "uint32", 1501)
    seed = (options["initial"],) if "initial" in options else None
    wanted = by_hand(x, **options | {"initial": seed})
    for strategy in strategies_in_turn(device, number):
        poison(device, wanted.nbytes)
        (got,) = runner.run(device, posed(x, MAPS, axis=0, **options), strategy, tile=tile_on(device, chunk))
        assert_same(got[0], wanted, strategy)


def test_sizes_about_every_boundary(device: Device) -> None:
    tile = tile_on(device, 1)
    x = vectors(6, "uint32", boundaries(tile)[-1])
    for reverse in (False, True):
        wanted = by_hand(x, reverse=reverse)
        for length in boundaries(tile):
            poison(device, 24 * length)
            part = x[len(x) - length :] if reverse else x[:length]
            problem = posed(part, MAPS, axis=0, reverse=reverse)
            (got,) = runner.run(device, problem, strategies_on(device)[0], tile=tile)
            assert_same(got[0], wanted[len(x) - length :] if reverse else wanted[:length], (length, reverse))


@pytest.mark.parametrize("case", ["rows", "segments"])
def test_rows_and_segments_that_share_tiles(device: Device, case: str) -> None:
    if case == "rows":
        x = vectors(5, "uint32", 7 * 301).reshape(7, 301, 5)
        problem, wanted = posed(x, MAPS, axis=1), np.stack([by_hand(row) for row in x])
    else:
        x = vectors(5, "uint32", OFFSETS[-1])
        problem = posed(x, MAPS, axis=0, segments=OFFSETS)
        wanted = np.concatenate([by_hand(x[a:b]) for a, b in pairwise(OFFSETS) if b > a])
    for strategy in strategies_in_turn(device, case == "rows"):
        poison(device, wanted.nbytes)
        (got,) = runner.run(device, problem, strategy, tile=tile_on(device, 1))
        assert_same(got.reshape(wanted.shape), wanted, strategy)


def test_matrices_in_place(device: Device) -> None:
    """In the planned shape: a GPU stages them, and nothing is overwritten that is still to be read."""
    x = np.random.default_rng(2).integers(0, 2**32, (5001, 3, 3), dtype=np.uint32)
    wanted = [x[0]]
    for matrix in x[1:]:
        wanted.append(wanted[-1] @ matrix)
    array = device.asarray(x)
    gs.scan(array, "matmul", axis=0, out=array)
    assert_same(np.asarray(array), np.stack(wanted))


def test_these_are_staged(device: Device) -> None:
    """So that the tests above are known to run what they are there for."""
    for case, (width, chunk, options) in CASES.items():
        work = runner.work_of(device, posed(vectors(width, "uint32", 1501), MAPS, axis=0, **options))
        tile = tile_on(device, chunk)
        stages = plan_scan(work, device.capabilities, "three_dispatch", "", tile=tile).stages
        staged = {stage.kernel.stage: stage.kernel.exchanges_chunks for stage in stages}
        lanes = tile.subgroup_size > 0
        assert staged == {"reduce": lanes, "scan_totals": False, "scan": lanes}, case
