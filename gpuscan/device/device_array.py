"""An array in a GPU buffer, as the engine sees it. The public `gpuscan.Array` is a subclass."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType, Shape
from gpuscan.device.buffer_pool import ALIGNMENT, Allocation, Memory, SizedAllocation
from gpuscan.device.caller_buffers import check_state, check_usages
from gpuscan.device.steps import Binding
from gpuscan.device.strides import c_strides, index_layout, is_c_order, reach
from gpuscan.device.transfer import SMALL_READ_BYTES, download, read_together, round_up, upload
from gpuscan.elements import dtype_from, scalar_of
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.operators.parameter_array import ParameterArray, as_float, fill_array, integer_in
from gpuscan.operators.parameters import Expression, Parameter, present
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.problem.arguments import OnDevice, together, tuple_of_integers
from gpuscan.sizes import Size, apply, concrete, has_size

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext


class DeviceArray(OnDevice):
    """Numbers in a part of a GPU buffer.

    Shaders bind arrays in C order. `gpuscan.engine.element_copy.contiguous` makes one of any view.

    Attributes:
        _context: the device that owns the buffer.
        buffer: the wgpu buffer.
        offset: the byte of the buffer where the first element begins.
        shape, dtype, nbytes, strides: as NumPy defines them.
        _owner: the allocation that the buffer belongs to, or None for a buffer that a caller made.
    """

    nbytes: int
    # False while only the device knows how many elements there are.
    _knows_length = True
    # None for an array in C order.
    _strides: tuple[int, ...] | None = None

    def __init__(
        self,
        context: DeviceContext,
        buffer: wgpu.GPUBuffer,
        shape: tuple[int, ...],
        dtype: Any,
        offset: int = 0,
        owner: Memory | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self._context = context
        self.buffer = buffer
        self._shape = shape
        self._dtype: AnyDType = np.dtype(dtype)
        self.offset = offset
        self.nbytes = prod(shape) * self._dtype.itemsize
        self._owner = owner
        self._strides = strides

    @property
    def shape(self) -> tuple[int, ...]:
        """The length along each axis."""
        return self._shape

    @shape.setter
    def shape(self, shape: object) -> Never:
        raise AttributeError(
            f"the shape of an array on a device was to be set to {shape}, but it is fixed. Use array.reshape(shape)"
        )

    @property
    def dtype(self) -> AnyDType:
        """The dtype of the elements."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: object) -> Never:
        raise AttributeError(
            f"the dtype of an array on a device was to be set to {dtype}, but it is fixed. Use array.astype(dtype)"
        )

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each axis."""
        return c_strides(self.shape, self._dtype.itemsize) if self._strides is None else self._strides

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are adjacent in memory, in C order."""
        return self._strides is None

    @property
    def _extent(self) -> tuple[int, int]:
        """The first byte of the buffer that belongs to the array, and the end of its last one."""
        low, high = reach(self.shape, self.strides, self.dtype.itemsize)
        return self.offset + low, self.offset + high

    @property
    def _buffer_bytes(self) -> int:
        """The bytes of the buffer."""
        return self.buffer.size if self._owner is None else self._owner.usage_and_size[1]

    @property
    def _covers_allocation(self) -> bool:
        """True if the array is all that its buffer was allocated for."""
        return self._owner is not None and self.offset == 0 and self._owner.nbytes == self.nbytes and self.is_contiguous

    def _check(self, *usages: str) -> None:
        """Check a caller's buffer before it is used.

        Args:
            usages: WebGPU's names of the usages that the buffer needs.

        Raises:
            ValueError: the buffer is mapped, was destroyed, or lacks a usage.
        """
        if self._owner is None:
            check_usages(self.buffer, usages)
            check_state(self._context, self.buffer, "the buffer of an array")

    def _can_be(self, usage: str) -> bool:
        """Return True if the buffer has the usage. Buffers of the pool have every usage that gpuscan needs."""
        return self._owner is not None or bool(self.buffer.usage & getattr(self._context.usage, usage))

    def _keep_for_encoded_commands(self) -> None:
        """Keep the memory for commands that the caller may submit after the array is gone."""
        if self._owner is not None:
            self._owner.mark_recorded()

    def _view_as(self, shape: tuple[int, ...], dtype: object = None, offset: int = 0) -> DeviceArray:
        """Return an array in C order in the same bytes, from `offset` bytes after the begin of this one."""
        self._check_contiguous()
        return DeviceArray(
            self._context, self.buffer, shape, self.dtype if dtype is None else dtype, self.offset + offset, self._owner
        )

    def _view_at(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> DeviceArray:
        """Return the view of the same buffer with these strides, `offset` bytes after the begin of this array."""
        dtype = self._dtype
        kept = None if is_c_order(shape, strides, dtype.itemsize) else strides
        return DeviceArray(self._context, self.buffer, shape, dtype, self.offset + offset, self._owner, kept)

    def __getitem__(self, index: object) -> DeviceArray:
        """Return a view by basic indexing."""
        return self._view_at(*index_layout(self.shape, self.strides, index))

    def _made(
        self, owner: Memory, shape: tuple[int, ...], dtype: object, offset: int, strides: tuple[int, ...] | None
    ) -> DeviceArray:
        """Return an array on the same device, over memory of the pool."""
        return DeviceArray(self._context, owner.buffer, shape, dtype, offset, owner, strides)

    def _end_sizes(self) -> None:
        """Replace sizes by the numbers of this call, which is recorded now."""
        for name in ("_shape", "offset", "_strides", "nbytes"):
            if name in vars(self):
                setattr(self, name, concrete(vars(self)[name]))
        if isinstance(self._owner, SizedAllocation):
            self._owner = self._owner.base

    def _check_contiguous(self) -> None:
        """Raise ValueError unless the elements are adjacent in memory, in C order."""
        if not self.is_contiguous:
            raise ValueError(
                f"an array of shape {self.shape} and strides {self.strides} was passed where a contiguous array is "
                "needed. Pass array.copy()"
            )

    def _binding(self) -> Binding:
        """Return the part of the buffer that a shader binds: the array, up to a multiple of 16 bytes."""
        self._check_contiguous()
        return Binding(self.buffer, self.offset, round_up(self.nbytes, ALIGNMENT))

    @property
    def _is_bindable(self) -> bool:
        """True if a shader can bind the array where it is."""
        aligned = self.offset % self._context.offset_alignment == 0 and self.is_contiguous
        return aligned and self.offset + round_up(self.nbytes, ALIGNMENT) <= self._buffer_bytes

    @property
    def _is_writable_in_vectors(self) -> bool:
        """True if a shader may write whole 16-byte vectors, because no other data shares the last one."""
        return self._is_bindable and (self._covers_allocation or self.nbytes % ALIGNMENT == 0)

    def _read(self, into: AnyArray | None = None) -> AnyArray:
        """Return a NumPy copy of an array in C order. Wait for the GPU, but do not read the unread reports.

        Args:
            into: a contiguous array of the same shape and dtype to write (default: a new one).
        """
        self._check_contiguous()
        result = np.empty(self.shape, self.dtype) if into is None else into
        if not result.nbytes:
            return result
        start, skipped = self.offset // 4 * 4, self.offset % 4
        with self._context.errors:
            self._check("COPY_SRC")
            queue, pool = self._context.queue, self._context.pool
            if self.nbytes <= SMALL_READ_BYTES:
                (content,) = read_together(queue, pool, [(self.buffer, start, skipped + self.nbytes)])
                result.reshape(-1).view(np.uint8)[:] = content[skipped:]
            elif skipped == 0:
                download(queue, pool, self.buffer, start, result)
            else:
                wide = np.empty(skipped + self.nbytes, np.uint8)
                download(queue, pool, self.buffer, start, wide)
                result.reshape(-1).view(np.uint8)[:] = wide[skipped:]
        return result


def check_shape(shape: Shape) -> tuple[int, ...]:
    """Return a shape as a tuple of integers that are 0 or more.

    Raises:
        ValueError: a length is negative.
        TypeError: a length is not an integer.
    """
    axes = tuple_of_integers("shape", together((shape,)))
    for length in axes:
        if length < 0:
            raise ValueError(f"shape {axes} was passed, but lengths cannot be negative; pass lengths of 0 or more")
    return axes


def check_dtype(dtype: object) -> AnyDType:
    """Return the dtype in native byte order, if arrays on a device can have it.

    Raises:
        UnsupportedDtypeError: they cannot.
    """
    return _native_dtype(dtype_from(dtype))


@lru_cache(maxsize=64)
def _native_dtype(given: AnyDType) -> AnyDType:
    if given.names:
        raise UnsupportedDtypeError(
            f"an array of the structured dtype {given} was asked for on a device, but arrays there hold plain numbers. "
            "Make one array of each field, x[name], and pass them as a bundle: a dict or a tuple of arrays"
        )
    scalar_of(given)
    return given if given.isnative else given.newbyteorder("=")


def empty(context: DeviceContext, shape: Shape, dtype: object) -> DeviceArray:
    """Return an array of this shape. It contains arbitrary data from earlier use."""
    axes, item_dtype = check_shape(shape), check_dtype(dtype)
    with context.errors:
        owner = context.allocate(prod(axes) * item_dtype.itemsize)
    return DeviceArray(context, owner.buffer, axes, item_dtype, 0, owner)


def upload_array(context: DeviceContext, given: AnyArray | ParameterArray, dtype: object = None) -> DeviceArray:
    """Return a copy of a NumPy array on the device, in C order.

    Args:
        dtype: the dtype of the copy, to which numbers are cast as they are copied (default: the array's dtype).

    Calls are recorded only if what they do is decided by their key, so all calls with the key upload the same numbers.
    Their program uses this copy. Numbers that parameters give are others for each call.
    """
    if isinstance(given, ParameterArray) and dtype is not None:
        given = given.astype(check_dtype(dtype))
    if isinstance(given, ParameterArray):
        return upload_changing(context, given.content, given.shape, given.dtype)
    array_dtype = _native_dtype(given.dtype) if dtype is None else check_dtype(dtype)
    nbytes = given.size * array_dtype.itemsize
    with context.errors:
        owner = context.allocate(nbytes)
        if context.queue.recording is not None:
            context.note_constant(owner.buffer, owner)
        if 0 < nbytes <= TRANSFERS.deferred_upload_bytes:
            _write_short(context, owner.buffer, given, array_dtype)
        elif nbytes:
            with context.pause_recording():
                upload(context.queue, given, owner.buffer, pool=context.pool, dtype=array_dtype)
    return DeviceArray(context, owner.buffer, given.shape, array_dtype, 0, owner)


def upload_together(context: DeviceContext, arrays: Sequence[AnyArray]) -> list[Allocation]:
    """Return memory on the device with copies of short arrays of NumPy, in C order, outside of a recording."""
    pool, queue, flags = context.pool, context.queue, context.usage
    usage = flags.STORAGE | flags.COPY_SRC | flags.COPY_DST
    usages_and_sizes, owners = [], []
    for array in arrays:
        usages_and_sizes.append((usage, pool.size_of(array.nbytes)))
    with context.errors:
        buffers = pool.take_all(usages_and_sizes)
        for buffer, array, usage_and_size in zip(buffers, arrays, usages_and_sizes, strict=True):
            owners.append(Allocation(pool, buffer, array.nbytes, usage_and_size))
            if array.nbytes > TRANSFERS.deferred_upload_bytes:
                upload(queue, np.ascontiguousarray(array), buffer)
                continue
            _write_short(context, buffer, array, array.dtype)
    return owners


def _write_short(context: DeviceContext, buffer: wgpu.GPUBuffer, array: AnyArray, dtype: AnyDType) -> None:
    """Write a short array to a buffer in C order and another dtype, with the runs that are submitted next."""
    words: AnyArray = np.zeros(-(-array.size * dtype.itemsize // 4), np.uint32)
    np.ndarray(array.shape, dtype, words)[...] = array
    context.queue.write_deferred(buffer, words.view(np.uint8))


def upload_changing(
    context: DeviceContext, content: bytes | Expression | Size, shape: tuple[int, ...], dtype: AnyDType
) -> DeviceArray:
    """Return an array on the device with these bytes. For other floats of the call, an expression gives others.

    If the lengths are sizes, calls of other sizes have arrays of other lengths.
    """
    array = upload_array(context, np.ndarray(concrete(shape), dtype, concrete(present(content))))
    if type(content) in (Expression, Size) and (recording := context.recording) is not None:
        owner: Any = array._owner
        if has_size(shape):
            nbytes = prod(shape) * dtype.itemsize
            owner = SizedAllocation(owner, nbytes, (owner.usage_and_size[0], apply(context.pool.size_of, nbytes)))
            array = DeviceArray(context, array.buffer, shape, dtype, 0, owner)
        recording.constant(array.buffer, owner, content)
    return array


def upload_rows(context: DeviceContext, rows: AnyArray | ParameterArray, count: int) -> DeviceArray:
    """Return a copy on the device of the numbers of each row. There may be one row that all rows are equal to.

    If `count` is a size, calls of other sizes have other numbers of rows that are equal.
    """
    if isinstance(rows, ParameterArray) or not rows.nbytes or len(rows) > 1 or count == 1:
        return upload_array(context, rows)
    return upload_changing(context, apply(_repeat, rows.tobytes(), count), (count, *rows.shape[1:]), rows.dtype)


def _repeat(row: bytes, count: int) -> bytes:
    """Return the bytes of equal rows, filled up with zeros to whole words."""
    content = row * count
    return content + bytes(-len(content) % 4)


def upload_number(context: DeviceContext, number: Parameter, dtype: AnyDType) -> DeviceArray:
    """Return a number on the device, as an array of shape (). For other floats of the call it is another one."""
    return upload_array(context, fill_array(number, (), dtype))


def number_in(context: DeviceContext, number: Parameter, dtype: AnyDType) -> Parameter | DeviceArray | int:
    """Return an integer in the form in which kernels combine it with arrays of a dtype: a float, an array or an int."""
    with suppress(OverflowError):
        if dtype.kind == "f":
            return as_float(number)
        if dtype.kind in "iu":
            return upload_changing(context, integer_in(number, dtype), (), dtype)
    return int(number)


def upload_words(context: DeviceContext, numbers: Sequence[int]) -> DeviceArray:
    """Return 32-bit numbers on the device. If they are sizes, calls of other sizes get others."""
    array = upload_array(context, np.array(concrete(tuple(numbers)), np.uint32))
    if has_size(numbers) and (recording := context.recording) is not None:
        recording.constant(array.buffer, array._owner, apply(struct.Struct(f"<{len(numbers)}I").pack, *numbers))
    return array


def device_arrays_in(value: object) -> list[DeviceArray]:
    """Return the arrays on a device in a nest of tuples, lists and dicts, depth first."""
    arrays, waiting = [], [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, DeviceArray):
            arrays.append(part)
        elif isinstance(part, (tuple, list, dict)):
            waiting += reversed(part.values() if isinstance(part, dict) else part)
    return arrays


def is_number(dtype: AnyDType) -> bool:
    """Return True if shaders know the dtype."""
    try:
        scalar_of(dtype)
    except UnsupportedDtypeError:
        return False
    return True
