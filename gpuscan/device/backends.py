"""Choose the WebGPU implementation, and hide the differences between them.

- ``wgpu``: wgpu-native through the package wgpu. Its shader compiler is naga, which Firefox also uses.
- ``dawn``: Dawn through the package wgpudawn, which has the same Python interface. Its shader compiler is Tint, which
  Chrome also uses.
- ``browser``: ``navigator.gpu`` of a web page, under Pyodide, through `gpuscan.device.navigator_gpu`, which has the
  same Python interface. It is the only one there.

``GPUSCAN_BACKEND`` chooses one. They differ in this:

- subgroups: wgpu-native calls the feature ``subgroup``, and naga refuses the line ``enable subgroups;``. Dawn calls it
  ``subgroups``, as WebGPU does, and needs the line (`Capabilities.enable_subgroups`).
- 64-bit integers and floats: wgpu-native has features for them, the others have none.
- timestamps: wgpu-native gives the GPU's ticks, the others nanoseconds.
- barriers in control flow that is not uniform: naga accepts them, Tint refuses the shader.
- OpenGL: wgpu-native only.
- adapters: an adapter of Dawn's can open only one device (`gpuscan.device.adapters.fresh`).
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuscan.errors import AdapterNotFoundError

if TYPE_CHECKING:
    import wgpu


BACKEND_VARIABLE = "GPUSCAN_BACKEND"
# True in a web page, where Python cannot start threads or other processes.
IN_BROWSER = sys.platform == "emscripten"
# The module of WebGPU in a web page.
_NAVIGATOR = "gpuscan.device.navigator_gpu"
# The package or module of each implementation, the default one first.
BACKENDS: Mapping[str, str] = {"browser": _NAVIGATOR} if IN_BROWSER else {"wgpu": "wgpu", "dawn": "wgpudawn"}


def webgpu() -> ModuleType:
    """Return the module that adapters, flags and errors come from. The first call imports it.

    Raises:
        AdapterNotFoundError: $GPUSCAN_BACKEND names no implementation, or one that is not installed.
    """
    return _load(os.environ.get(BACKEND_VARIABLE, "").strip())


@cache
def _load(name: str) -> ModuleType:
    backend = name or next(iter(BACKENDS))
    if backend not in BACKENDS:
        raise AdapterNotFoundError(
            f"the WebGPU implementation {backend!r} was asked for (from {BACKEND_VARIABLE}); "
            f"there are {', '.join(BACKENDS)}. Set the variable to one of these, or unset it"
        )
    collects = gc.isenabled()
    # What the import makes stays, so collections would find nothing. They take 20 ms of a first result.
    gc.disable()
    try:
        package = importlib.import_module(BACKENDS[backend])
        if backend == "wgpu":
            parse_ahead()
    except (ImportError, OSError, RuntimeError) as error:  # missing, or its library does not load on this system
        wanted = f"{backend!r} was asked for (from {BACKEND_VARIABLE})" if name else f"{backend!r} is the default"
        raise AdapterNotFoundError(
            f"the WebGPU implementation {wanted}, but the package {BACKENDS[backend]} cannot be imported ({error}). "
            f"Install it with: pip install {BACKENDS[backend]}"
        ) from error
    finally:
        if collects:
            gc.enable()
    return package


def is_gpu_device(thing: object) -> bool:
    """Return True if `thing` is a `wgpu.GPUDevice`, of either package."""
    return hasattr(thing, "create_command_encoder") and hasattr(thing, "queue")


def package_of(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> str:
    """Return what made an adapter or device: the package ``"wgpu"`` or ``"wgpudawn"``, or the module of browsers."""
    module = type(thing).__module__
    return module if module == _NAVIGATOR else module.partition(".")[0]


def module_of(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> ModuleType:
    """Import and return the package that made an adapter or device."""
    return importlib.import_module(package_of(thing))


def implementation(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> str:
    """Return the name and version of the WebGPU implementation, such as ``"wgpu-native 29.0.1.1"``."""
    package = package_of(thing)
    if package == _NAVIGATOR:
        return str(module_of(thing).implementation())
    if package == "wgpudawn":
        return f"Dawn (wgpudawn {module_of(thing).__version__})"
    if package != "wgpu":
        return package
    from wgpu.backends.wgpu_native import lib_version_info

    return "wgpu-native " + ".".join(map(str, lib_version_info))


def timestamp_period(wgpu_device: wgpu.GPUDevice) -> float:
    """Return the nanoseconds in a tick of a timestamp: 1 in WebGPU, the GPU's own period in wgpu-native."""
    if package_of(wgpu_device) != "wgpu":
        return 1.0
    from wgpu.backends.wgpu_native import lib

    return float(lib.wgpuQueueGetTimestampPeriod(wgpu_device.queue._internal))


def error_type(wgpu_device: wgpu.GPUDevice) -> type[Exception]:
    """Return the class of the errors that WebGPU reports, for example about a shader that does not compile."""
    return module_of(wgpu_device).GPUError  # type: ignore[no-any-return]


# ----- C types
#
# Parse the C types of wgpu-native all at once, since cffi takes as long for one as for all.
#
# cffi parses each type that the package wgpu names, such as ``WGPUBufferDescriptor *``, at its first use, and each time
# reads the names of all types again: 11 ms. A first scan needs more than forty types.


# The types that opening a device, its probe and a first scan name, spelled as the package wgpu and `native_queue`
# spell them.
_TYPES = (
    "WGPUStringView *",
    "WGPUInstanceDescriptor *",
    "WGPUAdapter[]",
    "WGPUAdapterInfo *",
    "WGPUChainedStruct *",
    "WGPUChainedStruct * ",
    "WGPUNativeLimits *",
    "WGPULimits *",
    "char []",
    "WGPUQueueDescriptor *",
    "WGPUDeviceExtras *",
    "WGPUDeviceLostCallbackInfo *",
    "WGPUUncapturedErrorCallbackInfo *",
    "WGPUFeatureName[]",
    "WGPUDeviceDescriptor *",
    "WGPURequestDeviceCallbackInfo *",
    "WGPUBufferDescriptor *",
    "uint8_t []",
    "uintptr_t",
    "uint8_t *",
    "WGPUBufferBindingLayout *",
    "WGPUBindGroupLayoutEntry *",
    "WGPUBindGroupLayoutEntry[]",
    "WGPUBindGroupLayoutDescriptor *",
    "WGPUShaderSourceWGSL *",
    "WGPUShaderModuleDescriptor *",
    "WGPUBindGroupLayout[]",
    "WGPUPipelineLayoutDescriptor *",
    "WGPUComputeState *",
    "WGPUComputePipelineDescriptor *",
    "WGPUBindGroupEntry *",
    "WGPUBindGroupEntry[]",
    "WGPUBindGroupDescriptor *",
    "uint32_t[]",
    "uint32_t *",
    "WGPUCommandBuffer[1]",
    "WGPUSubmissionIndex *",
    "WGPUBufferMapCallbackInfo *",
    "WGPUPassTimestampWrites *",
    "WGPUComputePassDescriptor *",
    "WGPUComputePassDescriptor",
    # The names of some types in wgpu 0.31.
    "WGPUChainedStructOut *",
    "WGPUProgrammableStageDescriptor *",
    "WGPUComputePassTimestampWrites *",
    "WGPUQuerySetDescriptor *",
    "WGPUCommandEncoderDescriptor *",
    "WGPUCommandBufferDescriptor *",
    "WGPUCommandBuffer[]",
    "uint32_t []",
    "intptr_t",
    "void *",
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)


def parse_ahead() -> None:
    """Parse the types that a first scan needs. In a cffi with other internals they are parsed one by one later."""
    with suppress(Exception):
        from wgpu.backends.wgpu_native import ffi

        _parse(ffi)


def _parse(ffi: Any) -> None:
    with ffi._lock:
        parser = ffi._parser
        # One type that is not there would spoil the others.
        declared = parser._declarations
        types = [
            type_name
            for type_name in _TYPES
            if all(f"typedef {name}" in declared for name in re.findall(r"WGPU\w+", type_name))
        ]
        tree, _, _ = parser._parse(f"void __dummy({', '.join(types)});")
        parameters = tree.ext[-1].type.args.params
        for name, parameter in zip(types, parameters, strict=True):
            c_type, _ = parser._get_type_and_quals(parameter.type)
            is_function = c_type.is_raw_function
            c_type = c_type.as_function_pointer() if is_function else c_type
            ffi._parsed_types[name] = ffi._get_cached_btype(c_type), is_function
