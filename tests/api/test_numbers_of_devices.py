"""Devices that are chosen by their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api import device as device_module
from gpuscan.device import adapters
from tests.harness.devices import hide_adapters
from tests.oracle import assert_same

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

X = np.array([3, 1, 4, 1, 5], np.int32)


def test_a_number_chooses_among_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose by number, although most summaries have digits in them."""
    found = gs.devices()
    for number, device in enumerate(found):
        # Arrays tell which device a call runs on: a call for another one is refused.
        array = device.asarray(X)
        wanted: Any
        for wanted in (number, str(number), np.int64(number)):
            assert gs.Device(wanted).capabilities.summary == device.capabilities.summary
            assert_same(gs.scan(array, device=wanted).numpy(), np.array([3, 4, 8, 9, 14], np.int32))
        if len(found) > 1:
            with pytest.raises(ValueError, match="a call runs where its arrays are"):
                gs.scan(array, device=(number + 1) % len(found))
        monkeypatch.setenv("GPUSCAN_ADAPTER", str(number))
        assert gs.default_device() is device
        monkeypatch.delenv("GPUSCAN_ADAPTER")


@pytest.mark.parametrize("wanted", [99, "99", -1])
def test_a_number_that_no_device_has(wanted: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gs.AdapterNotFoundError, match=f"no adapter has the number {wanted!r}"):
        gs.Device(wanted)
    with pytest.raises(gs.AdapterNotFoundError, match=f"no adapter has the number {wanted!r}"):
        gs.scan(X, device=wanted)
    if wanted != -1:
        monkeypatch.setenv("GPUSCAN_ADAPTER", "99")
        with pytest.raises(gs.AdapterNotFoundError, match=r"'99' \(from GPUSCAN_ADAPTER\)"):
            gs.scan(X)


def test_a_number_without_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_adapters(monkeypatch)
    with pytest.raises(gs.AdapterNotFoundError, match=r"answers to 0: this machine has no GPU adapter at all; install"):
        gs.scan(X, device=0)


def test_equal_cards(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell two cards of one model apart by their numbers, in messages and by their summaries."""
    twin = next(other for other in wgpu.gpu.enumerate_adapters_sync() if other.summary == adapter.summary)
    monkeypatch.setattr(adapters, "_adapters", [adapter, twin])
    # Devices that other tests use keep their summaries.
    monkeypatch.setattr(device_module, "_open", {})
    for number in (0, 1):
        device = gs.Device(number)
        assert device._context.adapter is (adapter, twin)[number]
        assert device.capabilities.summary == f"{adapter.summary}, card {number}"
        assert gs.Device(device.capabilities.summary)._context.adapter is device._context.adapter
        with pytest.raises(ValueError, match=f"an array on .*, card {number}.* was passed together with "):
            gs.scan(device.asarray(X), device=1 - number)
