"""The features and limits that gpuscan asks an adapter for when it opens a device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.problem.arguments import as_integer

if TYPE_CHECKING:
    import wgpu

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
    "implicit-device-synchronization",  # Dawn's: without it, threads must not share a device
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


def wanted_features(adapter: wgpu.GPUAdapter) -> list[str]:
    """Return the features that gpuscan uses and the adapter has."""
    wanted = [name for name in _WANTED_FEATURES if name in adapter.features]
    if adapter.info["adapter_type"] not in ("IntegratedGPU", "CPU") and "mappable-primary-buffers" in wanted:
        # On a discrete GPU, mapped storage buffers would be on the far side of the bus.
        wanted.remove("mappable-primary-buffers")
    return wanted


def wanted_limits(adapter: wgpu.GPUAdapter) -> dict[str, int]:
    """Return the adapter's best value of each limit that matters to a scan."""
    return {name: int(adapter.limits[name]) for name in _WANTED_LIMITS if name in adapter.limits}


def checked_limits(adapter: wgpu.GPUAdapter, required: Mapping[str, int]) -> dict[str, int]:
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
