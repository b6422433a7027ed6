"""The largest and the least product so far: (hi, lo) -> the largest and the least of p hi, p lo and b.

That is the recurrence of the product of neighbouring numbers that is largest, where a negative factor makes the least
product the largest.

Law: ``I[t] = hull(p[t] I[t-1], b[t])`` for the interval I from lo to hi. A map is (p, c, d), which takes I to
``hull(p I, [c, d])``. Composition, first (p1, c1, d1), then (p2, c2, d2): ``(p2 p1, min(c2, p2 c1, p2 d1), max(d2, p2
c1, p2 d1))``. Identity: p = 1 with no interval. Proof: a product with a number takes the hull of two sets to the hull
of their products, and a hull of hulls is the hull of all. So ``hull(p2 hull(p1 I, C1), C2) = hull(p2 p1 I, p2 C1,
C2)``.

The interval begins with an init that has lo up to hi. A product of factors is a candidate of the loop as well, so
integers overflow only if the loop's own do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.stage import (
    SWAPPED,
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    find_comparison,
)
from gpuscan.operators.parameter_array import arrays_hold
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class Hulls(Composition):
    """Maps (p, c, d).

    Attributes:
        largest_first: True if the first number of the state is the largest product.
    """

    largest_first: bool

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        factor, low, high = right
        # A product of many large factors is infinite. Infinity times 0 is NaN, so 0 is kept as it is.
        ends = [np.where(end == np.zeros_like(end), end, factor * end) for end in left[1:]]
        least, largest = np.minimum(*ends), np.maximum(*ends)
        return [left[0] * factor, np.minimum(least, low), np.maximum(largest, high)]

    def start(self, state: Numbers) -> list[Number]:
        high, low = state if self.largest_first else state[::-1]
        return [np.zeros_like(high), low, high]

    def state(self, numbers: Numbers) -> list[Number]:
        _, low, high = numbers
        return [high, low] if self.largest_first else [low, high]


def _flatten(node: Node, op: str) -> list[Node]:
    """Return the numbers that an extremum of extrema is taken of."""
    return [number for arg in node.args for number in _flatten(arg, op)] if node.op == op else [node]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of a largest and a least product.

    Raises:
        LeavesClassError: the two numbers are no such products.
    """
    results = part.results
    ops = [node.op for node in results]
    scalars = {node.scalar for node in part.states}
    if len(results) != 2 or set(ops) != {"maximum", "minimum"} or len(scalars) > 1:
        raise LeavesClassError(results[0], rank=-1)
    largest_first = ops[0] == "maximum"
    high, low = part.states if largest_first else part.states[::-1]
    terms = [_terms(part, node, op, high, low) for node, op in zip(results, ops, strict=True)]
    if terms[0] != terms[1]:
        raise LeavesClassError(results[0], rank=-1)
    firsts = [values for values in (part.initial if largest_first else part.initial[::-1]) if values is not None]
    if len(firsts) != 2 or not arrays_hold(_are_in_order, *firsts):
        raise LeavesClassError(results[0], "begins with a largest product that may be below the least one", rank=1)
    factor, other = (part.calculus.wide(node) for node in terms[0])
    law = "(hi, lo)[t] = the largest and the least of a hi[t-1], a lo[t-1] and b"
    return LoopStage("max-times", law, part.state_indices, (factor, other, other), None, Hulls(largest_first))


def _are_in_order(high: AnyArray, low: AnyArray) -> np.bool_:
    return np.all(high >= low)


def _terms(part: StepPart, node: Node, op: str, high: Node, low: Node) -> tuple[Node, Node]:
    """Return the factor of the state, and the number that is no product of it."""
    terms = _flatten(node, op)
    others = [term for term in terms if not part.varies(term)]
    products = [term for term in terms if part.varies(term)]
    if len(others) != 1 or any(term.op != "multiply" for term in products):
        raise LeavesClassError(node, rank=-1)
    pairs = [term.args if part.varies(term.args[1]) else term.args[::-1] for term in products]
    factors = {factor for factor, _ in pairs}
    states = {state for _, state in pairs}
    if len(factors) != 1 or part.varies(factor := factors.pop()):
        raise LeavesClassError(node, rank=-1)
    if states != {high, low} and not (len(states) == 1 and _is_chosen(states.pop(), factor, op, high, low)):
        raise LeavesClassError(node, rank=-1)
    return factor, others[0]


def _is_chosen(node: Node, factor: Node, op: str, high: Node, low: Node) -> bool:
    """Return True for ``np.where(factor < 0, low, high)`` in a maximum, and with the two swapped in a minimum."""
    if node.op != "select" or node.args[0].op not in SWAPPED:
        return False
    condition, yes, no = node.args
    test, limit = find_comparison(condition, factor)
    below, above = (yes, no) if test.startswith("less") else (no, yes)
    return bool(test) and limit.equals(0) and (below, above) == ((low, high) if op == "maximum" else (high, low))
