"""Infinities and NaN that the loop's own operations make, and maps of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle
from tests.loops.oracle import check_loop

F = np.float32


def numbers(seed: int, *, at: int = 20, value: float = np.inf) -> Any:
    x = np.random.default_rng(seed).uniform(0.1, 2, 60).astype(F)
    x[at] = value
    return x


# Steps with terms that cancel if the state is infinite.
CANCELLING = {
    "low pass": ("affine", lambda y, x: y + F(0.2) * (x - y)),
    "low pass over gaps": ("affine", lambda y, x: np.where(x > 1.5, y + F(0.2) * (x - y), y)),
    "outflow": ("affine", lambda s, x: s + x - F(0.3) * s),
    "growth with a limit": ("mobius", lambda n, r: r * n / (1 + n / 10)),
    "variance": ("mobius", lambda p, q: p + q - p * p / (p + 1)),
}


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("name", CANCELLING)
def test_an_infinite_state_becomes_nan_if_the_terms_of_the_step_cancel(name: str, value: float) -> None:
    kind, step = CANCELLING[name]
    x = numbers(1, value=value)
    check_loop(step, F(1), x, kind)
    check_loop(lambda h, xs: np.where(xs[1], 1, step(h, xs[0])), F(1), (x, numbers(2) > 1.8), kind)


def test_an_infinite_state_stays_if_no_terms_cancel() -> None:
    for value in (np.inf, -np.inf):
        check_loop(lambda y, x: F(0.8) * y + F(0.2) * x, F(1), numbers(1, value=value), "affine")
        check_loop(lambda h, x: h + x, F(1), numbers(1, value=value), "affine")
    check_loop(lambda h, x: x + 1 / h, F(1), numbers(1), "mobius")


def test_a_bucket_is_nan_where_infinite_flows_cancel() -> None:
    flows, losses = numbers(3), numbers(4)

    def snow(s: Any, x: Any) -> Any:
        total = s + x[0]
        return total - np.minimum(total, x[1])

    def spill(s: Any, x: Any) -> Any:
        total = s + x
        return total - np.maximum(total - 3, 0)

    check_loop(snow, F(1), (flows, losses), "max-plus")
    check_loop(spill, F(1), flows, "min-plus")


def test_an_infinite_factor_of_a_clamp_ends_at_the_bound() -> None:
    x = numbers(7, value=1000)
    check_loop(lambda w, r: np.clip(w * np.exp(r - 1) - F(0.1), F(0.5), 2), F(1), x, "clamp")
    check_loop(lambda w, r: np.maximum(w * np.exp(r - 1) - F(0.1), F(0.5)), F(1), x, "clamp")


def test_what_is_added_after_a_bound_may_be_infinite() -> None:
    x = numbers(12)
    x[22] = -np.inf
    x[40] = np.inf
    check_loop(lambda h, x: np.maximum(h - F(1.2), 0) + x, F(1), x, "max-plus")
    check_loop(lambda h, x: np.minimum(h + F(0.5), 9) - x, F(1), x, "min-plus")
    check_loop(lambda h, x: np.maximum(h, 0) + x, F(1), -x, "max-plus")


def test_clamps_pass_over_nan() -> None:
    x = numbers(10) - 1
    x[::7] = np.nan
    limits = numbers(11, value=np.nan)
    for init in (F(1), F(np.inf)):
        check_loop(lambda h, x: np.fmax(h + x, 0), init, x, "max-plus")
        check_loop(lambda h, x: np.fmin(h - x, F(2)), init, x, "min-plus")
        check_loop(lambda h, x: np.fmin(np.fmax(h + x, 0), 1), init, x, "clamp")
        with pytest.raises(gs.LoopError, match=r"np\.fmin passes over NaN of a limit"):
            gs.loop_form(lambda h, x: np.fmin(h + x[0], x[1]), init, (x, limits))
        check_loop(lambda h, x: np.where(x[1] > 1.5, 3, np.fmax(h + x[0], 0)), init, (x, limits), "max-plus")


def test_the_largest_factors_of_a_clamp_are_not_doubled() -> None:
    largest = float(np.finfo(F).max)
    for value in (largest, -largest, largest / 2, 1e38):
        x = numbers(9, value=value)
        x[21] = F(1e-38)
        check_loop(lambda h, x: np.clip(h * x, -1, 2), F(1), x, "clamp")
        check_loop(lambda h, x: np.maximum(h * x, x / 8), F(0.5), x, "clamp")


def test_a_clamp_that_keeps_its_state_at_gaps_takes_infinite_increments() -> None:
    x = numbers(8)
    x[::7] = np.nan
    check_loop(lambda h, x: np.where(np.isnan(x), h, np.maximum(h + x, 0)), F(1), x, "max-plus")
    check_loop(lambda h, x: np.where(np.isnan(x), h, np.minimum(h + x, 9)), F(1), x, "min-plus")
    check_loop(lambda h, x: np.where(np.isnan(x), h, np.clip(h + x, 0, 9)), F(1), -x, "clamp")


SEEN = np.random.default_rng(5).random(400) < 0.5
LIKELIHOODS = tuple(np.random.default_rng(6).uniform(0.2, 1, (2, 400)).astype(F))


def update(p: Any, first: Any, second: Any) -> Any:
    """Return the probability of the first of two hypotheses after an observation."""
    return p * first / (p * first + (1 - p) * second)


PROBABILITIES = {
    "rates": (lambda p, x: update(p, np.where(x, F(0.8), F(0.3)), np.where(x, F(0.2), F(0.7))), SEEN),
    "likelihoods": (lambda p, x: update(p, *x), LIKELIHOODS),
    "two states": (lambda p, x: update(F(0.9) * p + F(0.2) * (1 - p), *x), LIKELIHOODS),
    "two states with resets": (
        lambda p, x: np.where(x[2], F(0.5), update(F(0.9) * p + F(0.2) * (1 - p), x[0], x[1])),
        (*LIKELIHOODS, SEEN),
    ),
    "odds": (lambda p, x: p * np.exp(x) / (1 - p + p * np.exp(x)), LIKELIHOODS[0] - F(0.6)),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_a_probability_is_within_rounding(name: str) -> None:
    step, xs = PROBABILITIES[name]
    found = gs.loop(step, F(0.5), xs, device="numpy")
    assert found.form is not None
    assert found.form.kind == "mobius"
    wanted = oracle.run(step, F(0.5), xs)
    np.testing.assert_allclose(found.ys, wanted[1][0], rtol=1e-4, atol=1e-6)
    assert np.all((found.ys >= 0) & (found.ys <= 1))


def test_a_gain_that_is_reset_is_a_quotient() -> None:
    def step(carry: Any, z: Any) -> Any:
        mean, variance = carry
        missing = np.isnan(z)
        variance = variance + F(0.1)
        gain = np.where(missing, F(0), variance / (variance + F(0.5)))
        mean = mean + gain * np.where(missing, F(0), z - mean)
        return (mean, (1 - gain) * variance), mean

    z = np.where(SEEN, LIKELIHOODS[0], F(np.nan))
    check_loop(step, (F(0), F(1)), z, "staged")
