"""Folds by an associative function of NumPy: h -> gcd(h, b), lcm(h, b), hypot(h, b) or logaddexp2(h, b).

Law: ``h[t] = op(h[t-1], b[t])``. A map is its b. Composition, first b1, then b2: ``op(b1, b2)``. Identity: the
function's own. Proof: ``op(op(h, b1), b2) = op(h, op(b1, b2))`` is associativity. gcd and lcm are the meet and the join
of a lattice, hypot is the square root of a sum of squares, and logaddexp2 the logarithm of a sum of powers. A result
that does not overflow is at least as large as every part of it, so no composition overflows either; lcm with 0 is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    compute_nodes,
    negate_condition,
)
from gpuscan.operators.traced_array import Number
from gpuscan.operators.traced_ufuncs import FLOATS, INTEGERS

# How many numbers of the input are tried as the other argument. Only its size is computed of it.
_NEAREST = 8
_FOLDS: Mapping[str, tuple[np.ufunc, frozenset[str]]] = {
    "gcd": (np.gcd, INTEGERS),
    "lcm": (np.lcm, INTEGERS),
    "hypot": (np.hypot, FLOATS),
    "logaddexp2": (np.logaddexp2, FLOATS),
}


@dataclass(frozen=True)
class FoldMaps(Composition):
    """Maps (b,), and the name of their function."""

    name: str

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        function, _ = _FOLDS[self.name]
        return [function(left[0], right[0])]

    def start(self, state: Numbers) -> list[Number]:
        return list(state)

    def state(self, numbers: Numbers) -> list[Number]:
        return list(numbers)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of a fold.

    Raises:
        LeavesClassError: the step is no call of such a function with the state and a number of the input.
    """
    node, state = part.results[0], part.states[0]
    if len(part.state_indices) > 1:
        raise LeavesClassError(node, rank=-1)
    constant = value = None
    if node.op == "select" and not part.varies(node.args[0]):
        condition, yes, no = node.args
        if part.varies(yes) != part.varies(no):
            node, value = (yes, no) if part.varies(yes) else (no, yes)
            constant = negate_condition(part.graph, condition) if value is no else condition
    name, other = _find_fold(part, node, state)
    if constant is not None and value is not None:
        other = part.graph.select(constant, value, other)
    number = part.calculus.wide(other)
    return LoopStage("fold", f"h[t] = {name}(h[t-1], b)", part.state_indices, (number,), constant, FoldMaps(name))


def _find_fold(part: StepPart, node: Node, state: Node) -> tuple[str, Node]:
    """Return the function that a node calls with the state, and the other argument."""
    graph, inner = part.graph, reachable([node])
    before = len(graph.nodes)
    names = [name for name, (_, kinds) in _FOLDS.items() if state.scalar.kind in kinds and node.scalar == state.scalar]
    others = [candidate for candidate in inner if not part.varies(candidate) and candidate.scalar == state.scalar]
    for name in names:
        # Equal operations are one node, so a call that is made again is the node itself.
        for other in others[-_NEAREST:]:
            for pair in ((state, other), (other, state)):
                if compute_nodes(graph, _FOLDS[name][0], *pair)[0] is node:
                    return name, other
                graph.forget_since(before)
    raise LeavesClassError(node, rank=-1)
