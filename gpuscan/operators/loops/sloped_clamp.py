"""Clamped affine maps of one float: h -> min(max(a h + b, low), high), as a store that leaks or a rectified filter has.

Law: ``h[t] = min(max(a h[t-1] + b, low), high)``; one of the bounds may be absent. Composition, first 1, then 2, with
``f2(x) = min(max(a2 x + b2, low2), high2)``: ``a = a2 a1, b = a2 b1 + b2, low = f2(low1), high = f2(high1)``; if
``a2 < 0``, low and high change places. Identity: (1, 0, -inf, inf). Proof: f2 does not fall, or does not rise if
``a2 < 0``. So it can be taken inside the minimum and the maximum of the first map. There, ``f2(a1 x + b1)`` clamps
``a2 a1 x + a2 b1 + b2`` to bounds that enclose low and high.

A slope of 1 is the class of `tropical`, which sums integers exactly. Slopes and shifts share an exponent, so that
products of many factors neither overflow nor vanish: a line that has become steep is then on the right side of its
bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.max_times import is_nonnegative
from gpuscan.operators.loops.semirings import INT32
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    both,
    compute_nodes,
    exponent_of,
    power_of_two,
)
from gpuscan.operators.loops.tropical import Clamp, Clamps, is_beyond, replace_nan
from gpuscan.operators.traced_array import Number

# The exponent of a term that is 0.
_NONE = -(2**28)
# The exponent of an infinite slope. Products of other slopes do not bring a line back from it.
_STEEP = 2**22
# The largest exponent in size. Sums of two do not overflow.
_MAX_EXPONENT = 2**24


def _exponent_of(number: Number) -> Number:
    """Return the exponent of a term."""
    exponent = exponent_of(np.abs(number))
    return np.where(number == np.zeros_like(number), np.full_like(exponent, _NONE), exponent)


def _finite(number: Number) -> Number:
    """Return 0 for an infinity, which has no exponent and hides no other term."""
    return np.where(np.isinf(number), np.zeros_like(number), number)


def scale_line(a: Number, b: Number, exponent: Number) -> list[Number]:
    """Return (a, b, exponent) of the line ``2**exponent (a x + b)``, with the larger of the two in size from 1 to 4.

    If b is infinite, that is a. An infinite slope is an exponent that no number reaches.
    """
    steep = np.isinf(a)
    a = np.where(steep, np.sign(a), a)
    b = np.where(steep & np.isfinite(b), np.zeros_like(b), b)
    exponent = np.where(steep, np.full_like(exponent, _STEEP), exponent)
    size = np.maximum(np.abs(a), np.abs(_finite(b)))
    # The inverse of the scale is a normal number. The largest floats are then from 2 to 4.
    exponents = _exponent_of(size)
    shift = np.minimum(exponents, np.full_like(exponents, np.finfo(size.dtype).maxexp - 2))
    scale = power_of_two(-shift, size)
    nothing = shift == np.full_like(shift, _NONE)
    return [a * scale, b * scale, np.where(nothing, np.zeros_like(shift), exponent + shift)]


@dataclass(frozen=True)
class SlopedClamps(Composition):
    """Maps (a, b, exponent, low, high), without the bound that they do not have.

    Attributes:
        low, high: True if there are such bounds.
        falls: True if a factor may be negative; then both bounds are there.
        replaces: ``"low"`` or ``"high"`` for the bound that takes the place of NaN, as ``np.where(y > low, y, low)``
            has it; else empty.
        lacks: True if some maps lack a bound, which is infinite then.
    """

    low: bool
    high: bool
    falls: bool = False
    replaces: str = ""
    lacks: bool = False

    @property
    def names(self) -> list[str]:
        return ["a", "b", "exponent"] + ["low"] * self.low + ["high"] * self.high

    def _apply(self, x: Number, name: str, numbers: dict[str, Number], is_state: Number) -> Number:
        """Return the value at the low or high bound of another map, or at the state if that map is constant."""
        a, b, exponent = (numbers[name] for name in ("a", "b", "exponent"))
        # The sum of an eighth of each term does not overflow.
        eighth = np.full_like(a, 0.125)
        a, b, exponent = a * eighth, b * eighth, exponent + np.full_like(exponent, 3)
        # A bound that is absent stays so, or is the value of a line without a slope.
        value = a * x + b
        if self.lacks and not self.falls:
            value = np.where(is_beyond(x, name == "low", name == "high") & ~is_state, a * x, value)
        value = np.where(np.isinf(x) & (a == np.zeros_like(a)), b, value)
        # An infinite slope times a state of 0 is NaN. A bound of 0 may not be reached.
        steep = exponent >= np.full_like(exponent, _STEEP // 2)
        value = np.where(is_state & steep & (value == np.zeros_like(value)), np.full_like(value, np.nan), value)
        half = exponent >> np.full_like(exponent, 1)
        value = value * power_of_two(half, value) * power_of_two(exponent - half, value)
        if self.replaces:
            value = replace_nan(value, self.replaces, numbers[self.replaces], self.lacks)
        value = np.maximum(value, numbers["low"]) if self.low else value
        return np.minimum(value, numbers["high"]) if self.high else value

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        first, then = (dict(zip(self.names, numbers, strict=True)) for numbers in (left, right))
        # The line: both terms of the sum, with the larger of their exponents.
        turned, alone = np.clip(first["exponent"] + then["exponent"], -_MAX_EXPONENT, _MAX_EXPONENT), then["exponent"]
        size = np.abs(then["a"]) * np.maximum(np.abs(first["a"]), np.abs(_finite(first["b"])))
        exponent = np.maximum(turned + _exponent_of(size), alone + _exponent_of(_finite(then["b"])))
        factor = then["a"] * power_of_two(turned - exponent, size)
        own = then["b"] * power_of_two(alone - exponent, size)
        b = np.where(np.isinf(first["b"]), then["a"], factor) * first["b"]
        # A line at an infinity on the side of a bound is at that bound, whatever is added to it later.
        at_bound, flat = is_beyond(first["b"], self.low, self.high), then["a"] == np.zeros_like(then["a"])
        b = np.where(at_bound, np.where(flat, own, b), b + own)
        line = scale_line(factor * first["a"], b, exponent)
        is_constant = first["a"] == np.zeros_like(first["a"])
        bounds = [self._apply(first[name], name, then, is_constant) for name in self.names[3:]]
        if self.falls:
            falls = then["a"] < np.zeros_like(then["a"])
            bounds = [np.where(falls, bounds[1 - n], bounds[n]) for n in (0, 1)]
        return line + bounds

    def start(self, state: Numbers) -> list[Number]:
        (value,) = state
        zero = np.zeros_like(value)
        return [*scale_line(zero, value, zero.astype(np.int32)), *[value] * (self.low + self.high)]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[3]]


class _SlopedClamps(Clamps):
    """The maps that nodes compute of the state. The slope of a constant map is 0, and its shift is the value."""

    def __init__(self, part: StepPart) -> None:
        super().__init__(part)
        self.calculus = part.calculus
        # For each node, the numbers that it is a sum of.
        self._sums: dict[Node, tuple[dict[Node, Node], Node]] = {}
        self.zero, self.one = (part.graph.constant(value, self.scalar) for value in (0, 1))

    def line(self, clamp: Clamp) -> tuple[Node, Node]:
        """Return the slope and the shift."""
        return clamp.slope or self.one, clamp.shift or self.zero

    def _derive(self, node: Node) -> Clamp:
        part, op, args = self.part, node.op, node.args
        if not part.varies(node):
            value = self.number(node)
            return Clamp(slope=self.zero, shift=value, value=value, is_constant=True)
        if op == "negative":
            return self._scale(self.of(args[0]), self.graph.constant(-1, self.scalar))
        if op in ("add", "subtract"):
            other = self.of(args[1])
            if op == "subtract":
                other = self._scale(other, self.graph.constant(-1, self.scalar))
            return self._add_clamps(node, self.of(args[0]), other)
        if op == "multiply" and not (part.varies(args[0]) and part.varies(args[1])):
            factor, state = args if part.varies(args[1]) else args[::-1]
            return self._scale(self.of(state), self.number(factor))
        if op == "divide" and not part.varies(args[1]):
            return self._scale(self.of(args[0]), self.calculus.over(self.one, self.number(args[1])))
        if op in ("fmax", "fmin"):
            raise LeavesClassError(node)
        return super()._derive(node)

    def _add_clamps(self, node: Node, one: Clamp, other: Clamp) -> Clamp:
        """Return the sum of a map and a number, or of two lines."""
        if one.is_constant:
            one, other = other, one
        if not other.is_constant and (one.bounded or other.bounded):
            return self._collect(node)
        add = self.calculus.add
        slope, shift = map(add, self.line(one), self.line(other))
        value = one.value and other.value and add(one.value, other.value)
        constant = one.constant if other.is_constant else both(self.graph, one.constant, other.constant)
        low, high = (bound and add(bound, self.line(other)[1]) for bound in (one.low, one.high))
        return replace(one, slope=slope, shift=shift, low=low, high=high, constant=constant, value=value)

    def _collect(self, node: Node) -> Clamp:
        """Return the map of a sum of multiples of one clamp, such as ``s - 0.2 * s`` for ``s = np.minimum(h + x, 9)``.

        Raises:
            LeavesClassError: it is a sum of other maps.
        """
        multiples, shift = self._multiples(node)
        if len(multiples) != 1:
            raise LeavesClassError(node)
        ((clamped, factor),) = multiples.items()
        constant = Clamp(slope=self.zero, shift=shift, value=shift, is_constant=True)
        return self._add_clamps(node, self._scale(self.of(clamped), factor), constant)

    def _multiples(self, node: Node) -> tuple[dict[Node, Node], Node]:
        """Return the numbers that a sum is taken of, each with its factor, and what is added to them."""
        part, calculus, (first, *rest) = self.part, self.calculus, (*node.args, node)
        if node in self._sums:
            return self._sums[node]
        multiples, shift = {node: self.one}, self.zero
        factor: Node | None = None
        if not part.varies(node):
            multiples, shift = {}, self.number(node)
        elif node.op in ("add", "subtract"):
            multiples, shift = self._multiples(first)
            others, other_shift = self._multiples(rest[0])
            sign = self.graph.constant(1 if node.op == "add" else -1, self.scalar)
            shift = calculus.add(shift, calculus.times(sign, other_shift))
            multiples = dict(multiples)
            for number, other in others.items():
                other = calculus.times(sign, other)
                multiples[number] = calculus.add(multiples[number], other) if number in multiples else other
        elif node.op == "negative":
            factor = self.graph.constant(-1, self.scalar)
        elif node.op == "multiply" and not all(map(part.varies, node.args)):
            first, factor = (first, self.number(rest[0])) if part.varies(first) else (rest[0], self.number(first))
        elif node.op == "divide" and not part.varies(rest[0]):
            factor = calculus.over(self.one, self.number(rest[0]))
        if factor is not None:
            multiples, shift = self._multiples(first)
            multiples = {number: calculus.times(factor, other) for number, other in multiples.items()}
            shift = calculus.times(factor, shift)
        self._sums[node] = multiples, shift
        return multiples, shift

    def _scale(self, clamp: Clamp, factor: Node) -> Clamp:
        times = self.calculus.times
        slope, shift = (times(factor, number) for number in self.line(clamp))
        clamp = replace(clamp, slope=slope, shift=shift, value=clamp.value and times(factor, clamp.value))
        if not clamp.bounded:
            return clamp
        if clamp.replaces and not is_nonnegative(factor):
            if not factor.is_constant:
                raise LeavesClassError(self.part.results[0], rank=-1)
            clamp = replace(clamp, replaces="high" if clamp.replaces == "low" else "low")
        if is_nonnegative(factor):
            low, high = (bound and times(factor, bound) for bound in (clamp.low, clamp.high))
            return replace(clamp, low=low, high=high)

        def scale_bounds(factor: Number, low: Number, high: Number) -> list[Number]:
            zero = np.zeros_like(factor)
            low, high = (np.where(factor == zero, zero, factor * bound) for bound in (low, high))
            return [np.where(factor < zero, high, low), np.where(factor < zero, low, high)]

        low, high = compute_nodes(self.graph, scale_bounds, factor, *self.both_bounds(clamp))
        return replace(clamp, low=low, high=high)

    def both_bounds(self, clamp: Clamp) -> tuple[Node, Node]:
        """Return the bounds, with an infinity for one that is absent."""
        low, high = (self.graph.constant(value, self.scalar) for value in (-np.inf, np.inf))
        return low if clamp.low is None else clamp.low, high if clamp.high is None else clamp.high

    def choice(self, condition: Node, yes: Clamp, no: Clamp) -> Clamp:
        slope, shift = (self.pick(condition, *pair, 0) for pair in zip(self.line(yes), self.line(no), strict=True))
        return replace(super().choice(condition, yes, no), slope=slope, shift=shift)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of clamped affine maps.

    Raises:
        LeavesClassError: the step is no such map of one float.
    """
    if len(part.state_indices) > 1 or part.states[0].scalar.kind != "float":
        raise LeavesClassError(part.results[0], rank=-1)
    clamps, graph = _SlopedClamps(part), part.graph
    clamp = clamps.of(part.results[0])
    slope, shift = clamps.line(clamp)
    falls = not is_nonnegative(slope)
    if not clamp.bounded or (clamp.replaces and falls):
        raise LeavesClassError(part.results[0], rank=-1)
    law = "h[t] = a h[t-1] + b"
    law = law if clamp.low is None else law.replace("a h[t-1] + b", "max(a h[t-1] + b, low)")
    if clamp.high is not None:
        law = f"h[t] = min({law.removeprefix('h[t] = ')}, high)"
    if falls:
        low, high = clamps.both_bounds(clamp)
        clamp = replace(clamp, low=low, high=high)
    line = compute_nodes(graph, scale_line, slope, shift, graph.constant(0, INT32))
    numbers = clamps.bounds(clamp)
    composition = SlopedClamps(clamp.low is not None, clamp.high is not None, falls, clamp.replaces, clamps.lacks)
    return LoopStage("clamp", law, part.state_indices, (*line, *filter(None, numbers)), clamp.constant, composition)
