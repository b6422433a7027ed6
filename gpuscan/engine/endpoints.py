"""Define sources and sinks, the places of a scan's elements and results: NumPy arrays, device arrays, or chunks.

The executor asks a `HostSource` to fill memory and a `HostSink` to take it; a `DeviceSource` and a `DeviceSink` give
it the part of a buffer that the shader binds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType, Bytes
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import bytes_of, copy
from gpuscan.engine.element_copy import StridedView, copy_elements, copy_view, duplicate, view_of

if TYPE_CHECKING:
    from gpuscan.elements import Field
    from gpuscan.engine.array_views import ArrayView
    from gpuscan.planning.partition import Part


class HostSource(Protocol):
    """An array in the CPU's memory that parts are read from."""

    element_bytes: int

    def fill(self, part: Part, memory: Bytes) -> None:
        """Write the part's bytes to `memory`."""


class HostSink(Protocol):
    """An array in the CPU's memory that results of parts are written to."""

    element_bytes: int

    def write_back(self, part: Part, memory: Bytes) -> None:
        """Take the part's results from `memory`."""


def first_in_memory(part: Part) -> int:
    """Return the first element of a piece in memory: what is read backwards as one row begins at its end."""
    spec = part.spec
    return spec.length - part.start - part.length if spec.backwards_as_one else part.start


# ----- NumPy arrays


class HostRows:
    """Pieces of a NumPy array, along the scan."""

    def __init__(self, array: AnyArray, shape: tuple[int, ...], axis: int, field: Field) -> None:
        self._array, self._shape, self._axis, self._dtype = array, shape, axis, field.scalar.dtype
        self.element_bytes = field.storage_bytes

    @cached_property
    def _rows(self) -> StridedRows:
        return StridedRows(self._array, self._shape, self._axis, self._dtype)

    def _contiguous(self, part: Part) -> Bytes | None:
        """Return the part's bytes as a view, or None if they have to be gathered."""
        array = self._array
        if part.length == part.spec.length and array.flags.c_contiguous and self._axis == len(self._shape) - 1:
            # The whole array in memory order, read backwards or not: the kernel sees to that.
            return bytes_of(array) if array.dtype == self._dtype else None
        return self._rows.contiguous(first_in_memory(part), part.length)

    def fill(self, part: Part, memory: Bytes) -> None:
        """Write the part's bytes to `memory`."""
        content = self._contiguous(part)
        if content is not None:
            copy(memory, content)
        else:
            self._rows.read(first_in_memory(part), memory)

    def write_back(self, part: Part, memory: Bytes) -> None:
        """Take the part's results from `memory`."""
        target = self._contiguous(part)
        if target is not None:
            copy(target, memory)
        else:
            self._rows.write(first_in_memory(part), memory)


class HostSlabs:
    """Slabs of rows and columns of a NumPy array (outer, row_length, inner)."""

    def __init__(self, array: AnyArray, shape: tuple[int, ...], axis: int, field: Field) -> None:
        self._array = array
        self._shape, self._axis = shape, axis
        self._element = array.shape[len(shape) :]
        self._dtype = field.scalar.dtype
        self.element_bytes = field.storage_bytes

    def fill(self, part: Part, memory: Bytes) -> None:
        for array_part, memory_part in self._find_parts(part, memory):
            copy(memory_part, array_part)
        release_pages(self._array)

    def write_back(self, part: Part, memory: Bytes) -> None:
        for array_part, memory_part in self._find_parts(part, memory):
            copy(array_part, memory_part)
        release_pages(self._array)

    def _find_parts(self, part: Part, memory: Bytes) -> list[tuple[AnyArray, AnyArray]]:
        """Return parts of the array, and the parts of the memory that they correspond to, in one shape each."""
        assert part.outer is not None
        assert part.columns is not None
        data = memory.view(self._dtype)
        shape, axis = self._shape, self._axis
        length, inner = shape[axis], prod(shape[axis + 1 :])
        if part.columns.stop - part.columns.start == inner and part.outer.stop - part.outer.start == prod(shape[:axis]):
            return [(self._array, data.reshape(self._array.shape))]
        columns = part.columns.stop - part.columns.start
        slab = data.reshape(-1, length, columns, *self._element)
        if self._array.flags.c_contiguous:
            matrices = self._array.reshape(-1, length, inner, *self._element)[part.outer, :, part.columns]
            # Threads share the copy along the first axis, so a lone matrix is copied by its rows.
            return [(matrices[0], slab[0])] if len(slab) == 1 else [(matrices, slab)]
        lead, tail = shape[:axis], shape[axis + 1 :]
        parts = []
        for number, outer in enumerate(range(part.outer.start, part.outer.stop)):
            matrix = self._array[np.unravel_index(outer, lead)] if lead else self._array
            for column in range(columns):
                index = np.unravel_index(part.columns.start + column, tail) if tail else ()
                parts.append((matrix[(slice(None), *index)], slab[number, :, column]))
        return parts


# ----- Device arrays


class DeviceSource:
    """An array on the device that parts are read from where they are, or copied from on the device.

    Args:
        field: the field of its elements.
        inner: rows side by side in memory.
        view: the array's view if it is one that the kernel reads where it is; there is one part then.
    """

    def __init__(self, array: DeviceArray, field: Field, inner: int, view: ArrayView | None = None) -> None:
        self.array, self.view, self._field, self._inner = array, view, field, inner

    def binding(self, part: Part) -> tuple[Binding, object]:
        """Return what the shader binds, and what has to stay alive until the run is submitted."""
        if self.view is not None:
            return self.view.binding, self.array
        if part.length == part.spec.length and not part.is_slab and self.array._is_bindable:
            return self.array._binding(), self.array
        view = part_of(self.array, part, self._field, self._inner)
        if view.is_contiguous:
            array = _as_array(view, self._field)
            if not array._is_bindable:
                array = duplicate(array)
        else:
            array = copy_view(view, (part.length * self._field.count,), self._field.scalar.dtype)
        return array._binding(), array


class DeviceSink:
    """An array on the device that parts are written to where they are, or copied to on the device.

    Args:
        field: the field of its elements.
        inner: rows side by side in memory.
        per_row: True if the array has one result for each row.
        view: the array's view if it is one that the kernel writes where it is; there is one part then.
    """

    def __init__(
        self, array: DeviceArray, field: Field, inner: int, *, per_row: bool = False, view: ArrayView | None = None
    ) -> None:
        self.array, self.view, self._field, self._inner, self._per_row = array, view, field, inner, per_row

    def binding(self, part: Part) -> tuple[Binding, DeviceArray | None]:
        """Return what the shader binds, and the temporary array that `finish` copies from, if there is one."""
        if self.view is not None:
            return self.view.binding, None
        # Some kernels clear their results first, which takes this usage. Without it, a kernel copies the results.
        direct = self.array._can_be("COPY_DST")
        if direct and part.length == part.spec.length and not part.is_slab and self.array._is_writable_in_vectors:
            return self.array._binding(), None
        view = self._view(part)
        if direct and view.is_contiguous:
            array = _as_array(view, self._field)
            if array._is_writable_in_vectors or (
                array._is_bindable and self._per_row and self._field.storage_bytes >= 4
            ):
                return array._binding(), None
            if array._is_bindable and not part.last and not part.is_slab and array.nbytes % 16 == 0:
                return array._binding(), None
        dtype = self._field.scalar.dtype
        temporary = empty(self.array._context, (view.nbytes // dtype.itemsize,), dtype)
        return temporary._binding(), temporary

    def finish(self, part: Part, temporary: DeviceArray) -> None:
        """Submit the copy of a part's results from the temporary array to their place."""
        view = self._view(part)
        if view.is_contiguous:
            copy_elements(view_of(temporary, temporary.shape, temporary.dtype.itemsize), self.array, offset=view.first)
            return
        *outer, rows, columns = view.shape
        run, matrix = view.element_bytes * columns, view.element_bytes * columns * rows
        for number in range(prod(outer)):
            numbers = matrix // temporary.dtype.itemsize
            content = temporary._view_as((numbers,), offset=number * matrix)
            first = view.first + (number * view.strides[0] if outer else 0)
            elements = view_of(content, (numbers,), temporary.dtype.itemsize)
            copy_elements(elements, self.array, offset=first, run=run, pitch=view.strides[-2])

    def _view(self, part: Part) -> StridedView:
        if not self._per_row:
            return part_of(self.array, part, self._field, self._inner)
        if not part.is_slab:
            return view_of(self.array, (part.spec.rows,), self._field.storage_bytes)
        assert part.outer is not None
        assert part.columns is not None
        size = self._field.storage_bytes
        shape = (part.outer.stop - part.outer.start, part.columns.stop - part.columns.start)
        first = (part.outer.start * self._inner + part.columns.start) * size
        return StridedView(self.array, first, shape, (self._inner * size, size), size)


def part_of(array: DeviceArray, part: Part, field: Field, inner: int) -> StridedView:
    """Return a part's elements of an array (outer, row_length, inner) as a view."""
    size = field.storage_bytes
    if not part.is_slab:
        at = first_in_memory(part)
        return StridedView(array, at * size, (part.length,), (size,), size)
    assert part.outer is not None
    assert part.columns is not None
    length = part.spec.row_length
    shape = (part.outer.stop - part.outer.start, length, part.columns.stop - part.columns.start)
    first = (part.outer.start * length * inner + part.columns.start) * size
    return StridedView(array, first, shape, (length * inner * size, inner * size, size), size)


def _as_array(view: StridedView, field: Field) -> DeviceArray:
    """Return a view of neighbouring elements as an array of numbers."""
    numbers = view.nbytes // field.scalar.dtype.itemsize
    return view.array._view_as((numbers,), field.scalar.dtype, view.first)


# ----- Rows in caller's memory
#
# Read and write the elements of a NumPy array in the order of a scan.


class StridedRows:
    """The elements of an array of any memory order: row after row, each along the scanned axis.

    Ranges are read and written without a copy of the whole. The pages of a memory-mapped file are released after
    each range, so that a file may be larger than memory.

    Args:
        array: the array (*shape, *element shape).
        shape: the lengths of its axes, without the axes of the element.
        axis: the scanned axis.
        dtype: the dtype in which ranges are read and written.
    """

    def __init__(self, array: AnyArray, shape: tuple[int, ...], axis: int, dtype: AnyDType) -> None:
        self._rows = np.moveaxis(array, axis, len(shape) - 1) if axis != len(shape) - 1 else array
        self._element = array.shape[len(shape) :]
        self._dtype = dtype
        self._others = self._rows.shape[: len(shape) - 1]
        self._row_length = shape[axis]
        self._flat: AnyArray | None = None
        if len(shape) == 1:
            # One row may have any stride.
            self._flat = self._rows
        elif self._rows.flags.c_contiguous:
            self._flat = self._rows.reshape(-1, *self._element)
        self._map = find_shared_map(array)
        self._element_bytes = prod(self._element) * dtype.itemsize

    def contiguous(self, start: int, count: int) -> Bytes | None:
        """Return the bytes of a range as a view, or None if they are not neighbours in memory."""
        flat = self._flat
        if flat is None or not flat.flags.c_contiguous or self._map is not None or flat.dtype != self._dtype:
            return None
        size = self._element_bytes
        return flat.reshape(-1).view(np.uint8)[start * size : (start + count) * size]

    def read(self, start: int, into: Bytes) -> None:
        """Copy the elements from `start` on that fill `into`."""
        target = into.view(self._dtype).reshape(-1, *self._element)
        if self._flat is not None:
            copy(target, self._flat[start : start + len(target)])
        else:
            for index, row_slice, target_slice in self._find_parts(start, len(target)):
                source = self._rows[index]
                part = source[row_slice] if row_slice is not None else source.reshape(-1, *self._element)
                copy(target[target_slice], part)
        self._release()

    def write(self, start: int, data: Bytes) -> None:
        """Copy `data` to the elements from `start` on."""
        source = data.view(self._dtype).reshape(-1, *self._element)
        if self._flat is not None:
            copy(self._flat[start : start + len(source)], source)
        else:
            for index, row_slice, source_slice in self._find_parts(start, len(source)):
                if row_slice is None:
                    self._rows[index] = source[source_slice].reshape(-1, self._row_length, *self._element)
                else:
                    self._rows[index][row_slice] = source[source_slice]
        self._release()

    def _find_parts(
        self, start: int, count: int
    ) -> Iterator[tuple[tuple[AnyArray | np.intp, ...], slice | None, slice]]:
        """Yield parts of rows: the rows' index, the part of a row (None for whole rows), and their slice from 0 on."""
        length, at = self._row_length, start
        index: tuple[AnyArray | np.intp, ...]
        while at < start + count:
            row, first = divmod(at, length)
            whole = (start + count - at) // length
            if first == 0 and whole:
                index = np.unravel_index(np.arange(row, row + whole), self._others)
                taken, row_slice = whole * length, None
            else:
                index = np.unravel_index(row, self._others)
                taken = min(length - first, start + count - at)
                row_slice = slice(first, first + taken)
            yield index, row_slice, slice(at - start, at - start + taken)
            at += taken

    def _release(self) -> None:
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


# ----- Memory-mapped files
#
# Arrays in these may be larger than memory, so their pages are released.


def is_mapped_file(array: AnyArray) -> bool:
    """Return True if the array is in a memory-mapped file."""
    base: object = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base is not None


def release_pages(array: AnyArray) -> None:
    """Release the pages of a memory-mapped file; the system reads them again when they are needed."""
    mapping = find_shared_map(array)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def find_shared_map(array: object) -> mmap.mmap | None:
    """Return the mapping behind a `np.memmap` that shares its pages with the file, or None.

    Changes to the pages of a private mapping exist only in memory, so they must not be released. A plain `mmap.mmap`
    does not say if it is private.
    """
    is_shared = False
    while array is not None:
        if isinstance(array, np.memmap):
            is_shared = array.mode != "c"
        if isinstance(array, mmap.mmap):
            return array if is_shared and hasattr(array, "madvise") else None
        array = getattr(array, "base", None)
    return None
