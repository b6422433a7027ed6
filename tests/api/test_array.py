"""Arrays on a device: copies, views, reads, and scans that stay on the device."""

from __future__ import annotations

import copy
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.builds import count_reads, wait_for_reports, withhold_posts
from tests.harness.devices import count_timeouts, forget_plans, small_binding
from tests.oracle import assert_same, numbers, strategies_on, ufunc_scan

DTYPES = ("bool", "int8", "uint16", "int32", "float32", "int64", "complex64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (1000, 3)])
def test_round_trip(device: gs.Device, dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, shape)
    a = device.asarray(x)
    assert (a.shape, a.dtype, a.nbytes, a.device) == (x.shape, x.dtype, x.nbytes, device)
    assert_same(a.numpy(), x)
    assert_same(np.asarray(a), x)
    assert_same(a.copy(), x)
    assert device.asarray(a) is a


def test_an_array_shows_what_the_reference_documents(device: gs.Device) -> None:
    """Compare the names that `dir` shows with the rows of docs/reference.md about arrays."""
    page = Path(__file__).parents[2] / "docs" / "reference.md"
    rows = re.findall(
        r"^\| (`Array` \|.*|`(?:[Aa]rray|a)\.[^|]*|`float\(a\)[^|]*|`array\[\.\.\.\]`[^|]*)",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    documented = {name for row in rows for name in re.findall(r"`(?:[Aa]rray|a)?\.(\w+)", row)}
    a = device.asarray(np.arange(4, dtype=np.float32))
    names = {name for name in (*dir(a), *dir(gs.compact(a, a > 1))) if not name.startswith("_")}
    assert names == documented
    assert {name for name in dir(gs.Array) if not name.startswith("_")} <= documented


def test_large_arrays_go_through_the_rings(device: gs.Device) -> None:
    x = np.random.default_rng(1).integers(0, 256, (40 << 20) + 3, dtype=np.uint8)
    assert_same(device.asarray(x).numpy(), x)


def test_strange_input(device: gs.Device) -> None:
    x = np.arange(24, dtype=">i4").reshape(4, 6)
    assert_same(device.asarray(x.T), x.T.astype(np.int32))
    with pytest.raises(gs.UnsupportedDtypeError, match="datetime64"):
        device.asarray(np.zeros(3, "M8[s]"))
    with pytest.raises(ValueError, match="0 or more"):
        device.empty((3, -1), np.float32)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_lie_on_the_device(device: gs.Device, copied: Callable[[Any], Any]) -> None:
    x = np.arange(10, dtype=np.uint8)
    whole = device.asarray(x)
    for a, wanted in ((whole, x), (whole[3:], x[3:]), (whole.reshape(2, 5), x.reshape(2, 5)), (whole[:0], x[:0])):
        twin = copied(a)
        assert type(twin) is gs.Array
        assert twin.device is device
        assert twin.buffer is not a.buffer
        assert_same(twin, wanted)
    picked = gs.compact(whole, x % 2 == 0)
    assert_same(copied(picked), x[::2])
    before = copied(whole)
    gs.scan(whole, out=whole)
    assert_same(before, x)


def test_a_deep_copy_keeps_what_is_the_same(device: gs.Device) -> None:
    a = device.asarray(np.ones(3, np.float32))
    first, second = copy.deepcopy([a, a])
    assert first is second
    assert first is not a


def test_what_lives_on_a_device_is_not_pickled(device: gs.Device) -> None:
    a = device.asarray(np.ones(3, np.float32))
    plan = device.plan(3, np.float32)
    for thing in (a, a[1:], gs.compact(a, np.ones(3, bool)), device, plan, [a]):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match=r"was to be pickled.* array\.numpy\(\)"):
                pickle.dumps(thing, protocol)
    for thing in (device, plan):
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="was to be pickled or copied, but it"):
                copied(thing)
    with device.profile() as profile:
        gs.scan(a)
    assert repr(profile) == f"gpuscan.Profile({len(profile.spans)} dispatches)"
    calls: tuple[Callable[[object], object], ...] = (copy.copy, copy.deepcopy, pickle.dumps)
    for call in calls:
        with pytest.raises(TypeError, match=r"a gpuscan\.Profile was to be pickled.* profile\.spans"):
            call(profile)
    assert copy.deepcopy(profile.spans) == profile.spans


def test_an_adapters_name_means_the_arrays_own_device(own_device: gs.Device) -> None:
    """Assert that an adapter's name means the arrays' own device, although it may name another device, too."""
    x = np.arange(5, dtype=np.int32)
    name = own_device.capabilities.summary
    assert_same(gs.scan(own_device.asarray(x), device=name).numpy(), x.cumsum(dtype=np.int32))
    with pytest.raises(ValueError, match="was passed together with NumPy"):
        gs.scan(own_device.asarray(x), device="numpy")


def test_read_async(device: gs.Device) -> None:
    """Assert that a future holds the array as it was at the call."""
    x = np.arange(300_000, dtype=np.uint32)
    a = device.asarray(x)
    before = a.read_async()
    gs.scan(a, out=a)
    after = a.read_async()
    assert_same(before.result(30), x)
    assert_same(after.result(30), ufunc_scan("add", x))
    assert device.empty(0, np.int8).read_async().result(1).shape == (0,)


# ----- Scans


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float32", "uint64"])
@pytest.mark.parametrize("n", [1, 5, 1000, 70_001])
def test_scan_stays_on_the_device(device: gs.Device, dtype: str, n: int) -> None:
    x = numbers(dtype, n)
    a = device.asarray(x)
    for strategy in ("auto", *strategies_on(device)[-1:]):
        y = gs.scan(a, strategy=strategy)
        assert isinstance(y, gs.Array)
        assert_same(y, gs.scan(x, device=device), strategy)
    assert_same(gs.scan(a, reverse=True), ufunc_scan("add", x[::-1])[::-1])
    assert_same(a, x)


def test_initial_values_stay_on_the_device(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan and reduce with initial values on the device: columns, reversed segments, and the result of a reduction."""
    x, first = numbers("int32", 5 * 9).reshape(5, 9), np.arange(18, dtype=np.int16)[::2]
    a, values = device.asarray(x), device.asarray(np.arange(18, dtype=np.int16))[::2]
    with monkeypatch.context() as patched:
        reads = count_reads(patched)
        columns = gs.scan(a, axis=0, initial=values)
        totals = gs.reduce(a, axis=1, initial=values[:1])
        segments = gs.scan(a, axis=1, initial=totals, segments=[0, 4, 9], exclusive=True, reverse=True)
        assert reads == []
    assert_same(columns, x.cumsum(0, np.int32) + first)
    assert_same(totals, x.sum(1, dtype=np.int32))
    assert_same(segments[:, 3], x.sum(1, dtype=np.int32))
    assert_same(segments[:, 4], x.sum(1, dtype=np.int32) + x[:, 5:].sum(1, dtype=np.int32))
    for wrong, error in ((values, ValueError), (values[0].astype(np.float32), TypeError)):
        with pytest.raises(error, match="initial"):
            gs.scan(a, axis=1, initial=wrong)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_another_scan_over_the_same_arrays(device: gs.Device, dtype: str) -> None:
    """Assert that scans over the same arrays read the new contents, also if the device copies the input first."""
    x, y = numbers(dtype, 3000), numbers(dtype, 3000)[::-1]
    for start, options in ((0, {}), (1, {}), (7, {"exclusive": True}), (64, {"initial": 3, "reverse": True})):
        a, b, wide = device.asarray(x), device.asarray(y), device.asarray(np.zeros(6000, dtype))
        source, target = wide[start : start + 3000], device.empty(3000, dtype)
        for content, given in ((a, x), (b, y), (a, x)):
            gs.scan(content, lambda l, r: r, out=source)
            gs.scan(source, out=target, **options)
            assert_same(target, gs.scan(given, device=device, **options), (start, options))
            gs.scan(source, out=wide[2000:5000], **options)  # overlaps: the input is copied first
            assert_same(wide[2000:5000], gs.scan(given, device=device, **options), (start, options))


def test_in_place(device: gs.Device) -> None:
    x = numbers("int32", 50_000)
    for strategy in ("auto", *strategies_on(device)):
        a = device.asarray(x)
        if strategy == "fallback":
            with pytest.raises(gs.StrategyError, match="overwritten"):
                gs.scan(a, out=a, strategy=strategy)
            assert_same(a, x)
            continue
        try:
            gs.scan(a, out=a, strategy=strategy)
        except gs.ProgressTimeoutError:
            assert strategy == "lookback"  # asked for by name, and a software adapter may be late
            continue
        assert_same(a, ufunc_scan("add", x), strategy)
    a = device.asarray(x)
    gs.scan(a, out=a, reverse=True, exclusive=True)
    assert_same(a, gs.scan(x, reverse=True, exclusive=True, device=device))
    a = device.asarray(x)
    gs.scan(a[:40_000], out=a[10_000:])  # overlaps: the input is copied first
    assert_same(a[10_000:], ufunc_scan("add", x[:40_000]))
    small = x[:1001].astype(np.uint8)  # ends within a word, which chunks share if it is read backwards
    a = device.asarray(small)
    gs.scan(a, out=a, reverse=True)
    assert_same(a, np.add.accumulate(small[::-1], dtype=np.uint8)[::-1])


def test_larger_than_a_binding(device: gs.Device, adapter: wgpu.GPUAdapter) -> None:
    """Scan an array that is larger than a binding, rows and the whole, in place too."""
    limit = small_binding(adapter)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    x = np.random.default_rng(3).standard_normal((3, limit // 5)).astype(np.float32)
    a = small.asarray(x)
    for axis, shape in ((0, (-1,)), (1, (3, -1))):
        got = gs.scan(a.reshape(*shape), axis=axis).numpy()
        np.testing.assert_allclose(got, gs.scan(x.reshape(shape), axis=axis, device=device), rtol=1e-3, atol=1e-2)
    flat = a.reshape(-1)
    gs.scan(flat, out=flat)
    np.testing.assert_allclose(flat.numpy(), gs.scan(x.reshape(-1), device=device), rtol=1e-3, atol=1e-2)


def test_bindings_as_large_as_the_largest_buffer(adapter: wgpu.GPUAdapter) -> None:
    """Assert that no buffer of a part is larger than the device allows, however sizes are rounded."""
    limit = small_binding(adapter)
    limits = dict.fromkeys(("max-storage-buffer-binding-size", "max-buffer-size"), limit)
    small = gs.Device(adapter, required_limits=limits)
    x = np.random.default_rng(4).integers(-50, 50, limit // 3, np.int32)
    assert_same(gs.scan(x, device=small), np.add.accumulate(x, dtype=np.int32))
    assert_same(gs.map(lambda a, b: a * b, x, x[:1], device=small), x * x[:1])


def test_errors(device: gs.Device) -> None:
    a = device.asarray(np.ones(10, np.float32))
    with pytest.raises(ValueError, match="runs where its arrays are"):
        gs.scan(a, device="numpy")
    with pytest.raises(TypeError, match=r"gpuscan\.Array"):
        gs.scan(a, out=np.zeros(10, np.float32))
    with pytest.raises(ValueError, match=r"shape \(9,\)"):
        gs.scan(a, out=device.empty(9, np.float32))
    with pytest.raises(TypeError, match="dtype int32"):
        gs.scan(a, out=device.empty(10, np.int32))
    with pytest.raises(ValueError, match="axis="):
        gs.scan(a.reshape(2, 5))
    both = device.empty(10, np.float32)
    with pytest.raises(ValueError, match="share memory"):
        gs.scan((a, a), lambda l, r: (l[0] + r[0], l[1] + r[1]), out=(both, both))


def test_a_run_that_timed_out_is_reported_at_the_next_read(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that a read raises for a timeout that no call waited for, and that the timeout is noted."""
    a = own_device.asarray(np.ones(200_000, np.uint32))
    withhold_posts(monkeypatch, tile=TileShape(32, 0, 1, 4))
    wait_for_reports(monkeypatch, False)
    y = gs.scan(a, strategy="lookback")
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        y.numpy()
    assert count_timeouts(own_device) == {"lookback": 1}
    own_device.synchronize()


def test_a_run_that_timed_out_is_reported_after_another(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a timeout is found after the report of a later run has overwritten the first one's."""
    a = own_device.asarray(np.ones(200_000, np.uint32))
    withhold_posts(monkeypatch, tile=TileShape(32, 0, 1, 4))
    with monkeypatch.context() as patched:
        wait_for_reports(patched, False)
        y = gs.scan(a, strategy="lookback")
    wait_for_reports(monkeypatch, True)
    forget_plans(own_device)
    with pytest.raises(gs.ProgressTimeoutError, match="asked for"):
        gs.scan(a, strategy="lookback")
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        y.numpy()
    own_device.synchronize()


def test_synchronize_waits_for_what_was_submitted(device: gs.Device) -> None:
    """Assert that a few bytes of the result are read at once after it, and take as long as the scan before it.

    One undisturbed round of ten is enough: without the wait, the read would be the slower part of every round.
    """
    x = device.asarray(np.ones(1 << 22, np.float32))
    plan = device.plan(x.shape, x.dtype)
    plan(x).numpy()
    ratios = []
    for _ in range(10):
        begin = time.perf_counter()
        result = plan(x)
        device.synchronize()
        done = time.perf_counter()
        result[:4].numpy()
        ratios.append((time.perf_counter() - done) / (done - begin))
        if ratios[-1] < 0.5:
            return
    pytest.fail(f"no read was quick: {ratios}")


@pytest.mark.parametrize("exclusive", [False, True])
def test_what_is_kept_for_later_scans_is_not_in_use(device: gs.Device, exclusive: bool) -> None:
    before = device.memory_usage().bytes_in_use
    x = np.arange(48, dtype=np.int32).reshape(6, 8)
    for _ in range(3):
        gs.scan(x, axis=1, exclusive=exclusive, device=device)
        gs.scan(device.asarray(x), axis=1, exclusive=exclusive)
    assert device.memory_usage().bytes_in_use == before
    device.memory_cleanup()
    gs.scan(x, axis=1, exclusive=exclusive, device=device)
    assert device.memory_usage().bytes_in_use == before


def test_shapes_and_axes_as_arrays(device: gs.Device) -> None:
    """Assert that shapes and orders of axes may be arrays of NumPy, as there."""
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    a, order, shape = device.asarray(x), np.array([2, 0, 1]), np.array([4, -1])
    assert np.array_equal(a.transpose(order), x.transpose(order))
    assert np.array_equal(np.transpose(a, order), np.transpose(x, order))
    assert np.array_equal(a.reshape(shape), x.reshape(shape))
    assert np.array_equal(np.reshape(a, shape), np.reshape(x, shape))
    assert device.empty(np.array([2, 5]), np.int8).shape == (2, 5)
    assert a.reshape(np.array(24)).shape == (24,)
    assert a.transpose(None).shape == a.transpose().shape == (4, 3, 2)
    with pytest.raises(ValueError, match="pass each axis of 3 once"):
        a.transpose(())
    with pytest.raises(TypeError):
        a.transpose(None, 1)
