"""Affine maps of integers modulo a constant m: h -> (a h + b) % m, as checksums and polynomial hashes have them.

Law: ``h[t] = (a[t] h[t-1] + b[t]) % m``, of one number, or of several with a matrix a. Composition, first (a1, b1),
then (a2, b2): ``(a2 a1 % m, (a2 b1 + b2) % m)``. Identity: (1, 0). Proof: the integers modulo m are a ring, so this is
the composition of affine maps (see `affine`) in that ring.

The loop takes the remainder of the sum itself, so the two agree if the loop's sum does not overflow. A step that
overflows for some state below m is refused. Products of numbers below m must fit 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Scalar, scalar_of
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops.affine import PlusTimes
from gpuscan.operators.loops.intervals import Intervals
from gpuscan.operators.loops.semirings import INT64, Form, Forms, MatrixMaps, derive_stage
from gpuscan.operators.loops.stage import LeavesClassError, LoopStage, Numbers, StepPart
from gpuscan.operators.parameter_array import HostArray, extremes_of
from gpuscan.operators.parameters import Expression, Parameter, present
from gpuscan.operators.traced_array import Number

# An integer, or a parameter of the call in the place of one.
Integer: TypeAlias = Any

UINT32 = scalar_of(np.dtype(np.uint32))
# Of fewer values, `finite_state` has tables. Only sums of those take fewer instructions here.
_LEAST = 65
# The largest modulus with products that fit each type of the maps' numbers.
_LARGEST = {UINT32: 2**16, INT64: 3_037_000_500}


class Modular(PlusTimes):
    """The ring of integers modulo a constant. `ring_of` makes one class for each modulus."""

    law = "h[t] = (a h[t-1] + b) mod m"
    modulus: Integer = 1
    scalar: Scalar = UINT32

    def number(self, node: Node) -> Node:
        """Return the remainder of a number, in the type of the maps."""
        if node.scalar == self.scalar and node.op == "remainder" and node.args[1].integer == self.modulus:
            return node
        own = self.part.states[0].scalar
        if node.scalar.kind == "bool" or np.iinfo(node.scalar.dtype).max < self.modulus:
            node = self.graph.cast(node, own if np.iinfo(own.dtype).max >= self.modulus else INT64)
        return self.graph.cast(self._remainder(node), self.scalar)

    def _remainder(self, node: Node) -> Node:
        return self.graph.apply("remainder", (node, self._constant(self.modulus, node.scalar)), node.scalar)

    def sum(self, a: Node, b: Node) -> Node:
        return self._remainder(self.calculus.add(a, b))

    def sum_shifts(self, a: Node, b: Node) -> Node:
        return self.sum(a, b)

    def product(self, a: Node, b: Node) -> Node:
        return self._remainder(self.calculus.times(a, b))

    def form_of(self, node: Node, forms: Forms) -> Form:
        op, args, part = node.op, node.args, self.part
        if op == "remainder" and args[1].is_constant and args[1].integer % self.modulus == 0:
            return forms.of(args[0])
        if op == "cast" and args[0].scalar.is_integer:
            return forms.of(args[0])
        if op == "multiply" and not (part.varies(args[0]) and part.varies(args[1])):
            factor, other = args if part.varies(args[1]) else args[::-1]
            return forms.scale(forms.of(other), self.number(factor))
        if op == "left_shift" and args[1].is_constant:
            return forms.scale(forms.of(args[0]), self._constant(2 ** int(args[1].value) % self.modulus))
        if op == "negative":
            return forms.scale(forms.of(args[0]), self._constant(-1 % self.modulus))
        if op == "subtract":
            return forms.sum(forms.of(args[0]), forms.scale(forms.of(args[1]), self._constant(-1 % self.modulus)))
        if op == "add":
            return forms.sum(forms.of(args[0]), forms.of(args[1]))
        raise LeavesClassError(node, rank=1)

    def _constant(self, value: Integer, scalar: Scalar | None = None) -> Node:
        return self.graph.constant(value, scalar or self.scalar)


@lru_cache(maxsize=64)
def _ring_of(number: int | Expression, scalar: Scalar) -> type[Modular]:
    """Return the ring of a modulus, with numbers of a type."""
    modulus = Parameter(number) if isinstance(number, Expression) else number

    def plus(a: Number, b: Number) -> AnyArray:
        total, limit = a + b, np.full_like(a, modulus)
        return np.where(total >= limit, total - limit, total)

    def times(a: Number, b: Number) -> Number:
        return (a * b) % np.full_like(a, modulus)

    attributes = {"plus": staticmethod(plus), "times": staticmethod(times), "modulus": modulus, "scalar": scalar}
    return type("Modulo", (Modular,), attributes)


def ring_of(modulus: Integer, scalar: Scalar) -> type[Modular]:
    """Return the ring of a modulus, with numbers of a type: the same class for the same modulus."""
    return _ring_of(modulus._expression if isinstance(modulus, Parameter) else modulus, scalar)


@dataclass(frozen=True)
class ModularMaps(MatrixMaps):
    """Maps modulo a constant, for a first state of any size.

    Attributes:
        reduces: True to take the remainder of a first state of uint64 before it becomes an int64.
    """

    reduces: bool = False

    @property
    def keeps_start(self) -> bool:
        return not self.reduces

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        first = self._remainders(left[self.stored :])
        return super().combine([*left[: self.stored], *first], right)

    def start(self, state: Numbers) -> list[Number]:
        return super().start(self._remainders(state) if self.reduces else state)

    def _remainders(self, numbers: Numbers) -> list[Number]:
        modulus = self.semiring.modulus  # type: ignore[attr-defined]
        return [number % np.full_like(number, modulus) for number in numbers]


def _modulus(part: StepPart) -> Integer:
    """Return the modulus that the results of a part share.

    Raises:
        LeavesClassError: they share none.
    """
    moduli: list[Integer] = []
    for result in part.results:
        for node in _alternatives(part, result):
            if node.op == "remainder" and part.varies(node) and node.args[1].is_constant:
                moduli.append(node.args[1].integer)
            elif part.varies(node) and node not in part.states:
                raise LeavesClassError(result, rank=-1)
    if not moduli or moduli[0] < 1 or any(modulus != moduli[0] for modulus in moduli[1:]):
        raise LeavesClassError(part.results[0], rank=-1)
    return moduli[0]


def _alternatives(part: StepPart, *results: Node) -> Iterator[Node]:
    """Yield the numbers that results are chosen from, behind conversions."""
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if part.varies(node) and node.op in ("cast", "select"):
            waiting += node.args[-2:] if node.op == "select" else node.args
        else:
            yield node


def _check_range(part: StepPart, modulus: Integer, trusts: bool) -> None:
    """Check that no result leaves the range below the modulus, and that no sum or product overflows.

    Args:
        trusts: True to take numbers of x with the carry's own type to be small enough.

    Raises:
        LeavesClassError: a number may do so.
    """
    order = reachable(part.results)
    intervals = Intervals()
    reach: dict[int, tuple[Integer, Integer]] = {}
    # The numbers that the results are made of. A number that is only compared is none of them, and stays unknown.
    counted: set[int] = set()
    waiting = list(part.results)
    while waiting:
        node = waiting.pop()
        if node.scalar.is_integer and node.index not in counted:
            counted.add(node.index)
            waiting += node.args if part.varies(node) else ()
    for node in order:
        if node.index not in counted:
            continue
        limits = np.iinfo(node.scalar.dtype)
        if node in part.states:
            reach[node.index] = 0, modulus - 1
            continue
        if node.is_constant:
            reach[node.index] = (node.integer,) * 2
            continue
        if not part.varies(node):
            low, high = intervals[node]
            is_bounded = low is not None and high is not None and high - low < limits.max - limits.min
            # A difference of unsigned numbers may always be negative.
            smallest = (0, int(node.scalar.kind == "unsigned")) if trusts else (int(limits.min), int(limits.max))
            reach[node.index] = (low or 0, high or 0) if is_bounded else smallest
            continue
        args = [reach.get(arg.index, (0, 0)) for arg in node.args if arg.scalar.is_integer]
        interval = reach[node.index] = _reach(node, args)
        if interval[0] < limits.min or interval[1] > limits.max:
            why = f"takes the rest of a number that may overflow {node.scalar.name}"
            raise LeavesClassError(_remainder_of(part), why, rank=2)


def _remainder_of(part: StepPart) -> Node:
    """Return the operation that messages name."""
    return next(node for node in reachable(part.results) if node.op == "remainder" and part.varies(node))


def _reach(node: Node, args: list[tuple[Integer, Integer]]) -> tuple[Integer, Integer]:
    """Return the least and the greatest number that an operation can give."""
    if node.op == "remainder":
        return 0, max(node.args[1].integer - 1, 0)
    if node.op == "select":
        return min(low for low, _ in args), max(high for _, high in args)
    if node.op == "cast":
        return args[0] if args else (0, 1)
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


def _check_constants(part: StepPart, modulus: Integer) -> None:
    """Check that values that do not depend on the state are below the modulus.

    Raises:
        LeavesClassError: one of them may be larger, or negative.
    """
    intervals = Intervals()
    for node in _alternatives(part, *part.results):
        if part.varies(node):
            continue
        low, high = intervals[node]
        if low is None or high is None or not 0 <= low <= high < modulus:
            why = f"is chosen or a number that may be {present(modulus)} or more"
            raise LeavesClassError(_remainder_of(part), why, rank=1)


def _is_below(values: HostArray | None, modulus: Integer) -> bool:
    """Return True for known numbers from 0 to below a modulus."""
    if values is None or not values.size:
        return values is not None
    least, greatest = extremes_of(values)
    return bool(least >= 0) and bool(greatest < modulus)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of affine maps modulo a constant.

    Raises:
        LeavesClassError: the results are no remainders by one constant, or a sum may overflow.
    """
    if any(not node.scalar.is_integer for node in part.states) or len({n.scalar for n in part.states}) > 1:
        raise LeavesClassError(part.results[0], rank=-1)
    modulus = _modulus(part)
    # Few states have tables, which are right for sums that wrap around in 8 or 16 bits, too.
    _check_range(part, modulus, trusts=bool(modulus >= _LEAST) or part.states[0].scalar.bits >= 32)
    _check_constants(part, modulus)
    starts_inside = bool(part.initial) and all(_is_below(values, modulus) for values in part.initial)
    if not starts_inside and any(node in part.states for node in _alternatives(part, *part.results)):
        raise LeavesClassError(
            _remainder_of(part),
            f"is not taken of a first state that may be outside of 0 to {present(modulus) - 1}",
            rank=1,
        )
    scalar = UINT32 if starts_inside and modulus <= _LARGEST[UINT32] else INT64
    stage = derive_stage(ring_of(modulus, scalar)(part), scales=False)
    composition = stage.composition
    assert isinstance(composition, MatrixMaps)
    only_sums = all(entry < 0 for row in composition.pattern for entry in row) and len(part.state_indices) == 1
    is_small = bool(modulus < _LEAST)
    if is_small and not (only_sums and starts_inside):
        raise LeavesClassError(part.results[0], rank=-1)
    if modulus > _LARGEST[scalar] and not (only_sums and modulus < 2**62):
        raise LeavesClassError(
            _remainder_of(part), f"makes products of numbers up to {present(modulus)}, beyond 64 bits", rank=2
        )
    if not starts_inside:
        is_uint64 = part.states[0].scalar.name == "uint64"
        composition = ModularMaps(composition.semiring, composition.pattern, reduces=is_uint64)
    class_name, law = (
        "finite-state" if is_small else stage.class_name,
        stage.law.replace("mod m", f"mod {present(modulus)}"),
    )
    return replace(stage, class_name=class_name, law=law, composition=composition)
