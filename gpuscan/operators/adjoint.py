"""The backward pass of a scan: the functions that its kernel applies to elements, derived from the operator.

A scan computes the states ``s[t] = op(s[t-1], x[t])``. Its results are ``y[t] = s[t]``, or of an exclusive scan
``y[t] = s[t-1]``. Let A and B be the operator's Jacobians with respect to its left and right argument at
``(s[t-1], x[t])``, and G[t] the cotangent of ``s[t]``, with all that later elements contribute. Then, from the end,

- ``G[t] = grad_y[t] + A[t+1]^T G[t+1]``, or of an exclusive scan ``G[t] = grad_y[t+1] + A[t+1]^T G[t+1]``;
- ``grad_x[t] = B[t]^T G[t]``.

The first is an affine recurrence (`Transitions`), scanned in the other direction. Its elements carry along the numbers
that the second needs, so that one kernel computes both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Element, Field, Scalar, bundle_of, scalar_of, tuple_of
from gpuscan.errors import OperatorError
from gpuscan.operators.derivatives import DERIVATIVES, Calculus
from gpuscan.operators.evaluation import copy_nodes, evaluate_fields, trace_again
from gpuscan.operators.expression_graph import BOOL, COMPLEX64, FLOAT32, Graph, Node, reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import Map, Result, trace_operator
from gpuscan.operators.traced_array import Number, Traced
from gpuscan.operators.traced_ufuncs import NoSuchForm

FLOAT64 = scalar_of(np.dtype(np.float64))


class Slot(NamedTuple):
    """An array that the backward pass reads: a field of a bundle.

    Attributes:
        bundle: ``"x"``, ``"y"`` or ``"grad"`` (grad_y); ``"previous"``, states before elements; or ``"has_previous"``,
            one bool that is False for the first element of a row or segment.
        field: the number of the field.
        ahead: True if an element takes the value of the element after it in the order of the forward scan, or zero.
    """

    bundle: str
    field: int = 0
    ahead: bool = False


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The functions of a backward pass.

    Attributes:
        slots: the arrays that `before` reads.
        before: gives the element of the recurrence: the matrix, the vector, and the numbers that it carries along.
        operator: combines elements of the recurrence.
        after: gives grad_x from an element of the scanned recurrence, which has G as its vector. If the cotangent of
            `initial` was asked for, its fields follow. They are 0 unless the element is the first of a row or segment.
        firsts: the element of these fields, as a tuple; empty if the cotangent of `initial` was not asked for.
        start: for each field, the value to read as the state before a first element: the operator's identity if that
            gives grad_x = G, else zeros.
    """

    slots: tuple[Slot, ...]
    before: Map
    operator: Operator
    after: Map
    firsts: Element
    start: tuple[AnyArray, ...]


def adjoint(operator: Operator, element: Element, *, exclusive: bool, seeded: bool, initial: bool) -> Adjoint:
    """Return the backward pass of a scan.

    Args:
        operator: the operator of the scan.
        element: the element that it combines.
        exclusive: as in `gpuscan.scan`.
        seeded: True if the first elements of rows and segments are combined with a value before them.
        initial: True if the cotangent of that value is wanted.

    Raises:
        OperatorError: the operator cannot be traced or has no derivative, or some numbers of the element are no floats.
    """
    if operator.function is None:
        raise OperatorError(
            f"the gradient of {operator.described} was asked for, which is WGSL, and gpuscan differentiates Python "
            "functions only. Write it as a function of (left, right), with NumPy's operations"
        )
    for field in element.fields:
        if field.scalar.kind not in CONTINUOUS:
            which = "elements" if element.single else f"a field {field.name!r}"
            raise OperatorError(
                f"the gradient of a scan was asked for with {which} of {field.scalar.name}, but a gradient is defined "
                "for floats and complex numbers only. Convert the arrays with .astype(np.float32)"
            )
    return _Derivation(operator, element, exclusive, seeded).adjoint(initial)


cached_adjoint = lru_cache(maxsize=256)(adjoint)


class _Derivation:
    """Derives the functions of a backward pass, all in one graph."""

    def __init__(self, operator: Operator, element: Element, exclusive: bool, seeded: bool) -> None:
        assert operator.function is not None
        self.element, self.exclusive, self.seeded = element, exclusive, seeded
        self.described = operator.described
        self.start = tuple(np.zeros(field.shape, field.scalar.dtype) for field in element.fields)
        self.graph = Graph()
        self.calculus = Calculus(self.graph)
        self.fields: dict[Slot, Field] = {}
        self.own = [field.scalar for field in element.fields for _ in range(field.count)]
        traced = trace_operator(operator.function, element, operator.name)
        flat = [node for nodes in traced.fields for node in nodes]
        # The operator where the matrix is taken, and where grad_x is.
        self.left, self.right = self._numbers("previous" if not exclusive else "y"), self._numbers("x")
        self.next_left, self.next_right = self._numbers("y", exclusive), self._numbers("x", True)
        self.results = self._apply_operator(flat, self.left, self.right)
        self.next_results = self._apply_operator(flat, self.next_left, self.next_right)
        self.grad = [self.calculus.wide(node) for node in self._numbers("grad", exclusive)]
        self.has_previous = self._input(Slot("has_previous"), Field("has_previous", BOOL), 0)
        # The type of the recurrence's numbers. Where an operator is no analytic function of complex numbers, their real
        # and imaginary parts are numbers of their own.
        self.whole = is_analytic(self.next_results, self.next_left)
        self.scalar = COMPLEX64 if self.whole else FLOAT64 if FLOAT64 in self.own else FLOAT32
        self.units = [
            (index, part)
            for index, scalar in enumerate(self.own)
            for part in ((0, 1) if scalar == COMPLEX64 and not self.whole else (None,))
        ]
        vector = Field("vector", self.scalar, (len(self.units),))
        units = iter([self._input(Slot("vector"), vector, i) for i in range(len(self.units))])
        # G in the types of cotangents.
        self.total = [self._join_units(units, scalar) for scalar in self.own]
        identity = operator.identity_for(element)
        if not seeded and identity is not None and self._passes_through(flat, identity):
            self.start, self.seeded = tuple(identity), True

    # ----- Numbers

    def _input(self, slot: Slot, field: Field, component: int) -> Node:
        self.fields.setdefault(slot, field)
        return self.graph.input(0, list(self.fields).index(slot), component, field.scalar)

    def _numbers(self, bundle: str, ahead: bool = False) -> list[Node]:
        """Return the numbers of an element of a bundle, field by field."""
        return [
            self._input(Slot(bundle, i, ahead), field, component)
            for i, field in enumerate(self.element.fields)
            for component in range(field.count)
        ]

    def _apply_operator(self, flat: Sequence[Node], left: Sequence[Node], right: Sequence[Node]) -> list[Node]:
        """Return the operator's results for these arguments."""
        pairs = [(i, component) for i, field in enumerate(self.element.fields) for component in range(field.count)]
        index_of = {pair: index for index, pair in enumerate(pairs)}
        inputs = [node for node in reachable(flat) if node.op == "input"]
        return copy_nodes(flat, self.graph, {n: (left, right)[n.data[0]][index_of[n.data[1:]]] for n in inputs})

    def _join_units(self, units: Any, scalar: Scalar) -> Node:
        """Return the next number of an element, made from the next one or two numbers of the recurrence."""
        first = next(units)
        if scalar == COMPLEX64 and not self.whole:
            return self.graph.complex(self.graph.cast(first, FLOAT32), self.graph.cast(next(units), FLOAT32))
        return self.graph.cast(first, FLOAT32) if scalar.kind == "float" and scalar.bits < 64 else first

    def _unit(self, numbers: Sequence[Node | None], index: int, part: int | None) -> Node:
        node = numbers[index]
        if node is None:
            return self.graph.constant(0, self.scalar)
        return self.graph.cast(node if part is None else self.graph.parts(node)[part], self.scalar)

    def _backwards(
        self, given: Sequence[tuple[Node, Node]], inputs: Sequence[Node], states: Sequence[Node] = ()
    ) -> list[Node | None]:
        """Return the cotangents of the inputs, given the cotangents of results.

        Args:
            given: each result and its cotangent.
            states: the results as the scan stored them. Derivatives read these, and do not compute the results again,
                so that rounding errors of long scans cancel: a product of ``exp(y[t-1] - y[t])`` over several t is
                the exponential of the difference between the ends.
        """
        wide = self.calculus.wide
        exact = not self.exclusive and all(scalar.bits > 16 for scalar in self.own)
        computed = {node.index: y for (node, _), y in zip(given, states, strict=False) if exact and node.args}
        pairs = [(node, self.graph.cast(cotangent, wide(node).scalar)) for node, cotangent in given]
        return cotangents(self.graph, pairs, inputs, self.described, computed)

    def _passes_through(self, flat: Sequence[Node], identity: Sequence[AnyArray]) -> bool:
        """Return True if the derivatives say by themselves that ``op(identity, x)`` has the derivative 1."""
        numbers = [number for value in identity for number in value.ravel()]
        left = [self.graph.constant(number, scalar) for number, scalar in zip(numbers, self.own, strict=True)]
        results = self._apply_operator(flat, left, self.right)
        totals = self._backwards(list(zip(results, self.total, strict=True)), self.right)
        return all(node is whole for node, whole in zip(totals, self.total, strict=True))

    # ----- The functions

    def adjoint(self, initial: bool) -> Adjoint:
        pattern, matrix = self._matrix()
        vector = [self._unit(self.grad, *unit) for unit in self.units]
        fields = [replace(field, name=f"f{i}") for i, field in enumerate(self.element.fields)]
        results = self._gradient()
        if initial:
            firsts = [replace(f, scalar=FLOAT32 if f.scalar.bits == 16 else f.scalar) for f in fields]
            results += self._first()
        else:
            firsts = []
        carried = self._find_carried_numbers(results)
        maps = transitions(pattern, len(carried))
        scalars = [self.scalar] * (maps.width - len(carried)) + [node.scalar for node in carried]
        before = [*(matrix[index] for index in maps.entries), *vector, *carried]
        slots, step = self._before(before, maps.element(scalars))
        after = self._after(maps, scalars, carried, results, [*fields, *firsts])
        return Adjoint(slots, step, maps.operator, after, bundle_of(firsts), self.start)

    def _matrix(self) -> tuple[Pattern, Mapping[tuple[int, int], Node]]:
        """Return the pattern of the recurrence's matrix, and its entries."""
        zero, one = self.graph.constant(0, self.scalar), self.graph.constant(1, self.scalar)
        entries: dict[tuple[int, int], Node] = {}
        ahead = self._numbers("y", True)
        for j, (index, part) in enumerate(self.units):
            result = self.next_results[index]
            seed = self.calculus.like(1j if part == 1 else 1, self.calculus.wide(result))
            row = self._backwards([(result, seed)], self.next_left, ahead[index : index + 1])
            for i, unit in enumerate(self.units):
                node = self._unit(row, *unit)
                entries[i, j] = zero if node.equals(0) else one if node.equals(1) else node
        size = range(len(self.units))
        return pattern_of([[entries[i, j].index for j in size] for i in size], zero.index, one.index), entries

    def _gradient(self) -> list[Node]:
        """Return the numbers of grad_x."""
        grads = self._backwards(list(zip(self.results, self.total, strict=True)), self.right, self._numbers("y"))
        numbers = []
        for node, whole, scalar in zip(grads, self.total, self.own, strict=True):
            node = self.calculus.like(0, whole) if node is None else self.graph.cast(node, whole.scalar)
            node = node if self.seeded else self._unless_first(node, whole)
            numbers.append(self.graph.cast(node, scalar))
        return numbers

    def _unless_first(self, node: Node, whole: Node) -> Node:
        """Return G for a first element, which is the first state if there is no value before it, and otherwise `node`.

        Where it is a product with G, or G is chosen, the flag is combined with the other operand or with the condition,
        so that the element carries one number and not two.
        """
        graph = self.graph
        if node.op == "select" and whole in node.args[1:]:
            condition, yes, no = node.args
            if yes is whole:
                condition, yes = graph.apply("logical_not", (condition,), BOOL), no
            return graph.select(graph.apply("logical_and", (self.has_previous, condition), BOOL), yes, whole)
        if node.op == "multiply" and whole in node.args:
            factor = node.args[1] if node.args[0] is whole else node.args[0]
            return self.calculus.times(whole, graph.select(self.has_previous, factor, self.calculus.like(1, factor)))
        return graph.select(self.has_previous, node, whole)

    def _first(self) -> list[Node]:
        """Return the numbers of the cotangent of `initial`: 0 unless the element is the first."""
        firsts = self._backwards(list(zip(self.results, self.total, strict=True)), self.left, self._numbers("y"))
        numbers = []
        grad = [self.calculus.wide(node) for node in self._numbers("grad")]
        for node, whole, own in zip(firsts, self.total, grad, strict=True):
            node = self.calculus.like(0, whole) if node is None else self.graph.cast(node, whole.scalar)
            # The first result of an exclusive scan is the value itself.
            node = self.calculus.add(node, own) if self.exclusive else node
            numbers.append(self.graph.select(self.has_previous, self.calculus.like(0, node), node))
        return numbers

    def _find_carried_numbers(self, results: Sequence[Node]) -> list[Node]:
        """Return the numbers that the results need in addition to G.

        They are the operands that are combined with what depends on G, or the inputs if those are fewer.
        """
        inputs = [node for node in reachable(results) if node.op == "input"]
        vector = list(self.fields).index(Slot("vector"))
        later = dependent(results, [node for node in inputs if node.data[1] == vector])
        edges = {
            arg.index: arg
            for node in reachable(results)
            if node.index in later
            for arg in node.args
            if arg.index not in later and not arg.is_constant
        }
        edges |= {node.index: node for node in results if node.index not in later and not node.is_constant}
        needed = [node for node in inputs if node.data[1] != vector]
        return list(edges.values()) if len(edges) <= len(needed) else needed

    def _before(self, numbers: Sequence[Node], result: Element) -> tuple[tuple[Slot, ...], Map]:
        """Return the function that gives the recurrence's element, of the arrays that it needs alone."""
        slots = list(self.fields)
        inputs = [node for node in reachable(numbers) if node.op == "input"]
        used = tuple(slots[i] for i in sorted({node.data[1] for node in inputs}))
        graph = Graph()
        new_inputs = {
            node: graph.input(0, used.index(slots[node.data[1]]), node.data[2], node.scalar) for node in inputs
        }
        nodes = [[node] for node in copy_nodes(numbers, graph, new_inputs)]
        return used, map_of(graph, bundle_of([self.fields[slot] for slot in used]), nodes, result)

    def _after(
        self, maps: Transitions, scalars: Sequence[Scalar], carried: Sequence[Node], results: Sequence[Node],
        fields: Sequence[Field],
    ) -> Map:  # fmt: skip
        """Return the function that takes an element of the recurrence to the results."""
        graph = Graph()
        inputs = [graph.input(0, i, 0, scalar) for i, scalar in enumerate(scalars)]
        stored = len(maps.entries)
        vector = list(self.fields).index(Slot("vector"))
        new_inputs = {
            node: inputs[stored + node.data[2]]
            for node in reachable(results)
            if node.op == "input" and node.data[1] == vector
        }
        new_inputs |= dict(zip(carried, inputs[stored + maps.size :], strict=True))
        nodes = iter(copy_nodes(results, graph, new_inputs))
        by_field = [[next(nodes) for _ in range(field.count)] for field in fields]
        return map_of(graph, maps.element(scalars), by_field, bundle_of(fields))


def map_of(graph: Graph, source: Element, fields: Sequence[Sequence[Node]], result: Element) -> Map:
    """Return a function of one element, given by the nodes of each field of its result."""
    traced = Result(tuple(tuple(nodes) for nodes in fields), result)

    def function(value: object) -> object:
        leaves = source.structure.flatten(value)
        compute = trace_again if isinstance(leaves[0], Traced) else evaluate_fields
        return result.structure.unflatten(compute(fields, source, result, leaves))

    indices = tuple(node.index for nodes in fields for node in nodes)
    return Map(function, source, (*graph.describe_nodes(), indices, result), traced)


# ----- Neighbouring elements, and sums


def with_flag(fields: Sequence[Field], count: int) -> Map:
    """Return the function that gives the first `count` fields of an element, and a bool that is True."""
    graph = Graph()
    kept = fields[:count]
    nodes = [[graph.input(0, i, c, field.scalar) for c in range(field.count)] for i, field in enumerate(kept)]
    nodes.append([graph.constant(True, BOOL)])
    return map_of(graph, bundle_of(fields), nodes, bundle_of([*kept, Field("has_previous", BOOL)]))


def _right(left: object, right: object) -> object:
    del left
    return right


# The exclusive scan with this operator gives each element the one before.
LAST = Operator("last", _right)


@lru_cache(maxsize=64)
def sum_of(count: int) -> Operator:
    """Return the operator that adds bundles of this many arrays."""

    def add(left: Sequence[object], right: Sequence[Any]) -> object:
        return tuple(left[i] + right[i] for i in range(count))

    return Operator("sum", add)


# ----- Derivatives of a graph
#
# Differentiate an expression graph in reverse mode: compute the cotangents of inputs from the cotangents of results.


CONTINUOUS = ("float", "complex")


def dependent(nodes: Sequence[Node], inputs: Collection[Node]) -> set[int]:
    """Return the indices of the nodes that the given ones need and that depend on the inputs."""
    dependents = {node.index for node in inputs}
    for node in reachable(nodes):
        if any(arg.index in dependents for arg in node.args):
            dependents.add(node.index)
    return dependents


def is_analytic(nodes: Sequence[Node], inputs: Collection[Node]) -> bool:
    """Return True if all numbers are complex, and no real or imaginary part is taken of what depends on the inputs."""
    if any(node.scalar != COMPLEX64 for node in (*nodes, *inputs)):
        return False
    depends = dependent(nodes, inputs)
    return not any(
        node.op in ("real", "imag", "complex") and any(arg.index in depends for arg in node.args)
        for node in reachable(nodes)
    )


def cotangents(
    graph: Graph,
    results: Sequence[tuple[Node, Node]],
    inputs: Sequence[Node],
    described: str,
    known_values: Mapping[int, Node] | None = None,
) -> list[Node | None]:
    """Return the cotangent of each input; None where it is 0 for all values.

    Args:
        graph: the graph, which grows.
        results: each result and its cotangent.
        inputs: the nodes to differentiate with respect to.
        described: the function as messages name it.
        known_values: for the index of a node, another node with the same value, which derivatives read in its place.

    Raises:
        OperatorError: an operation has no derivative.
    """
    calculus = Calculus(graph)
    nodes = [node for node, _ in results]
    depends = dependent(nodes, inputs)
    sums: dict[int, Node] = {}

    def collect(node: Node, cotangent: Node) -> None:
        before = sums.get(node.index)
        sums[node.index] = cotangent if before is None else calculus.add(before, cotangent)

    for node, cotangent in results:
        if node.index in depends:
            collect(node, cotangent)
    for node in reversed(reachable(nodes)):
        cotangent_sum = sums.get(node.index)
        if cotangent_sum is not None and node.args:
            value = (known_values or {}).get(node.index, node)
            _pass_on(calculus, node, calculus.wide(value), cotangent_sum, depends, collect, described)
    return [sums.get(node.index) for node in inputs]


def _pass_on(
    calculus: Calculus,
    node: Node,
    y: Node,
    cotangent: Node,
    depends: set[int],
    collect: Callable[[Node, Node], None],
    described: str,
) -> None:
    """Give each argument of a node its share of the node's cotangent; `y` has the node's value."""
    if node.op == "cast":
        (arg,) = node.args
        if arg.scalar.kind in CONTINUOUS:
            collect(arg, calculus.graph.cast(cotangent, calculus.wide(arg).scalar))
        return
    rules = DERIVATIVES.get(node.op)
    if rules is None:
        bits = "it reads the bits of numbers" if node.op == "view" else "it has no derivative"
        raise OperatorError(
            f"the gradient of {described} was asked for, which computes {node.op!r} of its arguments, and {bits}. "
            "Write the operator with operations on floats, or with np.where"
        )
    args = tuple(calculus.wide(arg) for arg in node.args)
    for arg, rule in zip(node.args, rules, strict=True):
        if rule is None or arg.index not in depends or arg.scalar.kind not in CONTINUOUS:
            continue
        try:
            share = rule(calculus, args, y, cotangent)
        except NoSuchForm as error:
            raise OperatorError(
                f"the gradient of {described} was asked for, but the derivative of np.{node.op} has no form for "
                f"{error}. Pass arrays of float32"
            ) from None
        collect(arg, share)


# ----- Recurrences with few entries
#
# Affine recurrences ``v = b + M v'`` as operators that store only those entries of the matrices M that vary.
#
# The entries of the matrices of one recurrence fall into classes: 0 everywhere, 1 everywhere, and classes of entries
# that are equal in every matrix and in every product. A diagonal matrix of one gate has a single class; the matrices of
# a product of k x k matrices have k**2 instead of k**4.


# The classes of the entries that are 0 or 1 in every product. The others count from 0.
ZERO, ONE = -1, -2

# The class of each entry of a matrix.
Pattern = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Transitions:
    """The operator that combines affine maps with matrices of one pattern.

    Attributes:
        pattern: the class of each entry.
        entries: for each class that is stored, an entry of it.
        operator: combines an earlier and a later map. Each is a tuple: the numbers of the classes, then b, then numbers
            that are carried along. The result has the carried numbers of the later map.
        width: the count of numbers in a tuple.
    """

    pattern: Pattern
    entries: tuple[tuple[int, int], ...]
    operator: Operator
    width: int

    @property
    def size(self) -> int:
        """The number of rows of a matrix."""
        return len(self.pattern)

    def element(self, scalars: Sequence[Scalar]) -> Element:
        """Return the element that the operator combines: one field for each number, of these types."""
        fields = tuple(Field(f"f{i}", scalar) for i, scalar in enumerate(scalars))
        if self.width == 1:
            return Element(fields)
        return Element(fields, tuple_of(self.width))


def pattern_of(entries: Sequence[Sequence[Hashable]], zero: Hashable, one: Hashable) -> Pattern:
    """Return the classes of a matrix's entries, such that products of matrices with these classes have them too.

    Args:
        entries: a value for each entry. Entries with equal values are equal in every matrix.
        zero, one: the values of the entries that are always 0 and 1.
    """
    size = range(len(entries))
    numbers: dict[Hashable, int] = {zero: ZERO, one: ONE}
    classes = [[numbers.setdefault(entry, len(numbers)) for entry in row] for row in entries]
    while True:
        keys: dict[Hashable, int] = {(ZERO, ()): ZERO, (ONE, ((ONE, ONE),)): ONE}
        refined = [[keys.setdefault((classes[i][j], _terms(classes, i, j)), len(keys)) for j in size] for i in size]
        if refined == classes:
            break
        classes = refined
    stored = sorted({entry for row in classes for entry in row if entry not in (ZERO, ONE)})
    order = {ZERO: ZERO, ONE: ONE} | {entry: index for index, entry in enumerate(stored)}
    return tuple(tuple(order[entry] for entry in row) for row in classes)


def _terms(classes: Sequence[Sequence[int]], i: int, j: int) -> tuple[tuple[int, int], ...]:
    """Return the products of classes that are summed in entry (i, j) of a product of two matrices."""
    pairs = ((classes[i][k], classes[k][j]) for k in range(len(classes)))
    return tuple(sorted(pair for pair in pairs if ZERO not in pair))


@lru_cache(maxsize=256)
def transitions(pattern: Pattern, carried: int) -> Transitions:
    """Return the transitions with this pattern; the same object each time, so that its kernels are compiled once.

    Args:
        pattern: the class of each entry of a matrix.
        carried: how many numbers an element carries along.
    """
    place_of: Mapping[int, tuple[int, int]] = {
        entry: (i, j)
        for i, row in reversed(list(enumerate(pattern)))
        for j, entry in reversed(list(enumerate(row)))
        if entry >= 0
    }
    entries = tuple(place_of[entry] for entry in range(len(place_of)))
    terms = [_terms(pattern, i, j) for i, j in entries]
    rows = [[(entry, j) for j, entry in enumerate(row) if entry != ZERO] for row in pattern]
    stored = len(entries)
    width = stored + len(rows) + carried

    def combine(left: Any, right: Any) -> object:
        if width == 1:
            left, right = (left,), (right,)
        matrix = [
            _total([_entries(left, right, *pair, like=right[stored]) for pair in pairs])
            if pairs
            else np.zeros_like(right[stored])
            for pairs in terms
        ]
        vector = [
            _total([right[stored + i], *(_times(right, entry, left[stored + j]) for entry, j in row)])
            for i, row in enumerate(rows)
        ]
        result = (*matrix, *vector, *(right[i] for i in range(stored + len(rows), width)))
        return result if width > 1 else result[0]

    return Transitions(pattern, entries, Operator("transition", combine), width)


def _entries(earlier: Number, later: Number, entry: int, other: int, like: object) -> Number:
    """Return the product of an entry of the later matrix and one of the earlier, in the type of `like`."""
    if other == ONE:
        return np.ones_like(like) if entry == ONE else later[entry]
    return _times(later, entry, earlier[other])


def _times(matrix: Number, entry: int, number: Number) -> Number:
    return number if entry == ONE else matrix[entry] * number


def _total(terms: Sequence[Number]) -> Number:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
