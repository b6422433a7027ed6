"""Steps of hundreds of operations: derived, and equal to the loop, or refused with the name of an operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32


def crc8(s: Any, x: Any) -> Any:
    s = s ^ x
    for _ in range(8):
        s = np.where((s & 0x80) != 0, (s << 1) ^ 7, s << 1)
    return s


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
def test_a_checksum_is_a_linear_map_of_its_bits(dtype: Any) -> None:
    x = np.random.default_rng(2).integers(0, 256, 40).astype(dtype)
    for step in (crc8, lambda s, x: crc8(s, x) & 0xFF):
        oracle.check_loop(step, dtype(0), x, "bitwise")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
def test_a_checksum_of_squares_takes_too_many_values(dtype: Any) -> None:
    x = np.arange(5, dtype=dtype)
    with pytest.raises(gs.LoopError, match="carry takes 256 different values"):
        gs.loop_form(lambda s, x: crc8(s * s, x) & 0xFF, dtype(0), x)


def test_a_checksum_of_products_is_refused_for_its_operation() -> None:
    with pytest.raises(gs.LoopError, match=r"computes np\.bitwise_xor on the carry"):
        gs.loop_form(lambda s, x: (s ^ x) * 16777619, np.uint32(0), np.arange(5, dtype=np.uint32))


def residues(s: Any, x: Any) -> Any:
    for j in range(40):
        s = (s + x) % 3 + (s == j)
    return s


def many_resets(s: Any, x: Any) -> Any:
    for j in range(30):
        s = np.where((s == j % 9) & (x > j), (j * 5) % 9, s)
    return s


def continued_fraction(s: Any, x: Any) -> Any:
    for _ in range(60):
        s = 1 / (s + x)
    return s


@pytest.mark.parametrize(
    ("step", "kind", "init"),
    [(residues, "finite-state", np.int32(0)), (many_resets, "finite-state", np.int32(0)),
     (continued_fraction, "mobius", F(1))],
)  # fmt: skip
def test_a_long_step_is_derived_and_equals_its_loop(step: Any, kind: str, init: Any) -> None:
    x = np.random.default_rng(3).integers(1, 40, 50).astype(init.dtype)
    oracle.check_loop(step, init, x, kind)


def test_a_form_of_too_many_operations_is_refused_and_the_loop_itself_runs() -> None:
    def step(s: Any, x: Any) -> Any:
        for j in range(200):
            s = (2 * s + x * j) % 61
        return s

    x = np.arange(4, dtype=np.int32)
    for _ in range(2):
        with pytest.raises(gs.LoopError, match=r'np.remainder, and the form has more than 10,000.*method="sequential"'):
            gs.loop(step, np.int32(5), x, device="numpy")
    found = gs.loop(step, np.int32(5), x, method="sequential", device="numpy")
    oracle.check(found, oracle.run(step, np.int32(5), x))


def repeat(operation: Any) -> Any:
    def step(s: Any, x: Any) -> Any:
        for _ in range(600):
            s = operation(s, x)
        return s

    return step


CHAINS = {
    "affine": lambda s, x: F(0.99) * s + x,
    "clamp": lambda s, x: np.clip(s + x, -1, 1),
    "max-plus": lambda s, x: np.maximum(s, x + 1) + F(0.01),
    "log-plus": lambda s, x: np.logaddexp(s + x, F(0.5)),
    "mobius": lambda s, _: 1 / (s + 2),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_a_chain_of_hundreds_of_operations_is_derived(kind: str) -> None:
    step, x = repeat(CHAINS[kind]), np.random.default_rng(1).normal(size=9).astype(F) / 100
    oracle.check_loop(step, F(0.5), x, kind)
