"""Clamps that are written with comparisons, and shift registers: random ones are the loop or are refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
I = np.int32


def integers(seed: int) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, 200).astype(I)


def floats(seed: int) -> Any:
    x = np.random.default_rng(seed).normal(size=200).astype(F) * F(4)
    x[50] = np.nan
    return x


CLAMPS = {
    "if and elif": lambda c, x: np.where(c + x < 0, 0, np.where(c + x > 90, 90, c + x)),
    "the upper bound first": lambda c, x: np.where(c + x > 90, 90, np.where(c + x <= 0, 0, c + x)),
    "limits on the left": lambda c, x: np.where(np.greater(0, c + x), 0, np.where(np.less_equal(90, c + x), 90, c + x)),
    "np.select": lambda c, x: np.select([c + x < 0, c + x > 90], [0, 90], c + x),
    "np.minimum inside": lambda c, x: np.where(c + x < 0, 0, np.minimum(c + x, 90)),
}


@pytest.mark.parametrize("name", CLAMPS)
def test_a_clamp_by_comparisons_is_derived(name: str) -> None:
    step = CLAMPS[name]
    for init, x in ((I(3), integers(1)), (F(3), floats(1))):
        oracle.check_loop(step, init, x, "clamp")


def test_a_leaking_clamp_is_derived() -> None:
    def step(c: Any, x: Any) -> Any:
        y = F(0.9) * c + x
        return np.where(y < -2, F(-2), np.where(y > 3, F(3), y))

    oracle.check_loop(step, F(1), floats(2), "clamp")


@pytest.mark.parametrize("dtype", [I, F])
def test_random_chains_of_comparisons_are_the_loop_or_refused(dtype: Any) -> None:
    derived = 0
    for seed in range(60):

        def step(c: Any, x: Any, seed: int = seed) -> Any:
            rng = np.random.default_rng(seed)
            y = c + x
            result = y
            for limit in rng.integers(-30, 31, int(rng.integers(2, 4))).tolist():
                kind = int(rng.integers(6))
                if kind == 0:
                    result = np.where(y < limit, dtype(limit), result)
                elif kind == 1:
                    result = np.where(y >= limit, dtype(limit), result)
                elif kind == 2:
                    result = np.where(y > limit, result, dtype(limit))
                elif kind == 3:
                    result = np.where(limit < y, dtype(limit), result)
                else:
                    result = (np.minimum if kind == 4 else np.maximum)(result, dtype(limit))
            return result

        x = integers(seed) if dtype is I else floats(seed)
        try:
            found = gs.loop(step, dtype(1), x, device="numpy")
        except gs.LoopError:
            continue
        derived += 1
        oracle.check(found, oracle.run(step, dtype(1), x))
    assert derived > 10


def over(limit: Any, y: Any) -> Any:
    return np.where(y > limit, y, limit)


def under(limit: Any, y: Any) -> Any:
    return np.where(y < limit, y, limit)


# Clamps by comparisons that take a limit where the number is NaN. Each is tried with a sum and with a leak.
OVER_NAN = {
    "one bound": lambda y, x: over(-1, y),
    "two bounds": lambda y, x: over(-1, under(3, y)),
    "moving bounds": lambda y, x: under(x[1] + 3, over(x[1] - 3, y)),
    "np.minimum inside": lambda y, x: over(-1, np.minimum(y, 3)),
    "np.minimum outside": lambda y, x: np.minimum(over(-1, y), 3),
    "a bound of NaN inside": lambda y, x: over(-1, np.minimum(y, x[0] + 3)),
    "two lower bounds": lambda y, x: over(-1, np.maximum(y, x[1])),
    "limits first": lambda y, x: np.where(x[1] > y, x[1], y),
    "a bound at times": lambda y, x: np.where(x[1] > 0, over(-1, y), y),
    "two bounds at times": lambda y, x: np.where(x[1] > 0, under(3, over(-1, y)), y),
    "a reset": lambda y, x: np.where(x[1] > 2, x[0], over(-1, under(3, y))),
}


@pytest.mark.parametrize("name", OVER_NAN)
@pytest.mark.parametrize("slope", [1.0, 0.5])
def test_comparisons_take_the_place_of_nan_as_in_the_loop(name: str, slope: float, device: gs.Device) -> None:
    clamp = OVER_NAN[name]

    def step(c: Any, x: Any) -> Any:
        return clamp(F(slope) * c + x[0] if slope != 1 else c + x[0], x)

    xs = floats(1), np.random.default_rng(2).normal(size=200).astype(F)
    xs[0][::31] = np.nan
    for init in (F(1), F(np.nan)):
        # Carries of arrays on a device are not checked.
        found = gs.loop(step, init, tuple(map(device.asarray, xs)))
        oracle.check(found, oracle.run(step, init, xs))


@pytest.mark.parametrize("init", [F(np.nan), np.array([1, np.nan], F)])
def test_a_bound_that_takes_the_place_of_a_missing_carry_is_refused(init: Any) -> None:
    with pytest.raises(gs.LoopError, match=r"np\.fmax"):
        gs.loop_form(lambda h, x: np.fmax(h / 2, x), init, np.ones((5, 2), F))
    with pytest.raises(gs.LoopError, match=r"np\.fmax"):
        gs.loop_form(lambda h, x: np.fmax(h - x, 0 * x), F(1), np.ones((5, 2), F))


def test_maps_that_treat_nan_in_different_ways_are_not_chosen_between() -> None:
    for slope in (F(1), F(0.5)):
        with pytest.raises(gs.LoopError, match="treat NaN in different ways"):
            gs.loop_form(
                partial(lambda a, c, x: np.where(x > 0, over(0, a * c + x), np.maximum(a * c + x, 0)), slope),
                F(0),
                floats(1),
            )


REGISTERS = {
    "a flag": ("affine", lambda s, x: (s << 1) | (x > 0), np.uint32(5)),
    "a signed register": ("affine", lambda s, x: (x > 0) | (s << 1), I(-5)),
    "eight bits": ("affine", lambda s, x: ((s << 1) ^ (x > 0)) & 0xFF, np.uint32(5)),
    "a digit": ("affine", lambda s, x: (s << 4) | (x & 15), I(5)),
    "a high byte": ("affine", lambda s, x: (s << 8) | (x.astype(np.uint32) >> 24), np.uint32(5)),
    "three bits": ("finite-state", lambda s, x: ((s << 1) | (x > 0)) & 7, np.uint8(5)),
}


@pytest.mark.parametrize("name", REGISTERS)
def test_a_shift_register_is_derived(name: str) -> None:
    kind, step, init = REGISTERS[name]
    oracle.check_loop(step, init, integers(3), kind)


def test_bits_that_overlap_are_not_added() -> None:
    step, x = lambda s, x: (s << 1) | (x & 3), integers(3).astype(np.uint32)
    oracle.check_loop(step, np.uint32(5), x, "bitwise")
