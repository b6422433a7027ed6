"""The public functions `scan` and `reduce` of dask arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuscan.dask.call import call_of, with_initial
from gpuscan.dask.graphs import reduce_axis, scan_by_totals, scan_sequentially
from gpuscan.dask.workers import threads
from gpuscan.problem.arguments import as_flag, resolve_axis

METHODS = ("totals", "sequential")


def scan(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    dtype: Any = None,
    before: Callable[..., Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    method: str = "totals",
) -> Any:
    """Return the running combination of a dask array's elements along an axis, as a lazy dask array.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``, as `gpuscan.scan` computes it. Each block is scanned by the default
    device of the worker that has it, see `use_one_device_each`. Integers have the bits of `gpuscan.scan` of the whole
    array; floats have the same bits on every run for the same chunks and the same kind of device.

    Args:
        x: a dask array of shape (…, n, …), or what `dask.array.asarray` takes; or a bundle of them, which is a tuple,
            named tuple, list or dict of arrays of one shape. Chunks may have unknown lengths.
        op: as in `gpuscan.scan`: any associative operator. It is sent to the workers by cloudpickle.
        axis: the axis to scan along. A 1-D array needs none.
        exclusive: as in `gpuscan.scan`.
        reverse: as in `gpuscan.scan`.
        initial: as in `gpuscan.scan`. It may be a dask array of the shape of `x` without the axis.
        dtype: as in `gpuscan.scan`.
        before, after: as in `gpuscan.scan`: functions that map each element as it is loaded, and each combined element
            as it is stored. A `before` of two parameters also gets the element's index in the whole array.
        method: ``"totals"`` reduces all blocks in parallel, scans the totals of each row of blocks in one task, and
            then scans all blocks in parallel. It computes `x` twice, so that no block has to wait in memory. If that is
            slow, or if `x` has other values the second time, pass ``x.persist()``. ``"sequential"`` computes each block
            once, and scans it when the block before it is done. At most one block more than the cluster (or, without
            one, this machine) has threads at the time of the call waits for that in memory.

    Returns:
        A dask array with the chunks of `x`, or a bundle of them. Axes that belong to the element, as those of matrices,
        have one chunk.

    Raises:
        ValueError: the axis, `initial`, `method` or the shapes of a bundle do not fit; or a `before` of two parameters
            is passed for chunks of unknown lengths.
        TypeError: the operator does not take the dtype, or an argument has the wrong type.
        OperatorError: `op` is no operator.

    The three steps of ``"totals"`` are those of a scan in three dispatches (Blelloch 1990).

    Example:
        >>> import dask.array as da
        >>> import gpuscan.dask
        >>> x = da.asarray([3, 1, 4, 1, 5, 9], chunks=2)
        >>> gpuscan.dask.scan(x, "maximum").compute()
        array([3, 3, 4, 4, 5, 9])
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} was passed, and there is none of that name; pass one of {METHODS}")
    flags = {"exclusive": as_flag("exclusive", exclusive), "reverse": as_flag("reverse", reverse)}
    call = call_of(x, op, axis, dtype, **flags, before=before, after=after)
    call, seeds = with_initial(call, initial)
    if method == "sequential":
        return scan_sequentially(call, seeds, read_ahead=1 + threads())
    return scan_by_totals(call, seeds)


def reduce(x: Any, op: Any = "add", *, axis: int | tuple[int, ...] | None = None) -> Any:
    """Return the combination of all elements of a dask array, or of those along some axes, as a lazy dask array.

    ``op(…op(x[0], x[1])…, x[n-1])``. Each block is reduced by the default device of its worker, and the totals of each
    row of blocks are reduced in one task. Elements are combined in their order, so `op` need not commute.

    Args:
        x: as in `scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce, or a tuple of axes (default: all of them). Elements are combined in C order.

    Returns:
        A dask array of the shape of `x` without the axes (default: of shape ``()``), or a bundle of them.

    Raises:
        ValueError: the axis or the shapes of a bundle do not fit; or, when it is computed, an axis has length 0 and the
            operator has no identity.
        TypeError, OperatorError: as in `scan`.

    Example:
        >>> import dask.array as da
        >>> import gpuscan.dask
        >>> gpuscan.dask.reduce(da.asarray([[3, 1], [4, 1], [5, 9]], chunks=2), axis=0).compute()
        array([12, 11])
    """
    if axis is not None and not isinstance(axis, tuple):
        return reduce_axis(call_of(x, op, axis, None))
    shape = (1,) * call_of(x, op, 0, None).ndim
    axes = range(len(shape)) if axis is None else [resolve_axis(each, shape) for each in axis]
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"axis={axis!r} was passed; pass at least one axis, and each axis once")
    for last in sorted(axes, reverse=True):
        # Along the last axis first: this combines the elements in C order.
        x = reduce_axis(call_of(x, op, last, None))
    return x
