"""Read and write the elements of a NumPy array in the order of a scan."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from gpuscan.device.native_queue import Bytes
from gpuscan.device.transfer import copy
from gpuscan.engine.mapped_files import shared_map


class StridedRows:
    """The elements of an array of any memory order: row after row, each along the scanned axis.

    Stretches are read and written without a copy of the whole. The pages of a memory-mapped file are released after
    each stretch, so that a file may be larger than memory.

    Args:
        array: the array (*shape, *element shape).
        shape: its axes without those of the element.
        axis: the scanned axis.
        dtype: the dtype in which stretches are read and written.
    """

    def __init__(self, array: np.ndarray[Any, Any], shape: tuple[int, ...], axis: int, dtype: np.dtype[Any]) -> None:
        self._rows = np.moveaxis(array, axis, len(shape) - 1) if axis != len(shape) - 1 else array
        self._element = array.shape[len(shape) :]
        self._dtype = dtype
        self._others = self._rows.shape[: len(shape) - 1]
        self._row_length = shape[axis]
        self._flat: np.ndarray[Any, Any] | None = None
        if len(shape) == 1:
            # One row may have any stride.
            self._flat = self._rows
        elif self._rows.flags.c_contiguous:
            self._flat = self._rows.reshape(-1, *self._element)
        self._map = shared_map(array)
        self._element_bytes = prod(self._element) * dtype.itemsize

    def contiguous(self, start: int, count: int) -> Bytes | None:
        """Return the bytes of a stretch as a view, or None if they are not neighbours in memory."""
        flat = self._flat
        if flat is None or not flat.flags.c_contiguous or self._map is not None or flat.dtype != self._dtype:
            return None
        size = self._element_bytes
        stretch: Bytes = flat.reshape(-1).view(np.uint8)[start * size : (start + count) * size]
        return stretch

    def read(self, start: int, into: Bytes) -> None:
        """Copy the elements from `start` on that fill `into`."""
        target = into.view(self._dtype).reshape(-1, *self._element)
        if self._flat is not None:
            copy(target, self._flat[start : start + len(target)])
        else:
            for index, stretch, place in self._stretches(start, len(target)):
                source = self._rows[index]
                part = source[stretch] if stretch is not None else source.reshape(-1, *self._element)
                copy(target[place], part)
        self._release()

    def write(self, start: int, data: Bytes) -> None:
        """Copy `data` to the elements from `start` on."""
        source = data.view(self._dtype).reshape(-1, *self._element)
        if self._flat is not None:
            copy(self._flat[start : start + len(source)], source)
        else:
            for index, stretch, place in self._stretches(start, len(source)):
                if stretch is None:
                    self._rows[index] = source[place].reshape(-1, self._row_length, *self._element)
                else:
                    self._rows[index][stretch] = source[place]
        self._release()

    def _stretches(self, start: int, count: int) -> Iterator[tuple[Any, slice | None, slice]]:
        """Yield parts of rows: the rows' index, the part of a row (None for whole rows), and their place from 0 on."""
        length, at = self._row_length, start
        index: Any
        while at < start + count:
            row, first = divmod(at, length)
            whole = (start + count - at) // length
            if first == 0 and whole:
                index = np.unravel_index(np.arange(row, row + whole), self._others)
                taken, stretch = whole * length, None
            else:
                index = np.unravel_index(row, self._others)
                taken = min(length - first, start + count - at)
                stretch = slice(first, first + taken)
            yield index, stretch, slice(at - start, at - start + taken)
            at += taken

    def _release(self) -> None:
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
