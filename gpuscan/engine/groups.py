"""Scan groups of elements by a sort of their labels: scan runs of equal labels, and move the results back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.elements import element_of, tuple_of
from gpuscan.engine.compaction import entry_bytes
from gpuscan.engine.device_arrays import scan_array, scan_device
from gpuscan.engine.element_copy import bindable, contiguous, transpose_elements, write_to_outputs
from gpuscan.engine.elementwise import map_elements
from gpuscan.engine.group_tables import TabledGroups, scan_by_table
from gpuscan.engine.permutations import Permutation
from gpuscan.engine.sorting import partition_indices, sort_device
from gpuscan.operators.trace import trace_function
from gpuscan.operators.traced_array import Number
from gpuscan.planning.key_heuristics import group_heuristics_for
from gpuscan.problem.groups import may_be_missing, missing_error, with_indices
from gpuscan.problem.labels import MISSING
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.problem.segments import Heads, Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscan.engine.executor import Executor
    from gpuscan.operators.trace import Map
    from gpuscan.problem.problem import Problem


@dataclass(frozen=True)
class SortedLabels:
    """Labels on a device, in order.

    Attributes:
        labels: the labels: (row_length,) if all rows have the same labels, else (rows, row_length).
        payload: for each label, its index in its row before the sort. If the elements moved along, these elements.
        moved: True if the elements moved along in place of the indices.
        words: the elements, if they moved along with the indices.
    """

    labels: DeviceArray
    payload: DeviceArray
    moved: bool = False
    words: DeviceArray | None = None


def sort_into(
    executor: Executor,
    problem: Problem,
    labels: Any,
    strategy: str,
    results: Sequence[DeviceArray],
    *,
    few_stages: bool,
) -> None:
    """Write the results by a sort of labels on the device, with NaN for missing ones if results can be NaN.

    Args:
        problem: the scan, without heads.
        labels: the labels, unsorted.
        strategy: as in `gpuscan.scan`.
        results: the arrays to write, in C order.
        few_stages: True to submit few stages, even if they take longer: mostly the GPU does not run them.
    """
    order, scanned = _scan_sorted(executor, with_indices(problem), labels, strategy, few_stages=few_stages)
    for array, result in zip(scanned, results, strict=True):
        if few_stages and problem.inner == 1 and entry_bytes(array) % 4 == 0:
            order.undo(array, result._view_as(array.shape))
        else:
            back = _undo_rows(executor, problem, order, array)._view_as(result.shape, result.dtype)
            map_elements(executor.context, [back], _same(result.dtype), result.shape, [result])
    if may_be_missing(labels) and missing_error(problem) is None:
        mark_missing(problem, results, labels, results)


def scan_in_order(
    executor: Executor,
    problem: Problem,
    labels: object,
    strategy: str,
    out: Sequence[DeviceArray] | None,
) -> list[DeviceArray]:
    """Return the result by a table if the labels have one, else in their order. Missing labels are one group."""
    if isinstance(labels, TabledGroups):
        return scan_by_table(executor, problem, labels, out)
    problem = with_indices(problem)
    order, scanned = _scan_sorted(executor, problem, labels, strategy)
    results = []
    for array, f in zip(scanned, problem.destination.fields, strict=True):
        results.append(_undo_rows(executor, problem, order, array)._view_as((*problem.shape, *f.shape)))
    return write_to_outputs(results, out)


def _scan_sorted(
    executor: Executor, problem: Problem, labels: object, strategy: str, *, few_stages: bool = False
) -> tuple[Permutation, list[DeviceArray]]:
    """Return the order of the labels, and the results (elements of all rows, *element shape) in this order."""
    inside, _, order = group_elements(executor, problem, labels, few_stages=few_stages)
    assert order is not None
    scanned = scan_device(executor, inside, strategy)
    fields = problem.destination.fields
    return order, [a._view_as((problem.size, *f.shape)) for a, f in zip(scanned, fields, strict=True)]


def _undo_rows(executor: Executor, problem: Problem, order: Permutation, entries: DeviceArray) -> DeviceArray:
    """Return entries of all rows in the order of their labels back in their places, in C order."""
    back = _undo(executor, order, entries)
    return transpose_elements(back, problem.inner, problem.row_length, entry_bytes(entries))


@cache
def _same(dtype: AnyDType) -> Map:
    """Return the function that copies a number."""
    return trace_function(lambda numbers: numbers[0], element_of([dtype], tuple_of(1)), "copy")


def _undo(executor: Executor, order: Permutation, entries: DeviceArray) -> DeviceArray:
    """Return entries in the order of their labels back in their places."""
    context, size = executor.context, entry_bytes(entries)
    if not _are_long(executor, entries.nbytes) or size not in (4, 8):
        return order.undo(entries)
    # Words that are written far from each other take much longer than words in one part of the array.
    flat = bindable(entries)._view_as((entries.shape[0],), f"u{size}")
    moves = partition_indices(executor, order.indices._view_as(flat.shape), flat)
    return Permutation(context, moves.keys).undo(moves.payload)._view_as(entries.shape, entries.dtype)


def _are_long(executor: Executor, nbytes: int) -> bool:
    """Return True if it is slow to read or write that many bytes in places far from each other."""
    least = group_heuristics_for(executor.context.capabilities.adapter_type).min_partitioned_bytes
    return least is not None and nbytes >= least


def holds_missing(executor: Executor, labels: DeviceArray) -> bool:
    """Return True if a label on a device is missing. This waits for the device."""
    if not may_be_missing(labels):
        return False
    flag = search_missing(executor, labels)._read()
    executor.context.check()
    return bool(flag[0])


def search_missing(executor: Executor, labels: DeviceArray) -> DeviceArray:
    """Return one word on the device: 1 if a label is missing, else 0."""
    flat = contiguous(labels)._view_as((labels.size,))
    return scan_array(executor, flat, "maximum", before=_is_missing, reduces=True)


def _is_missing(label: Number) -> Number:
    return (label == MISSING).astype(np.uint32)


def mark_missing(
    problem: Problem, results: Sequence[DeviceArray], labels: DeviceArray, out: Sequence[DeviceArray] | None = None
) -> list[DeviceArray]:
    """Return the results of a scan, with NaN for each element that has the label -1.

    Args:
        problem: the scan, with results of floats.
        results: its results, (*shape, *element shape) for each field.
        labels: the labels: (row_length,) if all rows have the same labels, or one label for each element.
        out: the arrays to write, which may be the results; new ones without.
    """
    marked = []
    targets = [None] * len(results) if out is None else [[array] for array in out]
    for result, f, target in zip(results, problem.destination.fields, targets, strict=True):
        by_element = labels.shape == problem.shape
        lead = labels.strides if by_element else [0] * len(problem.shape)
        strides = (*lead, *[0] * len(f.shape))
        if not by_element:
            strides = (*strides[: problem.axis], labels.strides[0], *strides[problem.axis + 1 :])
        view = labels._view_at(result.shape, strides)
        function = _nan_where_missing(labels.dtype, result.dtype)
        marked += map_elements(result._context, [view, result], function, result.shape, target)
    return marked


@cache
def _nan_where_missing(labels: AnyDType, dtype: AnyDType) -> Map:
    def function(values: Any) -> object:
        label, value = values
        return np.where(label == MISSING, np.full_like(value, np.nan), value)

    return trace_function(function, element_of([labels, dtype], tuple_of(2)), "groups")


def sort_labels(
    executor: Executor,
    problem: Problem,
    labels: object,
    *,
    moves: bool = False,
    with_elements: bool = False,
    few_stages: bool = False,
) -> SortedLabels:
    """Submit the sort of the labels of each row, or one sort if all rows have the same labels.

    Args:
        problem: the scan of the elements, without heads.
        labels: the labels, as `gpuscan.problem.groups.check_labels` returns them.
        moves: True to move the elements along if they are one or two words of one row, in place of their indices.
        with_elements: True to move the elements along with their indices, if they are words of one long row.
        few_stages: True to submit few stages, even if they take longer.
    """
    length, inner = problem.row_length, problem.inner
    strategy = "auto"
    if few_stages and executor.context.trusts("lookback"):
        strategy = "lookback"
    given = _on_device(executor, labels)
    sizes = [f.storage_bytes for f in problem.source.fields]
    binding = executor.context.binding_limit  # of the arrays of what moves along
    words_fit, pairs_fit = sizes[0] * length <= binding, 8 * length <= binding
    if moves and problem.rows == 1 and not problem.indexed and sizes in ([4], [8]) and words_fit:
        words = _on_device(executor, problem.leaves[0])._view_as((length,), f"u{sizes[0]}")
        ordered = sort_device(executor, given._view_as((length,)), 0, words=words)
        return SortedLabels(ordered.keys, ordered.payload, moved=True)
    limit = executor.context.capabilities.limits[STORAGE_LIMIT]
    takes_pairs = problem.rows == 1 and sizes == [4] and limit > 8 and pairs_fit
    if with_elements and takes_pairs and _are_long(executor, 4 * length):
        words = _on_device(executor, problem.leaves[0])._view_as((length,), np.uint32)
        ordered = sort_device(executor, given._view_as((length,)), 0, with_indices=True, words=words, strategy=strategy)
        return SortedLabels(ordered.keys, ordered.payload, words=ordered.words)
    by_element = given.shape == problem.shape and problem.rows > 1
    if by_element:
        given = transpose_elements(given, length, inner, given.dtype.itemsize)
    rows = problem.rows if by_element else 1
    ordered = sort_device(executor, given._view_as((rows, length)), 1, with_indices=True, strategy=strategy)
    shape = (rows, length) if by_element else (length,)
    return SortedLabels(ordered.keys._view_as(shape), ordered.payload)


def group_elements(
    executor: Executor, problem: Problem, labels: object, *, moves: bool = False, few_stages: bool = False
) -> tuple[Problem, DeviceArray, Permutation | None]:
    """Return the problem with the elements in the order of their labels. Labels are sorted first if need be.

    `moves` is that of `sort_labels`: True if the elements need not go back to their places. So is `few_stages`.

    Returns:
        The problem over contiguous rows, which the sorted labels cut; these labels, (row_length,) if all rows have the
        same ones, else (rows, row_length); and the reordering of the elements of all rows, None if they moved along.
    """
    length, inner = problem.row_length, problem.inner
    ordered = labels
    if not isinstance(ordered, SortedLabels):
        ordered = sort_labels(executor, problem, labels, moves=moves, with_elements=not moves, few_stages=few_stages)
    inside = in_label_order(problem, ordered)
    order = None
    if not ordered.moved:
        order = Permutation.of_rows(executor.context, ordered.payload, problem.rows, length)
    words = ordered.payload if order is None else ordered.words
    leaves = []
    for leaf, f in zip(problem.leaves, problem.source.fields, strict=True):
        if order is not None and words is None:
            array = transpose_elements(_on_device(executor, leaf), length, inner, f.storage_bytes)
            moved = order.apply(array._view_as((problem.size, *f.shape)))._view_as((*inside.shape, *f.shape))
        else:
            assert words is not None
            moved = words._view_as((length, *f.shape), f.scalar.dtype)
        leaves.append(moved)
    return inside.with_leaves(tuple(leaves)), ordered.labels, order


def in_label_order(problem: Problem, labels: SortedLabels) -> Problem:
    """Return the scan of elements in the order of their labels. Its rows are contiguous, and the labels cut them."""
    shape = (problem.rows, problem.row_length) if problem.rows > 1 else (problem.row_length,)
    heads = Heads(shape, len(shape) - 1, problem.reverse, cut=Keys(labels.labels))
    return replace(problem, shape=shape, axis=len(shape) - 1, heads=heads)


def _on_device(executor: Executor, array: object) -> DeviceArray:
    if not isinstance(array, DeviceArray):
        return upload_array(executor.context, np.asarray(array))
    array._check("STORAGE")
    return contiguous(array)
