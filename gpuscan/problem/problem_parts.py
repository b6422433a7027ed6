"""Parts of a problem as problems of their own: between two indices of an axis, or some of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Heads, Keys, Marks, Offsets

Arrays = list[AnyArray]


def range_in_memory(problem: Problem, begin: int, end: int) -> tuple[int, int]:
    """Return where along the axis a part of the scan begins and ends in memory."""
    length = problem.row_length
    return (length - end, length - begin) if problem.reverse else (begin, end)


def slice_problem(problem: Problem, axis: int, low: int, high: int) -> Problem:
    """Return the scan of the elements between two indices of an axis, with the seeds and the fill of its rows."""
    index = (slice(None),) * axis + (slice(low, high),)
    shape = (*problem.shape[:axis], high - low, *problem.shape[axis + 1 :])
    seeds, fill = problem.seeds, problem.fill
    if axis != problem.axis:
        seeds, fill = (_slice_rows(problem, values, axis, low, high) for values in (problem.numpy_seeds, problem.fill))
    leaves = tuple(leaf[index] for leaf in problem.leaves)
    heads = slice_heads(problem.heads, axis, low, high)
    return replace(problem, leaves=leaves, shape=shape, seeds=seeds, fill=fill, heads=heads)


def _slice_rows(
    problem: Problem, values: tuple[AnyArray, ...] | None, axis: int, low: int, high: int
) -> tuple[AnyArray, ...] | None:
    """Return the values of the rows between two indices of an axis, given one of each field for every row."""
    if values is None:
        return None
    others = [n for i, n in enumerate(problem.shape) if i != problem.axis]
    rows = (slice(None),) * (axis - (axis > problem.axis)) + (slice(low, high),)
    return tuple(value.reshape(*others, *value.shape[1:])[rows].reshape(-1, *value.shape[1:]) for value in values)


def slice_heads(heads: Heads | None, axis: int, low: int, high: int) -> Heads | None:
    """Return the heads between two indices of an axis."""
    if heads is None:
        return None
    shape = (*heads.shape[:axis], high - low, *heads.shape[axis + 1 :])
    part, along = heads.cut, axis == heads.axis
    match part:
        case Offsets(offsets) if along:
            inside = offsets[(offsets > low) & (offsets < high)] - low
            part = replace(part, array=np.concatenate([[0], inside, [high - low]]))
        case Keys(keys) if keys.shape == heads.shape:
            part = Keys(np.asarray(keys)[(slice(None),) * axis + (slice(low, high),)])
        case Keys(keys) if along:
            part = Keys(np.asarray(keys)[low:high])
        case Marks(marks):
            part = Marks(marks[low:high])
    return replace(heads, shape=shape, cut=part)


def parts_from_axis(problem: Problem, results: Arrays) -> Iterator[tuple[Problem, Arrays]]:
    """Yield scans along the first axis that make up a scan, and the places of their results.

    Each index along the axes before the scanned one gives a scan. If keys cut each row in its own way, so does each
    index along the axes after it.
    """
    axis, shape, heads = problem.axis, problem.shape, problem.heads
    apart = heads is not None and not heads.cuts_rows_alike
    lead, tail = shape[:axis], shape[axis + 1 :]
    for at in np.ndindex(*lead, *(tail if apart else ())):
        index = (*at[:axis], slice(None), *at[axis:])
        inner = () if apart else tail
        seeds, outputs = problem.numpy_seeds, results
        if seeds is not None:
            whole = [seed.reshape((*lead, *tail, *seed.shape[1:])) for seed in seeds]
            seeds = tuple(
                seed_array[at].reshape(-1, *seed.shape[1:]) for seed_array, seed in zip(whole, seeds, strict=True)
            )
        if problem.keep_last_only:
            fields = problem.destination.fields
            views = zip(results, fields, strict=True)
            outputs = [view.reshape((*lead, *tail, *f.shape))[(*at, ...)].reshape(-1, *f.shape) for view, f in views]
        else:
            outputs = [result[index] for result in results]
        own = heads
        if heads is not None:
            of_row = heads.cut
            if isinstance(of_row, Keys) and of_row.array.shape == shape:
                of_row = Keys(np.asarray(of_row.array)[index])
            own = replace(heads, shape=(problem.row_length, *inner), axis=0, cut=of_row)
        leaves = tuple(leaf[index] for leaf in problem.numpy_leaves)
        alone = replace(problem, leaves=leaves, shape=(problem.row_length, *inner), axis=0, seeds=seeds, heads=own)
        yield alone, outputs
