"""What a loop says of steps and arguments that it does not take: the user's operation, and what to write instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32
I = np.int32
TABLE = np.array([1, 2, 0], I)
NUMBERS = np.zeros(4, F)
INTEGERS = np.arange(4, dtype=I) % 3


@pytest.mark.parametrize(
    ("name", "step", "init"),
    [
        ("gcd", lambda s, x: np.gcd(s + 1, x), I(1)),
        ("lcm", lambda s, x: np.lcm(s + 1, x), I(1)),
        ("logaddexp2", lambda s, x: np.logaddexp2(s * s, x), F(1)),
        ("absolute", lambda s, x: abs(s) - x, F(1)),
    ],
)
def test_a_refusal_names_the_ufunc_that_the_step_calls(name: str, step: Any, init: Any) -> None:
    x = INTEGERS if init.dtype == I else NUMBERS
    with pytest.raises(gs.LoopError, match=rf"it computes np\.{name} on the carry"):
        gs.loop_form(step, init, x)


def test_a_condition_on_the_carry_is_named_once() -> None:
    with pytest.raises(gs.LoopError, match=r"np\.where with a condition that depends on the carry, which leads"):
        gs.loop_form(lambda s, x: np.where(s > 1, s - x, s + x), F(0), NUMBERS)


def test_a_condition_on_the_carry_is_told_which_conditions_have_a_form() -> None:
    with pytest.raises(gs.LoopError, match=r"such as x & 127, bounds its steps.*method=\"sequential\""):
        gs.loop_form(lambda s, x: np.where(s + x >= 100, s + x - 100, s + x), I(0), INTEGERS)
    with pytest.raises(gs.LoopError, match=r"np\.greater_equal on the carry.*A choice by the carry has a form if"):
        gs.loop_form(lambda s, x: np.where(s >= 10, 0, s + x), I(0), INTEGERS)
    found = gs.loop_form(lambda s, x: np.where(s + (x & 31) >= 100, s + (x & 31) - 100, s + (x & 31)), I(0), INTEGERS)
    assert found.kind == "affine"


def test_a_choice_by_a_comparison_of_integers_is_refused() -> None:
    wide, narrow = INTEGERS, INTEGERS.astype(np.int16)
    with pytest.raises(gs.LoopError, match=r"np\.greater_equal on the carry"):
        gs.loop_form(lambda s, x: np.where(s >= x, 5, 2) + (x - np.maximum(x, 5)), I(0), wide)
    with pytest.raises(gs.LoopError, match=r"carry takes \d+ different values"):
        gs.loop_form(lambda s, x: np.maximum(np.where(s == x, -100, -3), x), np.int16(0), narrow)


def test_a_counter_that_begins_on_a_device_asks_for_an_init_with_a_known_range(device: gs.Device) -> None:
    def day(n: Any, x: Any) -> Any:
        return np.where(n == 365, 1, n + 1)

    with pytest.raises(gs.LoopError, match="If init is a number or a NumPy array, more forms are possible"):
        gs.loop_form(day, device.asarray(I(1)), device.asarray(INTEGERS))
    assert gs.loop_form(day, I(1), device.asarray(INTEGERS)).kind == "affine"


def oscillate(c: Any, u: Any) -> Any:
    return c[0] + F(0.01) * c[1], c[1] + F(0.01) * ((1 - c[0] * c[0]) * c[1] - c[0] + u)


def heat(c: Any, out: Any) -> Any:
    temperature, on = c
    on = np.where(temperature < 19, True, np.where(temperature > 21, False, on))
    return temperature + F(0.1) * (out - temperature) + np.where(on, F(0.5), F(0)), on


def modulate(c: Any, x: Any) -> Any:
    bit = c + x >= 256
    return c + x - 256 * bit, bit


def shift_words(c: Any, x: Any) -> Any:
    mixed = c[0] ^ (c[0] << 11)
    return c[1], c[2], c[2] ^ (c[2] >> 19) ^ mixed ^ (mixed >> 8)


@pytest.mark.parametrize(
    ("step", "init", "x", "message"),
    [
        (oscillate, (F(1), F(0)), NUMBERS, r"np\.multiply \(a product\) on the carry"),
        (heat, (F(20), np.False_), NUMBERS, r"np\.less on the carry(.|\n)*temperature < 19"),
        (modulate, I(0), INTEGERS, r"np\.greater_equal on the carry(.|\n)*>= 256"),
        (shift_words, (np.uint32(1),) * 3, INTEGERS, r"np\.bitwise_xor mixes bits of several numbers, 96 in all"),
    ],
)
def test_a_refusal_names_what_a_sum_is_taken_of(step: Any, init: Any, x: Any, message: str) -> None:
    with pytest.raises(gs.LoopError, match=message):
        gs.loop_form(step, init, x)


def test_a_table_in_a_list_is_written_as_an_array() -> None:
    with pytest.raises(gs.OperatorError, match=r"as a Python index.*NumPy array outside of the function"):
        gs.loop_form(lambda s, x: [1, 2, 0][s], I(0), INTEGERS)


@pytest.mark.parametrize("method", ["auto", "sequential"])
def test_a_table_that_is_indexed_is_written_as_a_choice(method: Any) -> None:
    run: dict[str, Any] = {"method": method, "device": "numpy"}
    holder = SimpleNamespace(table=TABLE)
    with pytest.raises(gs.OperatorError, match=r"indexes a NumPy array with a value.*np\.select.*part of xs"):
        gs.loop(lambda s, x: holder.table[s], I(0), INTEGERS, **run)
    with pytest.raises(gs.OperatorError, match="a variable of its own outside of the function"):
        gs.loop(lambda s, x: np.array([1, 2, 0])[s], I(0), INTEGERS, **run)
    with pytest.raises(gs.OperatorError, match=r"np\.select.*for a table"):
        gs.loop(lambda s, x: np.take(TABLE, s), I(0), INTEGERS, **run)
    for step in (lambda s, x: TABLE[s], lambda s, x: np.select([s == i for i in range(3)], TABLE)):
        oracle.check(gs.loop(step, I(0), INTEGERS, **run), oracle.run(lambda s, x: TABLE[s], I(0), INTEGERS))


@pytest.mark.parametrize("convert", [np.float64, np.float32, float])
def test_a_conversion_is_written_with_astype(convert: Any) -> None:
    with pytest.raises(gs.OperatorError, match=r"write \.astype\("):
        gs.loop_form(lambda s, x: convert(s) + x, F(0), NUMBERS)


def test_an_index_into_a_number_asks_for_an_axis_more() -> None:
    with pytest.raises(gs.OperatorError, match=r"indexes 0 into one float32 number.*an axis more") as caught:
        gs.loop_form(lambda s, x: s[0] + x, F(0), NUMBERS)
    assert "element_axes" not in str(caught.value)


def test_missing_arguments_are_asked_for() -> None:
    for missing in (None, (None, NUMBERS)):
        with pytest.raises(TypeError, match=r"xs with None.*np\.arange\(n\)"):
            gs.loop(lambda s, x: s + 1, F(0), missing)
    with pytest.raises(TypeError, match="init with None"):
        gs.loop(lambda s, x: s + 1, None, NUMBERS)


def test_a_refusal_without_an_operation_quotes_the_step() -> None:
    def register(r: Any, x: Any) -> Any:
        return np.append(r[1:], (r[0] & r[1]) ^ x)

    with pytest.raises(gs.LoopError, match=r"256 different values(.|\n)*def register"):
        gs.loop_form(register, np.zeros(8, bool), np.zeros(9, bool))


@pytest.mark.parametrize("method", ["auto", "sequential", "newton"])
def test_an_axis_may_be_left_out_where_there_is_one(method: Any) -> None:
    axis: Any = None
    found = gs.loop(lambda s, x: s + x, F(0), np.ones(4, F), axis=axis, method=method, device="numpy")
    np.testing.assert_array_equal(found.ys, np.arange(1, 5))
    wrong: list[tuple[Any, type[Exception]]] = [(None, ValueError), (1.5, TypeError), (2, np.exceptions.AxisError)]
    for axis, error in wrong:
        with pytest.raises(error, match=r"axis.*[Pp]ass one of 0, 1"):
            gs.loop(lambda s, x: s + x, F(0), np.ones((2, 3), F), axis=axis, method=method, device="numpy")
        with pytest.raises(error, match=r"axis.*[Pp]ass one of 0, 1"):
            gs.loop_vjp(lambda s, x: s + x, F(0), np.ones((2, 3), F), np.ones((2, 3), F), axis=axis)
