"""Calls with functions that close over new floats: they launch the program of earlier calls, and get the right bits."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import copysign
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy import float32

import gpuscan as gs
from gpuscan.engine import kept_programs
from tests.api.test_threads import at_once
from tests.harness.builds import assert_launches
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, Counted, assign, count_stages, results_of
from tests.harness.devices import as_gpu_of_programs, count_programs
from tests.oracle import assert_same

NAN, INF = math.nan, math.inf
VALUES = (0.5, -1.25, 2.0, 0.5, 0.0, -0.0, 1.0, -1.0, 3.0, NAN, INF, -INF, 1e40, 1e-310, 0.1)
X = np.random.default_rng(0).integers(-8, 8, 300).astype(np.float32)
# Python calls that a new float adds to a repeated call.
NEW_FLOAT = 30
LEVEL = 0.75
SETTINGS = {"k": 0.5, "other": 2.0}


def scale_and_shift(v: Any, factor: float, offset: float = 0.25) -> Any:
    """Return a product and an offset."""
    return v * factor + offset


def affine(v: Any, k: float) -> Any:
    """Scale by floats above 0.7. With a parameter that is no `float`, the result would differ."""
    return v * k if isinstance(k, float) and k > 0.7 else v


def invert_or_default(k: float) -> float:
    """Return a quotient where it is defined."""
    try:
        return 1 / k
    except ZeroDivisionError:
        return -7.0


def nest_functions(k: float) -> Callable[[Any], Any]:
    """Return a function that calls another one that closes over the float."""

    def inner(v: Any) -> Any:
        return v + k

    return lambda v: inner(v) * (k - 1)


def assign_captured(k: float) -> Callable[[Any], Any]:
    """Return a function that assigns to the float that it closes over."""

    def function(v: Any) -> Any:
        nonlocal k
        k = k + 0.0
        return v * k

    return function


def by_name(k: float) -> Callable[[Any], Any]:
    """Return a function with floats as defaults."""

    def function(v: Any, a: float = k, *, b: float = 2 * k) -> Any:
        return v * a + b

    return function


def use_types(k: float) -> Callable[[Any], Any]:
    """Return a function that passes the types of NumPy's floats on, as well as calling one."""

    def function(v: Any) -> Any:
        eps = np.finfo(np.float32).eps * np.ones(2, dtype=np.float32)[0] + np.zeros((), np.float64).astype(np.float32)
        narrow = {np.float32: 1.0, np.float16: 2.0}[np.float16]
        wide = v.astype(np.float32) if v.dtype == np.float32 and np.float32 != np.float64 else v.astype(np.float16)
        return np.full_like(wide, np.float32(k), dtype=np.float32) * wide + eps * narrow + np.zeros_like(v, np.float32)

    return function


class Pair(NamedTuple):
    """Two numbers."""

    k: float
    j: float


class Factor:
    """A number with methods that compute with it."""

    def __init__(self, k: float) -> None:
        self.k = k

    def twice(self) -> float:
        """Return twice the number."""
        return 2 * self.k

    def times(self, v: Any) -> Any:
        """Return a product and a sum."""
        return v * self.k + self.twice()

    def __call__(self, v: Any) -> Any:
        return v * (1 - self.k)


@dataclass
class Weights:
    """Two numbers, one with a default."""

    k: float
    j: float = 0.25

    @property
    def both(self) -> float:
        """The sum of both."""
        return self.k + self.j

    def apply(self, v: Any) -> Any:
        """Return a product and a sum."""
        return v * self.k + self.both


class Counting(Factor):
    """A factor with a method that changes it."""

    def count(self, v: Any) -> Any:
        """Return a product with one more."""
        self.k += 1.0
        return v * self.k


class Asking(Factor):
    """A factor with methods that read its value."""

    def ask(self, v: Any) -> Any:
        """Return what depends on the type of the factor."""
        return affine(v, self.k)

    def compute(self, v: Any) -> Any:
        """Return a product with what `math` computes."""
        return v * math.atan(self.k)


def append_to_list(k: float) -> Callable[[Any], Any]:
    """Return a function that changes the list that it closes over."""
    seen = [k]

    def function(v: Any) -> Any:
        seen.append(k)
        return v * seen[-1] + len(seen)

    return function


def count_in_dict(k: float) -> Callable[[Any], Any]:
    """Return a function that changes the dict that it closes over."""
    counts = {"k": k}

    def function(v: Any) -> Any:
        counts["k"] += 1.0
        return v * counts["k"]

    return function


def of_settings(k: float) -> Callable[[Any], Any]:
    """Return a function that reads a dict of the module."""
    SETTINGS["k"] = k
    return lambda v: v * SETTINGS["k"] + SETTINGS["other"]


def double_often(k: float) -> float:
    """Return a sum of 2^60 equal terms."""
    for _ in range(60):
        k = k + k
    return k


# Functions of one number that read floats, as they are or as numbers of Python.
READING_NOTHING: dict[str, Callable[[float], Callable[[Any], Any]]] = {
    "k": lambda k: lambda v: v * k,
    "k twice": lambda k: lambda v: v * k + k,
    "two": lambda k: (lambda j: lambda v: v * k + j)(k * 0.5),
    "equal": lambda k: (lambda j: lambda v: v * k + j)(k + 0.0),
    "with a literal": lambda k: lambda v: np.where(v > 0.5, v * k, v - 0.5),
    "1 - k": lambda k: lambda v: v * (1 - k),
    "k * j": lambda k: (lambda j: lambda v: v + k * j)(k + 3.0),
    "k + 0.1 - k": lambda k: lambda v: v + (k + 0.1 - k),
    "-k, +k, abs(k)": lambda k: lambda v: (v + -k) * +k - abs(k),
    "k ** 2": lambda k: lambda v: v + k**2,
    "sum": lambda k: lambda v: v * sum([k, k, 1]),
    "round": lambda k: lambda v: v * round(k, 1),
    "complex": lambda k: lambda v: v.astype(np.complex64) * (k + 2j),
    "where": lambda k: lambda v: np.where(v > k, k, v),
    "full_like": lambda k: lambda v: np.full_like(v, k) + v,
    "clip": lambda k: lambda v: np.clip(v, k, k + 1),
    "maximum": lambda k: lambda v: np.maximum(k, v) * np.float32(0.5),
    "float16": lambda k: lambda v: (v.astype(np.float16) * k).astype(np.float32),
    "folded": lambda k: lambda v: np.where(v > 0, np.exp(np.full_like(v, k)), v),
    "bool of v": lambda k: lambda v: (v < k, v == k, k >= v),
    "nested": nest_functions,
    "defaults": by_name,
    "global function": lambda k: lambda v: scale_and_shift(v, k),
    "exponent": lambda k: lambda v: np.abs(v) ** k,
    "NumPy's float32": lambda k: (lambda j: lambda v: v * j + (1 - j))(np.float32(k)),
    "NumPy's float16": lambda k: (lambda j: lambda v: (v.astype(np.float16) * j, v + j))(np.float16(k)),
    "where of NumPy's": lambda k: (lambda j: lambda v: np.where(v > j, j, np.maximum(v, -j)))(np.float32(k)),
    "both kinds": lambda k: (lambda j: lambda v: v * (j * k))(np.float32(k)),
    "tuple": lambda k: (lambda both: lambda v: v * both[0] + both[1][0])((k, (np.float32(k), 1))),
    "list": lambda k: (lambda both: lambda v: v * both[0][0] + both[1][1])([[k], [1, 1 - k]]),
    "dict": lambda k: (lambda of: lambda v: v * of["of v"] + of["more"])({"of v": k, "more": 1 - k}),
    "dict of the module": of_settings,
    "namespace": lambda k: (lambda of: lambda v: v * of.k + (1 - of.k))(SimpleNamespace(k=k)),
    "named tuple": lambda k: (lambda of: lambda v: v * of.k - of.j)(Pair(k, 2.0)),
    "object": lambda k: (lambda of: lambda v: v * of.k + of.twice())(Factor(k)),
    "method": lambda k: Factor(k).times,
    "method of a dataclass": lambda k: Weights(k).apply,
    "called object": lambda k: Factor(k),
    "partial": lambda k: functools.partial(lambda j, v, *, i: v * j + i, k, i=k + 1),
    "partial of a tuple": lambda k: functools.partial(lambda both, v: v * both[0] - both[1], (k, 2 * k)),
    "partial of a ufunc": lambda k: functools.partial(np.multiply, k),
    "np.float32": lambda k: lambda v: v * np.float32(k),
    "np.exp": lambda k: lambda v: v * np.float32(np.exp(k)) + np.float32(np.hypot(k, 2.0) * 0.5),
    "float": lambda k: lambda v: v * float(k) + np.ones(1, float).astype(np.float32)[0],
    "complex number": lambda k: lambda v: v.astype(np.complex64) * complex(k, 1.0),
    "np.float16": lambda k: lambda v: v.astype(np.float16) * np.float16(k) + np.float16(0.5),
    "np.float32 of a sum": lambda k: lambda v: np.where(v > np.float32(k + 1), np.float32(2 * k), v) - np.float32(1),
    "float32 by its name": lambda k: lambda v: v * float32(k) + float32(2),
    "types as dtypes": use_types,
    "math": lambda k: lambda v: v * math.atan(1 - k) + math.pi,
    "function of math": lambda k: lambda v: v * copysign(2.0, k),
}
READING_VALUES: dict[str, Callable[[float], Callable[[Any], Any]]] = {
    "k / j": lambda k: lambda v: v + 1 / k,
    "k // j, k % j": lambda k: lambda v: v * (k // 0.3) + k % 3 + divmod(k, 2)[1],
    "unused": lambda k: lambda v: (1 % k, v)[1],
    "caught": lambda k: lambda v: v * invert_or_default(k),
    "if": lambda k: lambda v: v * (k if k > 0 else 0.25),
    "truth": lambda k: lambda v: v * (k or 3.0),
    "and": lambda k: lambda v: v + k if -1 < k < 1 else v - k,
    "max": lambda k: lambda v: v * max(k, 0.25),
    "math.exp": lambda k: lambda v: v * math.exp(k),
    "math.floor": lambda k: lambda v: v * math.floor(k),
    "np.issubdtype": lambda k: lambda v: v * np.float32(k) + np.issubdtype(v.dtype, np.float32),
    "np.less": lambda k: lambda v: v * np.float32(0.5 + np.less(k, 1.0)),
    "ufunc of two results": lambda k: lambda v: v * np.float32(np.frexp(k)[0]),
    "array": lambda k: lambda v: v * np.array([k, 2.0], np.float32)[0],
    "int": lambda k: lambda v: v * int(k),
    "index": lambda k: lambda v: v * (1.5, 2.5)[k > 1],
    "in": lambda k: lambda v: v + (1.0 if k in (0.5, 2.0) else 4.0),
    "dict": lambda k: lambda v: v + {0.5: 1.0, 2.0: 2.0}.get(k, 3.0),
    "text": lambda k: lambda v: v + len(f"{k:.3f}{k}"),
    "method": lambda k: lambda v: v + k.is_integer(),
    "integer exponent": lambda k: lambda v: v.astype(np.int32) ** int(abs(k) if abs(k) < 9 else 9),
    "complex exponent": lambda k: lambda v: v.astype(np.complex64) ** k,
    "NumPy's float64": lambda k: (lambda j: lambda v: v * j)(np.float64(k)),
    "dtype": lambda k: (lambda j: lambda v: v * j if j.dtype == np.float32 and j > 0 else v)(np.float32(k)),
    "wrapped": lambda k: functools.wraps(affine)(lambda v: v * k),
    "partial that asks": lambda k: functools.partial(affine, k=k),
    "base": lambda k: lambda v: v + 2.0**k,
    "power": lambda k: lambda v: v + abs(k**0.5),
    "isinstance": lambda k: lambda v: affine(v, k),
    "match": lambda k: lambda v: match_number(v, k),
    "type": lambda k: lambda v: v * (k if type(k) is float and k > 0.7 else 1.0),
    "integers": lambda k: lambda v: v + np.full_like(v.astype(np.int32), np.int32(k > 0)),
    "assigned": assign_captured,
    "doubled": lambda k: lambda v: v * double_often(k),
    "list that grows": append_to_list,
    "count in a dict": count_in_dict,
    "count in an object": lambda k: Counting(k).count,
    "object that asks": lambda k: (lambda of: lambda v: affine(v, of.k))(Factor(k)),
    "method that asks": lambda k: Asking(k).ask,
    "method of math": lambda k: Asking(k).compute,
    "float of the module": lambda k: lambda v: v * (LEVEL * k),
}


def match_number(v: Any, k: Any) -> Any:
    """Return a number that depends on the type and the value of another one."""
    match k:
        case float() if k > 0.7:
            return v * 2
        case _:
            return v


def outcome(call: Callable[[], Any]) -> Any:
    """Return the types and bytes of the arrays that a call returns, or the first line of its error."""
    try:
        with np.errstate(all="ignore"):
            found = call()
    except gs.OperatorError as error:
        return str(error).splitlines()[0]
    arrays = [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]
    # Which of two NaNs an adapter gives for their sum depends on how its compiler orders them.
    numbers = [
        np.where(each == each, each, np.array(NAN, each.dtype)) if each.dtype.kind in "fc" else each for each in arrays
    ]
    return [(each.dtype.str, each.tobytes()) for each in numbers]


def trace_each_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with something in it that may change, so that no program is known by it."""
    holder = [function]

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return holder[0](*arguments)

    return call


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*READING_NOTHING, *READING_VALUES])
def test_bits_are_those_of_a_trace(device: gs.Device, name: str) -> None:
    """Assert that each float gives the bits, or the error, that a trace of the function with this float gives."""
    make = (READING_NOTHING | READING_VALUES)[name]
    a = device.asarray(X)
    for value in (*VALUES, *VALUES[::-1]):
        wanted = outcome(partial(gs.map, trace_each_time(make(value)), a))
        got = outcome(partial(gs.map, make(value), a))
        assert got == wanted, (name, value)


@pytest.mark.parametrize("name", READING_NOTHING)
def test_new_floats_need_no_program(device: gs.Device, name: str) -> None:
    """Assert that a new float needs few Python calls, no wait, no trace and no further program."""
    make = READING_NOTHING[name]
    a = device.asarray(X)
    device.synchronize()  # no run of an earlier test is held
    # The first launch of a kernel may wait, to see how large its subgroups are, and a program has a few buffers.
    for n in range(20):
        gs.map(make(n / 3 + 0.001), a)
    functions = [make(value) for value in (-0.8, -0.9, -1.1, -1.2)]
    with assert_launches(device):
        calls = [Counted().of(functools.partial(gs.map, each, a)) for each in functions]
    assert max(calls) <= FIRST + NEW_FLOAT, calls


def itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function."""
    return function


# Calls of all kinds that take functions: of an array, a float, and what wraps each function.
CALLS: dict[str, Callable[[Any, float, Any], Any]] = {
    "scan with maps": lambda a, k, of: gs.scan(
        a, "maximum", before=of(lambda v: v * k), after=of(lambda v: v + (1 - k))
    ),
    "scan with an operator": lambda a, k, of: gs.scan(
        a, of(lambda l, r: np.minimum(np.maximum(l, r), k)), before=of(lambda v: np.minimum(v, k))
    ),
    "scan with gs.operator": lambda a, k, of: gs.scan(
        a, gs.operator(of(lambda l, r: np.maximum(l, r) * (k * 0 + 1)), identity=-9.0), before=of(lambda v: v * k)
    ),
    "scan along rows": lambda a, k, of: gs.scan(
        a.reshape(30, 10), "minimum", axis=1, before=of(lambda v: v + k), initial=np.float32(3)
    ),
    "scan of columns": lambda a, k, of: gs.scan(a.reshape(30, 10), axis=0, before=of(lambda v: v * k)),
    "scan with an index": lambda a, k, of: gs.scan(a, before=of(lambda v, i: v + (i % 2).astype(np.float32) * k)),
    "reduce": lambda a, k, of: gs.reduce(a, "maximum", before=of(lambda v: v * k)),
    "reduce with a map at the end": lambda a, k, of: gs.reduce(a, after=of(lambda v: v * k)),
    "map": lambda a, k, of: gs.map(of(lambda v, w: v * k + w), a, a),
    "map of a number": lambda a, k, of: gs.map(of(lambda v, j, w: v * j + w), a, k, a),
    "map of NumPy's numbers": lambda a, k, of: gs.map(of(lambda j, v, i: v * j + i), np.float32(k), a, np.float16(k)),
    "map of a bundle": lambda a, k, of: gs.map(of(lambda v, j: v[0] * j + v[1]), (a, a), k),
    "compact": lambda a, k, of: gs.compact(a, of(lambda v: v > k)),
    "scan_vjp": lambda a, k, of: gs.scan_vjp(a, a, a, of(lambda l, r: l * k + r)),
    "scan_vjp of pairs": lambda a, k, of: gs.scan_vjp(
        (a, a), (a, a), (a, a), of(lambda l, r: (l[0] * r[0], r[0] * l[1] * k + r[1]))
    )[1],
}


@pytest.mark.parametrize("kind", CALLS)
def test_every_kind_of_call(device: gs.Device, kind: str) -> None:
    """Compare each new float with a fresh trace, and assert that programs and Python calls do not increase."""
    call = CALLS[kind]
    a = device.asarray(X)
    compare_with_traces(call, a, kind)
    for n in range(20):
        call(a, n / 3 + 0.01, itself)
    kept = count_programs(device)
    calls = [Counted().of(partial(call, a, value, itself)) for value in (-0.3, -0.4, -0.6)]
    assert count_programs(device) == kept
    stages = count_stages(device, call, a, 0.3, itself)
    assert max(calls) <= FIRST + NEW_FLOAT + EACH_STAGE * stages, calls


def compare_with_traces(call: Callable[[Any, float, Any], Any], a: Any, kind: str) -> None:
    """Assert that each float gives the bits that a trace of the functions with this float gives."""
    for value in (0.5, 0.25, 2.0, -0.5, 1.0, 0.75, 0.0, -1.0, -2.0, 0.5, 1.5, 4.0, 0.25, NAN, 0.0):
        wanted = outcome(partial(call, a, value, trace_each_time))
        assert outcome(partial(call, a, value, itself)) == wanted, (kind, value)


LOOPS: dict[str, Callable[[Any, float, Any], Any]] = {
    "affine loop": lambda a, k, of: gs.loop(of(lambda h, x: k / 8 * h + x), 0.0, a),
    "running mean": lambda a, k, of: gs.loop(of(lambda h, x: h + k * (x - h)), 1.0, a.reshape(30, 10), axis=1),
    "loop with a carry": lambda a, k, of: gs.loop(of(lambda h, x: (k / 8 * h + x, h * k)), 0.0, a, reverse=True),
    "loop with a decay": lambda a, k, of: gs.loop(of(lambda h, x: np.maximum(h - k, x)), 0.0, a),
    "loop with bounds": lambda a, k, of: gs.loop(of(lambda h, x: np.clip(h + x, -k, k)), 0.0, a),
    "loop with a choice": lambda a, k, of: gs.loop(of(lambda h, x: np.where(x > k, 0, h + x)), 0.0, a),
    "loop with a product": lambda a, k, of: gs.loop(of(lambda h, x: np.maximum(abs(k) * h, x)), 0.0, a),
    "loop of quotients": lambda a, k, of: gs.loop(of(lambda h, x: (h + abs(k)) / (h + 2)), 0.5, a),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_loops(device: gs.Device, kind: str) -> None:
    """Assert the same of loops. What decides the form of a loop is computed again for each float."""
    assert_loop_takes_few_calls(device, kind)


@pytest.mark.parametrize("kind", ["loop with a decay", "loop of quotients"])
def test_loops_on_a_gpu(device: gs.Device, kind: str) -> None:
    """Assert the same of GPUs, which scan in one stage instead of three."""
    assert_loop_takes_few_calls(as_gpu_of_programs(device), kind)


def assert_loop_takes_few_calls(device: gs.Device, kind: str) -> None:
    """Assert it of a loop."""
    call = LOOPS[kind]
    a = device.asarray(X)
    compare_with_traces(call, a, kind)
    for n in range(150):
        call(a, n / 1000 + 0.3001, itself)
    kept = count_programs(device)
    calls = [Counted().of(partial(call, a, n / 1000 + 0.4501, itself)) for n in range(5)]
    assert count_programs(device) == kept
    stages, results = count_stages(device, call, a, 0.3, itself), len(results_of(call(a, 0.3, itself)))
    # A buffer for the float may be bound with others for the first time.
    assert min(calls) <= FIRST + NEW_FLOAT + EACH_STAGE * stages + EACH_RESULT * (results - 1), calls


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_types_of_numbers(device: gs.Device, dtype: str) -> None:
    """Assert that floats reach numbers of all types as NumPy has them there."""
    if dtype == "float64" and not device.capabilities.float64:
        pytest.skip("the device has no float64")
    x = X[:40].astype(dtype)
    a = device.asarray(x)
    for k in (0.5, -0.0, 0.1, 1 / 3, 1e-5, 3.0):
        got = gs.map(lambda v, k=k: (v * k, v + (1 - k)), a)
        computed = x.astype(np.float32) if dtype == "float16" else x
        for found, wanted in zip(got, (computed * k, computed + (1 - k)), strict=True):
            assert_same(found.numpy(), wanted.astype(found.dtype), (dtype, k))


def test_many_floats_in_flight(device: gs.Device) -> None:
    """Assert that a launch does not change the numbers that runs before it, submitted or not, have yet to read."""
    a, x = device.asarray(X), X
    for rounds in range(3):
        results = [(k, gs.map(lambda v, k=k: v * k, a)) for k in (0.5 * n + rounds for n in range(50))]
        results += [(k, gs.map(lambda v, k=k: v * k, a)) for k in (0.5, 1.5, 0.5, 2.5, 1.5)]
        for k, result in results:
            assert_same(result.numpy(), x * np.float32(k), k)


def test_floats_of_several_functions(device: gs.Device) -> None:
    """Assert that floats of functions that change independently do not change places."""
    a = device.asarray(X)

    def call(p: float, q: float, r: float) -> Any:
        def before(v: Any, scale: float = p) -> Any:
            return v * scale + q

        return gs.scan(a, "maximum", before=before, after=lambda v: v - r)

    for p, q, r in ((1.0, 2.0, 3.0), (3.0, 2.0, 1.0), (2.0, 1.0, 3.0), (0.5, 0.5, 0.5), (1.0, 1.0, 2.0)):
        wanted = np.maximum.accumulate(X * np.float32(p) + np.float32(q)) - np.float32(r)
        assert_same(call(p, q, r).numpy(), wanted, (p, q, r))


def test_operators_that_return_floats(device: gs.Device) -> None:
    """Assert that a float is a field of an operator's result."""
    a = device.asarray(X)
    for k in (0.5, 2.0, -1.0, 0.5):
        first, second = gs.scan((a, a), lambda l, r, k=k: (np.maximum(l[0], r[0]), k))
        assert_same(first.numpy(), np.maximum.accumulate(X))
        assert_same(second.numpy()[1:], np.full(len(X) - 1, k, np.float32))


def test_many_decisions(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert right results although more decisions depend on the floats of a key than are remembered."""
    monkeypatch.setattr(kept_programs, "_MAX_REVEALED", 2)
    x = np.arange(100, dtype=np.float32)
    a, rng = device.asarray(x), np.random.default_rng(5)

    def add_steps(factor: float) -> Any:
        def add(v: Any) -> Any:
            for step in range(4):
                v = v + 1 if factor > step else v
                if factor > 3 - step:
                    break
            return v + factor

        return add

    for factor in rng.choice([-0.5, 0.5, 1.5, 2.5, 3.5], 40):
        function = add_steps(float(factor))
        assert_same(gs.map(function, a).numpy(), gs.map(function, x, device="numpy"), factor)


def test_integers_that_change_beside_floats(device: gs.Device) -> None:
    """Assert that equal numbers of other types are other calls."""
    x = np.arange(-4, 5, dtype=np.int32)
    a, b = device.asarray(x), device.asarray(x.astype(np.float32))
    for k in (1, 1.0, True, 2, 2.0, np.float32(2), 1, 1.0):
        assert_same(gs.map(lambda v, k=k: v * k, b).numpy(), x.astype(np.float32) * k)
        if not isinstance(k, (float, np.generic)):
            assert_same(gs.map(lambda v, k=k: v * k, a).numpy(), (x * k).astype(np.int32))
        elif type(k) is float:
            with pytest.raises(gs.OperatorError, match="float64"):
                gs.map(lambda v, k=k: v * k, a)


@pytest.mark.parametrize("operations", [255, 256, 700, 2000])
def test_many_operations_on_floats(device: gs.Device, operations: int) -> None:
    """Assert that a function may compute with its float in any number of steps that depend on each other."""

    def scale(factor: float) -> Callable[[Any], Any]:
        def multiply(v: Any) -> Any:
            product = factor
            for _ in range(operations):
                product = product * 1.001
            return v * product

        return multiply

    array = device.asarray(X)
    for factor in (0.5, 1.5, 2.5):
        assert_same(gs.map(scale(factor), array).numpy(), scale(factor)(X))


def test_recursion_and_shared_names(device: gs.Device) -> None:
    """Assert that a function that calls itself, by its name or a cell, sees the float of this call."""
    a = device.asarray(X)

    def powers(k: float) -> Callable[[Any], Any]:
        def function(v: Any, depth: int = 2, base: float = k) -> Any:
            return v if depth == 0 else function(v * base + k, depth - 1)

        return function

    for k in (0.5, 2.0, 0.5, -1.0):
        wanted = (X * np.float32(k) + np.float32(k)) * np.float32(k) + np.float32(k)
        assert_same(gs.map(powers(k), a).numpy(), wanted, k)


def test_after_a_cleanup(device: gs.Device) -> None:
    """Assert that a branch that was taken for one float is not taken for others, once programs were dropped."""
    a = device.asarray(X)
    for _ in range(3):
        for k in (0.5, -0.5, 1.5, -2.5):
            assert_same(gs.map(lambda v, k=k: v * (k if k > 0 else 4.0), a).numpy(), X * np.float32(k if k > 0 else 4))
        device.memory_cleanup()


def test_threads_with_floats_of_their_own(device: gs.Device) -> None:
    """Assert that threads that call the same function with other floats get the results of their own."""
    a = device.asarray(X)

    def work(thread: int, device: gs.Device, together: threading.Barrier) -> int:
        together.wait()
        for n in range(40):
            k = thread + n / 64
            found = gs.map(lambda v, k=k: v * k + (1 - k), a).numpy()
            np.testing.assert_allclose(found, X * np.float32(k) + np.float32(1 - k), rtol=1e-5, atol=1e-4)
            if n % 10 == thread:
                device.memory_cleanup()
        return thread

    at_once(device, work)


def test_new_lengths_with_new_floats(device: gs.Device) -> None:
    """Assert that calls of other lengths and other floats get the results of their own."""
    x = np.random.default_rng(1).integers(-8, 8, (40, 12)).astype(np.float32)

    def call(a: Any, k: Any) -> list[Any]:
        pair = gs.scan((a, a), lambda l, r: (l[0] + r[0], l[1] + r[1]), axis=0, initial=(np.float32(1), k))
        results = [
            *pair,
            gs.scan(a, axis=1, initial=k),
            gs.linear_recurrence(0.5, a, initial=k),
            gs.reduce(a, initial=k),
        ]
        assign(results[0], slice(1, 3), k)
        return [each.numpy().tobytes() for each in results]

    for rows in (20, 20, 21, 22, 23, 30, 24, 25):
        a = device.asarray(x[:rows])
        assert call(a, rows / 7) == call(a, np.array(rows / 7)), rows


UFUNCS: list[Any] = [np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.less, np.copysign, np.hypot]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_a_ufunc_with_new_floats(device: gs.Device, ufunc: Any) -> None:
    a = device.asarray(X)
    for value in (*VALUES, *VALUES):
        with np.errstate(all="ignore"):
            right, left = ufunc(X, value), ufunc(value, X)
        for found, expected in ((ufunc(a, value), right), (ufunc(value, a), left)):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-30)
            assert found.dtype == expected.dtype


def test_wide_numbers_beside_arrays(device: gs.Device) -> None:
    """Assert that a float64 scalar of NumPy and an array on a device raise an error at each call."""
    a = device.asarray(X)
    for number in map(np.float64, (1, 2, 1)):
        for call in (np.multiply, np.power, np.maximum, lambda a, k: k - a, lambda a, k: np.clip(a, -k, k)):
            with pytest.raises((TypeError, gs.OperatorError), match="float64"):
                call(a, number)
