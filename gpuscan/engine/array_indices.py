"""Take elements at indices from an array on a device, and put elements there. Nothing here goes through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding
from gpuscan.device.strides import join_axes
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import WORDS, bind_range, bindable, contiguous, duplicate
from gpuscan.engine.plan_steps import are_owned, new_validation_flag, submit_stage
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
    """An array on a device that flat indices select along some of its axes.

    Attributes:
        array: the array.
        shape: the shape of the result.
        strides: bytes in the array from one element of the result to the next along each axis; 0 along the axes of the
            places.
        index_strides: flat indices from one element of the result to the next along each axis.
        rows: the length and the stride in bytes of each axis that is indexed.
        flat_indices: the numbers of rows of these axes, in C order, as uint32.
    """

    array: DeviceArray
    shape: Axes
    strides: Axes
    index_strides: Axes
    rows: tuple[tuple[int, int], ...]
    flat_indices: DeviceArray


def resolve_indices(
    context: DeviceContext, indices: Sequence[DeviceArray], axes: Sequence[tuple[int, int]]
) -> DeviceArray:
    """Return the flat indices that indices give, and check them. What is wrong with them is read with the reports.

    Args:
        indices: for each axis the indices, all of one shape.
        axes: the number of each axis, for messages, and its length.

    Returns:
        The numbers of the rows of all axes together, in C order, as uint32; 2**32 - 1 where an index is wrong.
    """
    with context.errors, context.lock:
        flat_indices = empty(context, indices[0].shape, np.uint32)
        if not flat_indices.size:
            return flat_indices
        for number, (index, (axis, length)) in enumerate(zip(indices, axes, strict=True)):
            index._check("STORAGE")
            given = bindable(contiguous(index))
            _check_binding(context, given.nbytes, "indices")
            _resolve(given, length, flat_indices, index_error, (axis, length), first=number == 0)
        context.check_if_many()
        return flat_indices


def number_labels(labels: DeviceArray, count: int) -> DeviceArray:
    """Return the labels of a reduction as uint32, with `count` instead of missing labels, and check them.

    What is wrong with them is read with the reports. Wrong labels also become `count`.

    Args:
        count: the number of groups.
    """
    context = labels._context
    with context.errors, context.lock:
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
    flat_indices: DeviceArray,
    error: Callable[..., Exception | None],
    arguments: tuple[object, ...],
    *,
    first: bool = True,
    labels: bool = False,
) -> None:
    """Submit the stage that resolves indices or labels; `error` reads `arguments` and its validation flag."""
    context, size = indices._context, flat_indices.size
    validation_flag = new_validation_flag(context, 4, error, arguments)
    bound = [array._binding() for array in (indices, flat_indices, validation_flag)]
    values = {"scalar": scalar_of(indices.dtype), "first": first, "labels": labels}
    deferrable, numbers = are_owned(indices), [size, length]
    submit_stage(context, "arrays/resolve_indices.wgsl", numbers, bound, size, size, deferrable, **values)


def take(indexed: IndexedArray) -> DeviceArray:
    """Return the elements at the indices, as a new array in C order; zeros where there is no index.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    array, context = indexed.array, indexed.array._context
    with context.errors, context.lock:
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
        bound = [source, bindable(indexed.flat_indices)._binding(), result._binding()]
        values = {"words": WORDS, "unit": unit, "rank": len(axes), "indexed": len(indexed.rows)}
        deferrable = are_owned(array, indexed.flat_indices)
        submit_stage(context, "arrays/take.wgsl", numbers, bound, -(-words // WORDS), result.size, deferrable, **values)
        return result


def put(executor: Executor, indexed: IndexedArray, values: DeviceArray, *, unique: bool) -> None:
    """Write elements to the indices. Nothing is written where there is no index.

    Args:
        indexed: the array to write to.
        values: the elements, of the result's shape and the array's dtype.
        unique: True if no two indices are equal. Of equal ones the last one counts, as in NumPy.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    array, context, flat_indices = indexed.array, executor.context, indexed.flat_indices
    with context.errors, context.lock:
        array._check("STORAGE")
        values._check("STORAGE")
        if not values.nbytes:
            return
        if values.buffer is array.buffer:
            values = duplicate(values)
        alike = not any(
            step for step, index_step in zip(values.strides, indexed.index_strides, strict=True) if index_step
        )
        flat_indices = (
            bindable(flat_indices) if unique or alike or flat_indices.size == 1 else _keep_last(executor, flat_indices)
        )
        unit = reveal(gcd(_unit_of(indexed), values.offset, *values.strides))
        axes = _unit_axes(indexed, unit, values.strides)
        units = values.size * values.dtype.itemsize // unit
        (target, base), (source, source_base) = _bind(array), _bind(values)
        firsts = [(array.offset - base) // unit, (values.offset - source_base) // unit]
        numbers = [*firsts, units, 0, *_numbers_of(axes, indexed, unit)]
        bound = [source, flat_indices._binding(), target]
        template = {"steps": WORDS, "unit": unit, "rank": len(axes), "indexed": len(indexed.rows)}
        deferrable = are_owned(array, values, flat_indices)
        submit_stage(
            context, "arrays/put.wgsl", numbers, bound, -(-units // WORDS), values.size, deferrable, **template
        )


def _unit_of(indexed: IndexedArray) -> int:
    """Return the bytes of the units that kernels move: the most of 1, 2 and 4 that divide all distances."""
    array = indexed.array
    distances = (*indexed.strides, *(stride for _, stride in indexed.rows))
    unit: int = reveal(gcd(4, array.dtype.itemsize, array.offset, *distances))
    return unit


def _unit_axes(indexed: IndexedArray, unit: int, *others: Axes) -> list[tuple[int, ...]]:
    """Return the axes of the result, with the units of an element as the last one: (length, stride, index stride, …).

    Args:
        unit: bytes of a unit.
        others: the strides of further arrays of the result's shape, in bytes.
    """
    shape = (*indexed.shape, indexed.array.dtype.itemsize // unit)
    own, *more = ((*(step // unit for step in strides), 1) for strides in (indexed.strides, *others))
    return join_axes(shape, own, (*indexed.index_strides, 0), *more)


def _numbers_of(axes: list[tuple[int, ...]], indexed: IndexedArray, unit: int) -> list[int]:
    """Return the numbers of the axes and of the rows for a kernel's parameters."""
    rows = [number for length, stride in indexed.rows for number in (length, stride // unit)]
    return [number for axis in axes for number in axis] + rows


def _keep_last(executor: Executor, flat_indices: DeviceArray) -> DeviceArray:
    """Return the flat indices, with the last of equal ones alone."""
    context, count = executor.context, flat_indices.size
    flat = contiguous(flat_indices)._view_as((count,))
    ordered = sort_device(executor, flat, 0, with_indices=True)
    kept = duplicate(flat)
    bound = [array._binding() for array in (bindable(ordered.keys), bindable(ordered.payload), kept)]
    submit_stage(context, "arrays/keep_last.wgsl", [count], bound, count, count, True)
    return kept


def _bind(array: DeviceArray) -> tuple[Binding, int]:
    """Return the binding of all bytes that belong to an array, and the byte of its buffer where it begins."""
    low, high = array._extent
    _check_binding(array._context, high - low, "an array")
    return bind_range(array._context, array, low, high)


def _check_binding(context: DeviceContext, nbytes: int, what: str) -> None:
    """Raise DeviceMemoryError if that many bytes exceed a binding, or their number exceeds the kernels' counts."""
    limit = min(context.binding_limit - context.offset_alignment, MAX_PLACES)
    if nbytes > limit:
        raise DeviceMemoryError(
            f"{what} of {nbytes} bytes was passed to be indexed by an array on {context.capabilities.summary}, which "
            f"binds at most {limit} bytes. Index a part of it, such as a[:n], or a copy on the CPU: a.numpy()"
        )
