"""Derivatives of the expression graph agree with finite differences. Matrices store only entries that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

from gpuscan.elements import LEAF, Element, Structure, element_of
from gpuscan.errors import OperatorError
from gpuscan.operators.adjoint import ONE, ZERO, adjoint, cotangents, pattern_of, transitions
from gpuscan.operators.derivatives import DERIVATIVES
from gpuscan.operators.evaluation import copy_nodes, evaluate_fields
from gpuscan.operators.expression_graph import Graph, Node, reachable
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import operator
from gpuscan.operators.trace import trace_function
from tests.oracle import Array, affine

PAIR = Structure("tuple", (0, 1), (LEAF, LEAF))
STEP = 1e-6


# Away from the kinks and poles of the functions below.
A, B = np.array([0.3, 0.62, 0.81, 0.45]), np.array([0.7, 0.25, 0.55, 0.9])

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b * b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda a, b: -a * b,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "remainder": lambda a, b: np.remainder(5 * a, b),
    "fmod": lambda a, b: np.fmod(-5 * a, b),
    "floor_divide": lambda a, b: (5 * a) // b + a,
    "sign": lambda a, b: np.sign(a - b) * a,
    "floor": lambda a, b: np.floor(3 * a) * b,
    "ceil": lambda a, b: np.ceil(3 * a) * b,
    "trunc": lambda a, b: np.trunc(3 * a) * b,
    "rint": lambda a, b: np.rint(3 * a) * b,
    "absolute": lambda a, b: np.abs(a - b),
    "copysign": lambda a, b: np.copysign(a - b, b - 0.6),
    "power": lambda a, b: a**b,
    "sqrt": lambda a, b: np.sqrt(a * b),
    "exp": lambda a, b: np.exp(a) * b,
    "exp2": lambda a, b: np.exp2(a) * b,
    "expm1": lambda a, b: np.expm1(a) * b,
    "log": lambda a, b: np.log(a) * b,
    "log2": lambda a, b: np.log2(a) * b,
    "log10": lambda a, b: np.log10(a) * b,
    "log1p": lambda a, b: np.log1p(a) * b,
    "logaddexp": np.logaddexp,
    "cbrt": lambda a, b: np.cbrt(a) * b,
    "hypot": np.hypot,
    "sin": lambda a, b: np.sin(a) * b,
    "cos": lambda a, b: np.cos(a) * b,
    "tan": lambda a, b: np.tan(a) * b,
    "sinh": lambda a, b: np.sinh(a) * b,
    "cosh": lambda a, b: np.cosh(a) * b,
    "tanh": lambda a, b: np.tanh(a) * b,
    "arcsin": lambda a, b: np.arcsin(a) * b,
    "arccos": lambda a, b: np.arccos(a) * b,
    "arctan": lambda a, b: np.arctan(a) * b,
    "arctan2": np.arctan2,
    "arcsinh": lambda a, b: np.arcsinh(a) * b,
    "arccosh": lambda a, b: np.arccosh(a + 1) * b,
    "arctanh": lambda a, b: np.arctanh(a) * b,
    "erf": lambda a, b: erf(a) * b,
    "real": lambda a, b: (a.astype(np.complex64) * np.complex64(2 + 1j)).real * b,
    "imag": lambda a, b: (a.astype(np.complex64) * np.complex64(2 + 1j)).imag * b,
    "complex": lambda a, b: ((a + 0 * b).astype(np.complex64) * b.astype(np.complex64)).real,
    "select": lambda a, b: np.where(a > b, a * b, b),
}


def differentiate_pair(function: Callable[[Any, Any], Any], element: Element) -> tuple[list[Node], list[Node]]:
    """Return the result of a function of a pair, and its derivative with respect to both."""
    ((traced,),) = trace_function(lambda pair: function(*pair), element, "f").result.fields
    graph = Graph()
    inputs = [graph.input(0, i, 0, field.scalar) for i, field in enumerate(element.fields)]
    places = {node: inputs[node.data[1]] for node in reachable([traced]) if node.op == "input"}
    (result,) = copy_nodes([traced], graph, places)
    found = cotangents(graph, [(result, graph.constant(1, result.scalar))], inputs, "f")
    return [result], [graph.constant(0, result.scalar) if node is None else node for node in found]


def values(nodes: list[Node], element: Element, leaves: list[Array]) -> list[Array]:
    """Compute nodes that were traced for float32 on arrays of float64."""
    result = element_of(
        [np.dtype(np.float32)] * len(nodes), Structure("tuple", tuple(range(len(nodes))), (LEAF,) * len(nodes))
    )
    return evaluate_fields([[node] for node in nodes], element, result, leaves)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    """Compare with central differences."""
    element = element_of([np.dtype(np.float32)] * 2, PAIR)
    result, gradients = differentiate_pair(FUNCTIONS[name], element)
    wide = name in ("real", "imag", "complex")  # complex64 is computed in float32
    step, tolerance = (1e-2, 1e-3) if wide else (STEP, 1e-6)
    for place, gradient in enumerate(values(gradients, element, [A, B])):
        ends = []
        for sign in (1, -1):
            moved = [A.copy(), B.copy()]
            moved[place] += sign * step
            ends.append(values(result, element, moved)[0])
        np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / (2 * step), rtol=tolerance, atol=tolerance)


def test_every_derivative_is_tried() -> None:
    """Compare the table's names with those above."""
    assert set(FUNCTIONS) == set(DERIVATIVES)


def test_zero_times_infinity_is_zero_where_the_graph_knows_it() -> None:
    """Take the logarithm of what `np.where` leaves out: its infinite slope does not reach the gradient."""
    element = element_of([np.dtype(np.float32)] * 2, PAIR)
    _, gradients = differentiate_pair(lambda a, b: np.where(a > 0, np.log(a), b), element)
    da, db = values(gradients, element, [np.array([0.0, 2.0]), np.array([1.0, 1.0])])
    assert (da == [0, 0.5]).all()
    assert (db == [1, 0]).all()


def test_what_the_bits_of_numbers_give_has_no_derivative() -> None:
    """Differentiate a function that reads the bits of its argument."""
    element = element_of([np.dtype(np.float32)] * 2, PAIR)
    with pytest.raises(OperatorError, match="reads the bits of numbers"):
        differentiate_pair(lambda a, b: (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) + b, element)


# ----- Backward passes

SINGLE = element_of([np.dtype(np.float32)])
MATRIX = element_of([np.dtype(np.float32)], shapes=[(2, 2)])


@pytest.mark.parametrize(
    ("op", "element", "reads", "words"),
    [
        # grad_x is a running sum of grad_y.
        ("add", SINGLE, "grad", 1),
        ("multiply", SINGLE, "grad previous x+", 3),
        ("maximum", SINGLE, "grad has_previous previous x x+ y", 3),
        ("matmul", MATRIX, "grad previous x+", 12),
        # One gate for both fields. The first elements follow the identity.
        (operator(affine, identity=(1, 0)), element_of([np.dtype(np.float32)] * 2, PAIR), "grad previous x+", 5),
        (affine, element_of([np.dtype(np.float32)] * 2, PAIR), "grad has_previous previous x+", 6),
        ("add", element_of([np.dtype(np.complex64)]), "grad", 2),
    ],
)
def test_backward_passes_read_what_they_need(op: Any, element: Element, reads: str, words: int) -> None:
    """Compare the arrays that a kernel reads, and the words that tiles pass on, with those found by hand."""
    derived = adjoint(resolve(op), element, exclusive=False, seeded=False, initial=False)
    assert sorted({slot.bundle + "+" * slot.ahead for slot in derived.slots}) == reads.split()
    assert derived.before.element.words == words


# ----- Patterns of matrices

N, L = "zero", "one"


@pytest.mark.parametrize(
    ("entries", "pattern"),
    [
        ([["a"]], [[0]]),
        ([[L]], [[ONE]]),
        ([[N]], [[ZERO]]),
        ([["a", N], [N, "a"]], [[0, ZERO], [ZERO, 0]]),
        ([["a", N], [N, L]], [[0, ZERO], [ZERO, ONE]]),
        # A triangular matrix of one gate: the product has another entry below the diagonal.
        ([["a", N], ["a", "a"]], [[0, ZERO], [1, 0]]),
        ([[L, N], ["a", L]], [[ONE, ZERO], [0, ONE]]),
        ([[L, N], [L, L]], [[ONE, ZERO], [0, ONE]]),
        # The square of a rotation has no zeros where the rotation has them.
        ([[N, "a"], ["b", N]], [[0, 1], [2, 3]]),
        ([["a", "b"], ["b", "a"]], [[0, 1], [1, 0]]),
    ],
)
def test_patterns_store_what_differs(entries: Any, pattern: Any) -> None:
    """Compare the classes of entries with those found by hand."""
    assert pattern_of(entries, N, L) == tuple(tuple(row) for row in pattern)


@pytest.mark.parametrize(
    "rows",
    [
        ["a"],
        ["1"],
        ["a0", "0a"],
        ["1a", "01"],
        ["11", "01"],
        ["01", "10"],
        ["ab0", "0c0", "0d1"],
        ["a0b", "1a0", "00c"],
        ["011", "001", "000"],
    ],
)
def test_transitions_compose_affine_maps(rows: list[str]) -> None:
    """Combine random maps of a pattern, and compare with products of whole matrices: exact, since all are integers."""
    pattern = pattern_of(rows, "0", "1")
    found = transitions(pattern, 1)
    assert transitions(pattern, 1) is found
    rng = np.random.default_rng(0)
    size = len(rows)

    def draw() -> tuple[Array, Array]:
        numbers = {letter: rng.integers(2, 9) for letter in "abcd"} | {"0": 0, "1": 1}
        return np.array([[numbers[letter] for letter in row] for row in rows]), rng.integers(-9, 9, size)

    def pack_transition(matrix: Array, vector: Array, carried: int) -> Any:
        return tuple(np.asarray(number) for number in (*(matrix[place] for place in found.entries), *vector, carried))

    matrix, vector = draw()
    combined = pack_transition(matrix, vector, 0)
    for carried in range(1, 4):
        other, b = draw()
        combined = found.operator(combined, pack_transition(other, b, carried))
        matrix, vector = other @ matrix, other @ vector + b
        assert np.array_equal(np.array(combined), np.array(pack_transition(matrix, vector, carried)))
