"""Bitwise maps: each bit of the new state is a function of the same bit of the old one, h -> (h & m) ^ x.

Law: ``h[t] = (h[t-1] & m[t]) ^ x[t]``. Each of the four functions of one bit has this form: 0, 1, the bit, and its
negation. Composition, first (m1, x1), then (m2, x2): ``(m1 & m2, (x1 & m2) ^ x2)``. Identity: (all ones, 0). Proof:
``&`` distributes over ``^``. The numbers follow from the step itself, which is computed for a state of zeros and one
of ones: ``x = f(0)`` and ``m = f(0) ^ f(~0)``. Bools have one bit, and any function of them alone is such a map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node, reachable
from gpuscan.operators.loops.stage import Composition, LeavesClassError, LoopStage, Numbers, StepPart
from gpuscan.operators.traced_array import Number

_BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "invert", "select", "cast", "view"})

# Operations of other classes: a step that has them is refused for another reason.
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "negative", "maximum", "minimum"})


@dataclass(frozen=True)
class BitMaps(Composition):
    """Maps (m, x) of one number."""

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        return [left[0] & right[0], (left[1] & right[0]) ^ right[1]]

    def start(self, state: Numbers) -> list[Number]:
        return [np.zeros_like(state[0]), state[0]]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[1]]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of bitwise maps.

    Raises:
        LeavesClassError: the state is no single integer or bool, or an operation moves bits.
    """
    state, result = part.states[0], part.results[0]
    if len(part.state_indices) > 1 or state.scalar.kind not in ("bool", "signed", "unsigned"):
        raise LeavesClassError(result, rank=-1)
    if state.scalar != BOOL:
        for node in reachable([result]):
            if part.varies(node) and node is not state:
                _check(part, node)
    ones = 1 if state.scalar == BOOL else -1 if state.scalar.kind == "signed" else 2**state.scalar.bits - 1
    low, high = part.result_at(0), part.result_at(ones)
    op = "logical_xor" if state.scalar == BOOL else "bitwise_xor"
    mask = part.graph.apply(op, (low, high), state.scalar)
    law = "h[t] = (h[t-1] & m) ^ x"
    return LoopStage("bitwise", law, part.state_indices, (mask, low), None, BitMaps())


def _check(part: StepPart, node: Node) -> None:
    """Raise LeavesClassError unless each bit of a number is a function of that bit of the state."""
    widths = {number.scalar.bits for number in (node, *node.args) if part.varies(number)}
    moves = node.op in ("cast", "view") and len(widths) > 1
    kinds = {number.scalar.kind for number in (node, *node.args) if part.varies(number)}
    if node.op not in _BITWISE or moves or kinds - {"signed", "unsigned"}:
        raise LeavesClassError(node, rank=-1 if node.op in _ARITHMETIC else 0)
    if node.op == "select" and part.varies(node.args[0]):
        raise LeavesClassError(node)
