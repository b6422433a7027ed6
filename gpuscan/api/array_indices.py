"""Elements of `gpuscan.Array` at indices and masks: NumPy's advanced indexing, on the device."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.api.array import Array, SomeArray, answer_protocols, as_some_array, new_array
from gpuscan.api.launches import Arguments, Numbered, launchable
from gpuscan.api.map import map as map_arrays
from gpuscan.api.unknown_length_array import UnknownLengthArray, read_lengths
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.strides import c_strides
from gpuscan.engine.array_indices import IndexedArray, put, resolve_indices, take
from gpuscan.engine.compaction import Compacted, all_indices, compact_on_device
from gpuscan.engine.element_copy import contiguous
from gpuscan.engine.elementwise import broadcast
from gpuscan.operators.parameter_array import is_number_parameter
from gpuscan.problem.arguments import OnDevice, as_array, elements_of
from gpuscan.problem.broadcasting import broadcast_shapes
from gpuscan.problem.indices import (
    ArrayIndex,
    check_indices,
    check_rows,
    is_array_index,
    is_mask,
    parts_of,
    rows_of,
    split_index,
)
from gpuscan.recent_values import RecentValues

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def take_item(array: Array, index: object) -> Array:
    """Return the elements at an index with arrays; `Array.__getitem__` calls this.

    Raises:
        IndexError: the index does not fit the array. Indices on a device are checked there.
    """
    # The indices are checked and uploaded first, so that the call launches the program of other ones.
    uploaded = _upload(array, index)
    if uploaded is not None:
        return _take_indices(array, uploaded)
    return _take_item(array, index)


class _Layout(Numbered):
    """What an index with arrays means, apart from their contents and lengths. Equal layouts are one object.

    Attributes:
        view, axes, numbers, axes_before, unique: as in `gpuscan.problem.indices.ArrayIndex`.
    """

    def __init__(self, index: ArrayIndex) -> None:
        self.view, self.axes, self.numbers = index.view, index.axes, index.numbers
        self.axes_before, self.unique = index.axes_before, index.unique


# The layouts, by what they are.
_layouts: RecentValues[Hashable, _Layout] = RecentValues(256)
_lock = threading.Lock()


class UploadedIndex(NamedTuple):
    """An index of arrays of NumPy, once it is checked.

    Attributes:
        indices: the rows of the indexed axes that it names.
        layout: where these axes are.
    """

    indices: Array
    layout: _Layout


def _upload(array: Array, index: object) -> UploadedIndex | None:
    """Return an index with its indices on the device; None if no part of it is an array of NumPy, or some are not.

    Raises:
        IndexError: as `take_item`.
    """
    if array._context.queue.recording is not None:
        return None
    parts: list[Hashable] = []
    indices: list[object] = []
    part: object
    for part in index if isinstance(index, tuple) else (index,):
        part_type = type(part)
        given: Any = as_array(part) if part_type is list or part_type is range else part
        if type(given) is np.ndarray and given.size and given.ndim and given.dtype.kind in "iu":
            parts.append(given.shape)
            indices.append(given)
        elif type(given) is np.ndarray and given.dtype == np.bool_ and given.any() and given.ndim:
            resolved = np.nonzero(given)
            parts.append((np.bool_, given.shape, len(resolved[0])))
            indices += resolved
        elif part_type is int or isinstance(given, np.integer):
            parts.append(int)
            indices.append(int(given))
        elif part_type is slice:
            parts.append((slice, given.start, given.stop, given.step))
        elif given is None or given is Ellipsis:
            parts.append(given)
        else:
            return None
    try:
        layout, lengths = _layout_of(tuple(parts), array._shape)
    except TypeError:  # a slice has something that cannot be hashed
        return None
    rows: Any = None
    for along, number, length in zip(indices, layout.numbers, lengths, strict=True):
        resolved = check_indices(along, number, length)
        rows = resolved if rows is None else rows * length + resolved
    return UploadedIndex(new_array(array.device, rows.astype(np.uint32)), layout)


@lru_cache(maxsize=256)
def _layout_of(parts: tuple[object, ...], shape: tuple[int, ...]) -> tuple[_Layout, tuple[int, ...]]:
    """Return what an index means that has arrays of indices of some shapes, masks, numbers and slices.

    Returns:
        The layout, and the lengths of the indexed axes.
    """
    given: list[object] = []
    # Of each mask, the number of its true elements.
    counts: dict[int, int] = {}
    for part in parts:
        if part is int:
            given.append(0)
        elif type(part) is tuple and part and part[0] is slice:
            given.append(slice(*part[1:]))
        elif type(part) is tuple and part and part[0] is np.bool_:
            mask = np.broadcast_to(np.False_, part[1])
            counts[id(mask)] = part[2]
            given.append(mask)
        else:
            given.append(np.zeros(part, np.intp) if type(part) is tuple else part)

    def find_indices(mask: AnyArray) -> Sequence[AnyArray]:
        return [np.zeros(counts[id(mask)], np.intp)] * mask.ndim

    index = split_index(parts_of(tuple(given), shape), shape, find_indices)
    lengths = tuple(shape[number] for number in index.numbers)
    check_rows(lengths)
    # Slices have no hash, but a text.
    key = repr(index.view), index.axes, index.numbers, index.axes_before, index.unique
    with _lock:
        return _layouts.find(key) or _layouts.keep(key, _Layout(index)), lengths


def upload_index(given: Arguments) -> Arguments | None:
    """Return the arguments of ``Array.__setitem__`` with the index of NumPy and the values on the device.

    Raises:
        IndexError, ValueError, TypeError, OverflowError: as ``Array.__setitem__`` does.
    """
    array: Array = given["self"]
    index: Any = given.get("index")
    value = given.get("value")
    device, moved = array.device, index
    has_values = type(value) is np.ndarray or type(value) is list
    if is_array_index(index):
        array._check_separate()
        is_whole = type(index) is np.ndarray and index.dtype == np.bool_ and index.shape == array._shape[: index.ndim]
        if is_whole and index.size and not has_values and not isinstance(value, Array):
            moved = new_array(device, index)
        else:
            moved = _upload(array, index)
        if moved is None:
            return None
    if has_values:
        value = new_array(device, elements_of(value, array.dtype))
    return {"self": array, "index": moved, "value": value}


@launchable
def _take_indices(array: Array, index: UploadedIndex) -> Array:
    return Array._of(array.device, take(_view_at_indices(array, index)))


def _view_at_indices(array: Array, index: UploadedIndex) -> IndexedArray:
    indices, layout = index
    return _make_indexed_array(array[layout.view], layout.axes, layout.axes_before, indices)


@launchable
def _take_item(array: Array, index: object) -> Array:
    parts = parts_of(index, array.shape)
    if _is_whole_mask(parts) and isinstance(parts[0], Array):
        return _take_mask(array, parts[0])
    return Array._of(array.device, take(_index_array(array, parts)[0]))


def _is_whole_mask(parts: Sequence[Any]) -> bool:
    """Return True if the index is a mask of the first axes and takes all of the other axes."""
    mask, *rest = parts
    # Slices compare with anything but arrays.
    return is_mask(mask) and bool(mask.shape) and all(isinstance(each, slice) and each == slice(None) for each in rest)


def put_item(array: Array, index: object, value: ArrayLike) -> None:
    """Write values to the elements at an index with arrays; `Array.__setitem__` calls this.

    Raises:
        IndexError: as `take_item`.
        ValueError: the value does not broadcast to the elements.
    """
    if isinstance(index, UploadedIndex):
        indexed = _view_at_indices(array, index)
        put(array.device._executor, indexed, array._values_for(value, indexed.shape), unique=index.layout.unique)
        return
    parts = parts_of(index, array.shape)
    is_number = is_number_parameter(value) or not np.shape(value)
    if _is_whole_mask(parts) and is_number:
        # One number for all, so it does not matter how many elements there are.
        target, number, mask = _bits_of(array), _bits_of(_one(array, value)), parts[0]
        mask = mask.reshape((*mask.shape, *(1 for _ in parts[1:])))
        map_arrays(lambda mask, new, old: np.where(mask, new, old), mask, number, target, out=target)
        return
    indexed, unique = _index_array(array, parts)
    values = array._values_for(value, indexed.shape)
    put(array.device._executor, indexed, values, unique=unique)


def put_picked(array: Array, mask: Array, value: Array) -> bool:
    """Write values where a mask of one axis is True; return False, and write nothing, for other indices and values.

    The call waits once, for the number of elements, and for the number of values if it is not known. So it is no
    program, but the calls that it makes are.

    Raises:
        IndexError, ValueError: as `put_item`.
    """
    if not is_mask(mask) or len(mask.shape) != 1 or (value._knows_length and not value.shape):
        return False
    array._check_separate()
    if mask._shape != array._shape[:1]:
        parts_of(mask, array.shape)  # which raises the error
    _same_device(array, mask)
    nonzero: Any = np.nonzero
    (indices,) = nonzero(mask)
    read_lengths(indices, value)
    _put_at(array, indices, value)
    return True


@launchable
def _put_at(array: Array, indices: Array, value: Array) -> None:
    """Write values to entries of the first axis, at indices that are all different."""
    indexed, _ = _index_array(array, parts_of(indices, array.shape))
    put(array.device._executor, indexed, array._values_for(value, indexed.shape), unique=True)


def _one(array: Array, value: object) -> Array:
    """Return a single number in the dtype of an array."""
    number = new_array(array.device, None, (), array.dtype)
    number._assign(value)
    return number


def _bits_of(array: Array) -> Array:
    """Return the view of numbers as unsigned integers, which every device has in all sizes."""
    bits = np.dtype(f"u{array.dtype.itemsize}")
    return Array(array.device, array.buffer, array.shape, bits, array.offset, array._owner, array._strides)


def _take_mask(array: Array, mask: Array) -> Array:
    """Return the elements where a mask of the first axes is True. Their number stays on the device."""
    _same_device(array, mask)
    rest = array.shape[mask.ndim :]
    if not prod(array.shape):
        picked = int(mask.numpy().sum()) if mask.size and not prod(rest) else 0
        return new_array(array.device, None, (picked, *rest), array.dtype)
    executor = array.device._executor
    compacted = compact_on_device(executor, [array.reshape(-1, *rest)], mask.reshape(-1))
    memory, count = (Array._of(array.device, result) for result in (compacted.entries[0], compacted.count))
    return UnknownLengthArray(memory, array.dtype, rest, count, compacted.known)


def _same_device(array: Array, other: Array) -> None:
    if other.device is not array.device:
        raise ValueError(
            f"an array on {array.device!r} was indexed by one on {other.device!r}, but a call runs where its arrays "
            "are. Bring them together with device.asarray"
        )


def _find_true_indices(array: Array, mask: SomeArray) -> tuple[AnyArray, ...] | list[AnyArray] | list[Array]:
    """Return where a mask is True, as indices along each of its axes. The number of a device's is waited for."""
    if not isinstance(mask, Array):
        return np.nonzero(mask)
    _same_device(array, mask)
    if not mask.size:
        return [np.zeros(0, np.intp) for _ in mask.shape]
    compacted = _compact_indices(mask)
    count = compacted.read_count(mask.size)
    array._context.check()
    return _along_axes(mask, Array._of(array.device, compacted.entries[0]._view_as((count,))))


def _compact_indices(mask: Array) -> Compacted:
    """Return the flat indices at which a mask is True."""
    return compact_on_device(mask.device._executor, [all_indices(mask._context, mask.size)], mask.reshape(-1))


def _along_axes(mask: Array, flat: Array) -> list[Array]:
    """Return flat indices of a mask as indices along each of its axes."""
    if mask.ndim == 1:
        return [flat]
    steps = zip(c_strides(mask.shape, 1), mask.shape, strict=True)
    return [flat // np.uint32(step) % np.uint32(length) for step, length in steps]


def find_true_indices(mask: Array) -> tuple[Array, ...]:
    """Return where a mask is True, as indices along each of its axes. Their number stays on the device."""
    if not mask.size:
        return tuple(new_array(mask.device, None, (0,), np.uint32) for _ in mask.shape)
    compacted = _compact_indices(mask)
    flat, count = Array._of(mask.device, compacted.entries[0]), Array._of(mask.device, compacted.count)
    # The indices after the first `count` are undefined, and so is what is computed from them.
    return tuple(UnknownLengthArray(indices, indices.dtype, (), count) for indices in _along_axes(mask, flat))


def _index_array(array: Array, parts: Sequence[object]) -> tuple[IndexedArray, bool]:
    """Return an array with the flat indices that an index names, and True if no two of these are equal."""
    index = split_index(parts, array.shape, lambda mask: _find_true_indices(array, mask))
    view = array[index.view]
    lengths = tuple(view.shape[axis] for axis in index.axes)
    resolved = _resolve_rows(array, index.indices, index.shape, index.numbers, lengths)
    return _make_indexed_array(view, index.axes, index.axes_before, resolved), index.unique


def _make_indexed_array(
    view: Array, axes: tuple[int, ...], axes_before: int, flat_indices: DeviceArray
) -> IndexedArray:
    """Return an array with some indexed axes. The axes of the indices come after `axes_before` others."""
    rest = [axis for axis in range(view.ndim) if axis not in axes]
    before, after = rest[:axes_before], rest[axes_before:]
    zeros = (0,) * len(flat_indices.shape)

    def around(values: Sequence[int], middle: tuple[int, ...]) -> tuple[int, ...]:
        return (*(values[axis] for axis in before), *middle, *(values[axis] for axis in after))

    return IndexedArray(
        array=view,
        shape=around(view.shape, flat_indices.shape),
        strides=around(view.strides, zeros),
        index_strides=around((0,) * view.ndim, c_strides(flat_indices.shape, 1)),
        rows=tuple((view.shape[axis], view.strides[axis]) for axis in axes),
        flat_indices=flat_indices,
    )


def _resolve_rows(
    array: Array,
    indices: Sequence[AnyArray | OnDevice],
    shape: tuple[int, ...],
    numbers: Sequence[int],
    lengths: tuple[int, ...],
) -> DeviceArray:
    """Return the rows of the indexed axes that indices name.

    Args:
        array: the array that is indexed.
        indices: for each axis its indices. NumPy's are checked before.
        shape: the shape that they broadcast to.
        numbers: the numbers of the axes, for messages.
    """
    context = array._context
    check_rows(lengths)
    in_numpy = [index for index in indices if not isinstance(index, OnDevice)]
    if len(in_numpy) == len(indices):
        return upload_array(context, np.broadcast_to(rows_of(in_numpy, lengths), shape))
    whole = []
    for index in indices:
        if isinstance(index, Array):
            _same_device(array, index)
        given = index if isinstance(index, DeviceArray) else upload_array(context, np.asarray(index).astype(np.uint32))
        whole.append(contiguous(broadcast(given, shape)) if given.shape != shape else given)
    return resolve_indices(context, whole, list(zip(numbers, lengths, strict=True)))


# ----- Along an axis


def take_at(array: Array, indices: object, axis: int) -> Array:
    """Return ``np.take(array, indices, axis)``.

    Raises:
        IndexError: an index is outside the axis.
    """
    given = indices if isinstance(indices, (np.ndarray, Array)) else as_some_array(indices)
    entries: Array = take_item(array, (*[slice(None)] * axis, given if given.shape else given.reshape(1)))
    return entries if given.shape else entries[(*[slice(None)] * axis, 0)]


def take_checked_indices(array: Array, indices: Array, axis: int) -> Array:
    """Return ``np.take(array, indices, axis)`` for indices in 32 bits that are known to be inside the axis."""
    return Array._of(array.device, take(_make_indexed_array(array, (axis,), axis, indices)))


def take_along_axis(array: Array, indices: object, axis: int) -> Array:
    """Return ``np.take_along_axis(array, indices, axis)``.

    Raises:
        IndexError: an index is outside the axis, or the indices are no integers.
        ValueError: the indices have another number of axes, or do not broadcast to the array.
    """
    given, device = as_some_array(indices), array.device
    if given.dtype.kind not in "iu":
        raise IndexError(f"indices of dtype {given.dtype} were passed to np.take_along_axis; pass an array of integers")
    if given.ndim != array.ndim:
        raise ValueError(
            f"indices of shape {given.shape} were passed to np.take_along_axis for an array of shape {array.shape}; "
            "pass an array with as many axes"
        )
    shapes = [(*operand.shape[:axis], 1, *operand.shape[axis + 1 :]) for operand in (array, given)]
    try:
        broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            f"indices of shape {given.shape} were passed to np.take_along_axis for an array of shape {array.shape}, "
            f"but they have to broadcast to each other along all axes but axis {axis}. Reshape the indices"
        ) from None
    length = array.shape[axis]
    checked = check_indices(given, axis, length)
    if not isinstance(checked, Array):
        return _take_along(array, new_array(device, checked.astype(np.uint32)), axis, is_checked=True)
    _same_device(array, checked)
    return _take_along(array, checked, axis, is_checked=False)


@launchable
def _take_along(array: Array, indices: Array, axis: int, is_checked: bool) -> Array:
    """Return ``np.take_along_axis(array, indices, axis)`` for indices on the device, which checks them if needed."""
    length = array.shape[axis]
    common = broadcast_shapes(*[(*operand.shape[:axis], 1, *operand.shape[axis + 1 :]) for operand in (array, indices)])
    whole, shape = (
        (*common[:axis], length, *common[axis + 1 :]),
        (*common[:axis], indices.shape[axis], *common[axis + 1 :]),
    )
    view = broadcast(array, whole)
    indexed = IndexedArray(
        array=view,
        shape=shape,
        strides=tuple(0 if i == axis else step for i, step in enumerate(view.strides)),
        index_strides=tuple(
            0 if n == 1 else s for n, s in zip(indices.shape, c_strides(indices.shape, 1), strict=True)
        ),
        rows=((length, view.strides[axis]),),
        flat_indices=indices
        if is_checked
        else resolve_indices(array._context, [contiguous(indices)], [(axis, length)]),
    )
    return Array._of(array.device, take(indexed))


answer_protocols(take_item=take_item, put_item=put_item, put_picked=put_picked, upload_index=upload_index)
