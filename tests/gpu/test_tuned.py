"""Devices that `gpuscan tune` has found shapes for: every way to scan takes them, and gives the same bits."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import Device
from gpuscan.device import tile_cache as tuning
from gpuscan.engine.host_arrays import planned, run
from gpuscan.planning.tile_shapes import TileShape
from tests.oracle import posed, strategies_on, with_capabilities

LENGTH = 50_001


def shape_for(device: Device) -> TileShape:
    """A shape that the planner would not take."""
    lanes = 0 if device.capabilities.adapter_type == "CPU" else device.capabilities.subgroup_size
    return TileShape(128, lanes, 3 if lanes else 1, 4 if lanes else 16)


def tuned(device: Device) -> Device:
    """The same GPU, for which a shape of single words was found."""
    other = with_capabilities(device)
    found = {(1, LENGTH): shape_for(device)}
    vars(other).update(tuned=MappingProxyType(found), plans_kept=OrderedDict(), small_scans={})
    return other


def test_a_device_takes_what_was_kept_for_it(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    assert Device(device).tuned == {}
    found = {(1, LENGTH): shape_for(device)}
    assert tuning.store(device.capabilities, found) is not None
    opened = Device(device)
    assert opened.tuned == found
    x = np.arange(LENGTH, dtype=np.uint32)
    assert opened.plan(LENGTH, np.uint32, "add")._plan.tile == shape_for(device)
    np.testing.assert_array_equal(gs.scan(x, device=opened), np.cumsum(x, dtype=np.uint32))


def test_every_way_to_scan_has_the_same_bits(device: Device) -> None:
    other = tuned(device)
    x = np.random.default_rng(7).normal(size=LENGTH).astype(np.float32)
    expected = gs.scan(x, device=other)
    np.testing.assert_allclose(expected, np.cumsum(x.astype(np.float64)), rtol=1e-4, atol=1e-3)
    results: dict[str, Any] = {name: gs.scan(x, device=other, strategy=name) for name in strategies_on(device)}
    results["an array on the device"] = gs.scan(other.asarray(x), device=other).numpy()
    results["chunks"] = np.concatenate(list(gs.scan_chunks(np.array_split(x, 7), device=other)))
    results["pieces"] = run(other, posed(x), "auto", piece_bytes=1 << 14)[0][0]
    results["a plan"] = other.plan(LENGTH, np.float32, "add")(x)
    source, target = other.asarray(x), other.asarray(np.full(LENGTH, np.nan, np.float32))
    encoder = other.wgpu_device.create_command_encoder()
    other.plan(LENGTH, np.float32, "add").record(encoder, source, target)
    other.wgpu_device.queue.submit([encoder.finish()])
    results["a recorded plan"] = target.numpy()
    for name, result in results.items():
        np.testing.assert_array_equal(np.asarray(result).view(np.uint32), expected.view(np.uint32), err_msg=name)


def test_what_was_not_measured_keeps_the_planners_shape(device: Device) -> None:
    other = tuned(device)
    x = np.ones(LENGTH, np.float32)
    assert planned(other, posed(x, "add"), "auto").tile == shape_for(device)
    for problem in (posed(x, "logaddexp"), posed(x.reshape(3, -1), "add", axis=1), posed(x.astype(np.float16), "add")):
        assert planned(other, problem, "auto").tile == planned(device, problem, "auto").tile
