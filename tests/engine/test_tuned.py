"""Devices that `gpuscan tune` has found tiles for: every way to scan takes them and gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.devices import store_tuned_tiles, tuned_tiles_of
from tests.harness.scans import make_problem, planned_tile, scan_with, tile_of
from tests.oracle import strategies_on

LENGTH = 50_001


def shape_for(device: gs.Device) -> TileShape:
    """Return a tile that the planner would not take."""
    lanes = 0 if device.capabilities.adapter_type == "CPU" else device.capabilities.subgroup_size
    return TileShape(128, lanes, 3 if lanes else 1, 4 if lanes else 16)


@pytest.fixture
def tuned(own_device: gs.Device, adapter: wgpu.GPUAdapter) -> gs.Device:
    """Return a device for which `gpuscan tune` has found a tile for single words."""
    store_tuned_tiles(own_device, {(1, LENGTH): shape_for(own_device)})
    return gs.Device(adapter)


def test_a_device_takes_the_tiles_that_were_stored_for_it(own_device: gs.Device, tuned: gs.Device) -> None:
    assert tuned_tiles_of(own_device) == {}
    assert tuned_tiles_of(tuned) == {(1, LENGTH): shape_for(tuned)}
    assert tile_of(tuned.plan(LENGTH, np.uint32, "add")) == shape_for(tuned)
    x = np.arange(LENGTH, dtype=np.uint32)
    np.testing.assert_array_equal(gs.scan(x, device=tuned), np.cumsum(x, dtype=np.uint32))


def test_every_way_to_scan_has_the_same_bits(tuned: gs.Device) -> None:
    x = np.random.default_rng(7).normal(size=LENGTH).astype(np.float32)
    expected = gs.scan(x, device=tuned)
    np.testing.assert_allclose(expected, np.cumsum(x.astype(np.float64)), rtol=1e-4, atol=1e-3)
    results: dict[str, Any] = {name: gs.scan(x, device=tuned, strategy=name) for name in strategies_on(tuned)}
    results["an array on the device"] = gs.scan(tuned.asarray(x), device=tuned).numpy()
    results["chunks"] = np.concatenate(list(gs.scan_chunks(np.array_split(x, 7), device=tuned)))
    results["pieces"] = scan_with(tuned, make_problem(x), piece_bytes=1 << 14)[0]
    results["a plan"] = tuned.plan(LENGTH, np.float32, "add")(x)
    source, target = tuned.asarray(x), tuned.asarray(np.full(LENGTH, np.nan, np.float32))
    encoder = tuned.wgpu_device.create_command_encoder()
    tuned.plan(LENGTH, np.float32, "add").record(encoder, source, target)
    tuned.wgpu_device.queue.submit([encoder.finish()])
    results["a recorded plan"] = target.numpy()
    for name, result in results.items():
        np.testing.assert_array_equal(np.asarray(result).view(np.uint32), expected.view(np.uint32), err_msg=name)


def test_scans_that_were_not_measured_keep_the_planners_tile(device: gs.Device, tuned: gs.Device) -> None:
    x = np.ones(LENGTH, np.float32)
    assert planned_tile(tuned, make_problem(x)) == shape_for(tuned)
    others = (
        make_problem(x, "logaddexp"),
        make_problem(x.reshape(3, -1), axis=1),
        make_problem(x.astype(np.float16)),
    )
    for problem in others:
        assert planned_tile(tuned, problem) == planned_tile(device, problem)
