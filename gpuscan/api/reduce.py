"""`gpuscan.reduce`: the scan that keeps only the last result of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.home import home_of
from gpuscan.api.outputs import in_form_of, is_on_device
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.host_arrays import scan_host
from gpuscan.operators.named_operators import resolve
from gpuscan.problem.arguments import as_array, check_one_cut, structure_and_leaves
from gpuscan.problem.cache import cached_problem
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.results import assembled, own_axes
from gpuscan.reference import scan as reference


def reduce(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    initial: Any = None,
    dtype: Any = None,
    segments: Any = None,
    groups: Any = None,
    num_groups: int | None = None,
    device: Device | str | int | None = None,
) -> Any:
    """Return the combination of all elements of an array, of those along an axis, or of those of each segment.

    ``op(…op(op(initial, x[0]), x[1])…, x[n-1])``, which is the last element of the scan. The combinations form a fixed
    tree: for one device, dtype, operator and shape the bits are the same on every run. The array is read once, and
    only the results are written.

    Args:
        x: as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce (default: all elements, in C order).
        initial: the left operand of the first combination, broadcast over the other axes.
        dtype: the dtype of the computation and of the result (default: that of `x`). Integers wrap.
        segments: the offsets along the axis where segments begin, as in `gpuscan.scan`. There is one result for each
            segment. 1-D arrays need no `axis`.
        device: as in `gpuscan.scan`.

    Returns:
        An array like `x` without the axis, or a bundle of them; with `segments`, the axis is as long as there are
        segments. A NumPy array without another axis gives a NumPy number. An axis of length 0 and an empty segment
        give `initial`, else the operator's identity.

    Raises:
        ValueError: the axis, `initial`, `segments` or the shapes of a bundle do not fit; or the axis has length 0, or
            a segment is empty, and there is neither `initial` nor an identity.
        TypeError: the operator does not take the dtype.
        GpuscanError: as `gpuscan.scan` does.

    A reduction is the first phase of a scan in three dispatches (Blelloch 1990; Merrill & Garland 2016).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
        >>> int(gs.reduce(x))
        23
        >>> gs.reduce(x, "maximum", axis=0)
        array([3, 5, 9], dtype=int32)
        >>> gs.reduce(x, axis=1, segments=[0, 2, 2, 3])
        array([[4, 0, 4],
               [6, 0, 9]], dtype=int32)
    """
    check_one_cut(segments=segments, groups=groups)
    if groups is not None or num_groups is not None:
        raise NotImplementedError
    if segments is not None:
        return reduce_segments(x, op, axis, initial, dtype, segments, device)
    problem = reduction(x, op, axis, initial, dtype)
    others = tuple(n for i, n in enumerate(problem.shape) if i != problem.axis)
    home = home_of(problem.leaves, device)
    results: list[Any]
    if home is None or problem.empty:
        results = reference.reduce_rows(problem)
        if home is not None and is_on_device(problem):
            results = [home.asarray(result) for result in results]
    elif is_on_device(problem):
        results = [Array.of(home, result) for result in scan_device(home._executor, problem)]
    else:
        results = scan_host(home._executor, problem)
    fields = problem.destination.fields
    shaped = [result.reshape((*others, *field.shape)) for result, field in zip(results, fields, strict=True)]
    # NumPy's reductions give numbers, not arrays of shape ().
    shaped = [part[()] if isinstance(part, np.ndarray) else part for part in shaped]
    structure, _ = structure_and_leaves(x)
    return assembled(structure, shaped, shaped[0].ndim - own_axes(x)[0], x)


def reduce_segments(
    x: Any, op: Any, axis: int | None, initial: Any, dtype: Any, segments: Any, device: Device | str | int | None
) -> Any:
    """Return the combination of the elements of each segment.

    Raises:
        ValueError: as `reduce` does.
    """
    problem = make_problem(x, op, axis=axis, initial=initial, dtype=dtype, segments=segments)
    problem = replace(problem, keep_last_only=True, fill=fill_of(problem))
    assert problem.heads is not None
    if problem.fill is None and not problem.heads.all_full:
        empty = int(np.argmax(problem.heads.offsets[:-1] == problem.heads.offsets[1:]))
        raise ValueError(
            f"a reduction of segments was asked for, but segment {empty} is empty and {problem.operator.described} has "
            "no identity. Pass initial=..., or give the operator an identity"
        )
    home = home_of(problem.arrays, device)
    results: list[Any]
    if home is None or problem.empty:
        axis_of = problem.axis
        results = [np.ascontiguousarray(rows) for rows in reference.reduce_segments(problem)]
        others = [n for i, n in enumerate(problem.shape) if i != axis_of]
        results = [np.moveaxis(part.reshape(*others, *part.shape[1:]), len(others), axis_of) for part in results]
        results = [np.ascontiguousarray(part) for part in results]
        if home is not None and is_on_device(problem):
            results = [home.asarray(result) for result in results]
    elif is_on_device(problem):
        results = [Array.of(home, result) for result in scan_device(home._executor, problem)]
    else:
        results = scan_host(home._executor, problem)
    return in_form_of(problem, x, results)


def fill_of(problem: Problem) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Return, for each field, the result of an empty segment of each row; None if there is none."""
    seeds = problem.seeds
    if seeds is None:
        identity = problem.operator.identity_for(problem.element)
        if identity is None:
            return None
        fields = problem.element.fields
        seeds = tuple(
            np.broadcast_to(value, (problem.rows, *f.shape)) for value, f in zip(identity, fields, strict=True)
        )
    stored = reference.to_storage(problem, [np.asarray(seed) for seed in seeds])
    return tuple(np.ascontiguousarray(part) for part in stored)


def reduction(x: Any, op: Any, axis: int | None, initial: Any, dtype: Any) -> Problem:
    """Return a reduction as a problem; its seeds are the results of axes of length 0.

    Raises:
        ValueError: the axis has length 0, and there is neither `initial` nor an identity.
    """
    operator = resolve(op)
    if axis is None:
        x, axis = flattened(x, operator.element_axes), 0
    problem = cached_problem(x, operator, axis=axis, exclusive=False, reverse=False, initial=initial, dtype=dtype)
    if problem.row_length == 0 and problem.seeds is None:
        identity = operator.identity_for(problem.element)
        if identity is None:
            raise ValueError(
                f"a reduction of no elements was asked for (shape {problem.shape}, axis {problem.axis}), but "
                f"{operator.described} has no identity. Pass initial=..., or give the operator an identity"
            )
        shapes = [(problem.rows, *field.shape) for field in problem.element.fields]
        seeds = tuple(np.broadcast_to(value, shape) for value, shape in zip(identity, shapes, strict=True))
        problem = replace(problem, seeds=seeds)
    reduced = problem.with_leaves(problem.leaves)
    vars(reduced)["keep_last_only"] = True
    return reduced


def flattened(x: Any, element_axes: int) -> Any:
    """Return all elements as one row, in the same bundle; structured arrays stay structured."""
    if isinstance(x, dict):
        return {key: flattened(part, element_axes) for key, part in x.items()}
    if isinstance(x, tuple):
        parts = [flattened(part, element_axes) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    array = x if isinstance(x, Array) else as_array(x)
    # The other axes of a structured element are inside its fields.
    axes = max(0, element_axes - min(own_axes(array), default=0))
    element = array.shape[array.ndim - axes :]
    count = int(np.prod(array.shape[: array.ndim - axes], dtype=np.int64))
    return array.reshape((count, *element))
