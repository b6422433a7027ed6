"""A loop of a scan and a synchronize: each run copies its report itself, so that the check submits nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.engine.test_withheld import TRUSTED
from tests.harness.builds import shorten_waits, withhold_posts
from tests.harness.devices import device_as_if, queue_of
from tests.oracle import assert_same, small_tiles


@pytest.fixture
def submissions(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry for each submission of the device."""
    made: list[str] = []
    queue = queue_of(own_device)
    submit = queue.submit

    def counted(encoder: Any) -> None:
        made.append("submit")
        submit(encoder)

    monkeypatch.setattr(queue, "submit", counted)
    return made


def steps(device: gs.Device, made: list[str], call: Callable[[], None], count: int = 4) -> list[int]:
    """Return how many submissions each of several calls makes."""
    numbers = []
    for _ in range(count):
        made.clear()
        call()
        numbers.append(len(made))
    return numbers


def test_a_check_after_one_run_submits_nothing(own_device: gs.Device, submissions: list[str]) -> None:
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    x = np.random.default_rng(0).integers(0, 2**32, 60_000, dtype=np.uint32)
    source, result = device.asarray(x), device.empty(x.shape, x.dtype)

    def scan_and_wait() -> None:
        gs.scan(source, out=result, strategy="fallback")
        device.synchronize()

    assert steps(device, submissions, scan_and_wait)[-2:] == [1, 1]
    assert_same(result.numpy(), np.cumsum(x, dtype=np.uint32))

    def several() -> None:
        for _ in range(3):
            gs.scan(source, out=result, strategy="fallback")
        device.synchronize()

    assert steps(device, submissions, several)[-2:] == [4, 4]
    assert steps(device, submissions, scan_and_wait)[-2:] == [1, 1]


def test_a_copied_report_tells_of_a_timeout(
    own_device: gs.Device, submissions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_waits(monkeypatch)
    withhold_posts(monkeypatch, tile=small_tiles(own_device)[0])
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    source = device.asarray(np.ones(5000, np.uint32))
    result = device.empty((5000,), np.uint32)

    def scan_and_wait() -> None:
        gs.scan(source, out=result, strategy="lookback")
        with pytest.raises(gs.ProgressTimeoutError):
            device.synchronize()

    assert steps(device, submissions, scan_and_wait, count=5)[-1] == 1
