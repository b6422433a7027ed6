"""The least and the greatest integer that each node of a step can be, whatever the carry and x are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from gpuscan.operators.expression_graph import BOOL, Node

Interval: TypeAlias = tuple[int | None, int | None]


# Operations whose results have bounds if all operands have, and others whose results may have bounds.
_ARITHMETIC = frozenset({"absolute", "add", "subtract", "multiply", "left_shift", "bitwise_or", "bitwise_xor"})
_BOUNDED = frozenset({"remainder", "minimum", "maximum", "bitwise_and", "right_shift", "cast", "select"})


class _Intervals(dict[int, Interval]):
    """The intervals of nodes, by their indices. Intervals of constants are made, and so revealed, when they are read.

    Args:
        nodes: the nodes.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self._constants = {node.index: node for node in nodes if node.is_constant}

    def __missing__(self, index: int) -> Interval:
        constant = self._constants[index]
        is_integer = constant.scalar.kind in ("signed", "unsigned")
        interval = self[index] = (int(constant.value),) * 2 if is_integer else (None, None)
        return interval


def intervals_of(nodes: Sequence[Node]) -> dict[int, Interval]:
    """Return the least and the greatest integer that each node can be, or None for each that is not known.

    Args:
        nodes: the nodes, each after its arguments.
    """
    intervals = _Intervals(nodes)
    for node in nodes:
        if not node.is_constant:
            intervals[node.index] = _interval(node, intervals)
    return intervals


def _interval(node: Node, intervals: dict[int, Interval]) -> Interval:
    if node.scalar.kind not in ("signed", "unsigned"):
        return None, None
    limits = np.iinfo(node.scalar.dtype)
    op = node.op
    if op in _ARITHMETIC:
        # If an operand can be any number, so can the result, and the constants beside it need not be revealed.
        varying = [intervals[arg.index] for arg in node.args if not arg.is_constant]
        if not varying or (limits.min, limits.max) in varying:
            return limits.min, limits.max
    elif op not in _BOUNDED:
        return limits.min, limits.max
    args = [intervals[arg.index] for arg in node.args]
    if op == "remainder":
        low, high = args[1]
        return (0, high - 1) if low is not None and high is not None and low > 0 else (limits.min, limits.max)
    if op in ("minimum", "maximum"):
        lows, highs = ([interval[i] for interval in args if interval[i] is not None] for i in (0, 1))
        pick = min if op == "minimum" else max
        return pick(lows), pick(highs)  # type: ignore[type-var]
    if op == "bitwise_and":
        highs = [high for low, high in args if low is not None and low >= 0]
        known_highs = [high for high in highs if high is not None]
        return (0, min(known_highs)) if known_highs else (limits.min, limits.max)
    if op == "right_shift" and node.scalar.kind == "unsigned" and node.args[1].is_constant:
        return 0, int(limits.max) >> int(node.args[1].value)
    if op == "cast" and node.args[0].scalar == BOOL:
        return 0, 1
    if op == "cast" and node.args[0].scalar.kind in ("signed", "unsigned"):
        low, high = args[0]
        if low is not None and high is not None and low >= limits.min and high <= limits.max:
            return low, high
    if op == "select":
        sides = args[1:]
        if all(low is not None and high is not None for low, high in sides):
            return min(s[0] for s in sides), max(s[1] for s in sides)  # type: ignore[type-var]
    known = [(low, high) for low, high in args if low is not None and high is not None]
    low, high = _exact(op, known) if len(known) == len(args) else (limits.min, limits.max)
    # An operation that may overflow may give any number.
    return (low, high) if limits.min <= low and high <= limits.max else (limits.min, limits.max)


def _exact(op: str, args: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the greatest result of an operation that does not overflow; infinities if not known."""
    unknown = -(2**64), 2**64
    if op == "absolute":
        ((a, b),) = args
        return max(a, -b, 0), max(-a, b)
    if len(args) != 2:
        return unknown
    (a, b), (c, d) = args
    if op == "add":
        return a + c, b + d
    if op == "subtract":
        return a - d, b - c
    if op == "left_shift" and 0 <= c <= d < 64:
        op, c, d = "multiply", 2**c, 2**d
    if op == "multiply":
        corners = [x * y for x in (a, b) for y in (c, d)]
        return min(corners), max(corners)
    if op in ("bitwise_or", "bitwise_xor") and a >= 0 and c >= 0:
        return 0, int(2 ** max(b, d).bit_length()) - 1
    return unknown
