"""`gpuscan.top_k`, `partition_by`, `quantile` and `median`: some elements, by their order or by a mask."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, Unpack, get_args, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.array_indices import take_checked_indices
from gpuscan.api.call_device import Devices, find_first_device, takes_numpy
from gpuscan.api.compact import check_mask
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable, launchable_with
from gpuscan.api.map import map as map_arrays
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.sort import as_dates, check_keys, sort
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.array_types import AnyDType
from gpuscan.device.device_array import DeviceArray, upload_words
from gpuscan.elements import compute_dtype, scalar_of
from gpuscan.engine.compaction import partition_on_device
from gpuscan.engine.counting import select
from gpuscan.engine.element_copy import contiguous, transpose_elements
from gpuscan.engine.sorting import sort_device, sort_selected
from gpuscan.planning.counting_plan import plan_select
from gpuscan.problem.arguments import (
    as_array,
    as_bits,
    as_flag,
    as_integer,
    check_choice,
    from_bits,
    native,
    resolve_axes,
    structure_and_leaves,
)
from gpuscan.problem.results import assemble_arrays
from gpuscan.reference import sort as reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import Axes, B, Of, QuantileOptions, S, Value
    from gpuscan.array_types import AnyArray


# ----- The first elements of a sort


@overload
def top_k(
    x: Array, k: SupportsIndex, /, *, axis: int = ..., largest: bool = ..., device: Devices = ...
) -> tuple[Array, Array]: ...
@overload
def top_k(
    x: Of[S], k: SupportsIndex, /, *, axis: int = ..., largest: bool = ..., device: Devices = ...
) -> tuple[NDArray[S], NDArray[np.int64]]: ...
@overload
def top_k(
    x: ArrayLike, k: SupportsIndex, /, *, axis: int = ..., largest: bool = ..., device: Devices = ...
) -> tuple[AnyArray, NDArray[np.int64]]: ...
@takes_numpy("x", indices=(1,))
@launchable_with(counts=["k"])
def top_k(
    x: object, k: SupportsIndex, /, *, axis: int = -1, largest: bool = True, device: Devices = None
) -> tuple[SomeArray, SomeArray]:
    """Return the k greatest elements along an axis, the greatest first, and their indices.

    ``values[i] = x[indices[i]]`` with ``indices = argsort(x, descending=largest)[:k]``. Of equal elements, the one with
    the smaller index comes first. NaN comes last in both orders.

    Args:
        x: an array of a dtype that `gpuscan.sort` takes.
        k: the number of elements, from 0 to the length of the axis.
        axis: the axis (default: the last one).
        largest: False for the k least elements, the least first.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        A pair ``(values, indices)``, in the shape of `x`, but with k elements along the axis. Indices are int64 for a
        NumPy array, and uint32 for a `gpuscan.Array`.

    Raises:
        ValueError: there is no such axis, or `k` is negative or exceeds its length.
        TypeError: the dtype has no order, or `k` is no integer.
        DeviceMemoryError: the array is larger than one buffer binding of the device.

    For small `k`, a radix select finds the k elements, and only these are sorted (Alabi et al., "Fast k-selection
    algorithms for graphics processing units", 2012).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> values, indices = gs.top_k(np.array([3, 1, 4, 1, 5], np.int32), 2)
        >>> values, indices
        (array([5, 4], dtype=int32), array([4, 2]))
    """
    as_flag("largest", largest)
    count = as_integer(k)
    if count is None:
        raise TypeError(f"k={k!r} was passed, but it is a number of elements; pass an integer")
    leaf = as_some_array(x)
    call_device = find_first_device((leaf,), device)
    keys, resolved_axis, _, dates = check_keys(
        leaf, axis, largest, True, "numpy" if call_device is None else call_device, "searched for its first elements"
    )
    length = keys.shape[resolved_axis]
    if not 0 <= count <= length:
        raise ValueError(
            f"k={k} was passed for an axis of length {length}; pass a number of elements from 0 to {length}"
        )
    descending = bool(largest)
    if call_device is None:
        order = reference.argsort(np.asarray(keys), resolved_axis, descending)[
            (*[slice(None)] * resolved_axis, slice(count))
        ]
        values = np.take_along_axis(native(np.asarray(keys)), order, resolved_axis)
        return values if dates is None else as_dates(values, dates, descending), order
    top, indices = _first_keys(call_device, call_device.asarray(keys), resolved_axis, count, descending)
    if isinstance(keys, Array):
        return top, indices
    values = top.numpy()
    values = values if dates is None else as_dates(values, dates, descending)
    return values, indices.numpy().astype(np.int64)


def _first_keys(device: Device, keys: Array, axis: int, k: int, descending: bool) -> tuple[Array, Array]:
    """Return the first keys along an axis, in order, and their indices."""
    shape, dtype, length = keys.shape, keys.dtype, keys.shape[axis]
    result = (*shape[:axis], k, *shape[axis + 1 :])
    if not prod(result):
        return new_array(device, None, result, dtype), new_array(device, None, result, np.uint32)
    executor, scalar = device._executor, scalar_of(dtype)
    plan = plan_select(scalar, length, k, device.capabilities)
    if plan is None:
        sorted_keys = sort_device(executor, keys, axis, descending=descending, with_indices=True)
        first = (*[slice(None)] * axis, slice(k))
        return Array._of(device, sorted_keys.keys)[first].copy(), Array._of(device, sorted_keys.payload)[first].copy()
    inner = prod(shape[axis + 1 :])
    rows = transpose_elements(contiguous(keys), length, inner, dtype.itemsize)
    count = keys.size // length
    words, indices = select(rows, count, k, plan, descending=descending)
    ordered = sort_selected(executor, words, dtype, k, indices, descending=descending)
    results = []
    for array, result_dtype in ((ordered.keys, dtype), (ordered.payload, np.dtype(np.uint32))):
        moved = transpose_elements(array._view_as(result, result_dtype), inner, k, result_dtype.itemsize)
        results.append(Array._of(device, moved))
    return results[0], results[1]


# ----- Partitions


@overload
def partition_by(x: Array, mask: ArrayLike, /, *, device: Devices = ...) -> tuple[Array, Array]: ...
@overload
def partition_by(x: ArrayLike, mask: Array, /, *, device: Devices = ...) -> tuple[Array, Array]: ...
@overload
def partition_by(x: Of[S], mask: ArrayLike, /, *, device: Devices = ...) -> tuple[NDArray[S], NDArray[S]]: ...
@overload
def partition_by(x: B, mask: ArrayLike, /, *, device: Devices = ...) -> tuple[B, B]: ...
@overload
def partition_by(x: ArrayLike, mask: ArrayLike, /, *, device: Devices = ...) -> tuple[AnyArray, AnyArray]: ...
@takes_numpy("x", "mask")
@launchable_with(data=["mask"])
def partition_by(x: object, mask: object, /, *, device: Devices = None) -> tuple[object, object]:
    """Return the entries for which a mask is True, and the others: ``(x[mask], x[~mask])``, each in their order.

    One pass scans the mask and stores the entries, as in `gpuscan.compact`.

    Args:
        x: an array of shape (n, …): a NumPy array or a `gpuscan.Array`; or a bundle of arrays of one length. NumPy
            arrays may also hold dates, durations or complex128.
        mask: an array of bools of shape (n,).
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        Two arrays like `x`, or two bundles like `x`. On a device, the call does not wait for their lengths; reading
        ``.shape`` waits.

    Raises:
        ValueError: mask and array differ in length, or the mask has several axes.
        TypeError: the mask is not bool.
        GpuscanError: the entries are larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 1, 4, 1, 5], np.int32)
        >>> gs.partition_by(x, x > 2)
        (array([3, 4, 5], dtype=int32), array([1, 1], dtype=int32))
    """
    if callable(mask):
        raise TypeError(
            "a function was passed as mask, which gpuscan.compact takes, but partition_by takes bools. Pass "
            "gpuscan.map(mask, x)"
        )
    structure, leaves_given = structure_and_leaves(x, only_moved=True)
    given = [as_some_array(leaf) for leaf in leaves_given]
    chosen = as_some_array(mask)
    check_mask(chosen, [leaf.shape for leaf in given])
    call_device = find_first_device((*given, chosen), device)
    on_device = any(isinstance(operand, Array) for operand in (*given, chosen))
    if call_device is None:
        parts = [[leaf[pick] for leaf in given] for pick in (chosen, ~chosen)]
        return assemble_arrays(structure, parts[0], x), assemble_arrays(structure, parts[1], x)
    leaves = [leaf if on_device else as_bits(leaf) for leaf in given]
    arrays = [call_device.asarray(leaf) for leaf in leaves]
    parted = partition_on_device(call_device._executor, arrays, call_device.asarray(chosen))
    sides = []
    for entries, count in ((parted.entries, parted.count), (parted.others, parted.others_count)):
        length = Array._of(call_device, count)
        sides.append(
            [
                UnknownLengthArray(Array._of(call_device, memory), array.dtype, array.shape[1:], length)
                for memory, array in zip(entries, arrays, strict=True)
            ]
        )
    if on_device:
        return structure.build_bundle(sides[0]), structure.build_bundle(sides[1])
    moved = [[from_bits(a.numpy(), leaf.dtype) for a, leaf in zip(side, given, strict=True)] for side in sides]
    return assemble_arrays(structure, moved[0], x), assemble_arrays(structure, moved[1], x)


# ----- Quantiles

# NumPy's names of its methods.
QuantileMethod: TypeAlias = Literal[
    "linear",
    "midpoint",
    "averaged_inverted_cdf",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "median_unbiased",
    "normal_unbiased",
    "lower",
    "higher",
    "nearest",
    "inverted_cdf",
    "closest_observation",
]
_METHODS: tuple[str, ...] = get_args(QuantileMethod)
# For each method that interpolates, what Hyndman and Fan (1996) call alpha and beta.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
# The methods that return an element.
_DISCRETE = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")


@overload
def quantile(
    x: Array, q: ArrayLike, /, *, axis: Axes = ..., method: QuantileMethod = ..., **options: Unpack[QuantileOptions]
) -> Array: ...
@overload
def quantile(
    x: ArrayLike,
    q: AnyArray | Sequence[float],
    /,
    *,
    axis: Axes = ...,
    method: QuantileMethod = ...,
    **options: Unpack[QuantileOptions],
) -> AnyArray: ...
@overload
def quantile(
    x: ArrayLike, q: ArrayLike, /, *, axis: Axes = ..., method: QuantileMethod = ..., **options: Unpack[QuantileOptions]
) -> Any: ...
def quantile(
    x: object,
    q: Any,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    method: QuantileMethod = "linear",
    keepdims: bool = False,
    device: Devices = None,
) -> object:
    """Return exact quantiles of an array along an axis, as `numpy.quantile` does.

    With n elements along the axis, sorted into s, ``method="linear"`` gives ``s[i] + (s[i+1] - s[i]) * g``. Here i is
    the integer part of ``(n - 1) * q``, and g its fractional part. If a row has a NaN, its quantiles are NaN.

    Args:
        x: an array of integers or floats.
        q: numbers from 0 to 1, of any shape.
        axis: the axis, or several (default: all elements together).
        method: one of NumPy's methods, as in `numpy.quantile`.
        keepdims: True to keep the axes with length 1.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        An array with the axes of `q`, followed by the other axes of `x`. For NumPy arrays it has NumPy's values in
        NumPy's dtype. For a `gpuscan.Array` it has the dtype of `x` if this is a float, or if the method returns an
        element. Otherwise it is float64, or float32 on an adapter without 64-bit floats.

    Raises:
        ValueError: a number is outside [0, 1], or the method has another name.
        IndexError: the axis has no elements.
        TypeError: `x` holds bools or complex numbers.
        DeviceMemoryError: the array is larger than one buffer binding of the device.

    The axis is sorted, and the elements next to each quantile are interpolated.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([[10, 7, 4], [3, 2, 1]], np.float32)
        >>> gs.quantile(x, 0.5, axis=0)
        array([6.5, 4.5, 2.5], dtype=float32)
    """
    keepdims = as_flag("keepdims", keepdims)
    check_choice("method", method, _METHODS)
    array = as_some_array(x)
    wanted = as_array(q)
    if wanted.dtype.kind not in "fiu" or (wanted.size and not (wanted.min() >= 0 and wanted.max() <= 1)):
        raise ValueError(f"q={q!r} was passed, but quantiles are numbers from 0 to 1")
    if array.dtype.kind == "b" or scalar_of(array.dtype).kind in ("bool", "complex"):
        raise TypeError(
            f"quantiles of an array of dtype {array.dtype} were asked for, but quantiles are of integers or floats. "
            "Convert it: x.astype(np.float32)"
        )
    call_device = find_first_device((array,), device)
    if call_device is None:
        points = wanted if wanted.ndim else q
        result = np.quantile(array, points, axis=axis, method=method, keepdims=keepdims)
        return _with_nan_of_rows(array, result, axis, keepdims)
    axes = resolve_axes(axis, array.shape)
    length = prod([array.shape[i] for i in axes])
    if not length:
        raise IndexError(
            f"quantiles of an array of shape {array.shape} were asked for, but the axis has no elements. Pass an array "
            "with elements, or another axis"
        )
    weak = not wanted.ndim and not isinstance(q, (np.ndarray, np.generic))
    # As in NumPy, the first and the last element need no interpolation if integers ask for them.
    whole = wanted.dtype.kind in "iu"
    chosen = "lower" if method == "linear" and whole else method
    # The indices depend on the length, so they are parameters of a program for all lengths.
    indices, weight = _indices_around(wanted.dtype, wanted.tobytes(), length, chosen)
    if isinstance(array, Array):
        return _quantiles_on_device(array, indices, weight, weak, axes, keepdims, wanted.shape)
    rows, kept_shape = _rows_along(array, axes)
    alone = bool((indices[: indices.size // 2] == indices[indices.size // 2 : -1]).all())
    result = _interpolate(call_device, rows, indices, weight, weak, alone=alone)
    result = result.reshape((*wanted.shape, *(kept_shape if keepdims else rows.shape[:-1])))
    return result if result.shape else result[()]


@overload
def median(x: Array, /, *, axis: Axes = ..., **options: Unpack[QuantileOptions]) -> Array: ...
@overload
def median(x: ArrayLike, /, *, axis: Axes = ..., **options: Unpack[QuantileOptions]) -> Any: ...
@launchable
def median(
    x: object, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, device: Devices = None
) -> object:
    """Return the exact median of an array along an axis, as `numpy.median` does.

    With n elements along the axis, sorted into s, the median is ``s[(n-1)/2]`` for odd n, and
    ``(s[n/2-1] + s[n/2]) / 2`` for even n. If a row has a NaN, its median is NaN.

    Args:
        x: an array of bools, integers or floats.
        axis: the axis, or several (default: all elements together).
        keepdims: True to keep the axes with length 1.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        An array with the other axes of `x`, and the dtype that `gpuscan.quantile` returns.

    Raises:
        TypeError: `x` holds complex numbers.
        DeviceMemoryError: the array is larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> float(gs.median(np.array([3, 1, 4, 1], np.float32)))
        2.0
    """
    keepdims = as_flag("keepdims", keepdims)
    array = as_some_array(x)
    if scalar_of(array.dtype).kind == "complex":
        raise TypeError(
            f"the median of numbers of dtype {array.dtype} was asked for, but complex numbers have no order. Pass "
            "their real parts or their absolute values"
        )
    call_device = find_first_device((array,), device)
    rows, kept_shape = _rows_along(array, resolve_axes(axis, array.shape))
    length = rows.shape[-1]
    if call_device is None or (not length and not isinstance(array, Array)):
        result = np.median(array, axis=axis, keepdims=keepdims)
        return _with_nan_of_rows(array, result, axis, keepdims)
    if rows.dtype == np.bool_:
        rows = rows.astype(np.uint8)
    if not length:
        nothing = np.full(kept_shape if keepdims else rows.shape[:-1], np.nan, _float_dtype(call_device, rows.dtype))
        return new_array(call_device, nothing)
    numbers = (length - 1) // 2, length // 2, length - 1
    # For arrays on the device, calls of other lengths upload other indices.
    indices = upload_words(rows._context, numbers) if isinstance(rows, Array) else np.array(numbers)
    result = _interpolate(call_device, rows, indices, None, True, alone=numbers[0] == numbers[1])
    result = result.reshape(kept_shape if keepdims else rows.shape[:-1])
    return result if isinstance(result, Array) or result.shape else result[()]


def _with_nan_of_rows(array: Any, result: Any, axis: object, keepdims: bool) -> object:
    """Return what NumPy finds, with NaN for rows that hold one. In bfloat16, which is not its own, NumPy finds none."""
    if array.dtype.name != "bfloat16":
        return result
    holds_nan = np.isnan(array).any(axis=axis, keepdims=keepdims)
    return np.where(holds_nan, result.dtype.type(np.nan), result)[()]


def _rows_along(array: SomeArray, chosen: tuple[int, ...]) -> tuple[SomeArray, tuple[int, ...]]:
    """Return an array with some axes joined to its last one, and its shape with length 1 along these axes."""
    if len(chosen) == array.ndim and chosen == tuple(range(array.ndim)):
        return array.reshape(-1), (1,) * array.ndim
    rest = [i for i in range(array.ndim) if i not in chosen]
    moved = array.transpose((*rest, *chosen))
    shape = tuple(array.shape[i] for i in rest)
    rows = moved.reshape((*shape, prod(array.shape[i] for i in chosen)))
    return rows, tuple(1 if i in chosen else n for i, n in enumerate(array.shape))


@lru_cache(maxsize=256)
def _indices_around(dtype: AnyDType, content: bytes, n: int, method: str) -> tuple[AnyArray, AnyArray | int]:
    """Return the indices and weights of quantiles, as `_interpolate` takes them.

    Args:
        dtype, content: the quantiles.
        n: the number of elements.
        method: how to find them.
    """
    q = np.frombuffer(content, dtype)
    before, after, weight = _neighbour_indices(q if dtype.kind == "f" else q.astype(np.float64), n, method)
    return np.concatenate([before, after, [n - 1]]).astype(np.uint32), weight


def _neighbour_indices(q: AnyArray, n: int, method: str) -> tuple[AnyArray, AnyArray, AnyArray | int]:
    """Return for each quantile the indices before and after it, and the weight of the second; 0 for elements."""
    if method == "lower":
        at = np.floor((n - 1) * q)
    elif method == "higher":
        at = np.ceil((n - 1) * q)
    elif method == "nearest":
        at = np.around((n - 1) * q)
    elif method in ("inverted_cdf", "closest_observation"):
        index = n * q - 1 - (0.5 if method == "closest_observation" else 0.0)
        whole = np.floor(index)
        stays = index == whole
        if method == "closest_observation":
            stays &= whole % 2 == 1
        at = np.maximum(np.where(stays, whole, whole + 1), 0)
    if method in _DISCRETE:
        indices = at.astype(np.int64)
        return indices, indices, 0
    if method == "linear":
        index = (n - 1) * q
    elif method == "midpoint":
        index = 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q))
    elif method == "averaged_inverted_cdf":
        index = n * q - 1
    else:
        alpha, beta = _CONTINUOUS[method]
        index = n * q + (alpha + q * (1 - alpha - beta)) - 1
    before = np.floor(index)
    after = before + 1
    above, below = index >= n - 1, index < 0
    before, after = (
        np.where(above, n - 1, np.where(below, 0, position)).astype(np.int64) for position in (before, after)
    )
    # NumPy computes the weights from these indices, where the last one is -1.
    weight = index - np.where(above, -1, before)
    if method == "midpoint":
        weight = np.where(index % 1 == 0, 0.0, 0.5)
    elif method == "averaged_inverted_cdf":
        weight = np.where(weight == 0, 0.5, 1.0)
    return before, after, weight.astype(index.dtype, copy=False)


def _interpolate(device: OpenedDevice, rows: SomeArray, indices: Any, weight: Any, weak: bool, *, alone: bool) -> Any:
    """Return quantiles of rows, of shape (quantiles, *rows): like the rows in NumPy, or on the device.

    Args:
        rows: an array with the rows along its last axis.
        indices: for each quantile the index of an element, then for each the index of another, then the last index; in
            NumPy, parameters, or on the device.
        weight: for each quantile the weight of the second; 0 for an element, and None for the mean of both.
        weak: True if the weights are Python numbers, which have no dtype.
        alone: True if it is known that the two indices of each quantile are equal.
    """
    on_device = isinstance(rows, Array)
    if not isinstance(indices, DeviceArray):
        indices = indices.astype(np.dtype(np.uint32))
    neighbours: Any = _sort_and_take(rows, indices, device=device)
    count = prod(indices.shape) // 2
    neighbours = neighbours.transpose((neighbours.ndim - 1, *range(neighbours.ndim - 1)))
    first, last = neighbours[:count], neighbours[2 * count :]
    second = first if alone else neighbours[count : 2 * count]
    if isinstance(weight, int):
        return _with_nan(first, last)
    if not on_device:
        return _by_numpy(first, second, last, weight, weak)
    dtype = _float_dtype(device, rows.dtype)
    wide = compute_dtype(scalar_of(dtype))
    first, second, last = (elements.astype(wide, copy=False) for elements in (first, second, last))
    if weight is None:
        result = _with_nan(first, last) if alone else map_arrays(_mean_of_two, first, second, last)
    else:
        weights = new_array(device, weight.astype(wide)).reshape(count, *[1] * (first.ndim - 1))
        result = map_arrays(_between, first, second, last, weights)
    return result.astype(dtype, copy=False)


@launchable_with("indices", "weight", data=["indices", "weight"], counts=["lead"])
def _quantiles_on_device(
    array: Array,
    indices: Any,
    weight: Any,
    weak: bool,
    axes: tuple[int, ...],
    keepdims: bool,
    lead: tuple[int, ...],
) -> Array:
    """Return the quantiles of an array on a device along some axes. It is one program for all quantiles and lengths.

    Args:
        indices, weight, weak: as in `_interpolate`.
        keepdims: as in `quantile`.
        lead: the shape of the quantiles.
    """
    rows, kept_shape = _rows_along(array, axes)
    result: Array = _interpolate(array.device, rows, indices, weight, weak, alone=False)
    return result.reshape((*lead, *(kept_shape if keepdims else rows.shape[:-1])))


@takes_numpy("rows")
@launchable_with("indices")
def _sort_and_take(rows: SomeArray, indices: Any, *, device: OpenedDevice | None = None) -> SomeArray:
    """Return the elements of rows at these indices once the rows are sorted, where the rows are.

    Args:
        rows: an array with the rows along its last axis.
        device: the device to sort rows of NumPy on.
    """
    device = rows.device if isinstance(rows, Array) else device
    assert device is not None
    ordered = sort(rows if isinstance(rows, Array) else new_array(device, rows), axis=-1)
    uploaded = Array._of(device, indices) if isinstance(indices, DeviceArray) else new_array(device, indices)
    found = take_checked_indices(ordered, uploaded, ordered.ndim - 1)
    return found if isinstance(rows, Array) else found.numpy()


def _with_nan(result: SomeArray, last: SomeArray) -> SomeArray:
    """Return elements, or NaN where the last element of the row is NaN."""
    if scalar_of(result.dtype).kind != "float":
        return result
    if isinstance(result, Array):
        return map_arrays(lambda result, last: np.where(last != last, last, result), result, last)
    return np.where(last != last, last, result)


def _by_numpy(first: AnyArray, second: AnyArray, last: AnyArray, weight: AnyArray | None, weak: bool) -> SomeArray:
    """Return what `_interpolate` returns, as NumPy computes it."""
    with np.errstate(invalid="ignore", over="ignore"):
        if weight is None:
            pair = first[None] if first is second else np.stack([first, second])
            return _with_nan(np.mean(pair, axis=0), last)
        shaped = float(weight[0]) if weak else weight.reshape((len(weight), *[1] * (first.ndim - 1)))
        step = second - first
        result = np.asarray(first + step * shaped)
        np.subtract(second, step * (1 - shaped), out=result, where=np.asarray(shaped) >= 0.5, casting="unsafe")
        return _with_nan(result, last)


def _float_dtype(device: OpenedDevice, dtype: AnyDType) -> AnyDType:
    """Return the dtype of numbers between elements of a dtype, on a device."""
    if scalar_of(dtype).kind == "float":
        return dtype
    return np.dtype(np.float64 if device.capabilities.float64 else np.float32)


def _mean_of_two(first: Value, second: Value, last: Value) -> object:
    return np.where(last != last, last, (first + second) / 2)


def _between(first: Value, second: Value, last: Value, weight: Value) -> object:
    """Return a number between two, as `numpy.quantile` computes it."""
    step = second - first
    near = np.where(weight >= 0.5, second - step * (1 - weight), first + step * weight)
    return np.where(last != last, last, near)
