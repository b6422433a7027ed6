"""Single passes compare keys on the device themselves, one for each element, and give what segment bits give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.strategies import Strategy
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from tests.harness.devices import as_gpu
from tests.harness.scans import make_problem, scan_on_device_with
from tests.harness.stages import twin_of
from tests.oracle import assert_same, strategies_on, tile_in_turn

COLUMN_TILE = ColumnTile(2, 4, 2, 1)
PACKED_COLUMN_TILE = ColumnTile(2, 4, 2, 4)

# Shape, axis, keys, elements, exclusive, reverse.
CASES: list[tuple[tuple[int, ...], int, Any, Any, bool, bool]] = [
    ((2003,), 0, np.int32, np.float32, False, False),
    ((5, 403), 1, np.int64, np.int32, True, False),
    ((5, 404), 1, np.float32, np.int16, False, True),
    ((3, 602), 1, np.uint8, np.float32, True, True),
    ((2, 301, 5), 1, np.float32, np.float32, False, False),
    ((301, 8), 0, np.float16, np.uint8, True, True),
    ((150, 7), 0, np.int64, np.int32, False, True),
]


def keys_of(rng: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: Any) -> Any:
    """Return keys in runs of a few; among floats NaN, and zeros of both signs."""
    keys = (np.cumsum(rng.random(shape) < 0.3, axis) % 3).astype(dtype)
    if issubclass(dtype, np.floating):
        keys[rng.random(shape) < 0.05] = np.nan
        keys = np.where(rng.random(shape) < 0.5, keys, np.where(keys == 0, -keys, keys)).astype(dtype)
    return keys


def single_pass(device: gs.Device, number: int) -> Strategy | None:
    """Return a single pass that is safe on the device, the next one for every number."""
    names = [name for name in strategies_on(device) if name != "three_dispatch"]
    return names[number % len(names)] if names else None


@pytest.mark.parametrize("number", range(len(CASES)))
def test_like_the_twin(device: gs.Device, number: int) -> None:
    """Scan rows and columns by keys of all widths, and find that no bits were marked."""
    shape, axis, kind, dtype, exclusive, reverse = CASES[number]
    rng = np.random.default_rng(number)
    keys = keys_of(rng, shape, axis, kind)
    x = rng.integers(-50, 50, shape).astype(dtype)
    x = (x / 7).astype(dtype) if dtype is np.float32 else x
    tile: TileShape | ColumnTile = tile_in_turn(device, number)
    if axis < len(shape) - 1:
        tile = PACKED_COLUMN_TILE if dtype is np.uint8 else COLUMN_TILE
    options: dict[str, Any] = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    wanted = gs.scan(x, keys=keys, device="numpy", **options)
    if isinstance(tile, TileShape):
        (wanted,) = twin_of(make_problem(x, keys=keys, **options), tile)
    out = device.asarray(np.full(shape, 77, dtype))
    problem = make_problem(device.asarray(x), keys=device.asarray(keys), **options)
    strategy = single_pass(device, number)
    assert strategy is not None
    with device.profile() as profile:
        scan_on_device_with(device, problem, strategy, tile=tile, out=[out])
        device.synchronize()
    assert {span.stage for span in profile.spans} == {"scan"}
    if isinstance(tile, TileShape):
        assert_same(out, wanted)
    else:
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 6), (3, 33, 4), (40, 5)])
def test_columns_that_are_brought_together(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Assert that keys are read along the axis of the scan if the columns of the array are scanned as rows."""
    rng = np.random.default_rng(4)
    axis = len(shape) - 2
    x, keys = rng.standard_normal(shape).astype(np.float32), keys_of(rng, shape, axis, np.int32)
    wanted = gs.scan(x, axis=axis, keys=keys, device="numpy", reproducible="everywhere")
    for where in (device, as_gpu(device)):
        given, on_device = where.asarray(x), where.asarray(keys)
        found = gs.scan(given, axis=axis, keys=on_device, reproducible="everywhere")
        assert found.numpy().tobytes() == wanted.tobytes()


def test_reduce_by_key(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce runs in one pass that finds where they begin and end."""
    strategy = single_pass(device, 1)
    assert strategy is not None
    monkeypatch.setenv("GPUSCAN_STRATEGY", strategy)
    rng = np.random.default_rng(3)
    keys, x = keys_of(rng, (3001,), 0, np.int32), rng.integers(0, 99, 3001).astype(np.int32)
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    found, sums = gs.reduce_by_key(device.asarray(keys), device.asarray(x))
    assert_same(found, keys[starts])
    assert_same(sums, np.add.reduceat(x, starts, dtype=np.int32))


def test_keys_that_are_overwritten(device: gs.Device) -> None:
    """Write the results over the keys, and over elements that are keys as well."""
    strategy = single_pass(device, 0)
    assert strategy is not None
    rng = np.random.default_rng(4)
    keys, x = keys_of(rng, (900,), 0, np.int32), rng.integers(0, 99, 900).astype(np.int32)
    wanted = gs.scan(x, keys=keys, device="numpy")
    there = device.asarray(keys)
    gs.scan(device.asarray(x), keys=there, out=there, strategy=strategy)
    assert_same(there, wanted)
    there = device.asarray(keys)
    assert_same(gs.scan(there, keys=there, strategy=strategy), gs.scan(keys, keys=keys, device="numpy"))
    assert_same(gs.scan(there, keys=there, out=there), gs.scan(keys, keys=keys, device="numpy"))
