"""Linear maps of several numbers that are divided by one number: filters, rotations and projections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
RNG = np.random.default_rng(5)
LENGTH = 700
LIKELIHOODS = tuple(RNG.uniform(0.05, 1, (2, LENGTH)).astype(F))
RATES = tuple(RNG.normal(0, 0.05, (3, LENGTH)).astype(F))
STARTS = RNG.random(LENGTH) < 0.03
MOVES = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], F)
HALF = (F(0.5), F(0.5))


def weigh(c: Any, e: Any) -> Any:
    return (F(0.9) * c[0] + F(0.2) * c[1]) * e[0], (F(0.1) * c[0] + F(0.8) * c[1]) * e[1]


def hidden_markov(c: Any, e: Any) -> Any:
    p, q = weigh(c, e)
    return (p / (p + q), q / (p + q)), np.log(p + q)


def by_an_inverse(c: Any, e: Any) -> Any:
    p, q = weigh(c, e)
    scale = 1 / (p + q)
    return (p * scale, q * scale), scale


def by_the_largest(c: Any, e: Any) -> Any:
    p, q = weigh(c, e)
    return (p / np.maximum(p, q), q / np.maximum(p, q)), None


def begin_again(c: Any, x: Any) -> Any:
    p, q = weigh(c, x)
    return (np.where(x[2], F(0.3), p / (p + q)), np.where(x[2], F(0.7), q / (p + q))), None


def divide_first(a: Any, e: Any) -> Any:
    """Normalise first, then move and weigh."""
    a = a / a.sum()
    return (MOVES.T @ a) * np.array([e[0], e[1], e[1]]), a[0] - a[1] / 2


def difference(c: Any, e: Any) -> Any:
    (p, q), _ = hidden_markov(c, e)
    return (p - q / 2) / 2, q


def of_an_array(a: Any, e: Any) -> Any:
    a = (MOVES.T @ a) * np.array([e[0], e[1], e[1]])
    return a / np.sum(a), None


def quaternion(c: Any, w: Any) -> Any:
    a, b, c, d = c
    x, y, z = w
    p = a - b * x - c * y - d * z, a * x + b + c * z - d * y, a * y - b * z + c + d * x, a * z + b * y - c * x + d
    norm = np.sqrt(p[0] ** 2 + p[1] ** 2 + p[2] ** 2 + p[3] ** 2)
    return tuple(number / norm for number in p), None


def direction(v: Any, w: Any) -> Any:
    v = np.array([v[0] - w[0] * v[1], w[0] * v[0] + v[1]])
    return v / np.linalg.norm(v)


def perspective(c: Any, x: Any) -> Any:
    depth = 2 + F(0.1) * c[0] + F(0.2) * c[1]
    return ((c[0] + F(0.5) * c[1] + x[0]) / depth, (F(0.3) * c[1] + x[1]) / depth), depth


CASES: dict[str, tuple[Any, Any, Any]] = {
    "hidden Markov model": (hidden_markov, HALF, LIKELIHOODS),
    "an inverse": (by_an_inverse, HALF, LIKELIHOODS),
    "the largest": (by_the_largest, HALF, LIKELIHOODS),
    "begun again": (begin_again, HALF, (*LIKELIHOODS, STARTS)),
    "an array": (of_an_array, np.full(3, 1 / 3, F), LIKELIHOODS),
    "divided before": (divide_first, np.full(3, 1 / 3, F), LIKELIHOODS),
    "difference of quotients": (difference, HALF, LIKELIHOODS),
    "quaternion": (quaternion, (F(1), F(0), F(0), F(0)), RATES),
    "direction": (direction, np.array([1, 0], F), RATES),
    "perspective": (perspective, (F(0.1), F(0.2)), LIKELIHOODS),
}


@pytest.mark.parametrize("name", CASES)
def test_a_quotient_of_linear_maps_is_derived(name: str) -> None:
    step, init, xs = CASES[name]
    oracle.check_loop(step, init, xs, "mobius")


@pytest.mark.parametrize("name", ["hidden Markov model", "begun again", "quaternion", "perspective"])
def test_a_quotient_of_linear_maps_on_a_device(name: str, device: gs.Device) -> None:
    step, init, xs = CASES[name]
    arrays = tuple(map(device.asarray, xs))
    for reverse in (False, True):
        oracle.check(gs.loop(step, init, arrays, reverse=reverse), oracle.run(step, init, xs, reverse=reverse))


def test_products_of_small_and_large_likelihoods_stay_in_range() -> None:
    for factor in (F(1e-30), F(1e30)):
        xs = tuple(factor * e for e in LIKELIHOODS)
        oracle.check(gs.loop(by_the_largest, HALF, xs, device="numpy"), oracle.run(by_the_largest, HALF, LIKELIHOODS))


def test_nan_stays_until_the_filter_begins_again() -> None:
    xs = (LIKELIHOODS[0].copy(), LIKELIHOODS[1], STARTS)
    xs[0][100] = np.nan
    oracle.check_loop(begin_again, HALF, xs)


def restart_at_any_size(c: Any, x: Any) -> Any:
    p, q = weigh(c, x)
    return (np.where(x[2], F(2), p / (p + q)), np.where(x[2], 5 * x[0], q / (p + q))), (c, np.log(p + q))


def of_any_length(v: Any, w: Any) -> Any:
    return direction(v, w), v


def divide_by_the_largest(c: Any, e: Any) -> Any:
    return by_the_largest(c, e)[0], c


UNSCALED: dict[str, tuple[Any, Any, Any]] = {
    "sum": (restart_at_any_size, (F(1), F(4)), (*LIKELIHOODS, STARTS)),
    "sum, from one": (restart_at_any_size, HALF, (*LIKELIHOODS, STARTS)),
    "sum, from zero": (lambda c, x: restart_at_any_size((c[0] + 0, c[1]), x), (F(0), F(3)), (*LIKELIHOODS, STARTS)),
    "norm": (of_any_length, np.array([3, 4], F), RATES),
    "maximum": (divide_by_the_largest, (F(3), F(2)), LIKELIHOODS),
}


@pytest.mark.parametrize("name", UNSCALED)
def test_values_that_are_set_are_not_divided(name: str, device: gs.Device) -> None:
    # The step sees the initial state and the values of a condition with the size that they were given.
    step, init, xs = UNSCALED[name]
    oracle.check_loop(step, init, xs, "mobius")
    oracle.check_loop(step, init, xs, "mobius", device=device)


def test_a_state_that_is_set_last_is_the_final_carry() -> None:
    starts = STARTS.copy()
    starts[-1] = True
    xs = (*LIKELIHOODS, starts)
    oracle.check_loop(restart_at_any_size, HALF, xs)


def product_of_numbers(c: Any, x: Any) -> Any:
    p, q = c[0] * c[1], c[0] + c[1]
    return p / (p + q), q / (p + q)


def test_other_quotients_are_refused() -> None:
    steps: list[Any] = [
        lambda c, x: ((c[0] + c[1]) / (c[0] + 2), (c[0] + 3 * c[1]) / (c[1] + 1)),
        lambda c, x: (c[0] / np.exp(c[0] + c[1]), c[1] / np.exp(c[0] + c[1])),
        product_of_numbers,
    ]
    for step in steps:
        with pytest.raises(gs.LoopError):
            gs.loop_form(step, HALF, LIKELIHOODS)
