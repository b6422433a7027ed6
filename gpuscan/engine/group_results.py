"""Reduce groups of elements on a device: scan them in the order of their labels, and pick the last result of each."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, uploaded
from gpuscan.device.guards import guarded
from gpuscan.elements import scalar_of
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import StridedView, copied, duplicate, transposed, written
from gpuscan.engine.groups import SortedLabels, grouped
from gpuscan.engine.record import record_stage
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.groups import check_full

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscan.elements import Field
    from gpuscan.engine.executor import Executor
    from gpuscan.problem.problem import Problem

# Invocations in a workgroup of the shaders here: the most that every WebGPU adapter has.
_WORKGROUP_SIZE = 256


def label_range(found: SortedLabels) -> tuple[int, int]:
    """Return the smallest and the largest label. The labels at both ends of each row are read from the device."""
    labels, size = found.labels, found.labels.dtype.itemsize
    length = labels.shape[-1]
    rows = labels.size // length
    ends = []
    with guarded(labels.context), labels.context.lock:
        for place in (0, length - 1):
            view = StridedView(labels, place * size, (rows,), (length * size,), size)
            ends.append(copied(view, (rows,), labels.dtype).read())
    labels.context.check()
    return int(ends[0].min()), int(ends[1].max())


def reduce_groups(
    executor: Executor,
    problem: Problem,
    labels: Any,
    groups: int,
    *,
    out: Sequence[DeviceArray] | None = None,
) -> list[DeviceArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        executor: of the arrays' device.
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        labels: the labels, from 0 up to the number of groups; they may be sorted already.
        groups: the number of groups.
        out: arrays to write, which fit; new ones without.

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
        found = grouped(executor, problem, labels)
        inside = found.problem
        scanned = scan_device(executor, inside)
        ends = _ends_of(found.labels, problem.row_length, groups)
        if problem.fill is None:
            check_full(problem, ends.read().reshape(-1, groups))
        results = []
        lead = list(problem.shape)
        lead[problem.axis] = groups
        for number, (array, f) in enumerate(zip(scanned, fields, strict=True)):
            fill = None if problem.fill is None else problem.fill[number]
            picked = _picked(problem, array, ends, fill, f, groups)
            if problem.inner > 1:
                view = transposed(picked, problem.inner, groups, f.storage_bytes)
                picked = copied(view, picked.shape, picked.dtype)
            results.append(picked.viewed((*lead, *f.shape)))
        return results if out is None else written(results, out)


def _ends_of(labels: DeviceArray, length: int, groups: int) -> DeviceArray:
    """Return 1 more than the place of each group's last element, or 0: (rows of the labels, groups)."""
    context = labels.context
    ends = empty(context, (labels.size // length * groups,), np.uint32)
    source = labels if labels.is_bindable else duplicate(labels)
    call = context.uniform(np.array([labels.size, length, groups, 0], np.uint32).tobytes())
    encoder = context.queue.encoder()
    encoder.clear_buffer(ends.buffer, 0, ends.buffer.size)
    bound = [call, source.binding(), ends.binding()]
    values = {"workgroup_size": _WORKGROUP_SIZE, "scalar": scalar_of(labels.dtype)}
    workgroups = -(-labels.size // _WORKGROUP_SIZE)
    record_stage(context, encoder, "arrays/group_ends.wgsl", bound, workgroups, labels.size, **values)
    context.queue.submit(encoder)
    return ends


def _picked(
    problem: Problem,
    scanned: DeviceArray,
    ends: DeviceArray,
    fill: np.ndarray[Any, Any] | None,
    field: Field,
    groups: int,
) -> DeviceArray:
    """Return the last result of each group: (rows, groups, *element shape)."""
    context = scanned.context
    result = empty(context, (problem.rows, groups, *field.shape), field.scalar.dtype)
    if not result.nbytes:
        return result
    unit = gcd(4, field.storage_bytes)
    units = prod(result.shape[:2]) * field.storage_bytes // unit
    words = -(-units * unit // 4)
    numbers = [words, units, field.storage_bytes // unit, groups, problem.row_length, ends.size, 0, 0]
    filling = uploaded(context, np.zeros(1, np.uint32) if fill is None else fill)
    bound = [context.uniform(np.array(numbers, np.uint32).tobytes())]
    bound += [array.binding() for array in (scanned, ends, filling, result)]
    encoder = context.queue.encoder()
    values = {"workgroup_size": _WORKGROUP_SIZE, "unit": unit}
    workgroups = -(-words // _WORKGROUP_SIZE)
    record_stage(context, encoder, "arrays/pick_results.wgsl", bound, workgroups, result.size, **values)
    context.queue.submit(encoder)
    return result
