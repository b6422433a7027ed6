"""Reduce groups of elements on a device: by a table, or as segments in the order of their labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.steps import Clear
from gpuscan.elements import scalar_of
from gpuscan.engine.array_indices import number_labels
from gpuscan.engine.device_arrays import launch_of_kind, scan_array, scan_device
from gpuscan.engine.element_copy import bindable, contiguous, write_to_outputs
from gpuscan.engine.group_tables import (
    FewLabels,
    bindable_checked,
    check_full_later,
    in_shape,
    labels_by_rows,
    plan_table,
    reduce_by_table,
)
from gpuscan.engine.groups import group_elements
from gpuscan.engine.plan_steps import WORKGROUP_SIZE, are_owned, stage_dispatch, uniform_of
from gpuscan.engine.segment_results import spread_segments
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.groups import with_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscan.engine.executor import Executor
    from gpuscan.problem.problem import Problem


def label_range(executor: Executor, labels: DeviceArray) -> tuple[int, int]:
    """Return the smallest and the largest label. This waits for the device."""
    context = executor.context
    with context.errors, context.lock:
        labels._check("STORAGE")
        flat = contiguous(labels)._view_as((labels.size,))
        if flat.dtype == np.bool_:
            flat = flat._view_as(flat.shape, np.uint8)
        ends = [*_launch_reduction(executor, flat, "minimum"), *_launch_reduction(executor, flat, "maximum")]
        size = flat.dtype.itemsize
        byte_ranges = [(end.buffer, end.offset, size) for end in ends]
        least, largest = (int(content.view(flat.dtype)[0]) for content in context.read_and_check(*byte_ranges))
        return (least, largest) if labels.dtype != np.bool_ else (0, min(1, largest))


def _launch_reduction(executor: Executor, flat: DeviceArray, op: str) -> list[DeviceArray]:
    problem = find_or_make_problem(flat, op, axis=0, exclusive=False, reverse=False).as_reduction()
    return launch_of_kind(problem, "auto", lambda _: scan_device(executor, problem))


def reduce_groups(
    executor: Executor,
    problem: Problem,
    labels: AnyArray | DeviceArray,
    groups: int,
    *,
    out: Sequence[DeviceArray] | None = None,
) -> list[DeviceArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        labels: the labels, from 0 up to the number of groups, and -1 where one is missing. What is wrong with labels on
            a device is read with the reports.
        out: arrays to write, which fit; new ones without.

    A group that is empty without a `fill` is an error, which is read with the reports.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    context = executor.context
    fields = problem.destination.fields
    widest = max(4, *(f.storage_bytes for f in fields))
    if problem.rows * groups * widest > context.binding_limit:
        raise DeviceMemoryError(
            f"a reduction of {groups} groups was asked for, but its results take {problem.rows * groups * widest} "
            f"bytes, and {context.capabilities.summary} binds at most {context.binding_limit}. Number the labels "
            'without gaps, by np.unique(groups, return_inverse=True), or pass device="numpy"'
        )
    with context.errors, context.lock:
        given = upload_array(context, narrow_labels(labels, groups)) if isinstance(labels, np.ndarray) else labels
        few = FewLabels(labels_by_rows(problem, bindable_checked(given)), groups)
        by_table = plan_table(executor, problem, few, reduces=True)
        if by_table is not None:
            return reduce_by_table(executor, problem, by_table, out)
        problem = with_indices(problem)
        # Missing labels are one more group, the last one.
        ranked = groups + 1
        inside, in_order, _ = group_elements(executor, problem, number_labels(given, groups), moves=True)
        marks = _marks_of(in_order, problem.row_length, ranked)
        if problem.fill is None:
            own = marks._view_as((marks.size,))._view_at((marks.size // ranked, groups), (4 * ranked, 4))
            check_full_later(executor, problem, contiguous(own)._view_as((own.size,)), groups)
        # One result for each group that has elements, row by row.
        most = problem.rows * min(ranked, problem.row_length)
        full = [empty(context, (most, *f.shape), f.scalar.dtype) for f in fields]
        scan_device(executor, replace(inside, keep_last_only=True), out=full)
        ranks = scan_array(executor, marks, "add")
        results = []
        for number, (array, f) in enumerate(zip(full, fields, strict=True)):
            result = empty(context, (problem.rows, groups, *f.shape), f.scalar.dtype)
            if result.nbytes:
                fill = None if problem.fill is None else problem.fill[number]
                shape = problem.rows, groups, f.storage_bytes
                spread_segments(array, ranks, fill, result, shape, ranks_of_all_rows=marks.size > ranked, ranked=ranked)
            results.append(result)
        return write_to_outputs(in_shape(problem, results, groups), out)


def narrow_labels(labels: AnyArray, groups: int) -> AnyArray:
    """Return the labels in a dtype that holds -1 and each number below `groups`."""
    return labels if labels.dtype == np.bool_ else labels.astype(np.min_scalar_type(-groups))


def _marks_of(labels: DeviceArray, length: int, groups: int) -> DeviceArray:
    """Return 1 for each group that has elements, and 0 for each other one: (rows of the labels, groups)."""
    context = labels._context
    marks = empty(context, (labels.size // length * groups,), np.uint32)
    source, call = bindable(labels), uniform_of(context, [labels.size, length, groups])
    bound = [call, source._binding(), marks._binding()]
    values = {"workgroup_size": WORKGROUP_SIZE, "scalar": scalar_of(labels.dtype)}
    workgroups = -(-labels.size // WORKGROUP_SIZE)
    stage = stage_dispatch(context, "arrays/mark_groups.wgsl", bound, workgroups, labels.size, **values)
    clear = Clear(marks.buffer, 0, marks._buffer_bytes)
    context.submit([clear, stage], labels.nbytes + marks.nbytes, deferrable=are_owned(source))
    return marks
