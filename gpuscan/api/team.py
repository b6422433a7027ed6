"""Several devices that share the work of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gpuscan.api.opened_device import OpenedDevice
from gpuscan.engine.device_speeds import relative_speeds
from gpuscan.engine.device_team import DeviceTeam

T = TypeVar("T")


class Team:
    """The devices of a list that share the work of a call, in the order of the list.

    Args:
        devices: the devices, each once.
    """

    def __init__(self, devices: Iterable[OpenedDevice]) -> None:
        self.devices = tuple(devices)
        executors = [device._executor for device in self.devices]
        self.team = DeviceTeam(executors, relative_speeds(executors))

    def share(self, length: int, call: Callable[[int, int, OpenedDevice], T]) -> list[T]:
        """Call a function with each device's share of an axis (low, high, device), in threads, and return the results.

        Raises:
            Exception: the first error of a call, after all threads have ended.
        """
        return self.team.share(length, lambda device, low, high: call(low, high, self.devices[device]))

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.devices))}]"


def one_of(home: OpenedDevice | Team | None) -> OpenedDevice | None:
    """Return the device; for a team the first one, which combines elements at any indices, such as groups."""
    return home.devices[0] if isinstance(home, Team) else home
