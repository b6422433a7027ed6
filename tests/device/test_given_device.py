"""A `wgpu.GPUDevice` that the caller has made, with the features and limits that it has."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device.adapter_requirements import LEAST_LIMITS, choose_features
from tests.harness.builds import count_measurements
from tests.harness.devices import queue_of
from tests.harness.scans import record_and_submit
from tests.oracle import assert_same, ufunc_scan

X = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@pytest.fixture
def gpu(adapter: wgpu.GPUAdapter) -> wgpu.GPUDevice:
    """Return a device without any feature, as a program makes it that knows nothing of gpuscan."""
    return adapter.request_device_sync()


def test_scans_on_a_given_device(gpu: wgpu.GPUDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the probe measures the caller's device itself, and that calls of every family work there."""
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    measured = count_measurements(monkeypatch)
    device = gs.Device(gpu)
    assert measured == [gpu]
    assert device.wgpu_device is gpu
    assert device.capabilities.features == frozenset(map(str, gpu.features))
    assert device.capabilities.subgroup_sizes == ()
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))
    assert_same(gs.scan(X.astype(np.int64), device=device), ufunc_scan("add", X.astype(np.int64)))
    assert_same(gs.sort(X, device=device), np.sort(X))
    held = device.asarray(X)
    assert_same((held * 2 + 1).numpy(), X * np.uint32(2) + np.uint32(1))
    assert_same(gs.compact(held, held > 7).numpy(), X[X > 7])
    with device.profile() as profile:
        gs.scan(held)
    assert profile.gpu_seconds is None
    gpu.destroy()
    with pytest.raises(gs.DeviceLostError):
        gs.scan(X, device=device)


def test_buffers_and_encoders_of_the_given_device(gpu: wgpu.GPUDevice) -> None:
    device = gs.Device(gpu)
    source = gpu.create_buffer_with_data(data=X, usage=USAGE)
    result = gpu.create_buffer(size=X.nbytes, usage=USAGE)
    assert_same(gs.scan(gs.Array.from_buffer(device, source, X.shape, X.dtype)).numpy(), ufunc_scan("add", X))
    record_and_submit(gpu, device.plan(X.shape, X.dtype), source, result)
    assert_same(np.frombuffer(gpu.queue.read_buffer(result), np.uint32), ufunc_scan("add", X))


def test_one_device_for_each_given_device(adapter: wgpu.GPUAdapter, gpu: wgpu.GPUDevice) -> None:
    """Assert that every `gs.Device` over a wgpu device is the same, also from several threads, and gpuscan's own."""
    found: list[gs.Device] = []
    threads = [threading.Thread(target=lambda: found.append(gs.Device(gpu))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each is found[0] for each in found)
    assert len(found) == 4
    queue = queue_of(found[0])
    array = found[0].asarray(X)
    found.clear()
    gc.collect()
    assert queue_of(gs.Device(gpu)) is queue
    assert gs.scan(array, device=gs.Device(gpu)).device is array.device
    own = gs.Device(adapter)
    assert gs.Device(own.wgpu_device) is own
    assert gs.Device(adapter) is not own
    assert gs.Device(gs.Device(gpu)) is not array.device  # a `gs.Device` means its adapter


def test_a_given_device_is_not_kept_alive(adapter: wgpu.GPUAdapter) -> None:
    gpu = adapter.request_device_sync()
    gs.scan(X, device=gs.Device(gpu))
    gone = weakref.ref(gpu)
    del gpu
    gc.collect()
    assert gone() is None


def test_what_a_given_device_lacks(adapter: wgpu.GPUAdapter, gpu: wgpu.GPUDevice) -> None:
    """Assert that errors tell what the caller's device was made without from what the adapter does not have."""
    device, floats = gs.Device(gpu), X.astype(np.float64)
    needed = ["shader-f64", "shader-int64"]
    has_floats = set(needed) <= set(adapter.features)
    words = "made without shader-f64 and shader-int64, which" if has_floats else "has no 64-bit floats"
    calls = [
        lambda: gs.scan(floats, device=device),
        lambda: device.plan(floats.shape, floats.dtype),
        lambda: gs.map(lambda v: v.astype(np.float64) * 2, device.asarray(X)),
    ]
    for call in calls:
        with pytest.raises(gs.UnsupportedDtypeError, match=words):
            call()
    if has_floats:
        half = gs.Device(adapter.request_device_sync(required_features=needed[:1]))
        with pytest.raises(gs.UnsupportedDtypeError, match="made without shader-int64, which"):
            gs.scan(floats, device=half)
        able = gs.Device(adapter.request_device_sync(required_features=needed))
        assert_same(gs.scan(np.arange(9.0), device=able), np.cumsum(np.arange(9.0)))
    with pytest.raises(ValueError, match="which has the limits that it was made with"):
        gs.Device(gpu, required_limits={"max-buffer-size": 1 << 20})
    with pytest.raises(ValueError, match="which has the limits that it was made with"):
        gs.Device(adapter.request_device_sync(), required_limits={"max-buffer-size": 1 << 20})


@pytest.mark.parametrize(("name", "least"), LEAST_LIMITS.items())
def test_devices_with_less_than_webgpu_promises_are_refused(adapter: wgpu.GPUAdapter, name: str, least: int) -> None:
    limits = {name: least // 2}
    small = adapter.request_device_sync(required_limits=limits)
    if small.limits[name] < least:  # Dawn gives every device what WebGPU promises.
        with pytest.raises(ValueError, match=f"{name} = {least // 2} was passed"):
            gs.Device(small)
        with pytest.raises(ValueError, match=f"{name} = {least // 2} was passed"):
            gs.Device(adapter, required_limits=limits)


def test_features_of_a_given_device_are_used(adapter: wgpu.GPUAdapter) -> None:
    features = choose_features(adapter)
    device = gs.Device(adapter.request_device_sync(required_features=features), unsafe=True)
    own = gs.Device(adapter).capabilities
    assert (device.capabilities.subgroup_size, device.capabilities.float64) == (own.subgroup_size, own.float64)
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))
