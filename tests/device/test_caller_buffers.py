"""Arrays on buffers that the caller made: checked, read and written in place, and refused when unusable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.devices import is_lost
from tests.oracle import assert_same, ufunc_scan

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def test_a_callers_buffer(device: gs.Device) -> None:
    x = np.arange(100, dtype=np.float32)
    buffer = device.wgpu_device.create_buffer_with_data(data=x, usage=USAGE)
    a = gs.Array.from_buffer(device, buffer, 90, np.float32, offset=40)
    assert_same(a, x[10:])
    assert_same(gs.scan(a), ufunc_scan("add", x[10:]))
    with pytest.raises(ValueError, match="has 400"):
        gs.Array.from_buffer(device, buffer, 101, np.float32)
    with pytest.raises(ValueError, match=r"offset=2 was passed for numbers of 4 bytes; pass a multiple"):
        gs.Array.from_buffer(device, buffer, 10, np.float32, offset=2)
    for offset in (4.0, np.float32(4), "4", None):
        with pytest.raises(TypeError, match=rf"offset={re.escape(repr(offset))} .*an integer number of bytes"):
            gs.Array.from_buffer(device, buffer, 10, np.float32, offset=offset)  # type: ignore[arg-type]
    assert_same(gs.Array.from_buffer(device, buffer, 10, np.float32, offset=np.int64(4)), x[1:11])


def test_a_call_asks_for_the_usages_that_it_needs(device: gs.Device) -> None:
    """Assert that a buffer without COPY_DST can be scanned and written, and that errors name the usage and the call."""
    x, flags = np.arange(99, dtype=np.uint8), wgpu.BufferUsage
    content = np.append(x, x[:1])
    for usage in (flags.STORAGE, flags.STORAGE | flags.COPY_SRC):
        buffer = device.wgpu_device.create_buffer_with_data(data=content, usage=usage)
        a = gs.Array.from_buffer(device, buffer, 99, np.uint8)
        for view, wanted in ((a, x), (a[5:], x[5:]), (a[::-3], x[::-3])):
            assert_same(gs.scan(view), ufunc_scan("add", wanted))
            assert_same(view.copy(), wanted)
            assert_same(view.astype(np.float32), wanted.astype(np.float32))
        assert_same(gs.compact(a, x % 2 == 0), x[x % 2 == 0])
        # Without COPY_DST, results come by a kernel.
        for out, reverse in ((a, False), (a[1:], True), (a[::2], False)):
            given = device.asarray(x[: len(out)])
            gs.scan(given, out=out, reverse=reverse)
            assert_same(out.copy(), gs.scan(x[: len(out)], reverse=reverse, device="numpy"))
        if usage == flags.STORAGE:
            for read in (a.numpy, a[1:].numpy, lambda a=a: np.asarray(a)):
                with pytest.raises(ValueError, match=r"gpuscan\.Array\.\w+ was called .* without the usage COPY_SRC"):
                    read()
    buffer = device.wgpu_device.create_buffer_with_data(data=content, usage=flags.COPY_SRC)
    a, there = gs.Array.from_buffer(device, buffer, 99, np.uint8), device.asarray(x)
    assert_same(a, x)
    for call, name in (
        (lambda: gs.scan(a), "scan"),
        (lambda: gs.scan(there, out=a), "scan"),
        (lambda: gs.reduce(a), "reduce"),
        (lambda: a.astype(np.int32), "Array.astype"),
        (lambda: a[::2].copy(), "Array.copy"),
    ):
        with pytest.raises(ValueError, match=rf"gpuscan\.{name} was called .* without the usage STORAGE"):
            call()


def test_a_callers_buffer_needs_a_device(device: gs.Device) -> None:
    buffer = device.wgpu_device.create_buffer(size=16, usage=USAGE)
    for given in (None, "SwiftShader", "numpy", 0, device.wgpu_device):
        with pytest.raises(TypeError, match=rf"device was {type(given).__name__}, but .* gpuscan\.Device that owns"):
            gs.Array.from_buffer(given, buffer, 4, np.float32)  # type: ignore[arg-type]


def test_buffers_that_cannot_be_used_are_refused(device: gs.Device) -> None:
    """Assert that a buffer of 7 bytes is refused as well: the GPU reads whole 32-bit words."""
    gpu = device.wgpu_device
    mapped = gpu.create_buffer(size=16, usage=USAGE, mapped_at_creation=True)
    for error, match, buffer, count in (
        (ValueError, "whole 4-byte words up to byte 8", gpu.create_buffer(size=7, usage=USAGE), 7),
        (ValueError, "another device", gs.Device(device).wgpu_device.create_buffer(size=16, usage=USAGE), 4),
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
        device.empty(1.5, np.int32)  # type: ignore[arg-type]


def uses_of(a: gs.Array) -> list[Callable[[], Any]]:
    """Return calls that submit commands with the array's buffer."""
    device: Any = a.device
    n = len(a)
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


def test_a_buffer_that_its_owner_has_mapped(device: gs.Device) -> None:
    """Assert that a mapped buffer is refused, which would end the process, and can be used again after unmap."""
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


def test_a_buffer_that_its_owner_has_destroyed(device: gs.Device) -> None:
    """Assert that a destroyed buffer is refused, which would end the process, and that the device still works."""
    buffer = device.wgpu_device.create_buffer(size=256, usage=USAGE)
    a = gs.Array.from_buffer(device, buffer, 64, np.uint32)
    uses = uses_of(a)
    buffer.destroy()
    for use in (*uses, lambda: gs.Array.from_buffer(device, buffer, 64, np.uint32)):
        with pytest.raises(ValueError, match="was destroyed"):
            use()
    assert_same(gs.scan(np.ones(9, np.int32), device=device), np.arange(1, 10, dtype=np.int32))
    assert not is_lost(device)
