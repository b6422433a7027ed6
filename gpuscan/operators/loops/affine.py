"""Affine maps over (+, x): h -> a h + b, of one number, or of several with a matrix a.

Law: ``h[t] = a[t] h[t-1] + b[t]``. Composition, first (a1, b1), then (a2, b2): ``(a2 a1, a2 b1 + b2)``. Identity:
(1, 0). Proof: ``a2 (a1 h + b1) + b2 = (a2 a1) h + (a2 b1 + b2)`` by distributivity, which integers that wrap have as
well.

Sums, differences, and products and quotients with numbers that do not depend on the state keep a map affine, and
``np.where`` with such a condition chooses between affine maps. The factors of one float carry an exponent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.polynomials import simplify
from gpuscan.operators.loops.semirings import Form, Forms, MatrixMaps, Semiring, derive_stage
from gpuscan.operators.loops.stage import LeavesClassError, LoopStage, Numbers, StepPart
from gpuscan.operators.parameters import reveal
from gpuscan.operators.traced_array import Number
from gpuscan.operators.traced_ufuncs import INTEGERS

# The most states of a table of `finite_state`.
_TABLE_SIZE = 64


class PlusTimes(Semiring):
    """The semiring of numbers under addition and multiplication."""

    class_name = "affine"
    law = "h[t] = a h[t-1] + b"
    plus = np.add
    times = np.multiply

    def sum(self, a: Node, b: Node) -> Node:
        return simplify(self.graph, self.calculus.add(a, b))

    def sum_shifts(self, a: Node, b: Node) -> Node:
        return self.calculus.add(a, b)

    def product(self, a: Node, b: Node) -> Node:
        return self.calculus.times(a, b)

    def form_of(self, node: Node, forms: Forms) -> Form:
        part, op, args = self.part, node.op, node.args
        if node.scalar.kind == "bool":
            raise LeavesClassError(node)
        if op == "cast":
            return self._cast(node, forms)
        if op == "add":
            return forms.sum(forms.of(args[0]), forms.of(args[1]))
        if op == "subtract":
            return forms.sum(forms.of(args[0]), self._negative(forms.of(args[1]), node, forms))
        if op == "negative":
            return self._negative(forms.of(args[0]), node, forms)
        if op == "multiply" and not (part.varies(args[0]) and part.varies(args[1])):
            factor, other = args if part.varies(args[1]) else args[::-1]
            return forms.scale(forms.of(other), factor)
        if op == "divide" and not part.varies(args[1]):
            form = forms.of(args[0])
            divided = {
                index: self.calculus.over(self.one(args[1]) if not isinstance(weight, Node) else weight, args[1])
                for index, weight in form.weights.items()
            }
            shift, value = (term and self.calculus.over(term, args[1]) for term in (form.shift, form.value))
            return Form(divided, shift, form.constant, value)
        if op == "left_shift" and not part.varies(args[1]):
            power = self.calculus.call("left_shift", self.one(args[1]), args[1])
            return forms.scale(forms.of(args[0]), power)
        if op == "conjugate":
            raise LeavesClassError(node, "is no product with a number")
        raise LeavesClassError(node)

    def _negative(self, form: Form, node: Node, forms: Forms) -> Form:
        return forms.scale(form, self.graph.constant(-1, node.scalar))

    def _cast(self, node: Node, forms: Forms) -> Form:
        """Return the form of a conversion that changes no value, or of integers, no value modulo 2**bits."""
        (arg,) = node.args
        kinds = arg.scalar.kind, node.scalar.kind
        own = self.part.states[0].scalar
        keeps = kinds == ("float", "float") or (
            all(kind in INTEGERS for kind in kinds) and min(arg.scalar.bits, node.scalar.bits) >= own.bits
        )
        if not keeps:
            raise LeavesClassError(node, f"converts the carry to {node.scalar.name}")
        form = forms.of(arg)
        weights = {
            index: self.graph.cast(weight, node.scalar) if isinstance(weight, Node) else weight
            for index, weight in form.weights.items()
        }
        shift, value = (term and self.graph.cast(term, node.scalar) for term in (form.shift, form.value))
        return Form(weights, shift, form.constant, value)


@dataclass(frozen=True)
class MaskedMaps(MatrixMaps):
    """Affine maps of one integer modulo a power of two, with a mask on the result.

    The loop masks each state, and the maps only the result: sums and products modulo a power of two do not depend on
    the bits above it.

    Attributes:
        bits: the exponent of the power of two.
    """

    bits: int = 32

    @property
    def keeps_start(self) -> bool:
        # The values in `init` may have bits above the mask.
        return False

    def state(self, numbers: Numbers) -> list[Number]:
        return [number & np.full_like(number, 2**self.bits - 1) for number in super().state(numbers)]


def _mask(node: Node) -> tuple[Node, int] | None:
    """Return what is taken modulo a power of two, and its exponent; None if the node does no such thing."""
    if node.op not in ("bitwise_and", "remainder") or not node.args[1].is_constant:
        return None
    value = node.args[1].integer
    size = value + 1 if node.op == "bitwise_and" else value
    # Of few values, the tables of finite states are simpler.
    if size <= _TABLE_SIZE or size & (size - 1):
        return None
    return node.args[0], reveal(size).bit_length() - 1


def derive(part: StepPart) -> LoopStage:
    """Return the stage of affine maps.

    Raises:
        LeavesClassError: an operation is none of such maps.
    """
    if any(node.scalar.kind == "bool" for node in part.states) or len({node.scalar for node in part.states}) > 1:
        raise LeavesClassError(part.results[0], rank=-1)
    masked = _mask(part.results[0]) if len(part.state_indices) == 1 and part.states[0].scalar.is_integer else None
    if masked is None:
        return derive_stage(PlusTimes(part), scales=True)
    stage = derive_stage(PlusTimes(Inner(part.step, part.state_indices, part.initial, result=masked[0])), scales=False)
    assert isinstance(stage.composition, MatrixMaps)
    composition = MaskedMaps(PlusTimes, stage.composition.pattern, bits=masked[1])
    return replace(stage, law=f"h[t] = (a h[t-1] + b) mod 2**{masked[1]}", composition=composition)


@dataclass(frozen=True, eq=False)
class Inner(StepPart):
    """A part with another result."""

    result: Node = field(kw_only=True)

    @cached_property
    def results(self) -> list[Node]:
        return [self.result]
