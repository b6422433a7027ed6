"""Arrays with a length that only the device knows, until the caller asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.transfer import SMALL_READ_BYTES
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.sizes import concrete


class UnknownLengthArray(Array):
    """An array on a device with a length that only the device knows until the caller asks for it.

    Args:
        memory: memory that begins with the array.
        dtype: the dtype of its numbers.
        trailing: the shape of an entry.
        count: the length, as one 32-bit word on the device. `Plan.record` takes it as ``length=``.
        length: the length, if it is known already.
    """

    def __init__(
        self, memory: Array, dtype: AnyDType, trailing: tuple[int, ...], count: Array, length: int | None = None
    ) -> None:
        self.device, self._context = memory.device, memory._context
        self.buffer, self.offset, self._owner = memory.buffer, memory.offset, memory._owner
        self._dtype = dtype
        self.count = count
        self._trailing = trailing
        if length is not None:
            self._shape = (length, *trailing)

    @property
    def _knows_length(self) -> bool:  # type: ignore[override]
        """True if the length was asked for, so that it is known here as well."""
        return "_shape" in vars(self)

    @property
    def _reserved_bytes(self) -> int:
        """The number of bytes from the start of the array to the end of its memory."""
        assert self._owner is not None
        return self._owner.nbytes - self.offset

    def numpy(self) -> AnyArray:
        """Return a NumPy copy, as `Array.numpy` does. If the memory is short, wait once for length and elements."""
        if self._knows_length or not 0 < self._reserved_bytes <= SMALL_READ_BYTES:
            return super().numpy()
        (array,) = read_arrays([self])
        return array

    def _end_sizes(self) -> None:
        """Replace sizes by the numbers of this call, which is recorded now."""
        self._trailing = concrete(self._trailing)
        self.count._end_sizes()
        super()._end_sizes()

    @cached_property
    def _shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape as NumPy defines it. The first use waits for the GPU."""
        return (int(self.count.numpy()[0]), *self._trailing)

    def _with_known_shape(self) -> Array:
        """Return the picked entries that there are by now. Unread reports stay unread."""
        if "_shape" in vars(self):
            return self
        entry = prod(self._trailing) * int(self.dtype.itemsize)
        length = int(self.count._read()[0])
        # A run that timed out leaves any number.
        most = (self.buffer.size - self.offset) // entry if entry else length
        return Array(
            self.device, self.buffer, (min(length, most), *self._trailing), self.dtype, self.offset, self._owner
        )

    @cached_property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes of the picked entries. The first use waits for the GPU."""
        return prod(self.shape) * int(self.dtype.itemsize)


def read_arrays(arrays: Sequence[Any]) -> list[AnyArray]:
    """Return NumPy copies of arrays of one device, which are read in one wait unless they are long."""
    # For each array, the ranges to read: the buffer, the first byte and the number of bytes. A view or a long array has
    # none, and is read by itself.
    ranges: list[tuple[Any, ...]] = []
    for array in arrays:
        if not array._knows_length:
            count = array.count
            ranges.append(((count.buffer, count.offset, 4), (array.buffer, array.offset, array._reserved_bytes)))
        elif array._strides is None and array.offset % 4 == 0 and 0 < array.nbytes <= TRANSFERS.staging_bytes:
            ranges.append(((array.buffer, array.offset, array.nbytes),))
        else:
            ranges.append(())
    contents = iter(arrays[0]._context.read_and_check(*chain.from_iterable(ranges)))
    copies: list[AnyArray] = []
    for array, parts in zip(arrays, ranges, strict=True):
        if not parts:
            copies.append(array.numpy())
        elif array._knows_length:
            copies.append(next(contents).view(array._dtype).reshape(array._shape))
        else:
            shape = array._shape = (int(next(contents).view(np.uint32)[0]), *array._trailing)
            # Copy the entries, so that the memory for the longest possible result can be freed.
            entries = next(contents)[: prod(shape) * array._dtype.itemsize].copy()
            copies.append(entries.view(array._dtype).reshape(shape))
    return copies


def read_lengths(*arrays: Array) -> None:
    """Wait once for the lengths of arrays of one device that only the device knows."""
    unread = [array for array in arrays if isinstance(array, UnknownLengthArray) and not array._knows_length]
    if unread:
        ranges = [(array.count.buffer, array.count.offset, array.count.nbytes) for array in unread]
        for array, content in zip(unread, unread[0]._context.read_and_check(*ranges), strict=True):
            array._shape = (int(content.view(np.uint32)[0]), *array._trailing)
