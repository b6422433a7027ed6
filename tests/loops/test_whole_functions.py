"""Functions of one integer: their compositions in any order, and their loops on devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.operators.loops.absorbing import AbsorbingMaps, End
from gpuscan.operators.loops.roundings import QuotientMaps, RoundedMaps
from gpuscan.operators.loops.tropical import ClampMaps
from tests.loops import oracle
from tests.loops.steps import CASES, inputs

I = np.int32
Map = tuple[int, ...]


def compose(maps: Any, parts: Sequence[Map], rng: np.random.Generator) -> Map:
    """Return the composition of maps, in a random tree."""
    work = [[np.array(number) for number in part] for part in parts]
    while len(work) > 1:
        at = int(rng.integers(len(work) - 1))
        work[at : at + 2] = [maps.combine(work[at], work[at + 1])]
    return tuple(int(number) for number in work[0])


def check(maps: Any, value: Callable[[Map, int], int], parts: Sequence[Map], states: Sequence[int], seed: int) -> None:
    whole = compose(maps, parts, np.random.default_rng(seed))
    for state in states:
        wanted = state
        for part in parts:
            wanted = value(part, wanted)
        assert value(whole, state) == wanted, (maps, parts, state)


@pytest.mark.parametrize("modulus", [2, 3, 10, 256, 10**5])
def test_quotients_compose_in_any_order(modulus: int) -> None:
    rng = np.random.default_rng(modulus)
    for seed in range(60):
        size = int(rng.choice([3, 1000, 2**31]))
        parts = [
            (modulus, int(rng.integers(modulus)), 0) if rng.random() < 0.5 else (1, 0, int(rng.integers(-size, size)))
            for _ in range(rng.integers(1, 50))
        ]
        states = [0, 1, -1, 2**31 - 1, -(2**31), int(rng.integers(-modulus, modulus))]
        check(QuotientMaps(), lambda f, h: (h + f[1]) // f[0] + f[2], parts, states, seed)


@pytest.mark.parametrize("kind", ["align", "rest"])
def test_roundings_compose_in_any_order(kind: str) -> None:
    def value(f: Map, h: int) -> int:
        rest = (h + f[1]) % 10
        return (h + f[1] - rest if kind == "align" else rest) + f[2] if f[0] else h + f[1]

    rng = np.random.default_rng(1)
    for seed in range(60):
        parts = [
            (1, int(rng.integers(10)), int(rng.integers(-30, 30)))
            if rng.random() < 0.5
            else (0, int(rng.integers(-9, 9)), 0)
            for _ in range(rng.integers(1, 30))
        ]
        check(RoundedMaps(kind, 10), value, parts, range(-25, 25), seed)


@pytest.mark.parametrize("test", ["less_equal", "greater_equal"])
def test_clamps_that_end_compose_in_any_order(test: str) -> None:
    sign = 1 if test == "less_equal" else -1
    never, end = -sign * 2**62, End(test, 2, 2 - sign)

    def value(f: Map, h: int) -> int:
        return int(end.value) if end.holds(h, f[0]) else min(max(h + f[1], f[2]), f[3])

    rng = np.random.default_rng(2)
    for seed in range(100):
        parts: list[Map] = []
        for _ in range(rng.integers(1, 30)):
            low = -(2**62) if rng.random() < 0.5 else int(rng.integers(-20, 5))
            high = 2**62 if rng.random() < 0.5 else int(rng.integers(6, 25))
            keeps = (never, 0, -(2**62), 2**62)
            parts.append(keeps if rng.random() < 0.2 else (2, int(rng.integers(-6, 7)), low, high))
        check(AbsorbingMaps(ClampMaps(True, True, True), end), value, parts, range(-40, 40), seed)


NAMES = ("checksum of the Internet", "tab stops", "remainder and input", "half of a sum", "bars since an event", "ruin")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in NAMES], ids=lambda case: case.name)
def test_a_function_of_one_integer_is_the_loop(case: Any, device: gs.Device) -> None:
    arrays = [np.tile(inputs()[name], 10) for name in case.inputs.split()]
    xs: Any = tuple(arrays) if len(arrays) > 1 else arrays[0]
    oracle.check(gs.loop(case.step, case.init, xs, device=device), oracle.run(case.step, case.init, xs))


def test_a_state_that_may_leave_its_end_is_refused() -> None:
    steps: list[Callable[[Any, Any], Any]] = [
        lambda h, x: np.where(x > 0, np.where(h <= 0, 0, h + x), h + 1),  # 0 becomes 1
        lambda h, x: np.where(h <= 0, 5, h + x),
    ]
    for step in steps:
        with pytest.raises(gs.LoopError):
            gs.loop_form(step, I(9), inputs()["i"])
