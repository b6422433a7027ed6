"""The derivative of each operation of the expression graph, as nodes of the same graph.

A *cotangent* of a number is the derivative of some real result with respect to it. For a complex number ``a + bi``, it
is ``d/da + i d/db``, which is PyTorch's convention. For an analytic function f of complex numbers, the cotangent of the
argument is the cotangent of the result, times the conjugate of f'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from gpuscan.operators.approximations import exponential
from gpuscan.operators.expression_graph import BOOL, COMPLEX64, FLOAT32, Graph, Node
from gpuscan.operators.traced_array import Traced
from gpuscan.operators.traced_ufuncs import build


class Calculus:
    """A builder of the nodes of derivatives. Products with a constant 0 are 0, even if the other factor is infinite."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def wide(self, node: Node) -> Node:
        """Return the node in the type of its cotangent: float32 for a 16-bit float."""
        narrow = node.scalar.kind == "float" and node.scalar.bits == 16
        return self.graph.cast(node, FLOAT32) if narrow else node

    def like(self, value: object, node: Node) -> Node:
        """Return a constant in the type of a node."""
        return self.graph.constant(value, node.scalar)

    def call(self, name: str, *args: Node) -> Node:
        """Return the ufunc `name` of these nodes."""
        compares = name in _COMPARISONS
        return build(self.graph, name, args, BOOL if compares else args[0].scalar)

    def exponential(self, node: Node) -> Node:
        """Return the exponential of a number that is hardly above 0; of float32 without steps that last bits need."""
        if node.scalar != FLOAT32:
            return self.call("exp", node)
        argument = np.empty((), dtype=object)
        argument[()] = node
        power = exponential(Traced(self.graph, argument, node.scalar))
        assert isinstance(power, Traced)
        result: Node = power.nodes.item()
        return result

    def conj(self, node: Node) -> Node:
        return self.call("conjugate", node) if node.scalar == COMPLEX64 else node

    def add(self, a: Node, b: Node) -> Node:
        if a.equals(0):
            return b
        if b.equals(0):
            return a
        if a.op == b.op == "select" and a.args[0] is b.args[0] and (_has_zero(a) and _has_zero(b)):
            return self.select(a.args[0], self.add(a.args[1], b.args[1]), self.add(a.args[2], b.args[2]))
        return self.call("add", a, b)

    def negative(self, a: Node) -> Node:
        return self.times(a, self.like(-1, a))

    def times(self, a: Node, b: Node) -> Node:
        for one, other in ((a, b), (b, a)):
            if one.equals(0):
                return one
            if one.equals(1):
                return other
            if one.op == "select" and _has_zero(one):
                return self.select(one.args[0], self.times(one.args[1], other), self.times(one.args[2], other))
            if one.equals(-1) and not other.is_constant:
                return self.call("negative", other)
        return self.call("multiply", a, b)

    def over(self, a: Node, b: Node) -> Node:
        if a.equals(0) or b.equals(1):
            return a
        if a.op == "select" and _has_zero(a):
            return self.select(a.args[0], self.over(a.args[1], b), self.over(a.args[2], b))
        return self.call("divide", a, b)

    def select(self, condition: Node, if_true: Node, if_false: Node) -> Node:
        return self.graph.select(condition, if_true, if_false)

    def where(self, condition: Node, cotangent: Node) -> Node:
        """Return the cotangent where the condition holds, else 0."""
        return self.select(condition, cotangent, self.like(0, cotangent))

    def unless(self, condition: Node, cotangent: Node) -> Node:
        return self.select(condition, self.like(0, cotangent), cotangent)


def _has_zero(select: Node) -> bool:
    return select.args[1].equals(0) or select.args[2].equals(0)


_COMPARISONS = frozenset(
    """equal not_equal less less_equal greater greater_equal isnan isinf isfinite signbit logical_and logical_or
    logical_xor logical_not""".split()
)

# A derivative takes (calculus, arguments, result, cotangent of the result) and returns the cotangent of one argument.
Derivative = Callable[[Calculus, tuple[Node, ...], Node, Node], Node]


def _first(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
    return g


def _negate(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
    return c.negative(g)


def _other_factor(operand: int) -> Derivative:
    return lambda c, args, y, g: c.times(g, c.conj(args[1 - operand]))


def _chosen(name: str, operand: int) -> Derivative:
    """Give the cotangent to the operand that is chosen; of equal ones, to the left."""
    nan_wins = name in ("minimum", "maximum")
    order = "greater_equal" if name in ("maximum", "fmax") else "less_equal"

    def derivative(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
        # NaN is on neither side of a comparison.
        nan = c.call("isnan", args[0] if nan_wins else args[1])
        left = c.call("logical_or", c.call(order, *args), nan)
        return c.unless(left, g) if operand else c.where(left, g)

    return derivative


def _remainder_by_divisor(rounding: str) -> Derivative:
    """Return the derivative of a remainder ``a - q b`` with respect to b, for the rounded quotient q."""
    return lambda c, args, y, g: c.negative(c.times(g, c.call(rounding, c.call("divide", *args))))


def _base(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
    a, b = args
    slope = c.times(b, c.call("power", a, c.add(b, c.like(-1, b))))
    return c.times(g, c.conj(c.unless(c.call("equal", b, c.like(0, b)), slope)))


def _exponent(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
    a, b = args
    zero = c.call("logical_and", c.call("equal", a, c.like(0, a)), c.call("greater_equal", b, c.like(0, b)))
    return c.times(g, c.conj(c.unless(zero, c.times(y, c.call("log", a)))))


def _share(operand: int) -> Derivative:
    """Return the derivative of ``logaddexp``: ``exp(a - y)``, but 1 where a equals y, and 0 where both are -inf."""

    def derivative(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
        a = args[operand]
        share = c.exponential(c.call("subtract", a, y))
        nothing = c.call("equal", a, c.like(-np.inf, a))
        whole = c.unless(nothing, c.like(1, a))
        return c.times(g, c.select(c.call("equal", a, y), whole, share))

    return derivative


def _leg(operand: int) -> Derivative:
    """Return the derivative of ``hypot``; 0 at the origin, as PyTorch has it."""

    def derivative(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
        return c.times(g, c.unless(c.call("equal", y, c.like(0, y)), c.over(args[operand], y)))

    return derivative


def _angle(operand: int) -> Derivative:
    """Return the derivative of ``arctan2``; 0 at the origin."""

    def derivative(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
        square = c.add(c.times(args[0], args[0]), c.times(args[1], args[1]))
        slope = c.over(args[1] if operand == 0 else c.negative(args[0]), square)
        return c.times(g, c.unless(c.call("equal", square, c.like(0, square)), slope))

    return derivative


def _copysign(c: Calculus, args: tuple[Node, ...], y: Node, g: Node) -> Node:
    differs = c.call("logical_xor", c.call("signbit", args[0]), c.call("signbit", args[1]))
    return c.select(differs, c.negative(g), g)


def _part(component: int) -> Derivative:
    return lambda c, args, y, g: c.graph.parts(g)[component]


def _slope(slope: Callable[[Calculus, Node, Node], Node]) -> tuple[Derivative]:
    """Return the derivative of a function of one argument, from its slope as a function of argument and result."""
    return (lambda c, args, y, g: c.times(g, c.conj(slope(c, args[0], y))),)


def _inverse(slope: Callable[[Calculus, Node, Node], Node]) -> tuple[Derivative]:
    """Return the derivative of a function of one argument, from 1 divided by its slope."""
    return (lambda c, args, y, g: c.over(g, c.conj(slope(c, args[0], y))),)


def _scale_by(factor: float) -> Callable[[Calculus, Node, Node], Node]:
    return lambda c, a, y: c.times(a, c.like(factor, a))


def _one_and_square(sign: int, *, of_result: bool = False) -> Callable[[Calculus, Node, Node], Node]:
    """Return ``1 + sign * x**2`` of the argument or the result."""

    def value(c: Calculus, a: Node, y: Node) -> Node:
        x = y if of_result else a
        square = c.times(x, x)
        return c.add(c.like(1, x), square if sign > 0 else c.negative(square))

    return value


def _root(value: Callable[[Calculus, Node, Node], Node]) -> Callable[[Calculus, Node, Node], Node]:
    return lambda c, a, y: c.call("sqrt", value(c, a, y))


def _distance_from_one(c: Calculus, a: Node, y: Node) -> Node:
    """Return ``sqrt(a - 1) * sqrt(a + 1)``, the slope of the hyperbolic cosine."""
    below, above = (c.call("sqrt", c.add(a, c.like(step, a))) for step in (-1, 1))
    return c.times(below, above)


# For each operation, the derivative with respect to each argument. None says that it is 0 wherever it is defined.
DERIVATIVES: Mapping[str, tuple[Derivative | None, ...]] = {
    "add": (_first, _first),
    "subtract": (_first, _negate),
    "multiply": (_other_factor(0), _other_factor(1)),
    "divide": (
        lambda c, args, y, g: c.over(g, c.conj(args[1])),
        lambda c, args, y, g: c.negative(c.times(c.over(g, c.conj(args[1])), c.conj(y))),
    ),
    "negative": (_negate,),
    **{name: (_chosen(name, 0), _chosen(name, 1)) for name in ("minimum", "maximum", "fmin", "fmax")},
    "remainder": (_first, _remainder_by_divisor("floor")),
    "fmod": (_first, _remainder_by_divisor("trunc")),
    "floor_divide": (None, None),
    **dict.fromkeys(("sign", "floor", "ceil", "trunc", "rint"), (None,)),
    "absolute": _slope(lambda c, a, y: c.call("sign", a)),
    "copysign": (_copysign, None),
    "power": (_base, _exponent),
    "exp": _slope(lambda c, a, y: y),
    "exp2": _slope(lambda c, a, y: c.times(y, c.like(math.log(2), y))),
    "expm1": _slope(lambda c, a, y: c.add(y, c.like(1, y))),
    "log": _inverse(lambda c, a, y: a),
    "log2": _inverse(_scale_by(math.log(2))),
    "log10": _inverse(_scale_by(math.log(10))),
    "log1p": _inverse(lambda c, a, y: c.add(a, c.like(1, a))),
    "logaddexp": (_share(0), _share(1)),
    "sqrt": _inverse(lambda c, a, y: c.times(y, c.like(2, y))),
    "cbrt": _inverse(lambda c, a, y: c.times(c.like(3, y), c.times(y, y))),
    "hypot": (_leg(0), _leg(1)),
    "sin": _slope(lambda c, a, y: c.call("cos", a)),
    "cos": _slope(lambda c, a, y: c.negative(c.call("sin", a))),
    "tan": _slope(_one_and_square(1, of_result=True)),
    "sinh": _slope(lambda c, a, y: c.call("cosh", a)),
    "cosh": _slope(lambda c, a, y: c.call("sinh", a)),
    "tanh": _slope(_one_and_square(-1, of_result=True)),
    "arcsin": _inverse(_root(_one_and_square(-1))),
    "arccos": (lambda c, args, y, g: c.negative(_inverse(_root(_one_and_square(-1)))[0](c, args, y, g)),),
    "arctan": _inverse(_one_and_square(1)),
    "arctan2": (_angle(0), _angle(1)),
    "arcsinh": _inverse(_root(_one_and_square(1))),
    "arccosh": _inverse(_distance_from_one),
    "arctanh": _inverse(_one_and_square(-1)),
    "erf": _slope(lambda c, a, y: c.times(c.like(2 / math.sqrt(math.pi), a), c.call("exp", c.negative(c.times(a, a))))),
    "real": (lambda c, args, y, g: c.graph.complex(g, c.like(0, g)),),
    "imag": (lambda c, args, y, g: c.graph.complex(c.like(0, g), g),),
    "complex": (_part(0), _part(1)),
    "select": (None, lambda c, args, y, g: c.where(args[0], g), lambda c, args, y, g: c.unless(args[0], g)),
}
