"""Scan groups of elements on NumPy, by the steps that devices take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.problem.groups import check_full, missing_labels
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Heads, Keys
from gpuscan.reference.scan import accumulate
from gpuscan.reference.sort import argsort


def accumulate_groups(problem: Problem, labels: Array) -> list[Array]:
    """Return the result of a scan that combines only elements with equal labels.

    Returns:
        One array (rows, row_length, *element shape) for each field.

    Example:
        >>> import numpy as np
        >>> from gpuscan.problem.problem import make_problem
        >>> accumulate_groups(make_problem(np.array([3, 1, 4], np.int32), "add"), np.array([1, 0, 1]))
        [array([[3, 1, 7]], dtype=int32)]
    """
    if problem.empty:
        return accumulate(problem)
    rows = label_rows(problem, labels)
    order = argsort(rows, 1)
    leaves = tuple(take_entries(problem.by_rows(leaf), order) for leaf in problem.numpy_leaves)
    keys = np.take_along_axis(rows, order, 1)
    heads = Heads(order.shape, 1, problem.reverse, Keys(keys))
    scanned = accumulate(replace(problem.with_rows_together(leaves), heads=heads))
    return [take_entries(rows, np.argsort(order, axis=1)) for rows in scanned]


def label_rows(problem: Problem, labels: Array) -> Array:
    """Return the labels of every row: (rows, row_length)."""
    if labels.shape == problem.shape:
        return problem.by_rows(labels)
    return np.broadcast_to(labels, (problem.rows, problem.row_length))


def take_entries(rows: Array, order: Array) -> Array:
    """Return the entries of rows (rows, row_length, …) in an order within each row."""
    return np.take_along_axis(rows, order.reshape(*order.shape, *[1] * (rows.ndim - 2)), 1)


def reduce_groups(problem: Problem, labels: Array, groups: int) -> list[Array]:
    """Return the combination of the elements of each label of each row, without missing labels.

    Returns:
        One array (rows, groups, *element shape) for each field. An empty group gives the problem's `fill`.

    Raises:
        ValueError: a group is empty, and there is no `fill`.
    """
    if not groups:
        return [np.empty((problem.rows, 0, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    # Missing labels are one more group at first, the last one.
    missing = missing_labels(labels)
    labels = labels if missing is None else np.where(missing, np.int64(groups), labels)
    rows = label_rows(problem, labels).astype(np.int64)
    ends = np.zeros((problem.rows, groups + 1), np.int64)
    numbers, position = np.indices(rows.shape)
    # Of equal places the last one counts, since places ascend along a row.
    ends[numbers, rows] = position + 1
    ends = ends[:, :groups]
    if problem.fill is None:
        check_full(problem, ends)
    scanned = accumulate_groups(problem, labels)
    results = []
    for number, (array, f) in enumerate(zip(scanned, problem.destination.fields, strict=True)):
        result = np.empty((problem.rows, groups, *f.shape), f.scalar.dtype)
        if problem.fill is not None:
            result[...] = problem.fill[number][:, np.newaxis]
        full = ends > 0
        result[full] = array[np.nonzero(full)[0], ends[full] - 1]
        results.append(result)
    return results
