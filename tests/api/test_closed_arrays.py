"""Calls with functions that close over arrays of NumPy: new contents launch the program of earlier calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import assert_launches
from tests.harness.calls import EACH_STAGE, FIRST, Counted, count_stages, results_of
from tests.harness.devices import as_gpu_of_programs
from tests.oracle import assert_same

RNG = np.random.default_rng(0)
X = RNG.integers(-8, 8, 300).astype(np.float32)
ROWS = X.reshape(100, 3)
LETTERS = RNG.integers(0, 3, 300).astype(np.int32)
# Python calls that new arrays add to a repeated call.
NEW_ARRAY = 30


def contents(number: int, dtype: Any, *shape: int) -> Any:
    """Return an array with other contents for each number. One entry has the same sign in all."""
    values = np.random.default_rng(number).integers(-4, 5, shape).astype(dtype)
    values.flat[0] = number + 1
    return values


def read_condition(w: Any) -> Callable[[Any], Any]:
    """Return a function that decides by an entry."""
    return lambda v: v + w[1] if w[1] > 0 else v - w[2]


def read_in_parts(w: Any) -> Callable[[Any], Any]:
    """Return a function that uses an array in the ways of a list."""
    return lambda v: sum((v * weight for weight in w), v) + len(w) + float(w.sum()) + w.tolist()[1]


def read_default_and_tuple(w: Any) -> Callable[[Any], Any]:
    """Return a function with an array as a default, and another in a tuple."""
    both = (w, w[::-1].copy())

    def function(v: Any, factors: Any = w) -> Any:
        return v * factors[0] + both[1][0]

    return function


def add_last(w: Any) -> Callable[[Any], Any]:
    """Return a function that closes over an array without axes."""
    last = np.array(w[-1])
    return lambda v: v + last


# Functions of a new array of four float32 for each call, that read nothing of it.
MAPS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "entries": lambda w: lambda v: np.where(v > w[0], v * w[1], w[-1] - v),
    "arithmetic": lambda w: lambda v: v * (1 - w[0]) + np.abs(w)[2] * (w * 2 + w[::-1])[3],
    "one entry": add_last,
    "default and tuple": read_default_and_tuple,
}
READING: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "condition": read_condition,
    "in parts": read_in_parts,
    "text": lambda w: lambda v: v + np.float32(len(f"{w[1]}")),
}


@pytest.mark.parametrize("name", [*MAPS, *READING])
def test_maps(device: gs.Device, name: str) -> None:
    """Assert that new contents give NumPy's results, and take few calls unless the function reads them."""
    make = {**MAPS, **READING}[name]
    a = device.asarray(X)
    functions = [make(contents(number, np.float32, 4)) for number in range(16)]
    for number, function in enumerate(functions):
        assert_same(gs.map(function, a).numpy(), function(X), (name, number))
    if name in MAPS:
        with assert_launches(device):
            function = make(contents(20, np.float32, 4))
            calls = Counted().of(partial(gs.map, function, a))
        assert calls <= FIRST + NEW_ARRAY, calls


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int32, np.float16, np.float32])
def test_dtypes(device: gs.Device, dtype: Any) -> None:
    """Assert that entries of every dtype are promoted as NumPy promotes them."""
    x = LETTERS.astype(dtype)
    a = device.asarray(x)
    for number in range(5):
        w = contents(number, dtype, 3)
        found = gs.map(lambda v, w=w: np.where(v == w[1], w[0], v), a)
        assert_same(found.numpy(), np.where(x == w[1], w[0], x), number)


LOOPS: dict[str, tuple[Callable[[Any], Callable[[Any, Any], Any]], Any]] = {
    "matrix": (lambda m: lambda h, x: m @ h + x, np.float32),
    "wide matrix": (lambda m: lambda h, x: m @ h + x, np.float64),
    "diagonal": (lambda m: lambda h, x: m[0] * h + x, np.float32),
}


@pytest.mark.parametrize("plans_as", [lambda device: device, as_gpu_of_programs], ids=["itself", "gpu"])
@pytest.mark.parametrize("kind", LOOPS)
def test_loops(device: gs.Device, kind: str, plans_as: Callable[[gs.Device], gs.Device]) -> None:
    """Assert that the matrices of a loop are parameters."""
    device = plans_as(device)
    make, dtype = LOOPS[kind]
    a, init = device.asarray(ROWS), np.zeros(3, np.float32)
    for number in range(8):
        step = make(contents(number, dtype, 3, 3) / np.asarray(16, dtype))
        call = partial(gs.loop, step, init, a)
        found = results_of(call())
        if number == 7:
            calls = Counted().of(partial(gs.loop, make(contents(9, dtype, 3, 3) / np.asarray(16, dtype)), init, a))
        for array, wanted in zip(found, results_of(gs.loop(step, init, ROWS)), strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-4)
    assert calls <= FIRST + NEW_ARRAY + EACH_STAGE * count_stages(device, call), calls


def test_tables(device: gs.Device) -> None:
    """Assert that a step can look up entries of a new table at each call, and close over a float as well."""
    a = device.asarray(LETTERS)
    for number in range(6):
        table, factor = np.random.default_rng(number).integers(0, 3, (3, 3)).astype(np.int32), 0.5 + number

        def step(h: Any, x: Any, table: Any = table, factor: float = factor) -> Any:
            return (following := table[h, x]), following.astype(np.float32) * np.float32(factor)

        for array, wanted in zip(results_of(gs.loop(step, 0, a)), results_of(gs.loop(step, 0, LETTERS)), strict=True):
            assert_same(array, wanted, number)


def test_scans(device: gs.Device) -> None:
    """Assert that operators and maps of scans take new arrays, also written in place."""
    a, w = device.asarray(X), np.ones(2, np.float32)
    for number in range(6):
        w[:] = number, number - 3
        found = gs.scan(a, before=lambda v: v * w[0], after=lambda v: v + w[1])
        assert_same(found.numpy(), np.cumsum(X * w[0], dtype=np.float32) + w[1])


def test_long_tables(device: gs.Device) -> None:
    """Assert that a function of a table launches a program, and computes with the numbers that the table has now."""
    a, table, calls = device.asarray(X), np.zeros(1000, np.float32), []

    def add_entries(v: Any) -> Any:
        return v + table[3] * table[999]

    for number in range(12):
        if number % 4 == 0:
            table[3], table[999] = number + 1, number - 5
        results: list[Any] = []
        calls.append(Counted().of(lambda into=results: into.append(gs.map(add_entries, a))))  # type: ignore[misc]
        assert_same(results[0].numpy(), X + (number // 4 * 4 + 1) * np.float32(number // 4 * 4 - 5))
    assert calls[-1] <= FIRST + NEW_ARRAY, calls
