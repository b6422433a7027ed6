"""Integers of one and two bytes: their chunks stay packed in registers and are scanned twice.

The tests go through subgroups, several steps, and every way to load and store a chunk; they compare with folds by hand
and with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import operator
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from tests.harness.devices import poison
from tests.harness.scans import make_problem, plan_with, scan_with, traits_of
from tests.oracle import Array, assert_same, boundaries, one_by_one, small_tiles, strategies_in_turn, strategies_on
from tests.strategies import numbers


def _affine(left: Any, right: Any) -> Any:
    """Compose maps ``x -> a x + b`` modulo 16, with `a` in the low half of a byte and `b` in the high half."""
    a, b = right & 15, right & 240
    return ((left & 15) * a & 15) | ((left & 240) * a + b & 240)


AFFINE = operator(_affine, identity=1, name="affine in a byte")


def tile_on(device: gs.Device, chunk: int = 16) -> TileShape:
    """Return a tile of two subgroups and several steps, or one without subgroups if the device has none."""
    tile = small_tiles(device)[-1]
    if not tile.subgroup_size:
        return replace(tile, chunk=chunk)
    return replace(tile, workgroup_size=2 * max(32, tile.subgroup_size), chunk=chunk)


def bytes_of(rng: np.random.Generator, *shape: int) -> Array:
    return numbers(rng, "uint8", shape)


def by_hand(x: Array, **options: Any) -> Array:
    (found,) = one_by_one(lambda l, r: (_affine(l[0], r[0]),), (x,), **options)
    return found


def cut(x: Array, offsets: list[int]) -> Array:
    return np.concatenate([by_hand(x[a:b]) for a, b in pairwise(offsets) if b > a])


Case = Callable[[np.random.Generator], tuple[Problem, Array]]
OFFSETS = [0, 3, 3, 4000, 4001, 12_345]
CASES: dict[str, Case] = {
    "inclusive": lambda rng: (make_problem(x := bytes_of(rng, 12_345), AFFINE), by_hand(x)),
    "exclusive": lambda rng: (
        make_problem(x := bytes_of(rng, 12_345), AFFINE, exclusive=True),
        by_hand(x, exclusive=True, initial=(1,)),
    ),
    "backwards": lambda rng: (make_problem(x := bytes_of(rng, 12_345), AFFINE, reverse=True), by_hand(x, reverse=True)),
    "backwards, exclusive, seeded": lambda rng: (
        make_problem(x := bytes_of(rng, 12_347), AFFINE, reverse=True, exclusive=True, initial=77),
        by_hand(x, reverse=True, exclusive=True, initial=(77,)),
    ),
    "seeded": lambda rng: (make_problem(x := bytes_of(rng, 12_346), AFFINE, initial=35), by_hand(x, initial=(35,))),
    "rows": lambda rng: (make_problem(x := bytes_of(rng, 5, 3004), AFFINE, axis=1), by_hand(x, axis=1)),
    "rows, seeded": lambda rng: (
        make_problem(x := bytes_of(rng, 5, 3004), AFFINE, axis=1, initial=19),
        by_hand(x, axis=1, initial=(19,)),
    ),
    "segments": lambda rng: (make_problem(x := bytes_of(rng, 12_345), AFFINE, segments=OFFSETS), cut(x, OFFSETS)),
    "signed bytes": lambda rng: (
        make_problem(x := numbers(rng, "int8", (12_345,))),
        np.add.accumulate(x, dtype=np.int8),
    ),
    "bools": lambda rng: (
        make_problem(x := numbers(rng, "bool", (12_345,)), np.logical_xor),
        np.logical_xor.accumulate(x),
    ),
    "two bytes": lambda rng: (
        make_problem(x := numbers(rng, "int16", (12_345,)), "bitwise_xor", reverse=True),
        np.bitwise_xor.accumulate(x[::-1])[::-1],
    ),
    "two bytes, multiplied": lambda rng: (
        make_problem(x := numbers(rng, "uint16", (12_345,)) | np.uint16(1), "multiply"),
        np.multiply.accumulate(x, dtype=np.uint16),
    ),
    "bytes to words": lambda rng: (
        make_problem(x := bytes_of(rng, 12_345), dtype=np.uint32),
        np.cumsum(x, dtype=np.uint32),
    ),
    "maps": lambda rng: (
        make_problem(x := bytes_of(rng, 12_345), before=lambda v: v ^ 85, after=lambda v: v.astype(np.uint32) * 3),
        np.add.accumulate(x ^ np.uint8(85), dtype=np.uint8).astype(np.uint32) * 3,
    ),
    "signed bytes out of their range, mapped": lambda rng: (
        make_problem(x := numbers(rng, "int8", (12_345,)), after=lambda v: v.astype(np.int32)),
        np.add.accumulate(x, dtype=np.int8).astype(np.int32),
    ),
}


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_every_way_in_and_out(device: gs.Device, number: int, case: str) -> None:
    problem, wanted = CASES[case](np.random.default_rng(1))
    for strategy in strategies_in_turn(device, number):
        poison(device, wanted.nbytes)
        (got,) = scan_with(device, problem, strategy, tile=tile_on(device))
        assert_same(got, wanted, strategy)


def test_sizes_about_every_boundary(device: gs.Device) -> None:
    tile = tile_on(device, chunk=4)
    x = bytes_of(np.random.default_rng(2), boundaries(tile)[-1])
    wanted = by_hand(x)
    for length in boundaries(tile):
        poison(device, length)
        (got,) = scan_with(device, make_problem(x[:length], AFFINE), strategies_on(device)[0], tile=tile)
        assert_same(got, wanted[:length], length)


def test_rows_that_end_where_tiles_do(device: gs.Device) -> None:
    tile = replace(tile_on(device, chunk=4), per_row=True)
    x = bytes_of(np.random.default_rng(3), 9, tile.tile_size + 128)
    for strategy in strategies_on(device):
        (got,) = scan_with(device, make_problem(x, AFFINE, axis=1, exclusive=True), strategy, tile=tile)
        assert_same(got, by_hand(x, axis=1, exclusive=True, initial=(1,)), strategy)


def test_reductions(device: gs.Device) -> None:
    x = bytes_of(np.random.default_rng(4), 5, 3004)
    assert_same(gs.reduce(x, AFFINE, axis=1, device=device), by_hand(x, axis=1)[:, -1])
    assert gs.reduce(x[0], AFFINE, device=device) == by_hand(x[0])[-1]


def test_these_stay_packed(device: gs.Device) -> None:
    """Make sure that the tests above run the shaders that they are about."""
    for case, make in CASES.items():
        problem, _ = make(np.random.default_rng(1))
        traits = traits_of(plan_with(device, problem, strategies_on(device)[0], tile=tile_on(device)))
        assert traits["scan"].keeps_storage == (tile_on(device).subgroup_size > 0), case
