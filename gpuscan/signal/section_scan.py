"""A second-order section as a scan: the affine map from the states before a stretch of samples to those after it.

An element is such a map for one sample or many, and also says what the last output in the stretch is::

    states' = m·states + v        y = c·states + d

so it has nine numbers for two states: `m` (2 x 2, in rows), `v` (2), `c` (2) and `d`; and four for one state. Where a
pole is close to 1, ``m - 1`` stands in place of `m`, since float32 rounds that less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.scan import scan
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.host_arrays import scan_host
from gpuscan.operators.operator import Operator, operator
from gpuscan.problem.problem import make_problem
from gpuscan.reference import scan as reference
from gpuscan.signal.sections import Floats, Section
from gpuscan.signal.signals import Signal


def _operator(size: int, near_one: bool) -> Operator:
    """Return the composition of two maps of `size` states; with ``m - 1`` in place of `m` if a pole is near 1."""
    places = range(size)

    def times(matrix: Any, vector: Any) -> list[Any]:
        products = [sum(row[i] * vector[i] for i in places[1:]) + row[0] * vector[0] for row in matrix]
        return [x + product for x, product in zip(vector, products, strict=True)] if near_one else products

    def composed(left: Any, right: Any) -> Any:
        (m, v, _, _), (own_m, own_v, own_c, own_d) = _parts(left, size), _parts(right, size)
        columns = [times(own_m, column) for column in zip(*m, strict=True)]
        if near_one:
            # The column of 1 + m, less that of 1.
            columns = [[own_m[i][j] + columns[j][i] for i in places] for j in places]
        rows = zip(*columns, strict=True)
        outputs = times(list(zip(*m, strict=True)), own_c)
        states = [x + y for x, y in zip(times(own_m, v), own_v, strict=True)]
        last = sum(own_c[i] * v[i] for i in places[1:]) + own_c[0] * v[0] + own_d
        return (*(entry for row in rows for entry in row), *states, *outputs, last)

    return operator(composed, name=f"{'slow ' if near_one else ''}section of {size}")


def _parts(element: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """Return the rows of `m`, and `v`, `c` and `d`."""
    square = size * size
    rows = [element[i * size : (i + 1) * size] for i in range(size)]
    return rows, element[square : square + size], element[square + size : -1], element[-1]


OPERATORS = {(size, near_one): _operator(size, near_one) for size in (1, 2) for near_one in (False, True)}


def filtered(section: Section, signal: Signal, start: Floats | None) -> Any:
    """Return the samples after the section.

    Args:
        section: the section.
        signal: the samples before it.
        start: the states before the first sample, in the section's coordinates: (states, *other axes); None for zeros.
    """
    return scan(
        signal.samples,
        OPERATORS[section.size, section.near_one],
        axis=signal.axis,
        initial=_seed(section, start),
        before=_loaded(section, signal),
        after=_output,
        device=signal.target,
    )


def end_states(section: Section, signal: Signal, start: Floats) -> Floats:
    """Return the states after the last sample, in the section's coordinates: (states, *other axes)."""
    problem = make_problem(
        signal.samples,
        OPERATORS[section.size, section.near_one],
        axis=signal.axis,
        initial=_seed(section, start),
        before=_loaded(section, signal),
        after=_states,
    )
    problem = replace(problem, keep_last_only=True)
    if signal.device is None:
        found = reference.reduce_rows(problem)
    elif isinstance(signal.samples, Array):
        found = [array.read() for array in scan_device(signal.device._executor, problem)]
    else:
        found = scan_host(signal.device._executor, problem)
    return np.stack([np.asarray(each, np.float64).reshape(signal.others) for each in found])


def _loaded(section: Section, signal: Signal) -> Callable[[Any], Any]:
    """Return the map of one sample, from the sample."""
    number = signal.samples.dtype.type
    m = section.m - np.eye(section.size) if section.near_one else section.m
    same, outputs = [number(each) for each in m.ravel()], [number(each) for each in section.c]
    inputs = [number(each) for each in (*section.v, section.d)]

    def loaded(x: Any) -> Any:
        *states, direct = (x * each for each in inputs)
        fixed, ends = ([np.full_like(x, each) for each in numbers] for numbers in (same, outputs))
        return (*fixed, *states, *ends, direct)

    return loaded


def _seed(section: Section, start: Floats | None) -> tuple[Any, ...] | None:
    """Return the element before the first sample: a map with the result `start`."""
    if start is None:
        return None
    m = np.zeros((section.size, section.size)) if section.near_one else np.eye(section.size)
    return (*m.ravel(), *start, *np.zeros(section.size + 1))


def _states(element: Any) -> Any:
    # An element of two states has nine numbers, one of one state has four.
    return (element[4], element[5]) if len(element) == 9 else (element[1],)


def _output(element: Any) -> Any:
    return element[-1]
