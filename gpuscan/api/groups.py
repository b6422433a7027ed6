"""Run scans and reductions of groups: on a device, or on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import execute, is_on_device
from gpuscan.api.team import Team
from gpuscan.device.device_array import DeviceArray, uploaded
from gpuscan.engine.element_copy import write_elements
from gpuscan.engine.executor import Executor
from gpuscan.engine.group_results import label_range, reduce_groups
from gpuscan.engine.group_tables import combine_speculatively, count_labels, plan_table
from gpuscan.engine.groups import scan_groups, sort_labels
from gpuscan.problem.groups import checked_count, in_order, numbered, with_indices
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import cut
from gpuscan.problem.results import written
from gpuscan.problem.segments import Heads
from gpuscan.reference import groups as reference


def one_of(home: OpenedDevice | Team | None) -> OpenedDevice | None:
    """Return the device that combines the groups of a row. Of a team it is the first: a group may be anywhere."""
    return home.devices[0] if isinstance(home, Team) else home


def execute_groups(
    problem: Problem, labels: Any, home: OpenedDevice | Team | None, strategy: str, outputs: list[Any] | None
) -> list[Any]:
    """Return the result of a problem in which each element is combined with those of its own label.

    Args:
        problem: the scan, without heads.
        labels: the labels, checked, or sorted on the device.
        home: the device to run on, or a team, which shares the rows if there are enough; None for NumPy.
        strategy: as in `gpuscan.scan`.
        outputs: the arrays of `out`, checked; new ones without.
    """
    if problem.empty:
        return execute(problem, home, strategy, outputs)
    if isinstance(labels, np.ndarray):
        labels = numbered(labels)
        if (heads := heads_of_groups(problem, labels)) is not None:
            return execute(replace(problem, heads=heads), home, strategy, outputs)
    axis = home.team.axis_of_shares(problem) if isinstance(home, Team) else None
    one = one_of(home)
    if isinstance(home, Team) and axis is not None:
        results: list[Any] = _shared(
            home, problem, labels, axis, lambda executor, part, own: scan_groups(executor, part, own, strategy)
        )
    elif one is None:
        rows = reference.accumulate_groups(with_indices(problem), labels)
        results = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
    elif is_on_device(problem):
        found = scan_groups(one._executor, problem, labels, strategy, out=outputs)
        return outputs or [Array.of(one, array) for array in found]
    else:
        results = [array.read() for array in scan_groups(one._executor, problem, labels, strategy)]
        one._context.check()
    return written(results, outputs)


def heads_of_groups(problem: Problem, labels: np.ndarray[Any, Any]) -> Heads | None:
    """Return the heads of groups if the elements of each are neighbours already; None if labels have to be sorted."""
    if not in_order(labels, problem.axis):
        return None
    return Heads(problem.shape, problem.axis, problem.reverse, keys=labels)


def _shared(
    team: Team,
    problem: Problem,
    labels: np.ndarray[Any, Any],
    axis: int,
    call: Callable[[Executor, Problem, Any], list[DeviceArray]],
) -> list[Any]:
    """Let each device of a team combine the groups of some rows, and return all results.

    Args:
        team: the devices.
        problem: the scan or reduction.
        labels: the labels of each element, or of each place along the problem's axis.
        axis: the axis along which rows are divided.
        call: combines the groups of a problem with its labels on a device.
    """
    before = (slice(None),) * axis

    def share(low: int, high: int, device: OpenedDevice) -> list[Any]:
        own = labels[(*before, slice(low, high))] if labels.shape == problem.shape else labels
        found = [array.read() for array in call(device._executor, cut(problem, axis, low, high), own)]
        device._context.check()
        return found

    parts = team.share(problem.shape[axis], share)
    return [np.concatenate(each, axis) for each in zip(*parts, strict=True)]


def counted(problem: Problem, labels: Any, num_groups: Any, home: OpenedDevice | None) -> tuple[Any, int]:
    """Return the labels of a reduction, and the number of groups.

    Labels on a device come back counted or sorted. The largest of them is read from the device, or the first and the
    last of each row.

    Raises:
        TypeError, ValueError: as `checked_count` does.
    """
    if not labels.size:
        return labels, checked_count(num_groups, 0, -1)
    if isinstance(labels, DeviceArray):
        assert home is not None
        wanted = None if num_groups is None else checked_count(num_groups, 0, -1)
        begun = None if wanted == 0 else combine_speculatively(home._executor, problem, labels, wanted, reduces=True)
        if begun is not None:
            return begun, begun.table.count
        few = count_labels(home._executor, problem, labels, exact=True)
        if few is not None:
            count = checked_count(num_groups, 0, few.count - 1)
            by_table = plan_table(home._executor, problem, replace(few, count=count), reduces=True)
            if by_table is not None:
                return by_table, count
        found = sort_labels(home._executor, problem, labels, moves=True)
        return found, checked_count(num_groups, *label_range(found))
    return labels, checked_count(num_groups, int(labels.min()), int(labels.max()))


def execute_reduction(
    problem: Problem, labels: Any, groups: int, home: OpenedDevice | Team | None, outputs: list[Any] | None
) -> list[Any]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        labels: the labels, from 0 up to the number of groups, as `counted` returns them.
        groups: the number of groups.
        home: the device to run on, or a team, which shares the rows if there are enough; None for NumPy.
        outputs: the arrays of `out`, checked; new ones without.

    Raises:
        ValueError: a group is empty, and there is no `fill`.
    """
    on_device = is_on_device(problem)
    axis = home.team.axis_of_shares(problem) if isinstance(home, Team) and not problem.empty and groups else None
    if isinstance(home, Team) and axis is not None:
        found = _shared(
            home, problem, labels, axis, lambda executor, part, own: reduce_groups(executor, part, own, groups)
        )
        return written(found, outputs)
    home = one_of(home)
    if home is None or problem.empty or not groups:
        # Without elements, labels on a device are not read.
        given = labels if isinstance(labels, np.ndarray) else np.zeros(problem.shape, np.uint8)
        rows = reference.reduce_groups(with_indices(problem), given, groups)
        results: list[Any] = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
        if on_device:
            assert home is not None
            results = [Array.of(home, uploaded(home._context, result)) for result in results]
    elif on_device:
        found = reduce_groups(home._executor, problem, labels, groups, out=outputs)
        return outputs or [Array.of(home, array) for array in found]
    else:
        results = [array.read() for array in reduce_groups(home._executor, problem, labels, groups)]
        home._context.check()
    if not on_device:
        return written(results, outputs)
    for target, result in zip(outputs or (), results, strict=outputs is not None):
        write_elements(result, target)
    return outputs or results
