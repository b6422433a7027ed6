"""A failure below a call raises one of gpuscan's own errors, and leaves the device usable."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device.native_queue import NativeQueue
from tests.harness.builds import small_transfers
from tests.harness.devices import is_lost, mark_lost, pool_of, queue_of, replace_submit, use_public_queue
from tests.harness.scans import piece_bytes, single_piece_bytes
from tests.oracle import assert_same, ufunc_scan

X = np.arange(3000, dtype=np.uint32)


@pytest.fixture(params=["native queue", "public queue"])
def own_device(adapter: wgpu.GPUAdapter, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return a device that a test may break, with either way to submit."""
    if request.param == "public queue":
        use_public_queue(monkeypatch)
    return gs.Device(adapter)


@contextmanager
def room_for(
    left: float,
    device: gs.Device,
    error: type[BaseException] = wgpu.GPUOutOfMemoryError,
    names: Sequence[str] = ("create_buffer",),
) -> Iterator[list[str]]:
    """Make some buffers in the ``with``, and fail each further one. Yield a list of the methods that were called.

    Args:
        left: the number of buffers that are made.
        error: what a further buffer raises.
        names: the methods that make buffers.
    """
    gpu, asked = device.wgpu_device, list[str]()

    def counting(name: str) -> Callable[..., Any]:
        create = getattr(gpu, name)

        def make(**options: Any) -> Any:
            asked.append(name)
            if len(asked) > left:
                raise error("no room")
            return create(**options)

        return make

    with pytest.MonkeyPatch.context() as patched:
        for name in names:
            patched.setattr(gpu, name, counting(name))
        yield asked


def test_out_of_memory_then_room_again(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a call without memory cleans up and tries again, then raises, and that the device stays usable."""
    device = own_device
    create, asked = device.wgpu_device.create_buffer, []

    def full(**options: Any) -> Any:
        asked.append(options["size"])
        raise wgpu.GPUOutOfMemoryError("no room")

    gs.scan(X, device=device)
    with monkeypatch.context() as patched:
        patched.setattr(device.wgpu_device, "create_buffer", full)
        with pytest.raises(gs.DeviceMemoryError, match="no room for it"):
            device.empty(1 << 20, np.float32)
        assert len(asked) == 2
        with pytest.raises(gs.DeviceMemoryError):
            gs.scan(np.ones(3 << 20, np.float32), device=device)
    assert device.memory_usage().bytes_in_use == 0
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))

    def full_once(**options: Any) -> Any:
        monkeypatch.setattr(device.wgpu_device, "create_buffer", create)
        raise wgpu.GPUOutOfMemoryError("no room")

    monkeypatch.setattr(device.wgpu_device, "create_buffer", full_once)
    assert_same(gs.scan(X[:50], device=device), ufunc_scan("add", X[:50]))


@pytest.mark.parametrize("error", [wgpu.GPUOutOfMemoryError, KeyboardInterrupt])
def test_nothing_stays_in_use_where_buffers_are_not_all_taken(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Fail each buffer in turn, of a piece and of a ring of staging buffers."""
    small_transfers(monkeypatch, 1 << 20)
    device = own_device
    x = np.ones(single_piece_bytes(device) // 16 * 5, np.uint32)
    rows = x.reshape(4, -1)
    calls: list[Callable[[], Any]] = [
        lambda: gs.scan(x, device=device),
        lambda: gs.scan(rows, axis=1, initial=np.arange(4, dtype=np.uint32), device=device),
        lambda: device.asarray(x).numpy(),
    ]
    for call in calls:
        call()
        for left in itertools.count():
            device.memory_cleanup()
            with room_for(left, device, error) as asked, suppress(gs.DeviceMemoryError, KeyboardInterrupt):
                call()
            assert (left, device.memory_usage().allocations) == (left, 0)
            if len(asked) <= left:
                break


def test_a_call_that_is_done_raises_nothing(own_device: gs.Device) -> None:
    """Fail each buffer in turn, of a call in place that is recorded for any sizes: it changes all or nothing."""
    device = own_device
    for left in itertools.count():
        device.memory_cleanup()
        for length in (100, 200):
            array, index = device.asarray(np.zeros(length, np.int32)), device.asarray(np.arange(length, dtype=np.int32))
            device.synchronize()
            pool_of(device).cleanup()
            is_done = True
            with room_for(left if length == 200 else math.inf, device) as asked:
                try:
                    array[index] = 2
                except gs.DeviceMemoryError:
                    is_done = False
            assert (left, array.tolist()) == (left, [2 if is_done else 0] * length)
        if len(asked) <= left:
            break


def test_a_failure_changes_no_array_of_out(own_device: gs.Device) -> None:
    """Fail each buffer in turn, of calls with several results. Kernels may write some of these without a copy."""
    device = own_device
    labels, offsets = np.arange(60) % 7, [0, 7, 60]

    def pair(left: Any, right: Any) -> Any:
        return left[0] + right[0], np.maximum(left[1], right[1])

    calls: list[Callable[[Any, Any, Any], Any]] = [
        lambda x, a, b: gs.map(lambda v: (v + v, v * v), x, out=(a, b)),
        lambda x, a, b: np.divmod(x, 2, out=(a, b)),
        lambda x, a, b: gs.scan((x, x), pair, out=(a, b)),
        lambda x, a, b: gs.scan((x, x), pair, reverse=True, segments=offsets, out=(a, b)),
        lambda x, a, b: gs.scan((x, x), pair, groups=labels, out=(a, b)),
        lambda x, a, b: gs.scan((x, x), pair, groups=labels - 1, out=(a, b)),
        lambda x, a, b: gs.reduce((x.reshape(6, 10),) * 2, pair, axis=0, out=(a[:10], b[:10])),
        lambda x, a, b: gs.reduce((x, x), pair, segments=offsets, out=(a[:2], b[:2])),
        lambda x, a, b: gs.reduce((x, x), pair, groups=labels, num_groups=7, initial=(0, 0), out=(a[:7], b[:7])),
        lambda x, a, b: gs.scan(x, out=x, exclusive=True, return_total=True),
        lambda x, a, b: np.concatenate([x[:30], b[:30]], out=a),
        lambda x, a, b: np.stack([x[:30], b[:30]], axis=1, out=a.reshape(30, 2)),
    ]
    for number, call in enumerate(calls):
        for views in (slice(0, 60), slice(None, None, 3)), (slice(60, None, -1), slice(None, None, 3)):
            for left in itertools.count():
                device.memory_cleanup()
                x = device.asarray(np.arange(60, dtype=np.float32))
                a, b = (device.asarray(np.ones(180, np.float32))[view][:60] for view in views)
                device.synchronize()
                device.memory_cleanup()
                fails = False
                with room_for(left, device) as asked:
                    try:
                        call(x, a, b)
                    except gs.DeviceMemoryError:
                        fails = True
                unchanged = x.tolist() == list(range(60)) and {*a.tolist(), *b.tolist()} == {1}
                assert (number, left, unchanged) == (number, left, fails)
                if len(asked) <= left:
                    break


def test_no_room_in_a_call_on_an_array(own_device: gs.Device) -> None:
    """Fail each buffer in turn, of calls that copy elements, of the check of floats, and of programs with scratch."""
    device, names = own_device, ("create_buffer", "create_buffer_with_data")
    array = device.asarray(np.arange(300, dtype=np.int16).reshape(20, 15))
    floats = device.asarray(np.ones((20, 15), np.float32))
    calls: list[Callable[[], Any]] = [
        lambda: np.repeat(array, 3, axis=1),
        lambda: array.T.reshape(-1),
        lambda: np.roll(array, 2, axis=1),
        lambda: np.tile(array, 2),
        lambda: gs.sort(array[:, ::-2], axis=0),
        lambda: gs.scan(floats, axis=0, reproducible="everywhere"),
        lambda: gs.loop(lambda carry, x: np.sin(carry) + x, np.float32(0), floats[:, 0], method="newton"),
    ]
    for number, call in enumerate(calls):
        for left in itertools.count():
            device.memory_cleanup()
            with room_for(left, device, names=names) as asked, suppress(gs.DeviceMemoryError):
                call()
            assert (number, left, device.memory_usage().allocations) == (number, left, 2)
            if len(asked) <= left:
                break


def test_an_interrupted_synchronize_keeps_nothing(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_submit(own_device, monkeypatch, failing(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        own_device.synchronize()
    assert own_device.memory_usage().allocations == 0


def test_an_array_larger_than_any_buffer(device: gs.Device) -> None:
    most = device.capabilities.limits["max-buffer-size"]
    with pytest.raises(gs.DeviceMemoryError, match=str(most // 16 * 16)):
        device.empty(most + 1, np.uint8)


def test_a_submit_that_fails(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device = own_device
    for size in (len(X), 3 << 20):
        x = np.ones(size, np.uint32)
        with monkeypatch.context() as patched:
            replace_submit(device, patched, failing(wgpu.GPUValidationError, "something of ours is wrong"))
            with pytest.raises(wgpu.GPUValidationError):
                gs.scan(x, device=device)
        assert device.memory_usage().bytes_in_use == 0
        assert_same(gs.scan(x, device=device), ufunc_scan("add", x))


def test_an_interrupted_call(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt by Ctrl-C while the GPU works, in a small scan and in the middle of a large one."""
    device = own_device
    large = 3 << 20 if device.capabilities.adapter_type == "CPU" else 40 << 20  # four pieces or more
    for size, calls in ((len(X), 0), (large, 2)):
        x, count = np.ones(size, np.uint32), calls

        def interrupt_submit(submit: Callable[[], Any]) -> Any:
            nonlocal count
            index = submit()
            count -= 1
            if count < 0:
                raise KeyboardInterrupt
            return index

        with monkeypatch.context() as patched:
            replace_submit(device, patched, interrupt_submit)
            with pytest.raises(KeyboardInterrupt):
                gs.scan(x, device=device)
        assert device.memory_usage().bytes_in_use == 0
        assert_same(gs.scan(x, device=device), ufunc_scan("add", x))


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_in_a_callback_of_a_submission(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that an interrupt in a callback, which wgpu drops, is raised after the submission."""
    device = own_device
    held, mask = device.asarray(X), device.asarray(X % 2 == 1)
    plan = device.plan(len(X), np.uint32, "add")
    dropped: list[BaseException] = []

    def signal_and_submit(submit: Callable[[], Any]) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            dropped.append(error)
        return submit()

    calls: list[Callable[[], Any]] = [
        lambda: gs.scan(X, device=device),
        lambda: gs.scan(np.ones(9 << 18, np.uint32), device=device),
        lambda: list(gs.scan_chunks(megabytes(3), device=device)),
        lambda: gs.scan(held).numpy(),
        lambda: plan(held).numpy(),
        lambda: gs.compact(held, mask).numpy(),
        lambda: gs.scan(held, keys=held).numpy(),
        lambda: held.copy().numpy(),
        held.numpy,
        device.flush,
        device.synchronize,
    ]
    for call in calls:
        handler = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patched:
            replace_submit(device, patched, signal_and_submit)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert not dropped
        assert signal.getsignal(signal.SIGINT) is handler
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))


def failing(kind: type[BaseException], *arguments: str) -> Any:
    """Return a function that raises. Each error is a new one, so none keeps the frames of an earlier call alive."""

    def call(*_: Any, **__: Any) -> None:
        raise kind(*arguments)

    return call


def test_a_lost_device(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that every later call says that the device is lost, and that the default device opens again."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    device = gs.default_device()
    held = device.asarray(X)
    with monkeypatch.context() as patched:
        replace_submit(device, patched, failing(wgpu.GPUValidationError, "Parent device is lost"))
        with pytest.raises(gs.DeviceLostError, match="opens the default device again"):
            gs.scan(X)
    for call in (lambda: gs.scan(held), held.numpy, lambda: device.asarray(X), device.synchronize):
        with pytest.raises(gs.DeviceLostError):
            call()
    assert gs.default_device() is not device
    assert_same(gs.scan(X), ufunc_scan("add", X))


def test_a_destroyed_device_is_told_from_other_errors(own_device: gs.Device) -> None:
    """Assert that the driver's own words about a lost device are understood, as far as a test can lose one."""
    device = own_device
    gs.scan(X, device=device)
    device.wgpu_device.destroy()
    with pytest.raises(gs.DeviceLostError):
        gs.scan(X, device=device)


def test_a_device_that_is_lost_while_it_compiles(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a device that is lost while it compiles is not reported as a fault of the operator."""
    gpu = own_device.wgpu_device
    compile_pipeline = gpu.create_compute_pipeline

    def lost(**options: Any) -> Any:
        gpu.destroy()
        return compile_pipeline(**options)

    monkeypatch.setattr(gpu, "create_compute_pipeline", lost)
    with pytest.raises(gs.DeviceLostError, match="was lost"):
        gs.scan(X, "maximum", device=own_device)
    assert is_lost(own_device)


def test_a_device_that_is_destroyed_before_its_commands_are_submitted(adapter: wgpu.GPUAdapter) -> None:
    """Assert that the process goes on: wgpu-native would end it. Only the native queue can look in between."""
    own_device = gs.Device(adapter)
    opened = queue_of(own_device)
    assert isinstance(opened, NativeQueue)
    encoder = opened.encoder()
    finish = opened.library.checked.wgpuCommandEncoderFinish

    def finish_and_destroy(*arguments: Any) -> Any:
        commands = finish(*arguments)
        own_device.wgpu_device.destroy()
        return commands

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(opened.library.checked, "wgpuCommandEncoderFinish", finish_and_destroy)
        with pytest.raises(RuntimeError, match="device is lost"):
            opened.submit(encoder)
    with pytest.raises(gs.DeviceLostError, match="was lost"):
        gs.scan(X, device=own_device)


def test_a_polling_thread_that_has_stopped(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that what the package wgpu says of a destroyed device is understood."""
    failure = failing(RuntimeError, "Cannot use PollThread because it has stopped.")
    replace_submit(own_device, monkeypatch, failure)
    with pytest.raises(gs.DeviceLostError, match="was lost"):
        gs.scan(X, device=own_device)
    assert is_lost(own_device)


def megabytes(count: int) -> Iterator[np.ndarray[Any, Any]]:
    return (np.ones(1 << 18, np.uint32) for _ in range(count))


@pytest.mark.parametrize("lost", [True, False])
def test_everything_says_that_a_destroyed_device_is_lost(own_device: gs.Device, lost: bool) -> None:
    """Assert that every call raises, also in the middle of chunks, and if an earlier one has found the loss."""
    device = own_device
    held, large = device.asarray(X), np.ones(2 << 20, np.uint32)
    with device.profile() as profile:
        gs.scan(held)
    assert sum(map(len, gs.scan_chunks(megabytes(9), device=device))) == 9 << 18
    gs.scan(large, device=device)
    # Enough pieces that most are not submitted yet when the first results are there.
    begun = gs.scan_chunks(megabytes(11 * piece_bytes(device.capabilities.adapter_type) >> 20), device=device)
    next(begun)
    device.wgpu_device.destroy()
    calls: list[Callable[[], Any]] = [
        lambda: gs.scan(large, device=device),
        lambda: list(gs.scan_chunks(megabytes(9), device=device)),
        lambda: list(gs.scan_chunks([X], device=device)),
        lambda: list(gs.scan_chunks([X], device=device, compensated=True, dtype=np.float32)),
        lambda: list(begun),
        held.copy,
        held.read_async,
        lambda: device.plan(77, np.int32, "maximum"),
    ]
    if device.capabilities.timestamps:
        calls.append(lambda: profile.spans)
    for call in calls:
        mark_lost(device, lost)
        with pytest.raises(gs.DeviceLostError, match="was lost"):
            call()
        assert is_lost(device)


def test_chunks_that_raise_what_a_lost_device_might(own_device: gs.Device) -> None:
    """Assert that an error of the caller's own code is not taken for a lost device."""

    def broken() -> Iterator[np.ndarray[Any, Any]]:
        yield X
        raise RuntimeError("the cable is lost")

    with pytest.raises(RuntimeError, match="cable") as caught:
        list(gs.scan_chunks(broken(), device=own_device))
    assert not isinstance(caught.value, gs.GpuscanError)
    assert not is_lost(own_device)


def test_flush_on_a_destroyed_device(own_device: gs.Device) -> None:
    own_device.flush()
    own_device.wgpu_device.destroy()
    for _ in range(2):
        with pytest.raises(gs.DeviceLostError):
            own_device.flush()
