"""`gpuscan.reduce`: the scan that keeps only the last result of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device
from gpuscan.api.call_device import Devices, choose_device_for, find_device_or_group, find_distributed, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.device_group import DeviceGroup, first_device_of
from gpuscan.api.groups import count_groups, execute_reduction
from gpuscan.api.host_cuts import upload_reduction_cuts
from gpuscan.api.launches import launchable_with
from gpuscan.api.outputs import check_out, is_on_device, reduce_rows, write_to_device
from gpuscan.api.reduced_axes import combine_bundle_axes, find_axes
from gpuscan.api.reductions import make_grouped_reduction, of_segments, reduction
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.device_seeds import seeds_by_rows, seeds_on_host
from gpuscan.operators.named_operators import resolve
from gpuscan.problem.arguments import as_flag, as_numpy_arrays, check_one_cut
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.labels import category_count
from gpuscan.problem.problem import Problem, ReductionOptions
from gpuscan.problem.results import assemble_arrays
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from gpuscan.api.annotations import (
        AnyReduction,
        C,
        DTypeOf,
        Mapped,
        Of,
        Operation,
        PlainReduction,
        ReduceInto,
        S,
        T,
        WholeReduction,
    )


@overload
def reduce(
    x: Array, op: Operation = ..., *, dtype: DTypeLike | None = ..., **options: Unpack[PlainReduction]
) -> Array: ...
@overload
def reduce(x: Of[S], op: Operation = ..., *, dtype: None = ..., **options: Unpack[WholeReduction]) -> S: ...
@overload
def reduce(x: Of[S], op: Operation = ..., *, dtype: DTypeOf[T], **options: Unpack[WholeReduction]) -> T: ...
@overload
def reduce(
    x: Of[S], op: Operation = ..., *, dtype: None = ..., **options: Unpack[PlainReduction]
) -> NDArray[S] | Any: ...
@overload
def reduce(x: object, op: Operation = ..., *, out: C, **options: Unpack[ReduceInto]) -> C: ...
@overload
def reduce(x: object, op: Operation = ..., **options: Unpack[AnyReduction]) -> Any: ...
@takes_numpy("x")
@launchable_with("initial", data=["initial"], integers=["initial"], upload=upload_reduction_cuts, counts=["num_groups"])
def reduce(
    x: object,
    op: Operation = "add",
    *,
    axis: int | tuple[int, ...] | None = None,
    initial: object = None,
    dtype: object = None,
    before: Callable[..., object] | None = None,
    after: Mapped | None = None,
    keepdims: bool = False,
    out: object = None,
    segments: object = None,
    groups: object = None,
    num_groups: SupportsIndex | None = None,
    device: Devices = None,
    reproducible: str | None = None,
) -> object:
    """Return the combination of all elements of an array, along one or more axes, or within each segment or group.

    The result is ``op(…op(op(initial, x[0]), x[1])…, x[n-1])``, the last element of the scan. For one device, dtype,
    operator and shape the bits are the same on every run, because the order of combination is fixed. `gpuscan.scan` has
    a different order, so the last bits of floats may differ from the last element of a scan. The order also depends on
    where a row is in the array, so equal rows may have results that differ in the last bits.

    Args:
        x: as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce, or a tuple of axes (default: all of them). The elements of several axes are combined
            in C order, in whatever order the tuple names them. Axes that are not adjacent cost a copy of `x`. An empty
            tuple combines nothing: it applies `initial` and the maps to each element.
        initial: the left operand of the first combination, broadcast over the other axes.
        dtype: the dtype of the computation and of the result (default: that of `x`). Integers wrap.
        before, after: as in `gpuscan.scan`: functions that map each element as it is loaded and each result as it is
            stored.
        keepdims: True to keep the reduced axes, with length 1.
        out: the array to write the result to, of the result's shape and dtype; for a bundle, a bundle of arrays.
        segments: the offsets where segments begin along the axis, as in `gpuscan.scan`. The axis of the result has one
            element for each segment.
        groups: labels in any order, as in `gpuscan.scan`. The axis of the result has the length `num_groups`. An
            integer label is an index along this axis, and so is the code of a category. Other labels get the indices
            0, 1, … in the order in which they first appear, as in ``pandas.unique(groups)``. Elements with a missing
            label are ignored.
            Labels in a `gpuscan.Array` are checked on the device if `num_groups` is passed. Elements with wrong labels
            are ignored, and the next read or `Device.synchronize` raises the error. Without `num_groups` the call waits
            for the device to find the largest label.
        num_groups: the number of groups (default: the largest label + 1, or the number of a categorical's categories).
        device, reproducible: as in `gpuscan.scan`. With `reproducible`, the result has the bits of the last result of
            the scan.

    Returns:
        An array like `x` without the axes, or with one result for each segment or group; or a bundle of them; `out` if
        it is passed. If all axes of a NumPy array are reduced, a NumPy number. An axis of length 0, an empty segment
        and an empty group give `initial`, else the operator's identity.

    Raises:
        ValueError: the axis, `initial`, `out`, `segments`, `groups` or the shapes of a bundle do not fit; a label is
            below -1, or not below `num_groups`; or the axis has length 0, or a segment or group is empty, and there is
            neither `initial` nor an identity.
        TypeError: the operator does not take the dtype, or an argument has the wrong type.
        GpuscanError: as `gpuscan.scan` does.

    A reduction is the first phase of a scan in three dispatches (Blelloch, "Prefix Sums and Their Applications", 1990).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
        >>> int(gs.reduce(x))
        23
        >>> gs.reduce(x, "maximum", axis=0)
        array([3, 5, 9], dtype=int32)
        >>> gs.reduce(x, axis=1, before=lambda v: v * v, keepdims=True)
        array([[ 26],
               [107]], dtype=int32)
        >>> gs.reduce(x, axis=1, segments=[0, 2, 2, 3])
        array([[4, 0, 4],
               [6, 0, 9]], dtype=int32)
        >>> gs.reduce(x, axis=1, groups=[2, 0, 2])
        array([[ 1,  0,  7],
               [ 5,  0, 10]], dtype=int32)
        >>> gs.reduce(np.array([3, 1, 4, 1], np.int32), groups=["tea", "milk", None, "tea"])
        array([4, 1], dtype=int32)
    """
    options: ReductionOptions = {"initial": initial, "dtype": dtype, "before": before, "after": after}
    options["reproducible"] = reproducible
    check_one_cut(segments=segments, groups=groups)
    if groups is None and num_groups is not None:
        raise ValueError(
            f"num_groups={num_groups!r} was passed without groups=; pass the labels as groups=, or neither"
        )
    if (distributed := find_distributed(x)) is not None:
        refused = {"groups": groups, "device": device}
        options["segments"] = segments
        return distributed._reduce_bundle(x, op, axis, options, keepdims=keepdims, out=out, refused=refused)
    if isinstance(groups, Array) and num_groups is None and groups.size and groups.dtype.kind in "iub":
        # The number of labels decides the shape, so this waits. The rest has a program for each number.
        given: dict[str, Any] = {**options, "axis": axis, "groups": groups, "keepdims": keepdims, "out": out}
        return reduce(x, op, num_groups=count_groups(groups, None, groups.device, groups), device=device, **given)
    operator = resolve(op)
    keepdims = as_flag("keepdims", keepdims)
    axes = find_axes(x, operator, axis, before)
    labels = None
    if groups is not None:
        problem, labels = make_grouped_reduction(combine_bundle_axes(x, axes), operator, axes, groups, **options)
        num_groups = category_count(groups) if num_groups is None else num_groups
    elif segments is None:
        options |= {"axis": axes.axis, "seeds_on_device": True}
        problem = reduction(combine_bundle_axes(x, axes), op, **options)
        shape = axes.result_shape(keepdims)
    else:
        # Offsets of NumPy are checked while the GPU works. If they are wrong, the call raises and returns nothing.
        options |= {"axis": axes.axis, "segments": segments, "checks_later": out is None}
        problem = of_segments(
            find_or_make_problem(combine_bundle_axes(x, axes), op, exclusive=False, reverse=False, **options)
        )
        shape = problem.results_shape
    call_device = choose_device_for(problem, find_device_or_group((*problem.arrays, labels), device))
    problem = seeds_by_rows(problem)
    if labels is not None:
        count = count_groups(labels, num_groups, first_device_of(call_device), groups)
        shape = (*problem.shape[: problem.axis], count, *problem.shape[problem.axis + 1 :])
    outputs = check_out(problem, out, call_device if is_on_device(problem) else None, shape)
    if labels is None:
        results = _results(problem, call_device, outputs)
    else:
        results = execute_reduction(problem, labels, count, call_device, outputs)
    if problem.heads is not None:
        problem.heads.check()
    if out is not None:
        return out
    fields = problem.destination.fields
    shaped = [result.reshape((*shape, *field.shape)) for result, field in zip(results, fields, strict=True)]
    # NumPy's reductions give numbers, not arrays of shape ().
    shaped = [part[()] if isinstance(part, np.ndarray) else part for part in shaped]
    structure = problem.destination.structure
    return assemble_arrays(structure, shaped, x if structure == problem.source.structure else None)


def _results(
    problem: Problem, device: Device | DeviceGroup | None, outputs: Sequence[SomeArray] | None
) -> Sequence[SomeArray]:
    """Return the results, (*results shape, *element shape) for each field, and write them to `outputs`."""
    fields = problem.destination.fields
    if is_on_device(problem):
        assert isinstance(device, Device)
        device_outputs = None if outputs is None else arrays_on_device(outputs)
        if problem.empty:
            nothing = problem.with_leaves(tuple(np.empty(leaf.shape, leaf.dtype) for leaf in problem.leaves))
            return write_to_device(device, reference.reduce_rows(seeds_on_host(nothing)), device_outputs)
        rows = None
        if device_outputs is not None:
            shapes = [(*problem.results_shape, *field.shape) for field in fields]
            pairs = zip(device_outputs, shapes, strict=True)
            rows = [array.reshape(shape) if array.is_contiguous else array for array, shape in pairs]
        return [Array._of(device, result) for result in scan_device(device._executor, problem, out=rows)]
    results = as_numpy_arrays(reduce_rows(problem, None if problem.empty else device))
    targets = as_numpy_arrays(outputs or ())
    for output, result in zip(targets, results, strict=outputs is not None):
        output[...] = result.reshape(output.shape)
    return results
