"""The WebGPU implementation beneath, and all that differs between the two there are.

- ``wgpu``: wgpu-native by the package wgpu. Its compiler is naga, which Firefox has too.
- ``dawn``: Dawn by the package wgpudawn, whose Python interface is the same. Its compiler is Tint, that of Chrome.

``GPUSCAN_BACKEND`` chooses one. Where they differ:

- subgroups: wgpu-native's feature is ``subgroup`` and naga refuses the line ``enable subgroups;``; Dawn's feature is
  ``subgroups``, as WebGPU has it, and the line is needed (`Capabilities.enable_subgroups`).
- 64-bit integers and floats: features of wgpu-native's; Dawn has none.
- timestamps: wgpu-native gives the GPU's ticks, Dawn nanoseconds.
- barriers in control flow that is not uniform: naga lets them pass, Tint refuses the shader.
- OpenGL: wgpu-native only.
- adapters: one of Dawn's is spent by the first device that is made of it (`gpuscan.device.adapters.fresh`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuscan.errors import AdapterNotFoundError

if TYPE_CHECKING:
    import wgpu

BACKEND_VARIABLE = "GPUSCAN_BACKEND"
BACKENDS: Mapping[str, str] = {"wgpu": "wgpu", "dawn": "wgpudawn"}


def webgpu() -> Any:
    """The module that adapters, flags and errors come from; imported at the first call.

    Raises:
        AdapterNotFoundError: $GPUSCAN_BACKEND names no implementation, or one that is not installed.
    """
    return _load(os.environ.get(BACKEND_VARIABLE, "").strip() or "wgpu")


@cache
def _load(backend: str) -> ModuleType:
    if backend not in BACKENDS:
        raise AdapterNotFoundError(
            f"the WebGPU implementation {backend!r} was asked for (from {BACKEND_VARIABLE}); "
            f"there are {', '.join(BACKENDS)}. Set the variable to one of these, or unset it"
        )
    try:
        return importlib.import_module(BACKENDS[backend])
    except ImportError as error:
        raise AdapterNotFoundError(
            f"the WebGPU implementation {backend!r} was asked for (from {BACKEND_VARIABLE}), but the package "
            f"{BACKENDS[backend]} cannot be imported ({error}). Install it with: pip install {BACKENDS[backend]}"
        ) from error


def package_of(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> str:
    """The package that an adapter or device is of, whichever `webgpu` gives: ``"wgpu"`` or ``"wgpudawn"``."""
    return type(thing).__module__.partition(".")[0]


def module_of(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> Any:
    """The same, imported."""
    return importlib.import_module(package_of(thing))


def implementation(thing: wgpu.GPUDevice | wgpu.GPUAdapter) -> str:
    """Who carries WebGPU out, with version, such as ``"wgpu-native 29.0.1.1"``."""
    package = package_of(thing)
    if package == "wgpudawn":
        return f"Dawn (wgpudawn {module_of(thing).__version__})"
    if package != "wgpu":
        return package
    from wgpu.backends.wgpu_native import lib_version_info

    return "wgpu-native " + ".".join(map(str, lib_version_info))


def timestamp_period(wgpu_device: wgpu.GPUDevice) -> float:
    """Nanoseconds a tick of a timestamp: 1 in WebGPU, while wgpu-native hands out the GPU's own ticks."""
    if package_of(wgpu_device) != "wgpu":
        return 1.0
    from wgpu.backends.wgpu_native import lib

    return float(lib.wgpuQueueGetTimestampPeriod(wgpu_device.queue._internal))


def error_type(wgpu_device: wgpu.GPUDevice) -> type[Exception]:
    """What the device raises where WebGPU finds something wrong (a shader that does not compile, for one)."""
    return module_of(wgpu_device).GPUError  # type: ignore[no-any-return]
