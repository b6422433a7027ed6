"""Arrays that an executor keeps on the device for the next scan of a kind: initial values and segment bits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from gpuscan.device.device_array import DeviceArray

# An executor keeps arrays of this many bytes, or a single one; the least recently used go first. That is little beside
# the arrays of a scan whose initial values or segment bits take a while to upload.
_MAX_HELD_BYTES = 32 << 20


class HeldArrays:
    """Arrays by the kind of scan that reads them. Call with the device's lock held.

    Args:
        forget: called when arrays go, for those who have them bound.

    Attributes:
        nbytes: the bytes of their buffers.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self.nbytes = 0
        self._forget = forget
        self._arrays: OrderedDict[tuple[object, str], DeviceArray] = OrderedDict()

    def __len__(self) -> int:
        return len(self._arrays)

    def get(self, kind: object | None, name: str, make: Callable[[], DeviceArray]) -> DeviceArray:
        """Return an array of a kind of scan, from an earlier call where there was one.

        Args:
            kind: `Problem.kind`; None if nothing is kept.
            name: which of the kind's arrays.
            make: makes the array.
        """
        if kind is None:
            return make()
        key = (kind, name)
        found = self._arrays.get(key)
        if found is not None:
            self._arrays.move_to_end(key)
            return found
        found = self._arrays[key] = make()
        self.nbytes += found.buffer.size
        while self.nbytes > _MAX_HELD_BYTES and len(self._arrays) > 1:
            _, oldest = self._arrays.popitem(last=False)
            self.nbytes -= oldest.buffer.size
            self._forget()
        return found

    def clear(self) -> None:
        """Let go of all arrays."""
        self._arrays.clear()
        self.nbytes = 0
