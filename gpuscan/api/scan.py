"""`gpuscan.scan`: the running combination of an array's elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device, as_some_array
from gpuscan.api.call_device import Devices, choose_device_for, find_device_or_group, find_distributed, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.device_group import DeviceGroup
from gpuscan.api.groups import execute_groups
from gpuscan.api.host_cuts import upload_scan_cuts
from gpuscan.api.launches import launchable_with
from gpuscan.api.outputs import check_out, execute, in_form_of, is_on_device
from gpuscan.api.reduce import reduce
from gpuscan.array_types import AnyArray
from gpuscan.elements import element_of, tuple_of
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.engine.element_copy import write_to_outputs
from gpuscan.engine.elementwise import map_elements
from gpuscan.engine.group_tables import CountedLabels
from gpuscan.operators.trace import ROUNDED_WHEN_STORED, Map, trace_function
from gpuscan.planning.strategies import Strategy, check_strategy
from gpuscan.problem.arguments import as_flag, as_numpy_arrays, check_one_cut
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.groups import check_labels
from gpuscan.problem.indexed_maps import IndexedMap, as_map
from gpuscan.problem.problem import Problem, ProblemOptions
from gpuscan.problem.results import over_arrays
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from gpuscan.api.annotations import (
        AnyScan,
        B,
        C,
        DTypeOf,
        Mapped,
        MappedScan,
        Operation,
        PlainScan,
        ScanInKind,
        ScanInto,
        Several,
        T,
        Value,
    )


@overload
def scan(x: Array, op: Operation = ..., *, dtype: DTypeLike | None = ..., **options: Unpack[PlainScan]) -> Array: ...
@overload
def scan(x: B, op: Operation = ..., *, dtype: None = ..., **options: Unpack[PlainScan]) -> B: ...
@overload
def scan(x: Several, op: Operation = ..., *, dtype: DTypeLike, **options: Unpack[PlainScan]) -> Any: ...
@overload
def scan(x: ArrayLike, op: Operation = ..., *, dtype: DTypeOf[T], **options: Unpack[PlainScan]) -> NDArray[T]: ...
@overload
def scan(
    x: ArrayLike, op: Operation = ..., *, dtype: DTypeLike | None = ..., **options: Unpack[PlainScan]
) -> AnyArray: ...
@overload
def scan(x: object, op: Operation = ..., *, out: C, **options: Unpack[ScanInto]) -> C: ...
@overload
def scan(
    x: object, op: Operation = ..., *, before: Mapped, after: Mapped | None = ..., **options: Unpack[MappedScan]
) -> Any: ...
@overload
def scan(
    x: object, op: Operation = ..., *, before: None = ..., after: Mapped, **options: Unpack[MappedScan]
) -> Any: ...
@overload
def scan(
    x: Array,
    op: Operation = ...,
    *,
    return_total: Literal[True],
    dtype: DTypeLike | None = ...,
    **options: Unpack[ScanInKind],
) -> tuple[Array, Array]: ...
@overload
def scan(
    x: B, op: Operation = ..., *, return_total: Literal[True], dtype: None = ..., **options: Unpack[ScanInKind]
) -> tuple[B, Any]: ...
@overload
def scan(x: object, op: Operation = ..., *, return_total: bool, **options: Unpack[AnyScan]) -> Any: ...
@takes_numpy("x")
@launchable_with("initial", data=["initial"], integers=["initial"], upload=upload_scan_cuts)
def scan(
    x: object,
    op: Operation = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    segments: object = None,
    keys: object = None,
    groups: object = None,
    dtype: object = None,
    out: object = None,
    before: Callable[..., object] | None = None,
    after: Mapped | None = None,
    compensated: bool = False,
    return_total: bool = False,
    device: Devices = None,
    strategy: Strategy = "auto",
    reproducible: str | None = None,
) -> object:
    """Return the prefix scan of an array along an axis: all running combinations of its elements.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``: running sums for ``"add"``, running maxima for ``"maximum"``. For
    one device, dtype, operator and shape the bits are the same on every run and under every strategy, because the order
    of combination is fixed.

    Args:
        x: the input: anything `np.asarray` takes, of any memory order; a `gpuscan.Array`; a `gpuscan.ShardedArray`; or
            a bundle of such arrays. A bundle is a tuple, named tuple, list, dict or structured array of arrays, which
            may be nested. An element of a bundle is one value of each of its arrays. If one array has more axes than
            the others, its last axes belong to the element: a vector or a matrix.
        op: the operator: a name (``"add"``, ``"maximum"``, …; docs/operators.md has all), a NumPy ufunc, a
            `gpuscan.Operator`, or a Python function of (left, right). It must be associative; it need not be
            commutative.
        axis: the axis to scan along. A 1-D array needs none.
        exclusive: True to leave ``x[i]`` out of ``y[i]``, so that ``y[0]`` is `initial` or the operator's identity.
        reverse: True to scan from the end: exactly ``flip(scan(flip(x, axis)), axis)``.
        initial: the left operand of the first combination, broadcast over the other axes: ``y[0] = op(initial, x[0])``,
            or ``y[0] = initial`` if `exclusive` is True.
        segments: the offsets along the axis at which the scan restarts, as in CSR's ``indptr``. The first offset is 0,
            the last one is the length of the axis, and they never decrease. Two equal offsets enclose an empty segment.
            All rows have the same segments. Each segment begins with `initial`.
            Offsets in a `gpuscan.Array` are checked on the device. If they are wrong, this call or the next read of a
            result raises a ValueError. By then `out` may hold wrong results.
        keys: the scan restarts where a key differs from the previous key along the axis. Pass one key for each element,
            in the shape of `x`; or keys of shape ``(n,)`` for an axis of length n, which hold for all rows. Keys are
            numbers, strings, dates or other values that ``!=`` compares, in an array, a list, a Series or a
            categorical.
        groups: labels in any order. Each element is combined with the earlier elements that have the same label, as in
            pandas' ``groupby(groups).cumsum()``. Each group begins with `initial`. Pass one label for each element, in
            the shape of `x`; or labels of shape ``(n,)``, which hold for all rows. Labels are integers, bools, strings,
            dates or other hashable values, in an array, a list, a Series or a categorical. Labels in a `gpuscan.Array`
            are integers or bools.
            The labels -1, None and NaN are missing labels. An element with a missing label belongs to no group: its
            result is NaN, as in pandas. If the results are neither floats nor complex numbers, a missing label is a
            ValueError, which the next read may raise if the labels are on a device.
            Few labels are faster than many. The last bits of floats depend on the number of labels.
        dtype: the dtype of the computation and of the result (default: that of `x`). Unlike `np.cumsum`, small
            integers are not promoted: they wrap.
        out: the array to write the result to, of the result's shape and dtype.
        before: a function that maps each input element as it is loaded. `op` combines its results, which may have
            other dtypes or more fields than the input. A function of two parameters also gets the element's index
            along the axis, as int32 (with ``device="numpy"``, int64 where an axis is longer).
        after: a function that maps each combined element as it is stored. Its results are what the scan returns.
        compensated: for sums of float32, True to carry the rounding errors along and to round each result once; see
            docs/numerics.md.
        return_total: True to return a pair ``(result, total)``. The total is the combination of all elements of each
            row, as ``gpuscan.reduce(x, op, axis=axis)`` returns it with the same `initial`, `dtype`, `before` and
            `after`. It covers the whole row even if `segments`, `keys` or `groups` are passed. A reversed scan combines
            the elements of the total from the end of the row, too. The last bits of floats may differ from
            `gpuscan.reduce`. With `segments`, `keys` or `groups`, and in some exclusive scans, the total takes a second
            pass over `x`.
        device: a `gpuscan.Device`, a part of an adapter's summary, its number in `gpuscan.devices()`, or ``"numpy"``
            (default: the device of `x`; for NumPy arrays `gpuscan.default_device()`). A list of devices shares the work
            of NumPy arrays. Integers and bools then have the same bits as on one device. Floats have the same bits on
            every run with the same list. If a device fails, the error names it.
        strategy: the algorithm: ``"auto"`` (the fastest that is safe on the device), ``"lookahead"``, ``"lookback"``,
            ``"fallback"`` or ``"three_dispatch"``; see docs/tiles.md.
        reproducible: ``"everywhere"`` for the same bits on every device, driver and operating system, and with
            ``device="numpy"``; see docs/numerics.md. If there are several devices, in a list or in a
            `gpuscan.ShardedArray`, only the first one scans.

    Returns:
        An array of the type and shape of `x`, or a bundle like `x`; with `return_total`, the pair ``(result, total)``.
        The total has the shape of `x` without the axis. An empty array gives an empty array.

    Raises:
        ValueError: the axis, `out`, `initial`, `segments`, `keys`, `groups` or the shapes of a bundle do not fit;
            several of `segments`, `keys` and `groups` are passed; or the total of no elements is asked for, and there
            is neither `initial` nor an identity.
        TypeError: the operator does not take the dtype, or an argument has the wrong type.
        DeviceMemoryError: the device has too little memory; or with `groups`, an array is larger than one buffer
            binding of the device.
        OperatorError: the operator cannot be turned into a shader; or with `reproducible`, a function has an operation
            that gives different bits on different devices.
        UnsupportedDtypeError: the adapter cannot hold the dtype, or the operator cannot combine it.
        StrategyError: the strategy is unknown, or unsafe on this adapter.
        ProgressTimeoutError: a strategy that was passed by name timed out.
        AdapterNotFoundError: no adapter matches `device`.

    Sources: Blelloch, "Prefix Sums and Their Applications" (1990), for three dispatches and for segments; Merrill &
    Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016); Smith, Levien & Owens, "Decoupled
    Fallback" (SPAA 2025).

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
        >>> gs.scan(np.array([3, 1, 4, 1, 5], np.int32), groups=np.array([0, 1, 0, 1, 0]))
        array([ 3,  1,  7,  2, 12], dtype=int32)
        >>> gs.scan(np.ones((2, 5), np.int32), axis=1, segments=[0, 3, 5])
        array([[1, 2, 3, 1, 2],
               [1, 2, 3, 1, 2]], dtype=int32)
        >>> gs.scan(np.array([[3, 1, 4], [1, 5, 9]], np.int32), axis=1, return_total=True)
        (array([[ 3,  4,  8],
               [ 1,  6, 15]], dtype=int32), array([ 8, 15], dtype=int32))
    """
    options: ProblemOptions = {
        "axis": axis,
        "exclusive": exclusive,
        "reverse": reverse,
        "initial": initial,
        "segments": segments,
        "keys": keys,
        "dtype": dtype,
        "before": before,
        "after": after,
        "reproducible": reproducible,
    }
    given = x
    if (distributed := find_distributed(x)) is not None:
        refused = {"device": device, "groups": groups}
        more = {"compensated": compensated, "return_total": return_total}
        return distributed._scan_bundle(x, op, options, out=out, strategy=strategy, refused=refused, **more)
    check_one_cut(segments=options["segments"], keys=options["keys"], groups=groups)
    if options["segments"] is not None and out is None:
        # The offsets are checked while the GPU scans. If they are wrong, the call raises and returns nothing.
        options["checks_later"] = True
    if compensated is not False and as_flag("compensated", compensated):
        x, op, options = as_pairs(x, op, options)
    options["seeds_on_device"] = True
    problem = find_or_make_problem(x, op, **options)
    check_strategy(strategy)
    counted = groups if isinstance(groups, CountedLabels) else None
    labels = (
        check_labels(counted.labels if counted else groups, problem.shape, problem.axis) if groups is not None else None
    )
    call_device = choose_device_for(problem, find_device_or_group((*problem.arrays, labels), device))
    problem = seeds_by_rows(problem)
    outputs = check_out(problem, out, call_device if is_on_device(problem) else None)
    total, written = None, outputs
    if as_flag("return_total", return_total):
        total = total_of(problem, given, x, op, options, call_device, grouped=labels is not None)
        if problem.exclusive and is_on_device(problem):
            # The total may be computed from the results, and fail. Until then `out` stays as it is.
            written = None
    if labels is None:
        results = execute(problem, call_device, strategy, written)
    else:
        results = execute_groups(problem, counted or labels, call_device, strategy, written)
    if problem.heads is not None:
        problem.heads.check()
    totals = None if total is None else total(results)
    if written is not outputs:
        write_to_outputs(arrays_on_device(results), arrays_on_device(outputs or ()))
    result = in_form_of(problem, given, results) if out is None else out
    return result if total is None else (result, totals)


# ----- Totals
#
# The totals of a scan: the reduction along its axis, which the scan returns on request.


# The options of a scan that its reduction has as well.
_REDUCTION_OPTIONS = ("initial", "dtype", "before", "after", "reproducible")


def total_of(
    problem: Problem,
    given: object,
    x: object,
    op: Operation,
    options: ProblemOptions,
    device: Device | DeviceGroup | None,
    *,
    grouped: bool,
) -> Callable[[Sequence[SomeArray]], object]:
    """Return a function that gives the total of a scan from its results.

    What it needs of the input is read now, because the results may be written over the input.

    Args:
        given: what the caller passed. The total is returned in the same form.
        x, op, options: the input, the operator and the options that `problem` was made of.
        device: where the scan runs, as `find_device_or_group` returns it.
        grouped: True if labels cut the scan.
    """
    if not grouped and problem.row_length > 0 and not problem.exclusive and problem.heads is None:
        return partial(last_results, problem, given)
    if not grouped and completes_last_results(problem):
        return partial(compute_totals, problem, given, last_elements(problem))
    total = reduce_in_order(problem, x, op, options, device)
    return lambda results: total


def completes_last_results(problem: Problem) -> bool:
    """Return True if the total of an exclusive scan is its last result, combined with the last element.

    That needs results in the form in which elements are combined. On a device it also needs elements of one number in
    each field, and an operator that is a Python function.
    """
    fields = (*problem.source.fields, *problem.element.fields)
    alone = problem.row_length == 1 and not problem.initial  # an identity may change -0.0
    plain = problem.after is None and not problem.indexed and problem.operator.function is not None
    rounded = any(field.scalar.name in ROUNDED_WHEN_STORED for field in problem.element.fields)
    numbers = not is_on_device(problem) or not any(field.shape for field in fields)
    exclusive = problem.exclusive and problem.heads is None and not (problem.empty or problem.everywhere)
    return exclusive and plain and numbers and not rounded and not alone


def last_elements(problem: Problem) -> list[SomeArray]:
    """Return copies of the last element of each row in the order of the scan, in rows of length 1."""
    last = (slice(None),) * problem.axis + (slice(0, 1) if problem.reverse else slice(-1, None),)
    return [as_some_array(leaf)[last].copy() for leaf in problem.leaves]


def compute_totals(problem: Problem, x: object, elements: list[SomeArray], results: Sequence[SomeArray]) -> object:
    """Return the totals of an exclusive scan in the form of the input, one combination for each row.

    Args:
        problem: the scan, for which `completes_last_results` is True.
        x: what the caller passed.
        elements: the last elements, as `last_elements` returns them.
        results: the results of the scan.
    """
    last_index = (slice(None),) * problem.axis + (0 if problem.reverse else -1,)
    if is_on_device(problem):
        ends = [result[last_index] for result in arrays_on_device(results)]
        first = ends[0]
        ends += [element.reshape(first.shape) for element in arrays_on_device(elements)]
        totals = map_elements(first._context, ends, _combination(problem), first.shape)
        return in_form_of(problem, x, [Array._of(first.device, array) for array in totals])
    fields = problem.element.fields
    lasts = [result[last_index] for result in as_numpy_arrays(results)]
    seeds = tuple(last.reshape(problem.rows, *field.shape) for last, field in zip(lasts, fields, strict=True))
    shape = (*problem.shape[: problem.axis], 1, *problem.shape[problem.axis + 1 :])
    alone = replace(problem, leaves=tuple(elements), shape=shape, exclusive=False, initial=True, seeds=seeds)
    rows = reference.accumulate(alone)
    return in_form_of(problem, x, [row.reshape(last.shape)[()] for row, last in zip(rows, lasts, strict=True)])


def _combination(problem: Problem) -> Map:
    """Return the map from the numbers of a last result and of a loaded element to the numbers of the total."""
    element, source, before, function = problem.element, problem.source, problem.before, problem.operator.function
    assert function is not None

    def combine(numbers: tuple[Value, Value, Value, Value]) -> tuple[Value, Value]:
        left = element.structure.unflatten(numbers[: len(element.fields)])
        right = source.structure.unflatten(numbers[len(element.fields) :])
        total = element.structure.flatten(function(left, right if before is None else before(right)))
        return tuple(number.astype(field.scalar.dtype) for number, field in zip(total, element.fields, strict=True))

    dtypes = [field.scalar.dtype for field in (*element.fields, *source.fields)]
    return trace_function(combine, element_of(dtypes, tuple_of(len(dtypes))), "op")


def last_results(problem: Problem, x: object, results: Sequence[SomeArray]) -> object:
    """Return the last result of each row in the order of the scan, in the form of the input."""
    last_index = (slice(None),) * problem.axis + (0 if problem.reverse else -1,)
    lasts = [result[last_index] for result in results]
    # A view would keep the whole result in memory, and would change with it.
    return in_form_of(problem, x, [part.copy() if isinstance(part, (Array, np.ndarray)) else part for part in lasts])


def reduce_in_order(
    problem: Problem, x: object, op: Operation, options: ProblemOptions, device: Device | DeviceGroup | None
) -> object:
    """Return the reduction of each row in the order of the scan: a pass of its own over the elements."""
    reduction_options: dict[str, Any] = {name: value for name, value in options.items() if name in _REDUCTION_OPTIONS}
    if problem.reverse:
        from_end = (slice(None),) * problem.axis + (slice(None, None, -1),)
        x = over_arrays(lambda array: as_some_array(array)[from_end], x)
        reduction_options["before"] = _from_the_end(as_map(options["before"]), problem.row_length)
    devices: Any = list(device.devices) if isinstance(device, DeviceGroup) else device or "numpy"
    return reduce(x, op, axis=problem.axis, device=devices, **reduction_options)


def _from_the_end(before: object, length: int) -> object:
    """Return the map on load for flipped rows, in which an element still has the index that it has in the input."""
    if not isinstance(before, IndexedMap):
        return before
    return IndexedMap(lambda pair: before((pair[0], length - 1 - pair[1])))
