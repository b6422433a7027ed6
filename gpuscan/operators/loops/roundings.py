"""Integers that are rounded to multiples of a constant m: tab stops, alignment, remainders, and quotients of sums.

Laws, with a and b that x decides:

- align: ``h[t] = m floor((h[t-1] + a) / m) + b``, as the next tab stop ``(column // 8 + 1) * 8`` is.
- rest: ``h[t] = (h[t-1] + a) mod m + b``.
- quotient: ``h[t] = floor((h[t-1] + a) / m) + b``, as the carry of a long addition is.

Or ``h[t] = h[t-1] + a``, in a step that does not round. `whole_functions` finds these, however they are spelled.

Compositions, first (a1, b1), then (a2, b2), where both round:

- align: ``(a1, m floor((b1 + a2) / m) + b2)``, since a multiple of m can be taken out of the second quotient.
- rest: ``(a1 + b1 + a2, b2)``, since the first remainder is ``h + a1`` up to a multiple of m.
- quotient: ``floor((floor((h + a1) / M1) + k) / M2) = floor((h + a1 + M1 k) / (M1 M2))`` for any integer k. A map has
  the number M as well, which is a power of m. For k the remainder of ``b1 + a2`` is taken, so that a stays below M; the
  rest of it adds to b2. If M is far beyond all states, one threshold decides between two neighbouring quotients, and
  another M with the same threshold takes its place.

Identity: a map that does not round, with a = 0. States have up to 64 bits, and up to 32 for quotients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.semirings import INT64
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
    may_exceed_int64,
)
from gpuscan.operators.traced_array import Number

# No state of 32 bits, nor the difference of two, is as large.
_FAR = 2**34
# The powers of m that a map has are below this. A product of two of them is compared in floats.
_MAX_POWER = 2**35


def _like(number: Number, value: int) -> Number:
    return np.full_like(number, value)


@dataclass(frozen=True)
class RoundedMaps(Composition):
    """Maps (r, a, b), where r is 1 if the map rounds, else 0. Then b is 0.

    Attributes:
        kind: ``"align"`` or ``"rest"``.
        modulus: the number m.
    """

    kind: str
    modulus: int

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        (r1, a1, b1), (r2, a2, b2) = left, right
        zero, modulus = _like(a1, 0), _like(a1, self.modulus)
        first, then = r1 > 0, r2 > 0
        middle = b1 + a2
        if self.kind == "align":
            both = b2 + modulus * (middle // modulus)
            return [
                r1 | r2,
                np.where(first, a1, a1 + a2),
                np.where(then, np.where(first, both, b2), np.where(first, middle, zero)),
            ]
        total = a1 + middle
        return [
            r1 | r2,
            np.where(then, total % modulus, np.where(first, a1, total)),
            np.where(then, b2, np.where(first, middle, zero)),
        ]

    def start(self, state: Numbers) -> list[Number]:
        number = state[0].astype(np.int64)
        return [_like(number, 0), number, _like(number, 0)]

    def state(self, numbers: Numbers) -> list[Number]:
        # A composition that begins with a start has the value of its map at 0.
        rounds, a, b = numbers
        modulus = _like(a, self.modulus)
        rest = a % modulus
        return [np.where(rounds > 0, (a - rest if self.kind == "align" else rest) + b, a)]

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """Return the map of a function of the state."""
        # A number that wraps is a remainder in the range from the base on.
        return 1, (shape.offset - shape.base if shape.kind == "wrap" else shape.offset), shape.base

    def sum(self, amount: Number) -> list[Number]:
        """Return the map that adds a number."""
        return [_like(amount, 0), amount, _like(amount, 0)]


@dataclass(frozen=True)
class QuotientMaps(Composition):
    """Maps (M, a, b) with a from 0 to M - 1; M is 1 if the map does not round."""

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        (m1, a1, b1), (m2, a2, b2) = left, right
        k = b1 + a2
        whole = k // m2
        k = k - whole * m2

        def is_large(one: Number, other: Number) -> Number:
            product = one.astype(np.float32) * other.astype(np.float32)
            return product >= np.full_like(product, _MAX_POWER)

        far, power = _like(a1, _FAR), _like(a1, _MAX_POWER)
        low = np.where(is_large(m1, k), far, a1 + m1 * k)
        # From this state on, the quotient is larger by 1.
        threshold = np.where(is_large(m1, m2 - k), far, np.minimum(m1 * (m2 - k) - a1, far))
        large = is_large(m1, m2)
        beyond = np.where(low < far, low, power - threshold)
        return [np.where(large, power, m1 * m2), np.where(large, beyond, low), whole + b2]

    def start(self, state: Numbers) -> list[Number]:
        return self.sum(state[0].astype(np.int64))

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[2]]

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return shape.modulus, shape.offset, shape.base

    def sum(self, amount: Number) -> list[Number]:
        return [_like(amount, 1), _like(amount, 0), amount]


# The numbers of a map, then a condition under which it is constant, and its value.
@dataclass(frozen=True, eq=False)
class _Rounded:
    """A number as a map of the state.

    Attributes:
        numbers: the numbers of the map; None if the number never depends on the state.
        constant: the condition under which the number is `value`; None if there is none.
        value: the number under this condition, or always if `numbers` is None.
    """

    numbers: tuple[Node, ...] | None
    constant: Node | None = None
    value: Node | None = None


class _Roundings(NodeForms[_Rounded]):
    """The maps that nodes compute of the state."""

    def __init__(self, part: StepPart, maps: RoundedMaps | QuotientMaps) -> None:
        super().__init__(part)
        self.maps = maps

    def _derive(self, node: Node) -> _Rounded:
        part, graph, args = self.part, self.graph, node.args
        if not part.varies(node):
            return _Rounded(None, value=graph.cast(node, INT64))
        if node in part.shapes:
            numbers = [graph.constant(number, INT64) for number in self.maps.shape(part.shapes[node])]
            return self._then(node, part.shapes[node].total, numbers)
        if node.op == "input":
            return _Rounded(self._sum(graph.constant(0, INT64)))
        if node.op == "select" and not part.varies(args[0]):
            return self._choice(args[0], self.of(args[1]), self.of(args[2]))
        if node.op in ("add", "subtract") and part.varies(args[0]) != part.varies(args[1]):
            state, amount = args if part.varies(args[0]) else args[::-1]
            amount = graph.cast(amount, INT64)
            if node.op == "add":
                return self._then(node, state, self._sum(amount))
            if state is args[0]:
                return self._then(node, state, self._sum(graph.apply("negative", (amount,), INT64)))
        if node.op == "cast" and node.scalar.is_integer and node.scalar.bits >= args[0].scalar.bits:
            return self.of(args[0])
        raise LeavesClassError(node, rank=1)

    def _sum(self, amount: Node) -> tuple[Node, ...]:
        return tuple(compute_nodes(self.graph, self.maps.sum, amount))

    def _then(self, node: Node, first: Node, numbers: Sequence[Node]) -> _Rounded:
        """Return the map of a number, followed by another one."""
        form = self.of(first)
        if form.numbers is None or form.constant is not None:
            raise LeavesClassError(node, rank=1)
        count = len(numbers)
        composed = compute_nodes(
            self.graph, lambda *both: self.maps.combine(both[:count], both[count:]), *form.numbers, *numbers
        )
        return _Rounded(tuple(composed))

    def _choice(self, condition: Node, yes: _Rounded, no: _Rounded) -> _Rounded:
        graph = self.graph
        are_constant = yes.numbers is None, no.numbers is None
        constant = constant_choice(graph, condition, are_constant, (yes.constant, no.constant))
        value = choose_present(graph, condition, yes.value, no.value)
        numbers = yes.numbers or no.numbers
        if yes.numbers is not None and no.numbers is not None:
            numbers = tuple(graph.select(condition, *pair) for pair in zip(yes.numbers, no.numbers, strict=True))
        return _Rounded(numbers, constant, value)


def _rounding_of(part: StepPart) -> Node:
    """Return the operation that messages name."""
    return next(node for node in reachable(part.results) if node.op in ("remainder", "floor_divide"))


def derive(part: StepPart) -> LoopStage:
    """Return the stage of integers that are rounded.

    Raises:
        LeavesClassError: the part has no such functions, or of several kinds.
    """
    kinds = {("rest" if shape.kind == "wrap" else shape.kind, shape.modulus) for shape in part.shapes.values()}
    node, state = part.results[0], part.states[0]
    kind, modulus = kinds.pop() if len(kinds) == 1 else ("", 0)
    if kind not in ("align", "rest", "quotient") or (kind == "quotient" and state.scalar.bits > 32):
        raise LeavesClassError(node, rank=-1)
    if modulus & (modulus - 1) and may_exceed_int64(part):
        raise LeavesClassError(_rounding_of(part), "is taken of a number that may exceed int64", rank=2)
    maps = QuotientMaps() if kind == "quotient" else RoundedMaps(kind, modulus)
    form = _Roundings(part, maps).of(node)
    if form.numbers is None:
        raise LeavesClassError(node, rank=-1)
    numbers = form.numbers
    if form.constant is not None and form.value is not None:
        fixed = compute_nodes(part.graph, lambda value: maps.start([value]), form.value)
        numbers = tuple(part.graph.select(form.constant, *pair) for pair in zip(fixed, numbers, strict=True))
    laws = {"align": "{m} floor((h[t-1] + a) / {m}) + b", "rest": "(h[t-1] + a) mod {m} + b"}
    law = "h[t] = " + laws.get(kind, "floor((h[t-1] + a) / {m}) + b").format(m=modulus)
    return LoopStage("affine", law, part.state_indices, numbers, form.constant, maps)
