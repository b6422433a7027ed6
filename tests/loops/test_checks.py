"""Data for which compositions may lose something: the results are checked against the step, or the loop is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api import loop
from tests.loops import oracle

F = np.float32
N = 120


def hostile(seed: int, *, shape: tuple[int, ...] = (N,), dtype: Any = F, largest: bool = True) -> Any:
    """Return normal numbers, and among them infinities, NaN, zeros of both signs and limits of the type."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, info.tiny, 1, -1, *([info.max, info.min] if largest else [])]
    return np.where(rng.random(shape) < 0.06, rng.choice(odd, shape), rng.normal(size=shape)).astype(dtype)


def signs(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.1, rng.choice([0.0, -0.0], N), rng.uniform(0.1, 3, N)).astype(F)


def turn(c: Any, x: Any) -> Any:
    return F(0.9) * c[0] - F(0.3) * c[1] + x, F(0.3) * c[0] + F(0.9) * c[1]


def rotation(r: Any, w: Any) -> Any:
    zero = w[0] * 0
    return r + r @ np.array([[zero, -w[2], w[1]], [w[2], zero, -w[0]], [-w[1], w[0], zero]])


def paint(c: Any, x: Any) -> Any:
    a, b, d = c
    return x + np.minimum(b, d), x + np.minimum(a, d), x + np.minimum(a, b)


def tracing(p: Any, correct: Any) -> Any:
    """Return the probability that a skill is known, which the loop rounds to 1 (Corbett and Anderson 1994)."""
    right, wrong = p * F(0.9) / (p * F(0.9) + (1 - p) * F(0.2)), p * F(0.1) / (p * F(0.1) + (1 - p) * F(0.8))
    known = np.where(correct, right, wrong)
    return known + (1 - known) * F(0.15)


STEPS = {
    "two numbers": (turn, (F(0), F(0)), hostile(2)),
    "matrices": (rotation, np.eye(3, dtype=F), hostile(2, shape=(N, 3), largest=False)),
    "least costs": (paint, (F(0), F(0), F(0)), hostile(2)),
    "growth and fees": (lambda w, x: w * (1 + x[0]) - x[1], F(100), (hostile(1), hostile(2))),
    "mean of the first value": (lambda h, x: np.where(np.isnan(h), x, h + F(0.1) * (x - h)), F(np.nan), hostile(6)),
    "factors of each sign": (lambda h, x: np.maximum(h * x, -1), F(1), hostile(9)),
    "complex": (lambda h, x: h * (x[0] + x[1] * 1j) + x[2], np.complex64(1), tuple(hostile(6 + i) for i in range(3))),
    "reciprocals": (lambda h, x: x / h, F(1), signs(9)),
    "parallel resistors": (lambda h, x: 1 / (1 / h + 1 / x), F(4), signs(10)),
    "a probability of 1": (tracing, F(0.5), np.random.default_rng(1).random(N) < 0.6),
    "integers at the limit": (
        lambda h, x: np.where(h + x < 0, 0, h + x),
        np.int32(0),
        np.random.default_rng(12).integers(-(2**31), 2**31, N, dtype=np.int32),
    ),
    "doubles": (turn, (0.0, 0.0), hostile(13, dtype=np.float64)),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_hostile_data_give_the_results_of_the_loop(name: str, reverse: bool) -> None:
    step, init, xs = STEPS[name]
    oracle.check_loop(step, init, xs, reverse=reverse)


def test_the_loop_is_run_only_if_the_carries_do_not_satisfy_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("the loop was run step by step")

    monkeypatch.setattr(loop, "run_sequentially", refuse)
    gaps = np.array([1, np.nan, np.inf, 2, -np.inf, 3], F)
    for step in (lambda h, x: np.where(np.isnan(x), h, h * F(0.5) + x), lambda h, x: (h + x, h)):
        oracle.check_loop(step, F(0), gaps)
    step, init, xs = STEPS["two numbers"]
    with pytest.raises(AssertionError, match="step by step"):
        gs.loop(step, init, xs, device="numpy")


def test_plain_data_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("the results were checked")

    monkeypatch.setattr(loop, "check_results", refuse)
    x = np.random.default_rng(0).normal(size=N).astype(F)
    gs.loop(turn, (F(0), F(0)), x, device="numpy")
    gs.loop(lambda h, x: np.maximum(h + x, 0), np.int32(0), (9 * x).astype(np.int32), device="numpy")
    gs.loop(lambda h, x: h ^ x, np.uint32(0), np.full(9, 2**32 - 1, np.uint32), device="numpy")
