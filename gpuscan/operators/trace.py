"""Trace a Python function: call it with traced values, and get its expression graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.elements import LEAF, Element, Field, Structure, container_of, field_names, nest_children
from gpuscan.errors import OperatorError, abbreviate
from gpuscan.operators import traced_functions, traced_linalg  # noqa: F401 (register np.where, np.linalg.inv, …)
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import Graph, Node, TooManyOperationsError, reachable
from gpuscan.operators.function_keys import never_changes
from gpuscan.operators.parameters import Parameter, reveal, trace_with_floats, trace_with_parameters
from gpuscan.operators.source_location import MissingAxisError, quote_definition, quote_traceback
from gpuscan.operators.traced_array import (
    Python,
    Traced,
    check_fits,
    constant,
    find_scalar,
    is_exact_constant,
    is_weak,
)

# Types that are combined in float32, so that a float32 result fits them.
ROUNDED_WHEN_STORED = ("float16", "bfloat16")


@dataclass(frozen=True)
class Result:
    """The result of a traced function: the nodes of each field, component by component."""

    fields: tuple[tuple[Node, ...], ...]
    element: Element


def trace_operator(function: Callable[..., object], element: Element, name: str) -> Result:
    """Trace ``function(left, right)``, which must return an element like its arguments."""
    graph, value = call_twice(function, [element, element], name)
    leaves = _flatten(element.structure, value, function, name)
    single = element.structure.container == "leaf"
    fields = [
        _field_nodes(
            graph, leaf, field, function, f"{'what' if single else f'field {field.name} of what'} {name} returns"
        )
        for leaf, field in zip(leaves, element.fields, strict=True)
    ]
    return Result(tuple(fields), element)


@dataclass(frozen=True)
class Map:
    """A function of one element as it was when it was traced. Values that it closes over may change between calls.

    Attributes:
        function: the user's function.
        source: the element that it takes.
        nodes: the graph, and which of its nodes are the result. Maps with equal nodes are equal, so that a kernel is
            compiled once for them.
        result: the same graph, for making shaders.
    """

    function: Callable[..., Any] = field(compare=False)
    source: Element
    nodes: tuple[object, ...] = field(repr=False)
    result: Result = field(compare=False, repr=False)

    @property
    def element(self) -> Element:
        """The element that the map returns."""
        return self.result.element

    def __call__(self, value: object) -> Any:
        return self.function(value)


def trace_function(function: Callable[..., object], element: Element, name: str) -> Map:
    """Return a function of one element, which may return an element of another type, as a `Map`.

    A `Map` of such elements is returned as it is.

    Raises:
        OperatorError: the function cannot be traced; the message has the line of the user's code.
    """
    if isinstance(function, Map) and function.source == element:
        return function
    return (_traced_once if never_changes(function) else _trace_function)(function, element, name)


def _trace_function(function: Callable[..., object], element: Element, name: str) -> Map:
    graph, value = call_twice(function, [element], name)
    result = _make_result(graph, value, function, name)
    indices = tuple(node.index for nodes in result.fields for node in nodes)
    return Map(function, element, (*graph.describe_nodes(), indices, result.element), result)


_traced_once = lru_cache(maxsize=256)(_trace_function)


def _make_result(graph: Graph, value: object, function: Callable[..., object], name: str) -> Result:
    structure, leaves = structure_of(value)
    for position, leaf in enumerate(map(reveal, leaves)):
        if isinstance(leaf, np.generic):
            leaves[position] = leaf = constant(graph, leaf, find_scalar(np.asarray(leaf).dtype))
        field_label = "" if structure == LEAF else f" in field {position}"
        if not isinstance(leaf, (Traced, *Python)):
            raise OperatorError(
                f"{name} returns {abbreviate(leaf)}{field_label}, which is no number; return one that is computed "
                f"from the arguments, or a tuple or dict of such numbers{quote_definition(function)}"
            )
        if not isinstance(leaf, Traced):
            raise OperatorError(
                f"{name} returns {leaf!r}{field_label}, which has no dtype; write np.float32({leaf!r}) or "
                f"np.full_like(x, {leaf!r})" + quote_definition(function)
            )
    names = field_names(structure)
    fields = tuple(Field(label, leaf.scalar, leaf.shape) for label, leaf in zip(names, leaves, strict=True))
    return Result(tuple(tuple(leaf.nodes.ravel()) for leaf in leaves), Element(fields, structure))


class TableIndexError(OperatorError):
    """A NumPy array was indexed with a traced value."""


def call_twice(
    function: Callable[..., object], elements: Sequence[Element], name: str, *, whole: bool = False
) -> tuple[Graph, object]:
    """Call the function, and call it again to find out if it depends on more than its arguments.

    The first call has parameters in the place of the floats that the function closes over. If they act as the floats do
    in the second call, the graph has expressions of them as constants.
    """
    graph, second = Graph(whole=whole), Graph(whole=whole)
    value: object = None
    with trace_with_parameters() as parameters:
        try:
            value = _call(function, _arguments(graph, elements), name)
            failed = False
        except OperatorError:
            if not parameters:
                raise
            failed = True
    with trace_with_floats():
        again = _call(function, _arguments(second, elements), name)
        if parameters:
            if not failed and _act_alike(_describe(value, graph), _describe(again, second)):
                return graph, value
            for traced_parameters in parameters:
                traced_parameters.reveal_all()
            graph = Graph(whole=whole)
            value = _call(function, _arguments(graph, elements), name)
    (form, nodes), (form_again, nodes_again) = _describe(value, graph), _describe(again, second)
    indices = [[node.index for node in each] for each in (nodes, nodes_again)]
    if graph.describe_nodes() != second.describe_nodes() or form != form_again or indices[0] != indices[1]:
        raise OperatorError(
            f"{name} gives something else when it is called again: it depends on more than its arguments (a counter, "
            "a random number, the time), or keeps them; write a function of its arguments alone"
            + quote_definition(function)
        )
    return graph, value


def _act_alike(described: tuple[object, list[Node]], again: tuple[object, list[Node]]) -> bool:
    """Return True if a value that was traced with parameters is, for their floats, one that was traced with these."""
    if described[0] != again[0]:
        return False
    both = Graph(with_floats=True)
    images = []
    for nodes in (described[1], again[1]):
        inputs = [node for node in reachable(nodes) if node.op == "input"]
        new_inputs = {node: both.input(node.data[0], node.data[1], node.data[2], node.scalar) for node in inputs}
        try:
            images.append(copy_nodes(nodes, both, new_inputs))
        except TooManyOperationsError:  # of two graphs that differ
            return False
    return all(one is other for one, other in zip(*images, strict=True))


def _describe(value: object, graph: Graph) -> tuple[object, list[Node]]:
    """Return the form of what a function returned, which can be compared, and its nodes. They should be of a graph."""
    if isinstance(value, Traced):
        return (value.graph is graph, value.shape, value.scalar), list(value.nodes.flat)
    if isinstance(value, Mapping):
        form, nodes = _describe(tuple(value.values()), graph)
        return (tuple(value), form), nodes
    if isinstance(value, (tuple, list)):
        parts = [_describe(part, graph) for part in value]
        return (type(value).__qualname__, *[form for form, _ in parts]), [node for _, nodes in parts for node in nodes]
    if type(value) is Parameter:
        return (value.number_type, repr(value.present)), []
    return (type(value), repr(value)), []


def _call(function: Callable[..., object], arguments: Sequence[object], name: str) -> object:
    try:
        value = function(*arguments)
        if isinstance(value, (Generator, Coroutine)):
            value.close()
            raise OperatorError(
                f"{name} is a generator or coroutine (it has yield or async, or returns a generator expression), but "
                "gpuscan calls it for one result. Return a number, or a tuple or dict of numbers"
                + quote_definition(function)
            )
        return value
    except OperatorError:
        raise
    except Exception as error:
        if isinstance(error.__cause__, OperatorError):
            raise error.__cause__ from None  # NumPy asked a traced value for a number
        if (
            isinstance(error, TypeError)
            and (parameters := _parameters_that_do_not_fit(function, arguments)) is not None
        ):
            count = "1 argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
            raise OperatorError(
                f"{name} has the parameters {parameters}, but gpuscan calls it with {count}. Write a function that "
                f"takes {count}{quote_definition(function)}"
            ) from error
        source_line = quote_traceback(error.__traceback__) or quote_definition(function)
        if isinstance(error, IndexError) and ("valid indices" in str(error) or "used as indices" in str(error)):
            raise TableIndexError(
                f"{name} indexes a NumPy array with a value that is known only on the GPU; in a step of gpuscan.loop, "
                "use an array that is a variable of its own outside of the function. Otherwise write "
                "np.select([i == 0, i == 1, ...], table), or look up what depends on x alone before the loop, as a "
                f"part of xs{source_line}"
            ) from error
        lacks_axis = isinstance(error, np.exceptions.AxisError) or (
            isinstance(error, IndexError) and "too many" in str(error)
        )
        raise (MissingAxisError if lacks_axis else OperatorError)(
            f"{name} raised {type(error).__name__} while it was traced: {error}{source_line}"
        ) from error


def _parameters_that_do_not_fit(function: Callable[..., object], arguments: Sequence[object]) -> str | None:
    """Return the parameters of a function that does not take this number of arguments; None for any other function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions in C do not tell their parameters.
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return str(signature)
    return None


def _arguments(graph: Graph, elements: Sequence[Element]) -> list[object]:
    return [
        element.structure.unflatten([_input(graph, position, index, f) for index, f in enumerate(element.fields)])
        for position, element in enumerate(elements)
    ]


def _input(graph: Graph, argument: int, index: int, field: Field) -> Traced:
    nodes = np.empty(field.shape, dtype=object)
    for component, at in enumerate(np.ndindex(field.shape)):
        nodes[at] = graph.input(argument, index, component, field.scalar)
    nodes.flags.writeable = False
    return Traced(graph, nodes, field.scalar)


# ----- The result of an operator, compared with the element


def _flatten(structure: Structure, value: object, function: Callable[..., object], name: str) -> list[object]:
    """Return the leaves of what the function returned, in the order of the element's fields."""
    if structure.container == "leaf":
        if isinstance(value, (tuple, list, dict)):
            raise OperatorError(
                f"{name} returns {len(value)} fields, but its arguments are single values; return one value"
                + quote_definition(function)
            )
        return [value]
    expected = f"{len(structure.children)} fields ({', '.join(map(str, structure.keys))})"
    if isinstance(value, Mapping):
        if set(value) != set(structure.keys):
            raise OperatorError(
                f"{name} returns the fields {', '.join(map(str, value))}; its arguments have {expected}; return these"
                + quote_definition(function)
            )
        parts = [value[key] for key in structure.keys]
    elif isinstance(value, (tuple, list)):
        parts = list(value)
        if len(parts) != len(structure.children):
            raise OperatorError(
                f"{name} returns {len(parts)} fields; its arguments have {expected}; return as many"
                + quote_definition(function)
            )
    else:
        raise OperatorError(
            f"{name} returns one value; its arguments have {expected}; return a tuple or dict of as many"
            + quote_definition(function)
        )
    return [
        leaf
        for child, part in zip(structure.children, parts, strict=True)
        for leaf in _flatten(child, part, function, name)
    ]


def _field_nodes(
    graph: Graph, leaf: object, field: Field, function: Callable[..., object], shown: str
) -> tuple[Node, ...]:
    """Return the nodes of one field of the result, in the field's type and shape.

    Args:
        shown: what messages call the field.
    """
    if not isinstance(leaf, Traced):
        if not isinstance(leaf, (*Python, Parameter, np.generic, np.ndarray)):
            raise OperatorError(
                f"{shown} is {abbreviate(leaf)}, not a number or an array; return one{quote_definition(function)}"
            )
        if is_weak(leaf):
            kinds = ("bool", "signed", "unsigned", "float", "complex")
            number_type = leaf.number_type if type(leaf) is Parameter else type(leaf)
            least = {int: "signed", float: "float", complex: "complex"}[number_type]
            if kinds.index(field.scalar.kind) < kinds.index(least):
                raise OperatorError(
                    f"{shown} is {abbreviate(leaf)}, the element is {field.scalar.name}; return a number of that type"
                    + quote_definition(function)
                )
            try:
                check_fits(leaf, field.scalar)
            except OperatorError as error:
                raise OperatorError(f"{shown}: {error}{quote_definition(function)}") from None
            leaf = constant(graph, leaf, field.scalar)
        else:
            exact = is_exact_constant(leaf) and field.scalar.kind == "float"
            leaf = constant(graph, leaf, field.scalar if exact else find_scalar(np.asarray(leaf).dtype))
        with suppress(ValueError):  # another shape is refused below
            leaf = Traced(graph, np.broadcast_to(leaf.nodes, field.shape), leaf.scalar)
    rounded = field.scalar.name in ROUNDED_WHEN_STORED and leaf.scalar.name == "float32"
    if leaf.scalar != field.scalar and not rounded:
        raise OperatorError(
            f"{shown} is {leaf.scalar.name}, the element is {field.scalar.name}; "
            f"write .astype(np.{field.scalar.name}) on it{quote_definition(function)}"
        )
    if leaf.shape != field.shape:
        raise OperatorError(
            f"{shown} has the shape {leaf.shape}, the element {field.shape}; return that shape"
            + quote_definition(function)
        )
    return tuple(leaf.nodes.ravel())


def structure_of(value: object) -> tuple[Structure, list[Any]]:
    """Return the structure and the leaves of a value that a map returned."""
    outer = container_of(value)
    return (LEAF, [value]) if outer is None else nest_children(outer[0], [structure_of(part) for part in outer[1]])
