"""WebGPU of a web page, under Pyodide: the part of the package wgpu that gpuscan uses, over ``navigator.gpu``.

The classes and methods are named as in the package wgpu and mean the same, so the other modules need not know which of
the two they use. The differences are:

- A browser answers later, so whatever waits gives the page its turn meanwhile (``pyodide.ffi.run_sync``). That needs
  JavaScript Promise Integration, and a call from ``pyodide.runPythonAsync``.
- Shaders, pipelines and large buffers are checked when they are made. A browser reports other errors after the call,
  so they are raised by the next wait.
- What is mapped is a copy, since Python does not see the memory of JavaScript.

Outside a browser the module can be imported, and does nothing until ``gpu`` is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from gpuscan.errors import AdapterNotFoundError

if TYPE_CHECKING:
    from pyodide.ffi import JsProxy

# The hints by which a browser chooses among the GPUs of a machine, the faster one first.
_PREFERENCES = ("high-performance", "low-power")
# Words in the architectures and descriptions of adapters that compute on the CPU.
_SOFTWARE = re.compile(r"swiftshader|llvmpipe|basic render", re.IGNORECASE)
# What a call of the browser makes.
T = TypeVar("T")

# PCI's number of each vendor that browsers name.
_VENDORS = {
    "amd": 0x1002,
    "apple": 0x106B,
    "arm": 0x13B5,
    "google": 0x1AE0,
    "img-tec": 0x1010,
    "intel": 0x8086,
    "mesa": 0x10005,
    "microsoft": 0x1414,
    "nvidia": 0x10DE,
    "qualcomm": 0x5143,
}
# Vendors that only make integrated GPUs, which share the memory of the CPU.
_INTEGRATED = frozenset({"apple", "arm", "img-tec", "qualcomm"})
# Browsers by the names that their user agents have, the more special ones first.
_BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Chrome": "Chromium", "Firefox": "Firefox", "Version": "Safari"}
# The bytes from which on the creation of a buffer waits for the browser to say if there is room for it.
_CHECKED_BYTES = 1 << 20


class BufferUsage:
    """WebGPU's flags for the usage of a buffer."""

    MAP_READ = 0x1
    MAP_WRITE = 0x2
    COPY_SRC = 0x4
    COPY_DST = 0x8
    INDEX = 0x10
    VERTEX = 0x20
    UNIFORM = 0x40
    STORAGE = 0x80
    INDIRECT = 0x100
    QUERY_RESOLVE = 0x200


class MapMode:
    """WebGPU's flags for the mapping of a buffer."""

    READ = 0x1
    WRITE = 0x2


class ShaderStage:
    """WebGPU's flags for the shaders that see a binding."""

    VERTEX = 0x1
    FRAGMENT = 0x2
    COMPUTE = 0x4


class GPUError(Exception):
    """An error that WebGPU reports."""


class GPUValidationError(GPUError):
    """A call that WebGPU does not allow, or a shader that does not compile."""


class GPUOutOfMemoryError(GPUError, MemoryError):
    """The GPU has no room for a buffer."""


class GPUInternalError(GPUError):
    """The browser or its driver could not do what a call asked for."""


# ----- Python and JavaScript


@cache
def _js() -> Any:
    """Return Pyodide's module of the globals of JavaScript."""
    import js

    return js


def _wait(promise: object) -> object:
    """Return the result of a JavaScript promise; the page has its turn until it is there.

    Raises:
        RuntimeError: the promise was rejected, for example since the device is lost.
        AdapterNotFoundError: this call cannot wait.
    """
    from pyodide.ffi import JsException, run_sync

    if not _can_wait():
        raise AdapterNotFoundError(
            "the GPU of a browser was to be used, but this call of Python cannot wait for it. Run the code by "
            "pyodide.runPythonAsync, in a browser with JavaScript Promise Integration (Chrome and Edge from 137 on, "
            "Firefox from 153 on), and not in a callback of JavaScript"
        )
    try:
        return run_sync(promise)
    except JsException as error:
        raise RuntimeError(f"{error.name}: {error.message}") from None


def _can_wait() -> bool:
    from pyodide.ffi import can_run_sync

    return bool(can_run_sync())


def _plain(value: object) -> object:
    """Return descriptors of the package wgpu as WebGPU spells them: names in camel case, and JavaScript's objects."""
    if isinstance(value, _Object):
        return value._js
    if isinstance(value, Mapping):
        return {_camel(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    # Numbers of NumPy would become proxies.
    return int(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def _convert_descriptor(value: object) -> JsProxy:
    """Return a descriptor as an object of JavaScript."""
    from pyodide.ffi import to_js

    return to_js(_plain(value), dict_converter=_js().Object.fromEntries)


def _make_descriptor(**descriptor: object) -> JsProxy:
    return _convert_descriptor(descriptor)


def _camel(name: str) -> str:
    """Return ``hasDynamicOffset`` for ``has_dynamic_offset``, and ``maxBufferSize`` for ``max-buffer-size``."""
    return re.sub(r"[_-](\d?\w)", lambda match: match.group(1).upper(), str(name))


def _hyphenate(name: str) -> str:
    """Return ``max-buffer-size`` for ``maxBufferSize``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z\d])", "-", name).lower()


def _error_of(error: JsProxy) -> GPUError:
    """Return an error of WebGPU as an exception."""
    error_types = {"GPUValidationError": GPUValidationError, "GPUOutOfMemoryError": GPUOutOfMemoryError}
    return error_types.get(str(error.constructor.name), GPUInternalError)(str(error.message))


def _limits_of(thing: JsProxy) -> dict[str, int]:
    """Return the limits of an adapter or device by the names of the package wgpu."""
    names = _js().Object.keys(_js().Object.getPrototypeOf(thing.limits))
    return {_hyphenate(str(name)): int(getattr(thing.limits, name)) for name in names}


def _info_of(thing: object) -> dict[str, object]:
    """Return the browser's information about an adapter, with the keys of the package wgpu."""
    vendor, architecture, device, description = (
        str(getattr(thing, name, None) or "") for name in ("vendor", "architecture", "device", "description")
    )
    told = " ".join(part for part in (vendor, architecture) if part)
    software = bool(getattr(thing, "isFallbackAdapter", False)) or bool(_SOFTWARE.search(f"{told} {description}"))
    return {
        "vendor": vendor,
        "architecture": architecture,
        "device": description or told or device or "GPU of the browser",
        "description": description,
        "vendor_id": _VENDORS.get(vendor, 0),
        "device_id": 0,
        "adapter_type": "CPU" if software else "IntegratedGPU" if vendor in _INTEGRATED else "Unknown",
        "backend_type": "WebGPU",
    }


def implementation() -> str:
    """Return the names and versions of the browser and Pyodide, such as ``"Chromium 137, by Pyodide 0.27.7"``."""
    import pyodide

    agent = str(getattr(_js().navigator, "userAgent", ""))
    for word, name in _BROWSERS.items():
        if version := re.search(rf"{word}/(\d+)", agent):
            return f"{name} {version.group(1)}, by Pyodide {pyodide.__version__}"
    return f"a browser, by Pyodide {pyodide.__version__}"


# ----- Adapters


class GPU:
    """The object ``gpu`` of the package wgpu."""

    def enumerate_adapters_sync(self) -> list[GPUAdapter]:
        """Return the GPUs that the browser offers: the fastest, and the most economical if that is another one.

        Raises:
            AdapterNotFoundError: this call cannot wait for the browser's answer.
        """
        if not getattr(_js().navigator, "gpu", None):
            return []
        adapters: list[GPUAdapter] = []
        for preference in _PREFERENCES:
            adapter = GPUAdapter.request(preference)
            if adapter is not None and all(dict(adapter.info) != dict(other.info) for other in adapters):
                adapters.append(adapter)
        return adapters


gpu = GPU()


class GPUAdapter:
    """A GPU that the browser offers.

    Attributes:
        info: the browser's information about it.
        features: the names of WebGPU's optional features that it has.
        limits: its limits.
    """

    def __init__(self, js_adapter: JsProxy, preference: str) -> None:
        self._preference = preference
        self.info = _info_of(js_adapter.info)
        self.features = {str(feature) for feature in js_adapter.features.values()}
        self.limits = _limits_of(js_adapter)

    @classmethod
    def request(cls, preference: str) -> GPUAdapter | None:
        """Return the adapter that the browser offers for a preference; None if it offers none."""
        adapter = cls._request(preference)
        return None if adapter is None else cls(adapter, preference)

    @staticmethod
    def _request(preference: str) -> JsProxy | None:
        return _wait(_js().navigator.gpu.requestAdapter(_make_descriptor(power_preference=preference)))

    @property
    def summary(self) -> str:
        """The adapter in one line, as the package wgpu has it."""
        return f"{self.info['device']} ({self.info['adapter_type']}) via {self.info['backend_type']}"

    def request_device_sync(
        self,
        *,
        required_features: Sequence[str] = (),
        required_limits: Mapping[str, int] | None = None,
        label: str = "",
    ) -> GPUDevice:
        """Return a new device.

        Raises:
            RuntimeError: the browser cannot open one with these features and limits.
        """
        # An adapter of a browser opens a single device, so the browser is asked for it again.
        adapter = self._request(self._preference)
        if adapter is None:
            raise RuntimeError("the browser does not offer this adapter any more")
        limits = {_camel(name): limit for name, limit in (required_limits or {}).items()}
        descriptor = _make_descriptor(label=label, required_features=list(required_features), required_limits=limits)
        return GPUDevice(self, _wait(adapter.requestDevice(descriptor)))


# ----- Objects of a device


class _Object:
    """An object of a device.

    Args:
        js_object: WebGPU's own object.
    """

    def __init__(self, device: GPUDevice, js_object: JsProxy) -> None:
        self._device, self._js = device, js_object


class GPUBindGroup(_Object):
    """A bind group."""


class GPUBindGroupLayout(_Object):
    """The layout of bind groups."""


class GPUPipelineLayout(_Object):
    """The layouts of a pipeline's bind groups."""


class GPUShaderModule(_Object):
    """A compiled shader."""


class GPUCommandBuffer(_Object):
    """Commands to submit."""


class GPUQuerySet(_Object):
    """Places for timestamps."""


class GPUComputePipeline(_Object):
    """A shader that is ready to run."""

    def get_bind_group_layout(self, index: int) -> GPUBindGroupLayout:
        """Return the layout of a bind group, which the browser has derived from the shader."""
        return GPUBindGroupLayout(self._device, self._js.getBindGroupLayout(index))


class GPUPromise:
    """A mapping that the browser was asked for."""

    def __init__(self, device: GPUDevice, promise: object) -> None:
        self._device, self._promise = device, promise

    def sync_wait(self) -> None:
        """Wait until the browser has done what it was asked for.

        Raises:
            GPUError: it reported an error since the last wait.
            RuntimeError: the device is lost, or the buffer cannot be mapped.
        """
        self._device.wait(self._promise)


class GPUBuffer(_Object):
    """A buffer.

    Attributes:
        size: its bytes.
        usage: its flags.
        is_destroyed: True once `destroy` was called.
    """

    def __init__(self, device: GPUDevice, js_object: JsProxy, size: int, usage: int) -> None:
        super().__init__(device, js_object)
        self.size, self.usage, self.is_destroyed = size, usage, False

    @property
    def map_state(self) -> str:
        """``"unmapped"``, ``"pending"`` or ``"mapped"``."""
        return str(self._js.mapState)

    def map_async(self, mode: int | str, offset: int = 0, size: int | None = None) -> GPUPromise:
        """Ask for bytes of the buffer to be mapped once the GPU is done with them."""
        flag = getattr(MapMode, mode) if isinstance(mode, str) else mode
        length = self.size - offset if size is None else size
        return GPUPromise(self._device, self._js.mapAsync(int(flag), int(offset), int(length)))

    def map_sync(self, mode: int | str, offset: int = 0, size: int | None = None) -> None:
        """Map bytes of the buffer."""
        self.map_async(mode, offset, size).sync_wait()

    def read_mapped(self, offset: int | None = None, size: int | None = None, *, copy: bool = True) -> memoryview:
        """Return a copy of mapped bytes, also if `copy` is False."""
        content: memoryview = self._range(offset, size).to_memoryview()
        return content.cast("B")

    def write_mapped(self, data: Any, offset: int | None = None) -> None:
        """Write bytes to the mapped ones."""
        content = memoryview(data).cast("B")
        self._range(offset, content.nbytes).assign(content)

    def _range(self, offset: int | None, size: int | None) -> JsProxy:
        start = int(offset or 0)
        return self._js.getMappedRange(start, int(self.size - start if size is None else size))

    def unmap(self) -> None:
        """Unmap the buffer."""
        self._js.unmap()

    def destroy(self) -> None:
        """Free the memory of the buffer."""
        self.is_destroyed = True
        self._js.destroy()


class GPUComputePassEncoder(_Object):
    """A compute pass that is being recorded."""

    def set_pipeline(self, pipeline: GPUComputePipeline) -> None:
        """Set the pipeline of the dispatches that follow."""
        self._js.setPipeline(pipeline._js)

    def set_bind_group(self, index: int, group: GPUBindGroup, offsets: Sequence[int] = ()) -> None:
        """Set a bind group of the dispatches that follow."""
        if len(offsets):
            self._js.setBindGroup(index, group._js, _convert_descriptor(list(offsets)))
        else:
            self._js.setBindGroup(index, group._js)

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the pipeline."""
        self._js.dispatchWorkgroups(int(x), int(y), int(z))

    def dispatch_workgroups_indirect(self, buffer: GPUBuffer, offset: int) -> None:
        """Run the pipeline on a grid, and read the size of the grid from a buffer."""
        self._js.dispatchWorkgroupsIndirect(buffer._js, int(offset))

    def end(self) -> None:
        """End the pass."""
        self._js.end()


class GPUCommandEncoder(_Object):
    """Commands that are being recorded."""

    def begin_compute_pass(
        self, *, label: str = "", timestamp_writes: Mapping[str, object] | None = None
    ) -> GPUComputePassEncoder:
        """Begin a compute pass."""
        described = _make_descriptor(label=label, timestamp_writes=timestamp_writes)
        return GPUComputePassEncoder(self._device, self._js.beginComputePass(described))

    def clear_buffer(self, buffer: GPUBuffer, offset: int = 0, size: int | None = None) -> None:
        """Write zeros to bytes of a buffer."""
        length = buffer.size - offset if size is None else size
        self._js.clearBuffer(buffer._js, int(offset), int(length))

    def copy_buffer_to_buffer(
        self, source: GPUBuffer, source_offset: int, destination: GPUBuffer, destination_offset: int, size: int
    ) -> None:
        """Copy bytes from buffer to buffer."""
        ends = source._js, int(source_offset), destination._js, int(destination_offset)
        self._js.copyBufferToBuffer(*ends, int(size))

    def resolve_query_set(self, queries: GPUQuerySet, first: int, count: int, buffer: GPUBuffer, offset: int) -> None:
        """Write timestamps to a buffer."""
        self._js.resolveQuerySet(queries._js, int(first), int(count), buffer._js, int(offset))

    def finish(self) -> GPUCommandBuffer:
        """Return the recorded commands."""
        return GPUCommandBuffer(self._device, self._js.finish())


class GPUQueue(_Object):
    """The queue of a device."""

    def submit(self, commands: Sequence[GPUCommandBuffer]) -> None:
        """Submit commands.

        Raises:
            RuntimeError: the device is lost.
        """
        self._device.check_alive()
        self._js.submit(_convert_descriptor(list(commands)))

    def write_buffer(self, buffer: GPUBuffer, offset: int, data: Any) -> None:
        """Write contiguous bytes to a buffer.

        Raises:
            RuntimeError: the device is lost.
        """
        from pyodide.ffi import to_js

        self._device.check_alive()
        self._js.writeBuffer(buffer._js, int(offset), to_js(memoryview(data).cast("B")))

    def on_submitted_work_done_sync(self) -> None:
        """Wait until everything submitted so far is done."""
        self._device.wait(self._js.onSubmittedWorkDone())


class GPUDevice:
    """A device of the browser.

    Attributes:
        adapter: the adapter that it was opened on.
        queue: its queue.
        features: the names of the features that it was opened with.
        limits: its limits.
    """

    def __init__(self, adapter: GPUAdapter, js_device: JsProxy) -> None:
        from pyodide.ffi import create_proxy

        self.adapter, self._js = adapter, js_device
        self.queue = GPUQueue(self, js_device.queue)
        self.features = {str(feature) for feature in js_device.features.values()}
        self.limits = _limits_of(js_device)
        # What the browser has reported since the last wait, and why the device was lost.
        self._errors: list[GPUError] = []
        self._lost: str | None = None
        self._js.onuncapturederror = create_proxy(self._note_error)
        self._js.lost.then(create_proxy(self._note_lost))

    @property
    def adapter_info(self) -> dict[str, object]:
        """The browser's information about the adapter."""
        return self.adapter.info

    # ----- Errors

    def _note_error(self, event: JsProxy) -> None:
        self._errors.append(_error_of(event.error))

    def _note_lost(self, info: JsProxy) -> None:
        self._lost = str(info.message) or str(info.reason)

    def check_alive(self) -> None:
        """Raise an error if the device is lost, or was destroyed.

        Raises:
            RuntimeError: it is.
        """
        if self._lost is not None:
            raise RuntimeError(f"The device is lost: {self._lost}")

    def wait(self, promise: object) -> Any:
        """Return the result of a promise of the device.

        Raises:
            GPUError: the browser reported an error since the last wait.
            RuntimeError: the device is lost, or the promise was rejected.
        """
        try:
            return _wait(promise)
        finally:
            self.check_alive()
            if self._errors:
                first = self._errors[0]
                self._errors.clear()
                raise first

    def _call_in_scopes(self, error_filters: Sequence[str], make: Callable[[], T]) -> T:
        """Return what a call makes.

        Raises:
            GPUError: the browser reports an error that one of the filters catches.
            RuntimeError: the device is lost.
        """
        for error_filter in error_filters:
            self._js.pushErrorScope(error_filter)
        try:
            made = make()
        finally:
            promises = [self._js.popErrorScope() for _ in error_filters]
        # What was reported before this call is left for the next wait.
        errors = [error for error in map(_wait, promises) if error is not None]
        self.check_alive()
        if errors:
            raise _error_of(errors[0])
        return made

    # ----- Making objects

    def create_buffer(self, *, size: int, usage: int, label: str = "", mapped_at_creation: bool = False) -> GPUBuffer:
        """Return a new buffer of zeros.

        Raises:
            GPUOutOfMemoryError: there is no room for it. Small buffers report that at the next wait.
        """
        described = _make_descriptor(label=label, size=size, usage=usage, mapped_at_creation=mapped_at_creation)

        def make() -> JsProxy:
            return self._js.createBuffer(described)

        self.check_alive()
        made = self._call_in_scopes(("validation", "out-of-memory"), make) if size >= _CHECKED_BYTES else make()
        return GPUBuffer(self, made, int(size), int(usage))

    def create_buffer_with_data(self, *, data: Any, usage: int, label: str = "") -> GPUBuffer:
        """Return a new buffer with these bytes."""
        content = memoryview(data).cast("B")
        buffer = self.create_buffer(size=-(-content.nbytes // 4) * 4, usage=usage, label=label, mapped_at_creation=True)
        mapped = _js().Uint8Array.new(buffer._range(0, buffer.size))
        mapped.subarray(0, content.nbytes).assign(content)
        buffer.unmap()
        return buffer

    def create_bind_group_layout(
        self, *, entries: Sequence[Mapping[str, object]], label: str = ""
    ) -> GPUBindGroupLayout:
        """Return the layout of a bind group."""
        described = _make_descriptor(label=label, entries=entries)
        return GPUBindGroupLayout(self, self._js.createBindGroupLayout(described))

    def create_pipeline_layout(
        self, *, bind_group_layouts: Sequence[GPUBindGroupLayout], label: str = ""
    ) -> GPUPipelineLayout:
        """Return the layout of a pipeline."""
        described = _make_descriptor(label=label, bind_group_layouts=bind_group_layouts)
        return GPUPipelineLayout(self, self._js.createPipelineLayout(described))

    def create_bind_group(
        self, *, layout: GPUBindGroupLayout, entries: Sequence[Mapping[str, object]], label: str = ""
    ) -> GPUBindGroup:
        """Return a bind group.

        Raises:
            GPUValidationError: a buffer was destroyed, which a browser would report at the submission.
        """
        for buffer in _buffers_of(entries):
            if buffer.is_destroyed:
                raise GPUValidationError("a buffer of a bind group has been destroyed")
        described = _make_descriptor(label=label, layout=layout, entries=entries)
        return GPUBindGroup(self, self._js.createBindGroup(described))

    def create_shader_module(self, *, code: str, label: str = "") -> GPUShaderModule:
        """Return a compiled shader.

        Raises:
            GPUValidationError: it does not compile.
        """
        described = _make_descriptor(label=label, code=code)
        return GPUShaderModule(
            self, self._call_in_scopes(("validation",), lambda: self._js.createShaderModule(described))
        )

    def create_compute_pipeline(
        self, *, layout: GPUPipelineLayout | str, compute: Mapping[str, object], label: str = ""
    ) -> GPUComputePipeline:
        """Return a pipeline that is ready to run.

        Raises:
            GPUError: the driver does not compile the shader.
        """
        described = _make_descriptor(label=label, layout=layout, compute=compute)
        filters = "validation", "internal"
        return GPUComputePipeline(
            self, self._call_in_scopes(filters, lambda: self._js.createComputePipeline(described))
        )

    def create_command_encoder(self, *, label: str = "") -> GPUCommandEncoder:
        """Return an encoder."""
        return GPUCommandEncoder(self, self._js.createCommandEncoder(_make_descriptor(label=label)))

    def create_query_set(self, *, type: str, count: int, label: str = "") -> GPUQuerySet:  # noqa: A002 (wgpu's name)
        """Return places for timestamps."""
        return GPUQuerySet(self, self._js.createQuerySet(_make_descriptor(label=label, type=type, count=count)))

    def destroy(self) -> None:
        """Free all that the device holds."""
        self._lost = "it was destroyed"
        self._js.destroy()


def _buffers_of(entries: Sequence[Mapping[str, object]]) -> Iterator[GPUBuffer]:
    for entry in entries:
        if isinstance(entry["resource"], Mapping):
            yield entry["resource"]["buffer"]
