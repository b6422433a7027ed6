"""State machines as loops: random ones with states that are never reached, compared with the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle


def test_a_branch_that_no_state_reaches_is_never_chosen() -> None:
    def step(c: Any, x: Any) -> Any:
        return np.where((c == 1) & x, 0, np.minimum(c, 3))

    xs = np.array([True, False, True])
    oracle.check_loop(step, np.int32(3), xs)


def test_a_branch_whose_conditions_exclude_each_other_is_never_chosen() -> None:
    def step(c: Any, x: Any) -> Any:
        return np.where(x > 2, np.where(x < 1, 9, (c + 1) % 4), np.where(c == 2, 0, c))

    xs = np.arange(9, dtype=np.int32) % 5
    oracle.check_loop(step, np.int32(1), xs)


Pick = Callable[[int], int]


def condition(c: Any, x: Any, pick: Pick) -> Any:
    """Return a random condition on the carry and x."""
    kind = pick(6)
    if kind < 2:
        return c == pick(6) if kind else c > pick(6)
    if kind < 4:
        return x[0] if kind == 2 else x[1] > pick(4)
    if kind == 4:
        return ~condition(c, x, pick)
    one, other = condition(c, x, pick), condition(c, x, pick)
    return one & other if pick(2) else one | other


def new_state(c: Any, x: Any, pick: Pick, depth: int) -> Any:
    """Return a random state: choices up to a depth, between a few functions of the carry and x."""
    kind = pick(8) if depth else pick(4)
    if kind == 0:
        return c
    if kind == 1:
        return np.minimum(c, pick(6))
    if kind == 2:
        return np.full_like(c, pick(6))
    if kind == 3:
        return (c + x[1]) % (pick(5) + 1)
    return np.where(condition(c, x, pick), *(new_state(c, x, pick, depth - 1) for _ in range(2)))


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_machines_give_the_loop(first: int) -> None:
    for seed in range(first, first + 10):

        def step(c: Any, x: Any, seed: int = seed) -> Any:
            rng = np.random.default_rng(seed)
            return new_state(c, x, lambda n: int(rng.integers(n)), 3)

        rng = np.random.default_rng(seed)
        xs = (rng.random(20) < 0.5, rng.integers(0, 4, 20).astype(np.int32))
        init = np.int32(seed % 6)
        oracle.check_loop(step, init, xs)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_random_machines_of_two_states_give_the_loop(first: int) -> None:
    for seed in range(first, first + 10):

        def step(c: Any, x: Any, seed: int = seed) -> Any:
            rng = np.random.default_rng(seed)
            one, other = (new_state(each, x, lambda n: int(rng.integers(n)), 2) for each in c)
            return np.where(condition(c[1], x, lambda n: int(rng.integers(n))), one, c[1] % 3), np.minimum(
                np.where(c[0] == 1, c[0], other), 4
            )

        rng = np.random.default_rng(seed)
        xs = (rng.random(20) < 0.5, rng.integers(0, 4, 20).astype(np.int32))
        init = (np.int32(seed % 6), np.int32(seed % 4))
        oracle.check_loop(step, init, xs)


def test_a_counter_that_a_condition_advances_has_the_states_that_it_reaches() -> None:
    def clock(carry: Any, _: Any) -> Any:
        seconds, minutes = carry
        seconds = seconds + 1
        minutes = minutes + (seconds == 60)
        minutes = np.where(minutes == 60, 0, minutes)
        seconds = np.where(seconds == 60, 0, seconds)
        return (seconds, minutes), minutes

    x = np.zeros(8000, np.int8)
    init = (np.int32(58), np.int32(0))
    found = oracle.check_loop(clock, init, x)
    assert [stage.kind for stage in found.form.stages] == ["finite-state", "finite-state"]


def test_powers_that_numpy_refuses_for_some_inputs_are_derived_or_refused() -> None:
    x = np.random.default_rng(2).integers(0, 5, 40).astype(np.int8)
    step = lambda h, x: (h**x + x) % 5  # noqa: E731
    oracle.check_loop(step, np.int8(2), x, "finite-state")
    with pytest.raises(gs.LoopError, match="256 different values"):
        gs.loop_form(lambda h, x: h**x, np.int8(1), x)
