"""Running extrema by choice, with what belongs to them: (best, payload) is replaced where a new value is better.

Law: ``h[t] = (v, p)[t] if v[t] is better than the best of h[t-1] else h[t-1]``, where better is ``>``, ``>=``, ``<`` or
``<=``. A map is (taken, v, p): a candidate, and whether there is one. Composition: the right candidate if it is better
than the left one, or if there is no left one; otherwise the left. Identity: no candidate. Proof: better-than is a total
preorder, so every order of comparison ends with the same candidate. It is the last one that is better than all
candidates before it. A NaN is no candidate if the loop's comparison does not take it. If the comparison takes it, the
map is constant (see `stage`) and resets the state. A comparison that takes every value where the state is NaN puts
NaN below all candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node
from gpuscan.operators.loops.stage import (
    NEGATED,
    SIGNS,
    SWAPPED,
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    both,
    either,
    find_comparison,
    negate_condition,
)
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class BestMaps(Composition):
    """Maps (taken, value, payload, ...).

    Attributes:
        better: the comparison by which a new value is better than an old one.
        replaces_nan: True if every value is better than NaN.
    """

    better: str
    replaces_nan: bool = False

    @property
    def takes_steps(self) -> bool:
        # A step is as short as a composition.
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        better = getattr(np, self.better)(right[1], left[1])
        if self.replaces_nan:
            better |= np.isnan(left[1])
        wins = right[0] & (~left[0] | better)
        return [left[0] | right[0], *(np.where(wins, new, old) for old, new in zip(left[1:], right[1:], strict=True))]

    def start(self, state: Numbers) -> list[Number]:
        return [state[0] == state[0] if state[0].dtype.kind != "f" else np.isnan(state[0]) | True, *state]

    def state(self, numbers: Numbers) -> list[Number]:
        return list(numbers[1:])


@dataclass(frozen=True)
class _Update:
    """A conditional update of numbers of the state.

    Attributes:
        comparison, negates: what compares the old number with the new one, and True if it keeps the old one.
        condition: a condition on the input that must be met as well; None for none.
        new: the new number.
        resets: a condition on the input where the new number is taken without a comparison; None for nowhere.
    """

    comparison: Node
    negates: bool
    condition: Node | None
    new: Node
    resets: Node | None = None


def derive(part: StepPart) -> LoopStage:
    """Return the stage of an extremum with its payload.

    Raises:
        LeavesClassError: the numbers of the part are not replaced together by a better value.
    """
    for index, (state, node) in enumerate(zip(part.states, part.results, strict=True)):
        update = _update(part, state, node)
        if update is not None and _value(part, update, state) is not None:
            return _stage(part, index, update)
    raise LeavesClassError(part.results[0], rank=-1)


def _update(part: StepPart, state: Node, node: Node) -> _Update | None:
    """Return the update that ``np.where`` of a comparison is."""
    if node.op in ("maximum", "minimum") and state in node.args and node.scalar.kind != "float":
        value = node.args[0] if node.args[1] is state else node.args[1]
        if not part.varies(value):
            op = "greater" if node.op == "maximum" else "less"
            return _Update(part.graph.apply(op, (value, state), BOOL), False, None, value)
    if node.op != "select":
        return None
    condition, yes, no = node.args
    new: Node | None
    new, negates = (yes, False) if no is state else (no, True) if yes is state else (None, False)
    if new is None or part.varies(new):
        return None
    return _condition(part, condition, negates, new)


def _condition(part: StepPart, node: Node, negates: bool, new: Node) -> _Update | None:
    if node.op == "logical_not":
        return _condition(part, node.args[0], not negates, new)
    if node.op in ("logical_and", "logical_or") and part.varies(node.args[0]) != part.varies(node.args[1]):
        varying, free = node.args if part.varies(node.args[0]) else node.args[::-1]
        inner = _condition(part, varying, negates, new)
        if inner is None:
            return None
        free = negate_condition(part.graph, free) if negates else free
        if (node.op == "logical_and") == negates:
            return replace(inner, resets=either(part.graph, inner.resets, free))
        condition = both(part.graph, inner.condition or free, free)
        return replace(inner, condition=condition, resets=both(part.graph, inner.resets, free))
    if node.op in SWAPPED:
        return _Update(node, negates, None, new)
    return None


def _value(part: StepPart, update: _Update, state: Node) -> tuple[str, Node] | None:
    """Return how a new value is compared with the old one, and the value."""
    op, old = find_comparison(update.comparison, update.new) or ("", update.new)
    return (op, update.new) if op and old is state and not part.varies(update.new) else None


def _stage(part: StepPart, index: int, best: _Update) -> LoopStage:
    graph = part.graph
    choice = _value(part, best, part.states[index])
    assert choice is not None
    op, value = choice
    constant = None
    valid = best.condition or graph.constant(True, BOOL)
    if value.scalar.kind == "float":
        nan = graph.apply("isnan", (value,), BOOL)
        if best.negates:
            # A value that is not worse is taken, so NaN is.
            constant = both(graph, valid, nan)
        else:
            valid = graph.apply("logical_and", (valid, negate_condition(graph, nan)), BOOL)
    # "v if not v <= h" replaces NaN, which "v if v > h" keeps.
    replaces_nan = best.negates and value.scalar.kind == "float"
    op = NEGATED[op] if best.negates else op
    if best.resets is not None:
        valid = graph.apply("logical_or", (valid, best.resets), BOOL)
        constant = either(graph, constant, best.resets)
    numbers = [value]
    order = [index]
    for other, (state, node) in enumerate(zip(part.states, part.results, strict=True)):
        if other == index:
            continue
        update = _update(part, state, node)
        if update is None or not _same(update, best):
            raise LeavesClassError(node, "is not replaced together with the best value", rank=1)
        numbers.append(update.new)
        order.append(other)
    state_indices = tuple(part.state_indices[i] for i in order)
    law = (
        f"h[t] = (v, p) if v {SIGNS[op]} h[t-1][0] else h[t-1]"
        if len(order) > 1
        else f"h[t] = {'max' if op.startswith('greater') else 'min'}(h[t-1], v)"
    )
    return LoopStage("extremum", law, state_indices, (valid, *numbers), constant, BestMaps(op, replaces_nan))


def _same(one: _Update, other: _Update) -> bool:
    return replace(one, new=other.new) == other


def followers(part: StepPart, others: list[int]) -> list[int]:
    """Return which other numbers of the carry are replaced together with the only number of a part.

    Args:
        others: the numbers of the carry to look at.
    """
    step = part.step
    best = _update(part, part.states[0], part.results[0])
    if best is None or _value(part, best, part.states[0]) is None:
        return []
    indices = []
    for other in others:
        joint = StepPart(step, (part.state_indices[0], other))
        update = _update(joint, step.states[other], step.results[other])
        if update is not None and _same(update, best):
            indices.append(other)
    return indices
