"""The functions that users call."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.device.adapters import ADAPTER_VARIABLE, NUMPY
from gpuscan.device.backends import BACKEND_VARIABLE, webgpu
from gpuscan.errors import AdapterNotFoundError
from gpuscan.operators.builtin import resolve
from gpuscan.planning.strategies import check_strategy
from gpuscan.problem.problem import Problem, as_flag, fields_of, pose, spread
from gpuscan.problem.results import assembled, own_axes

if TYPE_CHECKING:
    from gpuscan.api.device import Device

SEARCHED = 1000  # steps, at most, to find out whether two results share memory
SMALL_BYTES = 64 << 10  # NumPy arrays up to this size go by gpuscan.engine.small, where they can


def scan(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    segments: Any = None,
    keys: Any = None,
    dtype: Any = None,
    out: Any = None,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    compensated: bool = False,
    device: Device | str | None = None,
    strategy: str = "auto",
) -> Any:
    """The running combination of an array's elements along an axis.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``, evaluated in a fixed tree that does not depend on timing: for
    one device, dtype, operator and shape the bits are the same on every run and under every strategy.

    Args:
        x: anything `np.asarray` takes, of any memory order; or a tuple, named tuple, dict or structured array of
            arrays of one shape, whose elements are then one value of each.
        op: what combines, as a name (``"add"``, ``"maximum"``, …), a NumPy ufunc, a `gpuscan.Operator`, or a Python
            function of (left, right). It must be associative; it need not commute.
        axis: the axis to scan along. May be left out where there is only one.
        exclusive: leave ``x[i]`` out of ``y[i]``: ``y[0]`` is `initial`, or the operator's identity.
        reverse: scan from the end: exactly ``flip(scan(flip(x, axis)), axis)``.
        initial: the left operand of the first combination, broadcast over the other axes; inclusive results have it
            in them as well.
        segments: of a 1-D array, where it is cut: offsets as in CSR's ``indptr``, the first 0, the last its length,
            none smaller than the one before (equal ones are empty segments). Every segment is scanned for itself, as
            a row is, each with the same `initial`.
        keys: the same by a key for each element: the scan restarts where ``keys[i] != keys[i-1]``.
        dtype: what to combine in and return; left out, the dtype of `x`. Integers wrap.
        out: where to write the result; it must have the result's shape and dtype.
        before: a function of an input element, fused into the load; what it gives is what `op` combines, and may
            have other types or more fields than the input.
        after: a function of a combined element, fused into the store; what it gives is the result.
        compensated: of sums of float32, carry the rounding errors along, and round each result once: see
            docs/numerics.md.
        device: a `gpuscan.Device`, a part of an adapter's summary, or ``"numpy"``; left out, the best adapter.
        strategy: ``"auto"``, ``"lookahead"``, ``"lookback"``, ``"fallback"`` or ``"three_dispatch"``.

    Returns:
        An array like `x`, or the same bundle of arrays.

    Raises:
        ValueError: the axis, `out`, `initial`, `segments`, `keys` or the shapes of a bundle do not fit; the message
            names both sides.
        TypeError: the operator does not take the dtype.
        OperatorError: the operator cannot be made into a shader.
        UnsupportedDtypeError: the adapter cannot hold the dtype.
        StrategyError: the strategy is unknown or unsafe on this adapter.
        AdapterNotFoundError: no adapter answers to `device`.

    The single-pass strategies follow Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back"
    (2016), and Smith, Levien & Owens, "Decoupled Fallback" (SPAA 2025); segments are cut by a head flag beside each
    element (Blelloch 1990).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32))
        array([ 3,  4,  8,  9, 14], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), "maximum", reverse=True)
        array([5, 5, 5, 5, 5], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), segments=[0, 2, 2, 5])
        array([ 3,  4,  4,  5, 10], dtype=int32)
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), keys=np.array([7, 7, 7, 2, 2]), exclusive=True)
        array([0, 3, 4, 0, 1], dtype=int32)
    """
    if (
        type(x) is np.ndarray
        and x.nbytes <= SMALL_BYTES
        and compensated is False
        and not any(option is not None for option in (initial, segments, keys, out, before, after))
    ):
        home = resolve_device(device)
        if home is not None:
            from gpuscan.engine.small import scan_small

            small = scan_small(home, x, op, axis, exclusive, reverse, dtype, strategy)
            if small is not None:
                return small
    options = {"initial": initial, "dtype": dtype, "before": before, "after": after}
    if as_flag("compensated", compensated):
        from gpuscan.problem.compensated_sum import lifted

        x, op, options = lifted(x, op, options)
    problem = pose(x, op, axis=axis, exclusive=exclusive, reverse=reverse, segments=segments, keys=keys, **options)
    on_device = any(isinstance(leaf, Array) for leaf in problem.leaves)
    outputs = None if out is None or on_device else check_out(out, problem)
    check_strategy(strategy)
    if on_device:
        from gpuscan.engine.device_arrays import scan_arrays

        structure = problem.destination.structure
        arrays = scan_arrays(problem, None if out is None else structure.flatten(out), device, strategy)
        return structure.unflatten(arrays) if out is None else out
    chosen = resolve_device(device)
    if problem.empty:
        shape = (problem.rows, problem.row_length)
        rows = [np.empty((*shape, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    elif chosen is None:
        from gpuscan.reference import scan as reference

        rows = reference.accumulate(problem)
    else:
        from gpuscan.engine.host_arrays import run

        if outputs is not None:
            problem = replace(problem, leaves=tuple(apart(leaf, outputs) for leaf in problem.leaves))
            if problem.heads is not None and isinstance(problem.heads.keys, np.ndarray):
                problem = replace(problem, heads=replace(problem.heads, keys=apart(problem.heads.keys, outputs)))
        swapped = outputs is not None and not all(output.dtype.isnative for output in outputs)
        targets = None if swapped else outputs
        if outputs is None and problem.in_columns:
            targets = [np.empty((*problem.shape, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
        rows = run(chosen, problem, strategy, outputs=targets)
        if outputs is None and targets is not None:
            return bundle(problem, targets, x)
    return deliver(problem, rows, outputs, out, x)


def scan_chunks(
    chunks: Iterable[Any],
    op: Any = "add",
    *,
    exclusive: bool = False,
    initial: Any = None,
    dtype: Any = None,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    compensated: bool = False,
    device: Device | str | None = None,
    strategy: str = "auto",
) -> Iterator[Any]:
    """The scan of a row that comes in chunks: ``scan(concatenate(chunks))``, chunk by chunk, with the same bits.

    (With ``device="numpy"`` the same bits of floats are those of named operators, but for ``"matmul"``: Python
    functions and products of matrices are combined there in an order that follows the chunks.)

    A few chunks are under way at a time, so the row may be larger than memory. Results come once the GPU has a piece
    full, or the chunks end: a chunk's may come after later chunks were taken. Chunks are copied as they come, so all
    may be read into one array.

    Args:
        chunks: an iterable of 1-D arrays of any lengths, or of bundles, all of one dtype.
        op: as in `scan`, and so are all that follow.
        exclusive: leave each element out of its own result.
        initial: the left operand of the first combination of the first chunk.
        dtype: what to combine in and return.
        before: a function of an input element, fused into the load.
        after: a function of a combined element, fused into the store.
        compensated: as in `scan`.
        device: where to run.
        strategy: how tiles meet.

    Yields:
        For each chunk a NumPy array of its length, or the bundle of them, in order.

    Raises:
        ValueError: a chunk has several axes.
        TypeError: a chunk has another dtype than the first one. This and what the iterable itself raises comes after
            the results of the chunks before.
        GpuscanError: as `scan` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> chunks = (np.full(n, n, np.uint32) for n in (1, 2, 3))
        >>> [part.tolist() for part in gs.scan_chunks(chunks)]
        [[1], [3, 5], [8, 11, 14]]
    """
    from gpuscan.engine.chunks import scan_in_chunks, scan_on_cpu

    options: dict[str, Any] = {
        "axis": None,
        "exclusive": as_flag("exclusive", exclusive),
        "reverse": False,
        "initial": initial,
        "dtype": dtype,
        "before": before,
        "after": after,
    }
    resolve(op)
    check_strategy(strategy)
    chosen = resolve_device(device)
    if as_flag("compensated", compensated):
        from gpuscan.problem.compensated_sum import lifted_chunks

        return lifted_chunks(chunks, op, options, chosen, strategy)
    if chosen is None:
        return scan_on_cpu(chunks, op, options)
    return scan_in_chunks(chunks, op, chosen, strategy, options)


def check_out(out: Any, problem: Problem) -> list[np.ndarray[Any, Any]]:
    """The arrays of `out`, depth first.

    Raises:
        TypeError: one is not an array, cannot be written, or has another dtype.
        ValueError: one has another shape.
    """
    if problem.destination.structure.kind == "record":
        structure, arrays = spread(out)
        if not isinstance(out, np.ndarray) or structure != problem.destination.structure:
            raise TypeError(f"out must be a structured array with the fields {problem.destination.structure.keys}")
    else:
        arrays = fields_of(out, problem.destination, "out")
    for array, field in zip(arrays, problem.destination.fields, strict=True):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"out must be a NumPy array, got {type(array).__name__}")
        wanted = (*problem.shape, *field.shape)
        if array.shape != wanted:
            raise ValueError(f"out of shape {array.shape} was passed for a result of shape {wanted}")
        if array.dtype.newbyteorder("=") != field.scalar.dtype:
            raise TypeError(
                f"out of dtype {array.dtype} was passed for a result of dtype {field.scalar.dtype}. Pass "
                f"dtype={array.dtype.newbyteorder('=')} to combine in it, or an out of the result's dtype"
            )
        if not array.flags.writeable:
            raise ValueError("out is read-only; pass an array that can be written")
    if any(share_bytes(array, other) for array, other in combinations(arrays, 2)):
        raise ValueError("two fields of out share memory; pass arrays that lie apart")
    return arrays


def share_bytes(array: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether a byte is of both arrays; not where that is too hard to tell."""
    with suppress(np.exceptions.TooHardError):
        return np.shares_memory(array, other, max_work=SEARCHED)  # type: ignore[arg-type]
    return False


def apart(leaf: np.ndarray[Any, Any], outputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The array, or a copy where results would be written over what is not read yet.

    Large arrays are scanned piece by piece: an element may be replaced by its own result alone.
    """
    for output in outputs:
        same = leaf.__array_interface__["data"] == output.__array_interface__["data"] and leaf.strides == output.strides
        if not same and np.may_share_memory(leaf, output):
            return leaf.copy()
    return leaf


def deliver(
    problem: Problem, rows: list[np.ndarray[Any, Any]], outputs: list[np.ndarray[Any, Any]] | None, out: Any, x: Any
) -> Any:
    """The result in the form of the user's input, or written to `out`."""
    if outputs is not None and not rows:
        return out  # written piece by piece
    results = [problem.from_rows(row) for row in rows]
    if outputs is not None:
        for target, result in zip(outputs, results, strict=True):
            target[...] = result
        return out
    return bundle(problem, [np.ascontiguousarray(result) for result in results], x)


def bundle(problem: Problem, results: list[np.ndarray[Any, Any]], x: Any) -> Any:
    """The arrays of a result in the form of the user's input."""
    structure = problem.destination.structure
    like = x if structure == problem.source.structure else None
    return assembled(structure, results, results[0].ndim - own_axes(x)[0], like)


# ----- Which device

_warned = threading.Event()


def resolve_device(device: Device | str | None) -> Device | None:
    """The device that a call means; None stands for NumPy.

    Raises:
        AdapterNotFoundError: no adapter answers to the request, or $GPUSCAN_BACKEND names no implementation here.
        TypeError: `device` is neither a device nor a string.
    """
    from gpuscan.api.device import Device, default_device, open_device

    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        return None if device == NUMPY else open_device(device)
    if device is not None:
        raise TypeError(f"device must be a gpuscan.Device or a string, got {type(device).__name__}")
    asked = os.environ.get(ADAPTER_VARIABLE, "").strip()
    if asked == NUMPY:
        return None
    try:
        return default_device()
    except AdapterNotFoundError as error:
        if asked:
            raise
        if os.environ.get(BACKEND_VARIABLE, "").strip():
            webgpu()  # one that there is not is an error too, not a machine without adapters
        if not _warned.is_set():
            _warned.set()
            warnings.warn(f"{error}; until then gpuscan runs on NumPy", RuntimeWarning, stacklevel=3)
        return None
