"""What the classes of loops have in common: a part of a step, the stage that is derived from it, and compositions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Scalar
from gpuscan.operators.derivatives import Calculus
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, is_nan, reachable
from gpuscan.operators.loops import canonical, polynomials
from gpuscan.operators.loops.intervals import Intervals
from gpuscan.operators.loops.step import Step, nodes_on
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameter_array import HostArray
from gpuscan.operators.traced_array import Number, Traced

Numbers = Sequence[Number]
# What the nodes of a part are to a class.
F = TypeVar("F")
# How many random inputs show what a step does with infinities.
_TRIALS = 8
_INT64_MAX = 2**63 - 1


class LeavesClassError(Exception):
    """An operation of a step leads out of a class of maps.

    Args:
        node: the operation.
        why: the reason, to follow "which".
        rank: a number that is larger the closer the attempt came to the end.
    """

    def __init__(self, node: Node, why: str = "", rank: int = 0) -> None:
        super().__init__(why)
        self.node, self.why, self.rank = node, why, rank


@dataclass(frozen=True, eq=False)
class Shape:
    """What a node computes of one integer t; see `whole_functions`.

    Attributes:
        kind: the name of the function.
        total: the node of t.
        offset, modulus, base: the numbers of the function.
    """

    kind: str
    total: Node
    offset: int
    modulus: int
    base: int


@dataclass(frozen=True, eq=False)
class StepPart:
    """Numbers of the carry that depend on each other, and on numbers that earlier parts compute.

    Attributes:
        step: the step.
        state_indices: which numbers of the carry these are.
        initial: for each of them the values in `init`, if they are known.
        shapes: what some nodes compute of one integer, if that is known.
        bounds: the least and the greatest value of a state of one integer, if they are known.
    """

    step: Step
    state_indices: tuple[int, ...]
    initial: tuple[HostArray | None, ...] = ()
    shapes: Mapping[Node, Shape] = field(default_factory=dict)
    bounds: tuple[int | None, int | None] = (None, None)

    @property
    def graph(self) -> Graph:
        return self.step.graph

    @cached_property
    def states(self) -> list[Node]:
        """The old numbers."""
        return [self.step.states[index] for index in self.state_indices]

    @cached_property
    def results(self) -> list[Node]:
        """The new numbers, in operations that the classes know."""
        return canonical.rewrite(self.graph, [self.step.results[index] for index in self.state_indices], self.states)

    @cached_property
    def varying(self) -> set[int]:
        """The indices of the nodes that depend on the old numbers."""
        return nodes_on(self.results, {node.index for node in self.states})

    def varies(self, node: Node) -> bool:
        return node.index in self.varying

    def apply(self, op: str, args: Sequence[Node], scalar: Scalar) -> Node:
        """Return a node of the graph, and note whether it varies."""
        node = self.graph.apply(op, args, scalar)
        if any(map(self.varies, args)):
            self.varying.add(node.index)
        return node

    @cached_property
    def calculus(self) -> Calculus:
        return Calculus(self.graph)

    def number_of(self, node: Node) -> int:
        """Return which of the part's old numbers an input is."""
        return self.states.index(node)

    def result_at(self, value: float) -> Node:
        """Return what a part of one number gives for an old number of this value."""
        (state,), (result,) = self.states, self.results
        inputs = {node: node for node in reachable([result]) if node.op == "input"}
        (result_of_value,) = copy_nodes(
            [result], self.graph, inputs | {state: self.graph.constant(value, state.scalar)}
        )
        return result_of_value


class NodeForms(ABC, Generic[F]):
    """The functions of the old numbers that the nodes of a part compute, in the form of a class."""

    def __init__(self, part: StepPart) -> None:
        self.part, self.graph = part, part.graph
        self._known: dict[int, F] = {}
        self._refused: dict[int, LeavesClassError] = {}

    def of(self, node: Node) -> F:
        """Return the form of a node, which is derived once.

        Raises:
            LeavesClassError: it has none.
        """
        for dependency in self._waiting(node):
            # Arguments first, so that a long chain of operations takes no deep recursion. Not all of them need a form.
            try:
                self._known[dependency.index] = self._derive(dependency)
            except LeavesClassError as error:
                self._refused[dependency.index] = error
        if node.index in self._refused:
            raise self._refused[node.index]
        return self._known[node.index]

    def _waiting(self, node: Node) -> list[Node]:
        """Return a node and the arguments behind it that vary and have no form yet, each after its own arguments."""
        nodes: dict[int, Node] = {}
        waiting = [(node, False)]
        while waiting:
            current, is_ready = waiting.pop()
            if is_ready:
                nodes.setdefault(current.index, current)
            elif not any(current.index in known for known in (self._known, self._refused, nodes)):
                waiting.append((current, True))
                waiting.extend((arg, False) for arg in reversed(current.args) if self.part.varies(arg))
        return list(nodes.values())

    @abstractmethod
    def _derive(self, node: Node) -> F:
        """Return the form of a node by the forms of its arguments."""


@dataclass(frozen=True)
class Composition:
    """Maps of one class, each a tuple of numbers, and how two of them are composed.

    Subclasses are frozen dataclasses: equal compositions are the same operator. Their methods take and return NumPy
    arrays or traced values, one for each number.

    Attributes:
        takes_steps: True if the loop's own step may compute results from the value of a composition.
        keeps_start: True if the value of a `start` is always the state itself, also if no step returns such a state.
    """

    @property
    def takes_steps(self) -> bool:
        return True

    @property
    def keeps_start(self) -> bool:
        return True

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        """Return the map that is first `left`, then `right`."""
        raise NotImplementedError

    def start(self, state: Numbers) -> list[Number]:
        """Return the constant map to `state`."""
        raise NotImplementedError

    def state(self, numbers: Numbers) -> list[Number]:
        """Return the value of a composition that begins with a `start`."""
        raise NotImplementedError

    # If a stage has plain numbers, the maps of neighbouring steps are composed in another form.

    def first(self, plain: Numbers) -> list[Number]:
        """Return the map of one step in this form."""
        raise NotImplementedError

    def extend(self, left: Numbers, plain: Numbers) -> list[Number]:
        """Return the map in this form that is first `left`, then the map of one step. `left` may be a `start`."""
        raise NotImplementedError

    def settle(self, numbers: Numbers) -> list[Number]:
        """Return a map in this form as other maps are."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LoopStage:
    """A part of a step as maps of one class.

    Attributes:
        class_name: the name of the class.
        law: the map as a formula.
        state_indices: which numbers of the carry it computes.
        numbers: the numbers of the map of one step, as nodes of the step's graph.
        constant: a node that is True where the new numbers do not depend on the old ones; None if they always do.
        composition: how maps are composed.
        plain: the numbers of the map of one step from which `Composition.first` and `Composition.extend` compose maps;
            empty if a chunk composes maps of `numbers`.
    """

    class_name: str
    law: str
    state_indices: tuple[int, ...]
    numbers: tuple[Node, ...]
    constant: Node | None
    composition: Composition
    plain: tuple[Node, ...] = ()


@lru_cache(maxsize=512)
def operator_of(composition: Composition, flagged: bool, count: int, carried: int) -> Operator:
    """Return the operator that composes the maps of a stage; the same object each time.

    An element is the numbers of a map, then a flag if there is one, then numbers that it carries along. The flag says
    that the map is constant. A composition with a constant right map has the value of the right map, so nothing of the
    left map reaches it.

    Args:
        composition: how maps are composed.
        flagged: True if elements have a flag.
        count: how many numbers a map has.
        carried: how many numbers are carried along. The result carries the numbers of the right element.
    """
    width = count + flagged + carried

    def combine(left: Any, right: Any) -> object:
        if width == 1:
            left, right = (left,), (right,)
        numbers = composition.combine(left[:count], right[:count])
        flags = []
        if flagged:
            constant = right[count]
            numbers = [np.where(constant, own, both) for own, both in zip(right[:count], numbers, strict=True)]
            flags = [left[count] | constant]
        result = (*numbers, *flags, *right[count + flagged :])
        return result if width > 1 else result[0]

    return Operator("loop", combine)


def loses_infinities(part: StepPart, constant: Node | None) -> bool:
    """Return True if the step gives NaN for an infinite state that it does not keep, for some random inputs.

    The terms of ``h + 0.1 * (x - h)`` cancel, for example. A composition would only see ``0.9 * h + 0.1 * x``.
    The inputs are not negative, as gains and weights are, such as ``g`` in ``h + g * (x - h)``.

    Args:
        part: the part, which is one float.
        constant: a condition; inputs that meet it do not count, since the map is constant. None if there is none.
    """
    (state,), (result,) = part.states, part.results
    wanted = [result] if constant is None else [result, constant]
    inputs = [node for node in reachable(wanted) if node.op == "input" and node is not state]
    rng = np.random.default_rng(0)

    def compute(value: float, others: Mapping[Node, object]) -> list[Node]:
        graph = Graph()
        constants = {node: graph.constant(other, node.scalar) for node, other in others.items()}
        return copy_nodes(wanted, graph, {**constants, state: graph.constant(value, state.scalar)})

    nan_trials = 0
    for trial in range(_TRIALS):
        others = {
            node: rng.lognormal() if node.scalar.kind in ("float", "complex") else rng.integers(2) for node in inputs
        }
        keeps = compute(0.5, others)[0].equals(0.5)
        number, *is_constant = compute(np.inf if trial % 2 else -np.inf, others)
        if keeps or any(condition.reveal(bool) for condition in is_constant):
            continue
        if not number.reveal(is_nan):
            return False
        nan_trials += 1
    return nan_trials > 0


def may_exceed_int64(part: StepPart) -> bool:
    """Return True if the state, or a number of the input that the part takes, may be a uint64 beyond int64."""
    if all(state.scalar.name != "uint64" for state in part.states):
        return False
    if not part.initial or any(values is None or np.any(values > _INT64_MAX) for values in part.initial):
        return True
    order = reachable(part.results)
    intervals = Intervals()
    taken = {arg for node in order if part.varies(node) for arg in node.args} | set(part.results)
    highs = [intervals[node][1] for node in taken if node.scalar.is_integer and not part.varies(node)]
    return any(high is None or high > _INT64_MAX for high in highs)


# ----- NumPy code on nodes


def trace_node(graph: Graph, node: Node) -> Traced:
    nodes = np.empty((), dtype=object)
    nodes[()] = node
    return Traced(graph, nodes, node.scalar)


def compute_nodes(graph: Graph, function: Callable[..., Any], *nodes: Node) -> list[Node]:
    """Return the nodes of what a function of NumPy code gives for these numbers: one number or several."""
    results = function(*(trace_node(graph, node) for node in nodes))
    return [result.nodes[()] for result in (results if isinstance(results, (tuple, list)) else [results])]


def float_format(number: Number) -> tuple[type[np.int64 | np.int32], int, int]:
    """Return the integer type with the bits of a float, the bits of the significand, and the bias of the exponent."""
    return (np.int64, 52, 1023) if number.dtype == np.float64 else (np.int32, 23, 127)


def power_of_two(exponent: Number, like: Number) -> Number:
    """Return 2**exponent in `like`'s type, or the nearest power of two that is a normal number."""
    _, _, bias = float_format(like)
    return normal_power_of_two(np.clip(exponent, 1 - bias, bias), like)


def normal_power_of_two(exponent: Number, like: Number) -> Number:
    """Return 2**exponent, which is a normal number in `like`'s type."""
    bits, shift, bias = float_format(like)
    field = exponent.astype(bits) + np.full_like(exponent, bias).astype(bits)
    return (field << np.full_like(field, shift)).view(like.dtype)


def exponent_of(size: Number) -> Number:
    """Return the exponent of the power of two in a number that is not negative, as int32; of 0 the least one."""
    bits, shift, bias = float_format(size)
    field = size.view(bits) >> np.full_like(size, shift, dtype=bits)
    return field.astype(np.int32) - np.full_like(field, bias).astype(np.int32)


def negate_condition(graph: Graph, condition: Node) -> Node:
    return graph.apply("logical_not", (condition,), BOOL)


def either(graph: Graph, one: Node | None, other: Node | None) -> Node | None:
    """Return the disjunction of two conditions; None stands for one that is never met."""
    if one is None or other is None or one is other:
        return one or other
    return graph.apply("logical_or", (one, other), BOOL)


def both(graph: Graph, one: Node | None, other: Node | None) -> Node | None:
    """Return the conjunction of two conditions; None stands for one that is never met."""
    if one is None or other is None:
        return None
    return one if one is other else graph.apply("logical_and", (one, other), BOOL)


def chosen(graph: Graph, condition: Node, one: Node | None, other: Node | None) -> Node | None:
    """Return the condition that counts where another one is met or not; None stands for one that is never met."""
    if one is other:
        return one
    if one is None or other is None:
        never = graph.constant(False, BOOL)
        return graph.apply(
            "logical_and",
            (condition, one) if one is not None else (negate_condition(graph, condition), other or never),
            BOOL,
        )
    return graph.select(condition, one, other)


def constant_choice(
    graph: Graph, condition: Node, are_constant: tuple[bool, bool], constants: tuple[Node | None, Node | None]
) -> Node | None:
    """Return where a choice between two maps is constant; None for nowhere.

    Args:
        condition: where the first map is taken.
        are_constant: which of the maps do not depend on the state at all.
        constants: where each of the others does not.
    """
    if are_constant[0]:
        return either(graph, condition, constants[1])
    if are_constant[1]:
        return either(graph, negate_condition(graph, condition), constants[0])
    return chosen(graph, condition, *constants)


def choose_present(graph: Graph, condition: Node, one: Node | None, other: Node | None) -> Node | None:
    """Return a choice of two numbers. If there is only one, it is that one, which counts nowhere else."""
    return graph.select(condition, one, other) if one is not None and other is not None else one or other


# Operations that compare two numbers, and what they say of the two swapped.
SWAPPED = {"greater": "less", "greater_equal": "less_equal", "less": "greater", "less_equal": "greater_equal"}
# The same, and what holds if they do not.
NEGATED = {"greater": "less_equal", "less_equal": "greater", "less": "greater_equal", "greater_equal": "less"}
NEGATED |= {"equal": "not_equal", "not_equal": "equal"}
# How laws write comparisons.
SIGNS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}


def find_comparison(node: Node, operand: Node) -> tuple[str, Node]:
    """Return how an operand is compared with another number, and that number; ``""`` if the node does no such thing."""
    if node.op not in SIGNS or operand not in node.args:
        return "", node
    first, second = node.args
    return (node.op, second) if first is operand else (SWAPPED.get(node.op, node.op), first)


def maximum_of_choice(a: Number, b: Number) -> AnyArray:
    return np.where(a > b, a, b)


def minimum_of_choice(a: Number, b: Number) -> AnyArray:
    return np.where(a < b, a, b)


def constant_of_choice(
    graph: Graph, form: tuple[Node | None, Node | None], limit: Node, numbers: Iterable[Node], *, low: bool
) -> tuple[Node | None, Node]:
    """Return where ``np.where(h > limit, h, limit)`` does not depend on the state, for a map h, and its value there.

    The limit is taken where it is NaN or where h is, which is so if one of its numbers is NaN.

    Args:
        form: where h itself is constant, and its value there.
        numbers: the numbers of h.
        low: True for ``>``, False for ``<``.
    """
    constant, value = form
    either_is_nan = constant
    for number in (limit, *numbers):
        either_is_nan = either(graph, either_is_nan, graph.apply("isnan", (number,), BOOL))
    if constant is None or value is None:
        return either_is_nan, limit
    (bounded,) = compute_nodes(graph, maximum_of_choice if low else minimum_of_choice, value, limit)
    return either_is_nan, graph.select(constant, bounded, limit)


def chosen_extremum(node: Node) -> tuple[str, Node, Node]:
    """Return the extremum that a choice computes.

    That is ``np.where(u > v, u, v)``, or its like with other comparisons, and with operands that differ as u and v do.

    Returns:
        ``"maximum"``, ``"minimum"``, or ``""`` for another node; and the operands. The first one is taken if the
        comparison holds, so the second if either is NaN.
    """
    if node.op != "select" or node.args[0].op not in SWAPPED:
        return "", node, node
    condition, yes, no = node.args
    u, v = condition.args
    greater = condition.op.startswith("greater")
    if (yes, no) == (v, u):
        greater = not greater
    elif (yes, no) != (u, v):
        # np.where(s < x, 0, s - x) chooses by the difference of its operands.
        chosen_by, difference = (polynomials.difference(*pair) for pair in ((u, v), (yes, no)))
        if chosen_by == polynomials.add({}, difference, -1):
            greater = not greater
        elif chosen_by != difference:
            return "", node, node
    return "maximum" if greater else "minimum", yes, no
