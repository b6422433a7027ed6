"""An array in a GPU buffer, as the engine sees it. The public `gpuscan.Array` is a subclass."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT, Allocation
from gpuscan.device.foreign_buffers import check_state
from gpuscan.device.guards import guarded
from gpuscan.device.transfer import download, padded, upload
from gpuscan.elements import dtype_from, scalar_of
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.problem.arguments import OnDevice

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext


class DeviceArray(OnDevice):
    """Numbers in C order in a part of a GPU buffer.

    Attributes:
        context: the device that owns the buffer.
        buffer: the wgpu buffer.
        offset: the byte of the buffer where the array begins.
        shape, dtype, nbytes: as NumPy defines them.
        owner: the allocation that the buffer belongs to, or None for a buffer that a caller made.
    """

    shape: tuple[int, ...]
    nbytes: int

    def __init__(
        self,
        context: DeviceContext,
        buffer: wgpu.GPUBuffer,
        shape: tuple[int, ...],
        dtype: Any,
        offset: int = 0,
        owner: Allocation | None = None,
    ) -> None:
        self.context = context
        self.buffer = buffer
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.offset = offset
        self.nbytes = prod(shape) * self.dtype.itemsize
        self.owner = owner

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of numbers in the array."""
        return prod(self.shape)

    @property
    def covers_allocation(self) -> bool:
        """True if the array is all that its buffer was allocated for."""
        return self.owner is not None and self.offset == 0 and self.owner.nbytes == self.nbytes

    def check(self) -> None:
        """Raise ValueError if the caller's buffer is mapped or was destroyed."""
        if self.owner is None:
            check_state(self.context, self.buffer, "the buffer of an array")

    def keep_for_recorded_commands(self) -> None:
        """Keep the memory for commands that the caller may submit after the array is gone."""
        if self.owner is not None:
            self.owner.recorded()

    def viewed(self, shape: tuple[int, ...], dtype: Any = None, offset: int = 0) -> DeviceArray:
        """Return a view of the same buffer that starts `offset` bytes after this array."""
        return DeviceArray(
            self.context, self.buffer, shape, self.dtype if dtype is None else dtype, self.offset + offset, self.owner
        )

    def binding(self) -> Binding:
        """Return the part of the buffer that a shader binds: the array, up to a multiple of 16 bytes."""
        return Binding(self.buffer, self.offset, padded(self.nbytes, ALIGNMENT))

    @property
    def is_bindable(self) -> bool:
        """True if a shader can bind the array where it is."""
        aligned = self.offset % self.context.offset_alignment == 0
        return aligned and self.offset + padded(self.nbytes, ALIGNMENT) <= self.buffer.size

    @property
    def is_writable_in_vectors(self) -> bool:
        """True if a shader may write whole 16-byte vectors, because no other data shares the last one."""
        return self.is_bindable and (self.covers_allocation or self.nbytes % ALIGNMENT == 0)

    def read(self) -> np.ndarray[Any, Any]:
        """Return a NumPy copy of the array. Wait for the GPU, but do not read the unread reports."""
        result = np.empty(self.shape, self.dtype)
        if not result.nbytes:
            return result
        start, skipped = self.offset // 4 * 4, self.offset % 4
        with guarded(self.context):
            self.check()
            queue, pool = self.context.queue, self.context.pool
            if skipped == 0:
                download(queue, pool, self.buffer, start, result)
            else:
                wide = np.empty(skipped + self.nbytes, np.uint8)
                download(queue, pool, self.buffer, start, wide)
                result.reshape(-1).view(np.uint8)[:] = wide[skipped:]
        return result


def checked_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a tuple of integers that are 0 or more."""
    axes = tuple(operator.index(n) for n in (shape if isinstance(shape, tuple | list) else (shape,)))
    if any(n < 0 for n in axes):
        raise ValueError(f"shape {axes} was passed, but lengths cannot be negative; pass lengths of 0 or more")
    return axes


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype in native byte order, if arrays on a device can have it.

    Raises:
        UnsupportedDtypeError: they cannot.
    """
    given = dtype_from(dtype)
    if given.names:
        raise UnsupportedDtypeError(
            f"an array of the structured dtype {given} was asked for on a device, but arrays there hold plain numbers. "
            "Make one array of each field, x[name], and pass them as a bundle: a dict or a tuple of arrays"
        )
    scalar_of(given)
    native: np.dtype[Any] = given if given.isnative else given.newbyteorder("=")
    return native


def empty(context: DeviceContext, shape: int | tuple[int, ...], dtype: Any) -> DeviceArray:
    """Return an array of this shape. It contains arbitrary data from earlier use."""
    axes, kind = checked_shape(shape), checked_dtype(dtype)
    with guarded(context):
        owner = context.allocate(prod(axes) * kind.itemsize)
    return DeviceArray(context, owner.buffer, axes, kind, 0, owner)


def uploaded(context: DeviceContext, given: np.ndarray[Any, Any]) -> DeviceArray:
    """Return a copy of a NumPy array on the device, in C order."""
    array = empty(context, given.shape, given.dtype)
    if array.nbytes:
        with guarded(context):
            content = np.ascontiguousarray(given, array.dtype)
            upload(context.queue, content, array.buffer, pool=context.pool)
    return array


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return True if shaders know the dtype."""
    try:
        scalar_of(dtype)
    except UnsupportedDtypeError:
        return False
    return True
