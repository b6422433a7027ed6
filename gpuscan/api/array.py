"""Arrays that stay on a device between calls."""

from __future__ import annotations

import operator
from concurrent.futures import Future
from math import prod
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from gpuscan.device.buffer_pool import Allocation
from gpuscan.device.foreign_buffers import check_buffer, check_state
from gpuscan.device.guards import guarded
from gpuscan.device.submission import submit
from gpuscan.device.transfer import begun, download, padded
from gpuscan.elements import dtype_from, scalar_of
from gpuscan.errors import UnsupportedDtypeError

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device


class Array:
    """An array in a device's memory, made by `Device.asarray`, `Device.empty`, a scan, or `Array.from_buffer`.

    Attributes:
        shape, dtype, nbytes: as NumPy has them; the elements lie in C order.
        device: the `gpuscan.Device` that it lies on.
        buffer: the `wgpu.GPUBuffer` that holds it.
        offset: where in the buffer it begins, in bytes.

    A slice along the first axis is a view: it shares the buffer, and what is written to one is seen in the other. The
    memory goes back to the device's pool when the array and all its views are gone; keep an array alive until the
    commands of your own that use its buffer are submitted (`Plan.record` sees to that itself).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = gs.default_device().asarray(np.arange(6, dtype=np.uint32))
        >>> np.asarray(gs.scan(x[3:]))
        array([ 3,  7, 12], dtype=uint32)
    """

    def __init__(
        self, device: Device, buffer: wgpu.GPUBuffer, shape: tuple[int, ...], dtype: Any, offset: int, owner: object
    ) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.offset = offset
        self.nbytes = prod(shape) * self.dtype.itemsize
        self._owner = owner  # the allocation, or None for a caller's buffer: it lives as long as a view does

    @classmethod
    def from_buffer(
        cls, device: Device, buffer: wgpu.GPUBuffer, shape: int | tuple[int, ...], dtype: Any, offset: int = 0
    ) -> Array:
        """An array over a buffer that the caller made on ``device.wgpu_device`` and goes on owning.

        Args:
            device: the device of the buffer.
            buffer: it needs the usages STORAGE, COPY_SRC and COPY_DST.
            shape: of the array.
            dtype: of its numbers.
            offset: where it begins, in bytes: a multiple of the size of its numbers.

        Raises:
            ValueError: the array does not fit in the buffer, begins off its numbers' edge, or a usage is missing; or
                the buffer is another device's, mapped, or was destroyed. The last two are checked at each use as well.
            TypeError: `device` or `buffer` is none, or `offset` no whole number.
            UnsupportedDtypeError: the dtype is no element's.
        """
        from gpuscan.api.device import Device

        if not isinstance(device, Device):
            raise TypeError(
                f"device was {type(device).__name__}; an array over a buffer needs the gpuscan.Device whose "
                "device.wgpu_device made the buffer. Pass one of gpuscan.Device(...), or gpuscan.default_device()"
            )
        shape, dtype = checked_shape(shape), checked_dtype(dtype)
        check_buffer(device.wgpu_device, buffer, "buffer", ("STORAGE", "COPY_SRC", "COPY_DST"))
        check_state(device, buffer, "buffer")
        if not hasattr(offset, "__index__"):
            raise TypeError(f"offset {offset!r} was passed; it is a whole number of bytes, such as {dtype.itemsize}")
        offset = operator.index(offset)
        if offset < 0 or offset % dtype.itemsize:
            raise ValueError(f"offset {offset} was passed; it must be a multiple of {dtype.itemsize} bytes, 0 or more")
        array = cls(device, buffer, shape, dtype, offset, None)
        if padded(offset + array.nbytes) > buffer.size:
            raise ValueError(
                f"an array of {array.nbytes} bytes from byte {offset} on was asked for; it takes whole 4-byte words "
                f"up to byte {padded(offset + array.nbytes)}, and the buffer has {buffer.size}. Make it larger"
            )
        return array

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Numbers in the array."""
        return prod(self.shape)

    @property
    def ours(self) -> bool:
        """Whether the buffer is of the device's pool."""
        return self._owner is not None

    def check(self) -> None:
        """See that the buffer can be used, before commands with it are submitted: a caller may have taken it away.

        Raises:
            ValueError: it is mapped, or was destroyed, which Dawn tells at the submission.
        """
        if self._owner is None:
            check_state(self.device, self.buffer, "the buffer of an array")

    def recorded(self) -> None:
        """Keep the memory for commands that the caller may submit when the array is gone."""
        if isinstance(self._owner, Allocation):
            self._owner.recorded()

    @property
    def covers_buffer(self) -> bool:
        """Whether all that the buffer was allocated for is this array's."""
        return isinstance(self._owner, Allocation) and self._owner.nbytes == self.nbytes

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        """The array in another dtype, converted by NumPy on the CPU."""
        if not copy and dtype_from(dtype) == self.dtype:
            return self
        return self.device.asarray(self.numpy().astype(dtype))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"gpuscan.Array({self.dtype} {self.shape} on {self.device.capabilities.summary})"

    def __getitem__(self, index: Any) -> Array:
        """A view: ``a[start:stop]`` along the first axis, or ``a[i]``.

        Raises:
            TypeError: the index is neither; other elements are not neighbours. Use ``a.numpy()[index]``.
            IndexError: there is no such entry.
        """
        if not self.shape:
            raise IndexError("an array without axes cannot be indexed")
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1:
                raise TypeError(f"a slice of step {step} was asked for; views are contiguous. Use a.numpy()[...]")
            shape = (max(0, stop - start), *self.shape[1:])
        elif hasattr(index, "__index__") and not isinstance(index, bool):
            start = index.__index__() + (self.shape[0] if index.__index__() < 0 else 0)
            if not 0 <= start < self.shape[0]:
                raise IndexError(f"index {index} was asked for; the first axis has {self.shape[0]} entries")
            shape = self.shape[1:]
        else:
            raise TypeError(f"views are a[start:stop] and a[i]; got {index!r}. Use a.numpy()[...]")
        return Array(self.device, self.buffer, shape, self.dtype, self.offset + start * row, self._owner)

    def reshape(self, *shape: Any) -> Array:
        """The same elements in another shape; one axis may be -1."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        shape = np.broadcast_to(np.zeros(()), self.shape).reshape(wanted).shape
        return Array(self.device, self.buffer, shape, self.dtype, self.offset, self._owner)

    # ----- To NumPy

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in NumPy; waits for the GPU.

        Raises:
            ProgressTimeoutError: a scan since the last check gave up waiting, so the contents may be wrong.
            DeviceLostError: the GPU went away.
            ValueError: the array lies in a caller's buffer, which is mapped or was destroyed.
        """
        result = np.empty(self.shape, self.dtype)
        if result.nbytes:
            with guarded(self.device):
                self.check()
                self._read_into(result)
        self.device.check()
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array on a device cannot be seen by NumPy without a copy")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def read_async(self) -> Future[np.ndarray[Any, Any]]:
        """A future of `numpy`'s result, taken as the array is now: what is submitted later does not change it."""
        if not self.nbytes:
            ready: Future[np.ndarray[Any, Any]] = Future()
            ready.set_result(np.empty(self.shape, self.dtype))
            return ready
        return begun(self.device.readers, self.copy().numpy)

    def copy(self) -> Array:
        """A copy on the device; `copy.copy` and `copy.deepcopy` give one too."""
        start, pad = self._aligned()
        with guarded(self.device), self.device.lock:
            fresh = self.device.allocate(pad + self.nbytes)
            copied = Array(self.device, fresh.buffer, self.shape, self.dtype, pad, fresh)
            if self.nbytes:
                self.check()
                encoder = self.device.wgpu_device.create_command_encoder()
                encoder.copy_buffer_to_buffer(self.buffer, start, fresh.buffer, 0, padded(pad + self.nbytes))
                submit(self.device.wgpu_device, encoder.finish())
        return copied

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Array:
        return self.copy()

    def __reduce__(self) -> Never:
        raise TypeError("a gpuscan.Array lies in a GPU's memory and cannot be pickled. Pickle array.numpy()")

    def _aligned(self) -> tuple[int, int]:
        """The multiple of four bytes at or before the begin, which copies need, and how far before."""
        return self.offset // 4 * 4, self.offset % 4

    def _read_into(self, result: np.ndarray[Any, Any]) -> None:
        start, pad = self._aligned()
        device = self.device
        if pad == 0:
            download(device.wgpu_device, device.pool, self.buffer, start, result)
            return
        wide = np.empty(pad + self.nbytes, np.uint8)
        download(device.wgpu_device, device.pool, self.buffer, start, wide)
        result.reshape(-1).view(np.uint8)[:] = wide[pad:]


def checked_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """A shape as a tuple of numbers of 0 or more."""
    axes = tuple(operator.index(n) for n in (shape if isinstance(shape, tuple | list) else (shape,)))
    if any(n < 0 for n in axes):
        raise ValueError(f"shape {axes} was passed; lengths are 0 or more")
    return axes


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype, if it is one that elements have, in native byte order."""
    given = dtype_from(dtype)
    if given.names:
        raise UnsupportedDtypeError(
            f"an array of the structured dtype {given} was asked for on a device, where arrays hold numbers. Make one "
            "of each field, x[name], and pass them as a bundle: a dict or a tuple of arrays"
        )
    scalar_of(given)
    native: np.dtype[Any] = given if given.isnative else given.newbyteorder("=")
    return native


def empty(device: Device, shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An array of this shape whose contents are left over from earlier use."""
    axes, kind = checked_shape(shape), checked_dtype(dtype)
    with guarded(device):
        owner = device.allocate(prod(axes) * kind.itemsize)
    return Array(device, owner.buffer, axes, kind, 0, owner)
