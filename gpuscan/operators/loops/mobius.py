"""Möbius maps: h -> (a h + b) / (c h + d), as the variance of a Kalman filter or a continued fraction has them.

Law: ``h[t] = (a h[t-1] + b) / (c h[t-1] + d)``. Composition is the product of the matrices ((a, b), (c, d)), the
later on the left. Identity: ((1, 0), (0, 1)). Proof: put ``h = p / q``; the map takes the vector (p, q) to its
product with the matrix, and products of matrices are associative.

The four numbers are found by computing with quotients of polynomials of the state, from which common factors are
cancelled: ``P - P**2 / (P + R)`` is ``P R / (P + R)``. A matrix may be multiplied by any number, so each product is
scaled by an exact power of two, and neither overflows nor vanishes. Where a, b, c and d have one sign, no sum
cancels, and the error of a result grows with the logarithm of the length. With different signs it may be as large as
the condition of the products of matrices.

The map of a probability, such as Bayes' rule, has different signs. Its map of the odds ``u = h / (1 - h)`` has one
sign, since it takes numbers from 0 to infinity to such numbers. So if h begins between 0 and 1, and the numbers of the
map of u are computed with fewer differences, the maps of u are composed. They are Möbius maps as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.polynomials import simplify
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    both,
    compute_nodes,
    constant_choice,
    exponent_of,
    loses_infinities,
    negate_condition,
    power_of_two,
)
from gpuscan.operators.parameter_array import arrays_hold
from gpuscan.operators.traced_array import Number, is_below_zero

# The highest degree of a polynomial of the state.
_MAX_DEGREE = 6


def scale_matrix(*numbers: Number) -> list[Number]:
    """Scale the numbers by a power of two, which is exact, so that the largest is between 2**30 and 2**31."""
    size = reduce(np.maximum, map(np.abs, numbers))
    exponent = exponent_of(size)
    scale = power_of_two(np.full_like(exponent, 30) - exponent, size)
    return [number * scale for number in numbers]


def quotient_of(number: Number) -> list[Number]:
    """Return two numbers that have this number as their quotient. For an infinity, the second one is 0."""
    infinite, zero, one = np.isinf(number), np.zeros_like(number), np.ones_like(number)
    return [np.where(infinite, np.where(number > 0, one, -one), number), np.where(infinite, zero, one)]


@dataclass(frozen=True)
class MobiusMaps(Composition):
    """Maps (a, b, c, d). A map with a = c = 0 is constant, except that it keeps NaN of the state.

    Attributes:
        odds: True for maps of ``h / (1 - h)``.
        loses_infinities: True if the loop's step gives NaN for an infinite state.
    """

    odds: bool = False
    loses_infinities: bool = False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        a, b, c, d = left
        e, f, g, h = right
        zero = np.zeros_like(e)
        if self.loses_infinities:
            below = b + d if self.odds else d
            infinite = (a == zero) & (c == zero) & (below == zero) & (b != zero)
            keeps = (e == h) & (f == zero) & (g == zero)
            b = np.where(infinite & ~keeps, np.full_like(b, np.nan), b)
        # A constant map ends with its own f / h. NaN is in b, if it is in the left map at all.
        alone = (e == zero) & (g == zero)
        c, d = np.where(alone, e, c), np.where(alone, np.ones_like(d), d)
        return scale_matrix(e * a + f * c, e * b + f * d, g * a + h * c, g * b + h * d)

    def start(self, state: Numbers) -> list[Number]:
        zero = np.zeros_like(state[0])
        above, below = quotient_of(state[0])
        return scale_matrix(zero, above, zero, below - above if self.odds else below)

    def state(self, numbers: Numbers) -> list[Number]:
        above, below = numbers[1], numbers[3]
        return [above / (above + below if self.odds else below)]


@dataclass(frozen=True, eq=False)
class _Quotient:
    """A quotient of two polynomials of the state, each as its coefficients from the constant up."""

    above: tuple[Node, ...]
    below: tuple[Node, ...]
    constant: Node | None = None


class _Quotients(NodeForms[_Quotient]):
    """The quotients that nodes compute of the state, or of its odds."""

    def __init__(self, part: StepPart, odds: bool = False) -> None:
        super().__init__(part)
        self.calculus, self.odds = part.calculus, odds
        self.scalar = part.calculus.wide(part.states[0]).scalar
        self.zero, self.one = (part.graph.constant(value, self.scalar) for value in (0, 1))

    def _derive(self, node: Node) -> _Quotient:
        quotient = self._derive_any(node)
        if max(len(quotient.above), len(quotient.below)) > _MAX_DEGREE + 1:
            raise LeavesClassError(node, "raises the degree of the carry")
        return quotient

    def _derive_any(self, node: Node) -> _Quotient:
        """Return the quotient of a node, of whatever degree."""
        part, op, args = self.part, node.op, node.args
        if not part.varies(node):
            return _Quotient((self.graph.cast(node, self.scalar),), (self.one,))
        if op == "input":
            return _Quotient((self.zero, self.one), (self.one, self.one) if self.odds else (self.one,))
        if op == "select" and not part.varies(args[0]):
            return self._choice(args[0], args[1], args[2])
        if op == "cast" and node.scalar.kind == args[0].scalar.kind == "float":
            return self.of(args[0])
        if op == "negative":
            inner = self.of(args[0])
            return _Quotient(tuple(map(self.calculus.negative, inner.above)), inner.below, inner.constant)
        if op not in ("add", "subtract", "multiply", "divide"):
            raise LeavesClassError(node)
        left, right = self.of(args[0]), self.of(args[1])
        # Where a part of the number is reset and another is not, the number still depends on the state.
        constant = both(self.graph, left.constant, right.constant)
        if not part.varies(args[0]) or not part.varies(args[1]):
            constant = left.constant or right.constant
        return replace(self._calculate(op, left, right), constant=constant)

    def of_result(self) -> _Quotient:
        """Return the quotient of the new state, or of its odds."""
        quotient = self.of(self.part.results[0])
        if not self.odds:
            return quotient
        return replace(
            self._reduce(quotient.above, self._plus(quotient.below, quotient.above, True)), constant=quotient.constant
        )

    def _calculate(self, op: str, left: _Quotient, right: _Quotient) -> _Quotient:
        """Return the sum, difference, product or quotient, without the condition where it is constant."""
        if op == "multiply":
            return self._reduce(self._times(left.above, right.above), self._times(left.below, right.below))
        if op == "divide":
            if left.below == right.below:
                return self._reduce(left.above, right.above)
            return self._reduce(self._times(left.above, right.below), self._times(left.below, right.above))
        sign = op == "subtract"
        if left.below == right.below:
            return self._reduce(self._plus(left.above, right.above, sign), left.below)
        one, other = self._times(left.above, right.below), self._times(right.above, left.below)
        return self._reduce(self._plus(one, other, sign), self._times(left.below, right.below))

    # ----- Polynomials

    def _trim(self, numbers: Sequence[Node]) -> tuple[Node, ...]:
        kept = list(numbers)
        while len(kept) > 1 and kept[-1].equals(0):
            kept.pop()
        return tuple(kept)

    def _plus(self, one: Sequence[Node], other: Sequence[Node], subtracts: bool = False) -> tuple[Node, ...]:
        size = max(len(one), len(other))
        pairs = zip([*one, *[self.zero] * (size - len(one))], [*other, *[self.zero] * (size - len(other))], strict=True)
        return self._trim([self._difference(a, b) if subtracts else self._sum(a, b) for a, b in pairs])

    def _sum(self, a: Node, b: Node) -> Node:
        return self._by_case(self._sum, a, b) or simplify(self.graph, self.calculus.add(a, b))

    def _by_case(self, function: Callable[[Node, Node], Node], a: Node, b: Node) -> Node | None:
        """Return a function of two choices by one condition as a choice; None if these are no such choices."""
        choice = next((operand for operand in (a, b) if operand.op == "select"), None)
        if choice is None or not all(operand.is_constant or operand.args[:1] == choice.args[:1] for operand in (a, b)):
            return None
        sides = [[operand if operand.is_constant else operand.args[side] for operand in (a, b)] for side in (1, 2)]
        return self.graph.select(choice.args[0], *(function(*pair) for pair in sides))

    def _difference(self, a: Node, b: Node) -> Node:
        by_case = self._by_case(self._difference, a, b)
        if by_case is not None:
            return by_case
        if b.equals(0):
            return a
        if a.equals(0):
            return self.calculus.negative(b)
        return simplify(self.graph, self.calculus.call("subtract", a, b))

    def _times(self, one: Sequence[Node], other: Sequence[Node]) -> tuple[Node, ...]:
        product = [self.zero] * (len(one) + len(other) - 1)
        for i, a in enumerate(one):
            for j, b in enumerate(other):
                product[i + j] = simplify(self.graph, self.calculus.add(product[i + j], self.calculus.times(a, b)))
        return self._trim(product)

    def _reduce(self, above: tuple[Node, ...], below: tuple[Node, ...]) -> _Quotient:
        """Return the quotient without common factors: powers of the state, and polynomials that divide both."""
        while len(above) > 1 and len(below) > 1 and above[0].equals(0) and below[0].equals(0):
            above, below = above[1:], below[1:]
        if len(below) > 1 and len(above) > 1:
            for divisor in self._divisors(above, below):
                divided = [self._divide(polynomial, divisor) for polynomial in (above, below)]
                if divided[0] is not None and divided[1] is not None:
                    return self._reduce(divided[0], divided[1])
        return _Quotient(above, below)

    def _divisors(self, above: Sequence[Node], below: Sequence[Node]) -> list[tuple[Node, ...]]:
        """Return polynomials of the state that may divide both: the one of lower degree, and known denominators."""
        candidates = [polynomial.below for polynomial in self._known.values()] + [tuple(below), tuple(above)]
        size = min(len(above), len(below))
        return [
            polynomial
            for polynomial in dict.fromkeys(candidates)
            if 1 < len(polynomial) <= size and polynomial[-1].equals(1)
        ]

    def _divide(self, numbers: Sequence[Node], divisor: Sequence[Node]) -> tuple[Node, ...] | None:
        """Return the quotient by a polynomial with the highest coefficient 1; None if there is a remainder."""
        rest, coefficients = list(numbers), []
        while len(rest) >= len(divisor):
            factor = rest[-1]
            coefficients.append(factor)
            for power, node in enumerate(divisor):
                index = len(rest) - len(divisor) + power
                rest[index] = self._difference(rest[index], self.calculus.times(factor, node))
            if not rest[-1].equals(0):
                return None
            rest.pop()
        return tuple(reversed(coefficients)) if all(node.equals(0) for node in rest) else None

    def _choice(self, condition: Node, yes: Node, no: Node) -> _Quotient:
        one, other = self.of(yes), self.of(no)
        graph = self.graph
        size, low = max(len(one.above), len(other.above)), max(len(one.below), len(other.below))

        def select(a: Sequence[Node], b: Sequence[Node], count: int) -> tuple[Node, ...]:
            pairs = zip([*a, *[self.zero] * (count - len(a))], [*b, *[self.zero] * (count - len(b))], strict=True)
            return tuple(graph.select(condition, *pair) for pair in pairs)

        are_constant = not self.part.varies(yes), not self.part.varies(no)
        constant = constant_choice(graph, condition, are_constant, (one.constant, other.constant))
        return _Quotient(select(one.above, other.above, size), select(one.below, other.below, low), constant)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of Möbius maps.

    Raises:
        LeavesClassError: the step is no such map of one float.
    """
    if len(part.state_indices) > 1 or part.states[0].scalar.kind != "float":
        raise LeavesClassError(part.results[0], rank=-1)
    own = {node.index for node in reachable(part.results)}
    quotient = _Quotients(part).of_result()
    if max(len(quotient.above), len(quotient.below)) > 2:
        raise LeavesClassError(_highest(part), "makes a quotient of polynomials of a higher degree than 1", rank=1)
    odds = False
    if _differences(quotient, own) and all(
        values is None or arrays_hold(_are_probabilities, values) for values in part.initial
    ):
        of_odds = _Quotients(part, odds=True).of_result()
        fits = max(len(of_odds.above), len(of_odds.below)) <= 2
        if fits and _differences(of_odds, own) < _differences(quotient, own):
            quotient, odds = of_odds, True
    zero = part.graph.constant(0, quotient.above[0].scalar)
    b, a = (*quotient.above, zero)[:2]
    d, c = (*quotient.below, zero)[:2]
    # An infinity or NaN in the input makes a map with the same result for every finite state.
    graph = part.graph
    (finite,) = compute_nodes(graph, lambda *numbers: np.isfinite(reduce(np.maximum, map(np.abs, numbers))), a, b, c, d)
    infinite = negate_condition(graph, finite)
    above, below = compute_nodes(graph, quotient_of, graph.cast(part.result_at(1), zero.scalar))
    if odds:
        below = graph.apply("subtract", (below, above), below.scalar)
    a, b, c, d = (
        graph.select(infinite, number, coefficient)
        for number, coefficient in zip((zero, above, zero, below), (a, b, c, d), strict=True)
    )
    constant = quotient.constant
    # A constant map has only b and d.
    if constant is not None:
        a, c = (graph.select(constant, zero, coefficient) for coefficient in (a, c))
    numbers = tuple(compute_nodes(part.graph, scale_matrix, a, b, c, d))
    law = "h[t] = (a h[t-1] + b) / (c h[t-1] + d)"
    composition = MobiusMaps(odds, loses_infinities(part, constant))
    return LoopStage("mobius", law, part.state_indices, numbers, constant, composition)


def _differences(quotient: _Quotient, own: Collection[int]) -> int:
    """Return how many numbers of a map may be differences of terms of one sign.

    Args:
        quotient: the map.
        own: the indices of the user's own nodes, which are not counted.
    """
    count = 0
    for number in (*quotient.above, *quotient.below):
        nodes = [node for node in reachable([number]) if node.index not in own or node.is_constant]
        count += any(node.op in ("subtract", "negative") or _is_negative(node) for node in nodes)
    return count


def _is_negative(node: Node) -> bool:
    return node.is_constant and node.scalar.kind == "float" and node.reveal(is_below_zero)


def _are_probabilities(values: AnyArray) -> np.bool_:
    return np.all((values >= 0) & (values <= 1))


def _highest(part: StepPart) -> Node:
    """Return the last product or quotient of the state with itself."""
    products = [
        node
        for node in part.graph.nodes
        if node.op in ("multiply", "divide") and part.varies(node) and all(part.varies(arg) for arg in node.args)
    ]
    return products[0] if products else part.results[0]
