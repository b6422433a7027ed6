"""Trace steps with conditions of Python: ``if``, ``and``, ``or``, ``not``, ``min`` and ``max`` of traced values.

Python asks a value for its truth, and goes one way through the function. So the function is called once for each way,
and what it returns on the ways is joined by ``np.where``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuscan.errors import OperatorError, abbreviate
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, reachable
from gpuscan.operators.source_location import operator_error, running_line
from gpuscan.operators.traced_array import COMPARISONS, Traced, join_numbers

# The most ways through a function. Eight conditions that follow each other have as many.
_MAX_WAYS = 256
# The most conditions on a way. A `while` that a traced value ends has no last one.
_MAX_CONDITIONS = 64

# A condition, its answer, and the line of the user's code that asked for it.
_Answer = tuple[Node, bool, str]


def follow_branches(function: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    """Return a function of traced values that does the same, and may ask for the truth of traced numbers."""

    @functools.wraps(function, updated=())
    def following(state: object, x: object) -> object:
        graph = _graph_of(state)
        ways = 0

        def follow(given: Sequence[_Answer]) -> object:
            """Return what the function gives if its first conditions have the given answers."""
            nonlocal ways
            ways += 1
            taken: list[_Answer] = []

            def answer(condition: Node) -> bool:
                known = next((value for node, value, _ in taken if node is condition), None)
                if known is not None:
                    return known
                if ways > _MAX_WAYS or len(taken) == _MAX_CONDITIONS:
                    raise operator_error(
                        f"the function has more than {_MAX_WAYS} ways through its conditions (if, while, and, or, not, "
                        f"min, max) on values that are known only on the GPU, or {_MAX_CONDITIONS} of them on one way. "
                        "Write np.where(condition, a, b), & | ~, np.minimum, np.maximum"
                    )
                value = given[len(taken)][1] if len(taken) < len(given) else True
                taken.append((condition, value, running_line()))
                return value

            graph.answer = answer
            try:
                value = join_values(function(_copy_containers(state), _copy_containers(x)))
            finally:
                graph.answer = None
            for at in reversed(range(len(given), len(taken))):
                condition, _, line = taken[at]
                other = follow([*taken[:at], (condition, False, line)])
                before = len(graph.nodes)
                value = _choose(graph, condition, value, other, line)
                for node in graph.nodes[before:]:
                    graph.lines[node.index], graph.names[node.index] = line, "where"
            return value

        return follow([])

    return following


def join_values(value: object) -> Any:
    """Return a value with arrays of traced numbers as traced values."""
    if isinstance(value, dict):
        return {key: join_values(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [join_values(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return join_numbers(value)


def _graph_of(value: Any) -> Graph:
    """Return the graph of the traced values in a bundle."""
    while not isinstance(value, Traced):
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return value.graph


def _copy_containers(value: Any) -> Any:
    """Return a bundle with dicts and lists of its own, which the function may change."""
    if isinstance(value, dict):
        return {key: _copy_containers(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_copy_containers(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _choose(graph: Graph, condition: Node, yes: Any, no: Any, line: str) -> Any:
    """Return a bundle of choices between the numbers of two bundles."""
    if yes is no:
        return yes
    if isinstance(yes, dict) and isinstance(no, dict) and set(yes) == set(no):
        return {key: _choose(graph, condition, part, no[key], line) for key, part in yes.items()}
    if isinstance(yes, (tuple, list)) and isinstance(no, (tuple, list)) and len(yes) == len(no):
        parts = [_choose(graph, condition, *pair, line) for pair in zip(yes, no, strict=True)]
        return type(yes)(*parts) if hasattr(yes, "_fields") else type(yes)(parts)
    for value, where in ((yes, "holds"), (no, "does not hold")):
        if value is None or isinstance(value, (dict, tuple, list)):
            other = no if value is yes else yes
            raise OperatorError(
                f"the function returns {_describe(value)} where a condition {where}, and {_describe(other)} otherwise. "
                f"Return the same structure on both ways{line}"
            )
    if not isinstance(yes, Traced) and not isinstance(no, Traced) and type(yes) is type(no) and repr(yes) == repr(no):
        return yes
    nodes = np.empty((), dtype=object)
    nodes[()] = condition
    where_function: Any = np.where
    chosen = where_function(Traced(graph, nodes, BOOL), yes, no)
    for at in np.ndindex(chosen.shape):
        chosen.nodes[at] = _choose_inside(graph, chosen.nodes[at])
    return chosen


def _choose_inside(graph: Graph, choice: Node) -> Node:
    """Return a choice between f(u) and f(v) by a comparison of u and v as f of the choice between these.

    So ``max(low, min(h, high))`` is an extremum of an extremum, although the ways through it are joined at its end.
    """
    condition = choice.args[0] if choice.op == "select" else choice
    if condition.op not in COMPARISONS:
        return choice
    _, yes, no = choice.args
    for u, v in (condition.args, condition.args[::-1]):
        for here, there, a, b in ((no, yes, v, u), (yes, no, u, v)):
            # On the way of `here`, f is taken of a. On the other way, it is taken of b.
            before = len(graph.nodes)
            if _replace(graph, here, a, b) is there:
                return _replace(graph, here, a, graph.select(condition, *((b, a) if here is no else (a, b))))
            graph.forget_since(before)
    return choice


def _replace(graph: Graph, node: Node, old: Node, new: Node) -> Node:
    """Return a node with another one in the place of one that it depends on."""
    inputs = {each: each for each in reachable([node]) if each.op == "input"}
    return copy_nodes([node], graph, {**inputs, old: new})[0]


def _describe(value: object) -> str:
    if isinstance(value, (dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "a number" if isinstance(value, Traced) else abbreviate(value)
