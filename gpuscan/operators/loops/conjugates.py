"""Steps that belong to a class after a change of variable, as a root mean square and a geometric mean do.

Law: ``h[t] = p(f(q(h[t-1])))``, where f is a map of some class, and q undoes p: the square and the square root, the
logarithm and the exponential, the exponential and the logarithm, or the last two of ``np.expm1`` and ``np.log1p``.
A map is a map f of that class, for the state ``u = q(h)``, with its composition and identity. Proof: ``q(p(u))``
is u, so ``p(f2(q(p(f1(q(h)))))) = p((f2 f1)(q(h)))``.

That holds for all u that f gives, if p takes all of them: a square root needs a number that is not negative, which must
follow from the operations of the step. The step may bound h, choose between values of h, or, for the logarithm,
multiply h by a number that is not negative and raise it to a power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops import polynomials
from gpuscan.operators.loops.affine import Inner
from gpuscan.operators.loops.max_times import are_nonnegative, is_nonnegative
from gpuscan.operators.loops.stage import Composition, LeavesClassError, LoopStage, Numbers, StepPart
from gpuscan.operators.parameter_array import arrays_hold
from gpuscan.operators.traced_array import Number

# For each function p, its inverse q.
_INVERSES: Mapping[str, str] = {"sqrt": "square", "exp": "log", "log": "exp", "log1p": "expm1"}
# The functions q that take only numbers that are not negative.
_OF_NONNEGATIVE = ("square", "log")
# The functions p that take only numbers that are not negative. -1 would do for np.log1p.
_TAKES_NONNEGATIVE = ("sqrt", "log", "log1p")


@dataclass(frozen=True)
class Conjugate(Composition):
    """Maps of another class.

    Attributes:
        maps: how they are composed.
        outer: the name of the function p.
    """

    maps: Composition
    outer: str

    @property
    def keeps_start(self) -> bool:
        # Rounding, and the sign of a number that is squared, are lost.
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        return self.maps.combine(left, right)

    def first(self, plain: Numbers) -> list[Number]:
        return self.maps.first(plain)

    def extend(self, left: Numbers, plain: Numbers) -> list[Number]:
        return self.maps.extend(left, plain)

    def settle(self, numbers: Numbers) -> list[Number]:
        return self.maps.settle(numbers)

    def start(self, state: Numbers) -> list[Number]:
        return self.maps.start([getattr(np, _INVERSES[self.outer])(state[0])])

    def state(self, numbers: Numbers) -> list[Number]:
        return [getattr(np, self.outer)(self.maps.state(numbers)[0])]


class _Change:
    """Writes a step with another variable.

    Args:
        outer: the name of the function p.
    """

    def __init__(self, part: StepPart, outer: str) -> None:
        self.part, self.graph, self.calculus = part, part.graph, part.calculus
        self.outer, self.inner = outer, _INVERSES[outer]
        self.state = part.states[0]
        self.changes = False

    def of(self, node: Node) -> Node:
        """Return q of a node, with the state in the place of q of the state.

        Raises:
            LeavesClassError: this cannot be written.
        """
        part, graph, call, args = self.part, self.graph, self.calculus.call, node.args
        if not part.varies(node):
            self._check(is_nonnegative(node) or self.inner not in _OF_NONNEGATIVE, node)
            return self._inner(node)
        if node is self.state:
            starts = [values is not None and arrays_hold(are_nonnegative, values) for values in part.initial]
            self._check(self.inner not in _OF_NONNEGATIVE or (bool(starts) and all(starts)), node)
            return node
        if node.op == self.outer:
            self.changes = True
            inside = self._inside(args[0])
            self._check(self.outer not in _TAKES_NONNEGATIVE or is_nonnegative(inside, {self.state.index}), node)
            return inside
        if node.op == "select" and not part.varies(args[0]):
            return graph.select(args[0], self.of(args[1]), self.of(args[2]))
        if node.op in ("maximum", "minimum"):
            return call(node.op, self.of(args[0]), self.of(args[1]))
        if self.inner == "log":
            if node.op in ("multiply", "divide"):
                return call("add" if node.op == "multiply" else "subtract", self.of(args[0]), self.of(args[1]))
            if node.op == "power" and not part.varies(args[1]):
                self.changes = True
                return self.calculus.times(self.of(args[0]), args[1])
            if node.op == "sqrt":
                self.changes = True
                return self.calculus.times(self.of_factors(args[0]), graph.constant(0.5, node.scalar))
        raise LeavesClassError(node, rank=-1)

    def of_factors(self, node: Node) -> Node:
        """Return the logarithm of a product under a root, which is NaN as the root is if a factor is negative."""
        if node.op == "multiply":
            one, other = (self.of_factors(arg) for arg in node.args)
            return self.calculus.call("add", one, other)
        return self.of(node) if self.part.varies(node) else self._inner(node)

    def _check(self, holds: bool, node: Node) -> None:
        if not holds:
            raise LeavesClassError(node, rank=-1)

    def _inner(self, node: Node) -> Node:
        """Return q of a number that does not depend on the state."""
        if self.inner == "square":
            return self.calculus.times(node, node)
        return self.calculus.call(self.inner, node)

    def _inside(self, node: Node) -> Node:
        """Return a node that depends on q of the state alone, with the state in its place."""
        if self.inner == "square":
            return self._square(node)
        inner = self.calculus.call(self.inner, self.state)
        inputs = {each: each for each in reachable([node]) if each.op == "input" and each is not self.state}
        if any(self.state in each.args and each is not inner for each in reachable([node])) or node is self.state:
            raise LeavesClassError(node, rank=-1)
        (copy,) = copy_nodes([node], self.graph, {**inputs, inner: self.state})
        return copy

    def _square(self, node: Node) -> Node:
        """Return ``a * u + b`` for ``a * h * h + b``, in any order of the sums and products."""
        graph, times = self.graph, self.calculus.times
        terms: dict[bool, Node] = {}
        for monomial, factor in polynomials.polynomial_of(node).items():
            powers = dict(monomial)
            power = powers.pop(self.state.index, 0)
            if power not in (0, 2) or any(self.part.varies(graph.nodes[index]) for index in powers):
                raise LeavesClassError(node, rank=-1)
            term = graph.constant(float(factor), node.scalar)
            for index, count in powers.items():
                for _ in range(count):
                    term = times(term, graph.nodes[index])
            has_state = power == 2
            terms[has_state] = self.calculus.add(terms[has_state], term) if has_state in terms else term
        if True not in terms:
            raise LeavesClassError(node, rank=-1)
        product = times(terms[True], self.state)
        return self.calculus.add(product, terms[False]) if False in terms else product


def change_variable(part: StepPart, outer: str) -> StepPart:
    """Return the part as a step of another variable.

    Raises:
        LeavesClassError: it cannot be written so.
    """
    if len(part.state_indices) > 1 or part.states[0].scalar.kind != "float":
        raise LeavesClassError(part.results[0], rank=-1)
    change = _Change(part, outer)
    result = change.of(part.results[0])
    if not change.changes:
        raise LeavesClassError(part.results[0], rank=-1)
    return Inner(part.step, part.state_indices, (None,), result=result)


def conjugate(stage: LoopStage, outer: str) -> LoopStage:
    """Return the stage of the state, for the stage of another variable."""
    law = f"{stage.law.replace('h[', 'u[')}, with h = {outer}(u)"
    return replace(stage, law=law, composition=Conjugate(stage.composition, outer))


OUTERS = tuple(_INVERSES)
