"""Functions that compute the same have equal keys, and functions that read what may change have none."""

from __future__ import annotations

import builtins
import math
from collections import Counter as CountsOf
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from fractions import Fraction
from functools import cached_property, lru_cache, partial, wraps
from operator import attrgetter, itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.operators.function_keys import function_key
from tests.harness.calls import EACH_STAGE, FIRST, Counted
from tests.oracle import assert_same

SCALE = 2.0
SETTINGS = {"scale": 2.0}


class Settings:
    """A class with an attribute that a program may change."""

    scale = 2.0

    @classmethod
    def multiply(cls, value: Any) -> Any:
        """Return the value times the attribute."""
        return value * cls.scale


class Decay:
    """An operator with an attribute, and with a method that it calls."""

    def __init__(self, rate: Any) -> None:
        self.rate = rate

    def __call__(self, left: Any, right: Any) -> Any:
        return self.times_rate(left) + right

    def times_rate(self, value: Any) -> Any:
        """Return the value times the rate."""
        return value * self.rate


class Rounded(Decay):
    """The same with another method."""

    def times_rate(self, value: Any) -> Any:
        return np.rint(value * self.rate)


@dataclass(frozen=True)
class Offset:
    """An operator as a dataclass."""

    offset: float

    @property
    def twice(self) -> float:
        """Twice the offset."""
        return 2 * self.offset

    def __call__(self, left: Any, right: Any) -> Any:
        return left + right + self.twice


class Rule(Enum):
    """Members with a value, an attribute and a method."""

    HALF = 0.5
    DOUBLE = 2.0

    def __init__(self, value: float) -> None:
        self.limit = 10 * value

    def apply(self, x: Any) -> Any:
        """Return the value of the member times x, up to its limit."""
        return np.minimum(x * np.float32(self.value), np.float32(self.limit))


class Sides(Flag):
    """Members that are combined."""

    LOW = auto()
    HIGH = auto()


class Level(IntEnum):
    """Members that are integers."""

    LOW = 1
    HIGH = 2


class Entries(tuple[int, ...], Enum):
    """Members with entries that no attribute shows."""

    ONE = ((1, 2),)


class Slotted:
    """An operator with an attribute that is in no dict."""

    __slots__ = ("__dict__", "rate")
    rate: Any

    def __call__(self, left: Any, right: Any) -> Any:
        return left * self.rate + right


@dataclass(frozen=True, slots=True)
class Bounds:
    """Settings in slots alone."""

    low: float
    high: float


def close_over(value: Any) -> Callable[[Any], Any]:
    """Return a function that closes over a value."""
    return lambda x: x * value


def clip_to(bounds: Bounds) -> Callable[[Any], Any]:
    """Return a function that reads slots."""
    return lambda x: np.clip(x, bounds.low, bounds.high)


def by_name(x: Any) -> Any:
    """Read a number of the module."""
    return x * SCALE


def calls_other(x: Any) -> Any:
    """Call a function that reads a number of the module."""
    return by_name(x) + np.float32(math.pi)


def test_equal_values() -> None:
    """Functions of the same code that close over equal values have equal keys."""
    for value in (
        1,
        1.0,
        True,
        None,
        "a",
        np.float32(0.1),
        np.dtype(np.int8),
        (1, (2.0,)),
        np.arange(3),
        np.add,
        abs,
        Fraction(1, 3),
    ):
        assert function_key(close_over(value)) is not None, value
        again = value.copy() if isinstance(value, np.ndarray) else value
        assert function_key(close_over(value)) == function_key(close_over(again))
    assert function_key(close_over(by_name)) == function_key(close_over(by_name))


def test_different_values() -> None:
    """Assert that values of several types, signs and dtypes differ, and so do functions of other code."""
    values: list[Any] = [1, 1.0, True, np.float32(1), np.int32(1), 0.0, -0.0, (1,), (1.0,), np.ones(1), np.ones(2)]
    values += [
        np.float32("nan"),
        -np.float32("nan"),
        np.ones(1, np.float32),
        by_name,
        calls_other,
        "1",
        1j,
        Fraction(1),
        Fraction(1, 3),
    ]
    keys = [function_key(close_over(value)) for value in values]
    assert None not in keys
    assert len(set(keys)) == len(values)
    assert function_key(lambda x, k=1: x * k) != function_key(lambda x, k=2: x * k)


def test_numbers_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a number of the module is a part of the key, also of one that a called function reads."""
    before = function_key(by_name), function_key(calls_other)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    after = function_key(by_name), function_key(calls_other)
    assert None not in before + after
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_names_of_the_builtins(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a name that was put into the builtins counts, and that Python's own builtins leave a key."""
    scaled = lambda v: v * builtin_scale  # type: ignore[name-defined]  # noqa: E731, F821
    x = device.asarray(np.arange(3, dtype=np.float32))
    for scale in (1.0, 2.0, 3.0):
        monkeypatch.setattr(builtins, "builtin_scale", scale, raising=False)
        np.testing.assert_array_equal(gs.map(scaled, x).numpy(), scale * np.arange(3))
        assert function_key(scaled) is not None
    monkeypatch.setattr(builtins, "builtin_scale", iter([1.0]))
    assert function_key(scaled) is None
    assert function_key(lambda x: max(abs(len(x)), *map(int, range(3)))) is not None


def test_names_of_fixed_functions() -> None:
    """Assert that a function that took NumPy's name and module by `functools.wraps` is not taken for NumPy's."""
    assert function_key(np.broadcast_shapes) is np.broadcast_shapes

    @wraps(np.broadcast_shapes)
    def scale_number(x: Any) -> Any:
        return x * SCALE

    assert function_key(scale_number) not in (None, np.broadcast_shapes)


def test_partial_calls() -> None:
    """Assert that a partial call is known by its function and by the arguments that it has."""
    power: Any = np.power
    made: list[Any] = [partial(by_name), partial(max, 1), partial(max, 1.0), partial(min, 1), partial(by_name, x=1)]
    made += [partial(power, 2), partial(np.where, True), partial(close_over(2), 1), partial(close_over(3), 1)]
    keys = [function_key(each) for each in made]
    assert None not in keys
    assert len(set(keys)) == len(made)
    assert keys == [function_key(partial(each.func, *each.args, **each.keywords)) for each in made]


class Pair(NamedTuple):
    """A bundle with a default and a method that reads a number of the module."""

    gate: Any
    step: Any = 2.0

    def product(self) -> Any:
        """Return the step times a number of the module."""
        return self.step * SCALE


def compose_pairs(left: Pair, right: Pair) -> Pair:
    """Compose two affine maps."""
    return Pair(left.gate * right.gate, right.gate * left.step + right.step)


def test_classes_of_named_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a function that makes named tuples has a key, with what the methods of their class read."""
    key = function_key(compose_pairs)
    assert key is not None
    assert key == function_key(compose_pairs)
    assert function_key(close_over(Pair)) != function_key(close_over(namedtuple("Pair", "gate step")))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert function_key(compose_pairs) not in (None, key)
    monkeypatch.setattr(Pair, "settings", SETTINGS, raising=False)
    known = function_key(compose_pairs)
    monkeypatch.setitem(SETTINGS, "scale", 4.0)
    assert function_key(compose_pairs) not in (None, known)
    monkeypatch.setattr(Pair, "settings", iter([1.0]))
    assert function_key(compose_pairs) is None


def test_names_of_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that an object of the module does not count because an attribute has the same name."""
    key = function_key(compose_pairs)
    monkeypatch.setitem(globals(), "gate", SETTINGS)
    assert function_key(compose_pairs) == key


def test_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that objects and their methods have keys by their attributes and by the code of their classes."""
    for make in (Decay, Rounded, Offset, lambda rate: Decay(Offset(rate)), lambda rate: Decay(rate).times_rate):
        assert function_key(make(2.0)) is not None
        assert function_key(make(2.0)) == function_key(make(2.0))
        assert function_key(make(2.0)) != function_key(make(3.0))
        assert function_key(close_over(make(2.0))) != function_key(close_over(make(2)))
    assert function_key(Decay(2.0)) != function_key(Rounded(2.0))
    itself = Decay(2.0)
    itself.rate = itself
    assert function_key(itself) is not None
    before = function_key(Rounded(2.0))
    monkeypatch.setattr(Decay, "__call__", lambda self, left, right: left - right)
    assert function_key(Rounded(2.0)) != before
    for changing in (Decay(iter([2.0])), Decay({(): 2.0}), object(), slice(2.0), np.random.default_rng()):
        assert function_key(changing) is None
    floats: list[Any] = []
    assert function_key(lambda x, k=0.5, of=Offset(1.0): of(x, k), floats=floats) is not None
    assert floats == [0.5, 1.0]


def test_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a class counts by its attributes and methods, also where a function makes objects of it."""
    functions: list[Any] = [close_over(Settings), lambda x: x * Settings.scale, Settings.multiply, lambda x: Decay(x)]
    keys = [function_key(function) for function in functions]
    assert None not in keys
    assert keys == [function_key(function) for function in functions]
    monkeypatch.setattr(Settings, "scale", 3.0)
    monkeypatch.setattr(Decay, "__init__", lambda self, rate: setattr(self, "rate", -rate))
    for function, before in zip(functions, keys, strict=True):
        assert function_key(function) not in (None, before)
    monkeypatch.setattr(Settings, "scale", iter([1.0]))
    assert function_key(functions[1]) is None
    for other in (dict, int, np.ndarray):
        assert function_key(close_over(type("Other", (other,), {}))) is None


def test_enumerations(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that members count by their class, their attributes and its methods, and that programs are launched."""

    def limit(rule: Rule, factor: float) -> Callable[[Any], Any]:
        return lambda x: rule.apply(x) * factor if rule is Rule.HALF else rule.apply(x) + factor

    functions: list[Any] = [
        close_over(value) for value in (*Rule, *Sides, Sides.LOW | Sides.HIGH, Sides(0), *Level, 1, 2, Rule, Level)
    ]
    keys = [function_key(function) for function in functions]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert keys == [function_key(function) for function in functions]
    x = np.arange(100, dtype=np.float32)
    a = device.asarray(x)

    def check() -> None:
        for rule in Rule:
            for factor in (1.0, 2.0, 3.0):
                assert_same(gs.map(limit(rule, factor), a).numpy(), limit(rule, factor)(x).astype(np.float32))
            assert Counted().of(lambda given=rule: gs.map(limit(given, 4.0), a)) <= FIRST + EACH_STAGE * 2  # type: ignore[misc]

    check()
    monkeypatch.setattr(Rule.HALF, "limit", 3.0)
    assert function_key(functions[0]) not in (None, keys[0])
    check()
    monkeypatch.setattr(Rule, "apply", lambda self, x: x - self.limit)
    assert function_key(functions[1]) not in (None, keys[1])
    check()
    # A member that refers to others.
    monkeypatch.setattr(Rule.HALF, "inverse", Rule.DOUBLE, raising=False)
    monkeypatch.setattr(Rule.DOUBLE, "inverse", Rule.HALF, raising=False)
    assert function_key(functions[0]) is not None
    check()
    monkeypatch.setattr(Rule.DOUBLE, "limit", iter([1.0]))
    assert function_key(functions[0]) is None
    assert function_key(close_over(Enum("Lists", {"ONE": [object()]}).ONE)) is None  # type: ignore[attr-defined]
    assert function_key(close_over(Entries.ONE)) is None


def test_slots() -> None:
    """Assert that the key depends on the attributes in slots, and on which of them have a value."""
    empty, full = Slotted(), Slotted()
    full.rate = 2.0
    keys = [function_key(each) for each in (empty, full, close_over(Bounds(1.0, 2.0)), close_over(Bounds(1.0, 3.0)))]
    assert None not in keys
    assert len(set(keys)) == 4
    full.__dict__["other"] = 2.0
    assert function_key(full) not in (None, *keys)


def test_lists_and_dicts() -> None:
    """Assert that lists, dicts and namespaces have keys by their values, and that these values leave the key."""
    values: list[Any] = [[2.0], [2], (2.0,), [2.0, 2.0], [[2.0]], {"a": 2.0}, {"b": 2.0}, {1: 2.0}, {True: 2.0}]
    values += [SimpleNamespace(a=2.0), Pair(2.0, 3.0), {"a": [2.0]}, {"a": by_name}, Decay([2.0]), Decay(SETTINGS)]
    keys = [function_key(close_over(value)) for value in values]
    assert None not in keys
    assert len(set(keys)) == len(values)
    assert function_key(close_over({"a": 1.0, "b": 2.0})) != function_key(close_over({"b": 2.0, "a": 1.0}))
    itself: list[Any] = [2.0]
    itself.append(itself)
    assert function_key(close_over(itself)) is not None
    for other in ([object()], [iter([2.0])], {(1, 2): 2.0}, [0.0] * 2000, [[0.0] * 600, [0.0] * 600]):
        assert function_key(close_over(other)) is None
    for value, wanted in (([0.5, [2]], [0.5, 2]), ({"a": 1.0}, [1.0]), (Pair(0.5), [0.5, 2.0]), (itself, [])):
        found: list[Any] = []
        assert function_key(close_over(value), floats=found) is not None
        assert found == wanted


def test_further_values() -> None:
    """Assert that sets and other values of Python's library have keys by what they hold."""
    values: list[Any] = [{1.0}, {2.0}, {1}, frozenset({1.0}), bytearray(b"a"), bytearray(b"b"), deque([1.0])]
    values += [deque([1.0], 2), defaultdict(int, a=1), defaultdict(float, a=1), OrderedDict(a=1), CountsOf("a")]
    values += [OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), itemgetter(0), itemgetter(1), attrgetter("a")]
    values += [Decimal("1.0"), Decimal("1.00"), timedelta(1), date(2000, 1, 1), Path("a"), Path("b")]
    keys = [function_key(close_over(value)) for value in values]
    assert None not in keys
    assert len(set(keys)) == len(values)
    assert function_key(close_over(deque([1.0]))) in keys
    itself: deque[Any] = deque([1.0])
    itself.append(itself)
    for value in ({1.0, 2.0}, itself):
        found: list[Any] = []
        assert function_key(close_over(value), floats=found) is not None
        assert not found


class Remembering:
    """An object with a property that is computed once."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @cached_property
    def scale(self) -> float:
        return SCALE * self.rate

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def test_values_that_are_computed_once(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that functions of cached properties launch programs, and notice what has changed."""
    a = device.asarray(np.ones(9, np.float32))
    old, new = Remembering(3.0), Remembering(3.0)
    for scale in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for _ in range(3):
            # As in Python, a value that was computed stays.
            assert gs.map(old, a).numpy()[0] == 6
            assert gs.map(new, a).numpy()[0] == 3 * scale
        for called in (old, new):
            assert Counted().of(partial(gs.map, called, a)) <= FIRST + EACH_STAGE
        new = Remembering(3.0)


def test_objects_as_operators(device: gs.Device) -> None:
    """Assert that repeated calls launch one program, and that an attribute that has changed counts."""
    x, y = np.random.default_rng(0).random((2, 500), dtype=np.float32)
    a, b, operator = device.asarray(x), device.asarray(y), Decay(0.5)
    for rate in (0.5, 0.5, 0.5, 0.25, 1.0, 0.5):
        operator.rate = rate
        np.testing.assert_allclose(gs.map(operator, a, b).numpy(), x * np.float32(rate) + y, rtol=1e-6)
        wanted = np.add.accumulate(x + np.float32(2 * rate)) - np.float32(2 * rate)
        np.testing.assert_allclose(gs.scan(a, Offset(rate)).numpy(), wanted, rtol=1e-5)
    for call in (lambda: gs.map(Decay(0.5), a, b), lambda: gs.scan(a, Offset(0.5))):
        assert Counted().of(call) <= FIRST + EACH_STAGE * 2


def test_classes_and_slots_as_operators(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that repeated calls launch one program, and that changed classes, slots and attributes are noticed."""
    x = np.random.default_rng(0).random(500, dtype=np.float32)
    a, slotted = device.asarray(x), Slotted()

    @wraps(by_name)
    def scale_by_offset(value: Any) -> Any:
        return by_name(value) * scale_by_offset.offset  # type: ignore[attr-defined]

    for scale in (1.0, 1.0, 2.0, 3.0, 1.0):
        monkeypatch.setattr(Settings, "scale", scale)
        monkeypatch.setitem(globals(), "SCALE", scale)
        slotted.rate = slotted.__dict__["other"] = scale_by_offset.offset = scale  # type: ignore[attr-defined]
        calls: list[tuple[Callable[[], gs.Array], Any]] = [
            (lambda: gs.map(Settings.multiply, a), x * np.float32(scale)),
            (lambda: gs.map(slotted, a, a), x * np.float32(scale) + x),
            (lambda: gs.map(scale_by_offset, a), x * np.float32(scale) * np.float32(scale)),
            (partial(gs.map, clip_to(Bounds(scale / 8, scale / 4)), a), np.clip(x, scale / 8, scale / 4)),
        ]
        for call, wanted in calls * 3:
            np.testing.assert_allclose(call().numpy(), wanted, rtol=1e-6)
        assert all(Counted().of(call) <= FIRST + EACH_STAGE for call, _ in calls)


def test_what_may_change() -> None:
    """Functions that read what may change without notice have no key."""

    def with_attribute(x: Any) -> Any:
        return x * len(with_attribute.scale)  # type: ignore[attr-defined]

    with_attribute.scale = memoryview(b"2")  # type: ignore[attr-defined]

    def importing(x: Any) -> Any:
        from tests.operators import test_function_keys  # noqa: PLC0415 (the function under test imports)

        return x * test_function_keys.SCALE

    named = partial(by_name)
    named.scale = 2  # type: ignore[attr-defined]
    counter = iter(range(9))
    changing: list[Any] = [
        close_over([object()]),
        close_over(float("nan")),
        # Its results are kept where no key sees them, and may be arrays that change.
        close_over(lru_cache(by_name)),
        close_over(np.zeros(4096)),
        close_over(np.array([object()])),
        lambda x: x + next(counter),
        lambda x: x * globals()["SCALE"],
        partial(by_name, object()),
        partial(max, key=object()),
        named,
        Settings().__eq__,
        with_attribute,
        importing,
        "add",
    ]
    for function in changing[:-1]:
        assert function_key(function) is None
    # A name is no function, but it cannot change.
    assert function_key(changing[-1]) is not None
    assert function_key(by_name, numbers=False) is None


def test_unassigned_cell() -> None:
    """Assert that a variable without a value leaves a function without a key."""

    def make() -> Any:
        function = lambda x: x * later  # noqa: E731
        key = function_key(function)
        later: int = 2
        return key, function_key(function), later

    assert make()[0] is None
    assert make()[1] is not None
