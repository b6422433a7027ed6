"""The backward pass of a scan: the functions that its kernels apply to elements, derived from the operator.

A scan computes the states ``s[t] = op(s[t-1], x[t])``. Its results are ``y[t] = s[t]``, or of an exclusive scan
``y[t] = s[t-1]``. Let A and B be the operator's Jacobians with respect to its left and right argument at
``(s[t-1], x[t])``, and u[t] what the later elements contribute to the cotangent of ``s[t]``. Then, from the end and
with ``u[n-1] = 0``,

- ``u[t-1] = A[t]^T (u[t] + grad_y[t])``, ``grad_x[t] = B[t]^T (u[t] + grad_y[t])``, or of an exclusive scan
- ``u[t-1] = A[t]^T u[t] + grad_y[t]``, ``grad_x[t] = B[t]^T u[t]``.

The first is an affine recurrence (`transitions`), scanned in the other direction; the second a function of each
element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpuscan.elements import LEAF, Element, Field, Scalar, Structure, scalar_of
from gpuscan.errors import OperatorError
from gpuscan.operators.derivatives import Calculus, is_constant
from gpuscan.operators.differentiation import CONTINUOUS, cotangents, is_analytic
from gpuscan.operators.evaluation import copied, evaluated, traced_again
from gpuscan.operators.expression_graph import BOOL, COMPLEX64, FLOAT32, Graph, Node, reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import Map, Result, trace_operator
from gpuscan.operators.traced_array import Traced
from gpuscan.operators.transitions import Transitions, pattern_of, transitions

FLOAT64 = scalar_of(np.dtype(np.float64))


class Slot(NamedTuple):
    """An array that the backward pass reads: field `field` of a bundle.

    The bundles are ``"previous"`` (the states before the elements), ``"x"``, ``"grad"`` (grad_y), ``"later"`` (u), and
    ``"begun"``: one bool, False for the first element of a row or segment.
    """

    bundle: str
    field: int = 0


BEGUN = Slot("begun")


@dataclass(frozen=True)
class Reading:
    """A function of some of the arrays."""

    slots: tuple[Slot, ...]
    map: Map


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The functions of a backward pass.

    Attributes:
        transitions: the affine recurrence of u.
        step: gives the recurrence's element, which is the matrix and the vector.
        later: takes u from an element of the recurrence.
        gradient: gives grad_x.
        first: gives the cotangent of `initial` at the first element of a row or segment, and 0 elsewhere.
        sums: grad_x is a running sum of grad_y. Then `later` gives it in the type of x.
    """

    transitions: Transitions
    step: Reading
    later: Map
    gradient: Reading
    first: Reading
    sums: bool


def adjoint(operator: Operator, element: Element, *, exclusive: bool, seeded: bool) -> Adjoint:
    """Return the backward pass of a scan.

    Args:
        operator: the operator of the scan.
        element: the element that it combines.
        exclusive: as in `gpuscan.scan`.
        seeded: the first elements of rows and segments are combined with a value before them.

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
    return _Derivation(operator, element, exclusive, seeded).adjoint()


cached_adjoint = lru_cache(maxsize=256)(adjoint)


class _Derivation:
    """Derives the functions of a backward pass, all in one graph."""

    def __init__(self, operator: Operator, element: Element, exclusive: bool, seeded: bool) -> None:
        assert operator.function is not None
        self.element, self.exclusive, self.seeded = element, exclusive, seeded
        self.described = operator.described
        self.graph = Graph()
        self.calculus = Calculus(self.graph)
        self.fields: dict[Slot, Field] = {}
        traced = trace_operator(operator.function, element, operator.name)
        own = [field.scalar for field in element.fields]
        arguments = [self._numbers("previous", own), self._numbers("x", own)]
        flat = [node for nodes in traced.fields for node in nodes]
        places = self._places()
        inputs = {
            node: arguments[node.data[0]][places[node.data[1:]]] for node in reachable(flat) if node.op == "input"
        }
        self.results = copied(flat, self.graph, inputs)
        self.left, self.right = arguments
        # The type of the recurrence's numbers. Where an operator is no analytic function of complex numbers, their real
        # and imaginary parts are numbers of their own.
        self.whole = is_analytic(self.results, self.left)
        wide = any(scalar == FLOAT64 for scalar in own)
        self.scalar = COMPLEX64 if self.whole else FLOAT64 if wide else FLOAT32
        self.grad = [self._widened(node) for node in self._numbers("grad", own)]
        self.summed = [COMPLEX64 if scalar.kind == "complex" else self.scalar for scalar in own]
        self.later = [self._widened(node) for node in self._numbers("later", self.summed)]
        self.begun = self._input(BEGUN, Field("begun", BOOL), 0)

    # ----- Numbers

    def _input(self, slot: Slot, field: Field, component: int) -> Node:
        self.fields.setdefault(slot, field)
        return self.graph.input(0, list(self.fields).index(slot), component, field.scalar)

    def _numbers(self, bundle: str, scalars: Sequence[Scalar]) -> list[Node]:
        """Return the numbers of an element of a bundle, field by field."""
        return [
            self._input(Slot(bundle, i), replace(field, scalar=scalar), component)
            for i, (field, scalar) in enumerate(zip(self.element.fields, scalars, strict=True))
            for component in range(field.count)
        ]

    def _places(self) -> dict[tuple[int, int], int]:
        pairs = [(i, component) for i, field in enumerate(self.element.fields) for component in range(field.count)]
        return {pair: place for place, pair in enumerate(pairs)}

    def _widened(self, node: Node) -> Node:
        """Return a cotangent in the type in which it is computed."""
        return self.calculus.wide(node)

    def _as_cotangent(self, node: Node, result: Node) -> Node:
        return self.graph.cast(node, self.calculus.wide(result).scalar)

    @property
    def units(self) -> list[tuple[int, int | None]]:
        """The numbers of the recurrence: the place of each, and the part if it is 0 (real) or 1 (imaginary)."""
        parts: list[tuple[int, int | None]] = []
        for place, node in enumerate(self.left):
            split = node.scalar == COMPLEX64 and not self.whole
            parts += [(place, 0), (place, 1)] if split else [(place, None)]
        return parts

    def _unit(self, numbers: Sequence[Node | None], place: int, part: int | None) -> Node:
        node = numbers[place]
        if node is None:
            return self.graph.constant(0, self.scalar)
        return self.graph.cast(node if part is None else self.graph.parts(node)[part], self.scalar)

    def _backwards(self, given: Sequence[tuple[Node, Node]], inputs: Sequence[Node]) -> list[Node | None]:
        pairs = [(node, self._as_cotangent(cotangent, node)) for node, cotangent in given]
        return cotangents(self.graph, pairs, inputs, self.described)

    # ----- The functions

    def adjoint(self) -> Adjoint:
        found, matrix = self._matrix()
        given = list(zip(self.results, self.grad, strict=True))
        vector = self.grad if self.exclusive else self._backwards(given, self.left)
        numbers = [*matrix, *(self._unit(vector, *unit) for unit in self.units)]
        step = self._reading([[node] for node in numbers], found.element(self.scalar))
        total = self.later if self.exclusive else self._sums(self.later, self.grad)
        gradient = self._backwards(list(zip(self.results, total, strict=True)), self.right)
        alike = [self._as_cotangent(t, node) for t, node in zip(total, self.results, strict=True)]
        sums = found.sums and all(a is b for a, b in zip(gradient, alike, strict=True))
        own = [field.scalar for field in self.element.fields]
        return Adjoint(
            transitions=found,
            step=step,
            later=self._later(found, own if sums else self.summed),
            gradient=self._gradient(gradient, total),
            first=self._first(total),
            sums=sums,
        )

    def _matrix(self) -> tuple[Transitions, list[Node]]:
        """Return the recurrence, and the stored entries of its matrix."""
        zero, one = self.graph.constant(0, self.scalar), self.graph.constant(1, self.scalar)
        columns = []
        for place, part in self.units:
            result = self.results[place]
            wide = self.calculus.wide(result)
            seed = self.calculus.like(1j if part == 1 else 1, wide)
            row = self._backwards([(result, seed)], self.left)
            columns.append([self._unit(row, *unit) for unit in self.units])
        entries = [[self._kind(column[i], zero, one) for column in columns] for i in range(len(columns))]
        indices = [[node.index for node in row] for row in entries]
        found = transitions(pattern_of(indices, zero.index, one.index))
        return found, [entries[i][j] for i, j in found.places]

    def _kind(self, node: Node, zero: Node, one: Node) -> Node:
        return zero if is_constant(node, 0) else one if is_constant(node, 1) else node

    def _sums(self, left: Sequence[Node], right: Sequence[Node]) -> list[Node]:
        return [
            self.calculus.add(self.graph.cast(a, b.scalar), b) if b.scalar.bits >= a.scalar.bits else
            self.calculus.add(a, self.graph.cast(b, a.scalar))
            for a, b in zip(left, right, strict=True)
        ]  # fmt: skip

    def _gradient(self, gradient: Sequence[Node | None], total: Sequence[Node]) -> Reading:
        numbers = []
        own = [field.scalar for field in self.element.fields for _ in range(field.count)]
        for node, whole, scalar in zip(gradient, total, own, strict=True):
            node = self.calculus.like(0, whole) if node is None else self.graph.cast(node, whole.scalar)
            # Without a value before it, the first element is the first state.
            node = node if self.seeded else self.graph.select(self.begun, node, whole)
            numbers.append(self.graph.cast(node, scalar))
        return self._reading(self._by_fields(numbers), _bundle(self.element.fields))

    def _first(self, total: Sequence[Node]) -> Reading:
        found = self._backwards(list(zip(self.results, total, strict=True)), self.left)
        zeros = [self.graph.constant(0, scalar) for scalar in self._each(self.summed)]
        numbers = [zero if n is None else self.graph.cast(n, zero.scalar) for n, zero in zip(found, zeros, strict=True)]
        if self.exclusive:
            grad = [self.graph.cast(node, zero.scalar) for node, zero in zip(self.grad, zeros, strict=True)]
            numbers = [self.calculus.add(a, b) for a, b in zip(numbers, grad, strict=True)]
        numbers = [self.graph.select(self.begun, zero, node) for node, zero in zip(numbers, zeros, strict=True)]
        fields = [replace(f, scalar=scalar) for f, scalar in zip(self.element.fields, self.summed, strict=True)]
        return self._reading(self._by_fields(numbers), _bundle(fields))

    def _each(self, scalars: Sequence[Scalar]) -> list[Scalar]:
        pairs = zip(self.element.fields, scalars, strict=True)
        return [scalar for field, scalar in pairs for _ in range(field.count)]

    def _by_fields(self, numbers: Sequence[Node]) -> list[list[Node]]:
        left = iter(numbers)
        return [[next(left) for _ in range(field.count)] for field in self.element.fields]

    def _reading(self, fields: Sequence[Sequence[Node]], result: Element) -> Reading:
        """Return a function in a graph of its own, of the arrays that it needs alone."""
        flat = [node for nodes in fields for node in nodes]
        slots = list(self.fields)
        inputs = [node for node in reachable(flat) if node.op == "input"] or [self.grad_input]
        used = tuple(slots[i] for i in sorted({node.data[1] for node in inputs}))
        graph = Graph()
        again = {node: graph.input(0, used.index(slots[node.data[1]]), node.data[2], node.scalar) for node in inputs}
        nodes = iter(copied(flat, graph, again))
        source = _bundle([self.fields[slot] for slot in used])
        return Reading(used, _map(graph, source, [[next(nodes) for _ in field] for field in fields], result))

    @property
    def grad_input(self) -> Node:
        return self._input(Slot("grad"), self.fields[Slot("grad")], 0)

    def _later(self, found: Transitions, scalars: Sequence[Scalar]) -> Map:
        """Return the function that takes u from an element of the recurrence."""
        graph = Graph()
        source = found.element(self.scalar)
        vector = iter([graph.input(0, len(found.places) + i, 0, self.scalar) for i in range(found.size)])
        numbers = []
        for node, scalar in zip(self.left, self._each(scalars), strict=True):
            first = next(vector)
            split = node.scalar == COMPLEX64 and not self.whole
            numbers.append(graph.cast(graph.complex(first, next(vector)) if split else first, scalar))
        fields = [replace(f, scalar=scalar) for f, scalar in zip(self.element.fields, scalars, strict=True)]
        return _map(graph, source, self._by_fields(numbers), _bundle(fields))


def _bundle(fields: Sequence[Field]) -> Element:
    """Return an element of these fields, as a tuple."""
    named = tuple(replace(field, name=f"f{i}") for i, field in enumerate(fields))
    return Element(named, Structure("tuple", tuple(range(len(named))), (LEAF,) * len(named)))


def _map(graph: Graph, source: Element, fields: Sequence[Sequence[Node]], result: Element) -> Map:
    """Return a function of one element, given by the nodes of each field of its result."""
    traced = Result(tuple(tuple(nodes) for nodes in fields), result)

    def function(value: Any) -> Any:
        leaves = source.structure.flatten(value)
        compute = traced_again if isinstance(leaves[0], Traced) else evaluated
        return result.structure.unflatten(compute(fields, source, result, leaves))

    places = tuple(node.index for nodes in fields for node in nodes)
    return Map(function, source, (*graph.described(), places, result), traced)


# ----- The states before the elements


def shifted(fields: Sequence[Field], *, values: bool, begun: bool) -> Map:
    """Return the function that gives an element's own fields, if `values`, and a bool that is True, if `begun`."""
    graph = Graph()
    source = _bundle(fields)
    nodes: list[list[Node]] = []
    if values:
        nodes = [[graph.input(0, i, c, field.scalar) for c in range(field.count)] for i, field in enumerate(fields)]
    results = list(fields) if values else []
    if begun:
        nodes.append([graph.constant(True, BOOL)])
        results.append(Field("begun", BOOL))
    return _map(graph, source, nodes, _bundle(results))


def keep_last(left: Any, right: Any) -> Any:
    """Return the right operand. The exclusive scan with this operator gives each element the one before."""
    del left
    return right


def sum_of(count: int) -> Operator:
    """Return the operator that adds bundles of this many arrays."""
    return _sums(count)


@lru_cache(maxsize=64)
def _sums(count: int) -> Operator:
    def add(left: Mapping[int, Any], right: Mapping[int, Any]) -> Any:
        return tuple(left[i] + right[i] for i in range(count))

    return Operator("sum", add)


LAST = Operator("last", keep_last)
