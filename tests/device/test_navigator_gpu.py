"""WebGPU of a web page: the shim runs over a ``navigator.gpu`` that the tests make of the package wgpu.

script/browser runs it in Chromium. Here each call goes through it as well, and errors come when a browser gives them.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan
from gpuscan.device import backends, navigator_gpu, transfer
from gpuscan.device.adapters import find_adapters
from gpuscan.errors import AdapterNotFoundError, DeviceLostError, OperatorError

AFFINE = gpuscan.operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")


def snake(value: Any) -> Any:
    """Return descriptors of JavaScript with the names of the package wgpu, and its objects."""
    if isinstance(value, dict):
        return {re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower(): snake(each) for key, each in value.items()}
    if isinstance(value, list):
        return [snake(each) for each in value]
    return value.real if isinstance(value, JsObject) else value


class JsObject:
    """An object of the package wgpu with the methods of JavaScript: a descriptor, or arguments in order."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, re.sub(r"([A-Z])", r"_\1", name).lower())

        def call(*arguments: Any) -> Any:
            given = [snake(each) for each in arguments]
            made = found(**given[0]) if given and isinstance(given[0], dict) else found(*given)
            return JsObject(made) if type(made).__name__.startswith("GPU") else made

        return call if callable(found) else found


class JsBuffer(JsObject):
    """A buffer with mapped bytes that Python reads and writes like an `ArrayBuffer`."""

    def __init__(self, real: wgpu.GPUBuffer) -> None:
        super().__init__(real)
        self.written: list[tuple[int, bytearray]] = []

    @property
    def mapState(self) -> str:  # noqa: N802 (JavaScript's name)
        return self.real.map_state

    def mapAsync(self, mode: int, offset: int, size: int) -> Any:  # noqa: N802
        return lambda: self.real.map_sync(mode, offset, size)

    def getMappedRange(self, offset: int, size: int) -> Any:  # noqa: N802
        return SimpleNamespace(
            to_memoryview=lambda: self.real.read_mapped(offset, size),
            assign=lambda data: self.real.write_mapped(data, offset),
        )


class JsDevice(JsObject):
    """A device, which keeps errors for the scopes that are open, and else reports them."""

    def __init__(self, real: wgpu.GPUDevice) -> None:
        super().__init__(real)
        self.scopes: list[Any] = []
        self.onuncapturederror: Any = None
        self.queue = JsObject(real.queue)
        self.limits, self.features = js_limits(real.limits), SimpleNamespace(values=list)
        self.lost = SimpleNamespace(then=lambda callback: None)

    def pushErrorScope(self, kind: str) -> None:  # noqa: N802
        self.scopes.append(None)

    def popErrorScope(self) -> Any:  # noqa: N802
        error = self.scopes.pop()
        return lambda: error

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def caught(*arguments: Any) -> Any:
            try:
                made = call(*arguments)
            except wgpu.GPUError as error:
                kind = SimpleNamespace(name="GPUValidationError")
                told = SimpleNamespace(constructor=kind, message=str(error))
                if self.scopes:
                    self.scopes[-1] = told
                else:
                    self.onuncapturederror(SimpleNamespace(error=told))
                return None
            return JsBuffer(made.real) if name == "createBuffer" else made

        return caught


def js_limits(limits: Any) -> Any:
    return SimpleNamespace(**{re.sub(r"-(\d?\w)", lambda m: m.group(1).upper(), key): n for key, n in limits.items()})


def js_adapter(real: wgpu.GPUAdapter) -> Any:
    def open_js_device(asked: dict[str, Any]) -> Any:
        limits = {re.sub(r"(?<=[a-z])(?=[A-Z\d])", "-", key).lower(): n for key, n in asked["requiredLimits"].items()}
        return lambda: JsDevice(real.request_device_sync(required_limits=limits))

    info = SimpleNamespace(vendor="google", architecture="swiftshader", device="", description="")
    features = SimpleNamespace(values=list)
    return SimpleNamespace(info=info, features=features, limits=js_limits(real.limits), requestDevice=open_js_device)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Make the modules that Pyodide has. `can_wait` says if the call can wait, and `gpu` is the navigator's `gpu`."""
    (real, *_) = find_adapters()
    gpu = SimpleNamespace(requestAdapter=lambda asked: lambda: js_adapter(real))
    state = SimpleNamespace(can_wait=True, navigator=SimpleNamespace(gpu=gpu, userAgent="Mozilla/5.0 Chrome/137.0.0.0"))
    modules = ModuleType("js"), ModuleType("pyodide.ffi"), ModuleType("pyodide")
    js, ffi, pyodide = map(vars, modules)
    js["navigator"] = state.navigator
    js["Object"] = SimpleNamespace(
        fromEntries=dict, getPrototypeOf=lambda thing: thing, keys=lambda thing: list(vars(thing))
    )
    js["Uint8Array"] = SimpleNamespace(
        new=lambda mapped: SimpleNamespace(subarray=lambda start, stop: SimpleNamespace(assign=mapped.assign))
    )
    ffi["run_sync"] = lambda promise: promise()
    ffi["can_run_sync"] = lambda: state.can_wait
    ffi["to_js"] = lambda value, **options: value
    ffi["create_proxy"] = lambda call: call
    ffi["JsException"] = type("JsException", (Exception,), {})
    pyodide["__version__"], pyodide["ffi"] = "0.27.7", modules[1]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    navigator_gpu._js.cache_clear()
    return state


@pytest.fixture
def device(page: SimpleNamespace) -> gpuscan.Device:
    (adapter,) = navigator_gpu.gpu.enumerate_adapters_sync()
    return gpuscan.Device(adapter)


def test_the_layers_above_do_not_know(device: gpuscan.Device) -> None:
    """Scan, upload, download and sort through the shim, with small arrays and with some that go through staging."""
    found = device.capabilities
    assert found.summary == "google swiftshader (CPU) via WebGPU"
    assert found.implementation == "Chromium 137, by Pyodide 0.27.7"
    assert (found.vendor, found.backend) == ("Google", "WebGPU")
    rng = np.random.default_rng(0)
    for size in (0, 1, 1_001, 500_000):
        x = rng.integers(0, 2**32, size, np.uint32)
        assert np.array_equal(gpuscan.scan(x, device=device), gpuscan.scan(x, device="numpy"))
    pair = rng.integers(0, 9, (2, 5_000), np.uint32)
    for found_field, field in zip(
        gpuscan.scan(tuple(pair), AFFINE, device=device), gpuscan.scan(tuple(pair), AFFINE, device="numpy"), strict=True
    ):
        assert np.array_equal(found_field, field)
    on_device = device.asarray(x)
    assert np.array_equal(gpuscan.sort(on_device).numpy(), np.sort(x))
    assert np.array_equal(on_device.read_async().result(), x)


def test_errors_come_when_a_browser_gives_them(device: gpuscan.Device) -> None:
    """Raise what a scope caught at once, what it did not at the next wait, and that the device is lost."""
    wrong = gpuscan.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a +; }", name="wrong")
    with pytest.raises(OperatorError, match="WGSL of the operator 'wrong' does not compile"):
        gpuscan.scan(np.ones(9, np.uint32), wrong, device=device)
    gpu = device.wgpu_device
    small = gpu.create_buffer(size=16, usage=navigator_gpu.BufferUsage.STORAGE)
    small.destroy()
    with pytest.raises(ValueError, match="a buffer that was destroyed was passed"):
        gpuscan.scan(gpuscan.Array.from_buffer(device, small, 4, np.uint32))
    gpu.create_buffer(size=64, usage=0x3)  # a buffer cannot be mapped for reading and writing
    x = np.ones(100, np.uint32)
    with pytest.raises(navigator_gpu.GPUValidationError):
        gpuscan.scan(x, device=device)
    assert gpuscan.scan(x, device=device)[-1] == 100
    gpu.destroy()
    with pytest.raises(DeviceLostError, match="google swiftshader"):
        gpuscan.scan(x, device=device)


def test_a_call_that_cannot_wait(page: SimpleNamespace) -> None:
    """Say which browsers can, and how to call; and list no adapter where there is no WebGPU."""
    page.can_wait = False
    with pytest.raises(AdapterNotFoundError, match=r"runPythonAsync.*137"):
        navigator_gpu.gpu.enumerate_adapters_sync()
    page.navigator.gpu = None
    assert navigator_gpu.gpu.enumerate_adapters_sync() == []


def test_vendors_have_their_numbers(page: SimpleNamespace) -> None:
    """Name the vendor as native drivers do, on which the choice of a strategy depends."""
    (real, *_) = find_adapters()
    for vendor, kind in (("nvidia", "Unknown"), ("apple", "IntegratedGPU"), ("amd", "Unknown")):
        found = js_adapter(real)
        found.info = SimpleNamespace(
            vendor=vendor, architecture="x", device="", description="", isFallbackAdapter=False
        )
        info = navigator_gpu.GPUAdapter(found, "high-performance").info
        assert (info["adapter_type"], info["device"]) == (kind, f"{vendor} x")
        assert info["vendor_id"] in range(1, 1 << 32)


def test_a_page_has_one_backend_and_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run calls of other threads here, and refuse several devices."""
    monkeypatch.setattr(transfer, "IN_BROWSER", True)
    assert transfer.start_call(None, lambda: 3).result() == 3  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="2 devices were passed"):
        transfer.serve_devices(2)
    assert not backends.IN_BROWSER
