"""The fast queue: it is used with every supported version of wgpu, and a version without its internals is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu
from wgpu.backends.wgpu_native import ffi, lib

import gpuscan as gs
from gpuscan.device import backends, native_queue, queue
from gpuscan.device.native_queue import NativeQueue, missing_internal
from tests.harness.devices import queue_of
from tests.oracle import assert_same, ufunc_scan

X = np.arange(3000, dtype=np.uint32)


class Changed:
    """Stand in for the C library or cffi of another version: some of its names are missing or something else."""

    def __init__(self, original: Any, **changes: Any) -> None:
        self._original, self._changes = original, changes

    def __getattr__(self, name: str) -> Any:
        found = self._changes.get(name, getattr(self._original, name))
        if found is None:
            raise AttributeError(name)
        return found


@pytest.fixture(autouse=True)
def warn_again() -> None:
    """Forget what was warned about."""
    queue._warn_once.cache_clear()


def test_the_installed_version_has_the_fast_queue(adapter: wgpu.GPUAdapter, caplog: pytest.LogCaptureFixture) -> None:
    """Assert it for any version that is installed here: script/versions runs this with the oldest and the newest."""
    device = gs.Device(adapter)
    assert missing_internal(device.wgpu_device) is None
    assert isinstance(queue_of(device), NativeQueue)
    assert_same(gs.scan(X, device=device), ufunc_scan("add", X))
    with device.profile() as profile:
        gs.scan(device.asarray(X))
    assert [span.stage for span in profile.spans][-1] == "scan"
    assert profile.gpu_seconds is None or profile.gpu_seconds > 0
    assert not caplog.records


def test_the_version_does_not_matter(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu, "__version__", "0.99.0")
    assert isinstance(queue_of(gs.Device(adapter)), NativeQueue)


OTHERS = {
    "a function that is gone": ({"wgpuQueueSubmitForIndex": None}, "wgpuQueueSubmitForIndex: uint64_t"),
    "another signature": ({"wgpuDevicePoll": lib.wgpuBufferUnmap}, "wgpuDevicePoll: uint32_t"),
    "a constant that is gone": ({"WGPUMapMode_Read": None}, "WGPUMapMode_Read"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_version_without_the_internals(
    adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    """Assert that scans go on by the public objects, and that one warning says what is missing."""
    changes, words = OTHERS[other]
    missing_in = native_queue._missing_in
    monkeypatch.setattr(native_queue, "_missing_in", lambda ffi, lib: missing_in(ffi, Changed(lib, **changes)))
    for _ in range(2):
        device = gs.Device(adapter)
        assert not isinstance(queue_of(device), NativeQueue)
        assert_same(gs.scan(X, device=device), ufunc_scan("add", X))
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert words in caplog.text
    assert wgpu.__version__ in caplog.text


@pytest.mark.parametrize("missing", ["_internal", "_poller"])
def test_objects_without_the_internals(adapter: wgpu.GPUAdapter, missing: str) -> None:
    gpu = Changed(gs.Device(adapter).wgpu_device, **{missing: None})
    assert str(missing_internal(gpu)).endswith(missing)


def test_another_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"WGPUStringView": {"data": "char *", "length": "uint16_t"}}
    monkeypatch.setattr(native_queue, "_STRUCTURES", changed)
    assert native_queue._missing_in(ffi, lib) == "WGPUStringView.length: uint16_t"


def test_types_are_parsed_ahead_in_every_version() -> None:
    """Assert that a type which the installed version does not have spoils none of the others."""
    known = dict(ffi._parsed_types)
    try:
        ffi._parsed_types.clear()
        backends._parse(ffi)
        assert {"WGPUBufferDescriptor *", "WGPUSubmissionIndex *", "uint32_t *"} <= ffi._parsed_types.keys()
    finally:
        ffi._parsed_types.update(known)


def test_an_empty_binding_is_an_error(own_device: gs.Device) -> None:
    """Assert that a binding of no bytes, for which wgpu-native ends the process, is an exception."""
    found = queue_of(own_device)
    assert isinstance(found, NativeQueue)
    array = own_device.asarray(X)
    part = array._binding()
    with pytest.raises(RuntimeError, match="without elements"):
        found.bind_group(own_device._context.lone_layout, [(0, part._replace(size=0))])
    assert_same(gs.scan(array).numpy(), ufunc_scan("add", X))
