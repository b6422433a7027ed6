"""Steps of vectors and matrices, with the functions of NumPy that combine all entries of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
RNG = np.random.default_rng(6)
PAIRS, TRIPLES, NUMBERS = (RNG.normal(size=shape).astype(F) for shape in ((50, 2), (50, 3), (50,)))
WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], F)
MEMORY = np.zeros((3, 2), F)
WINDOW = np.zeros(5, F)


def delta_rule(s: Any, x: Any) -> Any:
    key, value = x
    s = s + F(0.1) * np.outer(value - s @ key, key)
    return s, s @ key


def largest(h: Any, x: Any) -> Any:
    h = np.maximum(h, x)
    return h, h.max()


def forward(a: Any, x: Any) -> Any:
    terms = a[:, None] + np.log(WEIGHTS)
    largest = terms.max(axis=0)
    a = largest + np.log(np.abs(np.exp(terms - largest).sum(axis=0))) + x
    return a, a[0] + np.log(np.exp(a[1] - a[0]) + np.exp(a[2] - a[0]))


def viterbi(v: Any, x: Any) -> Any:
    costs = v[:, None] + WEIGHTS
    return np.min(costs, axis=0) + x, np.argmin(costs, axis=0)


SQUARES = RNG.normal(0, 0.3, (50, 3, 3)).astype(F)

CASES: dict[str, tuple[Any, Any, Any]] = {
    "outer product": (lambda s, x: F(0.9) * s + np.outer(x[1], x[0]), MEMORY, (PAIRS, TRIPLES)),
    "delta rule": (delta_rule, MEMORY, (PAIRS, TRIPLES)),
    "einsum": (lambda s, x: F(0.5) * s + np.einsum("i,j->ij", x[1], x[0]), MEMORY, (PAIRS, TRIPLES)),
    "einsum of the carry": (lambda h, x: np.einsum("ij,j->i", WEIGHTS, h) + x, np.zeros(3, F), TRIPLES),
    "inner product": (lambda h, x: (F(0.5) * h + x, np.dot(h, WEIGHTS[0])), np.zeros(3, F), TRIPLES),
    "np.inner": (lambda h, x: (np.inner(WEIGHTS, h) + x, np.inner(h, x)), np.zeros(3, F), TRIPLES),
    "roll": (lambda w, x: np.where(np.arange(5) == 4, x, np.roll(w, -1)), WINDOW, NUMBERS),
    "flip": (lambda w, x: F(0.5) * np.flip(w) + x, WINDOW, NUMBERS),
    "roll of rows": (lambda w, x: F(0.5) * np.roll(w, 1) + x, np.arange(3, dtype=F), TRIPLES),
    "flip of rows": (lambda w, x: F(0.5) * np.flip(w) + x, np.arange(3, dtype=F), TRIPLES),
    "outer product as an output": (lambda h, x: (F(0.5) * h + x, np.outer(h, x)), np.ones(3, F), TRIPLES),
    "ravel in an output": (lambda h, x: (F(0.5) * h + x, (h.ravel(), x.dot(h), h.reshape(-1))), np.ones(3, F), TRIPLES),
    "new axis in an output": (lambda h, x: (F(0.5) * h + x, h[None]), np.ones(3, F), TRIPLES),
    "new axis of a number": (lambda w, x: np.concatenate([w[1:], x[None]]), WINDOW, NUMBERS),
    "append": (lambda w, x: (np.append(w[1:], x), w.mean()), WINDOW, NUMBERS),
    "concatenated list": (lambda b, x: np.concatenate([[x + F(0.7) * b[-1]], b[:-1]]), WINDOW, NUMBERS),
    "hstack": (lambda w, x: (np.hstack([x, w[:-1]]), w.sum()), WINDOW, NUMBERS),
    "concatenate": (lambda w, x: np.concatenate([w[2:], w[:2]]) * F(0.9) + x, WINDOW, NUMBERS),
    "diagonal": (lambda h, x: np.diag(x) @ h + 1, np.ones(3, F), TRIPLES),
    "largest": (largest, np.zeros(3, F), TRIPLES),
    "mean": (lambda h, x: (F(0.9) * h + x, np.mean(h)), np.zeros(3, F), TRIPLES),
    "forward algorithm": (
        lambda a, x: np.logaddexp.reduce(a[:, None] + np.log(WEIGHTS), axis=0) + x,
        np.zeros(3, F),
        TRIPLES,
    ),
    "forward algorithm by the largest": (forward, np.zeros(3, F), TRIPLES),
    "Viterbi": (lambda v, x: np.minimum.reduce(v[:, None] + WEIGHTS) + x, np.zeros(3, F), TRIPLES),
    "Viterbi with the choices": (viterbi, np.zeros(3, F), TRIPLES),
    "position of the largest": (
        lambda h, x: (x, (h.argmax(), np.argmax(h > 0), np.argmin(h, axis=0, keepdims=True))),
        np.zeros(3, F),
        np.where(TRIPLES > 1, np.nan, np.round(TRIPLES)).astype(F),
    ),
    "matrices of x": (lambda h, a: a @ h, np.ones(3, F), SQUARES),
    "matrices of x added": (lambda h, a: h + F(0.1) * (h @ a), np.ones(3, F), SQUARES),
    "matrices of x by einsum": (lambda h, a: F(0.5) * h + np.einsum("ij,j->i", a, h), np.ones(3, F), SQUARES),
    "rows of x": (lambda h, a: F(0.5) * h + (a * h).sum(axis=1), np.ones(3, F), SQUARES),
    "product of matrices added": (lambda p, a: p + F(0.1) * (a @ p), np.eye(3, dtype=F), SQUARES),
    "product of vectors": (lambda h, x: F(0.5) * h + F(0.1) * (x @ h), np.ones(3, F), TRIPLES),
    "sums of the columns of x": (lambda h, a: F(0.5) * h + a.sum(axis=0), np.zeros(3, F), SQUARES),
    "largest of the columns of x": (lambda h, a: np.maximum(F(0.5) * h, a.max(axis=0)), np.zeros(3, F), SQUARES),
    "first row of x": (lambda h, a: F(0.5) * h + a[0], np.zeros(3, F), SQUARES),
    "first row of x and a flip": (lambda h, a: F(0.5) * np.flip(h) + a[0], np.ones(3, F), SQUARES),
    "a carry of vectors and an x of numbers": (lambda h, x: F(0.5) * h + x, np.arange(3, dtype=F), NUMBERS),
    "a carry of matrices and an x of vectors": (lambda h, x: np.maximum(F(0.5) * h, x), np.ones((2, 3), F), TRIPLES),
    "vectors and numbers": (lambda c, x: (c[0] - x, c[1] + x), (np.ones(3, F), F(0)), NUMBERS),
    "all numbers of x": (lambda h, a: F(0.5) * h + a.sum(), np.zeros(3, F), SQUARES),
    "transposed x": (lambda h, a: F(0.5) * h + a.T, np.eye(3, dtype=F), SQUARES),
    "transposed carry": (lambda h, a: F(0.5) * np.transpose(h) + a, np.eye(3, dtype=F), SQUARES),
    "transposed vectors": (lambda h, x: F(0.5) * h + F(0.1) * (x.T @ h), np.ones(3, F), TRIPLES),
    "shape": (lambda h, x: h * F(1 / np.shape(h)[0]) + x, np.zeros(3, F), TRIPLES),
}


def count(h: Any, x: Any) -> Any:
    h = h.copy()
    h[x] += 1
    return h


def shift(h: Any, x: Any) -> Any:
    h = h.copy()
    h[:-1] = h[1:]
    h[-1] = x
    h[0] = h[1]
    return h


def level(h: Any, x: Any) -> Any:
    before = h
    h += x
    h *= F(0.5)
    return h, before


CASES["count by an index"] = (count, np.zeros(4, np.int64), (TRIPLES[:, 0] * 3).astype(np.int32) % 4 - 4)
CASES["entries in place"] = (shift, np.zeros(4, F), NUMBERS)
CASES["number in place"] = (level, F(1), NUMBERS)
CASES["clip by keywords"] = (lambda h, x: np.clip(h + x, a_min=-1, a_max=None).clip(max=3), F(1), NUMBERS)
CASES["choose"] = (lambda h, x: np.choose(x, [h, h + 1, 2 - h]), F(1), (np.abs(NUMBERS) * 2).astype(np.int32) % 3)
CASES["heaviside"] = (
    lambda h, x: F(0.5) * h + np.heaviside(x, F(0.5)),
    F(1),
    np.append(NUMBERS, [0, np.nan]).astype(F),
)


def kalman(c: Any, z: Any) -> Any:
    state, covariance = c
    return (state + covariance @ (z - state), covariance), state


CASES["vector and matrix"] = (kalman, (np.zeros(2, F), np.eye(2, dtype=F) / 2), PAIRS)


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_arrays_is_derived_and_equals_its_loop(name: str) -> None:
    step, init, xs = CASES[name]
    oracle.check_loop(step, init, xs)


def test_a_python_float_beside_integers_is_float64() -> None:
    step = lambda h, x: 0.5 * h + x  # noqa: E731
    assert oracle.check_loop(step, 0.0, np.arange(20)).ys.dtype == np.float64


def test_a_sum_of_one_number_is_that_number() -> None:
    oracle.check_loop(lambda h, x: (h + np.sum(x), np.max(h)), F(0), NUMBERS)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_unsigned_carries_take_negative_python_numbers_as_numpy_does(dtype: Any) -> None:
    taken = NUMBERS > 0

    def counter(c: Any, x: Any) -> Any:
        return np.clip(c + np.where(x, 1, -1), 0, 3)

    assert oracle.check_loop(counter, dtype(1), taken, "clamp").ys.dtype == dtype


@pytest.mark.parametrize("rows", [1, 4])
def test_each_row_has_a_vector_and_a_matrix_of_its_own(rows: int) -> None:
    """Pass a vector and a matrix for each row of xs: the rows are the first axis of both."""
    rng = np.random.default_rng(rows)
    vectors, matrices, xs = (rng.normal(size=shape).astype(F) for shape in ((rows, 2), (rows, 2, 2), (30, rows, 2)))
    found = gs.loop(kalman, (vectors, F(0.1) * matrices), xs, device="numpy")
    for row in range(rows):
        carry, ys = oracle.run(kalman, (vectors[row], F(0.1) * matrices[row]), xs[:, row])
        part = (tuple(array[row] for array in found.carry), found.ys[:, row])
        oracle.check(part, (carry, ys))


@pytest.mark.parametrize("trailing", [(3,), (3, 3)])
def test_each_row_multiplies_arrays_of_its_own(trailing: tuple[int, ...]) -> None:
    """Multiply vectors of rows by vectors, which are no matrices together, or by matrices."""
    rng = np.random.default_rng(0)
    init, xs = (rng.normal(0, 0.4, shape).astype(F) for shape in ((4, 3), (30, 4, *trailing)))

    def step(h: Any, a: Any) -> Any:
        return F(0.5) * h + F(0.1) * (a @ h)

    found = gs.loop(step, init, xs, device="numpy")
    for row in range(4):
        oracle.check((found.carry[row], found.ys[:, row]), oracle.run(step, init[row], xs[:, row]))


def test_rows_take_numbers_of_vectors_of_their_own() -> None:
    """Pass a number for each row of init, and vectors of another length, which are no numbers of one carry."""
    xs = RNG.normal(size=(30, 4, 3)).astype(F)

    def step(h: Any, x: Any) -> Any:
        return F(0.5) * h * x[0] + x[2]

    found = gs.loop(step, np.ones(4, F), xs, device="numpy")
    for row in range(4):
        oracle.check((found.carry[row], found.ys[:, row]), oracle.run(step, F(1), xs[:, row]))


@pytest.mark.parametrize(
    "step",
    [
        lambda c, x: (c[0] + x[1], c[1] + x[0]),
        lambda c, x: ((c[0] + x[1], np.maximum(c[1], x[1])), None),
        lambda c, x: ((np.minimum(c[0], x[0]), c[1] * x[1]), c[0]),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_one_number_of_a_vector_is_scanned(step: Any, reverse: bool, device: gs.Device) -> None:
    """Scan a number of a vector, which no kernel of plain arrays can read."""
    init = (F(1), F(1))
    wanted = oracle.run(step, init, PAIRS, reverse=reverse)
    oracle.check(gs.loop(step, init, PAIRS, reverse=reverse, device="numpy"), wanted)
    oracle.check(gs.loop(step, init, device.asarray(PAIRS), reverse=reverse), wanted)
