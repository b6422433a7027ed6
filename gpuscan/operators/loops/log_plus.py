"""Affine maps over (logaddexp, +): h -> log(exp(h + a) + exp(b)), as sums of probabilities in logarithms have them.

Law: ``h[t] = logaddexp(h[t-1] + a, b)``. Composition, first (a1, b1), then (a2, b2): ``(a1 + a2, logaddexp(b1 + a2,
b2))``. Identity: (0, -inf). Proof: it is the semiring (+, x) of positive numbers, seen through the logarithm, which is
one-to-one. Several numbers are maps with a matrix, such as the forward algorithm of a hidden Markov model.
"""

from __future__ import annotations

import numpy as np

from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.semirings import derive_stage
from gpuscan.operators.loops.stage import LeavesClassError, Part, Stage
from gpuscan.operators.loops.tropical import MaxPlus


class LogPlus(MaxPlus):
    """The semiring of logarithms under logaddexp and addition."""

    kind = "log-plus"
    law = "h[t] = logaddexp(h[t-1] + a, b)"
    plus: np.ufunc = np.logaddexp
    extremum = "logaddexp"

    def sum(self, a: Node, b: Node) -> Node:
        return self.calculus.call("logaddexp", a, b)


def derive(part: Part) -> Stage:
    """Return the stage of maps over (logaddexp, +).

    Raises:
        LeavesClassError: an operation is none of such maps.
    """
    if any(node.scalar.kind != "float" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    return derive_stage(LogPlus(part), scales=False)
