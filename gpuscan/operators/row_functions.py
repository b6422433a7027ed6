"""Find out which axes an operator of another framework keeps apart, and make a `gpuscan.Operator` of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.elements import Element, element_of, tuple_of
from gpuscan.errors import OperatorError, UnsupportedDtypeError
from gpuscan.operators.components import OTHER, Numbers, array_of, is_other, numbers_of
from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.operator import Operator, operator
from gpuscan.operators.trace import trace_operator

# A function of two lists of arrays of numbers, made for the shapes of those arrays.
RowFunction = Callable[[Sequence[Numbers], Sequence[Numbers]], list[Numbers]]

# The length of the axes that a function has to keep apart, while it is traced.
ROWS = 2
# Another length, at which the function must do the same: else it reads the length.
MORE_ROWS = 3
# The most numbers of an element: more take minutes to trace.
MAX_NUMBERS = 1024


@dataclass(frozen=True)
class RowOperator:
    """An operator, and the form of its elements.

    Attributes:
        operator: the operator, on a tuple of leaves that all have `element_axes` trailing axes.
        lead: the leading axes of the leaves that the scan keeps apart.
        shapes: for each leaf, the shape of its element: axes of length 1, then the axes of the leaf that are not rows.
        element: the type of its elements.
        constants: for each leaf, True if all elements share it: it has no axes of rows.
        groups: the leaves, by number, in groups. The result of a leaf depends only on leaves of its own group.
        restrict: returns the operator on some of these groups alone, given the numbers of their leaves.
    """

    operator: Operator
    lead: int
    shapes: tuple[tuple[int, ...], ...]
    element: Element
    constants: tuple[bool, ...]
    groups: tuple[tuple[int, ...], ...]
    restrict: Callable[[tuple[int, ...]], RowOperator] = field(compare=False)

    def fits(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Return True if leaves of these shapes have elements of the operator's shapes.

        The leaves must have as many axes as the leaves that the operator was made for.
        """
        own = [shape[self.lead :] for shape in shapes]
        return all(
            (1,) * (len(kept) - len(shape)) + shape == kept for kept, shape in zip(self.shapes, own, strict=True)
        )


def row_operator(
    name: str,
    make: Callable[[list[tuple[int, ...]]], RowFunction],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[AnyDType],
    axis: int,
    constants: Sequence[bool] | None = None,
) -> RowOperator:
    """Return the operator that a function of whole arrays is along an axis.

    The first axes of a leaf are rows, which the function keeps apart; its other axes belong to the element. As many
    axes as possible are rows. To find out, the function is traced with two rows along each such axis: a result must
    not depend on a number of another row, and must depend on its own row's numbers in the same way in all rows that are
    tried (`rows_to_try`). It is traced with three rows, too, where a function of the number of rows fails.

    Args:
        name: the function's name, for messages.
        make: returns the function for leaves of given shapes. It may raise any error for shapes that do not fit.
        shapes, dtypes: the shapes and the dtypes of the leaves.
        axis: the scanned axis, counted from 0.
        constants: for each leaf, True if all elements share it, and the function returns it as it is (default: none).

    Raises:
        OperatorError: the function mixes elements along the axis, or its elements are too large.
    """
    constants = tuple(constants or [False] * len(shapes))
    reasons: list[Exception] = []
    ranks = [len(shape) for shape, is_constant in zip(shapes, constants, strict=True) if not is_constant]
    for lead in range(min(ranks), axis, -1):
        own = [shape if is_constant else shape[lead:] for shape, is_constant in zip(shapes, constants, strict=True)]
        if sum(map(prod, own)) > MAX_NUMBERS:
            break
        try:
            functions = {
                rows: make(
                    [_with_rows(shape, (rows,) * lead, each) for shape, each in zip(own, constants, strict=True)]
                )
                for rows in (ROWS, MORE_ROWS)
            }
            return _make_operator(name, functions, lead, own, dtypes, constants)
        except OperatorError as error:
            # An index may be one of an element's axis, where a row's is shorter.
            if not isinstance(error.__cause__, (_MixedRowsError, IndexError)):
                raise
            reasons.append(error.__cause__)
        except UnsupportedDtypeError:
            raise
        except Exception as error:  # the framework refuses the shapes, or rows are mixed
            reasons.append(error)
    first = f"{type(reasons[0]).__name__}: {reasons[0]}" if reasons else "the element is too large"
    raise OperatorError(
        f"{name} was passed for arrays of shapes {', '.join(map(str, shapes))}, but it does not combine elements along "
        f"axis {axis} one by one, or an element has more than {MAX_NUMBERS} numbers ({first}). Write a function that "
        "treats all entries along the axis in the same way, with the axes of an element last"
    ) from (reasons[0] if reasons else None)


def check_combined(
    name: str,
    results: tuple[Sequence[Any], Any],
    elements: tuple[Sequence[Any], Any],
    type_name: str,
    conversion: str,
) -> None:
    """Raise an error unless a function of elements returns arrays like its arguments.

    Args:
        name: the function's parameter, for messages.
        results: the leaves of what the function returned, and its pytree.
        elements: the leaves of an argument, and its pytree.
        type_name: what the framework calls its arrays.
        conversion: how to convert the result to the dtype of an array x.

    Raises:
        TypeError: a result has another dtype, or the pytree differs.
        ValueError: a result has another shape.
    """
    if results[1] != elements[1]:
        raise TypeError(
            f"{name} returned the pytree {results[1]} for elements of {elements[1]}; return a pytree like its arguments"
        )
    for result, element in zip(results[0], elements[0], strict=True):
        dtype = getattr(result, "dtype", type(result).__name__)
        if dtype != element.dtype:
            raise TypeError(
                f"{name} returned {dtype} for elements of {element.dtype}; convert the result with {conversion}"
            )
        if result.shape != element.shape:
            raise ValueError(
                f"{name} returned {type_name} of shape {tuple(result.shape)} for elements of shape "
                f"{tuple(element.shape)}; return that shape"
            )


def rows_to_try(lead: int) -> list[tuple[int, ...]]:
    """Return the rows in which a function is compared, given the number of axes of rows. The first one is row 0.

    A function of diagonals gives something else in a row that differs from the first along one axis alone.
    """
    corners = [(0,) * lead, (ROWS - 1,) * lead]
    edges = [tuple(ROWS - 1 if i == axis else 0 for i in range(lead)) for axis in range(lead)]
    return list(dict.fromkeys([*corners, *edges]))


class _MixedRowsError(Exception):
    """A result depends on other rows."""


def _with_rows(shape: tuple[int, ...], rows: tuple[int, ...], is_constant: bool) -> tuple[int, ...]:
    """Return the shape of a leaf while the function is traced."""
    return shape if is_constant else rows + shape


def _make_operator(
    name: str,
    functions: Mapping[int, RowFunction],
    lead: int,
    own: Sequence[tuple[int, ...]],
    dtypes: Sequence[AnyDType],
    constants: tuple[bool, ...],
) -> RowOperator:
    """Return the operator for `lead` axes of rows, if the function keeps those apart.

    Args:
        functions: the function, made for these lengths of the axes of rows.
    """
    axes = max(map(len, own))
    shapes = tuple((1,) * (axes - len(shape)) + shape for shape in own)
    element = element_of(dtypes, tuple_of(len(shapes)), shapes)
    rows = rows_to_try(lead)
    tried = [(ROWS, row) for row in rows] + [(length, rows[0]) for length in functions if length != ROWS]
    traced = [
        _in_row(functions[length], (length,) * lead, own, shapes, dtypes, constants, row) for length, row in tried
    ]
    described = []
    for traced_function in traced:
        result = trace_operator(traced_function, element, name)
        nodes = reachable([node for numbers in result.fields for node in numbers])
        numbers_of_nodes = {node.index: number for number, node in enumerate(nodes)}
        graph = [
            (node.op, tuple(numbers_of_nodes[arg.index] for arg in node.args), node.scalar, node.data) for node in nodes
        ]
        described.append((graph, [[numbers_of_nodes[node.index] for node in numbers] for numbers in result.fields]))
    if any(description != described[0] for description in described):
        raise _MixedRowsError("it treats rows differently")

    @functools.cache
    def restrict(leaves: tuple[int, ...]) -> RowOperator:
        def part(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
            sides = []
            for given in (left, right):
                # No result in question depends on the other leaves.
                whole = [
                    np.full(_with_rows(shape, (ROWS,) * lead, is_constant), OTHER, object)
                    for shape, is_constant in zip(own, constants, strict=True)
                ]
                for leaf, numbers in zip(leaves, given, strict=True):
                    whole[leaf] = numbers
                sides.append(whole)
            results = functions[ROWS](*sides)
            return [results[leaf] for leaf in leaves]

        kept = [[given[leaf] for leaf in leaves] for given in (own, dtypes, constants)]
        return _make_operator(name, {ROWS: part}, lead, kept[0], kept[1], tuple(kept[2]))  # type: ignore[arg-type]

    reads = [{node.data[1] for node in reachable(field_nodes) if node.op == "input"} for field_nodes in result.fields]
    return RowOperator(
        operator(traced[0], name=name, element_axes=axes), lead, shapes, element, constants, _connect(reads), restrict
    )


def _connect(reads: Sequence[set[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of leaves that depend on each other.

    Args:
        reads: for the result of each leaf, the leaves that it depends on.
    """
    groups: list[set[int]] = []
    for leaf, others in enumerate(reads):
        joined = {leaf, *others}
        joined.update(*(group for group in groups if group & joined))
        groups = [*(group for group in groups if not group & joined), joined]
    return tuple(tuple(sorted(group)) for group in groups)


def _in_row(
    function: RowFunction,
    rows: tuple[int, ...],
    own: Sequence[tuple[int, ...]],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[AnyDType],
    constants: Sequence[bool],
    row: tuple[int, ...],
) -> Callable[..., object]:
    """Return the function of elements that the function of arrays computes in one row of axes of these lengths."""
    index: Any = (*row, ...)

    def spread(values: Any) -> list[Numbers]:
        arrays = []
        for value, shape, inner, is_constant in zip(values, shapes, own, constants, strict=True):
            numbers = numbers_of(value, shape).reshape(inner)
            if not is_constant:
                whole = np.full(rows + inner, OTHER, object)
                whole[index] = numbers
                numbers = whole
            arrays.append(numbers)
        return arrays

    def combine_elements(left: Any, right: Any) -> object:
        results = function(spread(left), spread(right))
        like = left[0][(..., *[0] * len(shapes[0]))] if shapes[0] else left[0]
        picks = []
        for numbers, shape, dtype, is_constant in zip(results, shapes, dtypes, constants, strict=True):
            row_numbers = (numbers if is_constant else numbers[index]).reshape(shape)
            if any(is_other(number) for number in row_numbers.flat):
                raise _MixedRowsError("it mixes rows")
            picks.append(array_of(row_numbers, like, dtype))
        return tuple(picks)

    return combine_elements
