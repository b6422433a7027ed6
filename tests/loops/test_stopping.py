"""Loops that stop at a condition on the carry: by a flag of the carry, or by a choice that keeps the carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
I = np.int32
RNG = np.random.default_rng(12)
# Multiples of 1/8 are added without rounding, so that all sums reach a threshold at the same step.
X = (RNG.integers(-40, 41, 300) / 8).astype(F)
FLAGS = RNG.random(300) < 0.05
DIGITS = RNG.integers(0, 10, 300).astype(I)
Step = Any


def fall(c: Any, x: Any) -> Any:
    height, speed, landed = c
    lower = height + speed + x
    lands = landed | (lower < 0)
    return (np.where(landed, height, lower), np.where(landed, speed, speed - F(0.5)), lands), (height, landed)


def reject(c: Any, x: Any) -> Any:
    total, goes_on = c
    if not goes_on or total + x < -9:
        return (total, False), total
    return (total + x, True), total


def count(c: Any, x: Any) -> Any:
    total, steps, done = c
    if done:
        return c, steps
    return (total + x, steps + 1, total + x >= 50), steps


def couple(c: Any, x: Any) -> Any:
    a, b, goes_on = c
    first = a / 2 + x
    second = b + first
    goes_on = goes_on & (np.abs(second) < 20)
    return (np.where(goes_on, first, a), np.where(goes_on, second, b), goes_on), b


def code(c: Any, x: Any) -> Any:
    value, ending = c
    value = np.where(ending == 0, value + x, value)
    return (value, np.where(ending != 0, ending, np.where(value > 20, 1, np.where(value < -20, 2, 0)))), ending


def episode(c: Any, x: Any) -> Any:
    place, speed, lives = c
    place, speed, lives = np.where(x[1], F(4), place), np.where(x[1], F(0), speed), lives | x[1]
    place, speed = np.where(lives, place + speed, place), np.where(lives, speed + x[0], speed)
    return (place, speed, lives & (place > 0)), place


def day(s: Any, x: Any) -> Any:
    if x[1]:
        s = 0
    return s + x[0] if s < 20 else s


def chain(c: Any, x: Any) -> Any:
    a, b, a_done, b_done = c
    a = np.where(a_done, a, a + x)
    a_done = a_done | (a > 10)
    b = np.where(b_done, b, b + a)
    return (a, b, a_done, b_done | (b > 60)), (a, b)


CASES: dict[str, tuple[Step, Any, Any]] = {
    "a sum that stays over a limit": (lambda s, x: s + x if s < 50 else s, I(0), DIGITS),
    "of int64": (lambda s, x: np.where(s < 2**40, s + x * np.int64(2**36), s), np.int64(0), DIGITS),
    "of uint8": (lambda s, x: np.where(s < 100, s + x.astype(np.uint8), s), np.uint8(0), DIGITS),
    "each state below 0 stays": (lambda h, x: np.where(h <= 0, h, h + x), I(20), DIGITS - 5),
    "an account that is ruined": (lambda b, x: np.where(b <= 2, b, b + x), F(20), X),
    "a way out of a window": (lambda v, x: v + x if -9 < v < 9 else v, F(0), X),
    "a clamp that stops": (
        lambda c, x: ((np.where(c[1], c[0], np.clip(c[0] + x, 0, 4)), c[1] | (c[0] >= 4)), c[0]),
        (F(0), np.False_),
        X,
    ),
    "a decay after the stop": (
        lambda c, x: ((np.where(c[1], c[0] / 2, c[0] + x), c[1] | (c[0] > 9)), c[0]),
        (F(0), np.False_),
        X,
    ),
    "a quotient that stops": (lambda v, x: np.where(v > F(0.7), 1 / (1 + v + abs(x)), v), F(1), X),
    "a vector": (lambda h, x: np.where(h[0] < 9, np.array([h[0] + x, h[1] / 2 + x]), h), np.zeros(2, F), X),
    "a dict": (
        lambda c, x: {"v": np.where(c["done"], c["v"], c["v"] + x), "done": c["done"] or c["v"] > 9},
        {"v": F(0), "done": np.False_},
        X,
    ),
    "fall": (fall, (F(30), F(0), np.False_), X),
    "reject": (reject, (F(0), np.True_), X),
    "count": (count, (I(0), I(0), np.False_), DIGITS),
    "couple": (couple, (F(0), F(0), np.True_), X),
    "code": (code, (F(0), I(0)), X),
    "chain": (chain, (F(0), F(0), np.False_, np.False_), X),
    "episode": (episode, (F(4), F(0), np.True_), (X, FLAGS)),
    "day": (day, I(0), (DIGITS, FLAGS)),
    "a day by np.where": (
        lambda s, x: np.where(x[1], x[0], np.where(s < 20, s + x[0], s)),
        I(0),
        (DIGITS, FLAGS),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("length", [0, 1, 5, 300])
def test_a_loop_that_stops_is_the_loop(name: str, length: int) -> None:
    step, init, xs = CASES[name]
    xs = tuple(x[:length] for x in xs) if isinstance(xs, tuple) else xs[:length]
    for reverse in (False, True):
        found = gs.loop(step, init, xs, reverse=reverse, device="numpy")
        assert found.form is not None
        assert found.form.kind == "staged"
        assert "bitwise" in [stage.kind for stage in found.form.stages]
        if length:
            oracle.check(found, oracle.run(step, init, xs, reverse=reverse))


@pytest.mark.parametrize("name", ["fall", "reject", "a way out of a window", "a vector"])
def test_a_loop_that_stops_is_the_loop_on_a_device(name: str, device: gs.Device) -> None:
    step, init, xs = CASES[name]
    oracle.check(gs.loop(step, init, device.asarray(xs)), oracle.run(step, init, xs))
    rows = np.stack([xs, xs[::-1], 2 * xs])
    found = gs.loop(lambda s, x: np.where(abs(s) < 9, s + x, s), F(0), device.asarray(rows), axis=1)
    for row, ys in zip(rows, found.ys.numpy(), strict=True):
        wanted = oracle.run(lambda s, x: np.where(abs(s) < 9, s + x, s), F(0), row)[1][0]
        np.testing.assert_array_equal(ys, wanted)


def test_a_loop_that_has_stopped_before_it_begins_stays() -> None:
    carry, ys = gs.loop(fall, (F(3), F(-1), np.True_), X, device="numpy")
    assert [float(number) for number in carry] == [3, -1, 1]
    assert np.all(ys[0] == 3)


def test_numbers_after_the_stop_do_not_reach_the_result() -> None:
    x = np.where(np.arange(60) > 20, F(np.inf), F(1))
    x[40:] = np.nan
    for bits in (None, "everywhere"):
        ys = gs.loop(lambda s, x: np.where(s < 9, s + x, s), F(0), x, device="numpy", reproducible=bits).ys
        np.testing.assert_array_equal(ys, np.minimum(np.arange(1, 61), 9))


def test_gradients_of_a_loop_that_stops() -> None:
    x = np.abs(X[:12]).astype(np.float64)
    grad_init, grad_x = gs.loop_vjp(
        lambda s, x: np.where(s < 9, 2 * s + x, s), np.float64(0.5), x, None, grad_carry=1.0
    )
    total, steps = 0.5, 0
    while total < 9:
        total, steps = 2 * total + x[steps], steps + 1
    np.testing.assert_allclose(grad_init, 2.0**steps)
    np.testing.assert_allclose(grad_x, np.where(np.arange(12) < steps, 2.0 ** (steps - 1 - np.arange(12)), 0))


def test_the_form_says_what_is_scanned() -> None:
    text = str(gs.loop_form(lambda s, x: s + x if s < 50 else s, I(0), DIGITS))
    assert "carry without a stop: affine" in text
    assert "whether it stopped: bitwise" in text


@pytest.mark.parametrize(
    ("step", "init"),
    [
        # Later elements decide whether the sum goes on again.
        (lambda s, x: np.where(s < x, s + x, s), F(0)),
        (lambda s, x: np.where(s < 9, s + x, s - 1), F(0)),
        (lambda c, x: ((np.where(c[1], c[0], c[0] + x), (c[1] | (c[0] > 9)) & (x < 4)), c[0]), (F(0), np.False_)),
        (lambda s, x: np.tanh(s + x) if s < 9 else s, F(0)),
    ],
)
def test_a_loop_that_goes_on_again_or_has_no_form_before_it_stops_is_refused(step: Step, init: Any) -> None:
    with pytest.raises(gs.LoopError, match="was asked for, but it computes") as caught:
        gs.loop_form(step, init, X)
    assert type(caught.value) is gs.LoopError
