"""Functions of float64 that WGSL and shaders/shared/ have for float32 alone, by exp, expm1, log and log1p."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gpuscan.elements import Scalar
from gpuscan.operators.expression_graph import BOOL, Graph, Node

Nodes = Sequence[Node]
Form = Callable[[Graph, Nodes, Scalar], Node]


class _Real:
    """Arithmetic on nodes of one float type, for formulas."""

    def __init__(self, graph: Graph, scalar: Scalar) -> None:
        self._graph, self._scalar = graph, scalar

    def __call__(self, name: str, *args: Node | float) -> Node:
        """Return the node of a ufunc of nodes and numbers."""
        nodes = [arg if isinstance(arg, Node) else self._graph.constant(arg, self._scalar) for arg in args]
        return self._graph.apply(name, nodes, self._scalar)

    def less(self, x: Node, limit: float) -> Node:
        """Return the node of ``x < limit``."""
        return self._graph.apply("less", (x, self._graph.constant(limit, self._scalar)), BOOL)


def _of_multiple(name: str, factor: float) -> Form:
    """Return ``f(factor x)``."""
    return lambda graph, args, result: _Real(graph, result)(name, _Real(graph, result)("multiply", factor, args[0]))


def _multiple_of(name: str, factor: float) -> Form:
    """Return ``factor f(x)``."""
    return lambda graph, args, result: _Real(graph, result)("multiply", factor, _Real(graph, result)(name, args[0]))


def _tanh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    less_one = f("expm1", f("multiply", 2, f("minimum", f("absolute", x), 25)))
    return f("copysign", f("divide", less_one, f("add", less_one, 2)), x)


def _sinh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    less_one = f("expm1", f("minimum", size, 25))
    near = f("multiply", 0.5, f("add", less_one, f("divide", less_one, f("add", less_one, 1))))
    root = f("exp", f("multiply", 0.5, size))
    far = f("multiply", f("multiply", 0.5, root), root)
    return f("copysign", graph.select(f.less(size, 25), near, far), x)


def _cosh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    root = f("exp", f("multiply", 0.5, f("absolute", x)))
    half = f("multiply", 0.5, root)
    return f("add", f("multiply", half, root), f("divide", f("divide", 0.5, root), root))


def _arcsinh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    near = f("minimum", size, 1e8)
    square = f("multiply", near, near)
    bend = f("divide", square, f("add", 1, f("sqrt", f("add", square, 1))))
    small = f("log1p", f("add", near, bend))
    far = f("add", f("log", f("maximum", size, 1)), math.log(2))
    return f("copysign", graph.select(f.less(size, 1e8), small, far), x)


def _arccosh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    above = f("minimum", f("subtract", x, 1), 1e8)
    small = f("log1p", f("add", above, f("sqrt", f("multiply", above, f("add", above, 2)))))
    large = f("add", f("log", f("maximum", x, 1)), math.log(2))
    defined = graph.select(f.less(x, 1e8), small, large)
    return graph.select(f.less(x, 1), graph.constant(math.nan, result), defined)


def _arctanh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    ratio = f("divide", f("multiply", 2, size), f("subtract", 1, size))
    return f("copysign", f("multiply", 0.5, f("log1p", ratio)), x)


# The form of each function. They are close to 1e-13.
FLOAT64_FORMS: Mapping[str, Form] = {
    "exp2": _of_multiple("exp", math.log(2)),
    "log2": _multiple_of("log", 1 / math.log(2)),
    "log10": _multiple_of("log", 1 / math.log(10)),
    "tanh": _tanh,
    "sinh": _sinh,
    "cosh": _cosh,
    "arcsinh": _arcsinh,
    "arccosh": _arccosh,
    "arctanh": _arctanh,
}
