"""Projective maps: several numbers that are linear maps of the state, divided by one number.

Laws: ``h[t] = A h[t-1] / |A h[t-1]|`` with the sum, the Euclidean norm or the maximum, as a normalised filter of a
hidden Markov model or a unit quaternion has it, and ``h[t] = (A h[t-1] + b) / (c h[t-1] + d)``. Composition is the
product of the matrices A. In the second law, these have the row (c, d) and the column (b, d) in addition. Identity: the
unit matrix. Proof: positive multiples of a vector give the same next state, so each division only chooses a multiple,
and the last division is enough. Products of matrices are associative.

Each product is scaled by an exact power of two, so it neither overflows nor vanishes. If no entry is negative, no sum
cancels, and the error of a result grows with the logarithm of the length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from gpuscan.operators.adjoint import ONE
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import Graph, Node, reachable
from gpuscan.operators.loops.affine import PlusTimes
from gpuscan.operators.loops.mobius import scale_matrix
from gpuscan.operators.loops.semirings import Form, Forms
from gpuscan.operators.loops.stage import Composition, LeavesClassError, LoopStage, Numbers, StepPart, compute_nodes
from gpuscan.operators.traced_array import Number

# The most rows of a matrix: elements of more numbers take long to compile.
_MAX_SIZE = 8
# How many random inputs show what a step divides by.
_TRIALS = 6

# What a vector is divided by.
_SIZES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": lambda vector: reduce(np.add, vector),
    "norm": lambda vector: np.sqrt(reduce(np.add, [number * number for number in vector])),
    "maximum": lambda vector: reduce(np.maximum, vector),
}


@dataclass(frozen=True)
class ProjectiveMaps(Composition):
    """Matrices, row by row. A constant map has its value in the last column, and 0 in the others.

    Attributes:
        rows: the number of rows.
        divisor: what the vector is divided by: a key of `_SIZES`; ``"last"`` for its own last number.
    """

    rows: int
    divisor: str

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        rows = range(self.rows)
        product = [
            reduce(np.add, [right[i * self.rows + k] * left[k * self.rows + j] for k in rows])
            for i in rows
            for j in rows
        ]
        return scale_matrix(*product)

    def start(self, state: Numbers) -> list[Number]:
        vector = [*state, np.ones_like(state[0])] if self.divisor == "last" else list(state)
        zeros = [np.zeros_like(state[0])] * (self.rows - 1)
        return scale_matrix(*(number for entry in vector for number in (*zeros, entry)))

    def state(self, numbers: Numbers) -> list[Number]:
        vector = numbers[self.rows - 1 :: self.rows]
        if self.divisor == "last":
            return [number / vector[-1] for number in vector[:-1]]
        size = _SIZES[self.divisor](vector)
        return [number / size for number in vector]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of projective maps.

    Raises:
        LeavesClassError: the results are no quotients of linear maps by one number.
    """
    results, graph = part.results, part.graph
    if len(results) < 2 or len({node.scalar for node in part.states}) > 1 or part.states[0].scalar.kind != "float":
        raise LeavesClassError(results[0], rank=-1)
    condition, values, quotients = _split_choice(part)
    pairs = [_split_quotient(node) for node in quotients]
    numerators, divisor = [above for above, _ in pairs], pairs[0][1]
    if any(below is not divisor for _, below in pairs) or not part.varies(divisor):
        raise LeavesClassError(results[0], rank=-1)
    semiring = PlusTimes(part)
    forms = Forms(semiring)
    lines = [forms.of(node) for node in numerators]
    name = "" if any(line.shift is not None for line in lines) else _size_of(part, numerators, divisor)
    if not name:
        lines.append(forms.of(divisor))
    rows = len(lines)
    if rows > _MAX_SIZE or any(line.constant is not None for line in lines):
        raise LeavesClassError(results[0], rank=-1)
    matrix = [entry for line in lines for entry in _row(semiring, line, rows, affine=not name)]
    if condition is not None:
        vector = [*values, semiring.one(part.states[0])] if not name else values
        zeros = [semiring.zero(part.states[0])] * (rows - 1)
        constant = [number for entry in vector for number in (*zeros, entry)]
        matrix = [graph.select(condition, *pair) for pair in zip(constant, matrix, strict=True)]
    numbers = compute_nodes(graph, scale_matrix, *map(part.calculus.wide, matrix))
    law = "h[t] = (A h[t-1] + b) / (c h[t-1] + d)" if not name else f"h[t] = A h[t-1] / {name}(A h[t-1])"
    return LoopStage("mobius", law, part.state_indices, tuple(numbers), condition, ProjectiveMaps(rows, name or "last"))


def _row(semiring: PlusTimes, line: Form, rows: int, *, affine: bool) -> list[Node]:
    """Return a row of the matrix of a linear map, for an affine map with its constant as the last number."""
    like = semiring.part.states[0]
    entries = [line.weights.get(column) for column in range(rows - affine)] + ([line.shift] if affine else [])
    return [
        semiring.zero(like)
        if entry is None
        else semiring.one(like)
        if entry is ONE
        else semiring.graph.cast(entry, like.scalar)
        for entry in entries
    ]


def _split_choice(part: StepPart) -> tuple[Node | None, list[Node], list[Node]]:
    """Return a condition, the values of the state where it is met, and the results elsewhere; None if there is none."""
    results = part.results
    if any(node.op != "select" or part.varies(node.args[0]) for node in results):
        return None, [], results
    condition = results[0].args[0]
    sides = [[node.args[side] for node in results] for side in (1, 2)]
    if any(node.args[0] is not condition for node in results) or any(map(part.varies, sides[0])) == any(
        map(part.varies, sides[1])
    ):
        raise LeavesClassError(results[0], rank=-1)
    if any(map(part.varies, sides[0])):
        sides.reverse()
        condition = part.graph.apply("logical_not", (condition,), condition.scalar)
    return condition, sides[0], sides[1]


def _split_quotient(node: Node) -> tuple[Node, Node]:
    """Return the numerator and the divisor of a quotient, or of a product with an inverse."""
    if node.op == "cast":
        return _split_quotient(node.args[0])
    if node.op == "divide":
        return node.args[0], node.args[1]
    if node.op == "multiply":
        for number, inverse in (node.args, node.args[::-1]):
            if inverse.op == "divide" and inverse.args[0].equals(1):
                return number, inverse.args[1]
            if inverse.op == "reciprocal":
                return number, inverse.args[0]
    raise LeavesClassError(node, rank=-1)


def _size_of(part: StepPart, vector: Sequence[Node], divisor: Node) -> str:
    """Return the name of what a divisor is of a vector; empty if it is none of these, for some random inputs."""
    wanted = [*vector, divisor]
    inputs = [node for node in reachable(wanted) if node.op == "input"]
    rng, names = np.random.default_rng(0), list(_SIZES)
    for _ in range(_TRIALS):
        graph = Graph()
        values = [rng.normal() if node.scalar.kind == "float" else rng.integers(2) for node in inputs]
        places = {node: graph.constant(value, node.scalar) for node, value in zip(inputs, values, strict=True)}
        *numbers, size = (node.reveal(float) for node in copy_nodes(wanted, graph, places))
        scale = 1e-4 * sum(map(abs, numbers))
        names = [name for name in names if abs(_SIZES[name](numbers) - size) <= scale]
    return names[0] if names else ""
