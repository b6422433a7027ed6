"""`gpuscan.unique_values` and its like, and `gpuscan.run_length_encode`: what is in an array, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.call_device import Devices, find_first_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable
from gpuscan.api.map import map as map_arrays
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.scan import scan
from gpuscan.api.sort import as_dates, check_keys
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.elements import Scalar, scalar_of
from gpuscan.engine.compaction import gather_entries
from gpuscan.engine.element_copy import bindable, contiguous
from gpuscan.engine.key_runs import run_lengths
from gpuscan.engine.permutations import Permutation
from gpuscan.engine.sorting import sort_device
from gpuscan.problem.arguments import as_bits, from_bits, native
from gpuscan.reference import sort as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import Of, S, Value


# The type of the values, and that of counts and indices.
Values = TypeVar("Values", covariant=True)
Counts = TypeVar("Counts", covariant=True)


class UniqueCountsResult(NamedTuple, Generic[Values, Counts]):
    """The result of `gpuscan.unique_counts`."""

    values: Values
    counts: Counts


class UniqueInverseResult(NamedTuple, Generic[Values, Counts]):
    """The result of `gpuscan.unique_inverse`."""

    values: Values
    inverse_indices: Counts


class UniqueAllResult(NamedTuple, Generic[Values, Counts]):
    """The result of `gpuscan.unique_all`."""

    values: Values
    indices: Counts
    inverse_indices: Counts
    counts: Counts


class RunLengths(NamedTuple, Generic[Values, Counts]):
    """The result of `gpuscan.run_length_encode`."""

    values: Values
    counts: Counts


# ----- The public functions


@overload
def unique_values(x: Array, /, *, device: Devices = ...) -> Array: ...
@overload
def unique_values(x: Of[S], /, *, device: Devices = ...) -> NDArray[S]: ...
@overload
def unique_values(x: ArrayLike, /, *, device: Devices = ...) -> AnyArray: ...
@takes_numpy("x")
@launchable
def unique_values(x: object, /, *, device: Devices = None) -> object:
    """Return the distinct values of an array, in ascending order.

    ``values[0] < values[1] < …``, and every element of `x` equals one of them. Of equal elements, such as 0.0 and -0.0,
    the first one is returned. Each NaN is a value of its own, as in the Array API standard, and comes last.

    Args:
        x: an array of any shape, of a dtype that `gpuscan.sort` takes.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        An array of shape (n,) for n distinct values, of the type and dtype of `x`. On a device, the call does not wait
        for n: reading ``.shape`` waits for it, and ``.count`` is n as an array of shape (1,) on the device.

    Raises:
        TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.unique_values(np.array([3, 1, 4, 1, 3], np.int32))
        array([1, 3, 4], dtype=int32)
    """
    return find_unique(x, device).values


@overload
def unique_counts(x: Array, /, *, device: Devices = ...) -> UniqueCountsResult[Array, Array]: ...
@overload
def unique_counts(x: Of[S], /, *, device: Devices = ...) -> UniqueCountsResult[NDArray[S], NDArray[np.int64]]: ...
@overload
def unique_counts(x: ArrayLike, /, *, device: Devices = ...) -> UniqueCountsResult[AnyArray, NDArray[np.int64]]: ...
@takes_numpy("x", indices=(1,))
@launchable
def unique_counts(x: object, /, *, device: Devices = None) -> UniqueCountsResult[SomeArray, SomeArray]:
    """Return the distinct values of an array, in ascending order, and how often each one occurs.

    ``counts[i]`` is the number of elements that equal ``values[i]``.

    Args:
        x, device: as in `gpuscan.unique_values`.

    Returns:
        A named tuple ``(values, counts)`` of two arrays of shape (n,). Counts are int64 for a NumPy array, and uint32
        for a `gpuscan.Array`.

    Raises:
        TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.unique_counts(np.array([3, 1, 4, 1, 3], np.int32)).counts
        array([2, 2, 1])
    """
    unique = find_unique(x, device)
    return UniqueCountsResult(unique.values, unique.counts)


@overload
def unique_inverse(x: Array, /, *, device: Devices = ...) -> UniqueInverseResult[Array, Array]: ...
@overload
def unique_inverse(x: Of[S], /, *, device: Devices = ...) -> UniqueInverseResult[NDArray[S], NDArray[np.int64]]: ...
@overload
def unique_inverse(x: ArrayLike, /, *, device: Devices = ...) -> UniqueInverseResult[AnyArray, NDArray[np.int64]]: ...
@takes_numpy("x", indices=(1,))
@launchable
def unique_inverse(x: object, /, *, device: Devices = None) -> UniqueInverseResult[SomeArray, SomeArray]:
    """Return the distinct values of an array, in ascending order, and for each element the index of its value.

    ``values[inverse_indices] == x``.

    Args:
        x, device: as in `gpuscan.unique_values`.

    Returns:
        A named tuple ``(values, inverse_indices)``. The indices have the shape of `x`. They are int64 for a NumPy
        array, and uint32 for a `gpuscan.Array`.

    Raises:
        TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.unique_inverse(np.array([3, 1, 4, 1, 3], np.int32)).inverse_indices
        array([1, 0, 2, 0, 1])
    """
    unique = find_unique(x, device, inverse=True)
    return UniqueInverseResult(unique.values, unique.inverse_indices)


@overload
def unique_all(x: Array, /, *, device: Devices = ...) -> UniqueAllResult[Array, Array]: ...
@overload
def unique_all(x: Of[S], /, *, device: Devices = ...) -> UniqueAllResult[NDArray[S], NDArray[np.int64]]: ...
@overload
def unique_all(x: ArrayLike, /, *, device: Devices = ...) -> UniqueAllResult[AnyArray, NDArray[np.int64]]: ...
@takes_numpy("x", indices=(1, 2, 3))
@launchable
def unique_all(x: object, /, *, device: Devices = None) -> UniqueAllResult[SomeArray, SomeArray]:
    """Return the distinct values of an array, in ascending order, with indices, inverse indices and counts.

    ``indices[i]`` is the first index with ``x.reshape(-1)[indices[i]] == values[i]``, ``values[inverse_indices] == x``,
    and ``counts[i]`` is the number of elements that equal ``values[i]``.

    Args:
        x, device: as in `gpuscan.unique_values`.

    Returns:
        A named tuple ``(values, indices, inverse_indices, counts)``. The inverse indices have the shape of `x`, the
        other arrays (n,). Indices and counts are int64 for a NumPy array, and uint32 for a `gpuscan.Array`.

    Raises:
        TypeError, GpuscanError: as `gpuscan.sort` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.unique_all(np.array([3, 1, 4, 1, 3], np.int32)).indices
        array([1, 0, 2])
    """
    return find_unique(x, device, indices=True, inverse=True)


@overload
def run_length_encode(x: Array, /, *, device: Devices = ...) -> RunLengths[Array, Array]: ...
@overload
def run_length_encode(x: Of[S], /, *, device: Devices = ...) -> RunLengths[NDArray[S], NDArray[np.int64]]: ...
@overload
def run_length_encode(x: ArrayLike, /, *, device: Devices = ...) -> RunLengths[AnyArray, NDArray[np.int64]]: ...
@takes_numpy("x", indices=(1,))
@launchable
def run_length_encode(x: object, /, *, device: Devices = None) -> RunLengths[SomeArray, SomeArray]:
    """Return the value and the length of each run of adjacent equal elements.

    ``np.repeat(values, counts)`` equals `x`. 0.0 equals -0.0, and each NaN is a run of its own.

    Args:
        x: an array of shape (n,) of numbers or bools; NumPy arrays may also hold dates and durations.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        A named tuple ``(values, counts)`` of two arrays with one element for each run. Values have the dtype of `x`.
        Counts are int64 for a NumPy array, and uint32 for a `gpuscan.Array`. On a device, reading ``.shape`` waits for
        the number of runs.

    Raises:
        ValueError: `x` does not have one axis.
        GpuscanError: the results are larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.run_length_encode(np.array([7, 7, 2, 2, 2, 7], np.int32))
        RunLengths(values=array([7, 2, 7], dtype=int32), counts=array([2, 3, 1]))
    """
    given = as_some_array(x)
    if given.ndim != 1:
        raise ValueError(
            f"an array of shape {given.shape} was passed, but run_length_encode takes arrays of one axis. Pass "
            "x.reshape(-1)"
        )
    on_device = isinstance(given, Array)
    keys = as_bits(given) if given.dtype.kind in "mM" else given
    scalar_of(keys.dtype)  # The same error with and without an adapter.
    call_device = find_first_device((keys,), device)
    if call_device is None or not keys.size:
        if isinstance(given, Array):
            return RunLengths(given.copy(), new_array(given.device, None, (0,), np.uint32))
        starts = np.flatnonzero(_changes_in(np.asarray(keys))).astype(np.int64, copy=False)
        return RunLengths(native(given[starts]), np.diff(np.append(starts, given.size)))
    source = bindable(contiguous(keys) if isinstance(keys, DeviceArray) else upload_array(call_device._context, keys))
    firsts, numbers, count = run_lengths(call_device._executor, source)
    values = _with_counted_length(call_device, firsts, source.dtype, count)
    lengths = _with_counted_length(call_device, numbers, np.dtype(np.uint32), count)
    if on_device:
        return RunLengths(values, lengths)
    return RunLengths(from_bits(values.numpy(), given.dtype), lengths.numpy().astype(np.int64))


# ----- Unique values


def find_unique(
    x: object,
    device: Devices = None,
    *,
    indices: bool = False,
    inverse: bool = False,
    equal_nan: bool = False,
) -> UniqueAllResult[Any, Any]:
    """Return what `unique_all` returns; None for the indices and the inverse indices that are not asked for.

    Args:
        x, device: as in `unique_all`.
        indices, inverse: True to return the first index of each value, and the inverse indices.
        equal_nan: True to treat all NaN as one value.
    """
    given = as_some_array(x)
    flat = given.reshape(-1)
    one = None if device is None else find_first_device((flat,), device)
    where: Device | str | None = "numpy" if device is not None and one is None else one
    keys, _, call_device, dates = check_keys(flat, 0, False, True, where, "searched for unique values")
    if call_device is None or not keys.size:
        host = _unique_by_numpy(np.asarray(keys), equal_nan)
        parts: Sequence[SomeArray | None] = host
        if isinstance(given, Array):
            narrow = [host[0], *(part.astype(np.uint32) for part in host[1:])]
            parts = [new_array(given.device, part) for part in narrow]
    else:
        parts = device_parts = _unique_on_device(call_device, keys, indices, inverse, equal_nan)
        if not isinstance(given, Array):
            wide = [None if part is None else part.numpy().astype(np.int64) for part in device_parts[1:]]
            parts = [device_parts[0].numpy(), *wide]
    values, firsts, numbers, counts = parts
    if dates is not None:
        values = as_dates(np.asarray(values), dates, False)
    shaped = numbers.reshape(given.shape) if inverse and numbers is not None else None
    return UniqueAllResult(values, firsts if indices else None, shaped, counts)


def _unique_by_numpy(keys: AnyArray, equal_nan: bool) -> tuple[AnyArray, ...]:
    """Return the values, their first indices, the inverse indices, and the counts."""
    order = reference.argsort(keys, 0, False)
    ordered = native(keys)[order]
    changes = _changes_in(ordered, equal_nan)
    starts = np.flatnonzero(changes).astype(np.int64, copy=False)
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = np.cumsum(changes) - 1
    return ordered[starts], order[starts], numbers, np.diff(np.append(starts, len(keys)))


def _changes_in(keys: AnyArray, equal_nan: bool = False) -> AnyArray:
    """Return True for each key that differs from the one before."""
    changes = keys[1:] != keys[:-1]
    if equal_nan:
        changes &= (keys[1:] == keys[1:]) | (keys[:-1] == keys[:-1])
    return np.append(np.ones(min(len(keys), 1), bool), changes)


def _unique_on_device(
    device: OpenedDevice, keys: SomeArray, indices: bool, inverse: bool, equal_nan: bool
) -> tuple[Array, Array | None, Array | None, Array]:
    """Return what `_unique_by_numpy` returns, on the device; None for what is not asked for."""
    context = device._context
    source = keys if isinstance(keys, DeviceArray) else upload_array(context, keys)
    sorted_keys = sort_device(device._executor, source, 0, with_indices=indices or inverse)
    ordered = Array._of(device, sorted_keys.keys)
    scalar = scalar_of(ordered.dtype)
    alike = equal_nan and scalar.kind == "float"
    compared = map_arrays(_comparable(scalar), _bits_of(ordered)) if alike else ordered
    first_keys, lengths, count = run_lengths(device._executor, bindable(compared), bindable(ordered))
    values = _with_counted_length(device, first_keys, ordered.dtype, count)
    counts = _with_counted_length(device, lengths, np.dtype(np.uint32), count)
    firsts: Array | None = None
    numbers: Array | None = None
    if indices:
        # Only as many sums are right as there are runs, and only these are used.
        starts = contiguous(scan(Array._of(device, lengths), "add", axis=0, exclusive=True))
        gathered = gather_entries(context, sorted_keys.payload, starts, count)
        firsts = _with_counted_length(device, gathered, np.dtype(np.uint32), count)
    if inverse:
        in_order = _run_numbers(device, compared, scalar if not alike else None)
        numbers = Array._of(device, Permutation(context, sorted_keys.payload).undo(in_order))
    return values, firsts, numbers, counts


def _with_counted_length(
    device: OpenedDevice, memory: DeviceArray, dtype: AnyDType, count: DeviceArray
) -> UnknownLengthArray:
    """Return memory that begins with `count` entries as an array of that length."""
    return UnknownLengthArray(Array._of(device, memory), dtype, (), Array._of(device, count))


def _run_numbers(device: OpenedDevice, ordered: Array, scalar: Scalar | None) -> Array:
    """Return for each key in order the number of its run.

    Args:
        ordered: the keys, one or more.
        scalar: the type of the keys; None if keys differ where their bits do.
    """
    numbers = new_array(device, None, ordered.shape, np.uint32)
    numbers[:1] = 0
    if ordered.size > 1:
        bits = _bits_of(ordered)
        scan((bits[1:], bits[:-1]), "add", axis=0, before=_differ(scalar), dtype=np.uint32, out=numbers[1:])
    return numbers


def _bits_of(array: Array) -> Array:
    """Return numbers as unsigned integers."""
    return array._view_as(array.shape, np.dtype(f"u{array.dtype.itemsize}"))


@cache
def _float_bits(scalar: Scalar) -> tuple[np.generic, np.generic]:
    """Return two masks as integers: all bits of a float but its sign, and the bits of infinity."""
    word_type = np.dtype(f"u{scalar.bits // 8}").type
    mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[scalar.name]
    magnitude = (1 << (scalar.bits - 1)) - 1
    return word_type(magnitude), word_type(magnitude >> mantissa << mantissa)


@cache
def _differ(scalar: Scalar | None) -> Callable[[tuple[Value, Value]], object]:
    """Return a function of the bits of two keys: 1 if they differ as NumPy compares them, else 0."""

    def differ(pair: tuple[Value, Value]) -> object:
        changes = pair[0] != pair[1]
        if scalar is not None and scalar.kind == "float":
            magnitude, infinity = _float_bits(scalar)
            either = (pair[0] | pair[1]) & magnitude
            changes = (changes & (either != 0)) | ((pair[0] & magnitude) > infinity)
        return np.where(changes, np.uint32(1), np.uint32(0))

    return differ


@cache
def _comparable(scalar: Scalar) -> Callable[[Value], object]:
    """Return a function of the bits of a float that gives equal bits for both zeros, and for all NaN."""
    magnitude, infinity = _float_bits(scalar)

    def comparable(bits: Value) -> object:
        size = bits & magnitude
        return np.where(size > infinity, magnitude, np.where(size == 0, size, bits))

    return comparable
