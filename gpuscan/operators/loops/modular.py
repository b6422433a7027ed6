"""Affine maps of integers modulo a constant m: h -> (a h + b) % m, as checksums and polynomial hashes have them.

Law: ``h[t] = (a[t] h[t-1] + b[t]) % m``, of one number, or of several with a matrix a. Composition, first (a1, b1),
then (a2, b2): ``(a2 a1 % m, (a2 b1 + b2) % m)``. Identity: (1, 0). Proof: the integers modulo m are a ring, so this is
the composition of affine maps (see `affine`) in that ring.

A counter that wraps, ``np.where(h == m - 1, 0, h + 1)`` or its like, is ``(h + 1) % m`` if it begins below m. A
counter that counts down is ``(h - 1) % m``. A sum that wraps, ``np.where(h + x >= m, h + x - m, h + x)``, is
``(h + x) % m`` if the type of x, or a mask on it, keeps x from 0 to m.

The loop takes the remainder of the sum itself, so the two agree if the loop's sum does not overflow. A step that
overflows for some state below m is refused. Products of numbers below m must fit 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Scalar, scalar_of
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.affine import Inner, PlusTimes
from gpuscan.operators.loops.intervals import Interval, intervals_of
from gpuscan.operators.loops.semirings import INT64, Form, Forms, MatrixMaps, derive_stage
from gpuscan.operators.loops.stage import LeavesClassError, LoopStage, Numbers, StepPart
from gpuscan.operators.traced_array import Number

_INTEGERS = ("signed", "unsigned")
UINT32 = scalar_of(np.dtype(np.uint32))
# Of fewer values, `finite_state` has tables. Only sums of those take fewer instructions here.
_LEAST = 65
# The largest modulus of a counter that wraps by a comparison.
_MAX_COUNTER = 2**20
# How a counter is compared with its end.
_TESTS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
# The largest modulus with products that fit each type of the maps' numbers.
_LARGEST = {UINT32: 2**16, INT64: 3_037_000_500}


class Modular(PlusTimes):
    """The ring of integers modulo a constant. `ring_of` makes one class for each modulus."""

    law = "h[t] = (a h[t-1] + b) mod m"
    modulus = 1
    scalar: Scalar = UINT32

    def number(self, node: Node) -> Node:
        """Return the remainder of a number, in the type of the maps."""
        if node.scalar == self.scalar and node.op == "remainder" and node.args[1].equals(self.modulus):
            return node
        own = self.part.states[0].scalar
        if node.scalar.kind == "bool" or np.iinfo(node.scalar.dtype).max < self.modulus:
            node = self.graph.cast(node, own if np.iinfo(own.dtype).max >= self.modulus else INT64)
        return self.graph.cast(self._remainder(node), self.scalar)

    def _remainder(self, node: Node) -> Node:
        return self.graph.apply("remainder", (node, self.graph.constant(self.modulus, node.scalar)), node.scalar)

    def sum(self, a: Node, b: Node) -> Node:
        return self._remainder(self.calculus.add(a, b))

    def sum_shifts(self, a: Node, b: Node) -> Node:
        return self.sum(a, b)

    def product(self, a: Node, b: Node) -> Node:
        return self._remainder(self.calculus.times(a, b))

    def form_of(self, node: Node, forms: Forms) -> Form:
        op, args, part = node.op, node.args, self.part
        if op == "remainder" and args[1].is_constant and int(args[1].value) % self.modulus == 0:
            return forms.of(args[0])
        if op == "cast" and args[0].scalar.kind in _INTEGERS:
            return forms.of(args[0])
        if op == "multiply" and not (part.varies(args[0]) and part.varies(args[1])):
            factor, other = args if part.varies(args[1]) else args[::-1]
            return forms.scale(forms.of(other), self.number(factor))
        if op == "left_shift" and args[1].is_constant:
            return forms.scale(forms.of(args[0]), self._constant(2 ** int(args[1].value)))
        if op == "negative":
            return forms.scale(forms.of(args[0]), self._constant(-1))
        if op == "subtract":
            return forms.sum(forms.of(args[0]), forms.scale(forms.of(args[1]), self._constant(-1)))
        if op == "add":
            return forms.sum(forms.of(args[0]), forms.of(args[1]))
        raise LeavesClassError(node, rank=1)

    def _constant(self, value: int) -> Node:
        return self.graph.constant(value % self.modulus, self.scalar)


@lru_cache(maxsize=64)
def ring_of(modulus: int, scalar: Scalar) -> type[Modular]:
    """Return the ring of a modulus, with numbers of a type."""

    def plus(a: Number, b: Number) -> AnyArray:
        total, limit = a + b, np.full_like(a, modulus)
        return np.where(total >= limit, total - limit, total)

    def times(a: Any, b: Any) -> Any:
        return (a * b) % np.full_like(a, modulus)

    attributes = {"plus": staticmethod(plus), "times": staticmethod(times), "modulus": modulus, "scalar": scalar}
    return type(f"Modulo{modulus}", (Modular,), attributes)


class ModularMaps(MatrixMaps):
    """Maps modulo a constant, for a first state of any size."""

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        stored, modulus = self.stored, self.semiring.modulus  # type: ignore[attr-defined]
        first = [number % np.full_like(number, modulus) for number in left[stored:]]
        return super().combine([*left[:stored], *first], right)


def _unwrap(part: StepPart) -> StepPart:
    """Return the part with remainders in the place of counters that wrap."""
    graph, replacements = part.graph, dict[Node, Node]()
    if len(part.state_indices) > 1:
        return part
    (initial,) = part.initial or (None,)
    intervals = intervals_of(reachable(part.results))
    for node in reachable(part.results):
        if any(arg in replacements for arg in node.args):
            (replacements[node],) = copy_nodes([node], graph, {arg: replacements.get(arg, arg) for arg in node.args})
            continue
        counter = _counter(node, part.states[0]) or _sum_that_wraps(node, part.states[0], intervals)
        if counter is not None and initial is not None:
            counted, modulus = counter
            if np.all((initial >= 0) & (initial < modulus)):
                limit = graph.constant(modulus, node.scalar)
                replacements[node] = graph.apply("remainder", (counted, limit), node.scalar)
    result = part.results[0]
    return Inner(part.step, part.state_indices, part.initial, replacements[result]) if result in replacements else part


def _sum_that_wraps(node: Node, state: Node, intervals: Mapping[int, Interval]) -> tuple[Node, int] | None:
    """Return a sum and its modulus for ``np.where(sum >= m, sum - m, sum)``, ``np.where(sum == m, 0, sum)`` and so on.

    The sum is that of the state and a number in a known range, such as a byte or a flag.
    """
    choice = _choice_of(node)
    if choice is None:
        return None
    condition, total, end = choice
    if condition.op not in _TESTS or condition.args[0] is not total or not condition.args[1].is_constant:
        return None
    low: int | None = 0
    high: int | None = 0
    if total is not state:
        if total.op != "add" or state not in total.args or total.scalar != state.scalar:
            return None
        low, high = intervals[(total.args[1] if total.args[0] is state else total.args[0]).index]
    limit = int(condition.args[1].value)
    if low is None or high is None or low < 0 or limit > _MAX_COUNTER:
        return None
    for modulus in (limit, limit + 1):
        if modulus < _LEAST or high > modulus:
            continue
        # The choice must be the remainder of every sum.
        totals = np.arange(low, modulus + high)
        wraps = getattr(np, condition.op)(totals, limit)
        if np.array_equal(np.where(wraps, totals - end if end else 0, totals), totals % modulus):
            return total, modulus
    return None


def _choice_of(node: Node) -> tuple[Node, Node, int] | None:
    """Return a condition, a number, and what is subtracted where the condition is met: 0 if the result is 0 there."""
    if node.op == "select" and node.args[0].op in _TESTS:
        condition, yes, no = node.args
        if yes.equals(0):
            return condition, no, 0
        if yes.op == "subtract" and yes.args[0] is no and yes.args[1].is_constant:
            return condition, no, int(yes.args[1].value)
    if node.op == "subtract" and node.args[1].op == "multiply":
        for flag, amount in (node.args[1].args, node.args[1].args[::-1]):
            if flag.op == "cast" and flag.args[0].op in _TESTS and amount.is_constant:
                return flag.args[0], node.args[0], int(amount.value)
    return None


def _counter(node: Node, state: Node) -> tuple[Node, int] | None:
    """Return what a counter counts to, and its modulus, for a choice that wraps at an end; None for another node."""
    if node.op != "select":
        return None
    condition, yes, no = node.args
    ends, counted = (yes, no) if yes.is_constant else (no, yes)
    if not ends.is_constant or counted.op not in ("add", "subtract") or condition.op not in _TESTS:
        return None
    if state not in counted.args[:1] or not counted.args[1].is_constant or not condition.args[1].is_constant:
        return None
    change = int(counted.args[1].value) * (1 if counted.op == "add" else -1)
    tested, limit, end = condition.args[0], int(condition.args[1].value), int(ends.value)
    if abs(change) != 1 or tested not in (state, counted) or counted.scalar != state.scalar:
        return None
    for modulus in (end + 1,) if change < 0 else (limit, limit + 1, limit + 2):
        if _LEAST <= modulus <= _MAX_COUNTER:
            # The choice must wrap at the end and nowhere else.
            numbers = np.arange(modulus)
            compared = numbers + change if tested is counted else numbers
            wraps = getattr(np, condition.op)(compared, limit) == (ends is yes)
            if np.array_equal(np.where(wraps, end, numbers + change), (numbers + change) % modulus):
                return counted, modulus
    return None


def _modulus(part: StepPart) -> int:
    """Return the modulus that the results of a part share.

    Raises:
        LeavesClassError: they share none.
    """
    moduli: set[int] = set()
    for result in part.results:
        waiting = [result]
        while waiting:
            node = waiting.pop()
            if node.op == "remainder" and part.varies(node) and node.args[1].is_constant:
                moduli.add(int(node.args[1].value))
            elif node.op in ("cast", "select") and part.varies(node):
                waiting += node.args[-2:] if node.op == "select" else node.args
            elif part.varies(node) and node not in part.states:
                raise LeavesClassError(result, rank=-1)
    if len(moduli) != 1 or min(moduli) < 1:
        raise LeavesClassError(part.results[0], rank=-1)
    return moduli.pop()


def _check_range(part: StepPart, modulus: int) -> None:
    """Check that no result leaves the range below the modulus, and that no sum or product overflows.

    Raises:
        LeavesClassError: a number may do so. Numbers of x with the carry's own type are taken to be small enough.
    """
    order = reachable(part.results)
    intervals = intervals_of(order)
    reach: dict[int, tuple[int, int]] = {}
    for node in order:
        if node.scalar.kind not in _INTEGERS:
            continue
        low, high = intervals[node.index]
        limits = np.iinfo(node.scalar.dtype)
        if node in part.states:
            reach[node.index] = 0, modulus - 1
            continue
        if not part.varies(node):
            is_bounded = low is not None and high is not None and high - low < limits.max - limits.min
            # A difference of unsigned numbers may always be negative.
            reach[node.index] = (low or 0, high or 0) if is_bounded else (0, int(node.scalar.kind == "unsigned"))
            continue
        args = [reach.get(arg.index, (0, 0)) for arg in node.args if arg.scalar.kind in _INTEGERS]
        interval = reach[node.index] = _reach(node, args, modulus)
        if interval[0] < limits.min or interval[1] > limits.max:
            why = f"takes the rest of a number that may overflow {node.scalar.name}"
            raise LeavesClassError(_remainder_of(part), why, rank=2)


def _remainder_of(part: StepPart) -> Node:
    """Return the operation that messages name."""
    return next(node for node in reachable(part.results) if node.op == "remainder" and part.varies(node))


def _reach(node: Node, args: list[tuple[int, int]], modulus: int) -> tuple[int, int]:
    """Return the least and the greatest number that an operation can give."""
    if node.op == "remainder":
        return 0, max(int(node.args[1].value) - 1, 0)
    if node.op == "select":
        return min(low for low, _ in args), max(high for _, high in args)
    if node.op == "cast":
        return args[0]
    if node.op == "negative":
        return -args[0][1], -args[0][0]
    if node.op in ("add", "subtract", "multiply", "left_shift"):
        (a, b), (c, d) = args
        if node.op == "add":
            return a + c, b + d
        if node.op == "subtract":
            return a - d, b - c
        if node.op == "left_shift":
            c, d = (2 ** min(max(amount, 0), 64) for amount in (c, d))
        corners = [x * y for x in (a, b) for y in (c, d)]
        return min(corners), max(corners)
    raise LeavesClassError(node, rank=1)


def _check_constants(part: StepPart, modulus: int) -> None:
    """Check that values that do not depend on the state are below the modulus.

    Raises:
        LeavesClassError: one of them may be larger, or negative.
    """
    intervals = intervals_of(reachable(part.results))
    waiting = list(part.results)
    while waiting:
        node = waiting.pop()
        if not part.varies(node):
            low, high = intervals[node.index]
            if low is None or high is None or not 0 <= low <= high < modulus:
                raise LeavesClassError(
                    _remainder_of(part), f"is chosen or a number that may be {modulus} or more", rank=1
                )
        elif node.op in ("cast", "select"):
            waiting += node.args[-2:] if node.op == "select" else node.args


def derive(part: StepPart) -> LoopStage:
    """Return the stage of affine maps modulo a constant.

    Raises:
        LeavesClassError: the results are no remainders by one constant, or a sum may overflow.
    """
    if any(node.scalar.kind not in _INTEGERS for node in part.states) or len({n.scalar for n in part.states}) > 1:
        raise LeavesClassError(part.results[0], rank=-1)
    part = _unwrap(part)
    modulus = _modulus(part)
    _check_range(part, modulus)
    _check_constants(part, modulus)
    starts_inside = all(values is not None and np.all((values >= 0) & (values < modulus)) for values in part.initial)
    starts_inside = starts_inside and bool(part.initial)
    scalar = UINT32 if starts_inside and modulus <= _LARGEST[UINT32] else INT64
    stage = derive_stage(ring_of(modulus, scalar)(part), scales=False)
    composition = stage.composition
    assert isinstance(composition, MatrixMaps)
    only_sums = all(entry < 0 for row in composition.pattern for entry in row) and len(part.state_indices) == 1
    is_small = modulus < _LEAST
    if is_small and not (only_sums and starts_inside):
        raise LeavesClassError(part.results[0], rank=-1)
    if modulus > _LARGEST[scalar] and not (only_sums and modulus < 2**62):
        raise LeavesClassError(
            _remainder_of(part), f"makes products of numbers up to {modulus}, beyond 64 bits", rank=2
        )
    if not starts_inside:
        composition = ModularMaps(composition.semiring, composition.pattern)
    class_name, law = "finite-state" if is_small else stage.class_name, stage.law.replace("mod m", f"mod {modulus}")
    return replace(stage, class_name=class_name, law=law, composition=composition)
