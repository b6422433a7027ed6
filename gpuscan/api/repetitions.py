"""`gpuscan.repeat`: the entries of an axis, each several times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.array_indices import take_checked_indices
from gpuscan.api.call_device import Devices, find_first_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import Arguments, launchable, launchable_with
from gpuscan.api.reduce import reduce
from gpuscan.api.scan import scan
from gpuscan.device.device_array import upload_array
from gpuscan.engine.counting import search
from gpuscan.engine.element_copy import contiguous, duplicate
from gpuscan.engine.elementwise import broadcast
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.arguments import as_bits, as_integer, from_bits, resolve_axis, structure_and_leaves
from gpuscan.problem.results import assemble_arrays

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import B, Of, S
    from gpuscan.array_types import AnyArray

# A result of this length or more is not repeated.
_MOST_ENTRIES = 1 << 31


class _Ends(NamedTuple):
    """How often each entry of an axis is repeated.

    Attributes:
        ends: where the copies of each entry end, on a device.
        total: the number of all copies.
    """

    ends: Array
    total: int


def _upload_repeats(given: Arguments) -> Arguments | None:
    """Return the arguments of `repeat` with the repeats of NumPy on the device of the array; else None."""
    array, repeats = given.get("x"), given.get("repeats")
    if type(repeats) not in (np.ndarray, list) or not isinstance(array, Array) or given.get("device") is not None:
        return None
    try:
        axis = given.get("axis")
        length = array.size if axis is None else array.shape[resolve_axis(axis, array.shape)]
        counts = _check_repeats(repeats, length)
    except (TypeError, ValueError):
        return None  # the function raises the error
    if not isinstance(counts, np.ndarray) or not counts.size:
        return None
    sums = counts.cumsum()
    total = int(sums[-1])
    if not 0 < total < _MOST_ENTRIES:
        return None
    return given | {"repeats": _Ends(new_array(array.device, sums.astype(np.uint32)), total)}


@overload
def repeat(x: Array, repeats: ArrayLike, *, axis: int | None = ..., device: Devices = ...) -> Array: ...
@overload
def repeat(x: ArrayLike, repeats: Array, *, axis: int | None = ..., device: Devices = ...) -> Array: ...
@overload
def repeat(x: Of[S], repeats: ArrayLike, *, axis: int | None = ..., device: Devices = ...) -> NDArray[S]: ...
@overload
def repeat(x: B, repeats: ArrayLike, *, axis: int | None = ..., device: Devices = ...) -> B: ...
@overload
def repeat(x: ArrayLike, repeats: ArrayLike, *, axis: int | None = ..., device: Devices = ...) -> AnyArray: ...
def repeat(x: object, repeats: object, *, axis: int | None = None, device: Devices = None) -> object:
    """Return an array in which each entry of an axis is repeated, as `numpy.repeat` does.

    With the running sums ``s = cumsum(repeats)`` and ``s[-1] = 0`` before the first, ``y[j] = x[i]`` for all j from
    ``s[i-1]`` to ``s[i] - 1``.

    Args:
        x: an array of any element type, or a bundle of arrays of one length. NumPy arrays may also hold dates,
            durations or complex128.
        repeats: how often to repeat: an integer of 0 or more for all entries, or an array with one for each entry of
            the axis. If the array is a `gpuscan.Array`, the call waits for the length of the result.
        axis: the axis to repeat along (default: the flattened array).
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        An array like `x`, or a bundle like it, with the sum of the repeats as the length of the axis.

    Raises:
        ValueError: a number of repeats is negative, or their length is not the length of the axis.
        TypeError: the numbers of repeats are not integers.
        GpuscanError: an array is larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.repeat(np.array([3, 1, 4]), np.array([2, 0, 3]))
        array([3, 3, 4, 4, 4])
        >>> gs.repeat(np.array([[3, 1], [4, 1]]), 2, axis=1)
        array([[3, 3, 1, 1],
               [4, 4, 1, 1]])
    """
    if isinstance(repeats, Array) and isinstance(x, Array):
        repeats = _ends_on_device(x, repeats, axis) or repeats
    return _repeat(x, repeats, axis=axis, device=device)


@takes_numpy("x")
@launchable_with(upload=_upload_repeats, counts=["repeats"])
def _repeat(x: object, repeats: object, *, axis: int | None = None, device: Devices = None) -> object:
    """Return the result of `repeat`."""
    structure, given = structure_and_leaves(x, only_moved=True)
    # No sets, since the hash of a length would make it a part of the program.
    if axis is None and any(leaf.shape != given[0].shape for leaf in given):
        raise ValueError("a bundle of arrays of several shapes was passed; pass the axis to repeat along")
    shaped = [as_some_array(leaf).reshape(-1) if axis is None else as_some_array(leaf) for leaf in given]
    resolved_axis = resolve_axis(0 if axis is None else axis, shaped[0].shape)
    length = shaped[0].shape[resolved_axis]
    if any(leaf.shape[resolved_axis] != length for leaf in shaped):
        lengths = sorted({leaf.shape[resolved_axis] for leaf in shaped})
        raise ValueError(f"a bundle of arrays of the lengths {lengths} was passed; pass arrays of one length")
    counts = repeats if isinstance(repeats, _Ends) else _check_repeats(repeats, length)
    call_device = find_first_device((*given, counts), device)
    on_device = any(isinstance(operand, Array) for operand in (*given, counts))
    if call_device is None:
        assert not isinstance(counts, _Ends)
        results = [np.repeat(leaf, counts, resolved_axis) for leaf in shaped]
        return assemble_arrays(structure, results, x)
    bits = [leaf if on_device else as_bits(leaf) for leaf in shaped]
    arrays = [call_device.asarray(leaf) for leaf in bits]
    if isinstance(counts, int):
        repeated = [_repeat_all(array, counts, resolved_axis) for array in arrays]
    else:
        entries = _find_entries(call_device, counts)
        repeated = [take_checked_indices(array, entries, resolved_axis) for array in arrays]
    if on_device:
        return structure.build_bundle(repeated)
    moved = [from_bits(result.numpy(), leaf.dtype) for result, leaf in zip(repeated, shaped, strict=True)]
    return assemble_arrays(structure, moved, x)


def _ends_on_device(x: Array, repeats: Array, axis: int | None) -> _Ends | None:
    """Return how often each entry is repeated, and wait for the length; None if something is wrong with the arguments.

    The rest of the call is a program for all lengths.
    """
    try:
        length = x.size if axis is None else x.shape[resolve_axis(axis, x.shape)]
    except (TypeError, ValueError):
        return None
    if repeats.shape != (length,) or not length or repeats.dtype.kind not in "biu" or repeats.device is not x.device:
        return None
    ends, sums = _sum_repeats(repeats)
    contents = x._context.read_and_check(*[(array.buffer, array.offset, array.nbytes) for array in sums])
    total, *least = (int(content.view(array.dtype)[0]) for content, array in zip(contents, sums, strict=True))
    return None if total >= _MOST_ENTRIES or min(least, default=0) < 0 else _Ends(ends, total)


@launchable
def _sum_repeats(repeats: Array) -> tuple[Array, list[Array]]:
    """Return where the copies of each entry end, and their number and the least number of repeats, if it has a sign."""
    sums = [reduce(repeats.astype(np.uint64), "add")]
    if repeats.dtype.kind == "i":
        sums.append(reduce(repeats, "minimum").astype(np.int32))
    ends: Array = scan(repeats.astype(np.uint32), "add", axis=0)
    return ends, sums


def _check_repeats(repeats: object, length: int) -> SomeArray | int:
    """Return how often entries are repeated: one integer, or one for each of `length` entries."""
    one = None if isinstance(repeats, Array) else as_integer(repeats)
    if one is not None:
        if one < 0:
            raise ValueError(f"repeats={one} was passed, which is negative; pass 0 or more")
        return one
    counts = as_some_array(repeats)
    if counts.dtype.kind not in "biu" and counts.size:
        raise TypeError(f"repeats of dtype {counts.dtype} were passed; pass integers")
    if counts.ndim > 1 or counts.size not in (1, length):
        raise ValueError(
            f"repeats of shape {counts.shape} were passed for {length} entries; pass one number, or one for each entry"
        )
    if not isinstance(counts, Array):
        if counts.size and counts.min() < 0:
            raise ValueError(f"repeats of {counts.min()} were passed, which is negative; pass numbers of 0 or more")
        return int(counts.reshape(-1)[0]) if counts.size == 1 else counts.astype(np.int64)
    return counts.reshape(-1) if counts.size == length else counts.reshape(1)[np.zeros(length, np.intp)]


def _repeat_all(array: Array, count: int, axis: int) -> Array:
    """Return an array with each entry of an axis `count` times."""
    shape = array.shape
    if not array.size or not count:
        return new_array(array.device, None, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]), array.dtype)
    apart = array[(*[slice(None)] * (axis + 1), None)]
    view = broadcast(apart, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    whole = Array._of(array.device, duplicate(view))
    return whole.reshape(*shape[:axis], shape[axis] * count, *shape[axis + 1 :])


def _find_entries(device: Device, counts: SomeArray | _Ends) -> Array:
    """Return the index of the entry that each entry of the result repeats."""
    if isinstance(counts, _Ends):
        return Array._of(device, search(counts.ends, counts.total, right=True))
    if isinstance(counts, Array):
        if not counts.size:
            return new_array(device, np.zeros(0, np.uint32))
        if counts.dtype.kind == "i" and int(reduce(counts, "minimum")) < 0:
            raise ValueError("repeats on a device were passed, and some are negative; pass numbers of 0 or more")
        total = int(reduce(counts.astype(np.uint64), "add"))
    else:
        sums = np.cumsum(counts)
        total = int(sums[-1]) if sums.size else 0
    if total >= _MOST_ENTRIES:
        raise DeviceMemoryError(
            f"an array was to be repeated to {total} entries, but a device repeats to fewer than 2**31 at a time. "
            "Repeat parts of it"
        )
    if isinstance(counts, Array):
        ends = contiguous(scan(counts.astype(np.uint32), "add", axis=0))
    else:
        ends = upload_array(device._context, sums.astype(np.uint32))
    return Array._of(device, search(ends, total, right=True))
