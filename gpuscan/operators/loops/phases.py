"""Phases: sums modulo a constant m, such as the phase of an oscillator, an angle, a time of day or a day of the year.

Law: ``h[t] = (h[t-1] + b[t]) mod m``, in the range from k to k + m. A map is b, between -m and m. Composition, first
b1, then b2: ``b1 + b2``. If the sum leaves that range, m is subtracted from it, or added to it. Identity: 0.
Proof: ``(h + b1) mod m`` differs from ``h + b1`` by a multiple of m, which the next remainder removes.

A phase is exact within rounding on the circle, so a number near one end of the range may be found near the other end.
An increment keeps its sign: as a number near m, a small negative one would be rounded to fewer digits.

Phases of integers are found by their values, as ``np.where(day == 365, 1, day + 1)`` is (see `whole_functions`), and
are exact. A sum with end-around carry, as Internet checksums have it, is ``h + b`` up to m, and ``h + b - m`` above it.
Its composition is the same sum of b1 and b2: those are remainders from 1 to m, and 0 only if both are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.operators.adjoint import ONE
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.affine import PlusTimes
from gpuscan.operators.loops.polynomials import simplify
from gpuscan.operators.loops.semirings import INT32, INT64, Forms
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    Shape,
    StepPart,
    choose_present,
    compute_nodes,
    constant_choice,
)
from gpuscan.operators.traced_array import Number


@dataclass(frozen=True)
class PhaseMaps(Composition):
    """Maps (b,). A constant map to the value v has the number ``v - low``.

    Attributes:
        modulus: the length of the range.
        low: its lower end.
        carries: True for end-around carry: the range ends with m, and not below it.
    """

    modulus: float
    low: float
    carries: bool = False

    @property
    def keeps_start(self) -> bool:
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        total = left[0] + right[0]
        modulus = np.full_like(total, self.modulus)
        total = np.where(total > modulus if self.carries else total >= modulus, total - modulus, total)
        return [np.where(total <= -modulus, total + modulus, total)]

    def start(self, state: Numbers) -> list[Number]:
        # The values in `init` may be outside of the range.
        distance = state[0] - np.full_like(state[0], self.low)
        if distance.dtype.kind != "f":
            return [distance.astype(np.int32)]
        return [np.fmod(distance, np.full_like(distance, self.modulus))]

    def state(self, numbers: Numbers) -> list[Number]:
        (total,) = numbers
        modulus, low = (np.full_like(total, value) for value in (self.modulus, self.low))
        return [np.where(total < np.zeros_like(total), total + modulus, total) + low]


@dataclass(frozen=True, eq=False)
class _Phase:
    """A number that is a phase: the old phase plus an increment, or a value that does not depend on the old phase.

    Attributes:
        increment: the number that is added to the old phase; None if the number never depends on the old phase. Of
            integers, it is added to the distance from the lower end of the range.
        modulus, low: the length of the range and its lower end. `modulus` is None where `increment` is.
        constant: the condition under which the number is `value`; None if there is none.
        value: the number under this condition, or always if `increment` is None.
    """

    increment: Node | None = None
    modulus: float | None = None
    low: float = 0
    constant: Node | None = None
    value: Node | None = None


class _Phases(NodeForms[_Phase]):
    """Finds the phase that each node computes."""

    def __init__(self, part: StepPart) -> None:
        super().__init__(part)
        self.semiring = PlusTimes(part)
        self.forms = Forms(self.semiring)
        self.shape = _wrapping_shape(part)
        # True if a step may keep the old phase.
        self.keeps = False

    def _derive(self, node: Node) -> _Phase:
        part, graph, args = self.part, self.graph, node.args
        if not part.varies(node):
            return _Phase(value=node)
        if self.shape is not None:
            if node.op == "input":
                return _Phase(graph.constant(0, INT64), self.shape.modulus, self.shape.base)
            if node in part.shapes:
                return self._wrap_integer(node, part.shapes[node])
        wrapped = _split_remainder(node)
        if wrapped is not None:
            return self._wrap(node, *wrapped)
        if node.op in ("add", "subtract") and args[1].is_constant:
            phase, offset = self.of(args[0]), args[1].reveal(float)
            if phase.constant is None and phase.low == 0:
                return _Phase(phase.increment, phase.modulus, -offset if node.op == "subtract" else offset)
        if node.op == "select" and not part.varies(args[0]):
            yes, no = self._side(args[1], args[2]), self._side(args[2], args[1])
            if yes.modulus is not None and no.modulus is not None and (yes.modulus, yes.low) != (no.modulus, no.low):
                raise LeavesClassError(node, "chooses between phases of different ranges", rank=1)
            are_constant = yes.modulus is None, no.modulus is None
            constant = constant_choice(graph, args[0], are_constant, (yes.constant, no.constant))
            increment = choose_present(graph, args[0], yes.increment, no.increment)
            value = choose_present(graph, args[0], yes.value, no.value)
            one = no if yes.modulus is None else yes
            return _Phase(increment, one.modulus, one.low, constant, value)
        raise LeavesClassError(node, rank=-1)

    def _side(self, node: Node, other: Node) -> _Phase:
        """Return the phase of one side of a choice, which may be the old phase itself if the other side is a phase."""
        if node is not self.part.states[0] or self.shape is not None:
            return self.of(node)
        phase, self.keeps = self.of(other), True
        if phase.modulus is None:
            raise LeavesClassError(node, rank=-1)
        # An increment is added to the old phase, which is the distance from the lower end plus that end.
        return _Phase(self.graph.constant(-phase.low, node.scalar), phase.modulus, phase.low)

    def _wrap(self, node: Node, total: Node, modulus: float) -> _Phase:
        """Return the phase of the remainder of a sum."""
        form = self.forms.of(total)
        if dict(form.weights) != {0: ONE} or form.constant is not None:
            raise LeavesClassError(node, "takes the rest of a number other than a sum of the phase", rank=1)
        return _Phase(form.shift or self.semiring.zero(total), modulus)

    def _wrap_integer(self, node: Node, shape: Shape) -> _Phase:
        phase = self._wrap(node, shape.total, shape.modulus)
        assert phase.increment is not None
        increment = self.graph.cast(phase.increment, INT64)
        if shape.kind == "wrap":
            amount, modulus = (self.graph.constant(value, INT64) for value in (shape.offset, shape.modulus))
            increment = self.graph.apply("add", (increment, amount), INT64)
            increment = self.graph.apply("remainder", (increment, modulus), INT64)
        return _Phase(increment, shape.modulus, shape.base)


def _wrapping_shape(part: StepPart) -> Shape | None:
    """Return what the functions of integers in a part are, if all of them wrap in one range; None if they do not."""
    shapes = list(part.shapes.values())
    if not shapes or len({(shape.kind, shape.modulus, shape.base) for shape in shapes}) > 1:
        return None
    (low, high), shape = part.bounds, shapes[0]
    if shape.kind not in ("wrap", "carry") or low is None or high is None:
        return None
    last = shape.base + shape.modulus - (shape.kind == "wrap")
    return shape if shape.base <= low and high <= last else None


def _split_remainder(node: Node) -> tuple[Node, float] | None:
    """Return the dividend and the constant divisor if a node is a remainder, else None. ``h - floor(h)`` is one."""
    if node.op == "remainder" and node.args[1].is_constant:
        return node.args[0], node.args[1].reveal(float)
    if node.op == "subtract" and node.args[1].op == "floor" and node.args[1].args[0] is node.args[0]:
        return node.args[0], 1.0
    return None


def derive(part: StepPart) -> LoopStage:
    """Return the stage of a phase.

    Raises:
        LeavesClassError: the step is no sum of one number modulo a constant.
    """
    if len(part.state_indices) > 1 or (not part.shapes and part.states[0].scalar.kind != "float"):
        raise LeavesClassError(part.results[0], rank=-1)
    if part.states[0].scalar.kind == "float" and part.states[0].scalar.bits > 32:
        raise LeavesClassError(part.results[0], rank=-1)
    graph, phases = part.graph, _Phases(part)
    if phases.shape is None and part.shapes:
        # An integer may begin outside of the range, as it does not within rounding only.
        raise LeavesClassError(part.results[0], rank=-1)
    phase = phases.of(part.results[0])
    low, modulus = phase.low, phase.modulus
    if modulus is None or phase.increment is None or not 0 < modulus < np.inf:
        raise LeavesClassError(part.results[0], rank=-1)
    if phases.keeps and not _begins_inside(part, low, modulus):
        why = f"is not taken of a first phase that may be outside of {low:g} to {low + modulus:g}"
        raise LeavesClassError(_remainder_of(part), why, rank=2)
    value, shape = phase.value, phases.shape
    law = f"h[t] = (h[t-1] + b) mod {modulus:g}" + (f", from {low:g}" if low else "")
    if shape is not None:
        number = graph.cast(phase.increment, INT32)
        value = value and graph.cast(value, INT32)
        law = law.replace("mod", "with end-around carry from") if shape.kind == "carry" else law
    else:
        number = _float_increment(part, phase)
    if phase.constant is not None and value is not None:
        offset = graph.constant(low, value.scalar)
        distance = part.calculus.wide(graph.apply("subtract", (value, offset), offset.scalar))
        number = graph.select(phase.constant, distance, number)
    maps = PhaseMaps(modulus, low, shape is not None and shape.kind == "carry")
    return LoopStage("affine", law, part.state_indices, (number,), phase.constant, maps)


def _float_increment(part: StepPart, phase: _Phase) -> Node:
    """Return the increment of a phase of floats, between -m and m.

    Raises:
        LeavesClassError: the phase may leave its range.
    """
    graph, low, modulus, increment = part.graph, phase.low, phase.modulus, phase.increment
    assert modulus is not None
    assert increment is not None
    if not _stays_inside(phase.value, low, modulus):
        why = f"is taken of a phase that may be reset to a number outside of {low:g} to {low + modulus:g}"
        raise LeavesClassError(_remainder_of(part), why, rank=2)
    offset = graph.constant(low, increment.scalar)
    increment = simplify(graph, part.calculus.add(increment, offset)) if low else increment
    (number,) = compute_nodes(graph, lambda b: np.fmod(b, np.full_like(b, modulus)), part.calculus.wide(increment))
    return number


def _remainder_of(part: StepPart) -> Node:
    """Return the operation that messages name."""
    return next(node for node in reachable(part.results) if part.varies(node) and _split_remainder(node) is not None)


def _begins_inside(part: StepPart, low: float, modulus: float) -> bool:
    """Return True if all values of `init` are known to be in the range."""
    known = [values is not None and bool(np.all((values >= low) & (values < low + modulus))) for values in part.initial]
    return bool(known) and all(known)


def _stays_inside(value: Node | None, low: float, modulus: float) -> bool:
    """Return True if a number is a constant in the range, or a choice between such numbers."""
    if value is None:
        return True
    if value.op == "select":
        return all(_stays_inside(number, low, modulus) for number in value.args[1:])
    return value.is_constant and low <= value.reveal(float) < low + modulus
