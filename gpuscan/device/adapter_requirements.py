"""The features and limits that gpuscan asks an adapter for when it opens a device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscan.device.backends import package_of
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.problem.arguments import as_integer

if TYPE_CHECKING:
    import wgpu

# Dawn's feature without which threads must not share a device.
THREADS_FEATURE = "implicit-device-synchronization"

# The features that computations in float64 need: they take floats apart as 64-bit integers.
FLOAT64_FEATURES = frozenset({"shader-f64", "shader-int64"})

# What WebGPU promises to every shader, and gpuscan's shaders need: https://www.w3.org/TR/webgpu/#limits. Some listed
# adapters have less.
LEAST_LIMITS = {
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-storage-buffers-per-shader-stage": 8,
}

_WANTED_FEATURES = (
    "subgroup",  # wgpu-native's name
    "subgroups",  # WebGPU's name
    "timestamp-query",
    "timestamp-query-inside-encoders",
    "shader-int64",
    "shader-int64-atomic-all-ops",
    "shader-f16",
    "shader-f64",
    "mappable-primary-buffers",
    THREADS_FEATURE,
)

_WANTED_LIMITS = (
    "max-bind-groups",
    "max-bindings-per-bind-group",
    "max-buffer-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-uniform-buffer-binding-size",
    "min-storage-buffer-offset-alignment",
    "min-uniform-buffer-offset-alignment",
)


def choose_features(adapter: wgpu.GPUAdapter) -> list[str]:
    """Return the features that gpuscan uses and the adapter has."""
    wanted = [name for name in _WANTED_FEATURES if name in adapter.features]
    if adapter.info["adapter_type"] not in ("IntegratedGPU", "CPU") and "mappable-primary-buffers" in wanted:
        # On a discrete GPU, mapped storage buffers would be on the far side of the bus.
        wanted.remove("mappable-primary-buffers")
    return wanted


def check_given_device(wgpu_device: wgpu.GPUDevice) -> None:
    """Check that gpuscan can run on a device that a caller made, with the features and limits that it has.

    Raises:
        ValueError: a limit is too small, or Dawn's device was made for a single thread.
    """
    for name, least in LEAST_LIMITS.items():
        if int(wgpu_device.limits[name]) < least:
            raise ValueError(
                f"a wgpu device with {name} = {wgpu_device.limits[name]} was passed, but gpuscan's shaders need "
                f"{least}. Ask for it where the device is made: request_device_sync(required_limits=...)"
            )
    if package_of(wgpu_device) == "wgpudawn" and THREADS_FEATURE not in wgpu_device.features:
        raise ValueError(
            f"a device of Dawn was passed that was made without the feature {THREADS_FEATURE!r}, so threads must not "
            "share it, and gpuscan uses several. Ask for the feature where the device is made: "
            f"request_device_sync(required_features=[{THREADS_FEATURE!r}])"
        )


def choose_limits(adapter: wgpu.GPUAdapter) -> dict[str, int]:
    """Return the adapter's best value of each limit that matters to a scan."""
    return {name: int(adapter.limits[name]) for name in _WANTED_LIMITS if name in adapter.limits}


def check_limits(adapter: wgpu.GPUAdapter, required: Mapping[str, int]) -> dict[str, int]:
    """Return the limits that a user asks for, by wgpu's names, once the adapter is known to have them.

    WebGPU's own spelling, such as ``maxBufferSize``, is accepted as well.

    Raises:
        TypeError: `required` is not a mapping of names to integers.
        ValueError: WebGPU has no limit of a name, or the adapter cannot meet a limit.
    """
    if not isinstance(required, Mapping):
        raise TypeError(
            f"required_limits of type {type(required).__name__} was passed; pass a dict of WebGPU limits and integers"
        )
    limits = {}
    for given, limit in required.items():
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", str(given)).lower()
        if name not in adapter.limits:
            raise ValueError(
                f"required_limits has the limit {given!r}, which WebGPU does not have; use one of "
                f"{', '.join(sorted(adapter.limits))}"
            )
        best = int(adapter.limits[name])
        smaller_is_better = name.startswith("min-")
        if (number := as_integer(limit)) is None:
            raise TypeError(
                f"required_limits[{given!r}] = {limit!r} was passed, but a limit is an integer; pass one of {best} or "
                f"{'more' if smaller_is_better else 'less'}"
            )
        if number < 0 or (number < best if smaller_is_better else number > best):
            raise ValueError(
                f"required_limits asks for {name} = {limit}, but {adapter.summary} has {best}. Ask for "
                f"{'more' if smaller_is_better or number < 0 else 'less'}"
            )
        limits[name] = number
    return limits


def limits_within(limits: Mapping[str, int]) -> dict[str, int]:
    """Return the limits, with a binding limit that no buffer limit contradicts.

    Arrays are bound up to the end of their last 16 bytes, so the binding limit is a multiple of 16.
    """
    binding = "max-storage-buffer-binding-size"
    return {**limits, binding: min(limits[binding], limits["max-buffer-size"]) // ALIGNMENT * ALIGNMENT}
