"""Floats of functions as parameters: keys without them, and expressions that are computed again for others."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuscan.elements import element_of
from gpuscan.operators.computation import FAILED, Computation
from gpuscan.operators.function_keys import function_key, with_parameters
from gpuscan.operators.parameters import Expression, Parameter, Parameters, bits_of, derive, parameters_of
from gpuscan.operators.trace import trace_function

GLOBAL = 0.5
NUMBER = element_of([np.dtype(np.float32)])


def of_module(v: Any) -> Any:
    """Return a product with a float of the module."""
    return v * GLOBAL


def make(k: Any, j: Any) -> Callable[[Any], Any]:
    """Return a function that closes over one number, calls one that closes over another, and has a default."""

    def inner(v: Any, scale: Any = j) -> Any:
        return v * scale

    def function(v: Any, offset: Any = 2.5) -> Any:
        return inner(v) + of_module(v) * k + offset

    return function


def floats_of(function: Any) -> tuple[Any, list[Any]]:
    """Return the key of a function without floats, and these."""
    floats: list[Any] = []
    return function_key(function, floats=floats), floats


def test_keys_without_floats() -> None:
    """Assert that floats in cells, defaults and modules are no part of the key, and their types are."""
    key, floats = floats_of(make(1.5, 3.5))
    assert sorted(floats) == [GLOBAL, 1.5, 2.5, 3.5]
    other, changed = floats_of(make(-0.0, math.nan))
    assert other == key
    assert len(changed) == 4
    assert floats_of(make(1.5, 3)) != (key, floats)
    assert floats_of(make(np.float32(1.5), 3.5))[0] != key
    assert function_key(make(1.5, 3.5)) != function_key(make(1.5, 4.5))
    assert floats_of(of_module)[1] == [GLOBAL]


def test_functions_that_ask_for_types() -> None:
    """Assert that floats stay in the key of functions that could tell a parameter from a float, or assign to it."""
    total = 1.5

    def asks(v: Any, k: float = 1.5) -> Any:
        return v * k if isinstance(k, float) else v

    def calls(v: Any, k: float = 1.5) -> Any:
        return asks(v, k)

    def assigns(v: Any) -> Any:
        nonlocal total
        total += 1
        return v * total

    def recurs(v: Any, k: float = 1.5) -> Any:
        return recurs(v, k) if k > 2 else v

    for function in (asks, calls, assigns, recurs):
        assert floats_of(function) == (function_key(function), [])


def test_expressions_are_computed_again() -> None:
    """Assert that a computation gives the bits that Python gives, for random expressions and floats."""
    chance = random.Random(0)
    operations: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b,
        lambda a, b: a - 0.1 * b,
        lambda a, b: a * b,
        lambda a, b: a / b,
        lambda a, b: a // 3 - b % 0.7,
        lambda a, b: abs(-a) + b**3,
        lambda a, b: 2 - a + round(b, 2),
    ]
    for _ in range(200):
        chosen = [(chance.choice(operations), chance.random() < 0.5) for _ in range(6)]

        def compute(a: Any, b: Any, chosen: Any = chosen) -> Any:
            for operation, swaps in chosen:
                a, b = (b, operation(a, b)) if swaps else (operation(b, a), a)
            return a

        parameters = Parameters((1.5, -0.3))
        found: Any = compute(*map(Parameter, parameters.leaves))
        again = Computation([found._expression, *parameters.revealed.values()]).values
        for floats in ((1.5, -0.3), (0.0, -0.0), (1e300, 1e300), (math.inf, 2.0), (0.7, math.nan)):
            value: Any
            value, *defined = again(floats)
            try:
                wanted: Any = compute(*floats)
            except ArithmeticError:
                assert FAILED in (value, *defined)
            else:
                assert FAILED not in defined
                assert np.float64(value).tobytes() == np.float64(wanted).tobytes() or (
                    value != value and wanted != wanted
                )


def test_what_is_revealed() -> None:
    """Assert that a graph depends on the outcome of a comparison, and not on the floats that were compared."""

    def list_revealed(function: Any) -> list[Any]:
        key, floats = floats_of(function)
        parameters = parameters_of(key, floats)
        trace_function(with_parameters(function, parameters, 0), NUMBER, "before")
        return [each.value for each in parameters.revealed.values()]

    def make_functions(k: float) -> list[Callable[[Any], Any]]:
        known = [lambda v: v * (1 - k), lambda v: v * k if k > 2 else v, lambda v: v * int(k), lambda v: v**k]
        return [*known, lambda v: v * np.float32(np.exp(k))]

    # A short exponent makes a product. Any other one is a constant of the power function.
    for k, short in ((1.25, "None"), (3.0, np.float64(3).tobytes())):
        nothing, comparison, value, exponent, converted = map(list_revealed, make_functions(k))
        assert nothing == []
        assert comparison == [k > 2]
        assert value == [int(k)]
        assert exponent == [short]
        assert converted == [True]  # the conversion is defined


def test_the_largest_expressions() -> None:
    """Assert that a number of the most operations is revealed as other numbers are, and is a constant from then on."""
    wide = Parameters([0.5]).leaves[0]
    for _ in range(9):
        wide = derive(operator.add, wide, wide)
    wide = derive(operator.mul, wide, 0.25)
    long = Parameters([0.5]).leaves[0]
    for _ in range(255):
        long = derive(operator.mul, long, 1.5)
    for largest in (wide, long):
        assert isinstance(largest, Expression)
        value: Any = largest.value
        assert derive(operator.mul, largest, 0.5) == value * 0.5
        assert (bits_of, largest.structure) in largest.parameters.revealed


def test_a_parameter_that_acts_otherwise() -> None:
    """Assert that all floats are revealed if a trace with parameters fails, or gives another graph."""

    def fails(v: Any, k: float = 0.5) -> Any:
        return v * {float: 1.0}[k.__class__]

    def differs(v: Any, k: float = 0.5) -> Any:
        return v * len([each for each in (k, 1.0) if each.__class__ is float])

    functions: list[Any] = [fails, differs]
    for function in functions:
        parameters = Parameters((0.5,))
        switch = with_parameters(function, parameters, 0)
        nodes = trace_function(switch, NUMBER, "before").result.fields
        assert len(parameters.revealed) == 1
        plain = trace_function(function, NUMBER, "before").result.fields
        assert [node.op for field in nodes for node in field] == [node.op for field in plain for node in field]
        assert [node.args[1].data for (node,) in nodes] == [node.args[1].data for (node,) in plain]


def test_the_last_numbers_are_told_apart() -> None:
    """Assert that results are only kept for numbers that are all the same, however they are written."""
    parameters = Parameters([1, 23])
    one, other = map(Parameter, parameters.leaves)

    def join(first: int, second: int) -> Any:
        return first, second

    values = Computation([derive(join, one._expression, other._expression)]).values
    for numbers in ([1, 23], [12, 3], [12, 3], [123, 0], [1, 23]):
        assert values(numbers) == [tuple(numbers)]


def test_only_what_has_changed_is_computed_again() -> None:
    """Assert that a function is called again only for other numbers, also where the caller writes to its array."""
    array = np.array([1.0, 2.0])
    parameters = Parameters([0.5, array])
    computed: list[Any] = []

    def double(value: Any) -> Any:
        computed.append(value)
        return value * 2

    def negate(value: Any) -> Any:
        if np.any(value == 8):
            raise ValueError
        return -value

    def join(first: Any, second: Any) -> Any:
        return first, second.tolist()

    of_float, of_array = (derive(double, leaf) for leaf in parameters.leaves)
    values = Computation([derive(join, of_float, derive(negate, of_array))]).values
    computed.clear()
    for number, element, calls in ((0.5, 1.0, 2), (0.25, 1.0, 1), (0.25, 3.0, 1), (0.25, 3.0, 0), (-0.0, 3.0, 1)):
        array[0] = element
        assert values([number, array]) == [(number * 2, [-2 * element, -4.0])]
        assert len(computed) == calls
        computed.clear()
    array[0] = 4.0
    assert [values([number, array]) for number in (1.0, 2.0)] == [[FAILED]] * 2
    array[0] = 5.0
    assert values([2.0, array]) == [(4.0, [-10.0, -4.0])]
