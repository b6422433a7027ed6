"""Clamps that end: a state beyond a threshold stays at one value, as a ruined account or "no event yet" does.

Law: ``h[t] = v if h[t-1] <= t0 else min(max(h[t-1] + a, low), high)`` with constants v and t0, where v is up to t0. It
is the same with ``<`` for floats, and with the threshold above all other states.

A map is (t, a, low, high): v for a state up to t, and a clamp for the others. Composition, first 1, then 2: the clamps
are composed as in `tropical`. A state up to t1 has become v, and stays so. The first clamp takes other states to t2 or
below if ``h + a1 <= t2``, unless its bounds exclude or enforce this. So t is the larger of t1 and ``t2 - a1``, where
minus infinity takes the place of the difference if ``low1 > t2``, and infinity if ``high1 <= t2``. Identity: t is minus
infinity. Proof: a clamp does not fall, so the states that it takes to t2 or below are all those up to a number.

A map without a threshold must keep v, such as one that keeps the state. np.where with a condition on the input may also
reset the state to any value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node
from gpuscan.operators.loops.max_times import stays_nonnegative
from gpuscan.operators.loops.stage import (
    NEGATED,
    SIGNS,
    SWAPPED,
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    find_comparison,
)
from gpuscan.operators.loops.tropical import Clamp, ClampMaps, Clamps
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class End:
    """Where a state stays for ever.

    Attributes:
        test: the comparison of a state with the threshold: ``"less"``, ``"less_equal"`` or their likes.
        threshold: the threshold.
        value: the value that such a state has from then on.
    """

    test: str
    threshold: float
    value: float

    @property
    def is_below(self) -> bool:
        return self.test.startswith("less")

    def holds(self, state: object, threshold: object) -> Any:
        return getattr(np, self.test)(state, threshold)


@dataclass(frozen=True)
class AbsorbingMaps(Composition):
    """Maps (t, a, low, high).

    Attributes:
        clamps: how the clamps are composed.
        end: where a state stays.
    """

    clamps: ClampMaps
    end: End

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        (t1, a1, low1, high1), t2, end = left, right[0], self.end
        shift, low, high = self.clamps.combine(left[1:], right[1:])
        value, never = np.full_like(low, end.value), self.never(t1)
        near, far = (low1, high1) if end.is_below else (high1, low1)
        # `near` is the bound on the side of the threshold. If it is not beyond it, nor is any other state.
        taken = np.where(end.holds(near, t2), self.clamps.add(t2, -a1), never)
        all_taken = end.holds(far, t2)
        taken = np.where(all_taken, -never, taken)
        # NaN of an increment takes no state beyond the threshold.
        threshold = np.fmax(t1, taken) if end.is_below else np.fmin(t1, taken)
        if end.is_below:
            return [threshold, shift, low, np.where(all_taken, value, high)]
        return [threshold, shift, np.where(all_taken, value, low), high]

    def never(self, like: Number) -> Number:
        """Return the threshold that no state is beyond."""
        largest = np.inf if like.dtype.kind == "f" else 2**63 - 1 if self.clamps.saturates else 2**62
        return np.full_like(like, -largest if self.end.is_below else largest)

    def start(self, state: Numbers) -> list[Number]:
        number = state[0] if state[0].dtype.kind == "f" else state[0].astype(np.int64)
        return [self.never(number), *self.clamps.start([number])]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[3] if self.end.is_below else numbers[2]]


@dataclass(frozen=True, eq=False)
class _Map:
    """A clamp, and the condition on x under which it ends; None if it never does."""

    clamp: Clamp
    ends: Node | None = None


class _Maps(NodeForms[_Map]):
    """The maps that nodes compute of the state.

    Attributes:
        end: where a state stays; None if no node has told it.
    """

    def __init__(self, part: StepPart) -> None:
        super().__init__(part)
        self.clamps = Clamps(part)
        self.end: End | None = None

    def _derive(self, node: Node) -> _Map:
        if node.op != "select":
            return _Map(self.clamps.of(node))
        condition, yes, no = node.args
        if not self.part.varies(condition):
            one, other = self.of(yes), self.of(no)
            return _Map(self.clamps.choice(condition, one.clamp, other.clamp), self._choose(condition, one, other))
        end = self._end(node)
        if self.end not in (None, end):
            raise LeavesClassError(node, "has another threshold than the rest of the step", rank=1)
        self.end = end
        rest = no if self._is_fixed(yes) else yes
        return _Map(self.clamps.of(rest), self.graph.constant(True, BOOL))

    def _choose(self, condition: Node, one: _Map, other: _Map) -> Node | None:
        if one.ends is other.ends:
            return one.ends
        never = self.graph.constant(False, BOOL)
        return self.graph.select(condition, one.ends or never, other.ends or never)

    def _is_fixed(self, node: Node) -> bool:
        return node.is_constant or (node.op == "input" and self.part.varies(node))

    def _end(self, node: Node) -> End:
        """Return where a choice by the state lets it stay."""
        part, (low, high), (condition, yes, no) = self.part, self.part.bounds, node.args
        state = part.states[0]
        fixed = yes if self._is_fixed(yes) and not (no.is_constant and yes is state) else no
        negates = fixed is no
        while condition.op == "logical_not":
            condition, negates = condition.args[0], not negates
        test, limit = find_comparison(condition, state)
        if not test or not limit.is_constant or not self._is_fixed(fixed):
            raise LeavesClassError(node, rank=-1)
        test = NEGATED[test] if negates else test
        threshold, is_float = limit.value.item(), state.scalar.kind == "float"
        nonnegative = is_float and threshold == 0 and stays_nonnegative(part)
        if test == "equal":
            # The state that is equal to the least or to the greatest one.
            test = "less_equal" if nonnegative or low == threshold else "greater_equal" if high == threshold else ""
        if not is_float and test in ("less", "greater"):
            test, threshold = f"{test}_equal", threshold + (1 if test == "greater" else -1)
        bound = (0 if nonnegative else low) if test.startswith("less") else high
        value = fixed.value.item() if fixed.is_constant else threshold if bound == threshold else None
        if test not in SWAPPED or value is None or not getattr(np, test)(value, threshold):
            raise LeavesClassError(node, rank=-1)
        return End(test, threshold, value)

    def keeps(self, node: Node, end: End) -> bool:
        """Return True if all maps without a threshold keep the value of the end."""
        if node.op == "select" and not self.part.varies(node.args[0]):
            return all(self.keeps(arg, end) for arg in node.args[1:])
        form = self.of(node)
        if form.ends is not None or form.clamp.is_constant:
            return True
        bounds = [bound for bound in (form.clamp.low, form.clamp.high) if bound is not None]
        return form.clamp.shift is None and not bounds


def derive(part: StepPart) -> LoopStage:
    """Return the stage of clamps that end.

    Raises:
        LeavesClassError: the step is no clamp with one threshold beyond which states stay at one value.
    """
    node, state, graph = part.results[0], part.states[0], part.graph
    kinds = ("signed", "unsigned", "float")
    if len(part.state_indices) > 1 or state.scalar.kind not in kinds or state.scalar.name == "uint64":
        raise LeavesClassError(node, rank=-1)
    maps = _Maps(part)
    form = maps.of(node)
    clamps, clamp, end = maps.clamps, form.clamp, maps.end
    if end is None or form.ends is None or clamps.nan - {"keep"} or clamp.replaces or clamps.cancels:
        raise LeavesClassError(node, rank=-1)
    if not maps.keeps(node, end):
        raise LeavesClassError(node, "may leave a value that other steps never leave", rank=1)
    is_float = clamps.scalar.kind == "float"
    saturates = state.scalar.bits == 64 and not is_float
    composition = AbsorbingMaps(ClampMaps(True, True, True, saturates=saturates, lacks=is_float), end)
    far = np.inf if is_float else clamps.far
    low, high = (graph.constant(value, clamps.scalar) for value in (-far, far))
    bounds = [bound or absent for bound, absent in zip(clamps.bounds(clamp), (low, high), strict=True)]
    if clamp.constant is not None and clamp.value is not None:
        bounds = [graph.select(clamp.constant, clamp.value, bound) for bound in bounds]
    never, threshold = low if end.is_below else high, graph.constant(end.threshold, clamps.scalar)
    threshold = graph.select(form.ends, threshold, never)
    if clamp.constant is not None:
        threshold = graph.select(clamp.constant, never, threshold)
    numbers = (threshold, clamp.shift or graph.constant(0, clamps.scalar), *bounds)
    law = f"h[t] = {end.value} if h[t-1] {SIGNS[end.test]} {end.threshold} else min(max(h[t-1] + a, low), high)"
    return LoopStage("clamp", law, part.state_indices, numbers, clamp.constant, composition)
