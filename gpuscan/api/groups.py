"""Run scans and reductions of groups: on a device, or on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device
from gpuscan.api.device_group import DeviceGroup, first_device_of
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import execute, is_on_device, write_to_device, write_to_numpy
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.engine.array_indices import number_labels as check_on_device
from gpuscan.engine.element_copy import write_to_outputs
from gpuscan.engine.executor import Executor
from gpuscan.engine.group_results import label_range, reduce_groups
from gpuscan.engine.group_scans import Labels, scan_groups
from gpuscan.engine.group_tables import CountedLabels
from gpuscan.engine.groups import mark_missing
from gpuscan.problem.arguments import as_numpy_arrays
from gpuscan.problem.groups import (
    check_count,
    in_order,
    missing_error,
    missing_labels,
    number_labels,
    with_indices,
    with_nan,
)
from gpuscan.problem.labels import MISSING, describe_label
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import slice_problem
from gpuscan.problem.segments import Heads, Keys
from gpuscan.reference import groups as reference


def execute_groups(
    problem: Problem,
    labels: Labels,
    device: OpenedDevice | DeviceGroup | None,
    strategy: str,
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the result of a scan that combines only elements with equal labels.

    Args:
        problem: the scan, without heads.
        labels: the labels, checked, or sorted on the device.
        device: the device to run on, or a device group, which shares the rows if there are enough; None for NumPy.
        strategy: as in `gpuscan.scan`.
        outputs: the arrays of `out`, checked; new ones without.
    """
    if problem.empty:
        return execute(problem, device, strategy, outputs)
    if isinstance(labels, np.ndarray):
        missing = missing_labels(labels)
        if missing is not None:
            if (error := missing_error(problem)) is not None:
                raise error
            # First they are a group of their own, which changes no other group. In the canonical order, in which the
            # order of groups matters, they come first, as -1 does if labels are on a device.
            after = np.where(missing, labels.max() + np.int64(1), labels)
            labels = np.where(missing, 0, after + 1) if problem.everywhere else after
            whole = execute_groups(problem, labels, device, strategy, None)
            return without_missing(problem, whole, missing, device, outputs)
        labels = number_labels(labels)
        if (heads := heads_of_groups(problem, labels)) is not None:
            return execute(replace(problem, heads=heads), device, strategy, outputs)
    elif isinstance(labels, CountedLabels) and labels.in_order:
        heads = Heads(problem.shape, problem.axis, problem.reverse, Keys(labels.labels))
        return execute(replace(problem, heads=heads), device, strategy, outputs)
    axis = device.executor_group.axis_of_shares(problem) if isinstance(device, DeviceGroup) else None
    first_device = first_device_of(device)
    if isinstance(device, DeviceGroup) and axis is not None:
        assert isinstance(labels, np.ndarray)
        results = _run_on_device_group(
            device, problem, labels, axis, lambda executor, part, own: scan_groups(executor, part, own, strategy)
        )
    elif first_device is None:
        assert isinstance(labels, np.ndarray)
        rows = reference.accumulate_groups(with_indices(problem), labels)
        results = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
    else:
        call = partial(scan_groups, first_device._executor, problem, labels, strategy)
        return _run_on_device(first_device, is_on_device(problem), call, outputs)
    return write_to_numpy(results, outputs)


def _run_on_device(
    device: OpenedDevice,
    stays: bool,
    call: Callable[..., list[DeviceArray]],
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the results of a call with the argument `out` on one device: there if they stay, else in NumPy."""
    if stays:
        targets = None if outputs is None else arrays_on_device(outputs)
        made = call(out=targets)
        return targets or [Array._of(device, array) for array in made]
    results = [array._read() for array in call(out=None)]
    device._context.check()
    return write_to_numpy(results, outputs)


def without_missing(
    problem: Problem,
    results: Sequence[SomeArray],
    missing: AnyArray | DeviceArray,
    device: OpenedDevice | DeviceGroup | None,
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the results of a scan with NaN for the elements with missing labels.

    Args:
        problem: the scan, with results of floats or complex numbers.
        results: its results, in which these elements are a group of their own.
        missing: a bool for each label, True where it is missing: a NumPy array; or an array on a device of the labels.
        device, outputs: as in `execute_groups`.
    """
    if not is_on_device(problem):
        mask = missing if isinstance(missing, np.ndarray) else missing._read() == MISSING
        return write_to_numpy(with_nan(problem, as_numpy_arrays(results), mask), outputs)
    first_device = first_device_of(device)
    assert first_device is not None
    if isinstance(missing, np.ndarray):
        missing = upload_array(first_device._context, np.where(missing, MISSING, 0).astype(np.int8))
    marked = mark_missing(problem, arrays_on_device(results), missing)
    if outputs is None:
        return [Array._of(first_device, array) for array in marked]
    write_to_outputs(marked, arrays_on_device(outputs))
    return outputs


def heads_of_groups(problem: Problem, labels: AnyArray) -> Heads | None:
    """Return the heads of groups if the elements of each are neighbours already; None if labels have to be sorted."""
    if not in_order(labels, problem.axis):
        return None
    return Heads(problem.shape, problem.axis, problem.reverse, Keys(labels))


def _run_on_device_group(
    device_group: DeviceGroup,
    problem: Problem,
    labels: AnyArray,
    axis: int,
    call: Callable[[Executor, Problem, AnyArray], list[DeviceArray]],
) -> list[AnyArray]:
    """Let each device of a device group combine the groups of some rows, and return all results.

    Args:
        device_group: the devices.
        problem: the scan or reduction.
        labels: the labels of each element, or of each index along the problem's axis.
        axis: the axis along which rows are divided.
        call: combines the groups of a problem with its labels on a device.
    """
    before = (slice(None),) * axis

    def share(low: int, high: int, device: OpenedDevice) -> list[AnyArray]:
        own = labels[(*before, slice(low, high))] if labels.shape == problem.shape else labels
        contents = [array._read() for array in call(device._executor, slice_problem(problem, axis, low, high), own)]
        device._context.check()
        return contents

    parts = device_group.share(problem.shape[axis], share)
    return [np.concatenate(pieces, axis) for pieces in zip(*parts, strict=True)]


def count_groups(labels: SomeArray, num_groups: object, device: OpenedDevice | None, groups: object) -> int:
    """Return the number of groups of a reduction: `num_groups`, else 1 more than the largest label.

    Only without `num_groups`, labels on a device are read. Otherwise it checks them while it reduces the groups.
    Messages show labels as they are in `groups`, which the caller passed.

    Raises:
        TypeError, ValueError: as `check_count` does.
    """
    if not labels.size or (isinstance(labels, DeviceArray) and num_groups is not None):
        return check_count(num_groups, 0, -1)
    if isinstance(labels, DeviceArray):
        assert device is not None
        return check_count(None, *label_range(device._executor, labels))
    return check_count(num_groups, int(labels.min()), int(labels.max()), partial(describe_label, groups))


def execute_reduction(
    problem: Problem,
    labels: AnyArray | DeviceArray,
    groups: int,
    device: OpenedDevice | DeviceGroup | None,
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        labels: the labels, with -1 where one is missing.
        device: the device to run on, or a device group, which shares the rows if there are enough; None for NumPy.
        outputs: the arrays of `out`, checked; new ones without.

    Raises:
        ValueError: a group is empty, and there is no `fill`.
    """
    on_device = is_on_device(problem)
    axis = (
        device.executor_group.axis_of_shares(problem)
        if isinstance(device, DeviceGroup) and not problem.empty and groups
        else None
    )
    if isinstance(device, DeviceGroup) and axis is not None:
        assert isinstance(labels, np.ndarray)
        results = _run_on_device_group(
            device, problem, labels, axis, lambda executor, part, own: reduce_groups(executor, part, own, groups)
        )
        return write_to_numpy(results, outputs)
    device = first_device_of(device)
    if device is None or problem.empty or not groups:
        given = labels
        if isinstance(given, DeviceArray):
            assert device is not None
            if groups:
                check_on_device(given, groups)
                if not on_device:
                    given._context.check()
            elif given.size:
                # The validation flag of a device does not tell label 0 from no label.
                check_count(0, *label_range(device._executor, given))
            # Without elements or groups, they say nothing more.
            given = np.full(problem.shape, MISSING)
        rows = reference.reduce_groups(with_indices(problem), given, groups)
        results = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
        if on_device:
            assert device is not None
            return write_to_device(device, results, None if outputs is None else arrays_on_device(outputs))
        return write_to_numpy(results, outputs)
    return _run_on_device(device, on_device, partial(reduce_groups, device._executor, problem, labels, groups), outputs)
