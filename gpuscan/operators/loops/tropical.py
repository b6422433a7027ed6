"""Affine maps over (max, +) and (min, +), clamps, and running extrema.

Laws: ``h[t] = max(h[t-1] + a, b)``, the same with min, and ``h[t] = min(max(h[t-1] + a, low), high)``. Maps of one
number are kept as (a, low, high), without the bounds that they do not have. Composition, first 1, then 2:
``a = a1 + a2, low = min(max(low1 + a2, low2), high2), high = min(max(high1 + a2, low2), high2)``. Identity:
(0, -inf, inf). Proof: ``x -> min(max(x + a2, low2), high2)`` does not fall, so it can be taken inside the minimum and
the maximum of the first map, and applied to its three terms one by one.

Integers of up to 32 bits are computed in 64 bits, so that a sum of increments cannot overflow where the loop itself
does not. Sums of int64 saturate. ``s - min(s, x)`` is computed as ``max(s - x, 0)``, where the state cancels. That is
right for finite numbers; where an input makes NaN of it, the map is NaN.

Several numbers are affine maps over the semiring (see `semirings`), without clamps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import Scalar
from gpuscan.operators.expression_graph import BOOL, Node, is_nan
from gpuscan.operators.loops.canonical import pass_over_nan
from gpuscan.operators.loops.semirings import INT32, INT64, Form, Forms, Semiring, derive_stage
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    chosen_extremum,
    compute_nodes,
    constant_choice,
    constant_of_choice,
    either,
)
from gpuscan.operators.traced_array import Number
from gpuscan.operators.traced_ufuncs import INTEGERS

# Stands for an infinite bound of integers of up to 32 bits: no sum of 2**30 increments reaches a number from it.
_FAR = 2**62


def _add(a: Number, b: Number) -> Number:
    """Return the sum; of int64, the nearest number if it overflows."""
    total = a + b
    if a.dtype != np.int64:
        return total
    limits = np.iinfo(np.int64)
    over = ((a ^ total) & (b ^ total)) < 0
    return np.where(over, np.where(a < 0, np.full_like(a, limits.min), np.full_like(a, limits.max)), total)


def _wraps(node: Node, part: StepPart) -> bool:
    """Return True for a conversion to integers that are narrower than the carry: these wrap around."""
    return node.scalar.kind != "float" and any(node.scalar.bits < state.scalar.bits for state in part.states)


# ----- Maps of one number


def is_beyond(number: Number, low: bool, high: bool) -> Any:
    """Return True for an infinity on the side of a bound.

    Args:
        low, high: True if there are such bounds.
    """
    if low and high:
        return np.abs(number) == np.full_like(number, np.inf)
    return number == np.full_like(number, -np.inf if low else np.inf)


def replace_nan(number: Number, name: str, bound: Number, lacks: bool) -> Number:
    """Return the bound of this name in the place of NaN. A bound that is absent, which some lack, does not take it."""
    takes = np.isnan(number)
    takes = takes & ~is_beyond(bound, name == "low", name == "high") if lacks else takes
    return np.where(takes, bound, number)


# How bounds are applied: as np.maximum, which keeps NaN, or as np.fmax, which passes over NaN.
_MAXIMUM: Mapping[str, Callable[..., AnyArray]] = {"keep": np.maximum, "skip": np.fmax}
_MINIMUM: Mapping[str, Callable[..., AnyArray]] = {"keep": np.minimum, "skip": np.fmin}


@dataclass(frozen=True)
class ClampMaps(Composition):
    """Maps h -> min(max(h + a, low), high). Of a, low and high, an element has only what the loop uses.

    Attributes:
        shifts: True if there are increments a.
        low, high: True if there are such bounds.
        nan: how bounds treat NaN: ``"keep"`` or ``"skip"``; or ``"low"`` or ``"high"`` for the bound that takes the
            place of NaN, as ``np.where(y > low, y, low)`` has it.
        saturates: True for the loop's own int64. Integers of up to 32 bits are computed in int64, which no sum leaves.
        lacks: True if a bound may be infinite, such as one that some maps lack. It stays so after a sum.
        bound: the name of the bounds' integer type, if that is narrower than the type of increments. It has all numbers
            of the loop's own type, so no bound of a composition leaves it unless the loop's own states do.
    """

    shifts: bool
    low: bool
    high: bool
    nan: str = "keep"
    saturates: bool = False
    lacks: bool = False
    bound: str = ""

    @property
    def takes_steps(self) -> bool:
        # Without a sum, a step is as short as a composition.
        return self.shifts

    def add(self, a: Number, b: Number) -> Number:
        return _add(a, b) if self.saturates else a + b

    def _add_increments(self, first: Number, then: Number) -> Number:
        total: Number = self.add(first, then)
        if first.dtype.kind != "f":
            return total
        # A state that an infinite increment brought to a bound is at that bound, whatever is added later.
        return np.where(is_beyond(first, self.low, self.high), first, total)

    def _clamp_number(self, name: str, number: Number, numbers: Mapping[str, Number]) -> Number:
        if self.bound:
            wide = {key: value.astype(np.int64) for key, value in numbers.items()}
            value = replace(self, bound="")._clamp_number(name, number.astype(np.int64), wide)
            return value.astype(self.bound)
        if self.shifts:
            total = self.add(number, numbers["a"])
            if self.lacks:
                absent = number == np.full_like(number, -np.inf if name == "low" else np.inf)
                total = np.where(absent, number, total)
            number = total
        nan = self.nan
        if nan in ("low", "high"):
            number, nan = replace_nan(number, nan, numbers[nan], self.lacks), "keep"
        number = _MAXIMUM[nan](number, numbers["low"]) if self.low else number
        return _MINIMUM[nan](number, numbers["high"]) if self.high else number

    @property
    def names(self) -> list[str]:
        return [name for name, is_present in (("a", self.shifts), ("low", self.low), ("high", self.high)) if is_present]

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        first, then = (dict(zip(self.names, numbers, strict=True)) for numbers in (left, right))
        increments = [self._add_increments(first["a"], then["a"])] if self.shifts else []
        return increments + [self._clamp_number(name, first[name], then) for name in self.names if name != "a"]

    def start(self, state: Numbers) -> list[Number]:
        return [np.zeros_like(state[0]) if name == "a" else state[0] for name in self.names]

    def state(self, numbers: Numbers) -> list[Number]:
        return [numbers[int(self.shifts)]]


@dataclass(frozen=True, eq=False)
class Clamp:
    """The numbers of a map; None for a slope of 1, for an increment of 0, and for bounds that are not there.

    Attributes:
        shift, low, high: the numbers, which do not count where the map is constant.
        slope: the factor of the state, which only `sloped_clamp` has.
        constant: a condition; where it is met, the map is constant. None if it never is.
        value: the value of the map where it is constant.
        is_constant: True if it is constant everywhere.
        replaces: ``"low"`` or ``"high"`` for the bound of the first comparison, which takes the place of NaN.
    """

    shift: Node | None = None
    low: Node | None = None
    high: Node | None = None
    constant: Node | None = None
    value: Node | None = None
    is_constant: bool = False
    replaces: str = ""
    slope: Node | None = None

    @property
    def bounded(self) -> bool:
        return self.low is not None or self.high is not None


class Clamps(NodeForms[Clamp]):
    """The clamps that nodes compute of the state."""

    def __init__(self, part: StepPart) -> None:
        super().__init__(part)
        own = part.states[0].scalar
        self.scalar = INT64 if own.is_integer else part.calculus.wide(part.states[0]).scalar
        self.far = _FAR if own.bits < 64 else 2**63 - 1
        self.nan: set[str] = set()
        # The limits that are applied with np.fmax and np.fmin.
        self.skips: list[Node] = []
        # True if the state cancelled in a sum.
        self.cancels = False
        # True if np.where chooses between a bound and none, or if a bound may be infinite because of a sum.
        self.lacks = False

    def number(self, node: Node) -> Node:
        return self.graph.cast(node, self.scalar)

    def _derive(self, node: Node) -> Clamp:
        part, op, args = self.part, node.op, node.args
        if not part.varies(node):
            return Clamp(value=self.number(node), is_constant=True)
        if op == "input":
            return Clamp()
        if op == "select" and not part.varies(args[0]):
            return self.choice(args[0], self.of(args[1]), self.of(args[2]))
        if op == "cast":
            return self._cast(node)
        if op == "add" and not (part.varies(args[0]) and part.varies(args[1])):
            amount, state = args if part.varies(args[1]) else args[::-1]
            return self._shift_clamp(self.of(state), self.number(amount))
        if op == "subtract" and not part.varies(args[1]):
            return self._shift_clamp(self.of(args[0]), self._negative(self.number(args[1])))
        if op in ("add", "subtract"):
            sign = 1 if op == "add" else -1
            clamp = self._plus(args[0], sign, args[1]) or (self._plus(args[1], 1, args[0]) if sign == 1 else None)
            if clamp is not None:
                self.cancels = True
                return clamp
            raise LeavesClassError(node)
        for name, bound in (("maximum", "low"), ("minimum", "high")):
            if op in (name, f"f{name[:3]}") and not (part.varies(args[0]) and part.varies(args[1])):
                limit, state = args if part.varies(args[1]) else args[::-1]
                clamp = self.of(state)
                if op == name:
                    return self._apply_bound(clamp, bound, self.number(limit))
                return self._apply_bound_over_nan(clamp, bound, self.number(limit))
        name, first, second = chosen_extremum(node)
        if name and not (part.varies(first) and part.varies(second)):
            return self._chosen_bound(first, second, "low" if name == "maximum" else "high")
        raise LeavesClassError(node)

    def _offset(self, node: Node, until: Node | None = None) -> tuple[Node, int, Node | None]:
        """Return (base, sign, amount) for a number that is ``sign * base + amount``; an amount of None is 0."""
        sign, amount = 1, None
        while node is not until and node.op in ("add", "subtract", "negative") and self.part.varies(node):
            if node.op == "negative":
                if node.scalar.kind == "unsigned":
                    break
                node, sign = node.args[0], -sign
                continue
            first, second = node.args
            if self.part.varies(first) and self.part.varies(second):
                break
            varying, free = (first, second) if self.part.varies(first) else (second, first)
            minus = node.op == "subtract"
            amount = self._add_with_sign(amount, -sign if minus and free is second else sign, free)
            node, sign = varying, -sign if minus and varying is second else sign
        return node, sign, amount

    def _add_with_sign(self, amount: Node | None, sign: int, other: Node | None) -> Node | None:
        """Return ``amount + sign * other``."""
        if other is None or other.equals(0):
            return amount
        number = self.number(other)
        return self._sum(amount, number if sign > 0 else self._negative(number))

    def _plus(self, state: Node, sign: int, node: Node) -> Clamp | None:
        """Return ``state + sign * node`` for a node of bounds of the state, which cancels there: the rest of a bucket.

        ``s - min(s, x)`` is ``max(s - x, 0)``, ``s - max(s - lid, 0)`` is ``min(s, lid)``, and ``s + min(x, lid - s)``
        is ``min(s + x, lid)``.
        """
        # Amounts that are in both cancel as part of the state, so that infinite ones are not subtracted.
        clamp = self._plus_offset(state, None, sign, node)
        if clamp is not None:
            return clamp
        base, own, amount = self._offset(state)
        return self._plus_offset(base, amount, sign, node) if own > 0 else None

    def _plus_offset(self, base: Node, amount: Node | None, sign: int, node: Node) -> Clamp | None:
        """Return ``base + amount + sign * node``."""
        if not self.part.varies(node):
            total = self._add_with_sign(amount, sign, node)
            return self.of(base) if total is None else self._shift_clamp(self.of(base), total)
        inner, direction, rest = self._offset(node, base)
        total = self._add_with_sign(amount, sign, rest)
        if inner is base:
            if sign * direction > 0:
                return None
            total = self.graph.constant(0, self.scalar) if total is None else total
            return Clamp(value=total, is_constant=True)
        if inner is not node:
            return self._plus_offset(base, total, sign * direction, inner)
        op, args = self._extremum(node)
        if not op:
            return None
        one, other = (self._plus_offset(base, amount, sign, arg) for arg in args)
        if one is None or other is None or one.is_constant == other.is_constant:
            return None
        clamp, limit = (other, one.value) if one.is_constant else (one, other.value)
        assert limit is not None
        return self._apply_bound(clamp, "low" if (op == "maximum") == (sign > 0) else "high", limit)

    def _extremum(self, node: Node) -> tuple[str, tuple[Node, ...]]:
        """Return the name and the operands of a maximum or minimum that keeps NaN of the state; "" for another node."""
        if node.op in ("maximum", "minimum"):
            return node.op, node.args
        name, first, second = chosen_extremum(node)
        if not name or self.part.varies(first) or not self.part.varies(second):
            return "", ()
        return name, (pass_over_nan(self.graph, first, name), second)

    def _negative(self, node: Node) -> Node:
        return self.graph.apply("negative", (node,), node.scalar)

    def _sum(self, a: Node | None, b: Node) -> Node:
        if a is None:
            return b
        return compute_nodes(self.graph, _add, a, b)[0]

    def _shift_clamp(self, clamp: Clamp, amount: Node) -> Clamp:
        if amount.equals(0):
            return clamp
        if clamp.bounded and (clamp.shift is None or clamp.shift.is_constant):
            # An infinity that is added after the bounds does not meet the state itself.
            self.lacks |= not amount.is_constant
        low, high, value = (number and self._sum(number, amount) for number in (clamp.low, clamp.high, clamp.value))
        return replace(clamp, shift=self._sum(clamp.shift, amount), low=low, high=high, value=value)

    def _apply_bound(self, clamp: Clamp, bound: str, limit: Node, nan: str = "keep") -> Clamp:
        """Return the clamp followed by one bound, which also bounds the other bound and the value of a constant map."""
        self.nan.add(nan)
        function = (_MAXIMUM if bound == "low" else _MINIMUM)[nan]
        low, high, value = (
            number and compute_nodes(self.graph, function, number, limit)[0]
            for number in (clamp.low, clamp.high, clamp.value)
        )
        if bound == "low":
            low = low or limit
        else:
            high = high or limit
        return replace(clamp, low=low, high=high, value=value)

    def _apply_bound_over_nan(self, clamp: Clamp, bound: str, limit: Node) -> Clamp:
        """Return the clamp followed by np.fmax or np.fmin with a limit."""
        graph = self.graph
        self.skips.append(limit)
        bounded = self._apply_bound(clamp, bound, limit, "skip")
        if clamp.shift is None or self.scalar.kind != "float":
            return bounded
        # A sum with NaN is the limit, whatever the state is.
        constant = either(graph, clamp.constant, graph.apply("isnan", (clamp.shift,), BOOL))
        value = limit if clamp.constant is None else graph.select(clamp.constant, bounded.value or limit, limit)
        return replace(bounded, constant=constant, value=value)

    def _chosen_bound(self, first: Node, second: Node, bound: str) -> Clamp:
        """Return the clamp of ``np.where(first > second, first, second)``, where one of them depends on the state."""
        graph = self.graph
        if self.scalar.kind != "float":
            state, limit = (first, second) if self.part.varies(first) else (second, first)
            return self._apply_bound(self.of(state), bound, self.number(limit))
        if self.part.varies(second):
            # NaN of the input is passed over, and NaN of the state stays.
            limit = pass_over_nan(graph, self.number(first), "maximum" if bound == "low" else "minimum")
            return self._apply_bound(self.of(second), bound, limit)
        clamp, limit = self.of(first), self.number(second)
        numbers = filter(None, (clamp.low, clamp.high, clamp.slope, clamp.shift))
        form = clamp.constant, clamp.value
        constant, value = constant_of_choice(graph, form, limit, numbers, low=bound == "low")
        bounded = self._apply_bound(clamp, bound, limit)
        return replace(bounded, constant=constant, value=value, replaces=clamp.replaces or bound)

    def _cast(self, node: Node) -> Clamp:
        (arg,) = node.args
        kinds = arg.scalar.kind, node.scalar.kind
        if _wraps(node, self.part) or (kinds != ("float", "float") and not all(kind in INTEGERS for kind in kinds)):
            raise LeavesClassError(node, f"converts the carry to {node.scalar.name}")
        return self.of(arg)

    def choice(self, condition: Node, yes: Clamp, no: Clamp) -> Clamp:
        """Return the clamp of a choice by a condition on the input."""
        pick = partial(self.pick, condition)
        are_constant = yes.is_constant, no.is_constant
        constant = constant_choice(self.graph, condition, are_constant, (yes.constant, no.constant))
        value = pick(yes.value, no.value, 0)
        if yes.is_constant or no.is_constant:
            return replace(no if yes.is_constant else yes, constant=constant, value=value)
        far = np.inf if self.scalar.kind == "float" else self.far
        _check_same_nan(condition, yes, no)
        self.lacks |= (yes.low is None) != (no.low is None) or (yes.high is None) != (no.high is None)
        low, high = pick(yes.low, no.low, -far), pick(yes.high, no.high, far)
        replaces = yes.replaces or no.replaces
        return Clamp(pick(yes.shift, no.shift, 0), low, high, constant, value, replaces=replaces)

    def pick(self, condition: Node, one: Node | None, other: Node | None, absent: object) -> Node | None:
        """Return the number of a choice by a condition, with a number for one that is absent."""
        if one is other:
            return one
        nothing = self.graph.constant(absent, self.scalar)
        return self.graph.select(condition, nothing if one is None else one, nothing if other is None else other)

    def bounds(self, clamp: Clamp) -> tuple[Node | None, Node | None]:
        """Return the bounds. Where the map is constant, they are its value."""
        if clamp.is_constant:
            return clamp.value, clamp.value
        if clamp.constant is None or clamp.value is None:
            return clamp.low, clamp.high
        low, high = (
            bound and self.graph.select(clamp.constant, clamp.value, bound) for bound in (clamp.low, clamp.high)
        )
        return low, high


def _check_same_nan(condition: Node, yes: Clamp, no: Clamp) -> None:
    """Check that two maps that a condition chooses between replace NaN by the same bound. One without bounds does not.

    Raises:
        LeavesClassError: only one of them replaces NaN, or they do it by different bounds.
    """
    if yes.replaces != no.replaces and yes.bounded and no.bounded:
        raise LeavesClassError(condition, "chooses between bounds that treat NaN in different ways", rank=1)


_CLASS_NAMES = {(True, True): "clamp", (True, False): "max-plus", (False, True): "min-plus"}
_LAWS = {
    "clamp": "h[t] = min(max(h[t-1] + a, low), high)",
    "max-plus": "h[t] = max(h[t-1] + a, b)",
    "min-plus": "h[t] = min(h[t-1] + a, b)",
}


def derive(part: StepPart) -> LoopStage:
    """Return the stage of clamps, or of affine maps over (max, +) or (min, +).

    Raises:
        LeavesClassError: an operation is none of such maps.
    """
    if any(node.scalar.kind not in (*INTEGERS, "float") or node.scalar.name == "uint64" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    if len(part.state_indices) > 1:
        return _of_several(part)
    clamps = Clamps(part)
    clamp = clamps.of(part.results[0])
    if clamps.cancels and clamps.scalar.kind == "float":
        clamp = _keep_nan(part, clamp)
    low, high = clamps.bounds(clamp)
    bounds = low is not None, high is not None
    nan = clamp.replaces or next(iter(clamps.nan), "keep")
    if not any(bounds) or len(clamps.nan) > 1 or (nan != "keep" and clamp.is_constant):
        raise LeavesClassError(part.results[0], rank=-1)
    if clamps.skips and clamps.scalar.kind == "float" and (clamp.shift is not None or all(bounds)):
        varies = next((limit for limit in clamps.skips if not limit.is_constant or limit.reveal(is_nan)), None)
        if varies is not None:
            raise LeavesClassError(part.results[0], "passes over NaN of a limit after a sum or another limit", rank=1)
    class_name = _CLASS_NAMES[bounds]
    law = _LAWS[class_name]
    if clamp.shift is None:
        law = law.replace("h[t-1] + a", "h[t-1]")
        class_name = "extremum" if class_name != "clamp" else class_name
    own = part.states[0].scalar
    bound = own if own.bits == 32 else INT32
    if (
        clamps.scalar.kind == "float"
        or own.bits == 64
        or clamp.shift is None
        or not all(_fits(bound_of_clamp, bound) for bound_of_clamp in (low, high))
    ):
        bound = clamps.scalar
    low, high = (bound_of_clamp and part.graph.cast(bound_of_clamp, bound) for bound_of_clamp in (low, high))
    numbers = tuple(node for node in (clamp.shift, low, high) if node is not None)
    saturates = own.bits == 64
    lacks = clamps.lacks and clamps.scalar.kind == "float"
    maps = ClampMaps(
        clamp.shift is not None, *bounds, nan, saturates, lacks, "" if bound == clamps.scalar else bound.name
    )
    return LoopStage(class_name, law, part.state_indices, numbers, clamp.constant, maps)


@lru_cache(maxsize=16)
def _fits_in(dtype: AnyDType) -> Callable[[object], bool]:
    """Return the predicate of integers that a dtype holds."""
    limits = np.iinfo(dtype)
    return lambda number: bool(limits.min <= number <= limits.max)  # type: ignore[operator]


def _fits(bound: Node | None, scalar: Scalar) -> bool:
    """Return True if a bound, which is an int64, is a number of a narrower type; None is no bound."""
    if bound is None:
        return True
    if bound.is_constant:
        return bound.reveal(_fits_in(scalar.dtype))
    if bound.op == "cast":
        return np.can_cast(bound.args[0].scalar.dtype, scalar.dtype, "safe")
    chosen = bound.args[-2:] if bound.op in ("maximum", "minimum", "select") else ()
    return bool(chosen) and all(_fits(number, scalar) for number in chosen)


def _keep_nan(part: StepPart, clamp: Clamp) -> Clamp:
    """Return the clamp with numbers that are NaN where the step is, such as ``s - min(s, x)`` for infinite numbers."""
    # Whether infinities of the input cancel does not depend on a finite state.
    graph, value = part.graph, part.result_at(1)
    if value.is_constant:
        return clamp
    numbers = [
        number
        and compute_nodes(graph, lambda a, b: np.where(np.isnan(b), np.full_like(a, np.nan), a), number, value)[0]
        for number in (clamp.shift, clamp.low, clamp.high)
    ]
    return replace(clamp, shift=numbers[0], low=numbers[1], high=numbers[2])


# ----- Maps of several numbers


class MaxPlus(Semiring):
    """The semiring of numbers under maximum and addition."""

    class_name = "max-plus"
    law = "h[t] = max(a + h[t-1], b)"
    plus: np.ufunc = np.maximum
    times = staticmethod(_add)
    unit = 0
    extremum = "maximum"
    farthest = -1

    @classmethod
    def nothing(cls, is_float: bool) -> float:
        return cls.farthest * (np.inf if is_float else _FAR)

    def number(self, node: Node) -> Node:
        own = self.part.states[0].scalar
        scalar = INT64 if own.is_integer else self.calculus.wide(self.part.states[0]).scalar
        return self.graph.cast(node, scalar)

    def sum(self, a: Node, b: Node) -> Node:
        return a if a is b else self.calculus.call(self.extremum, a, b)

    def product(self, a: Node, b: Node) -> Node:
        return compute_nodes(self.graph, _add, a, b)[0]

    def form_of(self, node: Node, forms: Forms) -> Form:
        op, args = node.op, node.args
        if op == self.extremum:
            return forms.sum(forms.of(args[0]), forms.of(args[1]))
        if op == "add" and not (self.part.varies(args[0]) and self.part.varies(args[1])):
            amount, state = args if self.part.varies(args[1]) else args[::-1]
            return forms.scale(forms.of(state), self.number(amount))
        if op == "subtract" and not self.part.varies(args[1]):
            amount = self.number(args[1])
            negative = self.graph.apply("negative", (amount,), amount.scalar)
            return forms.scale(forms.of(args[0]), negative)
        if op == "cast" and node.scalar.kind == args[0].scalar.kind and not _wraps(node, self.part):
            return forms.of(args[0])
        name, *sides = chosen_extremum(node)
        if name == self.extremum and node.scalar.kind != "float":
            return forms.sum(*map(forms.of, sides))
        raise LeavesClassError(node)


class MinPlus(MaxPlus):
    """The semiring of numbers under minimum and addition."""

    class_name = "min-plus"
    law = "h[t] = min(a + h[t-1], b)"
    plus = np.minimum
    extremum = "minimum"
    farthest = 1


def _of_several(part: StepPart) -> LoopStage:
    refusals = []
    for semiring in (MaxPlus, MinPlus):
        try:
            return derive_stage(semiring(part), scales=False)
        except LeavesClassError as error:
            refusals.append(error)
    raise max(refusals, key=lambda error: error.node.index)


# ----- Logarithms of sums


class LogPlus(MaxPlus):
    """The semiring of logarithms under logaddexp and addition: sums of probabilities in logarithms.

    Law: ``h[t] = logaddexp(h[t-1] + a, b)``. Composition, first (a1, b1), then (a2, b2): ``(a1 + a2, logaddexp(b1 + a2,
    b2))``. Identity: (0, -inf). Proof: it is the semiring (+, x) of positive numbers, seen through the logarithm, which
    is one-to-one. Several numbers are maps with a matrix, such as the forward algorithm of a hidden Markov model.
    """

    class_name = "log-plus"
    law = "h[t] = logaddexp(h[t-1] + a, b)"
    plus: np.ufunc = np.logaddexp
    extremum = "logaddexp"

    def sum(self, a: Node, b: Node) -> Node:
        return self.calculus.call("logaddexp", a, b)


def derive_log_plus(part: StepPart) -> LoopStage:
    """Return the stage of maps over (logaddexp, +).

    Raises:
        LeavesClassError: an operation is none of such maps.
    """
    if any(node.scalar.kind != "float" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    return derive_stage(LogPlus(part), scales=False)
