"""Bring reductions into normal form: of rows, of segments and of groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import numpy as np

from gpuscan.api.array import SomeArray
from gpuscan.api.reduced_axes import ReducedAxes
from gpuscan.array_types import AnyArray
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameter_array import ParameterArray, combine_arrays
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.groups import check_labels
from gpuscan.problem.labels import labels_of
from gpuscan.problem.problem import Problem, ReductionOptions, make_problem
from gpuscan.problem.segments import Offsets, empty_segment_error
from gpuscan.reference import scan as reference
from gpuscan.sizes import has_size


def reduction(x: object, op: object, **options: Unpack[ReductionOptions]) -> Problem:
    """Return a reduction along one axis as a problem. Its seeds are the results if the axis has length 0.

    Raises:
        ValueError: the axis has length 0, and there is neither `initial` nor an identity.
    """
    problem = find_or_make_problem(x, op, exclusive=False, reverse=False, **options)
    if problem.row_length == 0 and problem.seeds is None:
        seeds = identities(problem, problem.rows)
        if seeds is None:
            raise ValueError(
                f"a reduction of no elements was asked for (shape {problem.shape}, axis {problem.axis}), but "
                f"{problem.operator.described} has no identity. Pass initial=..., or give the operator an identity: "
                "gpuscan.operator(function, identity=...)"
            )
        problem = replace(problem, seeds=seeds)
    return problem.as_reduction()


def make_grouped_reduction(
    x: object, operator: Operator, axes: ReducedAxes, groups: object, **options: Unpack[ReductionOptions]
) -> tuple[Problem, SomeArray]:
    """Return a reduction of groups as a scan with a `fill`, the result of empty groups, and the checked labels.

    Raises:
        ValueError, TypeError: as `check_labels` does.
    """
    problem = make_problem(x, operator, **(options | {"axis": axes.axis}))
    given = labels_of(groups)
    labels = check_labels(axes.combine_axes(given) if given.shape == axes.shape else given, problem.shape, problem.axis)
    fill = _fill_of(problem)
    return replace(problem, fill=fill), labels


def of_segments(problem: Problem) -> Problem:
    """Return a scan with segments as the reduction of the segments. With `checks_later`, `Heads.check` checks offsets.

    Raises:
        ValueError: a segment is empty, and there is neither `initial` nor an identity.
    """
    heads = problem.heads
    assert heads is not None
    fill = _fill_of(problem)
    if fill is None and isinstance(heads.cut, Offsets):
        offsets = heads.cut.array
        if heads.on_device:
            heads = replace(heads, cut=replace(heads.cut, needs_full=problem.operator.described))
        elif heads.all_full:
            heads = replace(heads, cut=Offsets(offsets))
        else:
            heads.check()
            raise empty_segment_error(int(np.argmax(offsets[:-1] == offsets[1:])), problem.operator.described)
    return problem.as_reduction(heads=heads, fill=fill)


def _fill_of(problem: Problem) -> tuple[AnyArray, ...] | None:
    """Return the result of a group or segment without elements; None if it has none.

    If the number of rows is a size, the operator's identity is returned for one row. It is the same for all.
    """
    given = problem.seeds or ()
    if problem.after is None and any(isinstance(value, ParameterArray) for value in given):
        # The problem stays in memory for later calls, so it refers to no array.
        alone = replace(problem, leaves=(), seeds=None, heads=None)
        return tuple(combine_arrays(lambda *seeds: reference.store_seeds(alone, seeds), given))
    seeds = problem.numpy_seeds or identities(problem, 1 if has_size((problem.rows,)) else problem.rows)
    return None if seeds is None else tuple(reference.store_seeds(problem, seeds))


def identities(problem: Problem, rows: int) -> tuple[AnyArray, ...] | None:
    """Return the operator's identity in some rows: (rows, *element shape) for each field; None if it has none."""
    identity = problem.operator.identity_for(problem.element)
    if identity is None:
        return None
    shapes = [(rows, *field.shape) for field in problem.element.fields]
    return tuple(np.broadcast_to(value, shape) for value, shape in zip(identity, shapes, strict=True))
