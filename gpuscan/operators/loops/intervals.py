"""The least and the greatest integer that each node of a step can be, whatever the carry and x are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node

Interval: TypeAlias = tuple[int | None, int | None]


# The result is bounded if all operands are.
_PRODUCTS = frozenset({"absolute", "multiply", "left_shift", "bitwise_or", "bitwise_xor"})
_ARITHMETIC = _PRODUCTS | {"add", "subtract"}
# The result may be bounded even if an operand is not.
_BOUNDED = frozenset(
    {"remainder", "fmod", "sign", "minimum", "maximum", "bitwise_and", "right_shift", "cast", "select"}
)


class Intervals(dict[Node, Interval]):
    """The least and the greatest integer that each node can be, or None for each that is not known.

    The interval of a node is computed when it is read, and only then constants are revealed for it.
    """

    def __missing__(self, node: Node) -> Interval:
        waiting = [node]
        while waiting:
            last = waiting[-1]
            unknown = [arg for arg in last.args if arg not in self and not arg.is_constant]
            waiting += unknown
            if not unknown:
                self[waiting.pop()] = _interval(last, self)
        return self[node]


def _interval(node: Node, intervals: Intervals) -> Interval:
    if node.is_constant:
        return (int(node.value),) * 2 if node.scalar.is_integer else (None, None)
    if not node.scalar.is_integer:
        return None, None
    limits = np.iinfo(node.scalar.dtype)
    op = node.op
    if op in _ARITHMETIC:
        # An operand that can be any number lets the result be any number. The constants are not revealed then.
        varying = [intervals[arg] for arg in node.args if not arg.is_constant]
        if not varying or (limits.min, limits.max) in varying:
            return limits.min, limits.max
    elif op not in _BOUNDED:
        return limits.min, limits.max
    args = [intervals[arg] for arg in node.args]
    if op in ("remainder", "fmod"):
        return _rest(op, *args) or (limits.min, limits.max)
    if op == "sign":
        return combine("minimum", [combine("maximum", [args[0], (-1, -1)]), (1, 1)])
    if op == "bitwise_and":
        highs = [high for low, high in args if low is not None and low >= 0]
        known_highs = [high for high in highs if high is not None]
        return (0, min(known_highs)) if known_highs else (limits.min, limits.max)
    if op == "right_shift" and node.args[1].is_constant and 0 <= (places := int(node.args[1].value)) < node.scalar.bits:
        low, high = args[0]
        return int(limits.min if low is None else low) >> places, int(limits.max if high is None else high) >> places
    if op == "cast" and node.args[0].scalar == BOOL:
        return 0, 1
    if op == "cast" and node.args[0].scalar.is_integer:
        low, high = args[0]
        if low is not None and high is not None and low >= limits.min and high <= limits.max:
            return low, high
    finite = [(low, high) for low, high in args if low is not None and high is not None]
    low, high = _product(op, finite) if op in _PRODUCTS and len(finite) == len(args) else combine(op, args)
    # An operation that may overflow may give any number.
    is_known = low is not None and high is not None and limits.min <= low and high <= limits.max
    return (low, high) if is_known else (limits.min, limits.max)


def _rest(op: str, dividend: Interval, divisor: Interval) -> Interval | None:
    """Return the interval of the rest of a division; None if it may be any number."""
    low, high = divisor
    if low is None or high is None or low <= 0 <= high:
        return None
    largest = max(-low, high) - 1
    if op == "remainder":
        return (0, largest) if low > 0 else (-largest, 0)
    least, greatest = dividend
    return (0 if least is not None and least >= 0 else -largest), (
        0 if greatest is not None and greatest <= 0 else largest
    )


def combine(op: str, args: Sequence[Interval]) -> Interval:
    """Return the interval of a sum, an extremum or a choice of integers that does not overflow; else no bounds."""
    if op == "select":
        return union(args[1:])
    if op == "negative":
        ((low, high),) = args
        return None if high is None else -high, None if low is None else -low
    if op == "subtract":
        return combine("add", (args[0], combine("negative", args[1:])))
    if op == "add":
        lows, highs = zip(*args, strict=True)
        return None if None in lows else sum(lows), None if None in highs else sum(highs)
    if op in ("minimum", "maximum"):
        pick = min if op == "minimum" else max
        bounds: list[int | None] = []
        # One argument is enough for the bound on the side of the extremum.
        for side, is_enough in zip(zip(*args, strict=True), (op == "maximum", op == "minimum"), strict=True):
            known = [bound for bound in side if bound is not None]
            bounds.append(pick(known) if known and (is_enough or len(known) == len(side)) else None)
        return bounds[0], bounds[1]
    return None, None


def union(intervals: Sequence[Interval]) -> Interval:
    """Return the smallest interval that contains all of these."""
    lows, highs = zip(*intervals, strict=True)
    return None if None in lows else min(lows), None if None in highs else max(highs)


def _product(op: str, args: Sequence[tuple[int, int]]) -> Interval:
    if op == "absolute":
        ((a, b),) = args
        return max(a, -b, 0), max(-a, b)
    (a, b), (c, d) = args
    if op == "left_shift" and 0 <= c <= d < 64:
        op, c, d = "multiply", 2**c, 2**d
    if op == "multiply":
        corners = [x * y for x in (a, b) for y in (c, d)]
        return min(corners), max(corners)
    if op in ("bitwise_or", "bitwise_xor") and a >= 0 and c >= 0:
        return 0, int(2 ** max(b, d).bit_length()) - 1
    return None, None
