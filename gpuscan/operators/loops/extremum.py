"""Running extrema by choice, with what belongs to them: (best, payload) is replaced where a new value is better.

Law: ``h[t] = (v, p)[t] if v[t] is better than the best of h[t-1] else h[t-1]``. Here "better" is ``>``, ``>=``, ``<``
or ``<=`` of keys: the values, a function of them such as their size, or several keys in turn. A map is (taken, v, p):
a candidate, and whether there is one. Composition: the right candidate if it is better than the left one, or if there
is no left one; otherwise the left. Identity: no candidate. Proof: better-than is a total preorder, so every order of
comparison ends with the same candidate. It is the last one that is better than all candidates before it. A NaN is no
candidate if the loop's comparison does not take it. If the comparison takes it, the map is constant (see `stage`) and
resets the state. A comparison that takes every value where the state is NaN puts NaN below all candidates.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Node, numpy_function, reachable
from gpuscan.operators.loops.stage import (
    SIGNS,
    SWAPPED,
    Composition,
    LeavesClassError,
    LoopStage,
    Numbers,
    StepPart,
    both,
    either,
    find_comparison,
    negate_condition,
)
from gpuscan.operators.traced_array import Number

# What a candidate is compared by: the number at a position, a constant with its dtype, or an operation on such keys.
Key: TypeAlias = "int | tuple[Any, ...]"

# The operations of keys. Of floats, a sum or a product alone has the same rounding wherever it is computed.
_OF_KEYS = frozenset({"absolute", "negative", "add", "subtract", "multiply", "square"})
_SUMS, _PRODUCTS = frozenset({"add", "subtract"}), frozenset({"multiply", "square"})
# The most keys that are compared in turn. Three of them have 3**3 = 27 combinations of less, equal and greater.
_MAX_KEYS = 3


@dataclass(frozen=True)
class BestMaps(Composition):
    """Maps (taken, value, payload, ...).

    Attributes:
        keys: what is compared in turn, and by which comparison a new key is better than an old one. All comparisons but
            the last are strict.
        replaces_nan: True if every value is better than NaN. Then there is one key.
    """

    keys: tuple[tuple[str, Key], ...]
    replaces_nan: bool = False

    @property
    def takes_steps(self) -> bool:
        # A step is as short as a composition.
        return False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        better = None
        for op, key in reversed(self.keys):
            old, new = (_key_of(key, numbers[1:]) for numbers in (left, right))
            wins_by_key = getattr(np, op)(new, old)
            better = wins_by_key if better is None else wins_by_key | ((new == old) & better)
            if self.replaces_nan:
                better |= np.isnan(old)
        wins = right[0] & (~left[0] | better)
        return [left[0] | right[0], *(np.where(wins, new, old) for old, new in zip(left[1:], right[1:], strict=True))]

    def start(self, state: Numbers) -> list[Number]:
        return [state[0] == state[0] if state[0].dtype.kind != "f" else np.isnan(state[0]) | True, *state]

    def state(self, numbers: Numbers) -> list[Number]:
        return list(numbers[1:])


def _key_of(key: Key, numbers: Numbers) -> Number:
    if isinstance(key, int):
        return numbers[key]
    op, *args = key
    operands = [None if isinstance(arg, tuple) and arg[0] == "constant" else _key_of(arg, numbers) for arg in args]
    like = next(operand for operand in operands if operand is not None)
    filled = [
        np.full_like(like, arg[1], dtype=np.dtype(arg[2])) if operand is None else operand
        for arg, operand in zip(args, operands, strict=True)
    ]
    number: Number = numpy_function(op)(*filled)
    return number


@dataclass(frozen=True)
class _Update:
    """A conditional update of numbers of the state.

    Attributes:
        comparison, negates: what compares the old number with the new one, and True if it keeps the old one. It is a
            condition, or a choice between choices of the two.
        condition: a condition on the input that must be met as well; None for none.
        new: the new number.
        resets: a condition on the input where the new number is taken without a comparison; None for nowhere.
    """

    comparison: Node
    negates: bool
    condition: Node | None
    new: Node
    resets: Node | None = None


@dataclass(frozen=True)
class _Order:
    """How new numbers are compared with old ones.

    Attributes:
        keys: for each key the comparison, and the nodes of the old and the new key.
        takes_nan: True if the new numbers are taken where the only key is NaN.
    """

    keys: tuple[tuple[str, Node, Node], ...]
    takes_nan: bool


def derive(part: StepPart) -> LoopStage:
    """Return the stage of an extremum with its payload.

    Raises:
        LeavesClassError: the numbers of the part are not replaced together by a better value.
    """
    updates = [_update(part, state, node) for state, node in zip(part.states, part.results, strict=True)]
    found = [update for update in updates if update is not None]
    if not found or (order := _order(part, found[0], _news(part, updates))) is None:
        raise LeavesClassError(part.results[0], rank=-1)
    for update, node in zip(updates, part.results, strict=True):
        if update is None or not _same(part, update, found[0], updates):
            raise LeavesClassError(node, "is not replaced together with the best value", rank=1)
    return _stage(part, found, order)


def _news(part: StepPart, updates: list[_Update | None]) -> dict[Node, Node]:
    """Return the new number of each old one."""
    return {state: update.new for state, update in zip(part.states, updates, strict=True) if update is not None}


def _update(part: StepPart, state: Node, node: Node) -> _Update | None:
    """Return the update that ``np.where`` of a comparison is."""
    if node.op in ("maximum", "minimum") and state in node.args and node.scalar.kind != "float":
        value = node.args[0] if node.args[1] is state else node.args[1]
        if not part.varies(value):
            op = "greater" if node.op == "maximum" else "less"
            return _Update(part.graph.apply(op, (value, state), BOOL), False, None, value)
    if node.op != "select":
        return None
    condition, yes, no = node.args
    if not part.varies(condition):
        return _update_at(part, state, condition, yes, no)
    new: Node | None
    new, negates = (yes, False) if no is state else (no, True) if yes is state else (None, False)
    if new is not None and not part.varies(new):
        return _condition(part, condition, negates, new)
    leaves = _leaves(node) - {state}
    if len(leaves) != 1 or any(map(part.varies, leaves)) or node.scalar == BOOL:
        return None
    return _Update(node, False, None, leaves.pop())


def _update_at(part: StepPart, state: Node, condition: Node, yes: Node, no: Node) -> _Update | None:
    """Return the update that is made where a condition on the input is met."""
    for side, other, is_met in ((yes, no, True), (no, yes, False)):
        inner = _update(part, state, side) if part.varies(side) and side is not state else None
        if inner is None:
            continue
        met = condition if is_met else negate_condition(part.graph, condition)
        if other is state:
            condition_of_both = both(part.graph, inner.condition or met, met)
            return replace(inner, condition=condition_of_both, resets=both(part.graph, inner.resets, met))
        if other is inner.new:
            return replace(inner, resets=either(part.graph, inner.resets, negate_condition(part.graph, met)))
    return None


def _leaves(node: Node) -> set[Node]:
    """Return what a choice between choices is between."""
    return set().union(*map(_leaves, node.args[1:])) if node.op == "select" else {node}


def _condition(part: StepPart, node: Node, negates: bool, new: Node) -> _Update | None:
    if node.op == "logical_not":
        return _condition(part, node.args[0], not negates, new)
    if node.op in ("logical_and", "logical_or") and part.varies(node.args[0]) != part.varies(node.args[1]):
        varying, free = node.args if part.varies(node.args[0]) else node.args[::-1]
        inner = _condition(part, varying, negates, new)
        if inner is None:
            return None
        free = negate_condition(part.graph, free) if negates else free
        if (node.op == "logical_and") == negates:
            return replace(inner, resets=either(part.graph, inner.resets, free))
        condition = both(part.graph, inner.condition or free, free)
        return replace(inner, condition=condition, resets=both(part.graph, inner.resets, free))
    return _Update(node, negates, None, new)


# ----- Orders
#
# A new key is less than the old one, equal to it, greater, or unordered if either is NaN. What a step does is computed
# for each combination of these, so that it does not matter how its conditions are written.

_RELATIONS = ("less", "equal", "greater")
_HOLDS = {
    "less": {"less"},
    "less_equal": {"less", "equal"},
    "greater": {"greater"},
    "greater_equal": {"greater", "equal"},
    "equal": {"equal"},
    "not_equal": {"less", "greater", "unordered"},
}


def _order(part: StepPart, update: _Update, news: Mapping[Node, Node]) -> _Order | None:
    """Return how an update compares new numbers with old ones; None if they are in no order."""
    compared = _comparisons(part, update.comparison, news)
    if compared is None:
        return None
    pairs = list(dict.fromkeys((old, new) for _, old, new in compared.values()))
    if not 0 < len(pairs) <= _MAX_KEYS or not all(_is_key(old) for old, _ in pairs):
        return None

    def takes(relations: Mapping[tuple[Node, Node], str]) -> bool:
        def holds(node: Node) -> bool:
            if node in compared:
                op, *pair = compared[node]
                return relations[pair[0], pair[1]] in _HOLDS[op]
            if node.op == "logical_not":
                return not holds(node.args[0])
            if node.op in ("logical_and", "logical_or"):
                return (all if node.op == "logical_and" else any)(map(holds, node.args))
            if node.op == "select":
                return holds(node.args[1] if holds(node.args[0]) else node.args[2])
            return node is update.new

        return holds(update.comparison) != update.negates

    combinations = list(itertools.product(_RELATIONS, repeat=len(pairs)))
    taken = [takes(dict(zip(pairs, relations, strict=True))) for relations in combinations]
    floats = [pair for pair in pairs if pair[0].scalar.kind == "float"]
    sides_of_keys = itertools.product(("less", "greater"), repeat=len(pairs))
    for ranks, sides, keeps in itertools.product(
        itertools.permutations(range(len(pairs))), sides_of_keys, (True, False)
    ):
        if taken == [_is_better([relations[rank] for rank in ranks], sides, keeps) for relations in combinations]:
            break
    else:
        return None
    first = pairs[ranks[0]]
    takes_nan = False
    if len(pairs) == 1:
        takes_nan = bool(floats) and takes({first: "unordered"})
    elif floats not in ([], [first]) or any(
        takes(dict(zip(pairs, relations, strict=True)) | dict.fromkeys(floats, "unordered"))
        for relations in combinations
        if floats
    ):
        return None
    ops = [*sides[:-1], sides[-1] if keeps else f"{sides[-1]}_equal"]
    return _Order(tuple((op, *pairs[rank]) for op, rank in zip(ops, ranks, strict=True)), takes_nan)


def _is_better(relations: list[str], sides: tuple[str, ...], keeps: bool) -> bool:
    """Return True if the first key that differs is on the better side. If none differs, the old numbers may be kept."""
    for relation, side in zip(relations, sides, strict=True):
        if relation != "equal":
            return relation == side
    return not keeps


def _comparisons(
    part: StepPart, condition: Node, news: Mapping[Node, Node]
) -> dict[Node, tuple[str, Node, Node]] | None:
    """Return the comparisons in a condition or a choice, each with its old and its new key; None for others."""
    compared: dict[Node, tuple[str, Node, Node]] = {}
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if node in compared:
            continue
        if node.op in ("logical_not", "logical_and", "logical_or"):
            waiting.extend(node.args)
            continue
        if node.op == "select":
            # The numbers at the ends of a choice are the old and the new one.
            waiting.extend(arg for arg in node.args if arg.op == "select" or arg.scalar == BOOL)
            continue
        if node.op not in SIGNS or part.varies(node.args[0]) == part.varies(node.args[1]):
            return None
        old = node.args[0] if part.varies(node.args[0]) else node.args[1]
        op, key = find_comparison(node, old)
        op = SWAPPED.get(op, op)
        states = {each for each in reachable([old]) if each.op == "input"}
        if not states <= set(news) or copy_nodes([old], part.graph, news)[0] is not key:
            return None
        compared[node] = op, old, key
    return compared


def _is_key(node: Node) -> bool:
    """Return True if a key can be computed again from the numbers of a candidate."""
    if node.op == "input":
        return True
    nodes = [each for each in reachable([node]) if each.op != "input" and not each.is_constant]
    ops = {each.op for each in nodes}
    # Narrower numbers are computed as wider ones.
    fits = ops <= _OF_KEYS and all(each.scalar == node.scalar and each.scalar.bits >= 32 for each in nodes)
    return fits and not (node.scalar.kind == "float" and ops & _SUMS and ops & _PRODUCTS)


def _write_key(node: Node, positions: Mapping[Node, int]) -> Key:
    if node in positions:
        return positions[node]
    if node.is_constant:
        return "constant", node.reveal(_plain), node.scalar.dtype.str
    return node.op, *(_write_key(arg, positions) for arg in node.args)


def _plain(value: Any) -> Any:
    return value.item()


def _stage(part: StepPart, updates: list[_Update], order: _Order) -> LoopStage:
    graph, best = part.graph, updates[0]
    constant = None
    valid = best.condition or graph.constant(True, BOOL)
    (_, old, new), *others = order.keys
    if new.scalar.kind == "float":
        nan = graph.apply("isnan", (new,), BOOL)
        if order.takes_nan:
            # A value that is not worse is taken, so NaN is.
            constant = both(graph, valid, nan)
        else:
            valid = graph.apply("logical_and", (valid, negate_condition(graph, nan)), BOOL)
    if best.resets is not None:
        valid = graph.apply("logical_or", (valid, best.resets), BOOL)
        constant = either(graph, constant, best.resets)
    # The best value comes first.
    first = part.states.index(old) if old in part.states else 0
    ranks = [first, *(index for index in range(len(part.states)) if index != first)]
    positions = {part.states[index]: position for position, index in enumerate(ranks)}
    keys = tuple((op, _write_key(key, positions)) for op, key, _ in order.keys)
    state_indices = tuple(part.state_indices[index] for index in ranks)
    law = _law(keys, len(ranks), is_value=old in part.states and not others)
    # "v if not v <= h" replaces NaN, which "v if v > h" keeps.
    maps = BestMaps(keys, order.takes_nan)
    return LoopStage("extremum", law, state_indices, (valid, *(updates[index].new for index in ranks)), constant, maps)


def _law(keys: tuple[tuple[str, Key], ...], count: int, *, is_value: bool) -> str:
    op, _ = keys[-1]
    if not is_value:
        return "h[t] = v if it is better than h[t-1], by a key or by several in turn, else h[t-1]"
    if count > 1:
        return f"h[t] = (v, p) if v {SIGNS[op]} h[t-1][0] else h[t-1]"
    return f"h[t] = {'max' if op.startswith('greater') else 'min'}(h[t-1], v)"


def _same(part: StepPart, one: _Update, other: _Update, updates: list[_Update | None]) -> bool:
    """Return True if two updates are made at the same time."""
    if (one.condition, one.resets) != (other.condition, other.resets):
        return False
    if (one.comparison, one.negates) == (other.comparison, other.negates):
        return True
    news = _news(part, updates)
    return _order(part, one, news) == _order(part, other, news)


def followers(part: StepPart, others: list[int]) -> list[int]:
    """Return which other numbers of the carry are replaced together with the only number of a part.

    Args:
        others: the numbers of the carry to look at.
    """
    step = part.step
    best = _update(part, part.states[0], part.results[0])
    if best is None or _order(part, best, _news(part, [best])) is None:
        return []
    indices = []
    for other in others:
        joint = StepPart(step, (part.state_indices[0], other))
        update = _update(joint, step.states[other], step.results[other])
        if update is not None and _same(joint, update, best, [best, update]):
            indices.append(other)
    return indices
