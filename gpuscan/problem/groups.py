"""Check the labels of groups: which elements of a row are scanned or reduced together, in whatever order they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import OnDevice, as_integer
from gpuscan.problem.indexed_maps import with_index
from gpuscan.problem.labels import MISSING, labels_of

if TYPE_CHECKING:
    from gpuscan.problem.problem import Problem


def check_labels(groups: object, shape: tuple[int, ...], axis: int) -> Any:
    """Return the labels as an array: (n,) if all rows have the same labels, or one label for each element.

    Args:
        groups: what the caller passed.
        shape: the shape of the array that is grouped, without the axes that belong to the element.
        axis: the axis along which it is grouped, counted from 0.

    Raises:
        TypeError: as `labels_of`.
        ValueError: they have another shape.
    """
    labels = labels_of(groups)
    row = shape[axis : axis + 1]
    if labels.shape not in (row, shape):
        wanted = f"{row}, one label for each element" if row == shape else f"{row}, the same for every row, or {shape}"
        raise ValueError(
            f"groups of shape {labels.shape} were passed for an array of shape {shape} and axis={axis}; pass labels of "
            f"shape {wanted}"
        )
    return labels


def number_labels(labels: AnyArray, bounds: tuple[int, int] | None = None) -> AnyArray:
    """Return labels in the same order, counted from the smallest one, in the narrowest unsigned dtype that holds them.

    The `bounds` are the smallest and the largest label, if they are known.

    Example:
        >>> import numpy as np
        >>> number_labels(np.array([-1, 3, 3]))
        array([0, 4, 4], dtype=uint8)
    """
    if labels.dtype == np.bool_ or not labels.size:
        return labels
    least, largest = bounds or (int(labels.min()), int(labels.max()))
    dtype = np.min_scalar_type(largest - least)
    if dtype == np.uint64:
        return labels
    # The difference wraps where a narrow dtype does not hold it, and the conversion takes its low bits.
    unsigned = labels.astype(labels.dtype.newbyteorder("=")).view(f"u{labels.dtype.itemsize}")
    numbers: AnyArray = (unsigned - np.array(least, labels.dtype).view(unsigned.dtype)).astype(dtype)
    return numbers


def in_order(labels: AnyArray, axis: int) -> bool:
    """Return True if no label is smaller than the one before it along its axis; labels of one axis ignore `axis`."""
    rows = labels.swapaxes(axis if labels.ndim > 1 else 0, 0)
    return bool(np.logical_and.reduce(rows[:-1] <= rows[1:], None))


def with_indices(problem: Problem) -> Problem:
    """Return a problem in which the indices that `before` takes, if it takes any, are one more array.

    The elements of groups are moved, and each takes its index along.
    """
    if not problem.indexed:
        return problem
    source = with_index(problem.source, problem.row_length)
    along = [-1 if i == problem.axis else 1 for i in range(len(problem.shape))]
    indices = np.arange(problem.row_length, dtype=source.fields[-1].scalar.dtype).reshape(along)
    leaves = (*problem.leaves, np.broadcast_to(indices, problem.shape))
    return replace(problem, source=source, leaves=leaves, indexed=False)


# ----- Missing labels


def may_be_missing(labels: AnyArray | OnDevice) -> bool:
    """Return True if labels of their dtype can be -1, which says that an element is of no group."""
    return bool(labels.dtype.kind == "i")


def missing_labels(labels: AnyArray) -> AnyArray | None:
    """Return a bool for each label, True where it is missing; None if none is."""
    if not may_be_missing(labels):
        return None
    missing: AnyArray = labels == MISSING
    return missing if missing.any() else None


def missing_error(problem: Problem) -> ValueError | None:
    """Return the error for a scan with missing labels; None if its results can be NaN."""
    dtypes = [
        field.scalar.dtype for field in problem.destination.fields if field.scalar.kind not in ("float", "complex")
    ]
    if not dtypes:
        return None
    return ValueError(
        "groups with missing labels (-1, None or NaN) were passed to a scan. It returns NaN for their elements, but "
        f"results of dtype {dtypes[0]} cannot be NaN. Pass dtype=np.float32, or leave these elements out"
    )


def with_nan(problem: Problem, results: Sequence[AnyArray], missing: AnyArray) -> list[AnyArray]:
    """Return the results of a scan, with NaN for the elements that have a missing label."""
    where = missing if missing.shape == problem.shape else (slice(None),) * problem.axis + (missing,)
    marked = [np.array(result) for result in results]
    for result in marked:
        result[where] = np.nan
    return marked


# ----- Reductions


def check_count(
    num_groups: object, least: int, largest: int, describe: Callable[[int], str] = "the label {}".format
) -> int:
    """Return the number of groups: what the caller passed, else 1 more than the largest label.

    Args:
        num_groups: what the caller passed.
        least, largest: the smallest and the largest label.
        describe: returns a label as a message shows it.

    Raises:
        TypeError: `num_groups` is no integer.
        ValueError: a label is negative, or not below `num_groups`.
    """
    if (count := largest + 1 if num_groups is None else as_integer(num_groups)) is None:
        raise TypeError(
            f"num_groups={abbreviate(num_groups)} was passed, but it is a number of groups; pass an integer"
        )
    if count < 0 and num_groups is not None:
        raise ValueError(f"num_groups={count} was passed, but there cannot be fewer than 0 groups; pass 0 or more")
    if least < MISSING:
        raise ValueError(
            f"groups with the label {least} were passed to a reduction, but each label is an index of the result; pass "
            "labels of 0 or more, and -1 for elements of no group. To number other labels, pass "
            "gpuscan.unique_inverse(groups).inverse_indices"
        )
    if largest >= count:
        raise ValueError(
            f"groups with {describe(largest)} were passed with num_groups={count}, but labels are below num_groups; "
            f"pass num_groups={largest + 1} or more"
        )
    return count


def labels_error(count: int, words: Sequence[int]) -> ValueError | None:
    """Return the error for labels of a reduction that a device has checked; None if they are right.

    Args:
        count: the number of groups.
        words: the validation flag of arrays/resolve_indices.wgsl.
    """
    above, below, *_ = words
    try:
        check_count(count, -below, above if above else -1)
    except ValueError as error:
        return error
    return None


def check_full(problem: Problem, marks: AnyArray) -> None:
    """Raise ValueError if a group of any row is empty.

    Args:
        problem: the reduction, which has no result for an empty group.
        marks: (rows, groups): 0 for each empty group.
    """
    if not marks.all():
        raise empty_error(problem.operator.described, int(np.argwhere(marks == 0)[0, 1]))


def empty_error(operator: str, group: int) -> ValueError:
    """Return the error for an empty group."""
    return ValueError(
        f"a reduction of groups was asked for, but group {group} is empty and {operator} has no identity. Pass "
        "initial=..., or give the operator an identity: gpuscan.operator(function, identity=...)"
    )
