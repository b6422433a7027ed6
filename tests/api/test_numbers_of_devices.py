"""Devices that are chosen by their number."""

from __future__ import annotations

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.devices import hide_adapters
from tests.oracle import assert_same

X = np.array([3, 1, 4, 1, 5], np.int32)


def test_a_number_chooses_among_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose by number, although most summaries have digits in them."""
    found = gs.devices()
    for number, device in enumerate(found):
        # Arrays tell which device a call runs on: a call for another one is refused.
        array = device.asarray(X)
        for wanted in (number, str(number), np.int64(number)):
            assert gs.Device(wanted).capabilities.summary == device.capabilities.summary
            assert_same(gs.scan(array, device=wanted).numpy(), np.array([3, 4, 8, 9, 14], np.int32))
        if len(found) > 1:
            with pytest.raises(ValueError, match="a scan runs where its arrays are"):
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
