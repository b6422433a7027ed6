"""Run scans and reductions of groups: on a device, or on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device, new_array
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import execute, is_on_device, write_to_numpy
from gpuscan.api.team import Team
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.elements import element_of, tuple_of
from gpuscan.engine.element_copy import write_elements
from gpuscan.engine.elementwise import map_elements
from gpuscan.engine.executor import Executor
from gpuscan.engine.group_results import label_range, reduce_groups
from gpuscan.engine.group_tables import TabledGroups, combine_speculatively, count_labels, number_few, plan_table
from gpuscan.engine.groups import SortedLabels, mark_missing, scan_groups, sort_labels
from gpuscan.operators.trace import Map, trace_function
from gpuscan.planning.heuristics import group_heuristics_for
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
from gpuscan.problem.labels import MISSING
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import cut
from gpuscan.problem.segments import Heads, Keys
from gpuscan.reference import groups as reference

# The labels of a call: in NumPy, or on a device as they are, sorted, or planned by a table.
Labels: TypeAlias = AnyArray | DeviceArray | SortedLabels | TabledGroups


def one_of(home: OpenedDevice | Team | None) -> OpenedDevice | None:
    """Return the device that combines the groups of a row. Of a team it is the first: a group may be anywhere."""
    return home.devices[0] if isinstance(home, Team) else home


def execute_groups(
    problem: Problem,
    labels: Labels,
    home: OpenedDevice | Team | None,
    strategy: str,
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the result of a scan that combines only elements with equal labels.

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
        missing = missing_labels(labels)
        if missing is not None:
            if (error := missing_error(problem)) is not None:
                raise error
            # They are a group of their own at first, which changes no other one. In the canonical order, where the
            # place of a group counts, they come first, as -1 does if labels are on a device.
            after = np.where(missing, labels.max() + np.int64(1), labels)
            labels = np.where(missing, 0, after + 1) if problem.everywhere else after
            whole = execute_groups(problem, labels, home, strategy, None)
            return without_missing(problem, whole, missing, home, outputs)
        labels = number_labels(labels)
        if (heads := heads_of_groups(problem, labels)) is not None:
            return execute(replace(problem, heads=heads), home, strategy, outputs)
    axis = home.team.axis_of_shares(problem) if isinstance(home, Team) else None
    one = one_of(home)
    if isinstance(home, Team) and axis is not None:
        assert isinstance(labels, np.ndarray)
        results = _run_on_team(
            home, problem, labels, axis, lambda executor, part, own: scan_groups(executor, part, own, strategy)
        )
    elif one is None:
        assert isinstance(labels, np.ndarray)
        rows = reference.accumulate_groups(with_indices(problem), labels)
        results = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
    elif is_on_device(problem):
        places = None if outputs is None else arrays_on_device(outputs)
        found = scan_groups(one._executor, problem, labels, strategy, out=places)
        return places or [Array._of(one, array) for array in found]
    else:
        results = [array._read() for array in scan_groups(one._executor, problem, labels, strategy)]
        one._context.check()
    return write_to_numpy(results, outputs)


def without_missing(
    problem: Problem,
    results: Sequence[SomeArray],
    missing: AnyArray | DeviceArray,
    home: OpenedDevice | Team | None,
    outputs: Sequence[SomeArray] | None,
) -> Sequence[SomeArray]:
    """Return the results of a scan with NaN for the elements with missing labels.

    Args:
        problem: the scan, with results of floats or complex numbers.
        results: its results, in which these elements are a group of their own.
        missing: a bool for each label, True where it is missing: a NumPy array; or an array on a device of the labels.
        home, outputs: as in `execute_groups`.
    """
    if not is_on_device(problem):
        mask = missing if isinstance(missing, np.ndarray) else missing._read() == MISSING
        return write_to_numpy(with_nan(problem, as_numpy_arrays(results), mask), outputs)
    one = one_of(home)
    assert one is not None
    if isinstance(missing, np.ndarray):
        missing = upload_array(one._context, np.where(missing, MISSING, 0).astype(np.int8))
    marked = mark_missing(problem, arrays_on_device(results), missing)
    return [Array._of(one, array) for array in marked] if outputs is None else _write_on_device(marked, outputs)


def _write_on_device(results: Sequence[DeviceArray], outputs: Sequence[SomeArray]) -> list[Array]:
    """Copy results on a device to the arrays of `out`, and return these."""
    places = arrays_on_device(outputs)
    for result, place in zip(results, places, strict=True):
        place._check("STORAGE")
        write_elements(result, place)
    return places


def heads_of_groups(problem: Problem, labels: AnyArray) -> Heads | None:
    """Return the heads of groups if the elements of each are neighbours already; None if labels have to be sorted."""
    if not in_order(labels, problem.axis):
        return None
    return Heads(problem.shape, problem.axis, problem.reverse, Keys(labels))


def _run_on_team(
    team: Team,
    problem: Problem,
    labels: AnyArray,
    axis: int,
    call: Callable[[Executor, Problem, AnyArray], list[DeviceArray]],
) -> list[AnyArray]:
    """Let each device of a team combine the groups of some rows, and return all results.

    Args:
        team: the devices.
        problem: the scan or reduction.
        labels: the labels of each element, or of each place along the problem's axis.
        axis: the axis along which rows are divided.
        call: combines the groups of a problem with its labels on a device.
    """
    before = (slice(None),) * axis

    def share(low: int, high: int, device: OpenedDevice) -> list[AnyArray]:
        own = labels[(*before, slice(low, high))] if labels.shape == problem.shape else labels
        found = [array._read() for array in call(device._executor, cut(problem, axis, low, high), own)]
        device._context.check()
        return found

    parts = team.share(problem.shape[axis], share)
    return [np.concatenate(each, axis) for each in zip(*parts, strict=True)]


@dataclass(frozen=True)
class CountedLabels:
    """The labels of a reduction.

    Attributes:
        labels: the labels.
        count: the number of groups.
        drops_last: True if labels were missing: they are one more group, the last one.
    """

    labels: Labels
    count: int
    drops_last: bool = False


def count_groups(problem: Problem, labels: SomeArray, num_groups: object, home: OpenedDevice | None) -> CountedLabels:
    """Return the labels of a reduction, and the number of groups.

    Labels on a device come back counted or sorted. The largest of them is read from the device, or the first and the
    last of each row.

    Raises:
        TypeError, ValueError: as `check_count` does.
    """
    if not labels.size:
        return CountedLabels(labels, check_count(num_groups, 0, -1))
    if isinstance(labels, DeviceArray):
        assert home is not None
        wanted = None if num_groups is None else check_count(num_groups, 0, -1)
        h = group_heuristics_for(home.capabilities.adapter_type)
        if wanted and problem.size < h.min_read_elements:
            numbered_labels = number_few(home._executor, problem, labels, wanted)
            return CountedLabels(numbered_labels, wanted, drops_last=True)
        begun = None if wanted == 0 else combine_speculatively(home._executor, problem, labels, wanted, reduces=True)
        if begun is not None:
            return CountedLabels(begun, begun.table.count)
        few = count_labels(home._executor, problem, labels, exact=True)
        if few is not None:
            count = check_count(num_groups, 0, few.count - 1)
            by_table = plan_table(home._executor, problem, replace(few, count=count), reduces=True)
            if by_table is not None:
                return CountedLabels(by_table, count)
        found = sort_labels(home._executor, problem, labels, moves=True)
        least, largest = label_range(found)
        count = check_count(num_groups, least, largest)
        if least != MISSING:
            return CountedLabels(found, count)
        context = home._context
        function = _as_last_group(labels.dtype)
        last = upload_array(context, np.array(count, np.uint32))
        (numbers,) = map_elements(context, [labels, last], function, labels.shape)
        return CountedLabels(numbers, count, drops_last=True)
    least, largest = int(labels.min()), int(labels.max())
    count = check_count(num_groups, least, largest)
    if least != MISSING:
        return CountedLabels(labels, count)
    return CountedLabels(np.where(labels == MISSING, np.int64(count), labels), count, drops_last=True)


@cache
def _as_last_group(dtype: AnyDType) -> Map:
    """Return the function that gives missing labels a number."""

    def function(values: tuple[Any, Any]) -> object:
        label, last = values
        return np.where(label == MISSING, last, label.astype(np.uint32))

    return trace_function(function, element_of([dtype, np.dtype(np.uint32)], tuple_of(2)), "groups")


def execute_reduction(
    problem: Problem, counted: CountedLabels, home: OpenedDevice | Team | None, outputs: Sequence[SomeArray] | None
) -> Sequence[SomeArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    Args:
        problem: the scan of the elements, without heads. Its `fill` is for groups without elements.
        counted: the labels.
        home: the device to run on, or a team, which shares the rows if there are enough; None for NumPy.
        outputs: the arrays of `out`, checked; new ones without.

    Raises:
        ValueError: a group is empty, and there is no `fill`.
    """
    if not counted.drops_last:
        return _reduce(problem, counted.labels, counted.count, home, outputs)
    before = (slice(None),) * problem.axis
    whole = _reduce(problem, counted.labels, counted.count + 1, home, None, drops_last=True)
    index = (*before, slice(counted.count))
    if not is_on_device(problem):
        return write_to_numpy([np.ascontiguousarray(array[index]) for array in as_numpy_arrays(whole)], outputs)
    kept = [array[index] for array in arrays_on_device(whole)]
    return [array.copy() for array in kept] if outputs is None else _write_on_device(kept, outputs)


def _reduce(
    problem: Problem,
    labels: Labels,
    groups: int,
    home: OpenedDevice | Team | None,
    outputs: Sequence[SomeArray] | None,
    *,
    drops_last: bool = False,
) -> Sequence[SomeArray]:
    """Return the combination of the elements of each label. `drops_last` is that of `check_full`."""
    on_device = is_on_device(problem)
    axis = home.team.axis_of_shares(problem) if isinstance(home, Team) and not problem.empty and groups else None
    if isinstance(home, Team) and axis is not None:

        def reduce_part(executor: Executor, part: Problem, own: object) -> list[DeviceArray]:
            return reduce_groups(executor, part, own, groups, drops_last=drops_last)

        assert isinstance(labels, np.ndarray)
        return write_to_numpy(_run_on_team(home, problem, labels, axis, reduce_part), outputs)
    home = one_of(home)
    if home is None or problem.empty or not groups:
        # Without elements, labels on a device are not read.
        given = labels if isinstance(labels, np.ndarray) else np.zeros(problem.shape, np.uint8)
        rows = reference.reduce_groups(with_indices(problem), given, groups, drops_last=drops_last)
        results = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
        if on_device:
            assert home is not None
            uploaded = [new_array(home, result) for result in results]
            return uploaded if outputs is None else _write_on_device(uploaded, outputs)
    elif on_device:
        places = None if outputs is None else arrays_on_device(outputs)
        found = reduce_groups(home._executor, problem, labels, groups, out=places, drops_last=drops_last)
        return places or [Array._of(home, array) for array in found]
    else:
        found = reduce_groups(home._executor, problem, labels, groups, drops_last=drops_last)
        results = [array._read() for array in found]
        home._context.check()
    return write_to_numpy(results, outputs)
