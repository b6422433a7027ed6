"""Many threads at once, on one device and on the default one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import gpuscan as gs
from tests.harness.scans import record_and_submit
from tests.oracle import assert_same, one_by_one, ufunc_scan

THREADS = 8
ROUNDS = 6
LENGTHS = (1, 100, 5_000, 70_000)
OPERATORS = ("add", "maximum", "bitwise_xor")


def work(thread: int, device: gs.Device | None, together: threading.Barrier) -> int:
    """Scan lengths and operators in an order of the thread's own, and compare each result with NumPy."""
    rng = np.random.default_rng(thread)
    together.wait()
    for _ in range(ROUNDS):
        x = rng.integers(0, 2**32, rng.choice(LENGTHS), dtype=np.uint32)
        name = str(rng.choice(OPERATORS))
        reverse = bool(rng.integers(2))
        got = gs.scan(x, name, reverse=reverse, device=device)
        assert_same(got, ufunc_scan(name, x[::-1])[::-1] if reverse else ufunc_scan(name, x))
    table = rng.integers(0, 2**32, (2, 13, 57), dtype=np.uint32)
    got = gs.scan(tuple(table), lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), axis=1, device=device)
    wanted = one_by_one(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), tuple(table), axis=1)
    for result, field in zip(got, wanted, strict=True):
        assert_same(result, field)
    return thread


def work_on_device(thread: int, device: gs.Device, together: threading.Barrier) -> int:
    """Scan, reduce, sort and compact arrays on the device, also by recorded plans and read by another thread."""
    rng = np.random.default_rng(thread)
    together.wait()
    for _ in range(ROUNDS):
        x = rng.integers(0, 2**32, rng.choice(LENGTHS), dtype=np.uint32)
        array, wanted = device.asarray(x), ufunc_scan("add", x)
        assert_same(array.read_async().result(), x)
        assert_same(gs.scan(array).numpy(), wanted)
        assert int(gs.reduce(array).numpy()) == wanted[-1]
        assert_same((array * 2 + 1).numpy(), x * 2 + 1)
        assert_same(gs.sort(array).numpy(), np.sort(x))
        assert_same(gs.compact(array, device.asarray(x % 3 == 0)).numpy(), x[x % 3 == 0])
        result = device.empty(len(x), x.dtype)
        record_and_submit(device.wgpu_device, device.plan(len(x), x.dtype), array, result)
        assert_same(result.numpy(), wanted)
    return thread


def at_once(device: gs.Device | None, work: Callable[..., int] = work) -> None:
    together = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        done: list[Any] = [pool.submit(work, thread, device, together) for thread in range(THREADS)]
        assert [future.result() for future in done] == list(range(THREADS))


def test_one_device_from_many_threads(device: gs.Device) -> None:
    at_once(device)
    assert device.memory_usage().bytes_in_use == 0


def test_arrays_on_one_device_from_many_threads(device: gs.Device) -> None:
    at_once(device, work_on_device)


def test_the_default_device_is_opened_once(adapter: Any, monkeypatch: Any) -> None:
    """Assert that threads that all call first share one device."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    at_once(None)
    assert gs.default_device() is gs.default_device()
