"""Arrays that stay on a device between calls."""

from __future__ import annotations

import operator
from concurrent.futures import Future
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from gpuscan.api.opened_device import OpenedDevice
from gpuscan.device.device_array import DeviceArray, checked_dtype, checked_shape, empty, uploaded
from gpuscan.device.foreign_buffers import check_buffer, check_state
from gpuscan.device.guards import guarded
from gpuscan.device.transfer import begun, padded
from gpuscan.engine.element_copy import duplicate
from gpuscan.engine.elementwise import converted

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.buffer_pool import Allocation

# Up to this many bytes, an array and the unread reports are read by one submission and one wait.
_SMALL_READ_BYTES = 64 << 10


class Array(DeviceArray):
    """An array in a device's memory, made by `Device.asarray`, `Device.empty`, a scan, or `Array.from_buffer`.

    Attributes:
        shape, dtype, nbytes: as NumPy defines them; the elements are in C order.
        device: the `gpuscan.Device` that holds the array.
        buffer: the `wgpu.GPUBuffer` that the elements are in.
        offset: the byte of the buffer where the array begins.

    A slice along the first axis is a view: it shares the buffer, so what is written to one is seen in the other. The
    memory goes back to the device's pool when the array and all its views are gone. Keep an array alive until your own
    commands that use its buffer are submitted; `Plan.record` does that for you.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = gs.default_device().asarray(np.arange(6, dtype=np.uint32))
        >>> np.asarray(gs.scan(x[3:]))
        array([ 3,  7, 12], dtype=uint32)
    """

    def __init__(
        self,
        device: OpenedDevice,
        buffer: wgpu.GPUBuffer,
        shape: tuple[int, ...],
        dtype: Any,
        offset: int = 0,
        owner: Allocation | None = None,
    ) -> None:
        super().__init__(device._context, buffer, shape, dtype, offset, owner)
        self.device = device

    @classmethod
    def of(cls, device: OpenedDevice, array: DeviceArray) -> Array:
        """Return the engine's array as a public one."""
        return cls(device, array.buffer, array.shape, array.dtype, array.offset, array.owner)

    @classmethod
    def from_buffer(
        cls, device: OpenedDevice, buffer: wgpu.GPUBuffer, shape: int | tuple[int, ...], dtype: Any, offset: int = 0
    ) -> Array:
        """Return an array over a buffer that the caller made on ``device.wgpu_device`` and keeps owning.

        Args:
            device: the device of the buffer.
            buffer: a buffer with the usages STORAGE, COPY_SRC and COPY_DST.
            shape: the shape of the array.
            dtype: the dtype of its numbers.
            offset: the byte where it begins, a multiple of the size of its numbers.

        Raises:
            ValueError: the array does not fit in the buffer, begins inside a number, or a usage is missing; or the
                buffer belongs to another device, is mapped, or was destroyed. The last two are checked at each use too.
            TypeError: `device` or `buffer` has the wrong type, or `offset` is not an integer.
            UnsupportedDtypeError: no element has the dtype.
        """
        if not isinstance(device, OpenedDevice):
            raise TypeError(
                f"device was {type(device).__name__}, but an array over a buffer needs the gpuscan.Device that "
                "owns the buffer, which was made on its device.wgpu_device. Pass gpuscan.Device(...), or "
                "gpuscan.default_device()"
            )
        shape, dtype = checked_shape(shape), checked_dtype(dtype)
        check_buffer(device.wgpu_device, buffer, "buffer", ("STORAGE", "COPY_SRC", "COPY_DST"))
        check_state(device._context, buffer, "buffer")
        if not hasattr(offset, "__index__"):
            raise TypeError(
                f"offset={offset!r} was passed, but an offset is an integer number of bytes, such as {dtype.itemsize}"
            )
        offset = operator.index(offset)
        if offset < 0 or offset % dtype.itemsize:
            raise ValueError(
                f"offset={offset} was passed for numbers of {dtype.itemsize} bytes; pass a multiple of that, 0 or more"
            )
        array = cls(device, buffer, shape, dtype, offset, None)
        if padded(offset + array.nbytes) > buffer.size:
            raise ValueError(
                f"an array of {array.nbytes} bytes at byte {offset} was asked for, which needs whole 4-byte words up "
                f"to byte {padded(offset + array.nbytes)}, but the buffer has {buffer.size} bytes. Make it larger"
            )
        return array

    def viewed(self, shape: tuple[int, ...], dtype: Any = None, offset: int = 0) -> Array:
        """Return a view of the same buffer that starts `offset` bytes after this array."""
        kind = self.dtype if dtype is None else dtype
        return Array(self.device, self.buffer, shape, kind, self.offset + offset, self.owner)

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        """Return the array in another dtype, converted on the device as `ndarray.astype` converts it.

        Raises:
            UnsupportedDtypeError: no element has the dtype, or the adapter cannot convert it.
        """
        kind = checked_dtype(dtype)
        if kind == self.dtype:
            return self.copy() if copy else self
        return Array.of(self.device, converted(self.device._executor, self, kind))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("the length of an array of shape () was asked for, but it has no axes; use array.size")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"gpuscan.Array({self.dtype} {self.shape} on {self.device.capabilities.summary})"

    def __getitem__(self, index: Any) -> Array:
        """Return a view: ``a[start:stop]`` along the first axis, or ``a[i]``.

        Raises:
            TypeError: the index is neither.
            IndexError: there is no such entry.
        """
        if not self.shape:
            raise IndexError(f"index {index!r} was asked for, but an array of shape () has no axes")
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1:
                raise TypeError(
                    f"a slice of step {step} was asked for, but views have step 1. Use a.numpy()[...] for other steps"
                )
            shape = (max(0, stop - start), *self.shape[1:])
        elif hasattr(index, "__index__") and not isinstance(index, bool):
            start = index.__index__() + (self.shape[0] if index.__index__() < 0 else 0)
            if not 0 <= start < self.shape[0]:
                raise IndexError(f"index {index} was asked for, but the first axis has {self.shape[0]} entries")
            shape = self.shape[1:]
        else:
            raise TypeError(f"index {index!r} was asked for, but views are a[start:stop] and a[i]. Use a.numpy()[...]")
        return self.viewed(shape, offset=start * row)

    def reshape(self, *shape: Any) -> Array:
        """Return the same elements in another shape; one axis may be -1."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return self.viewed(np.broadcast_to(np.zeros(()), self.shape).reshape(wanted).shape)

    # ----- To NumPy

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a NumPy copy of the array, once the GPU is done.

        Raises:
            ProgressTimeoutError: a scan since the last check timed out, so the contents may be wrong.
            DeviceLostError: the GPU went away.
            ValueError: the array is in a caller's buffer, which is mapped or was destroyed.
        """
        if self.offset % 4 or not 0 < self.nbytes <= _SMALL_READ_BYTES:
            result = self.read()
            self.context.check()
            return result
        self.check()
        (content,) = self.context.read_and_check((self.buffer, self.offset, self.nbytes))
        return content.view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("copy=False was passed, but NumPy cannot see an array on a device without a copy")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def read_async(self) -> Future[np.ndarray[Any, Any]]:
        """Return a future of `numpy`'s result, with the contents of the array at the time of this call."""
        if not self.nbytes:
            ready: Future[np.ndarray[Any, Any]] = Future()
            ready.set_result(np.empty(self.shape, self.dtype))
            return ready
        return begun(self.device._readers, self.copy().numpy)

    def copy(self) -> Array:
        """Return a copy on the device; `copy.copy` and `copy.deepcopy` do the same."""
        with guarded(self.context):
            return Array.of(self.device, duplicate(self))

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Array:
        return self.copy()

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Array was to be pickled, but it is in a GPU's memory. Pickle array.numpy() in its place"
        )


class Picked(Array):
    """An array on a device with a length that only the device knows until the caller asks for it.

    Attributes:
        count: the length, as one 32-bit word on the device. `Plan.record` takes it as ``length=``.
    """

    def __init__(self, room: Array, dtype: np.dtype[Any], trailing: tuple[int, ...], count: Array) -> None:
        self.device, self.context = room.device, room.context
        self.buffer, self.offset, self.owner = room.buffer, room.offset, room.owner
        self.dtype = dtype
        self.count = count
        self._trailing = trailing

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape as NumPy defines it. The first use waits for the GPU."""
        return (int(self.count.numpy()[0]), *self._trailing)

    @cached_property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes of the picked entries. The first use waits for the GPU."""
        return prod(self.shape) * int(self.dtype.itemsize)


def new_array(device: OpenedDevice, content: np.ndarray[Any, Any] | None, shape: Any = (), dtype: Any = None) -> Array:
    """Return a new array on the device: a copy of `content`, or with arbitrary contents if it is None."""
    context = device._context
    made = empty(context, shape, dtype) if content is None else uploaded(context, content)
    return Array.of(device, made)
