"""Take elements at indices from an array on a device, and put elements there. Nothing here goes through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.device.steps import Binding
from gpuscan.device.strides import join_axes
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import WORDS, bind_stretch, bindable, contiguous, duplicate
from gpuscan.engine.record import are_owned, new_verdict, submit_stage
from gpuscan.engine.sorting import sort_device
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.groups import labels_error
from gpuscan.problem.indices import MAX_PLACES, index_error
from gpuscan.sizes import gcd, reveal

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.executor import Executor

Axes = tuple[int, ...]


@dataclass(frozen=True)
class IndexedArray:
    """An array on a device that places index along some of its axes.

    Attributes:
        array: the array.
        shape: the shape of the result.
        strides: bytes in the array from one element of the result to the next along each axis; 0 along the axes of the
            places.
        place_strides: places from one element of the result to the next along each axis.
        rows: the length and the stride in bytes of each axis that is indexed.
        places: the numbers of rows of these axes, in C order, as uint32.
    """

    array: DeviceArray
    shape: Axes
    strides: Axes
    place_strides: Axes
    rows: tuple[tuple[int, int], ...]
    places: DeviceArray


def resolve_indices(
    context: DeviceContext, indices: Sequence[DeviceArray], axes: Sequence[tuple[int, int]]
) -> DeviceArray:
    """Return the places that indices give, and check them. What is wrong with them is read with the reports.

    Args:
        context: the device.
        indices: for each axis the indices, all of one shape.
        axes: the number of each axis, for messages, and its length.

    Returns:
        The numbers of the rows of all axes together, in C order, as uint32; 2**32 - 1 where an index is wrong.
    """
    with guarded(context), context.lock:
        places = empty(context, indices[0].shape, np.uint32)
        if not places.size:
            return places
        for number, (index, (axis, length)) in enumerate(zip(indices, axes, strict=True)):
            index._check("STORAGE")
            given = bindable(contiguous(index))
            _check_binding(context, given.nbytes, "indices")
            _resolve(given, length, places, index_error, (axis, length), first=number == 0)
        context.check_if_many()
        return places


def number_labels(labels: DeviceArray, count: int) -> DeviceArray:
    """Return the labels of a reduction as uint32, with `count` in the place of missing labels, and check them.

    What is wrong with them is read with the reports. Wrong labels also become `count`.

    Args:
        labels: the labels.
        count: the number of groups.
    """
    context = labels._context
    with guarded(context), context.lock:
        labels._check("STORAGE")
        numbers = empty(context, labels.shape, np.uint32)
        if not labels.size:
            return numbers
        given = bindable(contiguous(labels))
        _resolve(given, count, numbers, labels_error, (count,), labels=True)
        context.check_if_many()
        return numbers


def _resolve(
    indices: DeviceArray,
    length: int,
    places: DeviceArray,
    error: Callable[..., Exception | None],
    known: tuple[object, ...],
    *,
    first: bool = True,
    labels: bool = False,
) -> None:
    """Submit the stage that turns indices or labels into places; `error` reads `known` and its verdict."""
    context, size = indices._context, places.size
    verdict = new_verdict(context, 4, error, known)
    bound = [array._binding() for array in (indices, places, verdict)]
    values = {"scalar": scalar_of(indices.dtype), "first": first, "labels": labels}
    held, numbers = are_owned(indices), [size, length]
    submit_stage(context, "arrays/resolve_indices.wgsl", numbers, bound, size, size, held, **values)


def take(indexed: IndexedArray) -> DeviceArray:
    """Return the elements at the places, as a new array in C order; zeros where there is no place.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    array, context = indexed.array, indexed.array._context
    with guarded(context), context.lock:
        array._check("STORAGE")
        result = empty(context, indexed.shape, array.dtype)
        if not result.nbytes:
            return result
        _check_binding(context, result.nbytes, "a result")
        unit = _unit_of(indexed)
        axes = _unit_axes(indexed, unit)
        words = -(-result.nbytes // 4)
        source, base = _bind(array)
        numbers = [(array.offset - base) // unit, 0, result.nbytes // unit, 0, *_numbers_of(axes, indexed, unit)]
        bound = [source, bindable(indexed.places)._binding(), result._binding()]
        values = {"words": WORDS, "unit": unit, "rank": len(axes), "indexed": len(indexed.rows)}
        held = are_owned(array, indexed.places)
        submit_stage(context, "arrays/take.wgsl", numbers, bound, -(-words // WORDS), result.size, held, **values)
        return result


def put(executor: Executor, indexed: IndexedArray, values: DeviceArray, *, unique: bool) -> None:
    """Write elements to the places. Nothing is written where there is no place.

    Args:
        executor: of the arrays' device.
        indexed: the array to write to.
        values: the elements, of the result's shape and the array's dtype.
        unique: True if no two places are equal. Of equal ones the last one counts, as in NumPy.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    array, context, places = indexed.array, executor.context, indexed.places
    with guarded(context), context.lock:
        array._check("STORAGE")
        values._check("STORAGE")
        if not values.nbytes:
            return
        if values.buffer is array.buffer:
            values = duplicate(values)
        alike = not any(step for step, place in zip(values.strides, indexed.place_strides, strict=True) if place)
        places = bindable(places) if unique or alike or places.size == 1 else _keep_last(executor, places)
        unit = reveal(gcd(_unit_of(indexed), values.offset, *values.strides))
        axes = _unit_axes(indexed, unit, values.strides)
        units = values.size * values.dtype.itemsize // unit
        (target, base), (source, source_base) = _bind(array), _bind(values)
        firsts = [(array.offset - base) // unit, (values.offset - source_base) // unit]
        numbers = [*firsts, units, 0, *_numbers_of(axes, indexed, unit)]
        bound = [source, places._binding(), target]
        template = {"steps": WORDS, "unit": unit, "rank": len(axes), "indexed": len(indexed.rows)}
        held = are_owned(array, values, places)
        submit_stage(context, "arrays/put.wgsl", numbers, bound, -(-units // WORDS), values.size, held, **template)


def _unit_of(indexed: IndexedArray) -> int:
    """Return the bytes of the units that kernels move: the most of 1, 2 and 4 that divide all distances."""
    array = indexed.array
    distances = (*indexed.strides, *(stride for _, stride in indexed.rows))
    unit: int = reveal(gcd(4, array.dtype.itemsize, array.offset, *distances))
    return unit


def _unit_axes(indexed: IndexedArray, unit: int, *others: Axes) -> list[tuple[int, ...]]:
    """Return the axes of the result, with the units of an element as the last one: (length, stride, place stride, …).

    Args:
        indexed: the array.
        unit: bytes of a unit.
        others: the strides of further arrays of the result's shape, in bytes.
    """
    shape = (*indexed.shape, indexed.array.dtype.itemsize // unit)
    own, *more = ((*(step // unit for step in strides), 1) for strides in (indexed.strides, *others))
    return join_axes(shape, own, (*indexed.place_strides, 0), *more)


def _numbers_of(axes: list[tuple[int, ...]], indexed: IndexedArray, unit: int) -> list[int]:
    """Return the numbers of the axes and of the rows for a kernel's parameters."""
    rows = [number for length, stride in indexed.rows for number in (length, stride // unit)]
    return [number for axis in axes for number in axis] + rows


def _keep_last(executor: Executor, places: DeviceArray) -> DeviceArray:
    """Return the places, with the last of equal ones alone."""
    context, count = executor.context, places.size
    flat = contiguous(places)._view_as((count,))
    ordered = sort_device(executor, flat, 0, with_indices=True)
    kept = duplicate(flat)
    bound = [array._binding() for array in (bindable(ordered.keys), bindable(ordered.payload), kept)]
    submit_stage(context, "arrays/keep_last.wgsl", [count], bound, count, count, True)
    return kept


def _bind(array: DeviceArray) -> tuple[Binding, int]:
    """Return the binding of all bytes that belong to an array, and the byte of its buffer where it begins."""
    low, high = array._extent
    _check_binding(array._context, high - low, "an array")
    return bind_stretch(array._context, array, low, high)


def _check_binding(context: DeviceContext, nbytes: int, what: str) -> None:
    """Raise DeviceMemoryError if that many bytes exceed a binding, or their number exceeds the kernels' counts."""
    limit = min(context.binding_limit - context.offset_alignment, MAX_PLACES)
    if nbytes > limit:
        raise DeviceMemoryError(
            f"{what} of {nbytes} bytes was passed to be indexed by an array on {context.capabilities.summary}, which "
            f"binds at most {limit} bytes. Index a part of it, such as a[:n], or a copy on the CPU: a.numpy()"
        )
