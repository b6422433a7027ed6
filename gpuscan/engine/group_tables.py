"""Scan and reduce groups of few labels on a device without a sort: by a table of carries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty, upload_array, upload_rows
from gpuscan.device.steps import Clear, Step
from gpuscan.elements import element_of, scalar_of, tuple_of, words_of
from gpuscan.engine.device_arrays import scan_array
from gpuscan.engine.element_copy import bindable, contiguous, transpose_elements, write_to_outputs
from gpuscan.engine.elementwise import map_elements
from gpuscan.engine.kernel_steps import bind_arrays, clear_shared, dispatch_kernel
from gpuscan.engine.plan_steps import are_owned, new_validation_flag, uniform_of
from gpuscan.engine.preparation import prepare_problem
from gpuscan.operators.parameter_array import HostArray, combine_arrays
from gpuscan.operators.trace import trace_function
from gpuscan.planning.group_plan import plan_groups
from gpuscan.planning.key_heuristics import group_heuristics_for
from gpuscan.planning.spec import scan_spec
from gpuscan.problem.groups import empty_error, labels_error
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH

# A number above the index of any group.
_LAST = np.uint32(0xFFFFFFFF)
# Labels get no table if the largest of them is this number or more.
_MOST_LABELS = 1 << 31

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuscan.device.context import DeviceContext
    from gpuscan.device.steps import Binding
    from gpuscan.engine.executor import Executor
    from gpuscan.operators.trace import Map
    from gpuscan.operators.traced_array import Number
    from gpuscan.planning.group_plan import GroupTable
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem


class CountedLabels(NamedTuple):
    """Labels of a scan that NumPy has numbered, and that are on the device now.

    Attributes:
        labels: the labels, from 0 on, in the narrowest dtype that holds them: one for each index along the axis, or one
            for each element.
        groups: 1 more than the largest label.
        in_order: True if no label is smaller than the one before it.
    """

    labels: DeviceArray
    groups: int
    in_order: bool


@dataclass(frozen=True)
class FewLabels:
    """Labels on a device, in any order.

    Attributes:
        labels: the labels: (row_length,) if all rows have the same labels, else (rows, row_length).
        count: for a reduction the number of groups; for a scan a number above the largest label, where labels are read
            as unsigned numbers.
    """

    labels: DeviceArray
    count: int


@dataclass(frozen=True)
class TabledGroups:
    """A scan or reduction of groups that runs by a table.

    Attributes:
        problem: the scan of contiguous rows, without heads.
        labels: its labels.
        spec: its specification.
        table: the shape of the table.
    """

    problem: Problem
    labels: DeviceArray
    spec: ScanSpec
    table: GroupTable


def count_labels(
    executor: Executor, problem: Problem, labels: AnyArray | DeviceArray | CountedLabels, *, reads: bool = False
) -> FewLabels | None:
    """Return the labels of a scan with their number; None if one is negative, or if their number stays unknown.

    Args:
        problem: the scan of the elements, without heads.
        labels: the labels, as `gpuscan.problem.groups.check_labels` returns them.
        reads: True to read the largest label on a device if the dtype does not bound it, in arrays that are long enough
            for a table. This waits for the device.
    """
    context = executor.context
    with context.errors, context.lock:
        if isinstance(labels, CountedLabels):
            return FewLabels(labels_by_rows(problem, bindable_checked(labels.labels)), labels.groups)
        if isinstance(labels, np.ndarray):
            largest = int(labels.max())
            if int(labels.min()) < 0 or largest >= _MOST_LABELS:
                return None
            narrow = upload_array(context, labels.astype(np.min_scalar_type(largest)))
            return FewLabels(labels_by_rows(problem, narrow), largest + 1)
        count = 0
        if labels.dtype.itemsize == 1:
            count = 2 if labels.dtype == np.bool_ else 256
        elif reads and problem.size >= group_heuristics_for(context.capabilities.adapter_type).min_counted_elements:
            labels._check("STORAGE")
            largest = int(search_largest(executor, labels)._read().reshape(-1)[0])
            # Negative labels, which are read as unsigned numbers, and too many labels have no table.
            count = largest + 1 if largest < _MOST_LABELS and largest <= np.iinfo(labels.dtype).max else 0
        return FewLabels(labels_by_rows(problem, bindable_checked(labels)), count) if count else None


def search_largest(executor: Executor, labels: DeviceArray) -> DeviceArray:
    """Return the largest label on a device. Labels are read as unsigned numbers, so negative ones are large."""
    flat = contiguous(labels)._view_as((labels.size,), f"u{labels.dtype.itemsize}")
    return scan_array(executor, flat, "maximum", reduces=True)


def labels_by_rows(problem: Problem, labels: DeviceArray) -> DeviceArray:
    """Return the labels, row by row: the labels of each row are contiguous."""
    length, inner = problem.row_length, problem.inner
    by_element = labels.shape == problem.shape and problem.rows > 1
    if by_element:
        labels = transpose_elements(labels, length, inner, labels.dtype.itemsize)
    return labels._view_as((problem.rows, length) if by_element else (length,))


class GroupOptions(TypedDict, total=False):
    """The arguments of `gpuscan.planning.group_plan.plan_groups` that have defaults."""

    reduces: bool
    subgroups: bool | None
    section_length: int | None
    label_parts: int | None


def plan_table(
    executor: Executor, problem: Problem, labels: FewLabels, **options: Unpack[GroupOptions]
) -> TabledGroups | None:
    """Return how groups are combined by a table; None if it cannot be, or if sorting the labels is faster.

    In the canonical order, elements are combined in the order of their labels, so labels are sorted.

    Args:
        problem: the scan of the elements, without heads.
        options: further arguments of `gpuscan.planning.group_plan.plan_groups`.
    """
    context = executor.context
    planned = problem_by_rows(context, problem, labels.labels)
    if planned is None:
        return None
    problem, spec = planned
    identity = problem.operator.identity_for(problem.element) if spec.combine.neutral is not None else None
    if options.get("reduces") and problem.fill is not None and identity is not None and not problem.initial:
        # Empty groups give what the others begin with, so no marks are needed.
        # They begin with the same in all rows.
        shapes = [(1, *field.shape) for field in problem.element.fields]
        seeds = tuple(np.broadcast_to(value, shape) for value, shape in zip(identity, shapes, strict=True))
        problem = replace(problem, seeds=seeds, initial=True)
        spec = scan_spec(problem, context.capabilities, captures=True, rows_in_place=True)
    table = plan_groups(spec, scalar_of(labels.labels.dtype), labels.count, context.capabilities, **options)
    return None if table is None else TabledGroups(problem, labels.labels, spec, table)


def problem_by_rows(context: DeviceContext, problem: Problem, labels: DeviceArray) -> tuple[Problem, ScanSpec] | None:
    """Return a scan of groups, row by row, and its specification; None if no kernel of a table can combine them."""
    length, limit = problem.row_length, context.binding_limit
    if problem.empty or problem.everywhere or problem.passes_neighbour:
        return None
    if problem.indexed and length > MAX_INT32_LENGTH:
        return None
    problem = prepare_problem(context, problem)
    fields = (*problem.source.fields, *problem.destination.fields)
    if labels.nbytes > limit or any(problem.size * f.storage_bytes > limit for f in fields):
        return None
    in_rows = replace(problem, shape=(problem.rows, length), axis=1)
    return in_rows, scan_spec(in_rows, context.capabilities, captures=True, rows_in_place=True)


def scan_by_table(
    executor: Executor, problem: Problem, groups: TabledGroups, out: Sequence[DeviceArray] | None
) -> list[DeviceArray]:
    """Scan the elements of each label by themselves, by a table, and return the results."""
    context, fields = executor.context, problem.destination.fields
    leaves = leaves_by_rows(executor, problem)
    if problem.inner == 1 and out is not None and can_be_written(out, (*leaves, groups.labels)):
        run_stages(context, groups, leaves, out)
        return list(out)
    results = [empty(context, (problem.size, *f.shape), f.scalar.dtype) for f in fields]
    run_stages(context, groups, leaves, results)
    return write_to_outputs(in_shape(problem, results), out)


def in_shape(problem: Problem, results: Sequence[DeviceArray], length: int | None = None) -> list[DeviceArray]:
    """Return results, which are stored row by row, in the shape of the array.

    Args:
        length: the length of the result along the axis (default: the array's).
    """
    length = problem.row_length if length is None else length
    lead = (*problem.shape[: problem.axis], length, *problem.shape[problem.axis + 1 :])
    return [
        transpose_elements(result, problem.inner, length, f.storage_bytes)._view_as((*lead, *f.shape))
        for result, f in zip(results, problem.destination.fields, strict=True)
    ]


def reduce_by_table(
    executor: Executor, problem: Problem, groups: TabledGroups, out: Sequence[DeviceArray] | None
) -> list[DeviceArray]:
    """Return the combination of the elements of each label: the axis becomes as long as there are groups.

    A group that is empty without a `fill` is an error, which is read with the reports.
    """
    context, table = executor.context, groups.table
    fields = problem.destination.fields
    results = [empty(context, (table.results, *f.shape), f.scalar.dtype) for f in fields]
    memory = run_stages(context, groups, leaves_by_rows(executor, problem), results)
    if problem.fill is None:
        marks = memory._view_as((table.results,), offset=4 * (table.words - table.results))
        check_full_later(executor, problem, marks, table.groups)
    return write_to_outputs(in_shape(problem, results, table.groups), out)


def check_full_later(executor: Executor, problem: Problem, marks: DeviceArray, groups: int) -> None:
    """Look for an empty group on the device. The answer is read with the reports.

    Args:
        problem: the reduction, which has no result for an empty group.
        marks: (rows * groups,) of uint32: 0 for each empty group.
        groups: the groups of a row.
    """
    largest = scan_array(executor, marks, "maximum", before=_rank_if_empty, reduces=True)
    report_largest(executor.context, largest, _error_if_empty, (problem.operator.described, groups))


def _rank_if_empty(mark: Number, index: Number) -> Number:
    """Return a number that is the larger, the earlier an empty group comes; 0 for groups with elements."""
    return np.where(mark == 0, _LAST - index.astype(np.uint32), np.zeros_like(mark))


def _error_if_empty(operator: str, groups: int, words: list[int]) -> Exception | None:
    return empty_error(operator, (int(_LAST) - words[0]) % groups) if words[0] else None


def report_largest(
    context: DeviceContext,
    largest: DeviceArray,
    reader: Callable[..., Exception | None],
    arguments: tuple[object, ...],
) -> None:
    """Keep a validation flag of one word: the largest that runs of the call have found.

    Args:
        largest: what this run has found; 0 if nothing is wrong.
        reader, arguments: as in `ValidationFlag`.
    """
    validation_flag = new_validation_flag(context, 1, reader, arguments)
    map_elements(context, [largest, validation_flag], _larger(), validation_flag.shape, [validation_flag])
    context.check_if_many()


@cache
def _larger() -> Map:
    """Return a map of two numbers to the larger one."""
    element = element_of([np.dtype(np.uint32)] * 2, tuple_of(2))
    return trace_function(lambda numbers: np.maximum(numbers[0], numbers[1]), element, "the larger number")


def can_be_written(out: Sequence[DeviceArray], read: Sequence[DeviceArray]) -> bool:
    """Return True if shaders can write straight to these arrays while they read the others."""
    buffers = {id(array.buffer) for array in (*out, *read)}
    return len(buffers) == len({id(array.buffer) for array in read}) + len(out) and all(
        array._is_writable_in_vectors and array._can_be("STORAGE") and array._can_be("COPY_DST") for array in out
    )


def bindable_checked(array: DeviceArray) -> DeviceArray:
    """Return the array itself if shaders can bind it where it is, else a copy. A caller's buffer is checked."""
    array._check("STORAGE")
    return bindable(array)


def leaves_by_rows(executor: Executor, problem: Problem) -> list[DeviceArray]:
    """Return the arrays on the device, row by row: the elements of each row are contiguous."""
    leaves = []
    for leaf, f in zip(problem.leaves, problem.source.fields, strict=True):
        on_device = leaf if isinstance(leaf, DeviceArray) else upload_array(executor.context, np.asarray(leaf))
        array = bindable_checked(on_device)
        leaves.append(transpose_elements(array, problem.row_length, problem.inner, f.storage_bytes))
    return leaves


def run_stages(
    context: DeviceContext,
    groups: TabledGroups,
    leaves: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
    memory: DeviceArray | None = None,
) -> DeviceArray:
    """Submit the stages; return the table. What is wrong with the labels of a reduction is read with the reports.

    Args:
        groups: what the stages compute.
        leaves: the arrays. The elements of each row are contiguous.
        results: the arrays to write.
        memory: memory for the table (default: new memory).
    """
    table = groups.table
    memory = memory or empty(context, (table.words,), np.uint32)
    bound, kept = _bindings(context, groups, leaves, results)
    bound["table"] = memory._binding()
    step = table.row_length if groups.labels.ndim > 1 else 0
    numbers = [
        *(table.row_length, table.section_length, table.sections, table.rows * table.sections),
        *(table.groups, table.plane, step, table.sharers),
    ]
    params = uniform_of(context, numbers)
    steps: list[Step] = []
    if table.cleared_words:
        steps.append(Clear(memory.buffer, memory.offset, 4 * table.cleared_words))
    steps += clear_shared(table.kernels[-1], results)
    steps += [
        dispatch_kernel(context, kernel, params, bound, table.workgroups(kernel), groups.spec.length)
        for kernel in table.kernels
    ]
    arrays = (*leaves, *results, groups.labels)
    context.submit(steps, sum(array.nbytes for array in arrays), deferrable=are_owned(*arrays))
    context.check_if_many()
    # The pool has their memory again once nothing refers to them.
    del kept
    return memory


def _bindings(
    context: DeviceContext, groups: TabledGroups, leaves: Sequence[DeviceArray], results: Sequence[DeviceArray]
) -> tuple[dict[str, Binding], list[DeviceArray]]:
    """Return what the stages bind by name, without the table, and the arrays that were made for it."""
    problem, spec = groups.problem, groups.spec
    bound, kept = bind_arrays(context, problem, spec, leaves, results)
    bound["labels"] = groups.labels._binding()
    if any(kernel.stage == "reduce_carries" and kernel.marked for kernel in groups.table.kernels):
        # With initial values the carries of groups without elements are their results.
        fills: HostArray = np.zeros((1, spec.destination.words), np.uint32)
        if problem.fill is not None and not spec.initial:
            (fills,) = combine_arrays(lambda *fill: [words_of(spec.destination, fill)], problem.fill)
        kept.append(upload_rows(context, fills, problem.rows))
        bound["fills"] = kept[-1]._binding()
    if any(kernel.checked for kernel in groups.table.kernels):
        bound["validation_flag"] = new_validation_flag(context, 4, labels_error, (groups.table.groups,))._binding()
    return bound, kept
