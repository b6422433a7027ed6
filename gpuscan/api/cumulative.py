"""The cumulative functions of the Python array API standard."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array, empty
from gpuscan.api.scan import scan
from gpuscan.elements import dtype_from, scalar_of
from gpuscan.problem.problem import as_flag, resolve_axis


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The cumulative sum along an axis: ``y[i] = x[0] + … + x[i]``, as the Python array API standard has it.

    Args:
        x: an array of numbers, as in `gpuscan.scan`.
        axis: the axis to sum along. May be left out where there is only one.
        dtype: of the sum. Left out: int64 for bool and narrower signed integers, uint64 for narrower unsigned ones,
            else the dtype of `x`.
        include_initial: begin with 0, so that the axis is longer by one.

    Returns:
        An array of the kind and shape of `x`, with ``axis`` one longer where `include_initial`.

    Raises:
        ValueError: the axis is out of range, or left out where there are several.
        GpuscanError: as `gpuscan.scan` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.cumulative_sum(np.array([200, 100, 50], np.uint8), include_initial=True)
        array([  0, 200, 300, 350], dtype=uint64)
    """
    return _cumulative(x, "add", 0, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """The cumulative product along an axis: ``y[i] = x[0] * … * x[i]``, as the Python array API standard has it.

    Args:
        x: an array of numbers, as in `gpuscan.scan`.
        axis: the axis to multiply along. May be left out where there is only one.
        dtype: of the product; left out, as in `cumulative_sum`.
        include_initial: begin with 1, so that the axis is longer by one.

    Returns:
        An array of the kind and shape of `x`, with ``axis`` one longer where `include_initial`.

    Raises:
        ValueError: the axis is out of range, or left out where there are several.
        GpuscanError: as `gpuscan.scan` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.cumulative_prod(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), axis=1)
        array([[ 1.,  2.],
               [ 3., 12.]], dtype=float32)
    """
    return _cumulative(x, "multiply", 1, axis, dtype, include_initial)


def promoted(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that sums and products of numbers of this one have."""
    scalar = scalar_of(dtype)
    if scalar.kind == "unsigned":
        return np.dtype(np.uint64)
    if scalar.kind in ("bool", "signed"):
        return np.dtype(np.int64)
    return dtype.newbyteorder("=")


def _cumulative(x: Any, op: str, start: int, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    x = x if isinstance(x, Array) else np.asarray(x)
    dtype = promoted(x.dtype) if dtype is None else dtype_from(dtype).newbyteorder("=")
    axis = resolve_axis(axis, x.shape)
    if not as_flag("include_initial", include_initial):
        return scan(x, op, axis=axis, dtype=dtype)
    shape = tuple(n + 1 if i == axis else n for i, n in enumerate(x.shape))
    if isinstance(x, Array):
        return _after_start(scan(x, op, axis=axis, dtype=dtype), shape, axis, start)
    result = np.empty(shape, dtype)
    before, rest = ((slice(None),) * axis + (part,) for part in (slice(0, 1), slice(1, None)))
    result[before] = start
    scan(x, op, axis=axis, dtype=dtype, out=result[rest])
    return result


def _after_start(sums: Array, shape: tuple[int, ...], axis: int, start: int) -> Array:
    """The array on a device with `start` before its first entry along the axis."""
    from gpuscan.engine.device_arrays import copy_over

    device, inner = sums.device, shape[axis + 1 :]
    outer = prod(shape[:axis])
    result = empty(device, shape, sums.dtype)
    if not result.size:
        return result
    first = device.asarray(np.full(prod(inner), start, sums.dtype))
    by_row, flat = (array.reshape(outer, -1) if array.size else array for array in (sums, result))
    with device.lock:
        for row in range(outer):
            copy_over(first, flat[row][: first.size])
            if sums.size:
                copy_over(by_row[row], flat[row][first.size :])
    return result
