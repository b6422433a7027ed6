"""Find the device that the arrays of a call are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from gpuscan.api.array import Array
from gpuscan.api.device import Device, resolve_device
from gpuscan.api.device_group import DeviceGroup, first_device_of
from gpuscan.api.numpy_calls import takes_numpy_on
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.array_types import AnyDType
from gpuscan.device.adapters import adapter_number, names
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import parts_of

F = TypeVar("F", bound=Callable[..., object])

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


def find_call_device(arrays: Iterable[object], device: Device | str | int | None) -> Device | None:
    """Return the device that a call runs on: the one that its arrays are on, else the one asked for; None for NumPy.

    Raises:
        ValueError: the arrays are on several devices, or on another one than `device`.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    array_devices = {id(array.device): array.device for array in arrays if isinstance(array, Array)}
    if not array_devices:
        return resolve_device(device)
    call_device, *others = array_devices.values()
    requested = call_device if device is None or _names(device, call_device) else resolve_device(device)
    if others or requested is not call_device:
        elsewhere = [other for other in (*others, requested) if other is not call_device]
        names = ", ".join("NumPy" if other is None else repr(other) for other in elsewhere)
        raise ValueError(
            f"an array on {call_device!r} was passed together with {names}, but a call runs where its arrays are. "
            "Bring them together with device.asarray, or to NumPy with .numpy()"
        )
    assert isinstance(call_device, Device)
    return call_device


def _names(device: object, call_device: OpenedDevice) -> bool:
    """Return True if `device` is a part of the name of `call_device`. Other adapters may have it, too."""
    if not isinstance(device, str) or adapter_number(device) is not None:
        return False
    return names(device, call_device.capabilities.summary)


def resolve_devices(given: Iterable[Device | str | int | None], argument: str = "device") -> list[Device]:
    """Return the devices that a list names. Messages name the argument by which it was passed.

    Raises:
        ValueError: the list is empty, names a device twice, or names NumPy.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    devices: list[Device] = []
    for name in given:
        device = None if name is None else resolve_device(name)
        if device is None:
            raise ValueError(
                f"{argument}={given!r} was passed, but a list names GPUs, and {name!r} is none. Pass devices, names or "
                "numbers of gpuscan.devices()"
            )
        if any(device is other for other in devices):
            raise ValueError(
                f"{argument}={given!r} was passed, which names {device!r} twice. Pass each device once; equal cards "
                "have numbers of their own in gpuscan.devices()"
            )
        devices.append(device)
    if not devices:
        raise ValueError("an empty list of devices was passed, which names no device; pass at least one")
    return devices


class WholeArray(OnDevice):
    """The shape and the dtype of an array on several devices, by which its calls are checked. It has no elements."""

    def __init__(self, shape: tuple[int, ...], dtype: AnyDType) -> None:
        self.shape, self.dtype = shape, dtype


class Distributed:
    """An array on several devices. `gpuscan.scan` and `gpuscan.reduce` call its methods for bundles of such arrays.

    Attributes:
        shape, axis, shards, devices: as in `gpuscan.ShardedArray`.
        whole: the array without its elements.
    """

    shape: tuple[int, ...]
    axis: int
    shards: tuple[Array, ...]
    devices: tuple[OpenedDevice, ...]
    whole: WholeArray
    # What other functions refuse it by, instead of copying it to NumPy.
    is_sharded = True


def find_distributed(x: object) -> Any:
    """Return the first `gpuscan.ShardedArray` of a bundle; None if there is none. Its module needs this one."""
    if isinstance(x, Distributed):
        return x
    if isinstance(x, (tuple, dict, list)):
        with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
            in_parts = map(find_distributed, parts_of(x) or ())
            return next((array for array in in_parts if array is not None), None)
    return None


def find_device_or_group(arrays: Iterable[object], device: Devices) -> Device | DeviceGroup | None:
    """Return the devices that a call runs on: a device group for a list of several, else as `find_call_device`.

    Raises:
        ValueError: an array is on a device, and a list of several was passed; or as those functions.
        AdapterNotFoundError, TypeError: as `resolve_device` raises them.
    """
    if not isinstance(device, (list, tuple)):
        return find_call_device(arrays, device)
    devices = resolve_devices(device)
    if len(devices) == 1:
        return find_call_device(arrays, devices[0])
    for array in arrays:
        if isinstance(array, Array):
            raise ValueError(
                f"an array on {array.device!r} was passed with a list of {len(devices)} devices, but it is on one "
                "device. Leave device= out to scan it there, or pass a NumPy array or a gpuscan.ShardedArray"
            )
    return DeviceGroup(devices)


def choose_device_for(problem: Problem, device: Device | DeviceGroup | None) -> Device | DeviceGroup | None:
    """Return the device that a problem runs on: of a group the first one if the bits must be the same everywhere."""
    return _first_device(device) if problem.everywhere else device


def find_first_device(arrays: Iterable[object], device: Devices) -> Device | None:
    """Return the device that a call runs on, or None for NumPy. Of a list of devices it is the first one.

    Raises:
        ValueError, AdapterNotFoundError, TypeError: as `find_device_or_group` raises them.
    """
    return _first_device(find_device_or_group(arrays, device))


def _first_device(device: Device | DeviceGroup | None) -> Device | None:
    first = first_device_of(device)
    assert first is None or isinstance(first, Device)
    return first


def takes_numpy(*data: str, **options: Any) -> Callable[[F], F]:
    """Let a launchable function take small arrays of NumPy as `takes_numpy_on` does, on the device that is meant."""
    return takes_numpy_on(resolve_device, *data, **options)
