"""Find the device that the arrays of a call are on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuscan.api.array import Array
from gpuscan.api.device import Device, resolve_device
from gpuscan.device.adapters import adapter_number


def home_of(arrays: Iterable[Any], device: Device | str | int | None) -> Device | None:
    """Return the device that a call runs on: the one that its arrays are on, else the one asked for; None for NumPy.

    Raises:
        ValueError: the arrays are on several devices, or on another one than `device`.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    homes: dict[int, Any] = {id(array.device): array.device for array in arrays if isinstance(array, Array)}
    if not homes:
        return resolve_device(device)
    home, *others = homes.values()
    asked = home if device is None or _names(device, home) else resolve_device(device)
    if others or asked is not home:
        elsewhere = [other for other in (*others, asked) if other is not home]
        names = ", ".join("NumPy" if other is None else repr(other) for other in elsewhere)
        raise ValueError(
            f"an array on {home!r} was passed together with {names}, but a scan runs where its arrays are. "
            "Bring them together with device.asarray, or to NumPy with .numpy()"
        )
    assert isinstance(home, Device)
    return home


def _names(device: Any, home: Device) -> bool:
    """Return True if `device` is a part of the name of `home`: another adapter may have it as well."""
    if not isinstance(device, str) or adapter_number(device) is not None:
        return False
    return device.casefold() in home.capabilities.summary.casefold()
