"""Small arrays: a kind of scan is prepared once, and later calls follow what changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import SCALARS
from tests.harness.builds import count_plans, shorten_waits, withhold_posts
from tests.harness.devices import count_timeouts, device_as_if, force_strategy, poison
from tests.harness.scans import SMALL_ARRAY_BYTES
from tests.oracle import assert_same, small_tiles, strategies_in_turn, ufunc_scan


@pytest.mark.parametrize(
    ("number", "dtype"), list(enumerate(["uint32", "int64", "float32", "int16", "bool", "bfloat16"]))
)
def test_calls_after_the_first(device: gs.Device, number: int, dtype: str) -> None:
    """Make calls of one kind with other contents, in buffers full of earlier results; every second in reverse."""
    reverse = number % 2 == 1
    op = "logical_or" if dtype == "bool" else "add"
    for strategy in ["auto", *strategies_in_turn(device, number // 2)]:
        for seed in range(4):
            x = np.random.default_rng(seed).integers(0, 2, (3, 333)).astype(SCALARS[dtype].dtype)
            poison(device, x.nbytes)
            if dtype == "bfloat16":
                x[:, ::20] = 0  # sums of 8 bits are exact in it
                x[:, 256:] = 0
            wanted = ufunc_scan(op, x[:, ::-1] if reverse else x, axis=1)
            got = gs.scan(x, op, axis=1, reverse=reverse, device=device, strategy=strategy)
            assert_same(got, wanted[:, ::-1] if reverse else wanted, (strategy, seed))
    assert device.memory_usage().bytes_in_use == 0


def test_a_call_is_planned_once(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the second call of a kind plans nothing, and that distrust or the environment makes a new plan."""
    device, planned = device_as_if(device), count_plans(monkeypatch)
    x = np.arange(501, dtype=np.uint32)

    def plans_of_two_calls() -> list[int]:
        counts = []
        for _ in range(2):
            planned.clear()
            assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))
            counts.append(len(planned))
        return counts

    def is_planned_once() -> bool:
        first, second = plans_of_two_calls()
        return first > 0 and second == 0

    assert is_planned_once()
    device = device_as_if(device, distrusted=("lookback",))
    assert is_planned_once()
    monkeypatch.setenv("GPUSCAN_STRATEGY", "three_dispatch")
    assert is_planned_once()


def test_sizes_about_the_limit(device: gs.Device) -> None:
    for length in (SMALL_ARRAY_BYTES // 4 - 1, SMALL_ARRAY_BYTES // 4, SMALL_ARRAY_BYTES // 4 + 1):
        x = np.random.default_rng(1).integers(0, 2**32, length, dtype=np.uint32)
        for _ in range(2):
            assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))


def test_places_of_results_of_later_calls(device: gs.Device) -> None:
    """Make calls of one kind that write over the input, backwards, apart, and to new arrays, also from threads."""
    memory = np.random.default_rng(3).integers(0, 2**32, 1001, dtype=np.uint32)
    for _ in range(3):
        for out in (slice(0, 500), slice(0, 1000, 2), slice(500, 0, -1), slice(3, 503), slice(500, 1000)):
            work = memory.copy()
            result = gs.scan(work[:500], out=work[out], device=device)
            assert result.base is not None
            assert_same(work[out], np.cumsum(memory[:500], dtype=np.uint32), out)
            work[out] = memory[out]
            assert_same(work, memory, out)
        assert int(gs.reduce(memory[:500], device=device)) == int(memory[:500].sum(dtype=np.uint32))
    starts = range(0, 500, 25)
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda start: gs.scan(memory[start : start + 500], device=device), starts)
        for start, result in zip(starts, found, strict=True):
            assert_same(result, np.cumsum(memory[start : start + 500], dtype=np.uint32), start)
    assert device.memory_usage().bytes_in_use == 0


@pytest.mark.parametrize(("vendor", "noted"), [("Mesa", [1, 2]), ("NVIDIA", [2, None])])
def test_a_small_scan_that_times_out_is_done_another_way(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, vendor: str, noted: list[int | None]
) -> None:
    """Withhold posts of many small tiles on a device that would trust look-back.

    Where progress is published, the first call does not wait for the report of its program. So it times out there, and
    again where it waits. After the third time the device leaves look-back out.
    """
    shorten_waits(monkeypatch)
    withhold_posts(monkeypatch, tile=small_tiles(own_device)[0])
    capabilities: dict[str, Any] = {"adapter_type": "DiscreteGPU", "progress_earlier": True, "spins_per_second": 2e4}
    device = device_as_if(own_device, vendor=vendor, **capabilities)
    monkeypatch.setenv("GPUSCAN_STRATEGY", "")
    force_strategy(device, monkeypatch, "lookback", then="three_dispatch")
    x = np.arange(5000, dtype=np.uint32)
    for times in noted:
        assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))
        assert count_timeouts(device).get("lookback") == times
    assert device.capabilities.distrusted == (("lookback",) if times is None else ())
