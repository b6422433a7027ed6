"""Loops that keep the first value that is not missing, with -1 or NaN for a missing one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
I = np.int32
RNG = np.random.default_rng(5)
# Many values in front are missing themselves, so that later ones replace them.
PLACES = np.concatenate([RNG.integers(-9, 0, 60), RNG.integers(-9, 10, 60)]).astype(I)
GAPS = np.concatenate([np.full(60, np.nan), RNG.normal(size=60)]).astype(F)
FLAGS = RNG.random(120) < 0.1

STEPS: dict[str, tuple[Any, Any, Any]] = {
    "less than 0": (lambda c, x: np.where(c < 0, x, c), I(-1), PLACES),
    "not at least 0": (lambda c, x: np.where(c >= 0, c, x), F(-1), GAPS),
    "limit on the left": (lambda c, x: np.where(~np.less_equal(0, c), x, c), I(-1), PLACES),
    "equal, where a flag is set": (lambda c, x: np.where((c == -1) & x[1], x[0], c), I(-1), (PLACES, FLAGS)),
    "NaN": (lambda c, x: np.where(np.isnan(c), x, c), F(np.nan), GAPS),
    "not NaN": (lambda c, x: np.where(~np.isnan(c), c, x), F(np.nan), GAPS),
    "NaN is unequal to itself": (lambda c, x: np.where(c != c, x, c), F(np.nan), GAPS),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_value_is_kept(name: str, reverse: bool) -> None:
    step, init, xs = STEPS[name]
    oracle.check_loop(step, init, xs, "extremum", reverse=reverse)


@pytest.mark.parametrize("name", STEPS)
def test_a_device_keeps_the_first_value(device: gs.Device, name: str) -> None:
    step, init, xs = STEPS[name]
    moved = tuple(map(device.asarray, xs)) if isinstance(xs, tuple) else device.asarray(xs)
    for first in (init, device.asarray(np.asarray(init))):
        oracle.check(gs.loop(step, first, moved), oracle.run(step, init, xs))


def test_each_row_has_its_own_state_and_the_form_says_what_is_missing() -> None:
    step, _, xs = STEPS["less than 0"]
    init = np.array([-1, 4, -1], I)
    found = oracle.check_loop(step, init, xs.reshape(40, 3))
    assert "h[t] = v if h[t-1] < 0 else h[t-1]" in str(found.form)


def test_a_value_in_init_is_the_first() -> None:
    init = np.array([np.nan, 3, np.nan], F)
    x = GAPS.reshape(40, 3)
    found = gs.loop(lambda c, x: np.where(np.isnan(c), x, c), init, x, device="numpy")
    oracle.check(found, oracle.run(lambda c, x: np.where(np.isnan(c), x, c), init, x))
    assert found[0][1] == 3


def test_a_state_that_is_compared_with_the_input_is_refused() -> None:
    with pytest.raises(gs.LoopError, match=r"np\.less on the carry"):
        gs.loop_form(lambda c, x: np.where(c < x, 2 * x, c), I(-1), PLACES)


MEANS: dict[str, tuple[Any, Any]] = {
    "mean": (lambda h, x: np.where(np.isnan(h), x, F(0.9) * h + F(0.1) * x), GAPS),
    "sum": (lambda h, x: np.where(h != h, x, h + x), GAPS),
    "mean over gaps": (lambda h, x: np.where(np.isnan(x), h, np.where(np.isnan(h), x, h + F(0.1) * (x - h))), GAPS),
    "mean with resets": (lambda h, x: np.where(x[1], 5, np.where(np.isnan(h), x[0], F(0.5) * h + x[0])), (GAPS, FLAGS)),
    "begins again": (lambda h, x: np.where(x[1], np.nan, np.where(np.isnan(h), x[0], F(0.5) * h)), (GAPS, FLAGS)),
    "resets of numbers": (
        lambda h, x: np.where(np.isnan(h), abs(x[0]), np.where(x[1], 1, h / 2) + x[0]),
        (GAPS, FLAGS),
    ),
    "gap as 0": (lambda h, x: np.where(np.isnan(h), 0, h) + x, GAPS),
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", [F, np.float64])
@pytest.mark.parametrize("first", [np.nan, 2])
def test_a_mean_begins_with_the_first_value(name: str, dtype: Any, first: float) -> None:
    step, xs = MEANS[name]
    xs = tuple(x if x.dtype == bool else x.astype(dtype) for x in xs) if isinstance(xs, tuple) else xs.astype(dtype)
    oracle.check_loop(step, dtype(first), xs, "affine")


@pytest.mark.parametrize("name", ["mean over gaps", "resets of numbers"])
def test_a_mean_begins_with_the_first_value_on_a_device(device: gs.Device, name: str) -> None:
    step, xs = MEANS[name]
    moved = tuple(map(device.asarray, xs)) if isinstance(xs, tuple) else device.asarray(xs)
    found = gs.loop(step, F(np.nan), moved)
    oracle.check((found.carry.numpy(), found.ys.numpy()), oracle.run(step, F(np.nan), xs))
