"""Bits that move together: h -> (shift(h, k) & m) ^ x, with a shift that the input decides, as in packers of bits.

Law: ``h[t] = (shift(h[t-1], k[t]) & m[t]) ^ x[t]``, where shift is ``h << k``, or ``h >> -k`` for k below 0, and m has
no bit that the shift brings in. Composition, first (k1, m1, x1), then (k2, m2, x2): ``(k1 + k2, shift(m1, k2) & m2,
(shift(x1, k2) & m2) ^ x2)``. Identity: (0, all ones, 0). Proof: bit p of ``shift(shift(h, k1) & m1, k2)`` is bit
``p - k1 - k2`` of h if bit ``p - k2`` of m1 is set, and 0 otherwise. That is bit p of
``shift(h, k1 + k2) & shift(m1, k2)``. A sum of shifts that leaves the word has a mask of 0, so it need not be counted
further.

Unsigned numbers may move in both directions, and signed ones to the left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.semirings import INT32
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    compute_nodes,
)
from gpuscan.operators.traced_array import Number

_SHIFTS = ("left_shift", "right_shift")


def _bits(number: Number) -> int:
    return 8 * np.dtype(number.dtype).itemsize


def _shift(number: Any, places: Number) -> Any:
    """Return a number shifted to the left, or by a negative number of places to the right."""
    zero = np.zeros_like(places)
    left = number << np.maximum(places, zero).astype(number.dtype)
    if number.dtype.kind == "i":
        return left
    return np.where(places < zero, number >> np.maximum(-places, zero).astype(number.dtype), left)


@dataclass(frozen=True)
class ShiftedBits(Composition):
    """Maps (k, m, x)."""

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        (k1, m1, x1), (k2, m2, x2) = left, right
        most = _bits(m1)
        return [np.clip(k1 + k2, -most, most), _shift(m1, k2) & m2, (_shift(x1, k2) & m2) ^ x2]

    def start(self, state: Numbers) -> list[Number]:
        return [np.zeros_like(state[0]).astype(np.int32), np.zeros_like(state[0]), state[0]]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[2]]


@dataclass(frozen=True, eq=False)
class _Moved:
    """A number as ``(shift(state, places) & mask) ^ value``."""

    places: Node
    mask: Node
    value: Node


class _Moves(NodeForms[_Moved]):
    """The numbers that nodes compute of the state."""

    def _derive(self, node: Node) -> _Moved:
        part, graph, scalar = self.part, self.graph, self.part.states[0].scalar
        if node.scalar != scalar:
            raise LeavesClassError(node)
        if not part.varies(node):
            nothing = graph.constant(0, scalar)
            return _Moved(graph.constant(0, INT32), nothing, node)
        if node.op == "input":
            ones = -1 if scalar.kind == "signed" else 2**scalar.bits - 1
            return _Moved(graph.constant(0, INT32), graph.constant(ones, scalar), graph.constant(0, scalar))
        if node.op == "select" and not part.varies(node.args[0]):
            condition, yes, no = node.args
            one, other = self.of(yes), self.of(no)
            return _Moved(
                graph.select(condition, one.places, other.places),
                graph.select(condition, one.mask, other.mask),
                graph.select(condition, one.value, other.value),
            )
        if node.op == "invert":
            form = self.of(node.args[0])
            return _Moved(form.places, form.mask, graph.apply("invert", (form.value,), scalar))
        if node.op in _SHIFTS and not part.varies(node.args[1]):
            return self._move(node)
        if node.op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            return self._join(node)
        raise LeavesClassError(node)

    def _move(self, node: Node) -> _Moved:
        if node.op == "right_shift" and node.scalar.kind == "signed":
            raise LeavesClassError(node, "fills in copies of the sign")
        form, amount = self.of(node.args[0]), node.args[1]
        mask, value = (self.graph.apply(node.op, (number, amount), node.scalar) for number in (form.mask, form.value))
        places = self.graph.cast(amount, INT32)
        op = "add" if node.op == "left_shift" else "subtract"
        return _Moved(self.graph.apply(op, (form.places, places), INT32), mask, value)

    def _join(self, node: Node) -> _Moved:
        """Return a bitwise operation of a number that depends on the state and one that does not."""
        first, second = node.args
        if self.part.varies(first) and self.part.varies(second):
            raise LeavesClassError(node)
        varying, other = (first, second) if self.part.varies(first) else (second, first)
        form = self.of(varying)

        def join(op: str, one: Node, two: Node) -> Node:
            return self.graph.apply(op, (one, two), node.scalar)

        value = join(node.op, form.value, other)
        if node.op == "bitwise_xor":
            return _Moved(form.places, form.mask, value)
        kept = other if node.op == "bitwise_and" else self.graph.apply("invert", (other,), node.scalar)
        return _Moved(form.places, join("bitwise_and", form.mask, kept), value)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of bits that move together.

    Raises:
        LeavesClassError: the state is no single integer, or its bits do not move together.
    """
    state, result = part.states[0], part.results[0]
    if len(part.state_indices) > 1 or not state.scalar.is_integer:
        raise LeavesClassError(result, rank=-1)
    form = _Moves(part).of(result)
    limit = state.scalar.bits
    (places,) = compute_nodes(part.graph, lambda number: np.clip(number, -limit, limit), form.places)
    law = "h[t] = (shift(h[t-1], k) & m) ^ x"
    return LoopStage("bitwise", law, part.state_indices, (places, form.mask, form.value), None, ShiftedBits())
