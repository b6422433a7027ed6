"""Finite states: any function of a state that takes few values, as a table of where each value goes.

Law: ``h[t] = F[t](h[t-1])`` for h in a finite set. A map is the table of the numbers of the values. Composition,
first F, then G: ``i -> G[F[i]]``. Identity: ``i -> i``. Proof: composition of functions is associative (Ladner and
Fischer 1980).

The set is found by closure: beginning with the values in `init`, or with all that the step can return, the values that
the step gives for these are added until there are no new ones. What the step can return for a known state and an
unknown x follows from its operations: a choice gives what its branches give, ``x % k`` the numbers below k, a
comparison a bool.

Tables are packed: up to 2, 4 and 16 states take 1, 2 and 4 bits each, and up to 64 take a byte each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.elements import scalar_of
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, numpy_function, reachable
from gpuscan.operators.loops.stage import Composition, LeavesClassError, Numbers, Part, Stage
from gpuscan.operators.traced_array import Number

UINT32 = scalar_of(np.dtype(np.uint32))

# The most states of a table.
MAX_STATES = 64
# Sets with more values are not followed further.
_MAX_VALUES = 1024
# The most combinations of conditions that are looked at.
_MAX_BRANCHES = 2048

# The most combinations of values for which a comparison is computed.
_MAX_COMPARED = 64
# Operations on floats that round.
_ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "remainder", "power", "square", "reciprocal"})

State = tuple[bool | int, ...]


class TooManyStatesError(LeavesClassError):
    """The state takes more values than a table has.

    Attributes:
        count: how many were found.
        whole: True if these are all of them.
    """

    def __init__(self, node: Node, count: int, whole: bool) -> None:
        super().__init__(node, "has too many states", rank=2)
        self.count, self.whole = count, whole


@dataclass(frozen=True)
class TableMaps(Composition):
    """Tables of the number that each state becomes.

    Attributes:
        states: the values of each state: a tuple of numbers.
        dtypes: the names of the dtypes of these numbers.
    """

    states: tuple[State, ...]
    dtypes: tuple[str, ...]

    @property
    def bits(self) -> int:
        """The bits of an entry."""
        return next(bits for bits in (1, 2, 4, 8) if len(self.states) <= 2 ** min(bits, 6) or bits == 8)

    @property
    def words(self) -> int:
        """The words of a table."""
        return -(-len(self.states) * self.bits // 32)

    @property
    def per_word(self) -> int:
        return 32 // self.bits

    def pack(self, entries: Sequence[object]) -> list[Any]:
        """Return the words of a table with these entries, which are uint32."""
        words = []
        for start in range(0, len(entries), self.per_word):
            word = entries[start]
            for place, entry in enumerate(entries[start + 1 : start + self.per_word], 1):
                word = word | (entry << np.full_like(entry, place * self.bits))
            words.append(word)
        return words

    def entry(self, words: Numbers, place: int) -> Any:
        """Return an entry of a table."""
        word = words[place // self.per_word]
        shift = place % self.per_word * self.bits
        shifted = word >> np.full_like(word, shift) if shift else word
        return shifted & np.full_like(word, 2**self.bits - 1)

    def look_up(self, words: Numbers, index: object) -> Any:
        """Return the entry at an index that varies."""
        word = words[0]
        if len(words) > 1:
            which, found = index >> np.full_like(index, (self.per_word - 1).bit_length()), list(words)
            bit = 0
            while len(found) > 1:
                odd = (which >> np.full_like(which, bit) & np.full_like(which, 1)) > 0
                pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
                found = [np.where(odd, pair[1], pair[0]) if len(pair) > 1 else pair[0] for pair in pairs]
                bit += 1
            word = found[0]
        within = index & np.full_like(index, self.per_word - 1)
        return word >> (within * np.full_like(index, self.bits)) & np.full_like(index, 2**self.bits - 1)

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        entries = [self.look_up(right, self.entry(left, place)) for place in range(len(self.states))]
        return self.pack(entries)

    def start(self, state: Numbers) -> list[Number]:
        index = np.zeros_like(state[0]).astype(np.uint32)
        for place, values in enumerate(self.states):
            if place:
                equal = state[0] == _number(values[0], state[0])
                for number, value in zip(state[1:], values[1:], strict=True):
                    equal = equal & (number == _number(value, number))
                index = np.where(equal, np.full_like(index, place), index)
        return self.pack([index] * len(self.states))

    def state(self, numbers: Numbers) -> list[Number]:
        index = self.entry(numbers, 0)
        found: list[Number] = []
        for component, dtype in enumerate(self.dtypes):
            value = np.full_like(index, self.states[0][component], dtype=np.dtype(dtype))
            for place, values in enumerate(self.states[1:], 1):
                if values[component] != self.states[0][component]:
                    number = np.full_like(index, values[component], dtype=np.dtype(dtype))
                    value = np.where(index == np.full_like(index, place), number, value)
            found.append(value)
        return found

    def is_outside(self, state: Numbers) -> Any:
        """Return 1 for a state that is none of the set, else 0, as uint32."""
        inside = None
        for values in self.states:
            equal = state[0] == _number(values[0], state[0])
            for number, value in zip(state[1:], values[1:], strict=True):
                equal = equal & (number == _number(value, number))
            inside = equal if inside is None else inside | equal
        return (~inside).astype(np.uint32)  # type: ignore[operator]


def _number(value: object, like: object) -> Any:
    return np.full_like(like, value)


def derive(part: Part) -> Stage:
    """Return the stage of tables.

    Raises:
        LeavesClassError: the set of states is not finite, or has more than 64 values.
    """
    if any(node.scalar.kind == "complex" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    states = _closure(part)
    whole = all(float(value).is_integer() for state in states for value in state)
    for node in reachable(part.results):
        if part.varies(node) and node.scalar.kind == "float" and node.op in _ROUNDED and not whole:
            raise LeavesClassError(node, rank=-1)  # where rounding ends in a cycle depends on `init`
    if len(states) > MAX_STATES:
        raise TooManyStatesError(part.results[0], len(states), len(states) <= _MAX_VALUES)
    numbers = {state: place for place, state in enumerate(states)}
    maps = TableMaps(tuple(states), tuple(node.scalar.name for node in part.states))
    entries = [_index(part.graph, _apply(part, state), numbers) for state in states]
    graph = part.graph
    words = []
    for start in range(0, len(entries), maps.per_word):
        word = entries[start]
        for place, entry in enumerate(entries[start + 1 : start + maps.per_word], 1):
            shifted = graph.apply("left_shift", (entry, graph.constant(place * maps.bits, UINT32)), UINT32)
            word = graph.apply("bitwise_or", (word, shifted), UINT32)
        words.append(word)
    law = f"h[t] = F[h[t-1]], {len(states)} states"
    return Stage("finite-state", law, part.places, tuple(words), None, maps)


def _apply(part: Part, state: State | None) -> list[Node]:
    """Return the results of the step for a state."""
    if state is None:
        return part.results
    values = zip(part.states, state, strict=True)
    constants = {node: part.graph.constant(value, node.scalar) for node, value in values}
    inputs = {node: node for node in reachable(part.results) if node.op == "input"}
    return copy_nodes(part.results, part.graph, inputs | constants)


def _closure(part: Part) -> list[State]:
    """Return all states, in order."""
    if all(values is not None for values in part.initial) and part.initial:
        rows = np.broadcast_arrays(*(values for values in part.initial if values is not None))
        known = set(zip(*(row.reshape(-1).tolist() for row in rows), strict=True))
        if len(known) > _MAX_VALUES:
            known = set()
    else:
        known = set()
    if not known:
        found = _outcomes(_apply(part, None))
        if found is None:
            raise _unknown(part)
        known = found
    waiting = list(known)
    while waiting and len(known) <= _MAX_VALUES:
        found = _outcomes(_apply(part, waiting.pop()))
        if found is None:
            raise _unknown(part)
        waiting += found - known
        known |= found
    return sorted(known)


def _unknown(part: Part) -> LeavesClassError:
    """Return the error for a part that may have many different values."""
    count = 1
    for node in part.results:
        low, high = _interval(node, {})
        if low is None or high is None or high - low + 1 >= 2 ** min(node.scalar.bits, 31):
            return LeavesClassError(node, rank=0)
        count *= high - low + 1
    return TooManyStatesError(part.results[0], count, True)


def _index(graph: Graph, results: Sequence[Node], numbers: dict[State, int]) -> Node:
    """Return the number of the state that the results are, which depend on x alone."""
    if len(results) == 1:
        return _index_of_one(graph, results[0], numbers)
    index = graph.constant(0, UINT32)
    for state, place in numbers.items():
        if place:
            equal = None
            for node, value in zip(results, state, strict=True):
                this = _equals(graph, node, value)
                equal = this if equal is None else graph.apply("logical_and", (equal, this), BOOL)
            assert equal is not None
            index = graph.select(equal, graph.constant(place, UINT32), index)
    return index


def _index_of_one(graph: Graph, node: Node, numbers: dict[State, int]) -> Node:
    if node.is_constant:
        # A value outside the set stands in a branch whose conditions exclude each other, so it is never chosen.
        return graph.constant(numbers.get((node.value.item(),), 0), UINT32)
    if node.op == "select":
        return graph.select(node.args[0], *(_index_of_one(graph, arg, numbers) for arg in node.args[1:]))
    if all(value == place for (value,), place in numbers.items()):
        return graph.cast(node, UINT32)
    index = graph.constant(0, UINT32)
    for (value,), place in numbers.items():
        if place:
            index = graph.select(_equals(graph, node, value), graph.constant(place, UINT32), index)
    return index


def _equals(graph: Graph, node: Node, value: object) -> Node:
    constant = graph.constant(value, node.scalar)
    if node is constant:
        return graph.constant(True, BOOL)
    if node.scalar == BOOL:
        return node if value else graph.apply("logical_not", (node,), BOOL)
    return graph.apply("equal", (node, constant), BOOL)


# ----- What nodes can be


def _outcomes(nodes: Sequence[Node]) -> set[State] | None:
    """Return the values that some nodes can have together; None if these are not known to be few."""
    found: set[State] = set()
    waiting: list[dict[int, bool]] = [{}]
    branches = 0
    while waiting:
        decided = waiting.pop()
        branches += 1
        condition = None if branches > _MAX_BRANCHES else _find_undecided(nodes, decided)
        if condition is not None:
            waiting += [decided | {condition.index: value} for value in (True, False)]
            continue
        sets = [_values(node, decided, {}) for node in nodes]
        if any(values is None for values in sets):
            return None
        found.update(itertools.product(*(values for values in sets if values is not None)))
        if len(found) > _MAX_VALUES:
            return found
    return found


def _decision(node: Node, decided: dict[int, bool]) -> bool | None:
    """Return the value of a condition that follows from decided ones."""
    if node.index in decided:
        return decided[node.index]
    if node.is_constant:
        return bool(node.value)
    if node.op == "logical_not":
        inner = _decision(node.args[0], decided)
        return None if inner is None else not inner
    if node.op in ("logical_and", "logical_or"):
        parts = [_decision(arg, decided) for arg in node.args]
        strong = node.op == "logical_or"
        if strong in parts:
            return strong
        return None if None in parts else not strong
    if node.op == "select":
        which = _decision(node.args[0], decided)
        return None if which is None else _decision(node.args[1 if which else 2], decided)
    # A comparison of numbers that are known under these conditions.
    sets = [_values(arg, decided, {}) for arg in node.args]
    if sets and None not in sets and int(np.prod([len(each) for each in sets if each is not None])) <= _MAX_COMPARED:
        found = _compute(node, [each for each in sets if each is not None])
        if found is not None and len(found) == 1:
            return bool(found.pop())
    return None


def _find_undecided(nodes: Sequence[Node], decided: dict[int, bool]) -> Node | None:
    """Return a condition that the values still depend on."""
    seen: set[int] = set()
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        if node.index in seen:
            continue
        seen.add(node.index)
        if node.op == "select":
            value = _decision(node.args[0], decided)
            if value is None:
                return _atom(node.args[0], decided)
            waiting.append(node.args[1 if value else 2])
        elif node.scalar == BOOL and node.args and _decision(node, decided) is None and _is_shared(node, nodes):
            return _atom(node, decided)
        else:
            waiting.extend(node.args)
    return None


def _is_shared(node: Node, nodes: Sequence[Node]) -> bool:
    """Return True for a bool of a tuple of states: its value decides several of them together."""
    return len(nodes) > 1 and node.op not in ("logical_not", "logical_and", "logical_or")


def _atom(node: Node, decided: dict[int, bool]) -> Node:
    while node.op in ("logical_not", "logical_and", "logical_or"):
        node = next(arg for arg in node.args if _decision(arg, decided) is None)
    # What the condition itself depends on comes first.
    return _find_undecided(node.args, decided) or node


def _values(node: Node, decided: dict[int, bool], known: dict[int, Any]) -> set[Any] | None:
    """Return the values that a node can have, given some conditions; None if these are not known to be few."""
    if node.index in known:
        found: set[Any] | None = known[node.index]
        return found
    found = known[node.index] = _values_of(node, decided, known)
    return found


def _values_of(node: Node, decided: dict[int, bool], known: dict[int, object]) -> set[Any] | None:
    if node.is_constant:
        return {node.value.item()}
    if node.scalar == BOOL:
        value = _decision(node, decided)
        if value is not None:
            return {value}
    if node.op == "select":
        value = _decision(node.args[0], decided)
        branches = node.args[1:] if value is None else [node.args[1 if value else 2]]
        sets = [_values(arg, decided, known) for arg in branches]
        return None if None in sets else set().union(*(each for each in sets if each is not None))
    args = [_values(arg, decided, known) for arg in node.args]
    if node.args and None not in args:
        return _compute(node, [each for each in args if each is not None])
    if node.scalar == BOOL:
        return {True, False}
    low, high = _interval(node, {})
    if low is None or high is None or high - low >= _MAX_VALUES:
        return None
    return set(range(low, high + 1))


def _compute(node: Node, sets: Sequence[set[object]]) -> set[Any] | None:
    """Return the results of an operation on all combinations of values."""
    size = int(np.prod([len(each) for each in sets]))
    if size > 4 * _MAX_VALUES:
        return None
    results = set()
    with np.errstate(all="ignore"):
        for values in itertools.product(*sets):
            typed = [np.asarray(value, arg.scalar.dtype) for value, arg in zip(values, node.args, strict=True)]
            if node.op == "cast":
                found = typed[0].astype(node.scalar.dtype)
            elif node.op in ("view", "complex"):
                return None
            else:
                found = np.asarray(numpy_function(node.op)(*typed))
            results.add(found.item())
    return results if len(results) <= _MAX_VALUES and not any(value != value for value in results) else None


def _interval(node: Node, known: dict[int, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """Return the least and the greatest integer that a node can be, or None for each that is not known."""
    if node.scalar.kind not in ("signed", "unsigned"):
        return None, None
    if node.is_constant:
        return int(node.value), int(node.value)
    limits = np.iinfo(node.scalar.dtype)
    op, args = node.op, node.args
    if op == "remainder":
        low, high = _interval(args[1], known)
        return (0, high - 1) if low is not None and high is not None and low > 0 else (limits.min, limits.max)
    if op in ("minimum", "maximum"):
        sides = [_interval(arg, known) for arg in args]
        lows, highs = ([each[i] for each in sides if each[i] is not None] for i in (0, 1))
        pick = min if op == "minimum" else max
        return pick(lows), pick(highs)  # type: ignore[type-var]
    if op == "bitwise_and":
        highs = [high for low, high in (_interval(arg, known) for arg in args) if low is not None and low >= 0]
        known_highs = [high for high in highs if high is not None]
        return (0, min(known_highs)) if known_highs else (limits.min, limits.max)
    if op == "cast" and args[0].scalar.kind in ("signed", "unsigned"):
        low, high = _interval(args[0], known)
        if low is not None and high is not None and low >= limits.min and high <= limits.max:
            return low, high
    if op == "select":
        sides = [_interval(arg, known) for arg in args[1:]]
        if all(low is not None and high is not None for low, high in sides):
            return min(s[0] for s in sides), max(s[1] for s in sides)  # type: ignore[type-var]
    return limits.min, limits.max
