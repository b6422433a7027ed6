"""Affine maps that begin with a first value: a state that is NaN is replaced, and any other one is mapped.

Law: ``h[t] = v[t] if isnan(h[t-1]) else a[t] h[t-1] + b[t]``. A map is (a, b, v). Composition, first 1, then 2: numbers
become ``a2 (a1 h + b1) + b2``, or v2 if b1 is NaN, since that is the state then. NaN becomes v1, and this is mapped by
the second map: ``v = v2 if isnan(v1) else a2 v1 + b2``. Identity: (1, 0, NaN). Proof: this is the composition of the
functions, in the two cases of a number and NaN. NaN that the loop makes of opposite infinities is not seen.

A flag says that all numbers become b, such as in a step with a reset. NaN still becomes v, so the map is not constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.operators.adjoint import ONE
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, reachable
from gpuscan.operators.loops.affine import Inner, PlusTimes
from gpuscan.operators.loops.semirings import Forms, ScaledMaps, scale_node
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    loses_infinities,
)
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class FirstAffineMaps(Composition):
    """Maps (factor, exponent, b, v, resets).

    Attributes:
        maps: how the maps of numbers are composed.
    """

    maps: ScaledMaps

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        maps = self.maps
        factor, exponent, shift = maps.combine(left[:3], right[:3])
        _, _, mapped = maps.combine([left[0], left[1], left[3]], right[:3])
        shift, mapped = (np.where(right[4], right[2], number) for number in (shift, mapped))
        missing = np.isnan(left[2])
        resets = left[4] | right[4] | missing
        factor = np.where(resets, np.zeros_like(factor), factor)
        exponent = np.where(resets, np.zeros_like(exponent), exponent)
        shift = np.where(missing, right[3], shift)
        return [factor, exponent, shift, np.where(np.isnan(left[3]), right[3], mapped), resets]

    def start(self, state: Numbers) -> list[Number]:
        zero = np.zeros_like(state[0])
        return [zero, zero.astype(np.int32), state[0], state[0], np.ones_like(zero).astype(np.bool_)]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[3]]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of affine maps with a first value.

    Raises:
        LeavesClassError: the step is no such map of one float, or does not ask whether the state is NaN.
    """
    state, result, graph = part.states[0], part.results[0], part.graph
    nodes = reachable([result])
    tests = [node for node in nodes if (node.op, node.args) in (("isnan", (state,)), ("not_equal", (state, state)))]
    if len(part.state_indices) > 1 or state.scalar.kind != "float" or not tests:
        raise LeavesClassError(result, rank=-1)
    inputs = {node: node for node in nodes if node.op == "input"}
    first = part.result_at(np.nan)
    (present,) = copy_nodes([result], graph, inputs | {test: graph.constant(False, BOOL) for test in tests})
    inner = Inner(part.step, part.state_indices, part.initial, result=present)
    semiring = PlusTimes(inner)
    forms = Forms(semiring)
    form = forms.of(present)
    weight = form.weights.get(0, semiring.zero(state))
    weight = semiring.one(state) if weight is ONE else weight
    shift = forms.whole_shift(form)
    shift = semiring.zero(state) if shift is None else shift
    resets = graph.constant(False, BOOL)
    if form.constant is not None:
        resets, weight = form.constant, graph.select(form.constant, semiring.zero(state), weight)
    wide = semiring.calculus.wide
    numbers = (*scale_node(graph, wide(weight)), wide(shift), wide(first), resets)
    law = "h[t] = v if h[t-1] is NaN else a h[t-1] + b"
    maps = FirstAffineMaps(ScaledMaps(PlusTimes, loses_infinities(inner, form.constant)))
    return LoopStage("affine", law, part.state_indices, numbers, None, maps)
