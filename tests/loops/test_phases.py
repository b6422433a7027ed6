"""Phases: sums of floats modulo a constant, compared with exact phases on their circle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
RNG = np.random.default_rng(6)
# Multiples of 1/8 are added without rounding.
EIGHTHS = (RNG.integers(-90, 100, 500) / 8).astype(F)
FLAGS = RNG.random(500) < 0.05


def restart_or_add(a: Any, x: Any) -> Any:
    if x[1]:
        return 2.5
    return (a + x[0]) % 8


STEPS: dict[str, tuple[Any, Any, Any]] = {
    "remainder": (lambda a, x: (a + x) % 8, F(0), EIGHTHS),
    "np.mod of a difference": (lambda a, x: np.mod(a - x, 4.0), F(3), EIGHTHS),
    "without its integer part": (lambda a, x: (a + x) - np.floor(a + x), F(0.25), EIGHTHS),
    "around 0": (lambda a, x: (a + x + 4) % 8 - 4, F(-4), EIGHTHS),
    "the phase before": (lambda a, x: ((a + x) % 8, a), F(1), EIGHTHS),
    "the phase before, which begins outside": (lambda a, x: ((a + x) % 8, a), F(-33.5), EIGHTHS),
    "a centred phase that begins outside": (lambda a, x: ((a + x) % 8 - 4, a), F(5), EIGHTHS),
    "restart_or_add": (restart_or_add, F(1), (EIGHTHS, FLAGS)),
    "runs and stops": (lambda a, x: (a + x[0]) % 8 if x[1] else a, F(7.5), (EIGHTHS, FLAGS)),
    "runs and stops around 0": (lambda a, x: np.where(x[1], a, (a + x[0] + 4) % 8 - 4), F(-4), (EIGHTHS, FLAGS)),
    "forwards or backwards": (lambda a, x: np.where(x[1], (a - x[0]) % 8, (a + x[0]) % 8), F(1), (EIGHTHS, FLAGS)),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_phase_is_the_loop(name: str, device: gs.Device) -> None:
    step, init, xs = STEPS[name]
    form = gs.loop_form(step, init, xs)
    assert form.kind == "affine"
    assert "mod" in form.law
    arrays = tuple(map(device.asarray, xs)) if isinstance(xs, tuple) else device.asarray(xs)
    oracle.check(gs.loop(step, init, arrays), oracle.run(step, init, xs), rtol=0)


@pytest.mark.parametrize("increment", [0.1, -0.1, 1e-4, -1e-4])
@pytest.mark.parametrize("low", [0.0, -0.5])
def test_a_long_phase_is_right_on_its_circle(increment: float, low: float) -> None:
    x = np.full(30_000, increment, F)
    phases = gs.loop(lambda a, x: (a + x - F(low)) % 1.0 + F(low), F(0), x, device="numpy").ys
    assert np.all((phases >= low) & (phases <= low + 1))
    errors = phases - np.cumsum(x.astype(np.float64))
    # One rounding of each sum, where the loop's own error grows with the length.
    assert np.max(np.abs(errors - np.round(errors))) < 1e-4


def test_nan_and_infinities_of_increments_give_nan() -> None:
    for value in (np.nan, np.inf, -np.inf):
        xs = EIGHTHS.copy(), FLAGS
        xs[0][100] = value
        oracle.check_loop(restart_or_add, F(1), xs)


def test_a_phase_that_is_reset_to_a_number_outside_its_range_is_refused() -> None:
    steps: list[tuple[Any, F, str]] = [
        (lambda a, x: np.where(x[1], x[0], (a + x[0]) % 8), F(0), "may be reset to a number outside of 0 to 8"),
        (lambda a, x: (2 * a + x[0]) % 8, F(0), "a number other than a sum of the phase"),
        (lambda a, x: np.where(x[1], (a + x[0]) % 8, (a + x[0]) % 4), F(0), "phases of different ranges"),
        (lambda a, x: np.where(x[1], (a + x[0]) % 8, a), F(8), "of a first phase that may be outside of 0 to 8"),
    ]
    for step, init, message in steps:
        with pytest.raises(gs.LoopError, match=message):
            gs.loop_form(step, init, (EIGHTHS, FLAGS))


def test_a_phase_from_the_device_may_begin_outside_of_the_range(device: gs.Device) -> None:
    def step(h: Any, b: Any) -> Any:
        return np.remainder(h + b, np.float32(4))

    # Quarters are exact, so each result is equal to the step's result.
    increments = (np.arange(500) % 23 - 9).astype(np.float32) / 4
    for init in (np.float32(30.25), np.float32(-9.5), np.float32(1.5)):
        found = gs.loop(step, device.asarray(init), device.asarray(increments))
        wanted = np.mod(init + np.cumsum(increments), 4).astype(np.float32)
        np.testing.assert_array_equal(found.ys.numpy(), wanted)
        np.testing.assert_array_equal(np.asarray(found.carry), wanted[-1])
