"""Arrays on a device: what goes in comes out, views, foreign buffers, scans that stay there."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import device_arrays as deferred
from gpuscan.planning.kernel_parts import InjectedFaults
from tests.oracle import AFFINE, assert_same, one_by_one, strategies_on, ufunc_scan, words

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
DTYPES = ("bool", "int8", "uint16", "int32", "float32", "int64", "complex64")


def numbers(dtype: str, shape: Any) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (1000, 3)])
def test_round_trip(device: Device, dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, shape)
    a = device.asarray(x)
    assert (a.shape, a.dtype, a.nbytes, a.device) == (x.shape, x.dtype, x.nbytes, device)
    assert_same(a.numpy(), x)
    assert_same(np.asarray(a), x)
    assert_same(a.copy(), x)
    assert device.asarray(a) is a


def test_large_arrays_go_through_the_rings(device: Device) -> None:
    x = np.random.default_rng(1).integers(0, 256, (40 << 20) + 3, dtype=np.uint8)
    assert_same(device.asarray(x).numpy(), x)


def test_strange_input(device: Device) -> None:
    x = np.arange(24, dtype=">i4").reshape(4, 6)
    assert_same(device.asarray(x.T), x.T.astype(np.int32))
    with pytest.raises(gs.UnsupportedDtypeError, match="datetime64"):
        device.asarray(np.zeros(3, "M8[s]"))
    with pytest.raises(ValueError, match="0 or more"):
        device.empty((3, -1), np.float32)


def test_views(device: Device) -> None:
    x = numbers("uint16", (9, 5))
    a = device.asarray(x)
    for index in (slice(2, 5), slice(None), slice(7, 100), slice(5, 2), slice(-3, None), 0, 4, -1):
        assert_same(a[index], x[index], index)
        assert a[index].buffer is a.buffer
    assert_same(a[3][1:4], x[3][1:4])
    assert_same(a[1:].reshape(-1, 10), x[1:].reshape(-1, 10))
    assert [len(row) for row in (a[i] for i in range(len(a)))] == [5] * 9
    with pytest.raises(TypeError, match="step 2"):
        a[::2]
    with pytest.raises(TypeError, match=r"a\[start:stop\]"):
        a[[1, 2]]
    with pytest.raises(IndexError, match="9 entries"):
        a[9]
    with pytest.raises(ValueError, match="without a copy"):
        np.array(a, copy=False)


def test_a_callers_buffer(device: Device) -> None:
    x = np.arange(100, dtype=np.float32)
    buffer = device.wgpu_device.create_buffer_with_data(data=x, usage=USAGE)
    a = gs.Array.from_buffer(device, buffer, 90, np.float32, offset=40)
    assert_same(a, x[10:])
    assert_same(gs.scan(a), ufunc_scan("add", x[10:]))
    with pytest.raises(ValueError, match="has 400"):
        gs.Array.from_buffer(device, buffer, 101, np.float32)
    with pytest.raises(ValueError, match="multiple of 4"):
        gs.Array.from_buffer(device, buffer, 10, np.float32, offset=2)
    for offset in (4.0, np.float32(4), "4", None):
        with pytest.raises(TypeError, match="a whole number of bytes"):
            gs.Array.from_buffer(device, buffer, 10, np.float32, offset=offset)  # type: ignore[arg-type]
    assert_same(gs.Array.from_buffer(device, buffer, 10, np.float32, offset=np.int64(4)), x[1:11])  # type: ignore[arg-type]
    bare = device.wgpu_device.create_buffer(size=64, usage=wgpu.BufferUsage.STORAGE)
    with pytest.raises(ValueError, match="COPY_SRC, COPY_DST"):
        gs.Array.from_buffer(device, bare, 16, np.float32)


def test_a_callers_buffer_needs_a_device(device: Device) -> None:
    buffer = device.wgpu_device.create_buffer(size=16, usage=USAGE)
    for given in (None, "SwiftShader", "numpy", 0, device.wgpu_device):
        with pytest.raises(TypeError, match=rf"device was {type(given).__name__}; .* gpuscan\.Device whose"):
            gs.Array.from_buffer(given, buffer, 4, np.float32)  # type: ignore[arg-type]


def test_buffers_that_cannot_be_used_are_refused(device: Device) -> None:
    """Those of 7 bytes too: the GPU reads whole words."""
    gpu = device.wgpu_device
    mapped = gpu.create_buffer(size=16, usage=USAGE, mapped_at_creation=True)
    for error, match, buffer, count in (
        (ValueError, "whole 4-byte words up to byte 8", gpu.create_buffer(size=7, usage=USAGE), 7),
        (ValueError, "another device", Device(device).wgpu_device.create_buffer(size=16, usage=USAGE), 4),
        (ValueError, "unmap it", mapped, 4),
        (TypeError, "buffer was NoneType", None, 4),
        (TypeError, "buffer was ndarray", np.zeros(4, np.uint8), 4),
    ):
        with pytest.raises(error, match=match):
            gs.Array.from_buffer(device, buffer, count, np.uint8)
    mapped.unmap()
    assert gs.Array.from_buffer(device, mapped, 4, np.uint8).numpy().shape == (4,)
    with pytest.raises(gs.UnsupportedDtypeError, match="a bundle"):
        device.asarray(np.zeros(3, [("a", np.int32)]))
    with pytest.raises(TypeError):
        device.empty(1.5, np.int32)


def uses_of(a: gs.Array) -> list[Callable[[], Any]]:
    """What submits commands with the array's buffer."""
    device, n = a.device, len(a)
    plan, there = device.plan(n, a.dtype), device.asarray(np.ones(n, a.dtype))
    plan(a), gs.scan(a, "maximum")
    encoder = device.wgpu_device.create_command_encoder()
    return [
        a.numpy,
        a.copy,
        a[1:].numpy,
        lambda: a.read_async().result(),
        lambda: gs.scan(a, "maximum"),
        lambda: gs.scan((a, there), lambda l, r: (l[0] + r[0], l[1] + r[1])),
        lambda: gs.reduce(a),
        lambda: gs.compact(a, np.ones(n, bool)),
        lambda: plan(a),
        lambda: plan.record(encoder, a, there),
        lambda: plan.record(encoder, there, a),
        lambda: plan.record(encoder, there, there, length=a),
        lambda: gs.scan(there, out=a),
    ]


def test_a_buffer_that_its_owner_has_mapped(device: Device) -> None:
    """wgpu-native would end the process. Unmapped, it can be used again."""
    x = np.arange(64, dtype=np.uint32)
    mappable = device.capabilities.mappable_storage
    buffer = device.wgpu_device.create_buffer(
        size=x.nbytes, usage=USAGE | (wgpu.BufferUsage.MAP_READ if mappable else 0)
    )
    device.wgpu_device.queue.write_buffer(buffer, 0, x)
    a = gs.Array.from_buffer(device, buffer, 64, np.uint32)
    uses = uses_of(a)
    if mappable:
        buffer.map_sync(wgpu.MapMode.READ)
    else:  # as it were
        buffer._map_state = "mapped"
    for use in uses:
        with pytest.raises(ValueError, match="'mapped'; unmap it"):
            use()
    if mappable:
        buffer.unmap()
    else:
        buffer._map_state = "unmapped"
    for use in uses:
        use()
    device.wgpu_device.queue.write_buffer(buffer, 0, x)
    assert_same(gs.scan(a), ufunc_scan("add", x))


def test_a_buffer_that_its_owner_has_destroyed(device: Device) -> None:
    """wgpu-native would end the process; the device goes on."""
    buffer = device.wgpu_device.create_buffer(size=256, usage=USAGE)
    a = gs.Array.from_buffer(device, buffer, 64, np.uint32)
    uses = uses_of(a)
    buffer.destroy()
    for use in (*uses, lambda: gs.Array.from_buffer(device, buffer, 64, np.uint32)):
        with pytest.raises(ValueError, match="was destroyed"):
            use()
    assert_same(gs.scan(np.ones(9, np.int32), device=device), np.arange(1, 10, dtype=np.int32))
    assert not device.lost


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_lie_on_the_device(device: Device, copied: Callable[[Any], Any]) -> None:
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


def test_a_deep_copy_keeps_what_is_the_same(device: Device) -> None:
    a = device.asarray(np.ones(3, np.float32))
    first, second = copy.deepcopy([a, a])
    assert first is second
    assert first is not a


def test_what_lives_on_a_device_is_not_pickled(device: Device) -> None:
    a = device.asarray(np.ones(3, np.float32))
    plan = device.plan(3, np.float32)
    for thing in (a, a[1:], gs.compact(a, np.ones(3, bool)), device, plan, [a]):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match=r"cannot be pickled.*array\.numpy\(\)"):
                pickle.dumps(thing, protocol)
    for thing in (device, plan):
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                copied(thing)


def test_an_adapters_name_means_the_arrays_own_device(own_device: Device) -> None:
    """Also where the process has another device on that adapter."""
    x = np.arange(5, dtype=np.int32)
    name = own_device.capabilities.summary
    assert_same(gs.scan(own_device.asarray(x), device=name).numpy(), x.cumsum(dtype=np.int32))
    with pytest.raises(ValueError, match="was passed together with NumPy"):
        gs.scan(own_device.asarray(x), device="numpy")


def test_read_async(device: Device) -> None:
    """The future holds the array as it was when it was asked for."""
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
def test_scan_stays_on_the_device(device: Device, dtype: str, n: int) -> None:
    x = numbers(dtype, n)
    a = device.asarray(x)
    for strategy in ("auto", *strategies_on(device)[-1:]):
        y = gs.scan(a, strategy=strategy)
        assert isinstance(y, gs.Array)
        assert_same(y, gs.scan(x, device=device), strategy)
    assert_same(gs.scan(a, reverse=True), ufunc_scan("add", x[::-1])[::-1])
    assert_same(a, x)


def test_options_and_bundles(device: Device) -> None:
    x = words(np.random.default_rng(2), 2, (5, 700))
    a = {"gain": device.asarray(x[0]), "shift": device.asarray(x[1])}

    def affine(l: Any, r: Any) -> Any:
        return {"gain": l["gain"] * r["gain"], "shift": r["gain"] * l["shift"] + r["shift"]}

    got = gs.scan(a, affine, axis=1, reverse=True)
    wanted = one_by_one(AFFINE.function, x, axis=1, reverse=True)
    for name, field in zip(("gain", "shift"), wanted, strict=True):
        assert_same(got[name], field)
    rows = device.asarray(x[0])
    for options in ({"axis": 0}, {"axis": 1, "exclusive": True}, {"axis": 1, "initial": x[0][:, 0]}):
        assert_same(gs.scan(rows, **options), gs.scan(x[0], device=device, **options), options)
    assert_same(gs.scan(rows[:0], axis=1), x[0][:0])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_the_rest_of_a_vector_is_left_alone(device: Device, dtype: str) -> None:
    """Views that end in the vector, of four words, in which their array ends; in place too, and down columns."""
    for length, end in ((7, 3), (7, 6), (260, 257), (3000, 2999), (16, 15)):
        x = numbers(dtype, length)
        wanted = x.copy()
        wanted[:end] = ufunc_scan("add", x[:end])
        for target in (device.asarray(x), gs.scan(device.asarray(x), lambda l, r: r)):
            gs.scan(device.asarray(x[:end]), out=target[:end])
            assert_same(target, wanted, (length, end))
        target = device.asarray(x)
        gs.scan(target[:end], out=target[:end])
        assert_same(target, wanted, (length, end, "in place"))
        if end % 3 == 0:
            target, whole = device.asarray(x), target
            table = target[:end].reshape(-1, 3)
            gs.scan(table, axis=0, out=table)
            assert_same(target[:end].reshape(-1, 3), ufunc_scan("add", x[:end].reshape(-1, 3), axis=0))
            assert_same(target[end:], whole[end:])


def test_views_are_scanned_where_they_lie(device: Device) -> None:
    """Whatever the offset; and nothing beside the target is written."""
    for dtype in ("uint8", "uint16", "uint32"):
        x = numbers(dtype, 3000)
        a = device.asarray(x)
        for start, stop in ((0, 3000), (1, 9), (64, 1000), (7, 2222), (3, 4)):
            assert_same(gs.scan(a[start:stop]), ufunc_scan("add", x[start:stop]), (dtype, start))
            target = device.asarray(np.full(3000, 165, dtype))
            out = target[start:stop]
            assert gs.scan(a[start:stop], out=out) is out
            wanted = np.full(3000, 165, dtype)
            wanted[start:stop] = ufunc_scan("add", x[start:stop])
            assert_same(target, wanted, (dtype, start))


def test_in_place(device: Device) -> None:
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


def test_larger_than_a_binding(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are bound one after the other; as if this device bound 64 KiB at most."""
    limits = dict(device.capabilities.limits)
    x = np.random.default_rng(3).standard_normal((3, 40_000)).astype(np.float32)
    a = device.asarray(x)
    wanted = {axis: gs.scan(x.reshape(shape), axis=axis, device=device) for axis, shape in ((0, -1), (1, (3, -1)))}
    from dataclasses import replace

    unit = 4 * (1 << 15)
    small = replace(device.capabilities, limits=limits | {"max-storage-buffer-binding-size": unit})
    monkeypatch.setattr(device, "capabilities", small)
    monkeypatch.setattr(deferred, "best_tile", lambda *_: tile_for(device))
    monkeypatch.setattr(device, "plans_kept", type(device.plans_kept)())
    for axis, shape in ((0, (-1,)), (1, (3, -1))):
        got = gs.scan(a.reshape(*shape), axis=axis).numpy()
        np.testing.assert_allclose(got, wanted[axis], rtol=1e-3, atol=1e-2)
    got = gs.scan(a.reshape(-1), out=a.reshape(-1))
    np.testing.assert_allclose(got, wanted[0], rtol=1e-3, atol=1e-2)


def tile_for(device: Device) -> Any:
    from tests.oracle import small_tiles

    return small_tiles(device)[0]


def test_errors(device: Device) -> None:
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


def test_a_run_that_gave_up_is_told_of(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where reports are not waited for, the next read raises, and the strategy is distrusted."""
    told: list[str] = []
    monkeypatch.setattr(deferred, "needs_report", lambda *_: False)
    monkeypatch.setattr(device, "distrust", told.append)
    a = device.asarray(np.ones(200_000, np.uint32))
    monkeypatch.setattr(deferred, "planned", withheld(deferred.planned))
    strategy = "lookback"
    if strategy not in strategies_on(device):
        monkeypatch.setattr(device, "unsafe", True)
    y = gs.scan(a, strategy=strategy)
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        y.numpy()
    assert told == [strategy]
    device.synchronize()


def test_a_run_that_gave_up_is_told_of_after_another(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was waited for, and whose report lies where the first one's did."""
    a = own_device.asarray(np.ones(200_000, np.uint32))
    monkeypatch.setattr(deferred, "planned", withheld(deferred.planned))
    with monkeypatch.context() as patch:
        patch.setattr(deferred, "needs_report", lambda *_: False)
        y = gs.scan(a, strategy="lookback")
    monkeypatch.setattr(deferred, "needs_report", lambda *_: True)
    with pytest.raises(gs.ProgressTimeoutError, match="asked for"):
        gs.scan(a, strategy="lookback")
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        y.numpy()
    own_device.synchronize()


def withheld(planned: Any) -> Any:
    """The planner of a test build whose every second tile posts nothing."""
    from gpuscan.planning.tile_shapes import TileShape

    return lambda *args, **options: planned(*args, **options, test_build=InjectedFaults(2), tile=TileShape(32, 0, 1, 4))


def test_synchronize_waits_for_what_was_submitted(device: Device) -> None:
    """Afterwards a few bytes of the result are there at once; before, they take as long as the scan."""
    x = device.asarray(np.ones(1 << 22, np.float32))
    plan = device.plan(x.shape, x.dtype)
    plan(x).numpy()
    ratios = []
    for _ in range(5):
        begin = time.perf_counter()
        result = plan(x)
        device.synchronize()
        done = time.perf_counter()
        result[:4].numpy()
        ratios.append((time.perf_counter() - done) / (done - begin))
    assert sorted(ratios)[2] < 0.5, ratios
