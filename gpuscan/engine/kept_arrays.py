"""Keep arrays on the device for later scans with the same cache key: initial values and segment bits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuscan.device.device_array import DeviceArray

if TYPE_CHECKING:
    from gpuscan.device.buffer_pool import Allocation
    from gpuscan.device.context import DeviceContext

# An executor keeps arrays of at most this many bytes, or a single one; the least recently used go first. This is little
# in comparison with the arrays of a scan that has many initial values or segment bits.
_MAX_KEPT_BYTES = 32 << 20


class KeptArrays:
    """Arrays by the cache key of the scans that read them. The caller must hold the device's lock.

    Args:
        context: the device. While it records a call, it learns that these arrays do not change.

    Attributes:
        nbytes: the bytes of their buffers.
    """

    def __init__(self, context: DeviceContext) -> None:
        self.nbytes = 0
        self._context = context
        self._arrays: OrderedDict[tuple[object, str], DeviceArray] = OrderedDict()

    @property
    def owners(self) -> list[Allocation]:
        """The memory of the arrays."""
        return [array._owner for array in list(self._arrays.values()) if array._owner is not None]

    def get(self, cache_key: object | None, name: str, make: Callable[[], DeviceArray]) -> DeviceArray:
        """Return an array that scans with this cache key read, from an earlier call if there was one.

        Args:
            cache_key: `Problem.cache_key`; None to keep nothing.
            name: the name of the array; each cache key has names of its own.
            make: a function that makes the array.
        """
        if cache_key is None:
            return make()
        key = (cache_key, name)
        kept = self._arrays.get(key)
        if kept is not None:
            self._arrays.move_to_end(key)
            self._context.note_constant(kept.buffer, kept._owner)
            return kept
        with self._context.pause_recording():
            kept = self._arrays[key] = make()
        self._context.note_constant(kept.buffer, kept._owner)
        self.nbytes += kept.buffer.size
        while self.nbytes > _MAX_KEPT_BYTES and len(self._arrays) > 1:
            _, oldest = self._arrays.popitem(last=False)
            self.nbytes -= oldest.buffer.size
        return kept

    def clear(self) -> None:
        """Drop all arrays."""
        self._arrays.clear()
        self.nbytes = 0
