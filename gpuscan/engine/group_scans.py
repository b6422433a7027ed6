"""Scan groups of elements on a device: by a table of carries, or by a sort of their labels.

If labels are on the device, only the GPU knows how many there are. Then the stages of several ways are submitted, and
the GPU runs one of them. So no call waits for the largest label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding, Clear, Step
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import write_to_outputs
from gpuscan.engine.group_tables import (
    CountedLabels,
    TabledGroups,
    bindable_checked,
    can_be_written,
    count_labels,
    in_shape,
    labels_by_rows,
    leaves_by_rows,
    plan_table,
    problem_by_rows,
    report_largest,
    search_largest,
)
from gpuscan.engine.groups import SortedLabels, mark_missing, scan_in_order, search_missing, sort_into
from gpuscan.engine.kernel_steps import bind_arrays, clear_shared, dispatch_kernel
from gpuscan.engine.plan_steps import are_owned, new_validation_flag, stage_dispatch, uniform_of
from gpuscan.engine.sorting import partition, plan_partition
from gpuscan.planning.key_heuristics import group_heuristics_for
from gpuscan.planning.uncounted_groups import UncountedGroups, plan_uncounted
from gpuscan.problem.groups import may_be_missing, missing_error

if TYPE_CHECKING:
    from gpuscan.engine.executor import Executor
    from gpuscan.planning.group_plan import GroupKernel
    from gpuscan.planning.sort_plan import TileSort
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem

# The labels of a call: in NumPy, or on a device as they are, sorted, or planned by a table.
Labels: TypeAlias = AnyArray | DeviceArray | CountedLabels | SortedLabels | TabledGroups

# The words of what groups/choose_table.wgsl writes: twice the parameters of stages; a step of a sort; and
# words that are 0 if labels are to be sorted, and if elements are to be sorted by buckets first. Parts that shaders
# bind begin at multiples of 256 bytes.
_CHOICE_WORDS = 260
_PARAM_WORDS = 12
_PARTITIONED = 64
_STEP = 128
_STEP_WORDS = 6
_IS_SCANNED = 192
_IS_WHOLE = 256


@dataclass(frozen=True)
class UncountedLabels:
    """A scan of groups, for which only the GPU knows the number of labels.

    Attributes:
        problem: the scan of contiguous rows, without heads.
        labels: the labels: (row_length,) if all rows have the same labels, else (rows, row_length).
        spec: its specification.
        plan: the shape of the table.
        partition: how elements are sorted by the buckets of their labels; None if they cannot be.
    """

    problem: Problem
    labels: DeviceArray
    spec: ScanSpec
    plan: UncountedGroups
    partition: TileSort | None


def scan_groups(
    executor: Executor,
    problem: Problem,
    labels: Labels,
    strategy: str = "auto",
    *,
    out: Sequence[DeviceArray] | None = None,
) -> list[DeviceArray]:
    """Scan the elements of each label by themselves, and return the results. Nothing waits for labels on the device.

    Args:
        problem: the scan, without heads. Its NumPy arrays are uploaded.
        labels: the labels, as `gpuscan.problem.groups.check_labels` returns them, or sorted, or planned by a table.
        strategy: as in `gpuscan.scan`.
        out: arrays to write, which fit; new ones without. They may be the problem's own.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    context = executor.context
    with context.errors, context.lock:
        context.strategy(strategy)
        given = labels
        if not isinstance(labels, (SortedLabels, TabledGroups)):
            uncounted = _plan_labels(executor, problem, labels)
            if uncounted is not None:
                return _scan_uncounted(executor, problem, uncounted, strategy, out)
            few = count_labels(executor, problem, labels)
            labels = labels.labels if isinstance(labels, CountedLabels) else labels
            labels = (few and plan_table(executor, problem, few)) or labels
        if isinstance(given, DeviceArray) and may_be_missing(given) and not _are_counted(labels):
            if missing_error(problem) is None:
                scanned = scan_in_order(executor, problem, labels, strategy, None)
                return write_to_outputs(mark_missing(problem, scanned, given), out)
            # The answer is read with the reports.
            found = search_missing(executor, given)
            report_largest(executor.context, found, _error_if_any, (missing_error(problem),))
        return scan_in_order(executor, problem, labels, strategy, out)


def _are_counted(labels: object) -> bool:
    """Return True if no label is negative, which was seen when the largest of them was read as an unsigned number."""
    return isinstance(labels, TabledGroups) and labels.labels.dtype.itemsize > 1


def _plan_labels(executor: Executor, problem: Problem, labels: object) -> UncountedLabels | None:
    """Return how groups are scanned if only the GPU knows their number; None if it is known, or if it cannot be.

    Args:
        problem: the scan of the elements, without heads.
        labels: the labels, as `gpuscan.problem.groups.check_labels` returns them.
    """
    context, length = executor.context, problem.row_length
    h = group_heuristics_for(context.capabilities.adapter_type)
    if not isinstance(labels, DeviceArray) or labels.dtype.itemsize == 1 or problem.size < h.min_counted_elements:
        return None
    planned = problem_by_rows(context, problem, labels)
    if planned is None:
        return None
    in_rows, spec = planned
    if 4 * problem.size * spec.element.words > context.binding_limit:
        return None
    sizes = [f.storage_bytes for f in in_rows.source.fields]
    by_buckets = None
    if sizes in ([4], [8]) and labels.dtype.itemsize > 2:
        by_buckets = plan_partition(context, labels.dtype, length, sizes[0] // 4)
    label_type = scalar_of(labels.dtype)
    plan = plan_uncounted(spec, label_type, context.capabilities, partitions=by_buckets is not None)
    if plan is None:
        return None
    return UncountedLabels(in_rows, labels, spec, plan, by_buckets if plan.max_partitioned else None)


def _scan_uncounted(
    executor: Executor,
    problem: Problem,
    groups: UncountedLabels,
    strategy: str,
    out: Sequence[DeviceArray] | None,
) -> list[DeviceArray]:
    """Scan the elements of each label by themselves, and return the results. Nothing waits for the labels."""
    context, fields, inner = executor.context, problem.destination.fields, problem.inner
    leaves = leaves_by_rows(executor, problem)
    labels = labels_by_rows(problem, bindable_checked(groups.labels))
    direct = inner == 1 and out is not None and can_be_written(out, (*leaves, labels))
    results = list(out or ()) if direct else [empty(context, (problem.size, *f.shape), f.scalar.dtype) for f in fields]
    choice = _run_stages(executor, groups, leaves, labels, results)
    if not direct:
        results = in_shape(problem, results)
    with context.skip_dispatches_if(_switch(choice, _IS_SCANNED)):
        sort_into(executor, problem, groups.labels, strategy, results, few_stages=groups.partition is not None)
    return write_to_outputs(results, out)


def _run_stages(
    executor: Executor,
    groups: UncountedLabels,
    leaves: Sequence[DeviceArray],
    labels: DeviceArray,
    results: Sequence[DeviceArray],
) -> DeviceArray:
    """Submit the stages of the tables; return what the GPU chose."""
    context, plan, problem = executor.context, groups.plan, groups.problem
    owner = context.allocate(4 * _CHOICE_WORDS, context.usage.UNIFORM)
    choice = DeviceArray(context, owner.buffer, (_CHOICE_WORDS,), np.dtype(np.uint32), 0, owner)
    _choose(executor, groups, labels, choice)
    table = empty(context, (plan.table_words,), np.uint32)
    bound, kept = bind_arrays(context, problem, groups.spec, leaves, results)
    bound |= {"labels": labels._binding(), "table": table._binding()}
    if plan.local_words:
        local_words = empty(context, (plan.local_words,), np.uint32)
        bound["locals"] = local_words._binding()
    steps: list[Step] = []
    if plan.cleared_words:
        steps.append(Clear(table.buffer, 0, 4 * plan.cleared_words))
    steps += clear_shared(plan.kernels[-1], results)
    arrays = (*leaves, *results, labels)
    nbytes, deferrable = sum(array.nbytes for array in arrays), are_owned(*arrays)
    steps += _dispatches(executor, groups, plan.kernels, [bound] * 3, choice, 0)
    context.submit(steps, nbytes, deferrable=deferrable)
    if groups.partition is not None:
        words = leaves[0]._view_as((problem.size,), f"u{problem.source.fields[0].storage_bytes}")
        step = Binding(choice.buffer, 4 * _STEP, 4 * _STEP_WORDS * groups.partition.digits)
        with context.skip_dispatches_if(_switch(choice, _IS_WHOLE)):
            moved = partition(executor, labels, words, groups.partition, step)
        in_order = bound | {"labels": moved.keys._binding(), "source0": moved.words._binding()}
        carrying = bound | {"moves": moved.offsets._binding()}
        last = bound | {"moves": moved.destinations._binding()}
        arrays_of_stages = [in_order, carrying, in_order, last]
        steps = _dispatches(executor, groups, plan.partitioned, arrays_of_stages, choice, _PARTITIONED)
        context.submit(steps, nbytes, deferrable=deferrable)
    context.check_if_many()
    # The pool has their memory again once nothing refers to them.
    del kept
    return choice


def _dispatches(
    executor: Executor,
    groups: UncountedLabels,
    kernels: Sequence[GroupKernel],
    bound: Sequence[dict[str, Binding]],
    choice: DeviceArray,
    first_word: int,
) -> list[Step]:
    """Return the stages of a table, with parameters from a word of what the GPU chose on."""
    params = Binding(choice.buffer, 4 * first_word, 4 * _PARAM_WORDS)
    return [
        dispatch_kernel(executor.context, kernel, params, arrays, groups.plan.workgroups(kernel), groups.spec.length)
        for kernel, arrays in zip(kernels, bound, strict=True)
    ]


def _switch(choice: DeviceArray, first_word: int) -> Binding:
    """Return the switch that turns stages off if a word of what the GPU chose is not 0."""
    return Binding(choice.buffer, 4 * first_word, 16)


def _choose(executor: Executor, groups: UncountedLabels, labels: DeviceArray, choice: DeviceArray) -> None:
    """Submit the search for the largest label, and the stage that decides by it."""
    context, plan = executor.context, groups.plan
    largest = search_largest(executor, groups.labels)
    partition = groups.partition
    numbers = [
        *(plan.row_length, plan.rows, plan.row_length if labels.ndim > 1 else 0, plan.unit),
        *(plan.carries, plan.heuristics.wanted_carries, plan.sections, plan.heuristics.least_sections),
        plan.max_section_length,
        *(plan.max_labels, plan.max_partitioned, 0 if partition is None else partition.tiles_per_row),
    ]
    bound = [uniform_of(context, numbers), largest._binding(), choice._binding()]
    error = missing_error(groups.problem) if may_be_missing(labels) else None
    if error is not None:
        bound.append(new_validation_flag(context, 1, _error_if_any, (error,))._binding())
    stage = stage_dispatch(
        context,
        "groups/choose_table.wgsl",
        bound,
        1,
        1,
        label_bits=scalar_of(labels.dtype).bits,
        radix_bits=8 if partition is None else partition.radix_bits,
        checked=error is not None,
    )
    context.submit([stage], 4, deferrable=True)


def _error_if_any(error: Exception, words: list[int]) -> Exception | None:
    return error if words[0] else None
