"""Rewrite operations of a step as operations that the classes of loops know, where the results are the same.

- A clamp by comparisons, ``np.where(y < low, low, np.where(y > high, high, y))``, is ``np.clip(y, low, high)`` for
  numbers with ``low <= high``. That holds for constants, and for sums of one number and constants, such as ``x - 1``
  and ``x + 1``. It keeps NaN as well.
- A shift register, ``(s << k) | x`` with x from 0 to 2**k - 1, is ``(s << k) + x``: the lowest k bits of the shifted
  number are 0.
- ``m + np.log(np.exp(u - m) + np.exp(v - m))`` for any m, also with more terms, and
  ``np.maximum(u, v) + np.log1p(np.exp(-np.abs(u - v)))``, are ``np.logaddexp(u, v)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, is_nan, reachable
from gpuscan.operators.loops import polynomials
from gpuscan.operators.loops.intervals import Intervals

_LESS = ("less", "less_equal")
_GREATER = ("greater", "greater_equal")


@dataclass(frozen=True)
class _Bound:
    """A bound of a number.

    Attributes:
        low: True for a bound from below.
        limit: the bound, which does not depend on the states.
        chosen: True if the number itself is compared, without the bounds inside.
    """

    low: bool
    limit: Node
    chosen: bool


@dataclass(frozen=True)
class _Bounded:
    """A number with bounds, the innermost first."""

    base: Node
    bounds: tuple[_Bound, ...]


def rewrite(graph: Graph, results: Sequence[Node], states: Sequence[Node]) -> list[Node]:
    """Return nodes of the same values. Only nodes that depend on the states are rewritten."""
    order = reachable(results)
    varying = {node.index for node in states}
    intervals = Intervals()
    bounded: dict[Node, _Bounded] = {}
    rewritten: dict[Node, Node] = {}
    for node in order:
        bounded[node], rewritten[node] = _bounds_of(node, bounded, varying), node
        if not any(arg.index in varying for arg in node.args):
            continue
        varying.add(node.index)
        limits = _limits(bounded[node])
        before = len(graph.nodes)
        if node.op == "select" and limits is not None:
            low, high = (
                limit if limit is None or limit.is_constant else pass_over_nan(graph, limit, name)
                for limit, name in zip(limits, ("maximum", "minimum"), strict=True)
            )
            new = rewritten[bounded[node].base]
            new = graph.apply("minimum", (new, high), node.scalar) if high is not None else new
            new = graph.apply("maximum", (new, low), node.scalar) if low is not None else new
        elif (terms := _log_terms(node)) is not None:
            new, *others = (rewritten[term] for term in terms)
            for other in others:
                new = graph.apply("logaddexp", (new, other), node.scalar)
        elif _is_register(node, intervals):
            new = graph.apply("add", [rewritten[arg] for arg in node.args], node.scalar)
        elif all(rewritten[arg] is arg for arg in node.args):
            continue
        else:
            (new,) = copy_nodes([node], graph, {arg: rewritten[arg] for arg in node.args})
        rewritten[node] = new
        # Messages name the line and the function of the node that was rewritten.
        for made in graph.nodes[before:]:
            graph.lines[made.index] = graph.lines.get(node.index, "")
            graph.names[made.index] = graph.names.get(node.index, "") or ("where" if node.op == "select" else "")
    return [rewritten[node] for node in results]


def _log_terms(node: Node) -> Sequence[Node] | None:
    """Return u and v, or more terms, if a sum computes their ``np.logaddexp``; None if it does not."""
    if node.scalar.kind != "float":
        return None
    if node.op == "select" and all(arg.op == "add" for arg in node.args[1:]):
        # max(u, v) of Python chooses between sums with the same term.
        yes, no = node.args[1:]
        for term in set(yes.args) & set(no.args):
            one, other = (next((arg for arg in total.args if arg is not term), term) for total in (yes, no))
            if _is_larger(node.args[0], one, other) and _is_distance_term(term, (one, other)):
                return one, other
    if node.op != "add":
        return None
    for shift, rest in (node.args, node.args[::-1]):
        if rest.op == "log":
            terms = _powers_over(shift, rest.args[0])
            if terms is not None and len(terms) > 1:
                return terms
        if shift.op == "maximum" and _is_distance_term(rest, shift.args):
            return shift.args
    return None


def _is_distance_term(node: Node, pair: Sequence[Node]) -> bool:
    """Return True for ``np.log1p(np.exp(-np.abs(u - v)))`` of a pair, in either order."""
    ops = []
    while node.op in ("log1p", "exp", "negative", "absolute"):
        ops.append(node.op)
        (node,) = node.args
    is_distance = ops == ["log1p", "exp", "negative", "absolute"] and node.op == "subtract"
    return is_distance and set(node.args) == set(pair)


def _is_larger(condition: Node, one: Node, other: Node) -> bool:
    """Return True if a condition is that one number is larger than another."""
    pair = (one, other)
    return (condition.op in _GREATER and condition.args == pair) or (
        condition.op in _LESS and condition.args[::-1] == pair
    )


def _powers_over(shift: Node, node: Node) -> list[Node] | None:
    """Return u, v and so on if a node computes ``np.exp(u - shift) + np.exp(v - shift) + …``; None if it does not."""
    if node.op == "add":
        left, right = (_powers_over(shift, arg) for arg in node.args)
        return None if left is None or right is None else left + right
    if node.op == "absolute":
        # A sum of powers is not negative. JAX's logsumexp takes its absolute value.
        return _powers_over(shift, node.args[0])
    if node.op == "exp" and node.args[0].op == "subtract" and node.args[0].args[1] is shift:
        return [node.args[0].args[0]]
    return None


def _is_register(node: Node, intervals: Intervals) -> bool:
    """Return True for ``(s << k) | x`` with x from 0 to 2**k - 1."""
    if node.op not in ("bitwise_or", "bitwise_xor"):
        return False
    for shifted, other in (node.args, node.args[::-1]):
        if shifted.op == "left_shift" and shifted.args[1].is_constant:
            places = int(shifted.args[1].value)
            low, high = intervals[other]
            if 0 < places < node.scalar.bits and low is not None and high is not None and 0 <= low <= high < 2**places:
                return True
    return False


def pass_over_nan(graph: Graph, limit: Node, name: str) -> Node:
    """Return the limit of a ``"maximum"`` or ``"minimum"`` as one that does not bound where it is NaN."""
    if limit.scalar.kind != "float":
        return limit
    nothing = graph.constant(-np.inf if name == "maximum" else np.inf, limit.scalar)
    return graph.select(graph.apply("isnan", (limit,), BOOL), nothing, limit)


def _bounds_of(node: Node, bounded: Mapping[Node, _Bounded], varying: Set[int]) -> _Bounded:
    """Return the bounds that a node applies to a number."""
    alone = _Bounded(node, ())
    if node.scalar.kind not in ("signed", "unsigned", "float"):
        return alone
    if node.op in ("minimum", "maximum"):
        for limit, number in (node.args, node.args[::-1]):
            if limit.is_constant and not number.is_constant:
                inner = bounded[number]
                return _Bounded(inner.base, (*inner.bounds, _Bound(node.op == "maximum", limit, False)))
    if node.op == "select" and node.args[0].op in (*_LESS, *_GREATER):
        condition, yes, no = node.args
        first, second = condition.args
        limit, number = (second, first) if first.index in varying else (first, second)
        # The limit is taken where the comparison holds. For floats, NaN would make a difference otherwise.
        takes = yes is limit or (no is limit and node.scalar.kind != "float")
        inner = bounded[no if yes is limit else yes]
        if limit.index not in varying and takes and inner.base is number:
            below = (condition.op in _LESS) == (limit is second)
            return _Bounded(number, (*inner.bounds, _Bound(below == (yes is limit), limit, True)))
    return alone


def _limits(bounded: _Bounded) -> tuple[Node | None, Node | None] | None:
    """Return the lower and the upper bound of a clamp of two bounds or more; None if it is none."""
    if len(bounded.bounds) < 2:
        return None
    low: Node | None = None
    high: Node | None = None
    for bound in bounded.bounds:
        limit = bound.limit
        others = [other for other in (low, high) if other is not None]
        if (limit.is_constant and limit.reveal(is_nan)) or any(_is_less(limit, other) is None for other in others):
            return None
        # A chosen limit between the bounds inside is a bound as well. Another one would be undone by them.
        if bound.chosen and ((low and _is_less(limit, low)) or (high and _is_less(high, limit))):
            return None
        if bound.low:
            low = limit if low is None or _is_less(low, limit) else low
            high = limit if high is not None and _is_less(high, limit) else high
        else:
            high = limit if high is None or _is_less(limit, high) else high
            low = limit if low is not None and _is_less(limit, low) else low
    return low, high


def _is_less(limit: Node, other: Node) -> bool | None:
    """Return True if a limit is below another one, and None if that is not known."""
    if limit.is_constant and other.is_constant:
        return limit.reveal(_is_below, other)
    difference = polynomials.difference(limit, other)
    return difference.get((), 0) < 0 if set(difference) <= {()} else None


def _is_below(value: float, other: float) -> bool:
    return bool(value < other)
