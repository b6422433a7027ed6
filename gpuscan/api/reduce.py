"""`gpuscan.reduce`: the scan that keeps only the last result of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.home import home_of
from gpuscan.api.outputs import is_on_device
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.host_arrays import scan_host
from gpuscan.operators.named_operators import resolve
from gpuscan.problem.arguments import as_array, structure_and_leaves
from gpuscan.problem.cache import cached_problem
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import assembled, own_axes
from gpuscan.reference import scan as reference


def reduce(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    initial: Any = None,
    dtype: Any = None,
    device: Device | str | int | None = None,
) -> Any:
    """Return the combination of all elements of an array, or of those along an axis.

    ``op(…op(op(initial, x[0]), x[1])…, x[n-1])``, which is the last element of the scan. The combinations form a fixed
    tree: for one device, dtype, operator and shape the bits are the same on every run. The array is read once, and
    only the results are written.

    Args:
        x: as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce (default: all elements, in C order).
        initial: the left operand of the first combination, broadcast over the other axes.
        dtype: the dtype of the computation and of the result (default: that of `x`). Integers wrap.
        device: as in `gpuscan.scan`.

    Returns:
        An array like `x` without the axis, or a bundle of them. A NumPy array without another axis gives a NumPy
        number. An axis of length 0 gives `initial`, else the operator's identity.

    Raises:
        ValueError: the axis, `initial` or the shapes of a bundle do not fit; or the axis has length 0 and there is
            neither `initial` nor an identity.
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
    """
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
