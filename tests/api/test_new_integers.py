"""Calls with new integers launch the program of earlier calls: integers of functions, numbers, and positions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.api.test_new_floats import NEW_FLOAT, outcome, trace_each_time
from tests.harness.builds import assert_launches, assert_no_waits
from tests.harness.calls import FIRST, NEW_EACH_RESULT, NEW_EACH_STAGE, NEW_FIRST, Counted, assign, results_of
from tests.oracle import assert_same

X = np.random.default_rng(0).integers(-100, 100, 300)
VALUES = (3, -2, 0, 1, 7, -1, 2, 100, 127, 128, -128, -129, 255, 40_000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63, 5)

# Functions of one number that read integers, as they are or as numbers of Python.
READING_NOTHING: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "k": lambda k: lambda v: v + k,
    "product": lambda k: lambda v: v * k - k,
    "comparison": lambda k: lambda v: np.where(v > k, v, v + 1),
    "choice": lambda k: lambda v: np.where(v > 0, v, k),
    "bounds": lambda k: lambda v: np.clip(v, -5, k),
    "bits": lambda k: lambda v: (v & k) | (k ^ 5),
    "quotients": lambda k: lambda v: v // (k * k + 1) + v % (k * k + 2),
    "k * j": lambda k: (lambda j: lambda v: v + k * j - ~k)(k + 3),
    "full_like": lambda k: lambda v: np.full_like(v, k) + v,
    "absolute": lambda k: lambda v: np.maximum(v, abs(k)) - (-k),
    # Compilers may add two constants first. In the program of other integers these are no constants.
    "tuple": lambda k: (lambda both: lambda v: np.maximum(v + both[0], both[1][0]))((k, (k - 1, 0.5))),
    "partial": lambda k: functools.partial(lambda j, v, *, i: v * j + i, k, i=k + 1),
    "half": lambda k: lambda v: v.astype(np.float32) * (k / 2),
    "NumPy's int32": lambda k: (lambda j: lambda v: v + j)(np.int64(k).astype(np.int32)),
    "np.int16": lambda k: lambda v: v.astype(np.int16) * np.int16(k % 1000),
    "np.int8 of numbers": lambda k: lambda v: np.int8(k % 100) + v.astype(np.int8),
    "NumPy's uint8": lambda k: (lambda j: lambda v: v * j)(np.int64(k).astype(np.uint8)),
}
READING_VALUES: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "exponent": lambda k: lambda v: v ** (k % 5),
    "shift": lambda k: lambda v: v << (k % 7),
    "shift of k": lambda k: lambda v: v + (1 << (k % 7)),
    "divisor": lambda k: lambda v: v // k + v % k,
    "range": lambda k: lambda v: sum([v for _ in range(k % 4)], v),
    "index": lambda k: lambda v: v + (1, 2, 3)[k % 3],
    "if": lambda k: lambda v: v + k if k > 2 else v - k,
    "text": lambda k: lambda v: v + len(f"{k}"),
    "isinstance": lambda k: lambda v: v + k if isinstance(k, int) else v,
    "bit_length": lambda k: lambda v: v + k.bit_length(),
    "decimals": lambda k: lambda v: np.round(v.astype(np.float32) / 7, k % 3),
    "dict": lambda k: lambda v: v + {3: 1, 7: 2}.get(k, 3),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*READING_NOTHING, *READING_VALUES])
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int32", "int64", "float32"])
def test_bits_are_those_of_a_trace(device: gs.Device, name: str, dtype: str) -> None:
    """Assert that each integer gives the bits, or the error, that a trace of the function with this integer gives."""
    make = (READING_NOTHING | READING_VALUES)[name]
    a = device.asarray(X.astype(dtype))

    def result_of(function: Callable[[Any], Any]) -> Any:
        try:
            return outcome(partial(gs.map, function, a))
        except OverflowError as error:
            return str(error)

    for value in (*VALUES, *VALUES[:4]):
        try:
            function, traced = make(value), trace_each_time(make(value))
        except OverflowError:
            continue
        assert result_of(function) == result_of(traced), (name, dtype, value)


@pytest.mark.parametrize("name", READING_NOTHING)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_new_integers_need_no_program(device: gs.Device, name: str, dtype: str) -> None:
    """Assert that a new integer needs few Python calls, no wait, no trace, no shader and no further program."""
    if dtype == "float32" and name in ("bits", "NumPy's int32"):
        pytest.skip("NumPy has no such result, or it is float64")
    make, a = READING_NOTHING[name], device.asarray(X.astype(dtype))
    device.synchronize()  # no run of an earlier test is held
    for n in range(20):
        gs.map(make(n + 3), a)
    with assert_launches(device):
        calls = [Counted().of(partial(gs.map, make(n), a)) for n in (40, 41, 42)]
    # A divisor is compared with zero each time.
    assert max(calls) <= FIRST + NEW_FLOAT * (2 if name == "quotients" else 1), calls


def test_an_integer_that_never_changes(device: gs.Device) -> None:
    """Assert that an integer stays in the shader of the only call that has it."""
    a = device.asarray(X.astype(np.int32))
    for _ in range(4):
        for k, shifted in ((3, 2), (3, 2), (4, 2)):
            assert_same(gs.map(lambda v, k=k, s=shifted: (v + k) << s, a).numpy(), (X.astype(np.int32) + k) << shifted)


# Calls with integers that say how many or where: of the options of a call in NumPy, an array, and the integer.
POSITIONS: dict[str, Callable[[dict[str, Any], Any, int], Any]] = {
    "roll": lambda of, a, k: np.roll(a, k),
    "roll back": lambda of, a, k: np.roll(a, -k),
    "roll rows": lambda of, a, k: np.roll(a.reshape(32, 32), k, axis=1),
    "roll both axes": lambda of, a, k: np.roll(a.reshape(32, 32), (k, -k), axis=(0, 1)),
    "tile": lambda of, a, k: np.tile(a, k),
    "repeat": lambda of, a, k: np.repeat(a, k),
    "take": lambda of, a, k: np.take(a, k),
    "take a column": lambda of, a, k: np.take(a.reshape(32, 32), -k, axis=1),
    "partition": lambda of, a, k: np.sort(np.partition(a, k)),
    "top_k": lambda of, a, k: gs.top_k(a, k + 16, **of),
    "top_k of rows": lambda of, a, k: gs.top_k(a.reshape(32, 32), k, **of),
    "assigned element": lambda of, a, k: assign(a, k, 5),
    "assigned column": lambda of, a, k: assign(a.reshape(32, 32), np.s_[:, k], 5.0),
    "assigned slice": lambda of, a, k: assign(a, np.s_[k : 2 * k + 9], a[:9][:1]),
    "median": lambda of, a, k: gs.median(a[: 200 + k].astype(np.float32), **of),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_new_positions(device: gs.Device, kind: str) -> None:
    """Assert that a call with another count or position is one of another length, and has NumPy's result."""
    call, x = POSITIONS[kind], np.random.default_rng(3).integers(-99, 99, 1024).astype(np.int32)
    for k in (3, 3, 5, 5, 9, 11, 6):
        call({}, device.asarray(x), k)
    device.synchronize()
    for k in (14, 12):
        a = device.asarray(x)
        results: list[Any] = []
        with assert_no_waits(device):
            calls = Counted().of(lambda into=results, given=a, k=k: into.append(call({}, given, k)))  # type: ignore[misc]
        with device.profile() as profile:
            call({}, device.asarray(x), k)
        found, wanted = results_of(results[0]), results_of(call({"device": "numpy"}, x.copy(), k))
        for got, expected in zip(found, wanted, strict=True):
            assert_same(got, expected.astype(got.dtype), (kind, k))
        stages = max(1, len(profile.spans))
        assert calls <= NEW_FIRST + NEW_EACH_STAGE * (stages - 1) + NEW_EACH_RESULT * (len(found) - 1), (calls, stages)
