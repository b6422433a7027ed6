"""The totals of a scan: the reduction along its axis, which the scan returns on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.outputs import in_form_of, is_on_device
from gpuscan.api.reduce import reduce
from gpuscan.api.team import Team
from gpuscan.elements import element_of, tuple_of
from gpuscan.engine.elementwise import map_elements
from gpuscan.operators.trace import ROUNDED_WHEN_STORED, Map, traced
from gpuscan.problem.arguments import as_leaf
from gpuscan.problem.indexed_maps import IndexedMap, as_map
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import over_arrays
from gpuscan.reference import scan as reference

# The options of a scan that its reduction has as well.
_SHARED = ("initial", "dtype", "before", "after")


def total_of(
    problem: Problem, given: Any, x: Any, op: Any, options: dict[str, Any], home: Device | Team | None, *, grouped: bool
) -> Callable[[Sequence[Any]], Any]:
    """Return a function that gives the total of a scan from its results.

    What it needs of the input is read now, because the results may be written over the input.

    Args:
        problem: the scan.
        given: what the caller passed. The total is returned in the same form.
        x, op, options: the input, the operator and the options that `problem` was made of.
        home: where the scan runs, as `team_or_home` returns it.
        grouped: True if labels cut the scan.
    """
    if not grouped and last_results_are_totals(problem):
        return partial(last_results, problem, given)
    if not grouped and completes_last_results(problem):
        return partial(completed, problem, given, last_elements(problem))
    total = reduced(problem, x, op, options, home)
    return lambda results: total


def last_results_are_totals(problem: Problem) -> bool:
    """Return True if the last result of each row is the row's total, so that the scan has computed it."""
    return problem.row_length > 0 and not problem.exclusive and problem.heads is None


def completes_last_results(problem: Problem) -> bool:
    """Return True if the total of an exclusive scan is its last result, combined with the last element.

    That needs results in the form in which elements are combined. On a device it also needs elements of one number in
    each field, and an operator that is a Python function.
    """
    fields = (*problem.source.fields, *problem.element.fields)
    alone = problem.row_length == 1 and not problem.initial  # an identity may change -0.0
    plain = problem.after is None and not problem.indexed and problem.operator.function is not None
    rounded = any(field.scalar.name in ROUNDED_WHEN_STORED for field in problem.element.fields)
    numbers = not is_on_device(problem) or not any(field.shape for field in fields)
    exclusive = problem.exclusive and problem.heads is None and not problem.empty
    return exclusive and plain and numbers and not rounded and not alone


def last_elements(problem: Problem) -> list[Any]:
    """Return copies of the last element of each row in the order of the scan, in rows of length 1."""
    place = (slice(None),) * problem.axis + (slice(0, 1) if problem.reverse else slice(-1, None),)
    return [leaf[place].copy() for leaf in problem.leaves]


def completed(problem: Problem, x: Any, elements: list[Any], results: Sequence[Any]) -> Any:
    """Return the totals of an exclusive scan in the form of the input, one combination for each row.

    Args:
        problem: the scan, for which `completes_last_results` is True.
        x: what the caller passed.
        elements: the last elements, as `last_elements` returns them.
        results: the results of the scan.
    """
    place = (slice(None),) * problem.axis + (0 if problem.reverse else -1,)
    lasts = [result[place] for result in results]
    if is_on_device(problem):
        first = lasts[0]
        ends = [element.reshape(first.shape) for element in elements]
        found = map_elements(first.context, [*lasts, *ends], _combination(problem), first.shape)
        return in_form_of(problem, x, [Array.of(first.device, array) for array in found])
    fields = problem.element.fields
    seeds = tuple(last.reshape(problem.rows, *field.shape) for last, field in zip(lasts, fields, strict=True))
    shape = (*problem.shape[: problem.axis], 1, *problem.shape[problem.axis + 1 :])
    alone = replace(problem, leaves=tuple(elements), shape=shape, exclusive=False, initial=True, seeds=seeds)
    rows = reference.accumulate(alone)
    return in_form_of(problem, x, [row.reshape(last.shape)[()] for row, last in zip(rows, lasts, strict=True)])


def _combination(problem: Problem) -> Map:
    """Return the map of the numbers of a last result and of an element as it is loaded to those of a total."""
    element, source, before, function = problem.element, problem.source, problem.before, problem.operator.function
    assert function is not None

    def combine(numbers: Any) -> Any:
        left = element.structure.unflatten(numbers[: len(element.fields)])
        right = source.structure.unflatten(numbers[len(element.fields) :])
        found = element.structure.flatten(function(left, right if before is None else before(right)))
        return tuple(number.astype(field.scalar.dtype) for number, field in zip(found, element.fields, strict=True))

    dtypes = [field.scalar.dtype for field in (*element.fields, *source.fields)]
    return traced(combine, element_of(dtypes, tuple_of(len(dtypes))), "op")


def last_results(problem: Problem, x: Any, results: Sequence[Any]) -> Any:
    """Return the last result of each row in the order of the scan, in the form of the input."""
    place = (slice(None),) * problem.axis + (0 if problem.reverse else -1,)
    lasts = [result[place] for result in results]
    # A view would keep the whole result in memory, and would change with it.
    return in_form_of(problem, x, [part.copy() if isinstance(part, (Array, np.ndarray)) else part for part in lasts])


def reduced(problem: Problem, x: Any, op: Any, options: dict[str, Any], home: Device | Team | None) -> Any:
    """Return the reduction of each row in the order of the scan: a pass of its own over the elements."""
    shared = {name: options[name] for name in _SHARED}
    if problem.reverse:
        x = over_arrays(_flipped(problem.axis), x)
        shared["before"] = _from_the_end(as_map(options["before"]), problem.row_length)
    devices: Any = list(home.devices) if isinstance(home, Team) else home or "numpy"
    return reduce(x, op, axis=problem.axis, device=devices, **shared)


def _from_the_end(before: Any, length: int) -> Any:
    """Return the map on load for flipped rows, in which an element still has the index that it has in the input."""
    if not isinstance(before, IndexedMap):
        return before
    return IndexedMap(lambda pair: before((pair[0], length - 1 - pair[1])))


def _flipped(axis: int) -> Callable[[Any], Any]:
    return lambda array: as_leaf(array)[(slice(None),) * axis + (slice(None, None, -1),)]
