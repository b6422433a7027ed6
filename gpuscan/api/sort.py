"""`gpuscan.sort`, `argsort` and `sort_by_key`: stable sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.array_indices import take_along_axis, take_at
from gpuscan.api.call_device import find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.host_cuts import upload_sort_cuts
from gpuscan.api.launches import launchable_with
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyDType
from gpuscan.elements import scalar_of
from gpuscan.engine.compaction import KEEP_LEFT, all_indices, entry_bytes
from gpuscan.engine.element_copy import contiguous
from gpuscan.engine.permutations import Permutation
from gpuscan.engine.sorting import sort_device
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.problem.arguments import (
    as_bits,
    as_flag,
    as_numpy_arrays,
    from_bits,
    native,
    resolve_axis,
    structure_and_leaves,
)
from gpuscan.problem.results import assemble_arrays
from gpuscan.reference import sort as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import Of, S, Several, SortOptions, T
    from gpuscan.array_types import AnyArray


@overload
def sort(x: Array, *, segments: ArrayLike | None = ..., **options: Unpack[SortOptions]) -> Array: ...
@overload
def sort(x: ArrayLike, *, segments: Array, **options: Unpack[SortOptions]) -> Array: ...
@overload
def sort(x: Of[S], *, segments: ArrayLike | None = ..., **options: Unpack[SortOptions]) -> NDArray[S]: ...
@overload
def sort(x: ArrayLike, *, segments: ArrayLike | None = ..., **options: Unpack[SortOptions]) -> AnyArray: ...
@takes_numpy("x")
@launchable_with(upload=upload_sort_cuts)
def sort(
    x: object,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    segments: ArrayLike | None = None,
    device: Device | str | int | None = None,
) -> object:
    """Return a copy of an array that is sorted along an axis.

    ``y[i] = x[p[i]]`` with ``p = argsort(x)``, so that ``y[i] <= y[i+1]``, or ``y[i] >= y[i+1]`` if `descending` is
    True. Equal elements keep their order, and 0.0 equals -0.0. NaN comes last in both orders.

    Args:
        x: an array of `bool`, integers or floats, in any memory order, or a `gpuscan.Array`. NumPy arrays may also hold
            dates and durations; NaT comes last, as NaN does.
        axis: the axis to sort along (default: the last one); None to sort all elements as one row.
        descending: True to put the greatest element first.
        stable: accepted because the array API standard has it. Every sort is stable.
        segments: offsets along the axis, as in `gpuscan.scan`: the first is 0, the last is the length of the axis, and
            they never decrease. Each segment is sorted by itself. All rows have the same segments.
        device: as in `gpuscan.scan`.

    Returns:
        An array like `x`, in C order; a `gpuscan.Array` if `x` is one.

    Raises:
        ValueError: there is no such axis, or the segments are wrong.
        TypeError: `x` is a bundle, or its dtype is not bool, an integer or a float.
        DeviceMemoryError: the array is larger than one buffer binding of the device.
        AdapterNotFoundError: no adapter matches `device`.

    Floats are compared by their bits, so float64 is sorted on adapters without 64-bit floats, too. Rows that fit into
    workgroup memory are sorted there by a bitonic sort (Batcher, "Sorting networks and their applications", 1968).
    Longer rows are sorted by a radix sort, least significant digit first, in three dispatches for each digit (Satish,
    Harris & Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009). If ``GPUSCAN_STRATEGY`` is
    ``lookback`` or ``fallback``, each digit takes a single pass (Adinets & Merrill, "Onesweep", 2022).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.sort(np.array([3, 1, 4, 1, 5], np.int32), descending=True)
        array([5, 4, 3, 1, 1], dtype=int32)
        >>> gs.sort(np.array([3, 1, 4, 1, 5], np.int32), segments=[0, 3, 5])
        array([1, 3, 4, 1, 5], dtype=int32)
    """
    keys, resolved_axis, call_device, dates = check_keys(
        x, axis, descending, stable, device, "sorted", _arrays_of(segments)
    )
    if call_device is None:
        order = _order_in_numpy(keys, resolved_axis, bool(descending), segments)
        sorted_keys = np.take_along_axis(native(np.asarray(keys)), order, resolved_axis)
    else:
        given = call_device.asarray(keys)
        if segments is None:
            ordered = Array._of(
                call_device, sort_device(call_device._executor, given, resolved_axis, descending=bool(descending)).keys
            )
        else:
            ordered = take_along_axis(
                given, _order_on_device(call_device, given, resolved_axis, bool(descending), segments), resolved_axis
            )
        if isinstance(keys, Array) or isinstance(segments, Array):
            return ordered
        sorted_keys = ordered.numpy()
    return sorted_keys if dates is None else as_dates(sorted_keys, dates, descending)


@overload
def argsort(x: Array, *, segments: ArrayLike | None = ..., **options: Unpack[SortOptions]) -> Array: ...
@overload
def argsort(x: ArrayLike, *, segments: Array, **options: Unpack[SortOptions]) -> Array: ...
@overload
def argsort(x: ArrayLike, *, segments: ArrayLike | None = ..., **options: Unpack[SortOptions]) -> NDArray[np.int64]: ...
@takes_numpy("x", indices=(0,))
@launchable_with(upload=upload_sort_cuts)
def argsort(
    x: object,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    segments: ArrayLike | None = None,
    device: Device | str | int | None = None,
) -> object:
    """Return the indices that sort an array along an axis: ``x[p]`` is ``sort(x)`` for the result p of a 1-D array.

    The indices of equal elements are in ascending order, in descending sorts as well.

    Args:
        x, axis, descending, stable, segments, device: as in `gpuscan.sort`.

    Returns:
        Indices along the axis, in the shape of `x`: int64 for a NumPy array, and a `gpuscan.Array` of uint32 for a
        `gpuscan.Array`.

    Raises:
        ValueError, TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.argsort(np.array([3, 1, 4, 1, 5], np.int32))
        array([1, 3, 0, 2, 4])
    """
    keys, resolved_axis, call_device, _ = check_keys(
        x, axis, descending, stable, device, "sorted", _arrays_of(segments)
    )
    if call_device is None:
        return _order_in_numpy(keys, resolved_axis, bool(descending), segments)
    order = _order_on_device(call_device, call_device.asarray(keys), resolved_axis, bool(descending), segments)
    return order if isinstance(keys, Array) or isinstance(segments, Array) else order.numpy().astype(np.int64)


@overload
def sort_by_key(keys: Array, values: Array | AnyArray, *, descending: bool = ...) -> tuple[Array, Array]: ...
@overload
def sort_by_key(keys: ArrayLike, values: Array, *, descending: bool = ...) -> tuple[Array, Array]: ...
@overload
def sort_by_key(keys: Of[S], values: Of[T], *, descending: bool = ...) -> tuple[NDArray[S], NDArray[T]]: ...
@overload
def sort_by_key(keys: ArrayLike, values: Several, *, descending: bool = ...) -> tuple[Any, Any]: ...
@overload
def sort_by_key(keys: ArrayLike, values: ArrayLike, *, descending: bool = ...) -> tuple[AnyArray, AnyArray]: ...
@takes_numpy("keys", "values")
@launchable_with(data=["keys", "values"])
def sort_by_key(keys: object, values: object, *, descending: bool = False) -> tuple[object, object]:
    """Sort keys, and move values along with them: ``(keys[p], values[p])`` with ``p = argsort(keys)``.

    The sort is stable, as `gpuscan.sort` is, and orders the keys in the same way.

    Args:
        keys: an array of shape (n,) of `bool`, integers or floats: a NumPy array or a `gpuscan.Array`. If no array is
            on a device, also dates or durations.
        values: an array of shape (n, …) of any element type, or a bundle of such arrays. Their entries along the first
            axis are moved. If no array is on a device, also dates, durations or complex128.
        descending: True to put the greatest key first.

    Returns:
        A pair ``(keys, values)``, sorted. They are on the device if any of the arrays is.

    Raises:
        ValueError: the keys have several axes, or keys and values differ in length.
        TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> keys, names = gs.sort_by_key(np.array([2, 0, 1], np.uint8), np.array([20, 0, 10], np.int16))
        >>> names
        array([ 0, 10, 20], dtype=int16)
    """
    structure, leaves = structure_and_leaves(values, only_moved=True)
    given, resolved_axis, device, dates = check_keys(keys, 0, descending, True, None, "sorted by", leaves)
    if given.ndim != 1:
        raise ValueError(
            f"keys of shape {given.shape} were passed; pass one key for each entry of the values' first axis, as a 1-D "
            "array"
        )
    for leaf in leaves:
        if leaf.shape[:1] != given.shape:
            raise ValueError(
                f"{len(given)} keys were passed for values of shape {leaf.shape}; pass one key for each entry of the "
                "first axis"
            )
    if device is not None and any(isinstance(array, Array) for array in (given, *leaves)):
        if dates is not None:
            scalar_of(dates)  # The error for dates on a device.
        arrays = [device.asarray(leaf) for leaf in leaves]
        moved_keys, results = _move_entries(device, device.asarray(given), arrays, bool(descending))
        return moved_keys, assemble_arrays(structure, results, values)
    keys_and_values = as_numpy_arrays([given, *leaves])
    order = (
        reference.argsort(keys_and_values[0], resolved_axis, bool(descending))
        if device is None
        else argsort(keys_and_values[0], descending=descending, device=device)
    )
    sorted_keys, *moved = (native(a[order]) for a in keys_and_values)
    in_order = sorted_keys if dates is None else as_dates(sorted_keys, dates, descending)
    return in_order, assemble_arrays(structure, moved, values)


def _arrays_of(segments: object) -> list[Array]:
    """Return the offsets if they are on a device, so that the keys have to be there as well."""
    return [segments] if isinstance(segments, Array) else []


def _order_in_numpy(keys: SomeArray, axis: int, descending: bool, segments: ArrayLike | None) -> AnyArray:
    """Return the indices that sort NumPy keys along an axis, or each segment of it.

    Keys are sorted as if there were no segments. A second stable sort then brings the keys of each segment together.
    """
    order = reference.argsort(np.asarray(keys), axis, descending)
    if segments is None:
        return order
    indices = np.arange(keys.shape[axis], dtype=np.uint32)
    starts = scan(indices, KEEP_LEFT, axis=0, segments=segments, device="numpy")
    return np.take_along_axis(order, reference.argsort(starts[order], axis, False), axis)


def _order_on_device(device: Device, keys: Array, axis: int, descending: bool, segments: ArrayLike | None) -> Array:
    """Return the same as `_order_in_numpy` on the device."""

    def order_of(keys: Array, descending: bool) -> Array:
        ordered = sort_device(device._executor, keys, axis, descending=descending, with_keys=False, with_indices=True)
        return Array._of(device, ordered.payload)

    if segments is None:
        return order_of(keys, descending)
    length = keys.shape[axis]
    indices = (
        Array._of(device, all_indices(device._context, length)) if length else new_array(device, None, (0,), np.uint32)
    )
    firsts = scan(indices, KEEP_LEFT, axis=0, segments=segments)
    order = order_of(keys, descending)
    return take_along_axis(order, order_of(take_at(firsts, order, 0), False), axis) if order.size else order


def _move_entries(device: Device, keys: Array, leaves: list[Array], descending: bool) -> tuple[Array, list[Array]]:
    """Return the keys in order, and the entries of the arrays that belong to them, on the device."""
    executor = device._executor
    for leaf in leaves:
        leaf._check("STORAGE")
    entries = [contiguous(leaf) for leaf in leaves]
    if len(leaves) == 1 and entry_bytes(leaves[0]) == 4:
        ordered = sort_device(executor, keys, 0, descending=descending, words=entries[0])
        moved = [ordered.payload._view_as(leaves[0].shape, leaves[0].dtype)]
    else:
        ordered = sort_device(executor, keys, 0, descending=descending, with_indices=True)
        order = Permutation(device._context, ordered.payload)
        moved = [order.apply(leaf) for leaf in entries]
    return Array._of(device, ordered.keys), [Array._of(device, array) for array in moved]


def check_keys(
    x: object,
    axis: int | None,
    descending: object,
    stable: object,
    device: Device | str | int | None,
    what: str,
    moved: Sequence[object] | None = None,
) -> tuple[SomeArray, int, Device | None, AnyDType | None]:
    """Return the keys as one array of numbers, the axis counted from 0, the device or None, and the dtype of dates.

    Args:
        x, axis, descending, stable, device: as in `sort`.
        what: what is done with the keys, for messages: ``"sorted"`` or ``"sorted by"``.
        moved: the arrays that are moved along with the keys, which must be on the same device.

    Raises:
        ValueError, TypeError: as `sort`.
    """
    as_flag("descending", descending)
    as_flag("stable", stable)
    structure, leaves = structure_and_leaves(x, only_moved=True)
    if structure.container != "leaf":
        raise TypeError(
            f"a bundle of {structure.leaf_count} arrays was to be {what}, but keys are one array. Pass that array, and "
            "move others along with it by gs.sort_by_key"
        )
    keys = as_some_array(leaves[0])
    if not keys.shape:
        raise np.exceptions.AxisError(
            f"an array of shape () was to be {what}, which has no axis. Pass x[np.newaxis] for a single element"
        )
    dates = None
    if keys.dtype.kind in "mM":
        dates, keys = keys.dtype.newbyteorder("="), as_numbers(keys, descending)
    if keys.dtype.kind == "c" or scalar_of(keys.dtype).kind == "complex":
        raise UnsupportedDtypeError(
            f"an array of dtype {keys.dtype} was to be {what}, but complex numbers have no order. Pass their real "
            "part or their absolute values as keys"
        )
    if axis is None:
        keys, axis = keys.reshape(-1), 0
    call_device = find_call_device((keys, *(moved or ())), device)
    return keys, resolve_axis(axis, keys.shape), call_device, dates


# NaT is the least of the numbers behind dates, which puts it last in descending order. One less than it wraps to the
# greatest number, which is last in ascending order.


def as_numbers(dates: SomeArray, descending: object) -> SomeArray:
    """Return numbers in the order of dates or durations, with NaT last."""
    numbers = as_bits(dates)
    return numbers if descending else numbers - np.int64(1)


def as_dates(numbers: AnyArray, dtype: AnyDType, descending: object) -> AnyArray:
    """Return the dates that `as_numbers` made numbers of."""
    return from_bits(numbers if descending else numbers + np.int64(1), dtype)
