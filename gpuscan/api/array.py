"""Arrays that stay on a device between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from html import escape
from math import prod
from typing import TYPE_CHECKING, Any, Never, SupportsIndex, TypeAlias, overload

import numpy as np

from gpuscan.api.array_methods import ArrayMethods
from gpuscan.api.array_text import text_of
from gpuscan.api.launches import launchable, launchable_with
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.array_types import AnyArray, AnyDType, ArrayOperators, Shape
from gpuscan.device.caller_buffers import check_buffer, check_state
from gpuscan.device.device_array import (
    DeviceArray,
    check_dtype,
    check_shape,
    empty,
    number_in,
    upload_array,
    upload_number,
)
from gpuscan.device.strides import (
    c_strides,
    index_layout,
    is_c_order,
    may_share_bytes,
    overlaps_itself,
    permutation,
    reshape_strides,
    resolve_shape,
)
from gpuscan.device.transfer import SMALL_READ_BYTES, round_up, start_call
from gpuscan.engine.element_copy import duplicate, write_elements
from gpuscan.engine.elementwise import broadcast, convert_array
from gpuscan.html_table import html_table
from gpuscan.operators.parameter_array import HostArray, ParameterArray, is_number_parameter
from gpuscan.operators.parameters import Parameter, reveal
from gpuscan.problem.arguments import as_input_array, as_integer, elements_of, native, resolve_axis, together
from gpuscan.problem.indices import is_array_index

if TYPE_CHECKING:
    import wgpu
    from numpy.typing import DTypeLike

    from gpuscan.device.buffer_pool import Memory


class Array(DeviceArray, ArrayOperators, ArrayMethods):
    """An array in a device's memory, made by `Device.asarray`, `Device.empty`, a function, or `Array.from_buffer`.

    Attributes:
        shape, dtype, nbytes, strides, ndim, size, T, mT: as NumPy defines them.
        device: the `gpuscan.Device` that holds the array.
        buffer: the `wgpu.GPUBuffer` that holds the elements.
        offset: the byte of the buffer where the first element begins.
        is_contiguous: True if the elements are adjacent in memory, in C order. Views may have any strides.
        count: only for results with a length that depends on the data: the length, as an array of shape (1,).

    Basic indexing, transposes and reshapes return views, and all functions take views. A view shares the buffer of its
    array, so ``a[1:, ::2] = 0`` writes to `a`.

    NumPy's operators, ufuncs and functions such as `np.cumsum` run on the device, each call in a kernel of its own. The
    kernel of `np.where` also computes masks such as ``a > 0``. A function that cannot run there raises a TypeError that
    names ``.numpy()``.

    The memory is reused when the array and all its views are gone. Keep an array alive until your own commands that use
    its buffer are submitted; `Plan.record` does that for you.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = gs.default_device().asarray(np.arange(6, dtype=np.uint32))
        >>> gs.scan(x[3:]).numpy()
        array([ 3,  7, 12], dtype=uint32)
        >>> (x.reshape(2, 3)[:, ::-1] * 10).numpy()
        array([[20, 10,  0],
               [50, 40, 30]], dtype=uint32)
        >>> x[x > 3] = 0
        >>> x.astype(np.float32).tolist()
        [0.0, 1.0, 2.0, 3.0, 0.0, 0.0]
    """

    count: Array

    def __init__(
        self,
        device: OpenedDevice,
        buffer: wgpu.GPUBuffer,
        shape: tuple[int, ...],
        dtype: object,
        offset: int = 0,
        owner: Memory | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(device._context, buffer, shape, dtype, offset, owner, strides)
        self.device = device

    @classmethod
    def _of(cls, device: OpenedDevice, array: DeviceArray) -> Array:
        """Return the engine's array as a public one."""
        return cls(device, array.buffer, array.shape, array.dtype, array.offset, array._owner, array._strides)

    def _made(
        self, owner: Memory, shape: tuple[int, ...], dtype: object, offset: int, strides: tuple[int, ...] | None
    ) -> Array:
        """Return an array on the same device, over memory of the pool."""
        made = Array.__new__(Array)
        DeviceArray.__init__(made, self._context, owner.buffer, shape, dtype, offset, owner, strides)
        made.device = self.device
        return made

    @classmethod
    def from_buffer(
        cls, device: OpenedDevice, buffer: wgpu.GPUBuffer, shape: Shape, dtype: object, offset: SupportsIndex = 0
    ) -> Array:
        """Return an array over a buffer that you made on ``device.wgpu_device`` and continue to own.

        Args:
            device: the device of the buffer.
            buffer: a buffer with the usages that later calls need: STORAGE to compute with the array or to write
                results to it, COPY_SRC to read it back.
            shape, dtype: the shape and the dtype of the array.
            offset: the byte where the array begins, a multiple of the dtype's size.

        Raises:
            ValueError: the array does not fit in the buffer, or the offset is not a multiple; or the buffer belongs to
                another device, is mapped, or was destroyed. Each later use checks again that the buffer is not mapped
                or destroyed, and that it has the usages.
            TypeError: `device` or `buffer` has the wrong type, or `offset` is not an integer.
            UnsupportedDtypeError: gpuscan has no element type of this dtype.

        Example:
            >>> import gpuscan as gs
            >>> device = gs.default_device()
            >>> buffer = device.wgpu_device.create_buffer(size=16, usage="STORAGE|COPY_SRC")
            >>> gs.Array.from_buffer(device, buffer, 4, "float32").tolist()
            [0.0, 0.0, 0.0, 0.0]
        """
        if not isinstance(device, OpenedDevice):
            raise TypeError(
                f"device was {type(device).__name__}, but an array over a buffer needs the gpuscan.Device that "
                "owns the buffer, which was made on its device.wgpu_device. Pass gpuscan.Device(...), or "
                "gpuscan.default_device()"
            )
        shape, dtype = check_shape(shape), check_dtype(dtype)
        check_buffer(device.wgpu_device, buffer, "buffer", ())
        check_state(device._context, buffer, "buffer")
        first = as_integer(offset)
        if first is None:
            raise TypeError(
                f"offset={offset!r} was passed, but an offset is an integer number of bytes, such as {dtype.itemsize}"
            )
        if first < 0 or first % dtype.itemsize:
            raise ValueError(
                f"offset={offset} was passed for numbers of {dtype.itemsize} bytes; pass a multiple of that, 0 or more"
            )
        array = cls(device, buffer, shape, dtype, first, None)
        if round_up(first + array.nbytes) > buffer.size:
            raise ValueError(
                f"an array of {array.nbytes} bytes at byte {first} was asked for, which needs whole 4-byte words up "
                f"to byte {round_up(first + array.nbytes)}, but the buffer has {buffer.size} bytes. Make it larger"
            )
        return array

    def _view_as(self, shape: tuple[int, ...], dtype: object = None, offset: int = 0) -> Array:
        """Return an array in C order in the same bytes, from `offset` bytes after the begin of this one."""
        self._check_contiguous()
        new_dtype = self.dtype if dtype is None else dtype
        return Array(self.device, self.buffer, shape, new_dtype, self.offset + offset, self._owner)

    def _view_at(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Array:
        """Return the view of the same buffer with these strides, `offset` bytes after the begin of this array."""
        dtype = self._dtype
        own_strides = None if is_c_order(shape, strides, dtype.itemsize) else strides
        return Array(self.device, self.buffer, shape, dtype, self.offset + offset, self._owner, own_strides)

    # ----- Indices

    def __getitem__(self, index: object) -> Array:
        """Return a view for a basic index (slices, integers, ``...``, None), and a new array for arrays of indices.

        An array of integers or bools in the index may be on the device. Integers are checked there: if one is wrong,
        the next read or `Device.synchronize` raises the error. With a mask, reading ``.shape`` waits for the length.

        Raises:
            IndexError: an index is outside its axis, there are more indices than axes, a part is not an index, or a
                mask has another shape.
        """
        if type(index) is not slice and is_array_index(index):
            return _protocols["take_item"](self, index)  # type: ignore[no-any-return]
        shape = self.shape
        strides = c_strides(shape, self._dtype.itemsize) if self._strides is None else self._strides
        return self._view_at(*index_layout(shape, strides, index))

    def __setitem__(self, index: object, value: object) -> None:
        """Write a number or an array to the elements at an index, broadcast and converted as NumPy does it.

        If an index occurs several times, the last of its values is kept. An index on the device that is outside its
        axis writes nothing, and the next read raises the error.

        Raises:
            IndexError: as for ``a[index]``.
            ValueError: the value does not broadcast to the elements, or it is on another device; or elements of the
                array share memory, as in ``np.broadcast_to(a, shape)``.
            ValueError, TypeError, OverflowError: the array's dtype cannot hold the value.
        """
        if not (isinstance(index, Array) and isinstance(value, Array) and _protocols["put_picked"](self, index, value)):
            self._set_item(index, value)

    @launchable_with(
        "value", integers=["value"], counts=["index"], upload=lambda given: _protocols["upload_index"](given)
    )
    def _set_item(self, index: object, value: object) -> None:
        self._check_separate()
        if is_array_index(index):
            _protocols["put_item"](self, index, value)
            return
        target = self[index]
        # In a[1:] += 1, Python assigns the view that it has just computed.
        if not (isinstance(value, Array) and value._is_same_as(target)):
            target._assign(value)

    def _assign(self, value: object) -> None:
        """Write a number or an array to all elements, broadcast and converted as NumPy does it.

        Raises:
            ValueError: the value does not broadcast to the array's shape, or it is on another device; or elements of
                the array share memory.
            ValueError, TypeError, OverflowError: the array's dtype cannot hold the value.
        """
        self._check_separate()
        values = self._values_for(value, self.shape)
        if self.size:
            with self._context.errors:
                write_elements(values, self)

    def _values_for(self, value: object, wanted: tuple[int, ...]) -> DeviceArray:
        """Return a number or an array as elements of a shape, to be written to some of this array.

        Raises:
            ValueError, TypeError, OverflowError: as `_assign`.
        """
        if type(value) is Parameter and value.number_type is int:
            number = number_in(self._context, value, self.dtype)
            value = Array._of(self.device, number) if isinstance(number, DeviceArray) else number
        if is_number_parameter(value) and self.dtype.kind in ("c" if value.number_type is complex else "fcV"):
            value = Array._of(self.device, upload_number(self._context, value, self.dtype))
        elif isinstance(value, ParameterArray):
            value = new_array(self.device, value.astype(self.dtype))
        elif not isinstance(value, Array):
            value = new_array(self.device, elements_of(reveal(value), self.dtype))
        elif value.device is not self.device:
            raise ValueError(
                f"an array on {value.device!r} was assigned to elements on {self.device!r}, but a call runs where its "
                "arrays are. Bring them together with device.asarray"
            )
        lead = max(0, value.ndim - len(wanted))
        shape = value.shape[lead:] if set(value.shape[:lead]) <= {1} else value.shape
        lengths = zip(reversed(shape), reversed(wanted), strict=False)
        if len(shape) > len(wanted) or any(length not in (1, needed) for length, needed in lengths):
            raise ValueError(
                f"values of shape {value.shape} were assigned to elements of shape {wanted}, to which they do not "
                "broadcast. Pass one number, or an array that broadcasts to that shape"
            )
        return broadcast(value.reshape(shape).astype(self.dtype, copy=False), wanted)

    @property
    def real(self) -> Array:
        """The real parts: a view for complex numbers, the array itself for other numbers.

        Example:
            >>> import gpuscan as gs
            >>> import numpy as np
            >>> gs.default_device().asarray(np.array([1 + 2j, 3 - 4j], np.complex64)).real.tolist()
            [1.0, 3.0]
        """
        return self._part(0) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: object) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Array:
        """The imaginary parts: a view for complex numbers, a new array of zeros for other numbers.

        Example:
            >>> import gpuscan as gs
            >>> import numpy as np
            >>> gs.default_device().asarray(np.array([1 + 2j, 3 - 4j], np.complex64)).imag.tolist()
            [2.0, -4.0]
        """
        if self.dtype.kind == "c":
            return self._part(1)
        zeros = new_array(self.device, None, self.shape, self.dtype)
        zeros._assign(0)
        return zeros

    @imag.setter
    def imag(self, value: object) -> None:
        if self.dtype.kind != "c":
            raise TypeError(
                f"the imaginary parts of an array of dtype {self.dtype} were to be set, but it has none. Convert it "
                "first: array.astype(np.complex64)"
            )
        self.imag[...] = value

    def _part(self, number: int) -> Array:
        """Return the view of the real or the imaginary parts."""
        part = np.dtype(f"f{self.dtype.itemsize // 2}")
        own_strides = None if is_c_order(self.shape, self.strides, part.itemsize) else self.strides
        return Array(
            self.device, self.buffer, self.shape, part, self.offset + number * part.itemsize, self._owner, own_strides
        )

    def _check_separate(self) -> None:
        """Raise ValueError if elements share memory: a write to one would change others."""
        if not self.is_contiguous and overlaps_itself(self.shape, self.strides, self.dtype.itemsize):
            raise ValueError(
                f"values were assigned to an array of shape {self.shape}, but its elements share memory (strides "
                f"{self.strides}), for example after np.broadcast_to. Assign to the array that was broadcast, or to a "
                "copy: a.copy()"
            )

    def _is_same_as(self, other: Array) -> bool:
        """Return True if both arrays are the same elements of one buffer."""
        return self.buffer is other.buffer and all(
            getattr(self, name) == getattr(other, name) for name in ("offset", "shape", "strides", "dtype")
        )

    def astype(self, dtype: object, copy: bool = True) -> Array:
        """Return the array in another dtype, converted on the device as `ndarray.astype` converts it.

        Raises:
            UnsupportedDtypeError: gpuscan has no element type of this dtype, or the adapter cannot convert to it.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 2]).astype("float32").tolist()
            [1.0, 2.0]
        """
        new_dtype = check_dtype(dtype)
        if new_dtype == self.dtype:
            return self.copy() if copy else self
        return self._in_dtype(new_dtype)

    @launchable
    def _in_dtype(self, dtype: AnyDType) -> Array:
        return Array._of(self.device, convert_array(self, dtype))

    # ----- Entries and shapes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("the length of an array of shape () was asked for, but it has no axes; use array.size")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        """Yield a view of each entry of the first axis."""
        if not self.shape:
            raise TypeError("an array of shape () was to be iterated over, but it has no axes; use array.reshape(1)")
        return (self[index] for index in range(self.shape[0]))

    def __contains__(self, item: object) -> bool:
        return bool((self == item).any())

    def reshape(self, *shape: object) -> Array:
        """Return the elements, in C order, in another shape; one length may be -1.

        The result is a view if NumPy would return a view, else a copy on the device.

        Raises:
            ValueError: the shape has another number of elements.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 2, 3, 4]).reshape(2, -1).tolist()
            [[1, 2], [3, 4]]
        """
        wanted = resolve_shape(self.shape, together(shape))
        if self.is_contiguous:
            return self if wanted == self.shape else self._view_as(wanted)
        strides = reshape_strides(self.shape, self.strides, wanted)
        return self.copy()._view_as(wanted) if strides is None else self._view_at(wanted, strides)

    def ravel(self) -> Array:
        """Return all elements, in C order, as a 1-D array: a view if possible, else a copy on the device.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).ravel().tolist()
            [1, 2, 3, 4]
        """
        return self.reshape(-1)

    def flatten(self) -> Array:
        """Return a copy of all elements, in C order, as a 1-D array.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).T.flatten().tolist()
            [1, 3, 2, 4]
        """
        return self.copy().reshape(-1)

    def transpose(self, *axes: object) -> Array:
        """Return a view with the axes in the order of `axes`; without `axes`, in reversed order.

        Raises:
            ValueError: an axis is missing, out of range, or named twice.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().empty((2, 3, 4), "float32").transpose(2, 0, 1).shape
            (4, 2, 3)
        """
        all_reversed = not axes or (len(axes) == 1 and axes[0] is None)
        order = permutation(len(self.shape), None if all_reversed else together(axes))
        shape, strides = self.shape, self.strides
        return self._view_at(tuple([shape[i] for i in order]), tuple([strides[i] for i in order]))

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """Return a view with two axes interchanged.

        Raises:
            ValueError: an axis is out of range.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).swapaxes(0, 1).tolist()
            [[1, 3], [2, 4]]
        """
        order = list(range(len(self.shape)))
        axis1, axis2 = (resolve_axis(axis, self.shape) for axis in (axis1, axis2))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self.transpose(order)

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The view with all axes reversed.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2, 3]]).T.tolist()
            [[1], [2], [3]]
        """
        return self.transpose()

    @property
    def mT(self) -> Array:  # noqa: N802 (NumPy's name)
        """The view with the last two axes interchanged.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[[1, 2]], [[3, 4]]]).mT.tolist()
            [[[1], [2]], [[3], [4]]]
        """
        if len(self.shape) < 2:
            raise ValueError(
                f"the matrix transpose of an array of shape {self.shape} was asked for, which has no two axes; use .T"
            )
        return self.swapaxes(-1, -2)

    def _shares_memory(self, other: Array) -> bool:
        """Return True if a byte may belong to both arrays."""
        mine, theirs = ((a.shape, a.strides, a.offset, a.dtype.itemsize) for a in (self, other))
        return self.buffer is other.buffer and may_share_bytes(mine, theirs)

    # ----- As text

    def __repr__(self) -> str:
        """Return the numbers, the dtype and the device. Reading them may fail, but this never raises."""
        shape, text = text_of(self, separator=", ", prefix="gpuscan.Array(")
        whole = shape is None or (0 < prod(shape) <= np.get_printoptions()["threshold"] and not text.startswith("<"))
        size = "" if whole else f", shape={shape}"
        return f"gpuscan.Array({text}{size}, dtype={self.dtype}, device={self.device.capabilities.summary!r})"

    def __str__(self) -> str:
        return text_of(self)[1]

    def _repr_html_(self) -> str:
        """Return what notebooks show. This never raises."""
        shape, text = text_of(self)
        rows = {
            "shape": "unknown" if shape is None else shape,
            "dtype": self.dtype,
            "device": self.device.capabilities.summary,
        }
        if shape is not None:
            rows |= {
                "bytes": f"{prod(shape) * self.dtype.itemsize:,}",
                "order": "C" if self.is_contiguous else f"strides {self.strides}",
            }
        return f"{html_table('gpuscan.Array', rows.items())}\n<pre>{escape(text)}</pre>"

    def _with_known_shape(self) -> Array:
        """Return the array itself. If only the device knows the length, return an array that does not check reports."""
        return self

    # ----- To NumPy

    def numpy(self) -> AnyArray:
        """Wait for the GPU, and return a NumPy copy of the array. `np.asarray` does the same.

        Raises:
            ProgressTimeoutError: a scan since the last check timed out, so the contents may be wrong.
            ValueError, IndexError: offsets, labels or indices on the device, used since the last check, are wrong.
            DeviceLostError: the GPU was lost.
            ValueError: the array is in a caller's buffer, which is mapped, was destroyed, or lacks the usage COPY_SRC.

        Example:
            >>> import gpuscan as gs
            >>> gs.scan(gs.default_device().asarray([1, 2, 3])).numpy()
            array([1, 3, 6])
        """
        array = self if self._strides is None else self.copy()
        if array.offset % 4 or not 0 < array.nbytes <= SMALL_READ_BYTES:
            result = array._read()
            self._context.check()
            return result
        array._check("COPY_SRC")
        (content,) = self._context.read_and_check((array.buffer, array.offset, array.nbytes))
        return content.view(array._dtype).reshape(array._shape)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        """Return a NumPy copy, as `numpy` does."""
        if copy is False:
            raise ValueError("copy=False was passed, but NumPy cannot see an array on a device without a copy")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def read_async(self) -> Future[AnyArray]:
        """Return a `concurrent.futures.Future` of a NumPy copy, with the contents at the time of this call.

        Example:
            >>> import gpuscan as gs
            >>> future = gs.scan(gs.default_device().asarray([1, 2, 3])).read_async()
            >>> future.result().tolist()  # other work can come in between
            [1, 3, 6]
        """
        if not self.nbytes:
            ready: Future[AnyArray] = Future()
            ready.set_result(np.empty(self.shape, self.dtype))
            return ready
        return start_call(self.device._readers, self.copy().numpy)

    # ----- NumPy's and Python's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        return _protocols["ufunc"](ufunc, method, inputs, options)

    def __array_function__(self, function: object, types: object, args: object, options: object) -> Any:
        return _protocols["function"](function, args, options)

    def __dlpack__(self, *, copy: bool | None = None, dl_device: tuple[int, int] | None = None, **options: Any) -> Any:
        """Return a DLPack capsule of a copy in the CPU's memory, for ``from_dlpack`` of other libraries."""
        if copy is False or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(
                "a gpuscan.Array was to be exported by DLPack without a copy, or to another device than the CPU, but "
                "its memory belongs to WebGPU. Leave copy and dl_device out"
            )
        return self.numpy().__dlpack__(**(options | {"stream": None}))

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's code for the CPU, to which `__dlpack__` copies."""
        return 1, 0

    def item(self) -> Any:
        """Return the number of an array of one element as a Python number.

        Example:
            >>> import gpuscan as gs
            >>> gs.reduce(gs.default_device().asarray([1, 2, 3])).item()
            6
        """
        if self.size != 1:
            raise TypeError(
                f"the only number of an array of shape {self.shape} was asked for, but it has {self.size} numbers. "
                "Index it first, or reduce it: gpuscan.reduce(array)"
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).tolist()
            [[1, 2], [3, 4]]
        """
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth of an array of shape {self.shape} was asked for, but it has {self.size} elements. Reduce "
                'it first: gpuscan.reduce(array, "logical_and") or "logical_or"'
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __format__(self, spec: str) -> str:
        """Return a number in the format; an array of several axes has no format, as in NumPy."""
        return format(self.item(), spec) if spec and not self.shape else super().__format__(spec)

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError(
                f"an array of dtype {self.dtype} and shape {self.shape} was passed as an index, but an index is one "
                "integer. Index the array first: array[0]"
            )
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    @launchable
    def copy(self) -> Array:
        """Return a copy on the device, in C order; `copy.copy` and `copy.deepcopy` do the same.

        Example:
            >>> import gpuscan as gs
            >>> x = gs.default_device().asarray([1, 2, 3])
            >>> y = x.copy()
            >>> x[0] = 9
            >>> y.tolist()
            [1, 2, 3]
        """
        with self._context.errors:
            return Array._of(self.device, duplicate(self))

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Array:
        return self.copy()

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Array was to be pickled, but it is in a GPU's memory. Pickle array.numpy() in its place"
        )


class _Protocols(dict[str, Callable[..., Any]]):
    """The functions that answer NumPy's protocols, by the names of these. "load" imports them at their first use."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        self["load"]()
        return self[name]


_protocols: _Protocols = _Protocols()


def answer_protocols(**answers: Callable[..., object]) -> None:
    """Let functions answer the protocols of arrays that are made of scans and maps, by these names."""
    _protocols.update(answers)


def new_array(device: OpenedDevice, content: HostArray | None, shape: Shape = (), dtype: object = None) -> Array:
    """Return a new array on the device: a copy of `content`, or with arbitrary contents if it is None."""
    memory = empty(device._context, shape, dtype) if content is None else upload_array(device._context, content)
    return Array(device, memory.buffer, memory._shape, memory._dtype, 0, memory._owner)


# An array on a device or in NumPy.
SomeArray: TypeAlias = Array | AnyArray


def as_some_array(x: object) -> SomeArray:
    """Return an array on a device as it is, and anything else as `as_input_array` does."""
    return x if isinstance(x, Array) else as_input_array(x)


def arrays_on_device(arrays: Sequence[SomeArray]) -> list[Array]:
    """Return the arrays, which are all on a device."""
    on_device = [array for array in arrays if isinstance(array, Array)]
    assert len(on_device) == len(arrays), "a result of arrays on a device is in NumPy"
    return on_device


@overload
def in_dtype(array: Array, dtype: AnyDType) -> Array: ...
@overload
def in_dtype(array: AnyArray, dtype: AnyDType) -> AnyArray: ...
def in_dtype(array: SomeArray, dtype: AnyDType) -> SomeArray:
    """Return an array of NumPy or of a device in a dtype, in its native byte order, and as it is if it has it."""
    if isinstance(array, Array):
        return array if array.dtype == dtype else array.astype(dtype)
    return native(array).astype(dtype, copy=False)
