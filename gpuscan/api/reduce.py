"""Reductions: the scan that stores nothing but each row's last result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.scan import resolve_device
from gpuscan.device.transfer import release_pages
from gpuscan.engine.attempts import fits_beside
from gpuscan.errors import GpuscanError
from gpuscan.operators.builtin import resolve
from gpuscan.problem.field_packing import binds_too_many, packed, unpacked
from gpuscan.problem.problem import Problem, pose, spread, unrounded
from gpuscan.problem.results import assembled, own_axes

if TYPE_CHECKING:
    from gpuscan.api.device import Device

PART_BYTES = 128 << 20  # of the largest field's share of what is reduced at a time
PART_STEP = 1024  # elements, of which a part has a multiple, so that a view of it can be bound


def reduce(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    initial: Any = None,
    dtype: Any = None,
    device: Device | str | None = None,
) -> Any:
    """The combination of all elements of an array, or of those along an axis.

    ``op(…op(op(initial, x[0]), x[1])…, x[n-1])``, the last element of the scan; evaluated in a fixed tree, so that
    for one device, dtype, operator and shape the bits are the same on every run. The array is read once and only the
    results are written; one larger than 128 MiB is reduced part by part, each part's result the next one's `initial`.

    Args:
        x: as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce. Left out, all elements are reduced, in C order.
        initial: the left operand of the first combination, broadcast over the other axes.
        dtype: what to combine in and return; left out, the dtype of `x`. Integers wrap.
        device: as in `gpuscan.scan`.

    Returns:
        The shape of `x` without the axis: an array like `x`, or a bundle of them, and of a NumPy array without any
        other axis a NumPy number. Of an axis of length 0 the result is `initial`, else the operator's identity.

    Raises:
        ValueError: the axis, `initial` or the shapes of a bundle do not fit; or the axis has length 0 and there is
            neither `initial` nor an identity.
        TypeError: the operator does not take the dtype.
        GpuscanError: as `gpuscan.scan` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
        >>> int(gs.reduce(x))
        23
        >>> gs.reduce(x, "maximum", axis=0)
        array([3, 5, 9], dtype=int32)
    """
    problem = posed(x, op, axis, initial, dtype)
    others = tuple(n for i, n in enumerate(problem.shape) if i != problem.axis)
    home: Device | None
    if any(isinstance(leaf, Array) for leaf in problem.leaves):
        from gpuscan.engine.device_arrays import home_of

        home = home_of(problem, device)
        results: list[Any] = list(reduce_on_device(home, problem))
    else:
        home = resolve_device(device)
        if home is None or problem.empty:
            results = list(reduce_on_cpu(problem))
        else:
            results = [array.numpy() for array in reduce_on_device(home, problem)]
    shaped = [
        result.reshape((*others, *field.shape))
        for result, field in zip(results, problem.destination.fields, strict=True)
    ]
    return in_form_of(x, [part[()] if isinstance(part, np.ndarray) else part for part in shaped])


def posed(x: Any, op: Any, axis: int | None, initial: Any, dtype: Any) -> Problem:
    """The reduction as a problem; `problem.seeds` is what an axis of length 0 reduces to.

    Raises:
        ValueError: the axis has length 0, and there is nothing that it would reduce to.
    """
    operator = resolve(op)
    if axis is None:
        x, axis = flat(x, operator.element_axes), 0
    problem = pose(x, operator, axis=axis, initial=initial, dtype=dtype)
    if problem.row_length == 0 and problem.seeds is None:
        identity = operator.identity_for(problem.element)
        if identity is None:
            raise ValueError(
                f"a reduction of no elements was asked for (shape {problem.shape}, axis {problem.axis}) with operator "
                f"{operator.name!r}, which has no identity. Pass initial=..., or give the operator an identity"
            )
        shapes = [(problem.rows, *field.shape) for field in problem.element.fields]
        seeds = tuple(np.broadcast_to(value, shape) for value, shape in zip(identity, shapes, strict=True))
        problem = replace(problem, seeds=seeds)
    return replace(problem, ends=True)


def flat(x: Any, element_axes: int) -> Any:
    """All elements as one row, in the same bundle; structured arrays stay such."""
    if isinstance(x, dict):
        return {key: flat(part, element_axes) for key, part in x.items()}
    if isinstance(x, tuple):
        parts = [flat(part, element_axes) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    array = x if isinstance(x, Array) else np.asarray(x)
    axes = max(0, element_axes - min(own_axes(array), default=0))  # others of the element's lie inside its fields
    element = array.shape[array.ndim - axes :]
    count = int(np.prod(array.shape[: array.ndim - axes], dtype=np.int64))
    return array.reshape((count, *element))


def in_form_of(x: Any, results: Sequence[Any]) -> Any:
    """The results as the bundle that the input is."""
    structure, _ = spread(x)
    return assembled(structure, results, results[0].ndim - own_axes(x)[0], x)


# ----- On the CPU


def reduce_on_cpu(problem: Problem) -> list[np.ndarray[Any, Any]]:
    """Each row's result: (rows, *element shape) for each field."""
    from gpuscan.reference import scan as reference

    if problem.row_length == 0:
        assert problem.seeds is not None
        fields = problem.destination.fields
        return [seed.astype(f.scalar.dtype) for seed, f in zip(problem.seeds, fields, strict=True)]
    if problem.operator.kinds is None or problem.operator.element_axes:
        return [rows[:, -1] for rows in reference.accumulate(problem)]
    ufunc: np.ufunc = getattr(np, problem.operator.name)
    with np.errstate(all="ignore"):
        (rows,) = reference.from_storage(problem, [problem.by_rows(leaf) for leaf in problem.leaves])
        sums = ufunc.reduce(rows, axis=1, dtype=rows.dtype)
        if problem.initial and problem.seeds is not None:
            sums = ufunc(problem.seeds[0].astype(rows.dtype), sums)
        return reference.to_storage(problem, [np.asarray(sums)])


# ----- On a device


def reduce_on_device(device: Device, problem: Problem) -> list[Array]:
    """Each row's result: (rows, *element shape) for each field, on the device."""
    from gpuscan.engine.host_arrays import check_dtypes

    check_dtypes(device, problem.source, problem.element, problem.destination)
    if problem.size == 0:
        return [device.asarray(result) for result in reduce_on_cpu(problem)]
    most = part_length(device, problem)
    whole = most >= problem.row_length
    carrying = problem if whole else unrounded(problem)  # for parts that others follow
    most = most if whole else part_length(device, carrying)
    leaves: list[Any] = list(problem.leaves)
    if not whole and problem.axis > 0:  # only along the first axis are parts of an array on a device views
        leaves = [np.asarray(leaf) for leaf in leaves]
    results: list[Array] = []
    for start in range(0, problem.row_length, most):
        stop = min(start + most, problem.row_length)
        part = problem if stop == problem.row_length else carrying
        if not whole:
            place = (slice(None),) * problem.axis + (slice(start, stop),)
            parts = [leaf[start:stop] if isinstance(leaf, Array) else leaf[place] for leaf in leaves]
            shape = tuple(stop - start if i == problem.axis else n for i, n in enumerate(problem.shape))
            part = replace(part, leaves=tuple(parts), shape=shape)  # type: ignore[arg-type]
        if results:
            part = replace(part, seeds=tuple(result.numpy() for result in results), initial=True)
        results = reduce_part(device, part)
        for leaf in leaves:
            if isinstance(leaf, np.ndarray):
                release_pages(leaf)
    return results


def part_length(device: Device, problem: Problem) -> int:
    """How many elements of each row are reduced at a time.

    Raises:
        GpuscanError: the results alone are larger than a binding.
    """
    from gpuscan.engine.host_arrays import work_of

    fields = (*problem.source.fields, *problem.destination.fields)
    across = problem.rows * max(field.storage_bytes for field in fields)
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    if across > limit:
        raise GpuscanError(
            f"{problem.rows} reductions were asked for, whose results are {across} bytes; "
            f"{device.capabilities.summary} binds at most {limit}. Reduce fewer rows at a time"
        )
    length = problem.row_length

    def stepped(most: int) -> int:
        return most if most < PART_STEP or most >= length else most // PART_STEP * PART_STEP

    def fits(most: int) -> bool:
        """Whether what is bound beside each part can be, the last too: what came before is the next one's seeds."""
        part = replace(work, initial=most < length or work.initial)
        return all(fits_beside(device, replace(part, row_length=n)) for n in {most, length % most or most})

    work = work_of(device, problem)
    most = min(length, stepped(max(1, min(limit, PART_BYTES) // across)))
    while not fits(most):
        if most == 1:
            raise GpuscanError(
                f"{problem.rows} reductions were asked for; {device.capabilities.summary} binds at most {limit} bytes, "
                "too few for what is kept of each while the next elements are reduced. Reduce fewer rows at a time"
            )
        most = stepped(most // 2)
    return most


def reduce_part(device: Device, problem: Problem) -> list[Array]:
    """The same of an array that can be bound as a whole."""
    from gpuscan.device.guards import guarded
    from gpuscan.engine.device_arrays import bindable, scan_on_device

    if problem.inner > 1 and not problem.in_columns:  # neighbouring columns share words: bring rows together
        problem = replace(
            problem,
            leaves=tuple(problem.by_rows(np.asarray(leaf)) for leaf in problem.leaves),
            shape=(problem.rows, problem.row_length),
            axis=1,
        )
    if binds_too_many(device, problem):
        as_packed = replace(problem, leaves=tuple(np.asarray(leaf) for leaf in problem.leaves))
        results = [array.numpy() for array in reduce_part(device, packed(device, as_packed))]
        return [device.asarray(result) for result in unpacked(problem, results)]
    with guarded(device), device.lock:
        sources = [bindable(device.asarray(leaf)) for leaf in problem.leaves]
        fields = problem.destination.fields
        targets = [device.empty((problem.rows, *field.shape), field.scalar.dtype) for field in fields]
        scan_on_device(device, problem, "auto", sources, targets, in_place=False)
    return targets
