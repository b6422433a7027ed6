"""Carries between the parts of a scan that several devices compute: the combination of all elements before a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.transfer import SMALL_READ_BYTES
from gpuscan.elements import compute_dtype
from gpuscan.engine.device_arrays import launch_of_kind, scan_device
from gpuscan.engine.element_copy import contiguous, slice_axis
from gpuscan.engine.executor import Executor
from gpuscan.engine.host_arrays import scan_host
from gpuscan.problem.arguments import Leaf
from gpuscan.problem.problem import Problem, make_unrounded
from gpuscan.problem.problem_parts import range_in_memory, slice_problem

# The carry of each row: for each field an array (rows, *element shape). None if there are no elements before.
Carry = tuple[AnyArray, ...] | None


def seeds_of(problem: Problem) -> Carry:
    """Return the values that the scan begins with at each head, if they are combined with the elements."""
    return problem.numpy_seeds if problem.initial else None


def start_from_carry(problem: Problem, carry: tuple[Leaf, ...] | None) -> Problem:
    """Return the scan that begins with a carry and has no heads; without a carry, the scan as it is."""
    return problem if carry is None else replace(problem, seeds=carry, initial=True, heads=None)


def join_carry(executor: Executor, problem: Problem, carry: Carry, total: tuple[AnyArray, ...]) -> tuple[AnyArray, ...]:
    """Return the combination of a carry and the total of what follows it; the total if there is no carry.

    The CPU combines them, because a GPU would first finish the transfers in its queue. Only an operator that is written
    in WGSL is combined on the device.
    """
    operator, element = problem.operator, problem.element
    if carry is None:
        return total
    if operator.function is None:
        return tuple(combine_values(executor, problem, [carry, total]))
    sides = []
    for values in (carry, total):
        pairs = zip(values, element.fields, strict=True)
        sides.append(element.structure.unflatten([v.astype(compute_dtype(f.scalar), copy=False) for v, f in pairs]))
    with np.errstate(all="ignore"):
        leaves = element.structure.flatten(operator.function(*sides))
    parts = zip(leaves, total, element.fields, strict=True)
    return tuple(np.broadcast_to(leaf, t.shape).astype(compute_dtype(f.scalar)) for leaf, t, f in parts)


def combine_values(
    executor: Executor, problem: Problem, values: Sequence[tuple[AnyArray, ...]], *, whole: bool = False
) -> list[AnyArray]:
    """Return the combination of a few values of each row: an array (rows, *element shape) for each field.

    Args:
        executor: of the device to combine on.
        problem: the scan that the values belong to.
        values: for each value an array (rows, *element shape) for each field, in the order of the scan.
        whole: True to apply the scan's `after`, too.
    """
    fields = problem.element.fields
    leaves = tuple(
        np.stack([np.asarray(value[number]).astype(field.scalar.dtype) for value in values], axis=1)
        for number, field in enumerate(fields)
    )
    few = replace(
        problem,
        leaves=leaves,
        source=problem.element,
        destination=problem.destination if whole else problem.element,
        shape=leaves[0].shape[:2],
        axis=1,
        exclusive=False,
        reverse=False,
        seeds=None,
        initial=False,
        before=None,
        after=problem.after if whole else None,
        keep_last_only=True,
    )
    return scan_host(executor, few)


def reduce_rows(executor: Executor, problem: Problem, start: Carry) -> tuple[AnyArray, ...]:
    """Return the combination of a carry and all elements of each row, in full precision."""
    totals = launch_of_kind(
        problem, "auto", lambda seeds: reduce_on_device(executor, problem, seeds), "total", seeds=start
    )
    return read_values(executor, totals)


def read_values(executor: Executor, arrays: Sequence[DeviceArray]) -> tuple[AnyArray, ...]:
    """Return arrays in C order as arrays of NumPy, and raise what the unread reports tell."""
    if any(array.nbytes > SMALL_READ_BYTES or array.offset % 4 for array in arrays):
        values = tuple([array._read() for array in arrays])
        executor.context.check()
        return values
    contents = executor.context.read_and_check(*[(array.buffer, array.offset, array.nbytes) for array in arrays])
    return tuple([content.view(a.dtype).reshape(a.shape) for content, a in zip(contents, arrays, strict=True)])


def reduce_on_device(executor: Executor, problem: Problem, start: tuple[Leaf, ...] | None) -> list[DeviceArray]:
    """Return what `reduce_rows` does as arrays on the device: (rows, *element shape). The carry may be there, too."""
    plain = replace(
        problem,
        exclusive=False,
        after=None,
        destination=problem.element,
        seeds=start,
        initial=start is not None,
        heads=None,
        keep_last_only=True,
    )
    return scan_device(executor, make_unrounded(plain))


def ends_with_carry(problem: Problem) -> bool:
    """Return True if `last_carry` finds the carry in the results: they are in full precision, and no segment ends."""
    return problem.heads is None and make_unrounded(problem) is problem


def last_carry(executor: Executor, problem: Problem, results: Sequence[DeviceArray]) -> tuple[AnyArray, ...]:
    """Return the combination of all elements of each row, given the results of their scan."""
    low, high = range_in_memory(problem, problem.row_length - 1, problem.row_length)
    ends = [contiguous(slice_axis(result, problem.axis, low, high))._read() for result in results]
    executor.context.check()
    fields = problem.element.fields
    last = tuple(end.reshape(problem.rows, *f.shape) for end, f in zip(ends, fields, strict=True))
    if not problem.exclusive:
        return last
    return reduce_rows(executor, slice_problem(problem, problem.axis, low, high), last)
