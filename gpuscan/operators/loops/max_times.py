"""Affine maps over (max, x): h -> max(a h, b), for factors a that are never negative.

Law: ``h[t] = max(a[t] h[t-1], b[t])`` with ``a[t] >= 0``. Composition, first (a1, b1), then (a2, b2):
``(a2 a1, max(a2 b1, b2))``. Identity: (1, -inf). Proof: ``x -> a2 x`` does not fall, so it can be taken inside the
maximum of the first map. That needs ``a2 >= 0``, which must follow from the operations that compute a: constants,
absolute values, squares, exponentials, roots, and sums, products, quotients and maxima of such numbers.

A maximum of two terms of the carry needs a carry that is never negative as well, since ``max(a h, b h)`` is then
``max(a, b) h``. Only the larger factor must not be negative: ``max(h, a h)`` is ``max(1, a) h`` for any a. Where each
new number has one such term, products of matrices have one as well.

The factors carry an exponent, as in affine maps. Minima work in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.operators.expression_graph import BOOL, Node
from gpuscan.operators.loops.semirings import Form, Forms, ScaledMaps, Semiring, derive_stage
from gpuscan.operators.loops.stage import (
    LeavesClassError,
    LoopStage,
    StepPart,
    chosen_extremum,
    constant_of_choice,
    maximum_of_choice,
    minimum_of_choice,
)
from gpuscan.operators.parameter_array import arrays_hold
from gpuscan.operators.traced_array import Number

# How many factors of a product are looked at.
_MAX_FACTORS = 24
_NEGATIVE = "multiplies the carry by a number that may be negative"


def _product(a: object, b: Number, nothing: float) -> AnyArray:
    """Return the product; nothing if either is: an infinity stands for a map without a term."""
    zero = np.full_like(a, nothing)
    return np.where((a == zero) | (b == zero), zero, a * b)


class MaxTimes(Semiring):
    """The semiring of numbers under maximum and multiplication by factors that are not negative."""

    class_name = "max-times"
    law = "h[t] = max(a h[t-1], b), a >= 0"
    plus: Any = np.maximum
    times = staticmethod(partial(_product, nothing=-np.inf))
    extremum = "maximum"
    farthest = -np.inf
    # True if np.where(a h > b, a h, b) was met, which takes b if either is NaN.
    chooses = False
    # A maximum of two terms of the carry, if one was met.
    joins: Node | None = None

    @classmethod
    def nothing(cls, is_float: bool) -> float:
        return cls.farthest

    def sum(self, a: Node, b: Node) -> Node:
        return a if a is b else self.calculus.call(self.extremum, a, b)

    def product(self, a: Node, b: Node) -> Node:
        return self.calculus.times(a, b)

    def form_of(self, node: Node, forms: Forms) -> Form:
        op, args, part = node.op, node.args, self.part
        if op == self.extremum:
            left, right = forms.of(args[0]), forms.of(args[1])
            if left.weights and right.weights and dict(left.weights) != dict(right.weights):
                self.joins = node
            return forms.sum(left, right)
        name, first, second = chosen_extremum(node)
        if name == self.extremum and not (part.varies(first) and part.varies(second)):
            return self._chosen(first, second, forms)
        if op == "multiply" and not (part.varies(args[0]) and part.varies(args[1])):
            factor, other = args if part.varies(args[1]) else args[::-1]
        elif op == "divide" and not part.varies(args[1]):
            factor, other = self.calculus.over(self.one(args[1]), args[1]), args[0]
        elif op == "cast" and node.scalar.kind == args[0].scalar.kind == "float":
            return forms.of(args[0])
        else:
            raise LeavesClassError(node)
        form = forms.of(other)
        if not is_nonnegative(factor):
            if form.shift is not None or form.constant is not None:
                raise LeavesClassError(node, _NEGATIVE, rank=1)
            # The largest factor of a carry that is never negative counts alone, as 1 in max(h, a h).
            self.joins = node
        return forms.scale(form, factor)

    def _chosen(self, first: Node, second: Node, forms: Forms) -> Form:
        """Return the form of ``np.where(first > second, first, second)``.

        NaN of the input is passed over if the state stands second, and is taken for this one step if it stands first.
        """
        graph = self.graph
        nothing = graph.constant(self.farthest, first.scalar)
        limit, state = (first, second) if self.part.varies(second) else (second, first)
        nan = graph.apply("isnan", (limit,), BOOL)
        if limit is first:
            return forms.sum(forms.of(state), forms.of(graph.select(nan, nothing, limit)))
        form = forms.of(state)
        if form.shift is not None or len(self.part.state_indices) > 1:
            raise LeavesClassError(state, "is compared with the input after it was bounded", rank=1)
        self.chooses = True
        numbers = [weight for weight in form.weights.values() if isinstance(weight, Node)]
        low = self.extremum == "maximum"
        constant, value = constant_of_choice(graph, (form.constant, form.value), limit, numbers, low=low)
        return Form(form.weights, limit, constant, value)


class MinTimes(MaxTimes):
    """The semiring of numbers under minimum and multiplication by factors that are not negative."""

    class_name = "max-times"
    law = "h[t] = min(a h[t-1], b), a >= 0"
    plus: Any = np.minimum
    times = staticmethod(partial(_product, nothing=np.inf))
    extremum = "minimum"
    farthest = np.inf


class MaxTimesByChoice(MaxTimes):
    """The same with ``np.where(a > b, a, b)`` as the maximum."""

    plus = staticmethod(maximum_of_choice)


class MinTimesByChoice(MinTimes):
    """The same with ``np.where(a < b, a, b)`` as the minimum."""

    plus = staticmethod(minimum_of_choice)


CHOOSING: Mapping[type[Semiring], type[Semiring]] = {MaxTimes: MaxTimesByChoice, MinTimes: MinTimesByChoice}


def _is_nonnegative(value: float) -> bool:
    return bool(value >= 0)


def _factors(node: Node) -> list[Node]:
    """Return the factors of a product, up to a number of them. The square of a product is one factor."""
    factors = list(node.args)
    while len(factors) < _MAX_FACTORS:
        at = next((i for i, f in enumerate(factors) if f.op == "multiply" and f.args[0] is not f.args[1]), None)
        if at is None:
            break
        factors[at : at + 1] = factors[at].args
    return factors


def _is_no_integer(value: float) -> bool:
    return bool(np.isfinite(value) and value != np.floor(value))


def is_nonnegative(node: Node, nonnegative: Collection[int] = ()) -> bool:
    """Return True if the operations that compute a number show that it is not negative.

    Args:
        node: the number.
        nonnegative: the indices of nodes that are not negative.
    """
    op, args, proves = node.op, node.args, partial(is_nonnegative, nonnegative=nonnegative)
    if node.index in nonnegative:
        return True
    if node.is_constant:
        return node.reveal(_is_nonnegative)
    if node.scalar.kind in ("unsigned", "bool"):
        return True
    if op in ("absolute", "exp", "exp2", "sqrt", "cosh", "hypot", "arccos"):
        return True
    if op in ("add", "divide", "floor_divide", "minimum", "fmin", "remainder"):
        return all(map(proves, args))
    if op == "multiply":
        # A factor that comes an even number of times makes the product no negative number.
        return args[0] is args[1] or all(
            proves(factor) for factor, count in Counter(_factors(node)).items() if count % 2
        )
    if op == "power" and args[1].is_constant and args[1].reveal(_is_no_integer):
        return True  # of a negative number, it is NaN
    if op in ("maximum", "fmax"):
        return any(map(proves, args))
    if op == "select":
        return all(map(proves, args[1:]))
    if op in ("cast", "floor", "ceil", "trunc", "rint"):
        return proves(args[0])
    return False


def are_nonnegative(values: AnyArray) -> np.bool_:
    return np.all(values >= 0)


def stays_nonnegative(part: StepPart) -> bool:
    """Return True if no number of the carry is ever negative: `init` is not, nor is the step of such numbers."""
    begins = all(values is not None and arrays_hold(are_nonnegative, values) for values in part.initial)
    states = {node.index for node in part.states}
    return bool(part.initial) and begins and all(is_nonnegative(node, states) for node in part.results)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of maps over (max, x).

    Raises:
        LeavesClassError: an operation is none of such maps.
    """
    if any(node.scalar.kind != "float" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    refusals = []
    for semiring in (MaxTimes, MinTimes):
        try:
            used = semiring(part)
            stage = derive_stage(used, scales=True)
            forms = Forms(used)
            all_weights = [weight for node in part.results for weight in forms.of(node).weights.values()]
            weights = [weight for weight in all_weights if isinstance(weight, Node)]
            # A term that is absent has the infinity as its factor.
            if not all(is_nonnegative(weight, {used.zero(weight).index}) for weight in weights):
                raise LeavesClassError(used.joins or part.results[0], _NEGATIVE, rank=1)
            if used.joins is not None and not stays_nonnegative(part):
                # max(a h, b h) is max(a, b) h if h is not negative. So are products of matrices with several terms.
                raise LeavesClassError(used.joins, "joins two terms of a carry that may be negative", rank=1)
            if used.chooses and isinstance(stage.composition, ScaledMaps):
                return replace(stage, composition=ScaledMaps(CHOOSING[semiring]))
            return stage
        except LeavesClassError as error:
            refusals.append(error)
    raise max(refusals, key=lambda error: (error.rank, error.node.index))
