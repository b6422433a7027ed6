"""`gpuscan.bincount`, `histogram` and `searchsorted`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, get_args, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.array_indices import take_at
from gpuscan.api.call_device import Devices, find_first_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import Arguments, launchable, launchable_with
from gpuscan.api.map import map as map_arrays
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.reduce import reduce
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.array_types import AnyDType
from gpuscan.device.device_array import upload_array
from gpuscan.elements import numpy_dtype, scalar_of
from gpuscan.engine.counting import Edges, count_bins, count_labels, search
from gpuscan.engine.device_seeds import MAX_PARAMETER_BYTES
from gpuscan.engine.element_copy import contiguous, duplicate, slice_axis
from gpuscan.errors import DeviceMemoryError, UnsupportedDtypeError, abbreviate
from gpuscan.operators.parameter_array import (
    ParameterArray,
    as_parameter_array,
    compute_arrays,
    words_of_array,
)
from gpuscan.operators.parameters import NUMBERS, reveal
from gpuscan.problem.arguments import (
    as_array,
    as_integer,
    check_choice,
)
from gpuscan.problem.nearest_numbers import check_edges, divide_range, nearest_in, thresholds_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import Value
    from gpuscan.array_types import AnyArray


# The dtypes of labels that are 0 to 255.
_BYTES = (np.dtype(np.uint8), np.dtype(np.bool_))
# The types of the ends of a range. Others are checked.
_NUMBERS = NUMBERS - {complex, np.complex64}
# The number of bins for a first count of labels on a device, before the largest label is known.
_EXPECTED_BINS = 4096
# Labels of this value or more are not counted.
_MOST_LABELS = 1 << 31


# ----- Counts


@overload
def bincount(
    x: Array, /, weights: ArrayLike | None = ..., minlength: SupportsIndex = ..., *, device: Devices = ...
) -> Array: ...
@overload
def bincount(x: ArrayLike, /, weights: Array, minlength: SupportsIndex = ..., *, device: Devices = ...) -> Array: ...
@overload
def bincount(
    x: ArrayLike, /, weights: None = ..., minlength: SupportsIndex = ..., *, device: Devices = ...
) -> NDArray[np.int64]: ...
@overload
def bincount(
    x: ArrayLike, /, weights: ArrayLike, minlength: SupportsIndex = ..., *, device: Devices = ...
) -> NDArray[np.float64]: ...
def bincount(x: object, /, weights: object = None, minlength: SupportsIndex = 0, *, device: Devices = None) -> object:
    """Return how often each label occurs: ``counts[v]`` is the number of elements of `x` that equal v.

    With weights, ``sums[v]`` is the sum of ``weights[i]`` over all i with ``x[i] == v``.

    Args:
        x: the labels: an array of shape (n,) of integers that are 0 or more, or of bools.
        weights: an array of shape (n,), with a number for each label.
        minlength: the least number of counts to return.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        An array of ``max(x.max() + 1, minlength)`` counts: int64 for NumPy arrays, and uint32 for a `gpuscan.Array`.
        With weights of NumPy, NumPy computes the sums, as float64. On a device, sums of integers are int64, sums of
        16-bit floats are float32, and other sums have the dtype of the weights.

    Raises:
        ValueError: `x` has several axes or a label below 0, the weights have another length, or `minlength` is
            negative.
        TypeError: the labels are not integers, or the weights are complex.
        DeviceMemoryError: the device has no memory for the counts.

    The largest label decides the length of the result, so the call waits for the device. For labels of uint8 or bool,
    there are 256 counts at most, and only the use of the length waits.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.bincount(np.array([3, 1, 3, 0]))
        array([1, 1, 0, 2])
        >>> gs.bincount(np.array([3, 1, 3, 0]), weights=[0.5, 1.0, 0.25, 2.0])
        array([2.  , 1.  , 0.  , 0.75])
    """
    labels = as_some_array(x)
    given = None if weights is None else as_some_array(weights)
    least = as_integer(minlength)
    if least is None:
        raise TypeError(f"minlength={minlength!r} was passed, but it is a number of counts; pass an integer")
    if least < 0:
        raise ValueError(f"minlength={minlength} was passed, which is negative; pass a number of counts, 0 or more")
    if labels.ndim != 1:
        raise ValueError(f"labels of shape {labels.shape} were passed; pass labels of one axis: x.reshape(-1)")
    if labels.dtype.kind not in "biu" and labels.size:
        raise TypeError(f"labels of dtype {labels.dtype} were passed, but labels are integers; pass integers")
    if given is not None and given.shape != labels.shape:
        raise ValueError(
            f"weights of shape {given.shape} were passed for {labels.size} labels; pass one weight for each label"
        )
    if given is not None and given.dtype.kind == "c":
        raise TypeError(
            f"weights of dtype {given.dtype} were passed, but bincount adds real numbers. Pass weights.real and "
            "weights.imag to two calls"
        )
    call_device = find_first_device((labels, given), device)
    on_device = isinstance(labels, Array) or isinstance(given, Array)
    if call_device is None or not (on_device or (given is None and labels.size)):
        if labels.size and labels.dtype.kind != "b" and labels.min() < 0:
            raise _negative(int(labels.min()))
        narrow = labels.astype(np.intp, copy=False)
        return np.bincount(narrow, given, least)
    numbers = call_device.asarray(labels)
    if not labels.size:
        count_dtype = np.dtype(np.uint32) if given is None else _sum_dtype(given.dtype)
        return new_array(call_device, np.zeros(least, count_dtype))
    counts: Any
    if on_device and numbers.dtype in _BYTES:
        counts = _count_bytes(numbers, least) if least < 256 else _count_up_to(numbers, least)[0]
    else:
        counts = _count_labels(call_device, numbers, least, in_numpy=not on_device)
    if given is None:
        return counts
    values = call_device.asarray(given)
    summed = values.astype(_sum_dtype(values.dtype), copy=False)
    return reduce(summed, "add", axis=0, groups=numbers, num_groups=counts.size)


def _sum_dtype(dtype: AnyDType) -> AnyDType:
    """Return the dtype of sums of weights on a device."""
    if dtype.kind in "biu":
        return np.dtype(np.int64)
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _negative(least: int) -> ValueError:
    return ValueError(f"the label {least} was to be counted, but labels are 0 or more. Subtract the least label first")


def _count_labels(device: Device, labels: Array, least: int, *, in_numpy: bool) -> SomeArray:
    """Return the counts of labels, one or more of them, on the device or in NumPy; this waits for the largest."""
    context, counted = device._context, device._executor.label_counts
    # An array in the same memory may have as many labels again.
    key = id(labels.buffer), labels.offset, labels.dtype.str, labels.size
    bins = max(least, counted.find(key) or _EXPECTED_BINS)
    if bins < _EXPECTED_BINS:
        # Few sizes, so that a call of another length launches the same program.
        bins = 1 << (bins - 1).bit_length()
    while True:
        counts, extremes = _count_up_to(labels, bins)
        read = [
            (array.buffer, array.offset, array.nbytes) for array in ((extremes, counts) if in_numpy else (extremes,))
        ]
        content, *host_counts = context.read_and_check(*read)
        largest, below = content.view(np.uint32).tolist()
        if below:
            raise _negative(int(reduce(labels, "minimum")))
        length = max(largest + 1, least)
        if length <= bins:
            counted.keep(key, largest + 1)
            return host_counts[0].view(np.uint32)[:length].astype(np.int64) if in_numpy else counts[:length]
        if largest >= _MOST_LABELS or 4 * length > context.binding_limit:
            raise DeviceMemoryError(
                f"labels up to {int(reduce(labels, 'maximum'))} were to be counted on {context.capabilities.summary}, "
                f"which binds at most {context.binding_limit} bytes of counts. Use gpuscan.unique_counts, which counts "
                "the labels that are there"
            )
        bins = length


@launchable_with("least", integers=["least"])
def _count_bytes(labels: Array, least: int) -> Array:
    """Return the counts of labels below 256. The GPU computes how many of them there are."""
    counts, extremes = count_labels(labels, 256)
    largest: Any = Array._of(labels.device, extremes)[:1]
    return UnknownLengthArray(Array._of(labels.device, counts), counts.dtype, (), np.maximum(largest + 1, least))


@launchable_with(counts=["bins"])
def _count_up_to(labels: Array, bins: int) -> tuple[Array, Array]:
    """Return what `count_labels` does. Unlike `bincount`, it does not wait, so it is a program."""
    counts, extremes = count_labels(labels, bins)
    return Array._of(labels.device, counts), Array._of(labels.device, extremes)


# ----- Histograms


@overload
def histogram(
    x: Array,
    bins: int | ArrayLike = ...,
    range: tuple[float, float] | None = ...,
    weights: ArrayLike | None = ...,
    *,
    device: Devices = ...,
) -> tuple[Array, Array]: ...
@overload
def histogram(
    x: ArrayLike,
    bins: int | str | ArrayLike = ...,
    range: tuple[float, float] | None = ...,
    weights: None = ...,
    *,
    device: Devices = ...,
) -> tuple[NDArray[np.int64], AnyArray]: ...
@overload
def histogram(
    x: ArrayLike,
    bins: int | str | ArrayLike = ...,
    range: tuple[float, float] | None = ...,
    weights: ArrayLike | None = ...,
    *,
    device: Devices = ...,
) -> tuple[AnyArray, AnyArray]: ...
def histogram(
    x: object,
    bins: int | str | ArrayLike = 10,
    range: tuple[float, float] | None = None,  # noqa: A002 (NumPy's name)
    weights: object = None,
    *,
    device: Devices = None,
) -> tuple[SomeArray, SomeArray]:
    """Return how many numbers are in each bin, and the edges of the bins.

    ``counts[i]`` is the number of elements with ``edges[i] <= x < edges[i+1]``; the last bin also has
    ``x == edges[-1]``. The counts are NumPy's exactly.

    Args:
        x: an array of any shape, of bools, integers or floats.
        bins: the number of bins of equal width, or their edges, which may not decrease. For NumPy arrays also the name
            of a method, as in `numpy.histogram_bin_edges`.
        range: the first and the last edge of bins of equal width (default: the least and the greatest element). Without
            `range`, the call waits for the device to find these two elements.
        weights: a number for each element, in the shape of `x`. ``counts[i]`` is then the sum of the weights of bin i,
            in their dtype.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        A pair ``(counts, edges)`` of the lengths n and n + 1 for n bins. Counts are int64 for NumPy arrays, and uint32
        for a `gpuscan.Array`. `numpy.histogram_bin_edges` computes the edges. NumPy sums the weights of NumPy arrays.

    Raises:
        ValueError: the edges decrease, the range is not finite, or weights have another shape.
        TypeError: the numbers are complex.
        GpuscanError: the elements are larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> counts, edges = gs.histogram(np.array([0.5, 1.5, 1.7, 4.0], np.float32), bins=4, range=(0, 4))
        >>> counts
        array([1, 2, 0, 1])
    """
    uniform = type(bins) is int or np.ndim(bins) == 0
    if isinstance(x, Array) and type(bins) is int and (dtype := x.dtype).kind in "iuf":
        if range is None and x.size:
            # The call waits for the range. The rest of it is a program for all ranges.
            bounds = _bounds_of(x)
            range = (bounds[0], bounds[1]) if np.isfinite(bounds).all() else None  # noqa: A001
        if isinstance(range, (tuple, list)) and len(range) == 2 and _NUMBERS.issuperset(map(type, range)):
            # Edges are parameters of a program for any number of them.
            edges = divide_range(*range, bins, dtype, repr(range))
            bins, range = (edges, None) if edges.nbytes <= MAX_PARAMETER_BYTES else (bins, range)  # noqa: A001
    return _histogram(x, bins, range, weights, uniform, device=device)


@launchable_with("bins", data=["weights"])
def _histogram(
    x: object,
    bins: int | str | ArrayLike,
    range: tuple[float, float] | None,  # noqa: A002
    weights: object,
    uniform: bool,
    *,
    device: Devices = None,
) -> tuple[SomeArray, SomeArray]:
    """Return the result of `histogram`.

    Args:
        uniform: True for bins of equal width.
    """
    values = as_some_array(x)
    given = None if weights is None else as_some_array(weights)
    if values.dtype.kind not in "biufc" and values.dtype.name != "bfloat16":
        raise TypeError(
            f"numbers were to be counted by bins, but their dtype is {values.dtype}; pass integers or floats"
        )
    unknown = as_parameter_array(bins)
    edges_given: Any = bins if unknown is None else unknown
    if range is not None and (as_array(range).shape != (2,) or as_array(range).dtype.kind not in "biuf"):
        raise ValueError(f"range={abbreviate(range)} was passed; pass the first and the last edge, such as (0, 1)")
    if values.dtype.kind == "c":
        raise UnsupportedDtypeError(
            f"numbers of dtype {values.dtype} were to be counted by bins, but complex numbers have no order. Pass "
            "their real parts or their absolute values"
        )
    if given is not None and given.shape != values.shape:
        raise ValueError(
            f"weights of shape {given.shape} were passed for numbers of shape {values.shape}; pass one for each number"
        )
    call_device = find_first_device((values, given, bins if isinstance(bins, Array) else None), device)
    on_device = any(isinstance(operand, Array) for operand in (values, given, bins))
    if call_device is None or not (on_device or (given is None and values.size)):
        return np.histogram(values.astype(numpy_dtype(values.dtype), copy=False), bins, range, weights=given)
    if on_device and isinstance(bins, str):
        raise ValueError(
            f"bins={bins!r} was passed for an array on a device, but the method needs all elements. Pass a number of "
            "bins, or np.histogram_bin_edges(array.numpy(), bins)"
        )
    edges: Any
    if not on_device:
        # NumPy's rules need the elements only for their range, unless a method chooses the bins.
        whole = isinstance(bins, str) or (range is None and np.ndim(bins) == 0)
        dtype = numpy_dtype(values.dtype)
        edges = np.histogram_bin_edges(values.astype(dtype, copy=False) if whole else np.zeros(0, dtype), bins, range)
        has_bins = edges.size > 1
        return _count(values, edges, uniform, device=call_device) if has_bins else np.zeros(0, np.int64), edges
    numbers = _without_axes(call_device.asarray(values))
    edges = _edges_of(numbers, edges_given, range)
    bins_of_numbers = _bins_of(call_device, numbers, edges, uniform=uniform)
    count = max(edges.size - 1, 0)
    # A copy, since what is uploaded is a constant of the program.
    edges = bins if isinstance(bins, Array) else new_array(call_device, edges).copy()
    if given is not None:
        if given.dtype == np.bool_:
            raise TypeError("weights of dtype bool were passed, but bools have no sum; pass weights.astype(np.int32)")
        return _sum_by_bin(numbers, call_device.asarray(given).reshape(-1), bins_of_numbers, count), edges
    if not numbers.size or not count:
        counts = new_array(call_device, np.zeros(count, np.uint32))
    else:
        counts = Array._of(call_device, count_bins(numbers, bins_of_numbers))
    return counts, edges


def _without_axes(values: Array) -> Array:
    """Return numbers along one axis, and bools as numbers."""
    numbers = values.reshape(-1)
    return _with_bits_as(numbers, np.uint8) if numbers.dtype == np.bool_ else numbers


@takes_numpy("values", indices=(0,))
@launchable_with("edges")
def _count(values: SomeArray, edges: AnyArray | ParameterArray, uniform: bool, *, device: Device | None = None) -> Any:
    """Return the counts of numbers by bins, one or more of both; they are in NumPy if the numbers are.

    Args:
        device: the device to count arrays of NumPy on.
    """
    if not isinstance(values, Array):
        assert device is not None
        return _count(device.asarray(values), edges, uniform).numpy().astype(np.int64)
    numbers = _without_axes(values)
    return Array._of(values.device, count_bins(numbers, _bins_of(values.device, numbers, edges, uniform=uniform)))


def _with_bits_as(array: Array, dtype: type[np.generic]) -> Array:
    """Return numbers of another dtype with the same bits as the elements of an array."""
    neighbours = array if array.is_contiguous else array.copy()
    return neighbours._view_as(array.shape, dtype)


def _edges_of(numbers: Array, bins: Any, limits: Any) -> SomeArray | ParameterArray:
    """Return the edges of the bins for numbers on a device."""
    if isinstance(bins, Array):
        if bins.ndim != 1:
            raise ValueError(f"bins of shape {bins.shape} were passed; pass a number of bins, or edges along one axis")
        falls = bins.size > 1 and bool(map_arrays(lambda a, b: a > b, bins[:-1], bins[1:]).any())
        if falls:
            raise ValueError("bins were passed with edges that decrease; pass ascending edges: gpuscan.sort(bins)")
        # Edges of another dtype are few, and not all of them are numbers of this one.
        return bins if bins.dtype == numbers.dtype else bins.numpy()
    sample = np.zeros(0, numpy_dtype(numbers.dtype))
    if np.ndim(bins) == 0 and limits is None and numbers.size:
        sample = _bounds_of(numbers)
    if isinstance(bins, ParameterArray):
        return bins.derive_each(check_edges, sample.dtype, limits)
    return np.histogram_bin_edges(sample, bins, limits)


def _bounds_of(numbers: Array) -> AnyArray:
    """Return the least and the greatest number of an array on a device, or NaN if it has one; this waits for them."""
    if numbers.dtype == np.float64 and not numbers.device.capabilities.float64:
        bits = _with_bits_as(numbers, np.uint64)
        ends = [int(reduce(bits, name, before=_float64_order)) for name in ("minimum", "maximum")]
        sign = 1 << 63
        return np.array([word ^ sign if word >= sign else ~word % (1 << 64) for word in ends], np.uint64).view(
            np.float64
        )
    both = _least_and_greatest(numbers)
    contents = numbers._context.read_and_check(*[(end.buffer, end.offset, end.nbytes) for end in both])
    bounds = np.array([content.view(numbers.dtype)[0] for content in contents])
    return bounds.astype(numpy_dtype(numbers.dtype), copy=False)


@launchable
def _least_and_greatest(numbers: Array) -> tuple[Array, Array]:
    return reduce(numbers, "minimum"), reduce(numbers, "maximum")


def _float64_order(bits: Value) -> object:
    """Return numbers that compare as the floats with these bits do; all NaN come last."""
    sign = np.uint64(1 << 63)
    is_nan = (bits & ~sign) > np.uint64(0x7FF << 52)
    order = np.where(bits >= sign, ~bits, bits | sign)
    return np.where(is_nan, np.uint64((1 << 64) - 1), order)


def _bins_of(device: OpenedDevice, numbers: Array, edges: SomeArray | ParameterArray, *, uniform: bool) -> Edges:
    """Return the edges of bins as numbers of the dtype that is counted."""
    if isinstance(edges, Array):
        return Edges(contiguous(edges), max(edges.size - 1, 0), np.array([0, 1], np.float32))
    bins = edges if isinstance(edges, ParameterArray) else as_array(edges)
    thresholds, usable, floats = compute_arrays(thresholds_of, bins, numbers.dtype, uniform)
    return Edges(upload_array(device._context, thresholds), words_of_array(usable)[0], floats)


def _sum_by_bin(numbers: Array, weights: Array, edges: Edges, bins: int) -> Array:
    """Return the sum of the weights of each bin."""
    device = numbers.device
    usable = reveal(edges.usable)
    if not numbers.size or not bins or not usable:
        return new_array(device, np.zeros(bins, weights.dtype))
    starts, greatest = edges.numbers._view_as((usable,)), edges.numbers._view_as((bins + 1,))
    ranks = Array._of(device, search(starts, numbers, right=True))
    ends = Array._of(device, search(duplicate(slice_axis(greatest, 0, bins, bins + 1)), numbers))
    labels = map_arrays(_bin_label, ranks, ends)
    return reduce(weights, "add", axis=0, groups=labels, num_groups=bins)


def _bin_label(rank: Value, end: Value) -> object:
    """Return the bin of a number, or -1 if it has none.

    Args:
        rank: the number of bins that begin at the number or below it.
        end: 1 if the number exceeds the last edge, else 0.
    """
    return np.where(end == 0, rank.astype(np.int32) - np.int32(1), np.int32(-1))


# ----- Searches


def _upload_searched(given: Arguments) -> Arguments | None:
    """Return the arguments of `searchsorted` with the values on the device of the keys, in their dtype; else None."""
    ordered, value = given.get("a"), given.get("v")
    if not isinstance(ordered, Array) or ordered.dtype == np.bool_ or given.get("device") is not None:
        return None
    try:
        values = as_array(value)
    except (TypeError, ValueError):
        return None  # the function raises the error
    if values.dtype.kind not in "biuf" or not values.size:
        return None
    ordered, values, fill = _in_dtype_of(ordered, values, given.get("side", "left") == "right")
    return None if fill is not None else given | {"v": new_array(ordered.device, values)}


# What `side=` takes.
Side: TypeAlias = Literal["left", "right"]


@overload
def searchsorted(
    a: Array, v: ArrayLike, /, *, side: Side = ..., sorter: ArrayLike | None = ..., device: Devices = ...
) -> Array: ...
@overload
def searchsorted(
    a: ArrayLike, v: Array, /, *, side: Side = ..., sorter: ArrayLike | None = ..., device: Devices = ...
) -> Array: ...
@overload
def searchsorted(
    a: ArrayLike, v: AnyArray, /, *, side: Side = ..., sorter: ArrayLike | None = ..., device: Devices = ...
) -> NDArray[np.int64]: ...
@overload
def searchsorted(
    a: ArrayLike, v: ArrayLike, /, *, side: Side = ..., sorter: ArrayLike | None = ..., device: Devices = ...
) -> Any: ...
def searchsorted(
    a: object, v: object, /, *, side: Side = "left", sorter: object = None, device: Devices = None
) -> object:
    """Return the indices at which values can be inserted into a sorted array so that it stays sorted.

    The result for a value v is the first index i with ``a[i] >= v`` (``side="left"``) or ``a[i] > v``
    (``side="right"``); without such an index it is ``len(a)``. Values are ordered as in `gpuscan.sort`: NaN is last.

    Args:
        a: an array of shape (n,) of a dtype that `gpuscan.sort` takes. It is sorted, unless `sorter` is passed.
        v: the values, of any shape.
        side: ``"left"`` or ``"right"``.
        sorter: an array of shape (n,) with the indices that sort `a`, such as ``gpuscan.argsort(a)``.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        Indices from 0 to n, in the shape of `v`: int64 for NumPy arrays, and uint32 for a `gpuscan.Array`.

    Raises:
        ValueError: `a` has several axes, `side` is unknown, or `sorter` has another length.
        TypeError: `sorter` does not hold integers, or one of the dtypes has no order.
        GpuscanError: an array is larger than one buffer binding of the device.

    Each value is found by a binary search.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.searchsorted(np.array([1, 3, 3, 7]), np.array([3, 8, 0]))
        array([1, 4, 0])
        >>> gs.searchsorted(np.array([1, 3, 3, 7]), np.array([3, 8, 0]), side="right")
        array([3, 4, 0])
    """
    if isinstance(v, (int, float, np.generic)):
        v = np.asarray(v)  # uploaded like other arrays, so that another number is no other program
    return _find_ranks(a, v, side=side, sorter=sorter, device=device)


@launchable_with(upload=_upload_searched)
def _find_ranks(a: object, v: object, *, side: Side, sorter: object, device: Devices) -> object:
    """Return the result of `searchsorted`."""
    ordered, values = as_some_array(a), as_some_array(v)
    order = None if sorter is None else as_some_array(sorter)
    check_choice("side", side, get_args(Side))
    if ordered.ndim != 1:
        raise ValueError(f"an array of shape {ordered.shape} was to be searched; pass a sorted array of one axis")
    if order is not None and order.dtype.kind not in "iu":
        raise TypeError(f"sorter= of dtype {order.dtype} was passed; pass integers, such as gpuscan.argsort(a)")
    if order is not None and order.shape != ordered.shape:
        raise ValueError(f"sorter= of shape {order.shape} was passed for {ordered.size} keys; pass one for each key")
    for operand in (ordered, values):
        check_ordered(operand.dtype)
    call_device = find_first_device((ordered, values, order), device)
    if call_device is None:
        wide = [operand.astype(numpy_dtype(operand.dtype), copy=False) for operand in (ordered, values)]
        return np.searchsorted(wide[0], wide[1], side, order)
    on_device = any(isinstance(operand, Array) for operand in (ordered, values, order))
    right = side == "right"
    fill = None
    if not isinstance(values, Array) and not isinstance(ordered, Array):
        common = _common_dtype(ordered.dtype, values.dtype)
        ordered, values = ordered.astype(common), values.astype(common)
    elif isinstance(ordered, Array) and not isinstance(values, Array):
        if ordered.dtype == np.bool_ and values.dtype != np.bool_:
            ordered = _with_bits_as(ordered, np.uint8)
        ordered, values, fill = _in_dtype_of(ordered, values, right)
    else:
        common = _common_dtype(ordered.dtype, values.dtype)
        ordered, values = ordered.astype(common, copy=False), values.astype(common, copy=False)
    if order is None and not on_device:
        return _search_in_numpy(ordered, values, right=right, device=call_device)
    keys = contiguous(call_device.asarray(ordered))
    if order is not None:
        keys = contiguous(take_at(Array._of(call_device, keys), order, 0))
    ranks = Array._of(call_device, search(keys, call_device.asarray(values), right=right))
    if fill is not None:
        ranks = map_arrays(lambda rank, other: np.where(other < 0, rank, other.astype(np.uint32)), ranks, fill)
    if on_device:
        return ranks
    host_ranks = ranks.numpy().astype(np.int64)
    return host_ranks if host_ranks.shape else host_ranks[()]


@takes_numpy("keys", "values", indices=(0,))
@launchable
def _search_in_numpy(keys: SomeArray, values: SomeArray, *, right: bool, device: OpenedDevice | None = None) -> Any:
    """Return the insertion indices of values of the same dtype as the keys, which are in NumPy if these are.

    Args:
        keys: the sorted keys.
        right: True for the indices after equal keys.
        device: the device to search arrays of NumPy on.
    """
    if isinstance(keys, Array) and isinstance(values, Array):
        return Array._of(keys.device, search(contiguous(keys), values, right=right))
    assert device is not None
    uploaded = [new_array(device, np.asarray(array)) for array in (keys, values)]
    ranks: Any = Array._of(device, search(*uploaded, right=right)).numpy().astype(np.int64)
    return ranks if ranks.shape else ranks[()]


def _common_dtype(*dtypes: AnyDType) -> AnyDType:
    """Return the dtype that numbers of several dtypes are compared in. NumPy knows none for bfloat16 and others."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return np.result_type(*map(numpy_dtype, dtypes))


def check_ordered(dtype: AnyDType) -> None:
    """Raise UnsupportedDtypeError if numbers of the dtype have no order, or none on a device."""
    if scalar_of(dtype).kind == "complex":
        raise UnsupportedDtypeError(
            f"numbers of dtype {dtype} were to be compared, but complex numbers have no order. Pass their real "
            "parts or their absolute values"
        )


def _in_dtype_of(ordered: Array, values: AnyArray, right: bool) -> tuple[Array, AnyArray, AnyArray | None]:
    """Return sorted keys on a device, NumPy's values in their dtype, and results for values that the dtype cannot hold.

    A value that the dtype cannot hold is replaced by the nearest one with the same insertion index. So the keys need
    no other dtype, which the device may not have.

    Returns:
        The keys, the values, and if some values exceed the dtype, for each value its insertion index, or -1.
    """
    dtype = ordered.dtype
    if _common_dtype(dtype, values.dtype) == dtype:
        return ordered, values.astype(dtype), None
    nearest, exists = nearest_in(dtype, values.astype(np.uint8) if values.dtype == np.bool_ else values, up=not right)
    if exists.all():
        return ordered, nearest, None
    is_nan = values != values
    return ordered, nearest, np.where(exists, -1, np.where(is_nan | (not right), ordered.size, 0)).astype(np.int64)
