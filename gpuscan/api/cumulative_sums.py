"""The cumulative functions of the Python array API standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, as_some_array, new_array
from gpuscan.api.call_device import Devices, takes_numpy
from gpuscan.api.launches import launchable
from gpuscan.api.outputs import check_out_array
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import dtype_from, scalar_of
from gpuscan.problem.arguments import as_flag, resolve_axis

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from gpuscan.api.annotations import C, CumulativeOptions, DTypeOf, F, NewSums, Of, T


@overload
def cumulative_sum(
    x: Array, /, *, dtype: DTypeLike | None = ..., out: Array | None = ..., **options: Unpack[CumulativeOptions]
) -> Array: ...
@overload
def cumulative_sum(x: Of[F], /, *, dtype: None = ..., **options: Unpack[NewSums]) -> NDArray[F]: ...
@overload
def cumulative_sum(
    x: Of[np.signedinteger[Any] | np.bool_], /, *, dtype: None = ..., **options: Unpack[NewSums]
) -> NDArray[np.int64]: ...
@overload
def cumulative_sum(
    x: Of[np.unsignedinteger[Any]], /, *, dtype: None = ..., **options: Unpack[NewSums]
) -> NDArray[np.uint64]: ...
@overload
def cumulative_sum(x: ArrayLike, /, *, dtype: DTypeOf[T], **options: Unpack[NewSums]) -> NDArray[T]: ...
@overload
def cumulative_sum(
    x: object, /, *, out: C, dtype: DTypeLike | None = ..., **options: Unpack[CumulativeOptions]
) -> C: ...
@overload
def cumulative_sum(x: ArrayLike, /, *, dtype: DTypeLike | None = ..., **options: Unpack[NewSums]) -> AnyArray: ...
@takes_numpy("x")
@launchable
def cumulative_sum(
    x: object,
    /,
    *,
    axis: int | None = None,
    dtype: object = None,
    include_initial: bool = False,
    out: object = None,
    device: Devices = None,
) -> object:
    """Return the cumulative sum along an axis, ``y[i] = x[0] + … + x[i]``, as the array API standard defines it.

    Args:
        x: an array of numbers, as in `gpuscan.scan`.
        axis: the axis to sum along. A 1-D array needs none.
        dtype: the dtype of the sum (default: int64 for bool and signed integers, uint64 for unsigned integers, else
            the dtype of `x`).
        include_initial: True to begin with 0, which makes the axis longer by one.
        out: the array to write the result to, of the result's shape and dtype.
        device: as in `gpuscan.scan`.

    Returns:
        An array of the type and shape of `x`; `axis` is one longer with `include_initial`. If `out` is passed, `out`.

    Raises:
        ValueError: the axis is out of range, or missing for an array of several axes; or `out` has another shape.
        TypeError: an argument has the wrong type, or `out` another dtype.
        GpuscanError: as `gpuscan.scan` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.cumulative_sum(np.array([200, 100, 50], np.uint8), include_initial=True)
        array([  0, 200, 300, 350], dtype=uint64)
    """
    return _cumulative(x, "add", 0, axis, dtype, include_initial, out, device)


@overload
def cumulative_prod(
    x: Array, /, *, dtype: DTypeLike | None = ..., out: Array | None = ..., **options: Unpack[CumulativeOptions]
) -> Array: ...
@overload
def cumulative_prod(x: Of[F], /, *, dtype: None = ..., **options: Unpack[NewSums]) -> NDArray[F]: ...
@overload
def cumulative_prod(
    x: Of[np.signedinteger[Any] | np.bool_], /, *, dtype: None = ..., **options: Unpack[NewSums]
) -> NDArray[np.int64]: ...
@overload
def cumulative_prod(
    x: Of[np.unsignedinteger[Any]], /, *, dtype: None = ..., **options: Unpack[NewSums]
) -> NDArray[np.uint64]: ...
@overload
def cumulative_prod(x: ArrayLike, /, *, dtype: DTypeOf[T], **options: Unpack[NewSums]) -> NDArray[T]: ...
@overload
def cumulative_prod(
    x: object, /, *, out: C, dtype: DTypeLike | None = ..., **options: Unpack[CumulativeOptions]
) -> C: ...
@overload
def cumulative_prod(x: ArrayLike, /, *, dtype: DTypeLike | None = ..., **options: Unpack[NewSums]) -> AnyArray: ...
@takes_numpy("x")
@launchable
def cumulative_prod(
    x: object,
    /,
    *,
    axis: int | None = None,
    dtype: object = None,
    include_initial: bool = False,
    out: object = None,
    device: Devices = None,
) -> object:
    """Return the cumulative product along an axis, ``y[i] = x[0] * … * x[i]``, as the array API standard defines it.

    Args:
        x, axis, dtype, out, device: as in `cumulative_sum`.
        include_initial: True to begin with 1, which makes the axis longer by one.

    Returns:
        An array as `cumulative_sum` returns it.

    Raises:
        ValueError, TypeError, GpuscanError: as `cumulative_sum` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.cumulative_prod(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), axis=1)
        array([[ 1.,  2.],
               [ 3., 12.]], dtype=float32)
    """
    return _cumulative(x, "multiply", 1, axis, dtype, include_initial, out, device)


def promote_dtype(dtype: AnyDType) -> AnyDType:
    """Return the dtype of sums and products of numbers of this one."""
    scalar = scalar_of(dtype)
    if scalar.kind == "unsigned":
        return np.dtype(np.uint64)
    if scalar.kind in ("bool", "signed"):
        return np.dtype(np.int64)
    return dtype.newbyteorder("=")


def _cumulative(
    x: object, op: str, start: int, axis: int | None, dtype: object, include_initial: bool, out: Any, device: Devices
) -> object:
    array = as_some_array(x)
    result_dtype = promote_dtype(array.dtype) if dtype is None else dtype_from(dtype).newbyteorder("=")
    axis = resolve_axis(axis, array.shape)
    if not as_flag("include_initial", include_initial):
        return scan(array, op, axis=axis, dtype=result_dtype, out=out, device=device)
    shape = tuple(n + 1 if i == axis else n for i, n in enumerate(array.shape))
    result: Any = out
    if out is not None:
        check_out_array(out, shape, result_dtype, array.device if isinstance(array, Array) else None)
    elif isinstance(array, Array):
        result = new_array(array.device, None, shape, result_dtype)
    else:
        result = np.empty(shape, result_dtype)
    before, rest = ((slice(None),) * axis + (part,) for part in (slice(0, 1), slice(1, None)))
    scan(array, op, axis=axis, dtype=result_dtype, out=result[rest], device=device)
    result[before] = start
    return result
