"""Build what decides the shaders of a scan from a problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpuscan.elements import Element
from gpuscan.operators.code import Code, combine_code, map_code
from gpuscan.operators.operator import Operator
from gpuscan.planning.column_tiles import column_chunk
from gpuscan.planning.kernel import stored_element
from gpuscan.planning.plan import Work
from gpuscan.planning.signs import without_signs

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.problem.problem import Problem


@lru_cache(maxsize=256)
def _combine(operator: Operator, element: Element, native_int64: bool) -> Code:
    return combine_code(operator, element, native_int64)


@lru_cache(maxsize=256)
def _map(function: Callable[[Any], Any], element: Element, name: str, native_int64: bool) -> Code:
    types = {"before": ("Source", "Element"), "after": ("Element", "Result"), "after_next": ("Stored", "Result")}
    argument, result = types[name]
    return map_code(function, element, name[:6].rstrip("_"), native_int64, argument_type=argument, result_type=result)


def _after(problem: Problem, native_int64: bool) -> Code:
    assert problem.after is not None
    if 1 not in problem.shifts:
        return _map(problem.after, problem.element, "after", native_int64)
    return _map(
        problem.after, stored_element(problem.element, problem.seed_element.fields[0]), "after_next", native_int64
    )


def scan_spec(problem: Problem, capabilities: Capabilities) -> Work:
    """Return the part of the problem that decides its shaders."""
    native = capabilities.native_int64
    work = Work(
        source=problem.source,
        element=problem.element,
        destination=problem.destination,
        operator_name=problem.operator.name,
        combine=_combine(problem.operator, problem.element, native),
        before=None if problem.before is None else _map(problem.before, problem.source, "before", native),
        after=None if problem.after is None else _after(problem, native),
        rows=problem.rows,
        row_length=problem.row_length,
        inner=problem.inner if scans_columns(problem) else 1,
        reverse=problem.reverse,
        exclusive=problem.exclusive,
        initial=problem.initial,
        shifts=problem.shifts,
        tails=1 in problem.shifts and problem.seeds is not None,
        marked=problem.heads is not None,
        ends=problem.keep_last_only,
        moves=problem.compacts,
    )
    return without_signs(work, lambda element: _combine(problem.operator, element, native))


def scans_columns(problem: Problem) -> bool:
    """Return True if the array is scanned down its columns in place, without bringing rows together first."""
    return problem.inner > 1 and column_chunk(problem.source, problem.destination, problem.inner) > 0
