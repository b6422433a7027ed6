"""Devices that `gpuscan tune` has found tiles for: every way to scan takes them and gives the bits of other devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.builds import wait_with_pauses
from tests.harness.devices import as_gpu, find_tuned_tiles, store_tuned_tiles
from tests.harness.scans import find_tile, make_problem, record_and_submit, scan_with, tile_of
from tests.oracle import AFFINE, assert_same, strategies_on, words

LENGTH = 50_001


def shape_for(device: gs.Device) -> TileShape:
    """Return a tile that the planner would not take, in the order of its own; without subgroups in another order."""
    planned = find_tile(device, make_problem(np.ones(LENGTH, np.float32)))
    assert isinstance(planned, TileShape)
    return planned.same_order()[-1] if planned.subgroup_size else TileShape(128, 0, 1, 16)


@pytest.fixture
def device_with_tile(own_device: gs.Device, adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return a device for which `gpuscan tune` has found a tile for single words."""
    if own_device.capabilities.adapter_type == "CPU":
        wait_with_pauses(monkeypatch)
    store_tuned_tiles(own_device, {(1, LENGTH): shape_for(as_gpu(own_device))})
    return as_gpu(gs.Device(adapter))


def test_a_device_takes_the_tiles_that_were_stored_for_it(own_device: gs.Device, device_with_tile: gs.Device) -> None:
    assert find_tuned_tiles(own_device) == {}
    shape = shape_for(as_gpu(own_device))
    assert find_tuned_tiles(device_with_tile) == {(1, LENGTH): shape}
    planned = find_tile(as_gpu(own_device), make_problem(np.ones(LENGTH, np.uint32)))
    taken = shape if shape.subgroup_size else planned
    assert shape != planned
    assert tile_of(device_with_tile.plan(LENGTH, np.uint32, "add")) == taken
    x = np.arange(LENGTH, dtype=np.uint32)
    np.testing.assert_array_equal(gs.scan(x, device=device_with_tile), np.cumsum(x, dtype=np.uint32))


def test_every_way_to_scan_has_the_bits_of_an_untuned_device(
    own_device: gs.Device, device_with_tile: gs.Device
) -> None:
    x = np.random.default_rng(7).normal(size=LENGTH).astype(np.float32)
    expected = gs.scan(x, device=as_gpu(own_device))
    np.testing.assert_allclose(expected, np.cumsum(x.astype(np.float64)), rtol=1e-4, atol=1e-3)
    results: dict[str, Any] = {
        name: gs.scan(x, device=device_with_tile, strategy=name) for name in strategies_on(device_with_tile)
    }
    results["an array on the device"] = gs.scan(device_with_tile.asarray(x), device=device_with_tile).numpy()
    results["chunks"] = np.concatenate(list(gs.scan_chunks(np.array_split(x, 7), device=device_with_tile)))
    results["pieces"] = scan_with(device_with_tile, make_problem(x), piece_bytes=1 << 14)[0]
    results["a plan"] = device_with_tile.plan(LENGTH, np.float32, "add")(x)
    source, target = device_with_tile.asarray(x), device_with_tile.asarray(np.full(LENGTH, np.nan, np.float32))
    record_and_submit(device_with_tile.wgpu_device, device_with_tile.plan(LENGTH, np.float32, "add"), source, target)
    results["a recorded plan"] = target.numpy()
    for name, result in results.items():
        np.testing.assert_array_equal(np.asarray(result).view(np.uint32), expected.view(np.uint32), err_msg=name)


@pytest.mark.parametrize("number", range(4))
def test_bands_do_not_change_the_bits(device: gs.Device, number: int) -> None:
    """Assert that half the workgroup, with twice the bands in each subgroup, combines in the same order."""
    size = device.capabilities.subgroup_size
    if not size:
        assert TileShape(32, 0, 1, 4).same_order() == [TileShape(32, 0, 1, 4)]
        return
    x = np.random.default_rng(number).normal(size=20_011).astype(np.float32)
    problem, chunk, single_lead = [
        (make_problem(x), 4, False),
        (make_problem(x, exclusive=True, reverse=True), 2, True),
        (make_problem(words(np.random.default_rng(1), 2, (9_001,)), AFFINE, exclusive=True), 1, False),
        (make_problem((x * 100).astype(np.int8), "maximum", initial=-7), 4, False),
    ][number]
    tile = TileShape(128, size, 2, chunk, single_lead=single_lead)
    strategy = strategies_on(device)[number % len(strategies_on(device))]
    expected = scan_with(device, problem, strategy, tile=tile)
    assert len(tile.same_order()) == 3
    for shape in tile.same_order()[1:]:
        assert shape.tile_size == tile.tile_size
        for got, field in zip(scan_with(device, problem, strategy, tile=shape), expected, strict=True):
            assert_same(got, field, (shape, strategy))


def test_scans_that_were_not_measured_keep_the_planners_tile(
    own_device: gs.Device, device_with_tile: gs.Device
) -> None:
    x = np.ones(LENGTH, np.float32)
    others = (
        make_problem(x, "logaddexp"),
        make_problem(x.reshape(3, -1), axis=1),
        make_problem(x.astype(np.float16)),
    )
    for problem in others:
        assert find_tile(device_with_tile, problem) == find_tile(as_gpu(own_device), problem)
