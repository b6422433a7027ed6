"""The first value that is not missing: a state that is replaced while it is missing, as -1 or NaN may say.

Law: ``h[t] = v[t] if missing(h[t-1]) else h[t-1]``, where missing is ``np.isnan`` or a comparison with a constant. A
map is (taken, v): a value, and whether there is one. Composition: the right value if there is one, and if the left one
is missing or not there; otherwise the left. Identity: no value. Proof: every order of composition ends with the first
value that is not missing, or with the last value if all are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node
from gpuscan.operators.loops.stage import (
    SIGNS,
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    both,
    find_comparison,
)
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class _Missing:
    """The condition by which a state is missing.

    Attributes:
        test: the comparison with the limit, or ``"isnan"``.
        limit: the limit.
        negates: True if a state is missing where the test fails.
    """

    test: str
    limit: float
    negates: bool

    def of(self, number: Number) -> Number:
        if self.test == "isnan":
            is_missing = np.isnan(number)
        else:
            is_missing = getattr(np, self.test)(number, np.full_like(number, self.limit))
        return ~is_missing if self.negates else is_missing

    def __str__(self) -> str:
        test = "h[t-1] is NaN" if self.test == "isnan" else f"h[t-1] {SIGNS[self.test]} {self.limit}"
        return f"not ({test})" if self.negates else test


@dataclass(frozen=True)
class FirstValues(Composition):
    """Maps (taken, value)."""

    missing: _Missing

    @property
    def takes_steps(self) -> bool:
        # A step is as short as a composition.
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        wins = right[0] & (~left[0] | self.missing.of(left[1]))
        return [left[0] | right[0], np.where(wins, right[1], left[1])]

    def start(self, state: Numbers) -> list[Number]:
        return [np.ones_like(state[0]).astype(np.bool_), state[0]]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[1]]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of first values.

    Raises:
        LeavesClassError: the state is not replaced by a number where it is missing.
    """
    node, state = part.results[0], part.states[0]
    if (
        len(part.state_indices) > 1
        or node.op != "select"
        or state not in node.args[1:]
        or state.scalar.kind == "complex"
    ):
        raise LeavesClassError(node, rank=-1)
    condition, yes, no = node.args
    value, negates = (yes, False) if no is state else (no, True)
    if part.varies(value):
        raise LeavesClassError(node, rank=-1)
    missing, valid = _parse(part, condition, negates)
    valid = part.graph.constant(True, BOOL) if valid is None else valid
    law = f"h[t] = v if {missing} else h[t-1]"
    return LoopStage("extremum", law, part.state_indices, (valid, value), None, FirstValues(missing))


def _parse(part: StepPart, node: Node, negates: bool) -> tuple[_Missing, Node | None]:
    """Return the condition on the state, and one on the input that must hold as well; None for none."""
    state = part.states[0]
    if node.op == "logical_not":
        return _parse(part, node.args[0], not negates)
    if node.op == "logical_and" and not negates and part.varies(node.args[0]) != part.varies(node.args[1]):
        varying, free = node.args if part.varies(node.args[0]) else node.args[::-1]
        missing, valid = _parse(part, varying, negates)
        return missing, both(part.graph, valid or free, free)
    if node.op == "isnan" and node.args[0] is state:
        return _Missing("isnan", 0, negates), None
    test, limit = find_comparison(node, state)
    if test and limit.is_constant:
        return _Missing(test, limit.value.item(), negates), None
    raise LeavesClassError(node, rank=-1)
