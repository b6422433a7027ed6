"""Loops of no steps, and of no rows: every method gives the plain loop's results, and only init has gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.loop_vjp import gradients
from tests.loops import oracle

F = np.float32

# Shapes of x with the axis of the loop: without steps, without rows, and without both.
EMPTY = [((0,), 0), ((0, 3), 0), ((0, 6), 1), ((0, 0), 1), ((4, 0, 6), 2)]


def halve(h: Any, x: Any) -> Any:
    return F(0.5) * h + x


def pair(c: Any, x: Any) -> Any:
    return (F(0.5) * c[0] + x, c[1] + c[0]), (c[0] * x, c[1] > 0)


STEPS = {
    "carries as outputs": (halve, F(1)),
    "no outputs": (lambda h, x: (F(0.5) * h + x, None), F(1)),
    "new carry": (lambda h, x: (np.maximum(h, x), 2 * np.maximum(h, x)), F(1)),
    "tuple": (pair, (F(1), F(2))),
    "one number computed directly": (lambda c, x: ((c[0] + c[1], x), c[0]), (F(1), F(2))),
}


def describe(found: Any) -> Any:
    return [(np.shape(each), each.dtype) for part in found for each in oracle.leaves_of(part)]


@pytest.mark.parametrize("method", ["auto", "newton"])
@pytest.mark.parametrize("name", STEPS)
def test_no_steps_and_no_rows_give_init(name: str, method: Any) -> None:
    step, init = STEPS[name]
    for shape, axis in EMPTY:
        x = np.zeros(shape, F)
        wanted = gs.loop(step, init, x, axis=axis, method="sequential", device="numpy")
        found = gs.loop(step, init, x, axis=axis, method=method, device="numpy")
        assert describe(found) == describe(wanted)
        np.testing.assert_equal(found, tuple(wanted))
        assert found.iterations == (0 if method == "newton" else None)


@pytest.mark.parametrize("method", ["auto", "newton", "sequential"])
def test_a_device_gives_the_same(device: gs.Device, method: Any) -> None:
    for step, init in STEPS.values():
        for shape, axis in EMPTY:
            x = np.zeros(shape, F)
            wanted = gs.loop(step, init, x, axis=axis, method="sequential", device="numpy")
            for given in (x, device.asarray(x)):
                found = gs.loop(step, init, given, axis=axis, method=method, device=device)
                assert describe(found) == describe(wanted)
                values = [np.asarray(each) for part in found for each in oracle.leaves_of(part)]
                np.testing.assert_equal(values, [each for part in wanted for each in oracle.leaves_of(part)])


def test_a_carry_of_several_numbers_has_its_shape() -> None:
    for lead in ((0, 6), (3, 0)):
        for method in ("auto", "newton"):
            found = gs.loop(
                lambda h, x: h[::-1] * F(0.5) + x, np.ones((lead[0], 2), F), np.zeros((*lead, 2), F), axis=1,
                method=method, device="numpy",
            )  # fmt: skip
            assert [each.shape for each in found] == [(lead[0], 2), (*lead, 2)]
            np.testing.assert_array_equal(found[0], 1)


@pytest.mark.parametrize("on_device", [False, True])
def test_the_gradient_of_init_is_that_of_the_last_carry(device: gs.Device, on_device: bool) -> None:
    given: Any = device.asarray if on_device else np.asarray
    kind: Any = gs.Array if on_device else (np.ndarray, np.generic)
    for shape, axis in EMPTY:
        others = shape[:axis] + shape[axis + 1 :]
        last = np.arange(1, 1 + np.prod(others, dtype=int), dtype=F).reshape(others)
        for grad_carry, wanted in ((given(last), last.sum()), (None, 0)):
            grad_init, grad_xs = gradients(
                halve, F(1), given(np.zeros(shape, F)), given(np.zeros(shape, F)), grad_carry=grad_carry, axis=axis,
                reverse=False, device=None if on_device else "numpy",
            )  # fmt: skip
            assert isinstance(grad_init, kind)
            assert grad_xs.shape == shape
            assert np.shape(grad_init) == ()
            assert float(np.asarray(grad_init)) == wanted
    grad_init, _ = gradients(
        pair, (F(1), given(np.zeros(3, F))), given(np.zeros((0, 3), F)), None, axis=0, reverse=True,
        grad_carry=(given(np.ones(3, F)), given(np.arange(3, dtype=F))), device=None if on_device else "numpy",
    )  # fmt: skip
    assert float(np.asarray(grad_init[0])) == 3
    np.testing.assert_array_equal(np.asarray(grad_init[1]), [0, 1, 2])
