"""Check that a scan can have the same bits on every device, and give its NaN one bit pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.elements import Element
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import Map, Result, structure_of, trace_function, trace_operator
from gpuscan.operators.traced_array import complex_of
from gpuscan.operators.wgsl_arithmetic import without_fixed_bits

# The only value of `reproducible`, apart from None.
EVERYWHERE = "everywhere"


def is_everywhere(reproducible: object) -> bool:
    """Return True for ``"everywhere"``, and False for None.

    Raises:
        ValueError: anything else.
    """
    if reproducible is None or (type(reproducible) is str and reproducible == EVERYWHERE):
        return reproducible is not None
    raise ValueError(
        f"reproducible={reproducible!r} was passed, and there is no such choice; pass reproducible={EVERYWHERE!r} for "
        "the same bits on every device, or leave it out for the same bits on one device"
    )


def needs_fixed_bits(reproducible: object, operator: Operator, element: Element, *, maps: bool) -> bool:
    """Return True if the scan must be computed in the canonical order.

    Named operators of integers and bools have the same bits in any order.

    Raises:
        ValueError: as `is_everywhere` does.
    """
    if not is_everywhere(reproducible):
        return False
    return maps or operator.kinds is None or _has_floats(element)


def _has_floats(element: Element) -> bool:
    return any(field.scalar.kind in ("float", "complex") for field in element.fields)


def check_fixed_bits(operator: Operator, element: Element, *maps: Map | None, step: str | None = None) -> None:
    """Raise OperatorError if the operator or a map has an operation with different bits on different devices.

    Args:
        operator: the operator.
        element: the element that it combines.
        maps: the maps.
        step: the step of the loop that they compute, as messages name it; None if the user passed them.
    """
    if operator.wgsl is not None:
        raise OperatorError(
            f'reproducible="everywhere" was passed with {operator.described}, which is WGSL, and compilers decide the '
            "bits of its floats. Write it as a Python function, or leave reproducible out"
        )
    operations = [(operator.described, _operation_of(operator, element))]
    for function in maps:
        if function is not None:
            nodes = [node for nodes in function.result.fields for node in nodes]
            operations.append(("before= or after=", without_fixed_bits(reachable(nodes))))
    for name, operation in operations:
        if operation is not None and step is not None:
            raise OperatorError(
                f'reproducible="everywhere" was passed for a loop of {step}, but its associative form computes '
                f'{operation}, and its bits differ between devices. Pass method="sequential", or leave reproducible out'
            )
        if operation is not None:
            raise _operation_error(f"with {name}", operation)


def check_fixed_step(step: str, nodes: Sequence[Node]) -> None:
    """Raise OperatorError if the step of a loop has an operation with different bits on different devices.

    Args:
        step: the step, as messages name it.
        nodes: its results.
    """
    operation = without_fixed_bits(reachable(nodes))
    if operation is not None:
        raise _operation_error(f"for a loop of {step}", operation)


def _operation_error(asked: str, operation: str) -> OperatorError:
    return OperatorError(
        f'reproducible="everywhere" was passed {asked}, which computes {operation}: its bits differ between devices. '
        "Use +, -, *, /, minima, maxima, comparisons, np.where, matmul and elementary functions of float32 or 16-bit "
        "floats, or leave reproducible out"
    )


@lru_cache(maxsize=256)
def _operation_of(operator: Operator, element: Element) -> str | None:
    assert operator.function is not None
    nodes = trace_operator(operator.function, element, operator.name).fields
    return without_fixed_bits(reachable([node for field_nodes in nodes for node in field_nodes]))


# ----- One NaN


def trace_with_one_nan(after: Callable[..., object] | None, element: Element) -> Map | None:
    """Return the map of `with_one_nan`, traced; None if there is neither a map nor a float."""
    if after is None and not _has_floats(element):
        return None
    traced = trace_function(with_one_nan(after, element), element, "after")
    if after is not None:
        return traced
    # The result is a structured array where the element is one.
    return Map(traced.function, element, (*traced.nodes[:-1], element), Result(traced.result.fields, element))


def with_one_nan(after: Callable[..., object] | None, element: Element) -> Callable[..., object]:
    """Return a map that applies `after` and gives all NaN of its result one bit pattern."""

    def one_nan(value: object) -> object:
        if after is None:
            structure, leaves = element.structure, element.structure.flatten(value)
        else:
            structure, leaves = structure_of(after(value))
        return structure.unflatten([_with_one_nan(leaf) for leaf in leaves])

    return one_nan


def _with_one_nan(value: Any) -> Any:
    dtype = getattr(value, "dtype", np.dtype(bool))
    if dtype == np.complex64:
        return complex_of(_with_one_nan(value.real), _with_one_nan(value.imag))
    floats = dtype.kind == "f" or dtype.name == "bfloat16"
    return np.where(np.isnan(value), np.full_like(value, np.nan), value) if floats else value
