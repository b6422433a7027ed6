"""Reduce groups of elements on a device: by a table, or as segments in the order of their labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.device.steps import Clear
from gpuscan.elements import scalar_of
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import StridedView, bindable, copy_view, transpose_elements, written
from gpuscan.engine.group_tables import TabledGroups, count_labels, plan_table, reduce_by_table
from gpuscan.engine.groups import SortedLabels, group_elements
from gpuscan.engine.record import WORKGROUP_SIZE, are_owned, stage_dispatch, uniform_of
from gpuscan.engine.segment_results import spread_segments
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.groups import check_full, with_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscan.engine.executor import Executor
    from gpuscan.problem.problem import Problem


def label_range(found: SortedLabels) -> tuple[int, int]:
    """Return the smallest and the largest label. The labels at both ends of each row are read from the device."""
    labels, size = found.labels, found.labels.dtype.itemsize
    length = labels.shape[-1]
    rows = labels.size // length
    ends = []
    with guarded(labels._context), labels._context.lock:
        for place in (0, length - 1):
            view = StridedView(labels, place * size, (rows,), (length * size,), size)
            ends.append(copy_view(view, (rows,), labels.dtype)._read())
    labels._context.check()
    return int(ends[0].min()), int(ends[1].max())


def reduce_groups(
    executor: Executor,
    problem: Problem,
    labels: object,
    groups: int,
    *,
    out: Sequence[DeviceArray] | None = None,
    drops_last: bool = False,
) -> list[DeviceArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        executor: of the arrays' device.
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        labels: the labels, from 0 up to the number of groups; as they are, sorted, or planned by a table.
        groups: the number of groups.
        out: arrays to write, which fit; new ones without.
        drops_last: as in `check_full`.

    Raises:
        ValueError: a group is empty, and there is no `fill`.
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
    with guarded(context), context.lock:
        if not isinstance(labels, (SortedLabels, TabledGroups)):
            few = count_labels(executor, problem, labels)
            labels = (few and plan_table(executor, problem, replace(few, count=groups), reduces=True)) or labels
        if isinstance(labels, TabledGroups):
            return reduce_by_table(executor, problem, labels, out, drops_last=drops_last)
        problem = with_indices(problem)
        found = group_elements(executor, problem, labels, moves=True)
        inside = found.problem
        marks = _marks_of(found.labels, problem.row_length, groups)
        if problem.fill is None:
            check_full(problem, marks._read().reshape(-1, groups), drops_last=drops_last)
        # One result for each group that has elements, row by row.
        most = problem.rows * min(groups, problem.row_length)
        full = [empty(context, (most, *f.shape), f.scalar.dtype) for f in fields]
        scan_device(executor, replace(inside, keep_last_only=True), out=full)
        (ranks,) = scan_device(executor, find_or_make_problem(marks, "add", axis=0, exclusive=False, reverse=False))
        results = []
        lead = list(problem.shape)
        lead[problem.axis] = groups
        for number, (array, f) in enumerate(zip(full, fields, strict=True)):
            result = empty(context, (problem.rows, groups, *f.shape), f.scalar.dtype)
            if result.nbytes:
                fill = None if problem.fill is None else problem.fill[number]
                shape = problem.rows, groups, f.storage_bytes
                spread_segments(array, ranks, fill, result, shape, ranks_of_all_rows=marks.size > groups)
            moved = transpose_elements(result, problem.inner, groups, f.storage_bytes)
            results.append(moved._view_as((*lead, *f.shape)))
        return written(results, out)


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
    context.submit([clear, stage], labels.nbytes + marks.nbytes, held=are_owned(source))
    return marks
