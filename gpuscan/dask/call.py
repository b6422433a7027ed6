"""Bring a call on dask arrays into normal form, and check it before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection

import gpuscan
from gpuscan.dask.tasks import Work
from gpuscan.device.adapters import NUMPY
from gpuscan.elements import Structure
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.trace import structure_of
from gpuscan.problem.arguments import check_library, resolve_axis, structure_and_leaves
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH, IndexedMap, as_map
from gpuscan.problem.leading_axes import split_axes
from gpuscan.problem.problem import make_problem
from gpuscan.problem.results import over_arrays, own_axes


@dataclass(frozen=True)
class Call:
    """One call in normal form.

    Attributes:
        arrays: the dask arrays, depth first, with equal chunks along the axes that they share.
        structure: the way in which the user nests the arrays. Structured arrays are not taken apart.
        results: for each result, an array of its dtype with the axes of its element, and no elements.
        elements: the same for what is combined.
        ndim: the number of axes that the arrays share.
        axis: the axis to scan along, 0 or more.
        work: what the tasks have to know.
    """

    arrays: tuple[Any, ...]
    structure: Structure
    results: tuple[np.ndarray[Any, Any], ...]
    elements: tuple[np.ndarray[Any, Any], ...]
    ndim: int
    axis: int
    work: Work

    @property
    def lead(self) -> tuple[int, ...]:
        """The indices of the shared axes, as `dask.array.blockwise` takes them."""
        return tuple(range(self.ndim))

    def indices(self, place: int, arrays: Sequence[Any] | None = None) -> tuple[int, ...]:
        """Return the indices of all axes of an array. Those of the element's axes are used by no other array.

        Args:
            place: the array's place among others.
            arrays: those others (default: the arrays of the call).
        """
        own = (self.arrays if arrays is None else arrays)[place].ndim - self.ndim
        return (*self.lead, *(self.ndim + 100 * (place + 1) + i for i in range(own)))

    def without_axis(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return what belongs to the axes other than the scanned one."""
        return tuple(value for i, value in enumerate(values) if i != self.axis)

    @property
    def chunks(self) -> tuple[tuple[Any, ...], ...]:
        """The chunks along the shared axes."""
        return tuple(self.arrays[0].chunks[: self.ndim])

    @property
    def blocks(self) -> int:
        """How many blocks the arrays have along the scanned axis."""
        return len(self.chunks[self.axis])


def call_of(
    x: Any,
    op: Any,
    axis: int | None,
    dtype: Any,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    before: Callable[..., Any] | None = None,
    after: Callable[[Any], Any] | None = None,
) -> Call:
    """Check the arguments, and return the call.

    Raises:
        ValueError, TypeError, OperatorError: as `scan` and `reduce`.
    """
    operator = resolve(op)
    structure, arrays = structure_of(over_arrays(_as_dask_array, x))
    check_known(arrays)
    # The shapes and the axis are checked on arrays of the same shapes that take no memory.
    shapes = [tuple(1 if np.isnan(n) else int(n) for n in array.shape) for array in arrays]
    like = [np.broadcast_to(np.zeros((), a.dtype), shape) for a, shape in zip(arrays, shapes, strict=True)]
    bundle = structure.nested(like)
    if isinstance(as_map(before), IndexedMap):
        assert before is not None
        shape, trailing = split_axes(*structure_and_leaves(bundle), own_axes(bundle), operator, before)
        along = resolve_axis(axis, shape, max(len(axes) for axes in trailing))
        index = _indices_along(arrays[0], len(shape), along)
        return call_of(
            (structure.nested(arrays), index),
            op,
            along,
            dtype,
            exclusive=exclusive,
            reverse=reverse,
            before=partial(_apply_to_pair, before),
            after=after,
        )
    shape, trailing = split_axes(*structure_and_leaves(bundle), own_axes(bundle), operator, before)
    axis = resolve_axis(axis, shape, max(len(axes) for axes in trailing))
    ndim = len(shape)
    # Scans of empty arrays on NumPy show the dtypes of what is combined, and of the results.
    empty = structure.nested([np.empty((0,) * ndim + a.shape[ndim:], a.dtype) for a in like])
    options = {"axis": axis, "dtype": dtype, "before": before, "device": NUMPY}
    combined, elements = structure_of(gpuscan.scan(empty, op, **options))
    returned, results = (
        (combined, elements) if after is None else structure_of(gpuscan.scan(empty, op, after=after, **options))
    )
    work = Work(structure, op, axis, ndim, combined, returned, exclusive, reverse, dtype, before, after)
    arrays = [array.rechunk(dict.fromkeys(range(ndim, array.ndim), -1)) for array in arrays]
    call = Call(tuple(arrays), structure, tuple(results), tuple(elements), ndim, axis, work)
    if len(arrays) > 1:
        pairs = [part for place, array in enumerate(arrays) for part in (array, call.indices(place))]
        call = replace(call, arrays=tuple(da.core.unify_chunks(*pairs)[1]))
    return call


def _apply_to_pair(function: Callable[[Any, Any], Any], pair: Any) -> Any:
    return function(*pair)


def _indices_along(array: Any, ndim: int, axis: int) -> Any:
    """Return the index of each element along an axis, as a dask array with the chunks of another one.

    Args:
        array: the other one.
        ndim: how many of its axes are no part of an element.
        axis: the axis.

    Raises:
        ValueError: its chunks along these axes have unknown lengths.
    """
    shape, chunks = array.shape[:ndim], array.chunks[:ndim]
    if any(np.isnan(n) for n in shape):
        raise ValueError(
            "before= of two parameters takes the index of each element, but chunks of unknown lengths were passed. "
            "Call compute_chunk_sizes() on the arrays"
        )
    dtype = np.int32 if shape[axis] <= MAX_INT32_LENGTH else np.int64
    along = da.arange(shape[axis], chunks=(chunks[axis],), dtype=dtype)
    return da.broadcast_to(along[(slice(None), *[None] * (ndim - axis - 1))], shape, chunks=chunks)


def _as_dask_array(x: Any) -> Any:
    check_library(x, ["xarray"])
    return da.asarray(x)


def check_known(arrays: Sequence[Any]) -> None:
    """Raise ValueError if an axis has a known length in one array of a bundle, and an unknown one in another."""
    for axis in range(min(array.ndim for array in arrays) if arrays else 0):
        known = {bool(np.isnan(array.shape[axis])) for array in arrays}
        if len(known) > 1:
            raise ValueError(
                f"a bundle of arrays was passed in which some have chunks of unknown lengths along axis {axis}, and "
                "others have not, so their shapes cannot be compared. Call compute_chunk_sizes() on the arrays"
            )


def is_shared(value: Any, array: Any, ndim: int) -> bool:
    """Return True if all rows share an initial value, which has at most as many axes as an element of the array."""
    if is_dask_collection(value) or isinstance(value, np.ndarray) or not array.dtype.names:
        return not is_dask_collection(value) and np.ndim(value) <= array.ndim - ndim
    return True  # one record, such as a tuple


def with_initial(call: Call, initial: Any) -> tuple[Call, tuple[Any, ...]]:
    """Return the call with the initial value that all rows share, or dask arrays of one for each row.

    Raises:
        ValueError, TypeError: it does not fit; or an exclusive scan has neither this nor an identity.
    """
    work = call.work
    like = call.structure.nested([np.empty((0,) * call.ndim + a.shape[call.ndim :], a.dtype) for a in call.arrays])
    check = partial(make_problem, like, work.op, axis=call.axis, dtype=work.dtype, before=work.before)
    if initial is None:
        check(exclusive=work.exclusive)
        return call, ()
    try:
        values = work.elements.flatten(initial)
    except (TypeError, ValueError, KeyError, IndexError):
        raise ValueError(
            f"initial {initial!r} was passed, but it does not nest as the elements do; pass one value for each array "
            "of an element, nested as the input is, or what before= returns"
        ) from None
    if all(is_shared(value, array, call.ndim) for value, array in zip(values, call.elements, strict=True)):
        check(initial=initial)
        return replace(call, work=replace(work, initial=initial)), ()
    values = [value if is_dask_collection(value) else np.asarray(value) for value in values]
    elements = [a.shape[call.ndim :] for a in call.elements]
    check(initial=work.elements.nested([np.zeros(e, v.dtype) for v, e in zip(values, elements, strict=True)]))
    rows, chunks = call.without_axis(call.arrays[0].shape[: call.ndim]), call.without_axis(call.chunks)
    if any(np.isnan(n) for n in rows):
        raise ValueError(
            "initial of one value for each row was passed with arrays of chunks of unknown lengths. Call "
            "compute_chunk_sizes() on the arrays, or pass one value for all rows"
        )
    seeds = []
    for value, element in zip(values, elements, strict=True):
        try:
            wide = da.broadcast_to(da.asarray(value), (*rows, *element))
        except ValueError:
            raise ValueError(
                f"initial of shape {value.shape} was passed, which does not broadcast to {(*rows, *element)}, the "
                "array's shape without the scanned axis. Pass one value, or one for each row"
            ) from None
        seeds.append(wide.rechunk((*chunks, *((n,) for n in element))))
    return call, tuple(seeds)
