"""Steps with conditions of Python: if, and, or, not, min and max."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
I = np.int32
RNG = np.random.default_rng(11)
FLAGS = RNG.random(300) < 0.4
X = (RNG.normal(size=300) * 2).astype(F)
MISSING = np.where(RNG.random(300) < 0.1, F(np.nan), X)
TEXT = RNG.choice(np.frombuffer(b'a"\\,\n', np.uint8), 300)
BYTES = RNG.integers(0, 256, 300).astype(np.uint8)


class Best(NamedTuple):
    """The largest value so far, and its time."""

    value: Any
    time: Any


def follow_quotes(state: Any, byte: Any) -> Any:
    """Follow quotes and escapes: 0 outside, 1 inside, 2 after an escape."""
    if state == 0:
        return 1 if byte == ord('"') else 0
    if state == 1:
        if byte == ord("\\"):
            return 2
        return 0 if byte == ord('"') else 1
    return 1


def debounce(c: Any, x: Any) -> Any:
    state, count = c
    if x == state:
        count = 0
    else:
        count += 1
        if count >= 3:
            state, count = 1 - state, 0
    return (state, count), state


def count_and_sum(carry: Any, x: Any) -> Any:
    if x > 0:
        carry["count"] += 1
        carry["sum"] = carry["sum"] + x
    else:
        carry["sum"] = 0.0
    return carry


def position(c: Any, byte: Any) -> Any:
    line, column = c
    if byte == ord("\n"):
        return (line + 1, 0), (line, column)
    return (line, column + 1), (line, column)


def best(c: Any, x: Any) -> Any:
    value, time = x
    return Best(value, time) if value > c.value else c


def largest_sum(c: Any, x: Any) -> Any:
    sum_here = max(x, c[0] + x)
    return (sum_here, max(c[1], sum_here)), c[1]


def streak(s: Any, x: Any) -> Any:
    if x > 1:
        return max(s, 0) + 1
    if x < -1:
        return min(s, 0) - 1
    return 0


def take_tokens(tokens: Any, x: Any) -> Any:
    tokens = min(tokens + F(0.5), 10.0)
    taken = min(tokens, abs(x))
    return tokens - taken, taken


def crc(register: Any, byte: Any) -> Any:
    register = register ^ byte
    for _ in range(8):
        if register & 1:
            register = (register >> 1) ^ 0xEDB88320
        else:
            register >>= 1
    return register


def clamp(value: Any, low: Any, high: Any) -> Any:
    return max(low, min(high, value))


def forget(state: Any, x: Any) -> Any:
    if state:
        state = False
    return x > 1


CASES: dict[str, tuple[str, Any, Any, Any]] = {
    "if": ("affine", lambda n, x: n + 1 if x else 0, I(0), FLAGS),
    "three ways": ("affine", lambda h, x: h + x if x > 1 else (F(0.5) * h if x < -1 else h), F(0), X),
    "and, or, not": ("bitwise", lambda s, x: x[0] or (s and not x[1]), np.False_, (FLAGS, FLAGS[::-1])),
    "chained comparisons": ("affine", lambda n, x: n + (-1 < x < 1), I(0), X),
    "int of a condition": ("affine", lambda n, x: n + int(x > 0), I(0), X),
    "min inside max": ("clamp", lambda h, x: max(0.0, min(h + x, 6.0)), F(0), MISSING),
    "max inside min": ("clamp", lambda h, x: min(6.0, max(0.0, h + x)), F(0), MISSING),
    "a leaking clamp": ("clamp", lambda h, x: clamp(F(0.9) * h + x, -2.0, 2.0 + abs(x)), F(0), MISSING),
    "a clamp of integers": ("clamp", lambda h, x: clamp(h + x, 0, 900), I(7), BYTES.astype(I) - 128),
    "a peak that decays": ("max-times", lambda p, x: max(abs(x), p * F(0.9)), F(0), MISSING),
    "last value": ("affine", lambda h, x: x if x == x else h, F(0), MISSING),
    "a sum that a flag ends": ("clamp", lambda h, x: max(h + x[0], 0) * x[1], F(0), (X, FLAGS)),
    "two bounds and a flag": ("clamp", lambda h, x: min(max(h + x[0], 0), 5) - 2 * x[1], F(0), (X, FLAGS)),
    "tokens": ("clamp", take_tokens, F(10), X),
    "a streak": ("clamp", streak, I(0), X),
    "the largest sum": ("staged", largest_sum, (F(0), F(-1e9)), X.round()),
    "hysteresis": ("bitwise", lambda s, x: x > -1 if s else x > 1, np.False_, X),
    "an automaton": ("finite-state", follow_quotes, I(0), TEXT),
    "a debounced switch": ("finite-state", debounce, (I(0), I(0)), FLAGS),
    "a dict that is changed": ("staged", count_and_sum, {"count": I(0), "sum": F(0)}, X),
    "line and column": ("staged", position, (I(1), I(0)), TEXT),
    "a named tuple": ("extremum", best, Best(F(-1e9), I(0)), (X, np.arange(300, dtype=I))),
    "the median of three": ("affine", lambda c, x: ((x, c[0]), sorted([*c, x])[1]), (F(0), F(0)), X),
    "a condition without effect": ("affine", forget, np.False_, X),
    "a feedback register": ("bitwise", lambda s, x: (s >> 1) ^ 0xB400 if s & 1 else s >> 1, np.uint32(0xACE1), FLAGS),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_with_conditions_of_python_is_the_loop(name: str) -> None:
    kind, step, init, xs = CASES[name]

    def own(c: Any, x: Any) -> Any:
        return step(dict(c) if isinstance(c, dict) else c, x)

    found = gs.loop(step, init, xs, device="numpy")
    assert found.form is not None
    assert found.form.kind == kind
    oracle.check(found, oracle.run(own, init, xs))


@pytest.mark.parametrize("name", ["min inside max", "max inside min", "a leaking clamp", "last value", "tokens"])
def test_a_step_with_conditions_of_python_is_the_loop_on_a_device(name: str, device: gs.Device) -> None:
    _, step, init, xs = CASES[name]
    oracle.check(gs.loop(step, init, device.asarray(xs)), oracle.run(step, init, xs))


@pytest.mark.parametrize("method", ["sequential", "newton"])
def test_other_methods_follow_conditions_too(method: Any) -> None:
    def step(h: Any, x: Any) -> Any:
        return np.tanh(F(0.5) * h + x) if x > 0 else F(0.3) * h

    oracle.check(gs.loop(step, F(0), X, method=method, device="numpy"), oracle.run(step, F(0), X))


def test_a_checksum_with_an_if_for_each_bit_is_that_of_zlib() -> None:
    found = gs.loop(crc, np.uint32(0xFFFFFFFF), BYTES, device="numpy")
    assert found.form is not None
    assert found.form.kind == "bitwise"
    assert int(~found.carry) == zlib.crc32(BYTES.tobytes())


def test_a_float_that_decides_a_condition_may_change() -> None:
    def run(limit: float) -> Any:
        def step(h: Any, x: Any) -> Any:
            return h + x if limit > 1 and x > limit else h

        return gs.loop(step, F(0), X, device="numpy").ys

    for limit in (0.5, 1.5, 2.5):
        wanted = np.cumsum(np.where(limit < X, X, 0)) if limit > 1 else np.zeros(300)
        np.testing.assert_allclose(run(limit), wanted, rtol=1e-4, atol=1e-4)


def no_return(n: Any, x: Any) -> Any:
    if x > 0:
        return n + 1
    return None


def while_above(n: Any, x: Any) -> Any:
    while n > x:
        n = n - 1
    return n


def many(n: Any, x: Any) -> Any:
    for k in range(9):
        if x > k:
            n = n + k
    return n


@pytest.mark.parametrize(
    ("step", "init", "message"),
    [
        (no_return, I(0), r"returns None where a condition does not hold(.|\n)*if x > 0:"),
        (while_above, F(0), r"64 of them on one way(.|\n)*while n > x:"),
        (many, I(0), r"more than 256 ways(.|\n)*if x > k:"),
        (lambda c, x: c if x > 0 else (c, x, x), (I(0), I(0)), "a tuple of 3 where a condition does not hold"),
        (lambda h, x: h - x if h > 1 else h + x, F(0), r"choice of Python \(if, .*\) with a condition that depends on"),
    ],
)
def test_what_conditions_cannot_do_is_said_with_its_line(step: Any, init: Any, message: str) -> None:
    with pytest.raises(gs.OperatorError, match=message):
        gs.loop_form(step, init, X)
