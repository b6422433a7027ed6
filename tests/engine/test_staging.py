"""Elements that take several accesses: their chunks go through workgroup memory.

The tests compare vectors of an odd and an even number of accesses with folds by hand. The operator does not commute,
and is exact.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.devices import poison
from tests.harness.scans import make_problem, plan_with, scan_with, traits_of
from tests.oracle import (
    Array,
    assert_same,
    boundaries,
    half_of,
    maps_of_vectors,
    one_by_one,
    small_tiles,
    strategies_in_turn,
    strategies_on,
    vectors,
)

MAPS = gs.operator(maps_of_vectors, name="maps of vectors", element_axes=1)
OFFSETS = [0, 3, 3, 700, 701, 1501]


def by_hand(x: Array, **options: Any) -> Array:
    return one_by_one(lambda l, r: (maps_of_vectors(l[0], r[0]),), (x,), **options)[0]


def tile_on(device: gs.Device, chunk: int) -> TileShape:
    """Return a small tile with a chunk of this many elements."""
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
# Vectors that begin within words: the type of their numbers, the width, the chunk, and what is asked for.
NARROW: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "bytes": ("uint8", 5, 4, {"exclusive": True, "initial": 7}),
    "bytes, an even number of words": ("uint8", 3, 8, {}),
    "halves of words": ("uint16", 7, 2, {"initial": 3}),
    "halves of words, backwards": ("uint16", 3, 4, {"reverse": True}),
}


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_every_way_in_and_out(device: gs.Device, number: int, case: str) -> None:
    width, chunk, options = CASES[case]
    x = vectors(width, "uint32", 1501)
    seed = (options["initial"],) if "initial" in options else None
    wanted = by_hand(x, **options | {"initial": seed})
    for strategy in strategies_in_turn(device, number):
        poison(device, wanted.nbytes)
        (got,) = scan_with(device, make_problem(x, MAPS, axis=0, **options), strategy, tile=tile_on(device, chunk))
        assert_same(got, wanted, strategy)


@pytest.mark.parametrize(("number", "case"), list(enumerate(NARROW)))
def test_vectors_that_begin_within_words(device: gs.Device, number: int, case: str) -> None:
    dtype, width, chunk, options = NARROW[case]
    tile = tile_on(device, chunk)
    seed = (options["initial"],) if "initial" in options else None
    for length in (1500, 1501, 4 * chunk + 3):
        x = vectors(width, dtype, length)
        wanted = by_hand(x, **options | {"initial": seed})
        problem = make_problem(x, MAPS, axis=0, **options)
        for strategy in strategies_in_turn(device, number):
            poison(device, wanted.nbytes)
            (got,) = scan_with(device, problem, strategy, tile=tile)
            assert_same(got, wanted, (length, strategy))
    x = vectors(width, dtype, 1500)
    traits = traits_of(plan_with(device, make_problem(x, MAPS, axis=0, **options), "three_dispatch", tile=tile))
    assert traits["scan"].uses_workgroup_memory == (tile.subgroup_size > 0)


def test_sizes_about_every_boundary(device: gs.Device) -> None:
    tile = tile_on(device, 1)
    x = vectors(6, "uint32", boundaries(tile)[-1])
    for reverse in half_of(device, (False, True)):
        wanted = by_hand(x, reverse=reverse)
        for length in boundaries(tile):
            poison(device, 24 * length)
            part = x[len(x) - length :] if reverse else x[:length]
            problem = make_problem(part, MAPS, axis=0, reverse=reverse)
            (got,) = scan_with(device, problem, strategies_on(device)[0], tile=tile)
            assert_same(got, wanted[len(x) - length :] if reverse else wanted[:length], (length, reverse))


@pytest.mark.parametrize("case", ["rows", "segments"])
def test_rows_and_segments_that_share_tiles(device: gs.Device, case: str) -> None:
    if case == "rows":
        x = vectors(5, "uint32", 7 * 301).reshape(7, 301, 5)
        problem, wanted = make_problem(x, MAPS, axis=1), np.stack([by_hand(row) for row in x])
    else:
        x = vectors(5, "uint32", OFFSETS[-1])
        problem = make_problem(x, MAPS, axis=0, segments=OFFSETS)
        wanted = np.concatenate([by_hand(x[a:b]) for a, b in pairwise(OFFSETS) if b > a])
    for strategy in strategies_in_turn(device, case == "rows"):
        poison(device, wanted.nbytes)
        (got,) = scan_with(device, problem, strategy, tile=tile_on(device, 1))
        assert_same(got, wanted, strategy)


def test_matrices_in_place(device: gs.Device) -> None:
    """Assert that a scan in place, in the planner's tile, overwrites nothing that is still to be read."""
    x = np.random.default_rng(2).integers(0, 2**32, (5001, 3, 3), dtype=np.uint32)
    wanted = [x[0]]
    for matrix in x[1:]:
        wanted.append(wanted[-1] @ matrix)
    array = device.asarray(x)
    gs.scan(array, "matmul", axis=0, out=array)
    assert_same(np.asarray(array), np.stack(wanted))


def test_these_are_staged(device: gs.Device) -> None:
    """Make sure that the tests above run the shaders that they are about."""
    for case, (width, chunk, options) in CASES.items():
        problem, tile = make_problem(vectors(width, "uint32", 1501), MAPS, axis=0, **options), tile_on(device, chunk)
        traits = traits_of(plan_with(device, problem, "three_dispatch", tile=tile))
        staged = {stage: each.uses_workgroup_memory for stage, each in traits.items()}
        lanes = tile.subgroup_size > 0
        assert staged == {"reduce": lanes, "scan_totals": False, "scan": lanes}, case
