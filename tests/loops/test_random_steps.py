"""Random steps of nested operations: each is refused, or equal to its loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
Operation: TypeAlias = Callable[[Any, Any, Any], Any]

# Operations on a number s of the carry, with a float x and a flag r of the input.
RESETS: list[Operation] = [
    lambda s, x, r: np.where(r, x, s),
    lambda s, x, r: np.where(r, s, F(0.5)),
    lambda s, x, r: np.where(r, x - 1, s + 1),
]
SUMS: list[Operation] = [lambda s, x, r: s + x, lambda s, x, r: s - F(0.25), lambda s, x, r: np.where(r, s + x, s - x)]
BOUNDS: list[Operation] = [
    lambda s, x, r: np.maximum(s, x),
    lambda s, x, r: np.minimum(s, x + 2),
    lambda s, x, r: np.clip(s, -1, 1),
    lambda s, x, r: np.maximum(s, 0),
    lambda s, x, r: np.where(r, np.maximum(s, x), s),
    lambda s, x, r: np.where(r, np.minimum(s, 2), np.maximum(s, x)),
]
PRODUCTS: list[Operation] = [
    lambda s, x, r: s * F(0.75),
    lambda s, x, r: -s,
    lambda s, x, r: s * np.abs(x),
    lambda s, x, r: s * x + F(0.5),
]
CHOICES: list[Operation] = [
    lambda s, x, r: np.where(s > x, s, x),
    lambda s, x, r: np.where(x < s, x, s),
    lambda s, x, r: np.fmax(s, x),
]


def compose(operations: list[Operation]) -> Callable[[Any, Any], Any]:
    def step(s: Any, x: Any) -> Any:
        for place, operation in enumerate(operations):
            s = operation(s, x[place % 2], x[2 + place % 3])
        return s

    return step


def compare(operations: list[Operation], init: Any, xs: Any) -> bool:
    """Compare a loop with its form; return False if it is refused."""
    step = compose(operations)
    try:
        found = gs.loop(step, init, xs, device="numpy")
    except gs.LoopError:
        return False
    oracle.check(found, oracle.run(step, init, xs))
    return True


FLAGS = np.array([0, 1, 0, 0], bool), np.array([1, 2, 3, 1], F)
RESETS_IN_BOUNDS: dict[str, Callable[[Any, Any], Any]] = {
    "below a lid": lambda s, x: np.maximum(np.where(x[0], 10, np.minimum(s, 8)) - x[1], 0),
    "before a product": lambda s, x: np.maximum(np.where(x[0], x[1], s) * F(0.9) + F(0.5), 0),
    "turned": lambda s, x: -np.maximum(np.where(x[0], x[1], s), 0),
    "between limits": lambda s, x: np.clip(np.where(x[0], 0, s) * F(0.9) + x[1], -1, 1),
    "above a floor": lambda s, x: np.maximum(np.where(x[0], x[1], F(0.9) * s + x[1]), 0),
    "passed over": lambda s, x: np.fmax(np.where(x[0], F(np.nan), s), x[1]),
}


@pytest.mark.parametrize("name", RESETS_IN_BOUNDS)
def test_a_reset_inside_a_bound(name: str) -> None:
    step = RESETS_IN_BOUNDS[name]
    oracle.check_loop(step, F(5), FLAGS)


def test_a_reset_inside_a_bound_on_every_adapter(device: gs.Device) -> None:
    rng = np.random.default_rng(0)
    xs = rng.random(2000) < 0.1, rng.normal(size=2000).astype(F)
    moved = tuple(map(device.asarray, xs))
    for name in ("below a lid", "between limits"):
        step = RESETS_IN_BOUNDS[name]
        oracle.check(gs.loop(step, F(5), moved), oracle.run(step, F(5), xs))


@pytest.mark.parametrize("kinds", [RESETS + BOUNDS + SUMS, RESETS + BOUNDS + SUMS + PRODUCTS, RESETS + SUMS + CHOICES])
@pytest.mark.parametrize("seed", range(4))
def test_resets_inside_bounds_sums_and_products(kinds: list[Operation], seed: int) -> None:
    rng = np.random.default_rng(seed)
    derived = 0
    for _ in range(25):
        operations = [kinds[i] for i in rng.integers(0, len(kinds), rng.integers(2, 6))]
        flags = [rng.random(40) < share for share in (0.1, 0.3, 0.6)]
        xs = (*rng.normal(size=(2, 40)).astype(F), *flags)
        derived += compare(operations, F(rng.normal()), xs)
    assert derived > 5


def test_integers_narrower_than_the_carry() -> None:
    """Assert that a conversion that wraps around is not taken for one that keeps the number."""

    def step(h: Any, x: Any) -> Any:
        return np.maximum((h + x).astype(np.int8), 0).astype(np.int32)

    def wide(h: Any, x: Any) -> Any:
        return np.maximum(h.astype(np.int64) + x, 0).astype(np.int32)

    x = np.array([100, 1, -300], np.int32)
    with pytest.raises(gs.LoopError, match="128 different values"):
        gs.loop(step, np.int32(100), x, device="numpy")
    assert gs.loop(wide, np.int32(100), x, device="numpy").ys.tolist() == [200, 201, 0]
