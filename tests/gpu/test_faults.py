"""What goes wrong beneath a call comes out as gpuscan's own errors, and the device is usable after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device import Device
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


def test_flush_on_a_destroyed_device(own_device: Device) -> None:
    own_device.flush()
    own_device.wgpu_device.destroy()
    for _ in range(2):
        with pytest.raises(gs.DeviceLostError):
            own_device.flush()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(adapter: wgpu.GPUAdapter) -> None:
    """A clear error in the child, at once; the parent goes on."""
    code = f"""
import os, sys
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
x = device.asarray(np.ones(100, np.uint32))
gs.scan(np.ones(1 << 21, np.uint32), device=device)
child = os.fork()
if child == 0:
    for call in (lambda: gs.scan(x), lambda: gs.scan(np.ones(9, "f4"), device=device), x.numpy, device.synchronize):
        try:
            call()
        except gs.DeviceLostError as error:
            assert "spawn" in str(error)
        else:
            os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), gs.scan(x).numpy()[-1])
"""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(gs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["0", "100"]), done.stderr
