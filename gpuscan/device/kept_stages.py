"""Keep stages that are no part of a scan plan, such as copies, so that the next call of a kind only submits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuscan.device.held_runs import Dispatch
from gpuscan.recent_values import RecentValues

if TYPE_CHECKING:
    from gpuscan.device.profiles import Profiles
    from gpuscan.device.queue import Queue

# How many calls' stages a device keeps.
_MAX_KEPT = 256


class _Stages(NamedTuple):
    """The stages of one call.

    Attributes:
        dispatches: the stages.
        nbytes: the bytes that they read.
        alive: what has to stay alive so that the key is its own: a function, and buffers.
    """

    dispatches: Sequence[Dispatch]
    nbytes: int
    alive: tuple[Any, ...]


class KeptStages:
    """The stages of the last calls, by function and arrays. The caller must hold the device's lock.

    Args:
        queue: the device's queue.
        profiles: the device's profiles. While one is open, nothing is submitted again, since stages have to be timed.
    """

    def __init__(self, queue: Queue, profiles: Profiles) -> None:
        self._queue, self._profiles = queue, profiles
        self._stages: RecentValues[tuple[Any, ...], _Stages] = RecentValues(_MAX_KEPT)

    def run_again(self, key: tuple[Any, ...]) -> bool:
        """Submit the stages that were kept under the key; return False if there are none, or a profile is open."""
        kept = self._stages.find(key)
        if kept is None or self._profiles.active:
            return False
        self._queue.run(kept.dispatches, None, kept.nbytes)
        return True

    def keep(self, key: tuple[Any, ...], dispatches: Sequence[Dispatch], nbytes: int, alive: tuple[Any, ...]) -> None:
        """Keep the stages of a call.

        Args:
            key: identifies the call. It has the ids of a function or of buffers of the pool.
            dispatches: the stages.
            nbytes: the bytes that they read.
            alive: the objects that the key has the ids of.
        """
        self._stages.keep(key, _Stages(dispatches, nbytes, alive))

    def clear(self) -> None:
        """Drop all stages."""
        self._stages.clear()
