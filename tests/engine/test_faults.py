"""What goes wrong beneath a call comes out as gpuscan's own errors, and the device is usable after it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.device import transfer
from tests.oracle import assert_same, ufunc_scan

X = np.arange(3000, dtype=np.uint32)


@pytest.fixture
def own_device(adapter: wgpu.GPUAdapter) -> Device:
    """A device that a test may break."""
    return Device(adapter)


def test_out_of_memory_then_room_again(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cleanup and one more try; then the error, and the device goes on."""
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
    own_device: Device, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Whichever buffer of a piece, or of a ring of staging buffers, is the one that there is no room for."""
    monkeypatch.setattr(transfer, "STAGING_PIECE", 4 << 20)
    device = own_device
    create, x, rows = device.wgpu_device.create_buffer, np.ones(3 << 20, np.uint32), np.ones((4, 3 << 18), np.uint32)
    calls: list[Callable[[], Any]] = [
        lambda: gs.scan(x, device=device),
        lambda: gs.scan(rows, axis=1, initial=np.arange(4, dtype=np.uint32), device=device),
        lambda: device.asarray(x).numpy(),
    ]
    for call in calls:
        call()
        for left in itertools.count():
            device.memory_cleanup()
            made = 0

            def full(left: int = left, **options: Any) -> Any:
                nonlocal made
                made += 1
                if made > left:
                    raise error("no room")
                return create(**options)

            with monkeypatch.context() as patched:
                patched.setattr(device.wgpu_device, "create_buffer", full)
                with suppress(gs.DeviceMemoryError, KeyboardInterrupt):
                    call()
            assert (left, device.memory_usage().allocations) == (left, 0)
            if made <= left:
                break


def test_an_interrupted_synchronize_keeps_nothing(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_device.wgpu_device.queue, "submit", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        own_device.synchronize()
    assert own_device.memory_usage().allocations == 0


def test_an_array_larger_than_any_buffer(device: Device) -> None:
    most = device.capabilities.limits["max-buffer-size"]
    with pytest.raises(gs.DeviceMemoryError, match=str(most // 16 * 16)):
        device.empty(most + 1, np.uint8)


def test_a_submit_that_fails(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device, queue = own_device, own_device.wgpu_device.queue
    for size in (len(X), 3 << 20):
        x = np.ones(size, np.uint32)
        with monkeypatch.context() as patched:
            patched.setattr(queue, "submit", failing(wgpu.GPUValidationError("something of ours is wrong")))
            with pytest.raises(wgpu.GPUValidationError):
                gs.scan(x, device=device)
        assert device.memory_usage().bytes_in_use == 0
        assert_same(gs.scan(x, device=device), ufunc_scan("add", x))


def test_an_interrupted_call(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the GPU works, in a small scan and in the middle of a large one."""
    device, queue = own_device, own_device.wgpu_device.queue
    for size, calls in ((len(X), 0), (9 << 20, 4)):
        x, count, submit = np.ones(size, np.uint32), calls, queue.submit

        def interrupted(buffers: Any, submit: Any = submit) -> None:
            nonlocal count
            submit(buffers)
            count -= 1
            if count < 0:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(queue, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                gs.scan(x, device=device)
        assert device.memory_usage().bytes_in_use == 0
        assert_same(gs.scan(x, device=device), ufunc_scan("add", x))


def test_an_interrupt_in_a_callback_of_a_submission(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a callback raises is dropped; the interrupt comes nevertheless, after the submission."""
    device, queue = own_device, own_device.wgpu_device.queue
    submit, held, mask = queue.submit, device.asarray(X), device.asarray(X % 2 == 1)
    plan = device.plan(len(X), np.uint32, "add")
    dropped: list[BaseException] = []

    def called_back(buffers: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            dropped.append(error)
        submit(buffers)

    calls: list[Callable[[], Any]] = [
        lambda: gs.scan(X, device=device),
        lambda: gs.scan(np.ones(9 << 18, np.uint32), device=device),
        lambda: list(gs.scan_chunks(megabytes(3), device=device)),
        lambda: gs.scan(held),
        lambda: plan(held),
        lambda: gs.compact(held, mask),
        lambda: gs.scan(held, keys=held),
        held.copy,
        held.numpy,
        device.flush,
        device.synchronize,
    ]
    for call in calls:
        handler = signal.getsignal(signal.SIGINT)
        with monkeypatch.context() as patched:
            patched.setattr(queue, "submit", called_back)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert not dropped
        assert signal.getsignal(signal.SIGINT) is handler
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))


def test_an_interrupt_while_a_buffer_is_mapped(adapter: wgpu.GPUAdapter) -> None:
    """Ctrl-C in wgpu's own callback, on the thread of the call, which waited for ever for that buffer."""
    code = f"""
import signal, sys, threading
import numpy as np, gpuscan as gs
from wgpu.backends.wgpu_native import _poller
device = gs.Device({adapter.summary!r})
x = np.ones(3 << 20, np.uint32)
done, pending = _poller.PollToken.set_done, True
def interrupted(token):
    global pending
    by = sys._getframe(1).f_code.co_name
    if pending and by == "buffer_map_callback" and threading.current_thread() is threading.main_thread():
        pending = False
        signal.raise_signal(signal.SIGINT)
    done(token)
_poller.PollToken.set_done = interrupted
try:
    for _ in range(20):
        if pending:
            gs.scan(x, device=device)
    print("raised" if pending else "lost")  # where no callback came on this thread, nothing could be lost
except KeyboardInterrupt:
    print("raised")
print(gs.scan(x, device=device)[-1])
"""
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (0, ["raised", str(3 << 20)]), done.stderr


def failing(error: BaseException) -> Any:
    def call(*_: Any, **__: Any) -> None:
        raise error

    return call


def test_a_lost_device(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so from then on; the default device is opened anew."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    device = gs.default_device()
    held = device.asarray(X)
    with monkeypatch.context() as patched:
        patched.setattr(device.wgpu_device.queue, "submit", failing(wgpu.GPUValidationError("Parent device is lost")))
        with pytest.raises(gs.DeviceLostError, match="opened anew"):
            gs.scan(X)
    for call in (lambda: gs.scan(held), held.numpy, lambda: device.asarray(X), device.synchronize):
        with pytest.raises(gs.DeviceLostError):
            call()
    assert gs.default_device() is not device
    assert_same(gs.scan(X), ufunc_scan("add", X))


def test_a_destroyed_device_is_told_from_other_errors(own_device: Device) -> None:
    """A device that really went away, as far as a test can make one: the driver's own words are understood."""
    device = own_device
    gs.scan(X, device=device)
    device.wgpu_device.destroy()
    with pytest.raises(gs.DeviceLostError):
        gs.scan(X, device=device)


def test_a_device_that_is_lost_while_it_compiles(own_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault of the operator."""
    gpu = own_device.wgpu_device
    compile_pipeline = gpu.create_compute_pipeline

    def lost(**options: Any) -> Any:
        gpu.destroy()
        return compile_pipeline(**options)

    monkeypatch.setattr(gpu, "create_compute_pipeline", lost)
    with pytest.raises(gs.DeviceLostError, match="was lost"):
        gs.scan(X, "maximum", device=own_device)
    assert own_device.lost


def megabytes(count: int) -> Iterator[np.ndarray[Any, Any]]:
    return (np.ones(1 << 18, np.uint32) for _ in range(count))


@pytest.mark.parametrize("lost", [True, False])
def test_everything_says_that_a_destroyed_device_is_lost(own_device: Device, lost: bool) -> None:
    """Whether an earlier call has found that out or this one does; large arrays, and chunks of which some came."""
    device = own_device
    held, large = device.asarray(X), np.ones(2 << 20, np.uint32)
    with device.profile() as profile:
        gs.scan(held)
    assert sum(map(len, gs.scan_chunks(megabytes(9), device=device))) == 9 << 18
    gs.scan(large, device=device)
    begun = gs.scan_chunks(megabytes(90), device=device)
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
        device.lost = lost
        with pytest.raises(gs.DeviceLostError, match="was lost"):
            call()
        assert device.lost


def test_chunks_that_raise_what_a_lost_device_might(own_device: Device) -> None:
    """What the caller's own code raises is not taken for the device's words."""

    def broken() -> Iterator[np.ndarray[Any, Any]]:
        yield X
        raise RuntimeError("the cable is lost")

    with pytest.raises(RuntimeError, match="cable") as caught:
        list(gs.scan_chunks(broken(), device=own_device))
    assert not isinstance(caught.value, gs.GpuscanError)
    assert not own_device.lost


def test_flush_on_a_destroyed_device(own_device: Device) -> None:
    own_device.flush()
    own_device.wgpu_device.destroy()
    for _ in range(2):
        with pytest.raises(gs.DeviceLostError):
            own_device.flush()


def python(code: str) -> subprocess.CompletedProcess[str]:
    """The code, run by a Python of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(gs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_after_the_main_thread_has_ended(adapter: wgpu.GPUAdapter) -> None:
    """Threads that go on, and functions that run at the end, when Python's own pools take nothing more."""
    code = f"""
import atexit, threading
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
x = np.ones(9_000_000, np.uint32)
def work():
    threading.main_thread().join()
    held = device.asarray(x)
    print(gs.scan(x, device=device)[-1], held.numpy().sum(), held.read_async().result().sum())
atexit.register(lambda: print(gs.scan(x, device=device)[-1]))
threading.Thread(target=work).start()
"""
    done = python(code)
    assert done.stdout.split() == ["9000000"] * 4, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(adapter: wgpu.GPUAdapter) -> None:
    """A clear error in the child, at once; the parent goes on."""
    code = f"""
import os, sys
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
x = device.asarray(np.ones(100, np.uint32))
gs.scan(np.ones(1 << 21, np.uint32), device=device)
chunks = lambda: gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range(40)), device=device)
begun, left = chunks(), chunks()
next(begun), next(left)
child = os.fork()
if child == 0:
    left.close()
    calls = (
        lambda: gs.scan(x),
        lambda: gs.scan(np.ones(9, "f4"), device=device),
        lambda: list(chunks()),
        lambda: list(begun),
        lambda: device.plan(77, np.int32, "maximum"),
        x.numpy,
        x.copy,
        x.read_async,
        device.synchronize,
        device.flush,
    )
    for call in calls:
        try:
            call()
        except gs.DeviceLostError as error:
            assert "spawn" in str(error)
        else:
            os._exit(1)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, gs.scan(x).numpy()[-1], sum(map(len, begun)) == 39 << 18)
"""
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "100", "True"]), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "used",
    [
        "gs.scan(gs.Device(name).asarray(np.ones(100, 'f4'))).device",
        "gs.Device(next(a for a in wgpu.gpu.enumerate_adapters_sync() if a.summary == name))",
        "next(a for a in wgpu.gpu.enumerate_adapters_sync() if a.summary == name).request_device_sync()",
    ],
)
def test_devices_are_not_opened_after_a_fork(adapter: wgpu.GPUAdapter, used: str) -> None:
    """Where the parent has used the GPU, through gpuscan or not; a child of one that has not opens its own."""
    code = f"""
import os, signal
import numpy as np, wgpu, gpuscan as gs
name = {adapter.summary!r}
def in_child(act):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(act())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def scans():
    return int(gs.scan(np.ones(9, "f4"), device=gs.Device(name))[-1])
def refused():
    ours = isinstance(held, gs.Device)
    kept = [lambda: gs.Device(held), lambda: gs.Device(held._adapter)] if ours else []
    for call in (lambda: gs.Device(name), gs.devices, gs.default_device, lambda: gs.scan(np.ones(9, "f4")), *kept):
        try:
            call()
        except gs.DeviceLostError as error:
            assert "spawn" in str(error)
        else:
            return 1
    return int(gs.scan(np.ones(7, "f4"), device="numpy")[-1])
print(in_child(scans))
held = {used}
print(in_child(refused), in_child(lambda: in_child(refused)), scans())
"""
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (0, ["9", "7", "7", "9"]), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_releases_nothing(adapter: wgpu.GPUAdapter) -> None:
    """Garbage of the process before: to release a buffer waits for locks that a thread may have held at the fork."""
    code = f"""
import gc, os, signal
import numpy as np, wgpu, gpuscan as gs
gc.disable()
device = gs.Device({adapter.summary!r})
held = device.asarray(np.ones(100, np.uint32))
begun = gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range(9)), device=device)
next(begun)
begun.close()
def after_fork():
    global device, held, begun
    released = []
    ours = [thing for thing in gc.get_objects() if isinstance(thing, (wgpu.GPUObjectBase, wgpu.GPUAdapter))]
    for kind in set(map(type, ours)):
        kind._release = lambda thing: released.append(1)
    del device, held, begun, ours
    gc.collect()
    return min(len(released), 9)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(after_fork())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), after_fork() > 0)
"""
    done = python(code)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "True"]), done.stderr
