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
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from gpuscan.elements import compute_dtype, scalar_of
from gpuscan.operators.evaluation import compute_node, copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, reachable
from gpuscan.operators.loops.intervals import Intervals
from gpuscan.operators.loops.stage import Composition, LeavesClassError, LoopStage, Numbers, StepPart, compute_nodes
from gpuscan.operators.traced_array import Number

UINT32 = scalar_of(np.dtype(np.uint32))

# The most states of a table.
MAX_STATES = 64
# Sets with more values are not followed further.
_MAX_VALUES = 1024
# The most combinations of values for which an operation is computed.
_MAX_COMBINATIONS = 4 * _MAX_VALUES
# The most looks at the values of a node. After these, cases are no longer distinguished. They take about a second.
_MAX_LOOKS = 200_000
# One look is counted for each group of this many values that are computed.
_PER_LOOK = 8

# Operations on floats that round.
_ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "remainder", "power", "square", "reciprocal"})

State = tuple[bool | int, ...]
# The values that a node can have; None if they are not known to be few.
Values = frozenset[Any] | None


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
    def per_word(self) -> int:
        return 32 // self.bits

    def pack(self, entries: Sequence[Number]) -> list[Number]:
        """Return the words of a table with these entries, which are uint32."""
        words = []
        for start in range(0, len(entries), self.per_word):
            word = entries[start]
            for offset, entry in enumerate(entries[start + 1 : start + self.per_word], 1):
                word = word | (entry << np.full_like(entry, offset * self.bits))
            words.append(word)
        return words

    def entry(self, words: Numbers, index: int) -> Number:
        """Return an entry of a table."""
        word = words[index // self.per_word]
        shift = index % self.per_word * self.bits
        shifted = word >> np.full_like(word, shift) if shift else word
        return shifted & np.full_like(word, 2**self.bits - 1)

    def look_up(self, words: Numbers, index: Number) -> Number:
        """Return the entry at an index that varies."""
        word = words[0]
        if len(words) > 1:
            which, candidates = index >> np.full_like(index, (self.per_word - 1).bit_length()), list(words)
            bit = 0
            while len(candidates) > 1:
                odd = (which >> np.full_like(which, bit) & np.full_like(which, 1)) > 0
                pairs = [candidates[i : i + 2] for i in range(0, len(candidates), 2)]
                candidates = [np.where(odd, pair[1], pair[0]) if len(pair) > 1 else pair[0] for pair in pairs]
                bit += 1
            word = candidates[0]
        within = index & np.full_like(index, self.per_word - 1)
        return word >> (within * np.full_like(index, self.bits)) & np.full_like(index, 2**self.bits - 1)

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        entries = [self.look_up(right, self.entry(left, index)) for index in range(len(self.states))]
        return self.pack(entries)

    def start(self, state: Numbers) -> list[Number]:
        index = np.zeros_like(state[0]).astype(np.uint32)
        for number_of_state, values in enumerate(self.states):
            if number_of_state:
                index = np.where(_is_state(state, values), np.full_like(index, number_of_state), index)
        return self.pack([index] * len(self.states))

    def state(self, numbers: Numbers) -> list[Number]:
        index = self.entry(numbers, 0)
        components: list[Number] = []
        for component, dtype in enumerate(self.dtypes):
            value = np.full_like(index, self.states[0][component], dtype=np.dtype(dtype))
            for number_of_state, values in enumerate(self.states[1:], 1):
                if values[component] != self.states[0][component]:
                    number = np.full_like(index, values[component], dtype=np.dtype(dtype))
                    value = np.where(index == np.full_like(index, number_of_state), number, value)
            components.append(value)
        return components

    def is_outside(self, state: Numbers) -> Number:
        """Return 1 for a state that is none of the set, else 0, as uint32."""
        inside = reduce(operator.or_, (_is_state(state, values) for values in self.states))
        return (~inside).astype(np.uint32)


def _is_state(numbers: Numbers, values: State) -> Number:
    """Return True where the numbers are equal to the values of a state."""
    equal = (number == np.full_like(number, value) for number, value in zip(numbers, values, strict=True))
    return reduce(operator.and_, equal)


def derive(part: StepPart) -> LoopStage:
    """Return the stage of tables.

    Raises:
        LeavesClassError: the set of states is not finite, or has more than 64 values.
    """
    if any(node.scalar.kind == "complex" for node in part.states):
        raise LeavesClassError(part.results[0], rank=-1)
    states, complete = _closure(part)
    whole = all(float(value).is_integer() for state in states for value in state)
    for node in reachable(part.results):
        if part.varies(node) and node.scalar.kind == "float" and node.op in _ROUNDED and not whole:
            raise LeavesClassError(node, rank=-1)  # where rounding ends in a cycle depends on `init`
    if len(states) > MAX_STATES:
        raise TooManyStatesError(part.results[0], len(states), complete)
    state_numbers = {state: position for position, state in enumerate(states)}
    maps = TableMaps(tuple(states), tuple(node.scalar.name for node in part.states))
    graph = part.graph
    entries = [_index(graph, _apply(part, state, graph), state_numbers) for state in states]
    words = compute_nodes(graph, lambda *state_numbers: maps.pack(state_numbers), *entries)
    law = f"h[t] = F[h[t-1]], {len(states)} states"
    return LoopStage("finite-state", law, part.state_indices, tuple(words), None, maps)


def _apply(part: StepPart, state: State | None, graph: Graph) -> list[Node]:
    """Return the results of the step for a state, as nodes of a graph."""
    inputs = {}
    for node in reachable(part.results):
        if node.op == "input":
            argument, field, component = node.data
            inputs[node] = graph.input(argument, field, component, node.scalar)
    if state is not None:
        inputs |= {node: graph.constant(value, node.scalar) for node, value in zip(part.states, state, strict=True)}
    return copy_nodes(part.results, graph, inputs)


def _closure(part: StepPart) -> tuple[list[State], bool]:
    """Return the states in order, and False if there may be more of them. These are more than a table has.

    Raises:
        LeavesClassError: the set of states is not known to be finite.
    """
    states: set[State] = set()
    if all(values is not None for values in part.initial) and part.initial:
        rows = np.broadcast_arrays(*(values for values in part.initial if values is not None))
        states = set(zip(*(row.reshape(-1).tolist() for row in rows), strict=True))
        if len(states) > _MAX_VALUES:
            states = set()
    # Without known values, the states are all that the step can return.
    waiting: list[State | None] = [*states] or [None]
    looks = _MAX_LOOKS
    while waiting and len(states) <= _MAX_VALUES and (looks > 0 or len(states) <= MAX_STATES):
        # Each state has a graph of its own, so that the step's graph does not grow with their number.
        outcomes = _Outcomes(_apply(part, waiting.pop(), Graph()))
        # If there are too many states, they are only counted, which needs no cases.
        new_states = outcomes.find(looks if len(states) <= MAX_STATES else 0)
        looks -= outcomes.looks
        if new_states is None:
            raise _unknown(part)
        waiting += new_states - states
        states |= new_states
    return sorted(states), not waiting and len(states) <= _MAX_VALUES


def _unknown(part: StepPart) -> LeavesClassError:
    """Return the error for a part that may have many different values."""
    count = 1
    intervals = Intervals()
    for node in part.results:
        low, high = intervals[node]
        if low is None or high is None or high - low + 1 >= 2 ** min(node.scalar.bits, 31):
            return LeavesClassError(node, rank=0)
        count *= high - low + 1
    return TooManyStatesError(part.results[0], count, True)


def _index(graph: Graph, results: Sequence[Node], numbers: dict[State, int]) -> Node:
    """Return the number of the state that the results are, which depend on x alone."""
    if len(results) == 1:
        return _index_of_one(graph, results[0], numbers)
    index = graph.constant(0, UINT32)
    for state, number in numbers.items():
        if number:
            equal = None
            for node, value in zip(results, state, strict=True):
                this = _equals(graph, node, value)
                equal = this if equal is None else graph.apply("logical_and", (equal, this), BOOL)
            assert equal is not None
            index = graph.select(equal, graph.constant(number, UINT32), index)
    return index


def _index_of_one(graph: Graph, result: Node, numbers: dict[State, int]) -> Node:
    # The result, and what it chooses between, in the order in which they are computed.
    chosen, waiting = {result.index: result}, [result]
    while waiting:
        node = waiting.pop()
        for arg in node.args[1:] if node.op == "select" else ():
            if arg.index not in chosen:
                chosen[arg.index] = arg
                waiting.append(arg)
    indices: dict[int, Node] = {}
    for at in sorted(chosen):
        node = chosen[at]
        if node.op == "select":
            indices[at] = graph.select(node.args[0], *(indices[arg.index] for arg in node.args[1:]))
        else:
            indices[at] = _index_of_value(graph, node, numbers)
    return indices[result.index]


def _index_of_value(graph: Graph, node: Node, numbers: dict[State, int]) -> Node:
    if node.is_constant:
        # A value outside the set is in a branch with conditions that exclude each other, so it is never chosen.
        return graph.constant(numbers.get((node.value.item(),), 0), UINT32)
    if all(value == number for (value,), number in numbers.items()):
        return graph.cast(node, UINT32)
    index = graph.constant(0, UINT32)
    for (value,), number in numbers.items():
        if number:
            index = graph.select(_equals(graph, node, value), graph.constant(number, UINT32), index)
    return index


def _equals(graph: Graph, node: Node, value: object) -> Node:
    constant = graph.constant(value, node.scalar)
    if node is constant:
        return graph.constant(True, BOOL)
    if node.scalar == BOOL:
        return node if value else graph.apply("logical_not", (node,), BOOL)
    return graph.apply("equal", (node, constant), BOOL)


# ----- What nodes can be


_TRUE, _FALSE, _EITHER = frozenset({True}), frozenset({False}), frozenset({True, False})
# Operations on bools that are no conditions of their own.
_LOGICAL = frozenset({"logical_not", "logical_and", "logical_or"})


class _Outcomes:
    """The values that some nodes can have together.

    The values depend on conditions. A case is a combination of decisions on them.

    Attributes:
        size: how many nodes they are computed from.
        looks: how many times the values of a node were looked at.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes, self._order = nodes, reachable(nodes)
        self._intervals = Intervals()
        self._computed: dict[tuple[int, tuple[Values, ...]], Values] = {}
        self.size, self.looks = len(self._order), 0

    def find(self, limit: int) -> set[State] | None:
        """Return the values; None if these are not known to be few.

        Args:
            limit: after this many looks, no more conditions are decided, and the result may have extra values.
        """
        states: set[State] = set()
        waiting: list[dict[int, bool]] = [{}]
        while waiting:
            decided = waiting.pop()
            values = self._case(decided)
            condition = self._find_undecided(values) if self.looks < limit else None
            if condition is not None:
                waiting += [decided | {condition.index: value} for value in (True, False)]
                continue
            sets = [values[node.index] for node in self._nodes]
            known_sets = [values_of_node for values_of_node in sets if values_of_node is not None]
            if len(known_sets) < len(sets):
                return None
            states.update(itertools.islice(itertools.product(*known_sets), _MAX_VALUES + 1))
            if len(states) > _MAX_VALUES:
                return states
        return states

    def _case(self, decided: Mapping[int, bool]) -> dict[int, Values]:
        """Return the values of all nodes, given some conditions."""
        values: dict[int, Values] = {}
        for node in self._order:
            at = node.index
            if at in decided:
                values[at] = _TRUE if decided[at] else _FALSE
                continue
            args = tuple(values[arg.index] for arg in node.args)
            key = (at, args)
            if key not in self._computed:
                node_values = self._computed[key] = self._values_of(node, args)
                self.looks += 0 if node_values is None else len(node_values) // _PER_LOOK
            values[at] = self._computed[key]
        self.looks += self.size
        return values

    def _values_of(self, node: Node, args: Sequence[Values]) -> Values:
        if node.is_constant:
            return frozenset({node.value.item()})
        if node.op == "select":
            condition, yes, no = args
            if condition in (_TRUE, _FALSE):
                return yes if condition == _TRUE else no
            return None if yes is None or no is None else yes | no
        known_args = [arg for arg in args if arg is not None]
        if node.args and len(known_args) == len(args):
            results = _compute(node, known_args)
            if results is not None:
                return results
        if node.scalar == BOOL:
            return _EITHER
        low, high = self._intervals[node]
        return None if low is None or high is None or high - low >= _MAX_VALUES else frozenset(range(low, high + 1))

    def _find_undecided(self, values: Mapping[int, Values]) -> Node | None:
        """Return a condition that the values of the nodes still depend on."""
        undecided, node = None, self._find_choice(self._nodes, values)
        while node is not None:
            while node.op in _LOGICAL:
                node = next(arg for arg in node.args if values[arg.index] == _EITHER)
            # What the condition itself depends on comes first.
            undecided, node = node, self._find_choice(node.args, values, with_bools=True)
        return undecided

    def _find_choice(
        self, nodes: Sequence[Node], values: Mapping[int, Values], *, with_bools: bool = False
    ) -> Node | None:
        """Return the condition of the first choice that is open, or an open bool.

        Args:
            nodes: the nodes that make choices.
            values: the values of all nodes.
            with_bools: True to find bools that are numbers, as in ``h + (x > 0)``. What several nodes share is decided.
        """
        seen: set[int] = set()
        waiting = list(reversed(nodes))
        while waiting:
            node = waiting.pop()
            if node.index in seen:
                continue
            seen.add(node.index)
            open_bool = node.scalar == BOOL and values[node.index] == _EITHER
            if node.op == "select":
                condition = node.args[0]
                if values[condition.index] == _EITHER:
                    return condition
                waiting.append(node.args[1 if values[condition.index] == _TRUE else 2])
            elif open_bool and node.args and (with_bools or len(self._nodes) > 1) and node.op not in _LOGICAL:
                return node
            else:
                waiting.extend(node.args)
        return None


def _compute(node: Node, sets: Sequence[frozenset[Any]]) -> Values:
    """Return the results of an operation on all combinations of values; None if they are too many, or NaN."""
    if prod(map(len, sets)) > _MAX_COMBINATIONS or node.op in ("view", "complex"):
        return None
    grids = []
    for axis, (values, arg) in enumerate(zip(sets, node.args, strict=True)):
        shape = [len(values) if other == axis else 1 for other in range(len(sets))]
        grids.append(np.array(list(values), compute_dtype(arg.scalar)).reshape(shape))
    with np.errstate(all="ignore"):
        try:
            computed = np.asarray(compute_node(node, grids))
        except ValueError:  # an integer to a negative power, which x may not ask for
            return None
    results = frozenset(computed.ravel().tolist())
    return results if len(results) <= _MAX_VALUES and not any(value != value for value in results) else None
