"""Columns of narrow numbers in rows that begin within words: neighbours store parts of one word.

The tests compare with NumPy, for tiles with and without subgroups, and for strips of columns of several shapes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import ColumnTile
from tests.harness.devices import as_gpu, poison
from tests.harness.scans import make_problem, plan_with, scan_with
from tests.oracle import assert_same, strategies_in_turn
from tests.strategies import numbers

INNER = [3, 5, 6, 7, 9, 31, 33, 63, 65, 129, 261]


def tiles_on(device: gs.Device, chunk: int) -> list[ColumnTile]:
    """Return tiles of few rows: narrow, wide, and of a number of columns that is no power of two."""
    size = device.capabilities.subgroup_size
    shapes = [(4, 8), (32, 2), (6, 16)]
    return [ColumnTile(columns, groups, 3, chunk, lanes) for columns, groups in shapes for lanes in {0, size}]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool"])
@pytest.mark.parametrize("inner", INNER)
def test_rows_of_any_length(device: gs.Device, inner: int, dtype: str) -> None:
    """Assert that every element is stored once, and that words keep what neighbours have stored."""
    rng = np.random.default_rng(inner)
    x = numbers(rng, dtype, (2, 101, inner))
    op = "maximum" if dtype == "bool" else "add"
    tiles = tiles_on(device, 4 if dtype != "int16" else 2)
    problem = make_problem(x, op, axis=1, reverse=True)
    down = x[:, ::-1]
    found = np.maximum.accumulate(down, 1) if dtype == "bool" else np.cumsum(down, 1, dtype=dtype)
    for strategy in strategies_in_turn(device, inner):
        poison(device, x.nbytes)
        (got,) = scan_with(device, problem, strategy, tile=tiles[inner % len(tiles)])
        assert_same(got, found[:, ::-1])


@pytest.mark.parametrize("rotation", range(3))
def test_the_planner_exchanges_words_on_a_gpu(device: gs.Device, rotation: int) -> None:
    """Assert that a GPU's tile takes rows of an odd number of bytes as they are, in one stage without copies."""
    gpu = as_gpu(device)
    rng = np.random.default_rng(rotation)
    shape, dtype = [((3, 130, 117), "uint8"), ((520, 23), "int16"), ((2, 300, 35), "int8")][rotation]
    x = numbers(rng, dtype, shape)
    axis = len(shape) - 2
    plan = plan_with(gpu, make_problem(x, axis=axis), "three_dispatch")
    assert plan.tile.subgroup_size == gpu.capabilities.subgroup_size
    array = gpu.asarray(x)
    with gpu.profile() as spans:
        got = gs.scan(array, axis=axis).numpy()
    assert {span.stage for span in spans.spans} <= {"scan", "reduce", "scan_totals"}
    assert_same(got, np.cumsum(x, axis=axis, dtype=dtype))


@pytest.mark.parametrize("inner", [3, 7, 33])
def test_bundles_of_several_widths(device: gs.Device, inner: int) -> None:
    """Assert that a row of an aligned array also ends where it should if another array of the bundle is narrow."""
    rng = np.random.default_rng(inner)
    bundle = (numbers(rng, "uint8", (77, inner)), rng.integers(0, 99, (77, inner)).astype(np.int32))

    def both(left: Any, right: Any) -> Any:
        return left[0] + right[0], left[1] + right[1]

    options = {"axis": 0, "exclusive": True, "initial": (3, 5)}
    problem = make_problem(bundle, gs.operator(both), **options)
    tiles = tiles_on(device, 4)
    for strategy in strategies_in_turn(device, inner):
        poison(device, *(array.nbytes for array in bundle))
        found = scan_with(device, problem, strategy, tile=tiles[inner % len(tiles)])
        for got, array, initial in zip(found, bundle, (3, 5), strict=True):
            sums = np.cumsum(array, 0, dtype=array.dtype)
            wanted = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]]) + array.dtype.type(initial)
            assert_same(got, wanted)


def test_keys_cut_each_column_by_itself(device: gs.Device) -> None:
    """Assert that keys are compared in the column that a chunk's number belongs to."""
    rng = np.random.default_rng(1)
    x = numbers(rng, "uint8", (211, 27))
    keys = np.cumsum(rng.random(x.shape) < 0.1, axis=0).astype(np.int32)
    wanted = x.copy()
    for row in range(1, len(x)):
        wanted[row] = np.where(keys[row] != keys[row - 1], x[row], wanted[row - 1] + x[row])
    got = gs.scan(device.asarray(x), axis=0, keys=device.asarray(keys))
    assert_same(got.numpy(), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_reductions_of_segments(device: gs.Device, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x = numbers(rng, dtype, (150, 13))
    offsets = np.array([0, 1, 40, 40, 149, 150])
    got = gs.reduce(device.asarray(x), axis=0, segments=offsets, device=device).numpy()
    wanted = [x[a:b].sum(0, dtype=dtype) for a, b in pairwise(offsets)]
    assert_same(got, np.stack(wanted))


def test_what_follows_the_array_keeps_its_bytes(device: gs.Device) -> None:
    """Assert that a result that is a part of a larger array leaves the elements before and after as they were."""
    x = numbers(np.random.default_rng(3), "uint8", (50, 21))
    whole = device.asarray(np.full((70, 21), 99, np.uint8))
    gs.scan(device.asarray(x), axis=0, out=whole[5:55])
    wanted = np.full((70, 21), 99, np.uint8)
    wanted[5:55] = np.cumsum(x, 0, dtype=np.uint8)
    assert_same(whole.numpy(), wanted)


def test_a_recorded_scan(device: gs.Device) -> None:
    """Assert that such a scan can be recorded, and that one in place is refused and changes nothing."""
    x = numbers(np.random.default_rng(5), "int8", (90, 13))
    source, target = device.asarray(x), device.empty(x.shape, x.dtype)
    poison(device, x.nbytes)
    plan = device.plan(x.shape, x.dtype, axis=0)
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, source, target)
    with pytest.raises(ValueError, match="another dst"):
        plan.record(encoder, source, source)
    device.wgpu_device.queue.submit([encoder.finish()])
    assert_same(target.numpy(), np.cumsum(x, 0, dtype=np.int8))
    assert_same(source.numpy(), x)
    gs.scan(source, axis=0, out=source)
    assert_same(source.numpy(), np.cumsum(x, 0, dtype=np.int8))
