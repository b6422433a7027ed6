"""Find the device that the arrays of a call are on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

from gpuscan.api.array import Array
from gpuscan.api.device import Device, resolve_device
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.team import Team, one_of
from gpuscan.device.adapters import adapter_number, names
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import parts_of

# The type of `device=` in functions that may run on several devices.
Devices: TypeAlias = (
    Device
    | str
    | int
    | list[Device]
    | list[str]
    | list[int]
    | list[Device | str | int]
    | tuple[Device | str | int, ...]
    | None
)


def home_of(arrays: Iterable[object], device: Device | str | int | None) -> Device | None:
    """Return the device that a call runs on: the one that its arrays are on, else the one asked for; None for NumPy.

    Raises:
        ValueError: the arrays are on several devices, or on another one than `device`.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    homes = {id(array.device): array.device for array in arrays if isinstance(array, Array)}
    if not homes:
        return resolve_device(device)
    home, *others = homes.values()
    asked = home if device is None or _names(device, home) else resolve_device(device)
    if others or asked is not home:
        elsewhere = [other for other in (*others, asked) if other is not home]
        names = ", ".join("NumPy" if other is None else repr(other) for other in elsewhere)
        raise ValueError(
            f"an array on {home!r} was passed together with {names}, but a call runs where its arrays are. "
            "Bring them together with device.asarray, or to NumPy with .numpy()"
        )
    assert isinstance(home, Device)
    return home


def _names(device: object, home: OpenedDevice) -> bool:
    """Return True if `device` is a part of the name of `home`. Other adapters may have it in their names as well."""
    if not isinstance(device, str) or adapter_number(device) is not None:
        return False
    return names(device, home.capabilities.summary)


def resolve_devices(given: Iterable[Device | str | int | None]) -> list[Device]:
    """Return the devices that a list names.

    Raises:
        ValueError: the list is empty, names a device twice, or names NumPy.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    devices: list[Device] = []
    for each in given:
        device = None if each is None else resolve_device(each)
        if device is None:
            raise ValueError(
                f"device={given!r} was passed, but a list names GPUs, and {each!r} is none. Pass devices, names or "
                "numbers of gpuscan.devices()"
            )
        if any(device is other for other in devices):
            raise ValueError(
                f"device={given!r} was passed, which names {device!r} twice. Pass each device once; equal cards have "
                "numbers of their own in gpuscan.devices()"
            )
        devices.append(device)
    if not devices:
        raise ValueError("device=[] was passed, which names no device; pass at least one, or leave device= out")
    return devices


class Distributed:
    """An array on several devices. `gpuscan.scan` and `gpuscan.reduce` call its methods for bundles of such arrays."""

    # What other functions refuse it by, instead of copying it to NumPy.
    is_sharded = True


def find_distributed(x: object) -> Any:
    """Return the first `gpuscan.ShardedArray` of a bundle; None if there is none. Its module needs this one."""
    if isinstance(x, Distributed):
        return x
    if isinstance(x, (tuple, dict, list)):
        with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
            in_parts = map(find_distributed, parts_of(x) or ())
            return next((each for each in in_parts if each is not None), None)
    return None


def team_or_home(arrays: Iterable[object], device: Devices) -> Device | Team | None:
    """Return the devices that a call runs on: a team for a list of several, else what `home_of` returns.

    Raises:
        ValueError: an array is on a device, and a list of several was passed; or as `resolve_devices` and `home_of`.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    if not isinstance(device, (list, tuple)):
        return home_of(arrays, device)
    devices = resolve_devices(device)
    if len(devices) == 1:
        return home_of(arrays, devices[0])
    for array in arrays:
        if isinstance(array, Array):
            raise ValueError(
                f"an array on {array.device!r} was passed with a list of {len(devices)} devices, but it is on one "
                "device. Leave device= out to scan it there, or pass a NumPy array or a gpuscan.ShardedArray"
            )
    return Team(devices)


def home_for(problem: Problem, home: Device | Team | None) -> Device | Team | None:
    """Return the device that a problem runs on: of a team the first one if the bits must be the same everywhere."""
    return _first_of(home) if problem.everywhere else home


def first_home(arrays: Iterable[object], device: Devices) -> Device | None:
    """Return the device that a call runs on, or None for NumPy. Of a list of devices it is the first one.

    Raises:
        ValueError, AdapterNotFoundError, TypeError: as `team_or_home` raises them.
    """
    return _first_of(team_or_home(arrays, device))


def _first_of(home: Device | Team | None) -> Device | None:
    first = one_of(home)
    assert first is None or isinstance(first, Device)
    return first
