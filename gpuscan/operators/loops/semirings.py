"""Affine maps over a semiring, h -> A h + b, and their composition.

The classes over (+, x), (max, +) and (max, x) share them.

In a semiring the two operations are associative, "plus" commutes, and "times" distributes over it. So
``A2 (A1 h + b1) + b2 = (A2 A1) h + (A2 b1 + b2)``, which is again such a map, and composition is associative as that of
any functions is. The identity is A = 1, b = 0, in the semiring's 1 and 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.elements import SCALARS, scalar_of
from gpuscan.operators.adjoint import ONE, ZERO, Pattern, pattern_of
from gpuscan.operators.derivatives import Calculus
from gpuscan.operators.expression_graph import Graph, Node, reachable
from gpuscan.operators.loops import polynomials
from gpuscan.operators.loops.stage import (
    Composition,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    both,
    chosen,
    compute_nodes,
    either,
    float_format,
    loses_infinities,
    negate_condition,
    normal_power_of_two,
)
from gpuscan.operators.traced_array import Number

# Stands for an exponent of factors near 1.
_NEAR = 2**30
# Constant factors from 1 less this are near 1, and up to 1 plus that. Powers of smaller ones vanish before errors grow.
_NEAR_BELOW, _NEAR_ABOVE = 1 / 128, 1 / 4
# How many powers of a matrix have their structures compared. Only larger matrices have longer periods.
_MAX_POWERS = 64
INT32, INT64 = scalar_of(np.dtype(np.int32)), scalar_of(np.dtype(np.int64))


class Semiring:
    """A semiring on the nodes of a graph. None stands for its 0, and `ONE` for its 1.

    Args:
        part: the part of a step that is derived.
    """

    class_name = ""
    law = ""
    # The NumPy functions of a composition.
    plus: Callable[..., Number]
    times: Callable[..., Number]

    # The 1 of the semiring.
    unit = 1

    @classmethod
    def nothing(cls, is_float: bool) -> float:
        """Return the 0 of the semiring, of floats or of other numbers."""
        del is_float
        return 0

    @classmethod
    def nothing_like(cls, numbers: Number) -> Number:
        return np.full_like(numbers, cls.nothing(numbers.dtype.kind == "f"))

    def __init__(self, part: StepPart) -> None:
        self.part = part
        self.graph: Graph = part.graph
        self.calculus: Calculus = part.calculus

    def number(self, node: Node) -> Node:
        """Return a number in the type that the maps are computed in."""
        return node

    def zero(self, like: Node) -> Node:
        return self.graph.constant(self.nothing(like.scalar.kind == "float"), like.scalar)

    def one(self, like: Node) -> Node:
        return self.graph.constant(self.unit, like.scalar)

    def sum(self, a: Node, b: Node) -> Node:
        raise NotImplementedError

    def sum_shifts(self, a: Node, b: Node) -> Node:
        """Return the sum of two constants, with NaN if one of them is NaN."""
        return self.sum(a, b)

    def product(self, a: Node, b: Node) -> Node:
        raise NotImplementedError

    def form_of(self, node: Node, forms: Forms) -> Form:
        """Return the form of an operation on numbers that depend on the state.

        Raises:
            LeavesClassError: it has none.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Form:
    """A number as a function of the state: the sum of products of its numbers with coefficients, and of a constant.

    Attributes:
        weights: the coefficient of each number of the state that it depends on; `ONE` for 1.
        shift: the constant; None for 0.
        constant: a condition; where it is met, `value` alone counts. None if there is none.
        value: the number where the condition is met; None for 0.
    """

    weights: Mapping[int, Any]
    shift: Node | None
    constant: Node | None = None
    value: Node | None = None


class Forms(NodeForms["Form"]):
    """The forms of the nodes of a part."""

    def __init__(self, semiring: Semiring) -> None:
        super().__init__(semiring.part)
        self.semiring = semiring
        # The indices of weights that are absent under a condition.
        self.absent: set[int] = set()

    def _derive(self, node: Node) -> Form:
        if not self.part.varies(node):
            return Form({}, self.semiring.number(node))
        if node.op == "input":
            return Form({self.part.number_of(node): ONE}, None)
        if node.op == "select" and not self.part.varies(node.args[0]):
            return self.choice(node.args[0], self.of(node.args[1]), self.of(node.args[2]))
        return self.semiring.form_of(node, self)

    # ----- Operations

    def sum(self, one: Form, other: Form) -> Form:
        graph = self.semiring.graph
        one, other = self.plain(one), self.plain(other)
        constant = one.constant or other.constant
        if one.weights and other.weights and one.constant is not other.constant:
            constant = both(graph, one.constant, other.constant)
            one, other = self.mask(one), self.mask(other)
        weights = dict(one.weights)
        for index, weight in other.weights.items():
            weights[index] = self._plus(weights[index], weight) if index in weights else weight
        shift = self._sum(one.shift, other.shift)
        value = None
        if constant is not None:
            value = self._sum(*(form.shift if form.constant is None else form.value for form in (one, other)))
        return Form({index: weight for index, weight in weights.items() if weight is not None}, shift, constant, value)

    def _sum(self, one: Node | None, other: Node | None) -> Node | None:
        return self.semiring.sum_shifts(one, other) if one is not None and other is not None else one or other

    def _plus(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return a or b
        like = next((weight for weight in (a, b) if weight is not ONE), None)
        if like is None:
            like = self.semiring.number(self.part.states[0])
        total = self.semiring.sum(*(self.semiring.one(like) if weight is ONE else weight for weight in (a, b)))
        return None if self.is_zero(total) else total

    def is_zero(self, node: Node) -> bool:
        return node.is_constant and node is self.semiring.zero(node)

    def scale(self, form: Form, factor: Node) -> Form:
        """Return the product of a form and a number that does not depend on the state."""
        if factor is self.semiring.one(factor):
            return form
        weights = {
            index: factor if weight is ONE else self.semiring.product(weight, factor)
            for index, weight in form.weights.items()
        }
        weights = {index: weight for index, weight in weights.items() if not self.is_zero(weight)}
        shift, value = (term and self.semiring.product(term, factor) for term in (form.shift, form.value))
        return Form(weights, shift, form.constant, value)

    def mask(self, form: Form) -> Form:
        """Return the form with coefficients that are 0 where it is constant."""
        if form.constant is None:
            return form
        weights = {index: self._choose(form.constant, None, weight) for index, weight in form.weights.items()}
        return Form(weights, self.whole_shift(form))

    def plain(self, form: Form) -> Form:
        """Return the form; a number that does not depend on the state without a condition."""
        return form if form.weights else self.mask(form)

    def whole_shift(self, form: Form) -> Node | None:
        """Return the constant, which is the value where a form is constant; None for 0."""
        if form.constant is None:
            return form.shift
        chosen: Node | None = self._choose(form.constant, form.value, form.shift)
        return chosen

    def _choose(self, condition: Node, one: Any, other: Any) -> Any:
        if one is other:
            return one
        like = next((weight for weight in (one, other) if isinstance(weight, Node)), None)
        like = self.semiring.number(self.part.states[0]) if like is None else like
        nodes = [
            self.semiring.zero(like) if weight is None else self.semiring.one(like) if weight is ONE else weight
            for weight in (one, other)
        ]
        choice = self.semiring.graph.select(condition, *nodes)
        if one is None or other is None:
            self.absent.add(choice.index)
        return choice

    def may_be_absent(self, weight: object) -> bool:
        """Return True if a weight is absent under some condition."""
        if not isinstance(weight, Node):
            return weight is None
        return any(node.index in self.absent for node in reachable([weight]))

    def choice(self, condition: Node, yes: Form, no: Form) -> Form:
        """Return the form of ``np.where(condition, yes, no)``."""
        graph = self.semiring.graph
        yes, no = self.plain(yes), self.plain(no)
        if not yes.weights or not no.weights:
            value, other = (no.shift, yes) if yes.weights else (yes.shift, no)
            here = negate_condition(graph, condition) if yes.weights else condition
            if other.constant is not None:
                value = self._choose(condition, *((other.value, value) if yes.weights else (value, other.value)))
            return Form(other.weights, other.shift, either(graph, here, other.constant), value)
        weights = {
            index: self._choose(condition, yes.weights.get(index), no.weights.get(index))
            for index in sorted({*yes.weights, *no.weights})
        }
        shift, value = self._choose(condition, yes.shift, no.shift), self._choose(condition, yes.value, no.value)
        return Form(weights, shift, chosen(graph, condition, yes.constant, no.constant), value)


# ----- Compositions


@dataclass(frozen=True)
class MatrixMaps(Composition):
    """Maps h -> A h + b, as those entries of A that vary, then b.

    Attributes:
        semiring: the class of the semiring.
        pattern: the class of each entry of A; see `gpuscan.operators.transitions`.
        sparse: the classes of entries that may be absent, which is the semiring's 0. NaN and infinities of a number are
            not multiplied by them.
    """

    semiring: type[Semiring]
    pattern: Pattern
    sparse: frozenset[int] = frozenset()

    @property
    def stored(self) -> int:
        """The number of entries of A that are stored."""
        return 1 + max(itertools.chain([-1], *self.pattern))

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        plus, times, size = self.semiring.plus, self.semiring.times, range(len(self.pattern))
        stored = self.stored
        like = right[stored]

        def entry(numbers: Numbers, class_number: int) -> Number | None:
            return numbers[class_number] if class_number >= 0 else None

        def product(row: int, other: Number | None, column: int = ONE) -> Any:
            """Return the product of the right entry of one class and a number of the left, of a class as well."""
            one = entry(right, row)
            if one is None or other is None:
                return other if one is None else one
            result = times(one, other)
            for number, class_number in ((one, row), (other, column)):
                if class_number in self.sparse:
                    nothing = self.semiring.nothing_like(like)
                    result = np.where(number == nothing, nothing, result)
            return result

        entries: dict[int, Number] = {}
        for i in size:
            for j in size:
                class_number = self.pattern[i][j]
                if class_number >= 0 and class_number not in entries:
                    terms = [
                        product(self.pattern[i][k], entry(left, self.pattern[k][j]), self.pattern[k][j])
                        for k in size
                        if ZERO not in (self.pattern[i][k], self.pattern[k][j])
                    ]
                    terms = [np.full_like(like, self.semiring.unit) if term is None else term for term in terms]
                    entries[class_number] = reduce(plus, terms) if terms else self.semiring.nothing_like(like)
        vector = []
        for i in size:
            terms = [product(self.pattern[i][j], left[stored + j]) for j in size if self.pattern[i][j] != ZERO]
            vector.append(reduce(plus, [*terms, right[stored + i]]))
        return [*(entries[class_number] for class_number in range(stored)), *vector]

    def start(self, state: Numbers) -> list[Number]:
        return [*[np.zeros_like(state[0])] * self.stored, *state]

    def state(self, numbers: Numbers) -> list[Number]:
        return list(numbers[self.stored :])


@cache
def powers(dtype: AnyDType) -> tuple[float, float]:
    """Return the unit of the exponents of scaled factors, and its square root."""
    return (2.0**64, 2.0**32) if np.dtype(dtype) == np.float32 else (2.0**512, 2.0**256)


def rescale(factor: Number, exponent: Number) -> tuple[Number, Number]:
    """Return ``factor * unit**exponent`` with a factor from 1/root to root, by exact multiplications."""
    unit, root = powers(factor.dtype)
    for _ in range(2):
        size = np.abs(factor)
        steps = (size >= root).astype(np.int32) - (size < 1 / root).astype(np.int32)
        factor = factor * normal_power_of_two(steps * -int(np.log2(unit)), factor)
        exponent = exponent + steps
    # The exponents of 0 and of an infinity, which are their own doubles, mean nothing and would add up.
    return factor, np.where(factor + factor == factor, np.zeros_like(exponent), exponent)


def rescale_product(left: Numbers, right: Numbers) -> tuple[Number, Number]:
    """Return the product of two numbers, each a factor from 1/root to root and an exponent, in the same form.

    The product of the factors is from 1/unit to unit, so the upper two bits of its exponent, less that of 1/root, tell
    the steps: 0, 1 or -1. They are -2 for 0, infinities and NaN, so that their meaningless exponents do not add up.
    """
    factor = left[0] * right[0]
    word_type, shift, bias = float_format(factor)
    power = int(np.log2(powers(factor.dtype)[0]))
    bits = factor.view(word_type)
    step = shift + power.bit_length() - 1  # of the bits, where the number changes by the unit
    least = np.full_like(bits, word_type((bias - power // 2) << (shift + 1)))
    steps = ((bits << np.full_like(bits, 1)) - least) >> np.full_like(bits, step + 1)
    special = steps == np.full_like(steps, -2)
    scaled = (bits - (steps << np.full_like(steps, step))).view(factor.dtype)
    exponent = left[1] + right[1] + steps.astype(np.int32)
    return np.where(special, factor, scaled), np.where(special, np.zeros_like(exponent), exponent)


def scale_number(number: Number) -> tuple[Number, Number]:
    """Return any number as a factor and an exponent."""
    return rescale(number, np.zeros_like(number).astype(np.int32))


def scale_node(graph: Graph, node: Node) -> list[Node]:
    """Return the nodes of `scale_number` for a number. A constant gives each of these nodes in one step."""
    if not node.is_constant:
        return compute_nodes(graph, scale_number, node)
    return [graph.compute(_factor_of, (node,), node.scalar), graph.compute(_exponent_of, (node,), SCALARS["int32"])]


def _factor_of(number: object) -> object:
    return _scale_constant(number)[0]


def _exponent_of(number: object) -> int:
    return _scale_constant(number)[1]


def _scale_constant(number: Any) -> tuple[Any, int]:
    """Return what `scale_number` does for a number of NumPy."""
    unit, root = powers(number.dtype)
    exponent = 0
    for _ in range(2):
        if abs(number) >= root:
            number, exponent = number / number.dtype.type(unit), exponent + 1
        elif abs(number) < 1 / root:
            number, exponent = number * number.dtype.type(unit), exponent - 1
    return number, 0 if number + number == number else exponent


def split_number(number: Number) -> tuple[Number, Number]:
    """Return a factor from 1 to 2 in size and an exponent e. The number is the factor times ``2**e``.

    The largest numbers have factors up to 4, and subnormal ones factors below 1, since powers of two that are normal
    numbers scale no further. 0, infinities and NaN are the factors themselves.
    """
    word_type, shift, bias = float_format(number)
    bits = number.view(word_type)
    field = bits & np.full_like(bits, word_type((2 * bias + 1) << shift))
    one = word_type(1 << shift)  # in the field of the exponent
    power = np.maximum(np.full_like(bits, word_type((2 * bias) << shift)) - field, np.full_like(bits, one))
    exponent = np.full_like(bits, bias) - (power >> np.full_like(power, shift))
    return number * power.view(number.dtype), exponent.astype(np.int32)


def multiply_scaled(factor: Number, exponent: Number, number: Number) -> Number:
    """Return ``factor * unit**exponent * number`` without an overflow or underflow that the result has not.

    No exponent beyond 5 gives a number. Two quarters of the power change the number by a root of the unit at least, and
    the factor and a third quarter by at most such a root in the other direction. So all products are between the number
    and the result.
    """
    unit, _ = powers(factor.dtype)
    quarter = normal_power_of_two(np.clip(exponent, -5, 5) * (int(np.log2(unit)) // 4), factor)
    return number * quarter * quarter * (factor * quarter) * quarter


@dataclass(frozen=True)
class ScaledMaps(Composition):
    """Maps h -> a h + b of one float, as a factor, an exponent and b, so that products of factors stay in range.

    Without the exponents, the product of many factors a would overflow or vanish where the loop's own numbers do not.

    Attributes:
        semiring: the class of the semiring.
        loses_infinities: True if the loop's step gives NaN for an infinite state, unless it keeps the state.
    """

    semiring: type[Semiring]
    loses_infinities: bool = False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        factor, exponent = rescale_product(left, right)
        keeps = (right[0] == np.ones_like(right[0])) & (right[1] == np.zeros_like(right[1]))
        shift = self._add(left[2], multiply_scaled(right[0], right[1], left[2]), keeps, right[2])
        return [factor, exponent, shift]

    def _add(self, state: Number, product: Number, keeps: Number, shift: Number) -> Number:
        """Return the sum of a shift and the product of a state and a factor, which is 1 if it keeps the state."""
        if self.loses_infinities:
            product = np.where(np.isinf(state) & ~keeps, np.full_like(product, np.nan), product)
        if self.semiring.class_name != "affine":
            # An infinity stands for a term that is absent, and stays so.
            nothing = self.semiring.nothing_like(product)
            product = np.where(state == nothing, nothing, product)
        return self.semiring.plus(product, shift)

    # Within a chunk, the factor is a product of factors from `split_number`, and the exponent is one of 2.

    def first(self, plain: Numbers) -> list[Number]:
        return [*split_number(plain[0]), plain[1]]

    def extend(self, left: Numbers, plain: Numbers) -> list[Number]:
        factor, shift = plain
        part, exponent = split_number(factor)
        keeps = factor == np.ones_like(factor)
        return [left[0] * part, left[1] + exponent, self._add(left[2], factor * left[2], keeps, shift)]

    def settle(self, numbers: Numbers) -> list[Number]:
        product, exponent, shift = numbers
        factor, rest = split_number(product)
        exponent = exponent + rest
        power = int(np.log2(powers(factor.dtype)[0]))
        steps = (exponent + np.full_like(exponent, power // 2)) >> np.full_like(exponent, power.bit_length() - 1)
        rest = exponent - (steps << np.full_like(steps, power.bit_length() - 1))
        factor = factor * normal_power_of_two(rest, factor)
        return [factor, np.where(factor + factor == factor, np.zeros_like(steps), steps), shift]

    def start(self, state: Numbers) -> list[Number]:
        return [np.full_like(state[0], 1), np.zeros_like(state[0]).astype(np.int32), state[0]]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[2]]


@dataclass(frozen=True)
class NearOneMaps(ScaledMaps):
    """The same for one constant factor near 1. Its powers would have the same rounding error at each step.

    While a factor is near 1, its difference from 1 is kept in its place, and `_NEAR` in the place of the exponent. The
    product of ``1 + e1`` and ``1 + e2`` has the difference ``e1 + e2 + e1 e2``, which is rounded by far less.
    """

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        near = [numbers[1] == np.full_like(numbers[1], _NEAR) for numbers in (left, right)]
        one, zero = np.ones_like(right[0]), np.zeros_like(right[1])
        whole = [
            (np.where(is_near, one + numbers[0], numbers[0]), np.where(is_near, zero, numbers[1]))
            for is_near, numbers in zip(near, (left, right), strict=True)
        ]
        factor, exponent = rescale_product(*whole)
        difference = left[0] + right[0] + left[0] * right[0]
        stays = near[0] & near[1] & (np.abs(difference) <= one / 2)
        product = np.where(near[1], left[2] + right[0] * left[2], multiply_scaled(*whole[1], left[2]))
        keeps = (whole[1][0] == one) & (whole[1][1] == zero)
        return [
            np.where(stays, difference, factor),
            np.where(stays, left[1], exponent),
            self._add(left[2], product, keeps, right[2]),
        ]


@dataclass(frozen=True)
class ProductMaps(Composition):
    """Maps h -> a h of one float, as a factor and an exponent. No shift of 0 meets a factor that is infinite.

    Products are right even after the loop's own have become infinite or 0, so the loop's step is not taken.
    """

    @property
    def takes_steps(self) -> bool:
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        return list(rescale_product(left, right))

    def start(self, state: Numbers) -> list[Number]:
        return list(scale_number(state[0]))

    def state(self, numbers: Numbers) -> list[Number]:
        factor, exponent = numbers
        return [multiply_scaled(factor, exponent, np.full_like(factor, 1))]


def derive_stage(semiring: Semiring, *, scales: bool) -> LoopStage:
    """Return the stage of a part. All results of the part must have forms over the semiring.

    Args:
        scales: True if the factors of maps of one float get exponents.

    Raises:
        LeavesClassError: a result has no form.
    """
    part, forms = semiring.part, Forms(semiring)
    graph = semiring.graph
    forms_of_results = [forms.of(node) for node in part.results]
    constants = {form.constant.index if form.constant is not None else -1 for form in forms_of_results}
    if len(constants) > 1:
        constant: Node | None = forms_of_results[0].constant
        for form in forms_of_results[1:]:
            constant = both(graph, constant, form.constant)
        forms_of_results = [forms.mask(form) for form in forms_of_results]
        forms_of_results = [replace(form, constant=constant, value=form.shift) for form in forms_of_results]
    size = range(len(forms_of_results))
    entries = [[form.weights.get(column) for column in size] for form in forms_of_results]
    keys = [["0" if e is None else "1" if e is ONE else e.index for e in row] for row in entries]
    pattern = pattern_of(keys, "0", "1")
    like = semiring.number(part.states[0])
    if scales and like.scalar.kind == "float" and len(forms_of_results) == 1 and pattern[0][0] not in (ZERO, ONE):
        return _derive_scaled_stage(forms, forms_of_results[0])
    whole = [forms.whole_shift(form) for form in forms_of_results]
    shifts = [semiring.zero(like) if shift is None else shift for shift in whole]
    stored: dict[int, Node] = {}
    for row, classes in zip(entries, pattern, strict=True):
        for entry, class_number in zip(row, classes, strict=True):
            if class_number >= 0:
                stored.setdefault(
                    class_number,
                    semiring.zero(like) if entry is None else semiring.one(like) if entry is ONE else entry,
                )
    matrix = [stored[class_number] for class_number in range(len(stored))]
    wide_numbers = tuple(semiring.calculus.wide(node) for node in (*matrix, *shifts))
    sparse: frozenset[int] = frozenset()
    if like.scalar.kind == "float" and semiring.class_name != "max-times":
        sparse = _sparse_classes(pattern, [[forms.may_be_absent(weight) for weight in row] for row in entries], entries)
    composition = MatrixMaps(type(semiring), pattern, sparse)
    law = semiring.law if len(forms_of_results) == 1 else semiring.law.replace("a ", "A ") + describe_pattern(pattern)
    return LoopStage(
        semiring.class_name, law, part.state_indices, wide_numbers, forms_of_results[0].constant, composition
    )


def _derive_scaled_stage(forms: Forms, form: Form) -> LoopStage:
    """Return the stage of a part that is one float."""
    semiring, part = forms.semiring, forms.part
    (weight,) = form.weights.values()
    composition: Composition = ScaledMaps(type(semiring))
    shift = forms.whole_shift(form)
    difference = _difference_from_one(part, part.results[0]) if semiring.class_name == "affine" else None
    if difference is not None:
        wide = semiring.calculus.wide
        maps = NearOneMaps(type(semiring), loses_infinities(part, form.constant))
        near = semiring.graph.constant(_NEAR, INT32)
        terms = (wide(difference), near, wide(semiring.zero(weight) if shift is None else shift))
        return LoopStage(semiring.class_name, semiring.law, part.state_indices, terms, form.constant, maps)
    numbers: tuple[Node, ...] = ()
    if form.shift is None and semiring.class_name == "affine":
        composition = ProductMaps()
        if form.constant is not None:
            weight = semiring.graph.select(form.constant, form.value or semiring.zero(weight), weight)
    else:
        numbers = (semiring.calculus.wide(semiring.zero(weight) if shift is None else shift),)
        if semiring.class_name == "affine":
            composition = ScaledMaps(type(semiring), loses_infinities(part, form.constant))
    weight = semiring.calculus.wide(weight)
    scaled = scale_node(semiring.graph, weight)
    plain = (weight, *numbers) if numbers else ()
    return LoopStage(
        semiring.class_name, semiring.law, part.state_indices, (*scaled, *numbers), form.constant, composition, plain
    )


def _difference_from_one(part: StepPart, node: Node) -> Node | None:
    """Return how much the factor of the state in a number differs from 1; None if it is no constant near 1.

    np.where may choose between such numbers. The difference is exact if 1 is a term of its own, as in h + 0.004 * h.
    """
    graph, state = part.graph, part.states[0]
    if node.op == "select" and not part.varies(node.args[0]):
        sides = [_difference_from_one(part, arg) for arg in node.args[1:] if part.varies(arg)]
        if any(side is None for side in sides):
            return None
        return graph.select(node.args[0], sides[0], sides[-1]) if len(sides) > 1 else sides[0]  # type: ignore[arg-type]
    polynomial = polynomials.add(polynomials.polynomial_of(node), {((state.index, 1),): Fraction(1)}, -1)
    total = graph.constant(0, node.scalar)
    for monomial, coefficient in polynomial.items():
        powers = dict(monomial)
        power = powers.pop(state.index, 0)
        numbers = [graph.nodes[index] for index, count in powers.items() for _ in range(count)]
        if power > 1 or any(part.varies(number) for number in numbers):
            return None
        if power:
            term = graph.constant(float(coefficient), node.scalar)
            total = part.calculus.add(total, reduce(part.calculus.times, numbers, term))
    return total if total.is_constant and total.reveal(_is_near) else None


def _is_near(difference: float) -> bool:
    return bool(-_NEAR_BELOW <= difference <= _NEAR_ABOVE)


def _sparse_classes(
    pattern: Pattern, absent: Sequence[Sequence[bool]], entries: Sequence[Sequence[object]]
) -> frozenset[int]:
    """Return the classes of the entries that are absent in some products of matrices, and present in others."""
    present = np.array([[entry is not None for entry in row] for row in entries])
    sure = ~np.array(absent)
    some, every = present, sure
    met, always = present.copy(), sure.copy()
    for _ in range(_MAX_POWERS):
        some, every = some @ present, every @ sure
        met, always = met | some, always & every
    return frozenset(pattern[i][j] for i, j in zip(*np.nonzero(met & ~always), strict=True) if pattern[i][j] >= 0)


def describe_pattern(pattern: Pattern) -> str:
    """Return the structure of the matrices in words."""
    size = range(len(pattern))
    if all(pattern[i][j] == ZERO for i in size for j in size if i != j):
        return f", A diagonal of {len(pattern)}"
    if all(pattern[i][j] == ZERO for i in size for j in size if j > i):
        return f", A lower triangular of {len(pattern)}"
    if all(pattern[i][j] == ZERO for i in size for j in size if j < i):
        return f", A upper triangular of {len(pattern)}"
    if all(pattern[i][j] == (ONE if j == i - 1 else ZERO) for i in size if i for j in size):
        return f", A a companion matrix of {len(pattern)}"
    return f", A a matrix of {len(pattern)} x {len(pattern)}"
