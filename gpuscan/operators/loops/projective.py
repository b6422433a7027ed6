"""Projective maps: several numbers that are linear maps of the state, divided by one number.

Laws: ``h[t] = A h[t-1] / |A h[t-1]|``, where ``|x|`` is the sum, the Euclidean norm or the maximum, and
``h[t] = (A h[t-1] + b) / (c h[t-1] + d)``. Examples of the first are unit quaternions and the normalised filter of a
hidden Markov model. Composition is the product of the matrices A. In the second law, these have the row (c, d) and the
column (b, d) in addition. Identity: the unit matrix. Proof: positive multiples of a vector give the same next state, so
each division only chooses a multiple, and the last division is enough. Products of matrices are associative. The values
that `init` or a condition gives are not divided at all, so their own divisor is kept with the matrix if their size may
be other than 1.

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
from gpuscan.operators.parameter_array import arrays_hold
from gpuscan.operators.traced_array import Number

# The most rows of a matrix: elements of more numbers take long to compile.
_MAX_SIZE = 8
# How many times random inputs are tried to find out what a step divides by.
_TRIALS = 6

# What a vector can be divided by, as functions of the vector. Here, each is called a size of the vector.
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
        keeps_sizes: True if one more number follows the matrix: the divisor of a constant map, or 0 for other maps.
            Without it, a constant map to a vector of another size than 1 would have its value divided by that size.
    """

    rows: int
    divisor: str
    keeps_sizes: bool = False

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        rows = range(self.rows)
        product = [
            reduce(np.add, [right[i * self.rows + k] * left[k * self.rows + j] for k in rows])
            for i in rows
            for j in rows
        ]
        scaled = scale_matrix(*product)
        # The step of `right` is the last one, so it decides what the vector is divided by.
        return [*scaled, right[-1]] if self.keeps_sizes else scaled

    def start(self, state: Numbers) -> list[Number]:
        vector = [*state, np.ones_like(state[0])] if self.divisor == "last" else list(state)
        zeros = [np.zeros_like(state[0])] * (self.rows - 1)
        matrix = [number for entry in vector for number in (*zeros, entry)]
        return scale_matrix(*matrix, *([np.ones_like(state[0])] if self.keeps_sizes else []))

    def state(self, numbers: Numbers) -> list[Number]:
        vector = numbers[self.rows - 1 : self.rows**2 : self.rows]
        if self.divisor == "last":
            return [number / vector[-1] for number in vector[:-1]]
        size = _SIZES[self.divisor](vector)
        if self.keeps_sizes:
            own = numbers[-1]
            size = np.where(own == np.zeros_like(own), size, own)
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
    pairs = [_split_quotient(part, node) for node in quotients]
    numerators, divisor = [above for above, _ in pairs], pairs[0][1]
    if any(below is not divisor for _, below in pairs) or not part.varies(divisor):
        raise LeavesClassError(results[0], rank=-1)
    semiring = PlusTimes(part)
    forms = Forms(semiring)
    lines = [forms.of(node) for node in numerators]
    affine = any(line.shift is not None for line in lines)
    name = "last" if affine else _name_of_divisor(numerators, divisor)
    if name == "last":
        lines.append(forms.of(divisor))
    rows = len(lines)
    if rows > _MAX_SIZE or any(line.constant is not None for line in lines):
        raise LeavesClassError(results[0], rank=-1)
    matrix = [entry for line in lines for entry in _row(semiring, line, rows, affine=name == "last")]
    zero, one = semiring.zero(part.states[0]), semiring.one(part.states[0])
    keeps_sizes = name != "last" and not _have_size_one(part, name, values)
    if keeps_sizes:
        matrix.append(zero)
    if condition is not None:
        vector = [*values, one] if name == "last" else values
        constant = [number for entry in vector for number in (*[zero] * (rows - 1), entry)]
        constant += [one] * keeps_sizes
        matrix = [graph.select(condition, *pair) for pair in zip(constant, matrix, strict=True)]
    numbers = compute_nodes(graph, scale_matrix, *map(part.calculus.wide, matrix))
    law = "h[t] = (A h[t-1] + b) / (c h[t-1] + d)" if name == "last" else f"h[t] = A h[t-1] / {name}(A h[t-1])"
    maps = ProjectiveMaps(rows, name, keeps_sizes)
    return LoopStage("mobius", law, part.state_indices, tuple(numbers), condition, maps)


def _have_size_one(part: StepPart, divisor: str, values: Sequence[Node]) -> bool:
    """Return True if the vectors that the loop begins with are known to have the size 1, within rounding.

    Args:
        part: the part of the step, with its initial values.
        divisor: a key of `_SIZES`.
        values: the values of the state where a condition sets it; empty if there is no condition.
    """
    rounding = 4 * np.finfo(part.states[0].scalar.dtype).eps

    def is_one(*vector: Any) -> Any:
        return np.all(np.abs(_SIZES[divisor](vector) - 1) <= rounding)

    initial = [array for array in part.initial if array is not None]
    if len(initial) < len(part.states) or not arrays_hold(is_one, *initial):
        return False
    return not values or (all(node.is_constant for node in values) and is_one(*(node.reveal(float) for node in values)))


def _row(semiring: PlusTimes, line: Form, rows: int, *, affine: bool) -> list[Node]:
    """Return a row of the matrix of a linear map. The row of an affine map ends with its constant."""
    like = semiring.part.states[0]
    entries = [line.weights.get(column) for column in range(rows - affine)] + ([line.shift] if affine else [])
    row = []
    for entry in entries:
        if entry is None:
            row.append(semiring.zero(like))
        elif entry is ONE:
            row.append(semiring.one(like))
        else:
            row.append(semiring.graph.cast(entry, like.scalar))
    return row


def _split_choice(part: StepPart) -> tuple[Node | None, list[Node], list[Node]]:
    """Return a condition that sets the state, the values where it is met, and the results where it is not.

    If there is no such condition, it is None and there are no values.

    Raises:
        LeavesClassError: the results have different conditions, or both sides of the choice depend on the old state.
    """
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


def _split_quotient(part: StepPart, node: Node) -> tuple[Node, Node]:
    """Return the numerator and the divisor of a quotient, or of a combination of quotients by one number.

    Raises:
        LeavesClassError: it is none.
    """
    if node.op == "cast":
        return _split_quotient(part, node.args[0])
    if node.op in ("add", "subtract"):
        (left, divisor), (right, other) = (_split_quotient(part, term) for term in node.args)
        if other is divisor:
            return part.apply(node.op, (left, right), node.scalar), divisor
    elif node.op == "divide":
        above, below = node.args
        if part.varies(below):
            return above, below
        numerator, divisor = _split_quotient(part, above)
        return part.apply("divide", (numerator, below), node.scalar), divisor
    elif node.op == "multiply":
        for number, quotient in (node.args, node.args[::-1]):
            if quotient.op == "reciprocal":
                return number, quotient.args[0]
            if quotient.op == "divide" and quotient.args[0].equals(1):
                return number, quotient.args[1]
        for factor, quotient in (node.args, node.args[::-1]):
            if not part.varies(factor):
                numerator, divisor = _split_quotient(part, quotient)
                return part.apply("multiply", (factor, numerator), node.scalar), divisor
    raise LeavesClassError(node, rank=-1)


def _name_of_divisor(vector: Sequence[Node], divisor: Node) -> str:
    """Return the key of `_SIZES` that gives the divisor from the vector for random inputs; "last" if there is none."""
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
    return names[0] if names else "last"
