"""Several devices that share the work of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gpuscan.api.opened_device import OpenedDevice
from gpuscan.engine.executor_group import ExecutorGroup, relative_speeds

T = TypeVar("T")


class DeviceGroup:
    """The devices of a list that share the work of a call, in the order of the list.

    Args:
        devices: the devices, each once.
    """

    def __init__(self, devices: Iterable[OpenedDevice]) -> None:
        self.devices = tuple(devices)
        executors = [device._executor for device in self.devices]
        self.executor_group = ExecutorGroup(executors, relative_speeds(executors))

    def share(self, length: int, call: Callable[[int, int, OpenedDevice], T]) -> list[T]:
        """Call a function with each device's share of an axis (low, high, device), in threads, and return the results.

        Raises:
            Exception: the first error of a call, after all threads have ended.
        """
        return self.executor_group.share(length, lambda device, low, high: call(low, high, self.devices[device]))

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.devices))}]"


def first_device_of(device: OpenedDevice | DeviceGroup | None) -> OpenedDevice | None:
    """Return the device; for a group the first one, which combines elements at any indices, such as groups."""
    return device.devices[0] if isinstance(device, DeviceGroup) else device
