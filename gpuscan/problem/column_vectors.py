"""Treat the neighbouring columns of a long and narrow array as one column of vectors.

Down few columns, a scan that takes each column for itself waits for one tile after the other: 33 million rows of two
numbers are 131,000 tiles in a chain. As elements of a vector of two, they are scanned like one long row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpuscan.elements import Element, Structure, bundle_of
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameter_array import HostArray, ParameterArray
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.problem import Problem
from gpuscan.sizes import reveal


def can_be_vectors(problem: Problem) -> bool:
    """Return True if an element can be a vector of numbers, one of each column, with the same results."""
    elements = (problem.source, problem.element, problem.destination)
    numbers = all(field.shape == () for element in elements for field in element.fields)
    plain = not (problem.row_ends or problem.indexed or problem.compacts or problem.lists_key_runs)
    alike = problem.heads is None or problem.heads.cuts_rows_alike
    has_device_rows = any(isinstance(array, OnDevice) for array in (*(problem.seeds or ()), *(problem.fill or ())))
    return (
        problem.inner > 1
        and numbers
        and plain
        and alike
        and not has_device_rows
        and problem.operator.function is not None
    )


def as_vectors(problem: Problem) -> Problem:
    """Return the same problem over vectors of numbers, one of each column.

    The leaves and the results are the same as in the problem, but in C order; see `vectors_in`.
    """
    # Kernels are made for the number of columns, and kept for later calls.
    count, shape = reveal(problem.inner), problem.shape[: problem.axis + 1]
    source, element, destination = (
        replace(element, fields=tuple(replace(field, shape=(count,)) for field in element.fields))
        for element in (problem.source, problem.element, problem.destination)
    )
    operator, before, after = problem.operator, problem.before, problem.after
    if operator.kinds is None:
        assert operator.function is not None
        function = _by_number(operator.function, problem.element.structure, problem.element, count)
        operator = Operator(operator.name, function, element_axes=1)
    if before is not None:
        before = _by_number(before, problem.source.structure, problem.element, count)
    if after is not None:
        argument = problem.element
        if problem.passes_neighbour:
            argument = bundle_of((*argument.fields, *problem.seed_element.fields))
        after = _by_number(after, argument.structure, problem.destination, count)
    whole = replace(
        problem,
        operator=operator,
        leaves=vectors_in(problem.leaves, shape, count),
        source=source,
        element=element,
        destination=destination,
        shape=shape,
        seeds=None if problem.seeds is None else vectors_in(problem.seeds, (-1,), count),
        fill=None if problem.fill is None else vectors_in(map(partial(_repeat, count), problem.fill), (-1,), count),
        before=before,
        after=after,
        heads=None if problem.heads is None else replace(problem.heads, shape=shape),
    )
    return whole.as_rewrite_of(problem, "vectors")


def _repeat(count: int, rows: HostArray) -> HostArray:
    """Return the values of `count` rows, given the values of all of them or the one value that they share."""
    return np.broadcast_to(rows, (count,)) if isinstance(rows, np.ndarray) and len(rows) == 1 else rows


def vectors_in(arrays: Iterable[Any], shape: tuple[int, ...], count: int) -> tuple[Any, ...]:
    """Return arrays as arrays of vectors of this many numbers, in the same memory if they are in C order."""
    whole = (*shape, count)
    # `OnDevice` says nothing of views, which the arrays of the engine have.
    in_numpy = (np.ndarray, ParameterArray)
    return tuple(array.reshape(*whole) if isinstance(array, in_numpy) else array._view_as(whole) for array in arrays)


def _by_number(
    function: Callable[..., object], argument: Structure, result: Element, count: int
) -> Callable[..., object]:
    """Return a function of vectors that applies a function of numbers to each of their numbers."""

    def by_number(*values: object) -> object:
        given = [argument.flatten(value) for value in values]
        parts = []
        for i in range(count):
            numbers = function(*(argument.unflatten([leaf[..., i] for leaf in leaves]) for leaves in given))
            like = given[0][0][..., 0]
            flat = [n if hasattr(n, "dtype") else np.full_like(like, n) for n in result.structure.flatten(numbers)]
            parts.append([n.astype(field.scalar.dtype) for n, field in zip(flat, result.fields, strict=True)])
        return result.structure.unflatten([np.stack(numbers, axis=-1) for numbers in zip(*parts, strict=True)])

    return by_number
