"""`gpuscan.loop` on every adapter: every class, layouts, structures, methods, gradients and repeated calls."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import count_shader_modules
from tests.harness.devices import device_as_if
from tests.loops import oracle
from tests.loops.steps import CASES, F, inputs

INPUTS = inputs()
BY_NAME = {case.name: case for case in CASES}
# One of each class, and one with two scans and outputs.
ON_ADAPTERS = [
    "generalised advantage", "Kadane by maximum", "peak by where", "battery", "clamp with resets",
    "growth between limits", "best with two payloads", "variance of a Kalman filter", "set and clear", "forty states",
    "CSV quotes", "Welford", "log of a sum of weights", "second order filter",
]  # fmt: skip


@pytest.mark.parametrize("name", ON_ADAPTERS)
def test_each_class_gives_the_loop_on_every_adapter(device: gs.Device, name: str) -> None:
    case = BY_NAME[name]
    names = case.inputs.split()
    xs = tuple(INPUTS[each] for each in names) if len(names) > 1 else INPUTS[names[0]]
    moved = tuple(map(device.asarray, xs)) if isinstance(xs, tuple) else device.asarray(xs)
    found = gs.loop(case.step, case.init, moved)
    assert all(isinstance(each, gs.Array) for each in (*oracle.leaves_of(found[0]), *oracle.leaves_of(found[1])))
    oracle.check(found, oracle.run(case.step, case.init, xs))


@pytest.mark.parametrize("method", ["auto", "sequential"])
def test_values_of_dicts_are_attributes_as_in_operators(method: Any) -> None:
    x = np.arange(4, dtype=F)
    carry, ys = gs.loop(
        lambda h, step: {"sum": step.input + (h.sum if step.input != 2 else 0)},
        {"sum": F(1)}, {"input": x}, method=method, device="numpy",
    )  # fmt: skip
    assert ys["sum"].tolist() == [1, 2, 2, 5]
    assert carry["sum"] == 5


def decay(h: Any, x: Any) -> Any:
    return F(0.9) * h + x


def tables(reverse: bool, axis: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(1).normal(size=(40, 3)).astype(F)
    rows = x if axis == 0 else x.T
    carry, (ys,) = oracle.run(decay, np.zeros(rows.shape[1], F), rows, reverse=reverse)
    return np.asarray(carry), ys if axis == 0 else ys.T


@pytest.mark.parametrize(("axis", "reverse"), [(0, False), (0, True), (-1, False), (1, True)])
def test_rows_run_along_any_axis_and_from_the_end(axis: int, reverse: bool) -> None:
    x = np.random.default_rng(1).normal(size=(40, 3)).astype(F)
    carry, ys = gs.loop(decay, 0.0, x, axis=axis, reverse=reverse, device="numpy")
    wanted = tables(reverse, axis % 2)
    np.testing.assert_allclose(carry, wanted[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ys, wanted[1], rtol=1e-5, atol=1e-5)


def test_a_repeated_call_launches_its_program_and_reads_init_on_the_device(device: gs.Device) -> None:
    x = device.asarray(np.random.default_rng(1).normal(size=(40, 3)).astype(F))
    for seed in range(3):
        init = np.random.default_rng(seed).normal(size=3).astype(F)
        carry, ys = gs.loop(decay, device.asarray(init), x)
        wanted = oracle.run(decay, init, x.numpy())
        oracle.check((carry, ys), wanted)


def test_a_state_on_the_device_outside_the_set_is_an_error_at_the_next_read(device: gs.Device) -> None:
    x = device.asarray(np.arange(6, dtype=np.int32))
    good = gs.loop(lambda h, x: (h + x) % 5, device.asarray(np.int32(3)), x)
    np.testing.assert_array_equal(good[1].numpy(), [3, 4, 1, 4, 3, 3])
    bad = gs.loop(lambda h, x: (h + x) % 5, device.asarray(np.int32(7)), x)
    with pytest.raises(gs.LoopError, match="5 finite states"):
        bad[1].numpy()


def test_the_sequential_method_runs_any_step(device: gs.Device) -> None:
    def step(c: Any, x: Any) -> Any:
        v, n = c
        fires = v * F(0.9) + x > 1
        return (np.where(fires, 0, np.tanh(v * F(0.9) + x)), (n + fires).astype(np.int8)), fires

    x = np.random.default_rng(2).normal(size=(3, 30)).astype(F)
    found = gs.loop(step, (0.0, np.int8(120)), device.asarray(x), axis=1, method="sequential", reverse=True)
    wanted = oracle.run(step, (np.zeros(3, F), np.full(3, 120, np.int8)), x.T, reverse=True)
    oracle.check((found[0], found[1].numpy().T), wanted)
    again = gs.loop(step, (0.0, np.int8(120)), device.asarray(x), axis=1, method="sequential", reverse=True)
    np.testing.assert_array_equal(again[0][1].numpy(), found[0][1].numpy())
    assert found.form is None


def test_a_carry_of_nan_has_the_same_bits_everywhere(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert it of float16 on GPUs with exact packing, which yet gives NaN other bits on an H200 and on SwiftShader."""

    def step(h: Any, x: Any) -> Any:
        return (h * 0.375 + x).astype(np.float16), h

    x = np.array([1, np.nan, 2], np.float32)
    options: dict[str, Any] = {"method": "sequential", "reproducible": "everywhere"}
    texts = count_shader_modules(device, monkeypatch)
    found = gs.loop(step, np.float16(0.5), x, device=device_as_if(device, packs_halves=True), **options)
    wanted = gs.loop(step, np.float16(0.5), x, device="numpy", **options)
    for got, exact in zip(found, wanted, strict=True):
        assert np.array_equal(np.asarray(got).view(np.uint16), np.asarray(exact).view(np.uint16))
    (loop,) = [text for text in texts if "var state0" in text]
    assert "unpack2x16float" not in loop


def test_newton_s_method_converges_or_says_that_it_did_not(device: gs.Device) -> None:
    def step(h: Any, x: Any) -> Any:
        return np.tanh(F(0.5) * h + x), h * x

    x = np.random.default_rng(2).normal(size=60).astype(F)
    for xs in (x, device.asarray(x)):
        found = gs.loop(step, 0.0, xs, method="newton", device=None if isinstance(xs, gs.Array) else "numpy")
        assert found.iterations is not None
        assert found.iterations < 12
        oracle.check(found, oracle.run(step, F(0), x))
    with pytest.raises(gs.LoopError, match="did not converge"):
        gs.loop(lambda h, x: F(3.9) * h * (1 - h) + 0 * x, 0.3, x, method="newton", max_iterations=3, device="numpy")


# ----- Structures and dtypes


class Pair(NamedTuple):
    """A carry of two numbers."""

    a: Any
    b: Any


def test_structures_are_those_of_init_and_of_y() -> None:
    x = np.arange(1, 5, dtype=F)
    run: dict[str, Any] = {"device": "numpy"}
    carry, ys = gs.loop(lambda c, x: Pair(c.a + x, c.b + 1), Pair(0.0, 0), x, **run)
    assert isinstance(carry, Pair)
    assert isinstance(ys, Pair)
    assert (carry.a.dtype, carry.b.dtype) == (np.float32, np.int32)
    carry, ys = gs.loop(
        lambda c, x: ({"b": c["b"] + x, "a": c["a"] * x}, [c["a"], (x, c["b"])]), {"a": 1.0, "b": 0.0}, x, **run
    )
    assert list(carry) == ["a", "b"]
    assert isinstance(ys, list)
    assert isinstance(ys[1], tuple)
    np.testing.assert_array_equal(ys[0], [1, 1, 2, 6])
    carry, ys = gs.loop(lambda c, x: [c + x, None], 0.0, x, **run)
    assert (float(carry), ys) == (10.0, None)
    carry, ys = gs.loop(lambda c, x: (c[1], c[0] + x), (0.0, 0.0), x, **run)
    np.testing.assert_array_equal(ys[0], [0, 1, 2, 4])


@pytest.mark.parametrize("init", [[1.0, -2.0], [F(1), F(-2)]])
def test_a_list_of_numbers_is_a_carry(device: gs.Device, init: list[Any]) -> None:
    """Begin with a list of two numbers as the carry."""
    x = np.arange(1, 6, dtype=F)
    carry, ys = gs.loop(lambda c, x: [c[0] + x, c[1] + c[0]], init, x, device=device)
    np.testing.assert_array_equal(carry, [16, 23])
    np.testing.assert_array_equal(ys, [[2, 4, 7, 11, 16], [-1, 1, 5, 12, 23]])


def test_a_first_carry_that_does_not_fit_is_refused(device: gs.Device) -> None:
    """Assert that no integer wraps around before the first step, also where integers are parameters of a program."""
    x = np.arange(4, dtype=np.uint32)
    for place in (x, device.asarray(x)):
        for init in (1, 2, 3, 4, -2, 5, 2**40, 6):
            if 0 <= init < 2**32:
                found = gs.loop(lambda c, x: c + x, init, place, device=device).ys
                np.testing.assert_array_equal(np.asarray(found), init + np.cumsum(x))
            else:
                with pytest.raises(TypeError, match=f"init has {init} for a carry of dtype uint32"):
                    gs.loop(lambda c, x: c + x, init, place, device=device)


def test_trailing_axes_belong_to_a_carry_that_is_indexed_or_multiplied() -> None:
    a = np.array([[0.9, 0.1], [-0.1, 0.9]], F)
    x = np.random.default_rng(1).normal(size=(20, 2)).astype(F)
    found = oracle.check_loop(lambda h, x: (a @ h + x, h[0] * h[1]), np.zeros(2, F), x)
    assert found.form.state_shape == (2,)
    form = gs.loop_form(decay, np.zeros(2, F), x)
    assert form is not None
    assert form.state_shape == ()
    assert gs.loop(lambda h, x: a @ h + x, np.zeros((5, 2), F), np.ones((4, 5, 2), F), device="numpy")[0].shape == (
        5,
        2,
    )
    with pytest.raises(ValueError, match=r"init of the shape \(4,\)"):
        gs.loop(decay, np.ones(4, F), np.ones((5, 3), F), device="numpy")


def test_a_number_is_no_carry_of_several_so_that_matrices_are_no_rows() -> None:
    factors = np.random.default_rng(1).normal(size=(20, 2, 2)).astype(F)
    found = oracle.check_loop(lambda m, x: x @ m, np.eye(2, dtype=F), factors)
    assert found.form.state_shape == (2, 2)


def test_a_new_number_may_be_an_input_as_it_is() -> None:
    x = np.arange(6, dtype=F)
    run: dict[str, Any] = {"device": "numpy"}
    found = gs.loop(lambda h, x: (np.array([h[0] + h[1], x]), h[0]), np.zeros(2, F), x, **run)
    np.testing.assert_array_equal(found[1], [0, 0, 0, 1, 3, 6])
    np.testing.assert_array_equal(found[0], [10, 5])
    swap = gs.loop(lambda c, x: ((c[0] + x, c[0], c[1] + x * c[2]), c[2]), (F(0), F(1), F(2)), x, **run)
    oracle.check(swap, oracle.run(lambda c, x: ((c[0] + x, c[0], c[1] + x * c[2]), c[2]), (F(0), F(1), F(2)), x))


def test_python_numbers_are_weak_and_other_dtypes_must_fit() -> None:
    x = np.array([1, -2, 3], np.float16)
    assert gs.loop(lambda h, x: np.where(x > 0, h + x, 0.0), 0.0, x, device="numpy")[1].dtype == np.float16
    assert gs.loop(lambda h, x: h + np.where(x > 0, 1, -1), np.int8(0), x, device="numpy")[1].dtype == np.int8
    with pytest.raises(TypeError, match="init is int32"):
        gs.loop(lambda h, x: h + x, np.int32(0), x.astype(F), device="numpy")
    assert gs.loop(lambda h, x: h + x, 0, x.astype(np.int8), device="numpy")[1].dtype == np.int8
    assert gs.loop(lambda h, x: h + (x > 0), 0, x.astype(np.int8), device="numpy")[1].dtype == np.int32
    with pytest.raises(TypeError, match="returns None"):
        gs.loop(lambda h, x: None, 0.0, x, device="numpy")
    for count in (65, 0):
        with pytest.raises(ValueError, match="from 1 to 64 numbers"):
            gs.loop(lambda h, x: h * 2 + x, np.zeros(count, F), x.astype(F), device="numpy")
    with pytest.raises(TypeError, match="returns a tuple of 3"):
        gs.loop(lambda h, x: (h, h, x), 0.0, x, device="numpy")
    with pytest.raises(gs.OperatorError, match=r"np\.where"):
        gs.loop(lambda h, x: sum(h for i in range(65) if x > i), 0.0, x, device="numpy")
    with pytest.raises(ValueError, match="method='fast'"):
        gs.loop(decay, 0.0, x, method="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["auto", "sequential"])
def test_python_numbers_with_bools_keep_the_digits_of_64_bits(method: Any) -> None:
    flags = np.array([True, False, True, True])
    run: dict[str, Any] = {"device": "numpy", "method": method}

    def gains(h: Any, flag: Any) -> Any:
        return h * np.where(flag, 0.9, 0.99) + 0.1 * flag

    np.testing.assert_allclose(gs.loop(gains, np.float64(1), flags, **run).ys, [1, 0.99, 0.991, 0.9919], rtol=1e-15)
    for step in (lambda h, x: h + np.where(x, 4_000_000_000, 0), lambda h, x: h + x * 2_000_000_000 * 2):
        found = gs.loop(step, np.int64(0), flags, **run)
        np.testing.assert_array_equal(found.ys, np.cumsum(flags) * 4_000_000_000)


def test_options_and_gradients_that_do_not_fit_are_named() -> None:
    x, untyped = INPUTS["x"], gs.loop
    calls: list[tuple[type[Exception], dict[str, Any], str]] = [
        (ValueError, {"max_iterations": 0}, "pass an integer of 1 or more"),
        (ValueError, {"max_iterations": "many"}, "max_iterations='many' was passed"),
        (ValueError, {"tolerance": -1.0}, "pass a number of 0 or more"),
        (TypeError, {"tolerance": "small"}, "tolerance='small' was passed"),
        (ValueError, {"method": np.zeros(2)}, "pass one of 'auto', 'sequential', 'newton'"),
    ]
    for error, options, said in calls:
        with pytest.raises(error, match=said):
            untyped(decay, 0.0, x, device="numpy", **options)
    with pytest.raises(TypeError, match="grad_ys of dtype <U1 was passed"):
        gs.loop_vjp(decay, F(0), x, np.full(x.shape, "a"))


def test_a_loop_of_no_steps_gives_init() -> None:
    carry, ys = gs.loop(lambda h, x: (h + x, h > 0), np.ones(3, F), np.ones((0, 3), F), device="numpy")
    np.testing.assert_array_equal(carry, np.ones(3, F))
    assert (ys.shape, ys.dtype) == ((0, 3), np.bool_)


def test_the_form_explains_itself() -> None:
    form = gs.loop_form(BY_NAME["Kalman filter"].step, (F(0), F(1)), INPUTS["x"])
    assert [stage.kind for stage in form.stages] == ["mobius", "affine"]
    assert "carry[1]: mobius" in str(form)
    assert gs.loop_form(decay, 0.0, INPUTS["x"]).stages[0].kind == "affine"


# ----- Gradients


def test_the_gradient_is_that_of_finite_differences() -> None:
    def step(c: Any, x: Any) -> Any:
        mean, level = c
        mean = 0.8 * mean + 0.2 * x[0] * x[1]
        return (mean, np.maximum(level - 0.1, mean)), mean * level + x[1]

    rng = np.random.default_rng(4)
    xs = (rng.normal(size=(12, 2)), rng.normal(size=(12, 2)))
    init: tuple[Any, ...] = (rng.normal(size=2), np.float64(0.3))
    weights, last = rng.normal(size=(12, 2)), (rng.normal(size=2), rng.normal(size=2))

    def value(init: Any, xs: Any) -> float:
        carry, ys = gs.loop(step, init, xs, reverse=True, device="numpy")
        return float((ys * weights).sum() + sum((c * w).sum() for c, w in zip(carry, last, strict=True)))

    from gpuscan.api.loop_vjp import gradients  # noqa: PLC0415 (a device of choice)

    grad_init, grad_xs = gradients(step, init, xs, weights, grad_carry=last, axis=0, reverse=True, device="numpy")
    assert [np.shape(each) for each in grad_init] == [(2,), ()]
    for place in range(2):
        direction = rng.normal(size=(12, 2))
        ends = [
            value(init, tuple(x + sign * 1e-6 * direction * (i == place) for i, x in enumerate(xs))) for sign in (1, -1)
        ]
        assert np.isclose((ends[0] - ends[1]) / 2e-6, (grad_xs[place] * direction).sum(), rtol=1e-5, atol=1e-6)
        ends = [value(tuple(h + sign * 1e-6 * (i == place) for i, h in enumerate(init)), xs) for sign in (1, -1)]
        assert np.isclose((ends[0] - ends[1]) / 2e-6, np.sum(grad_init[place]), rtol=1e-5, atol=1e-6)


def test_the_gradient_on_a_device_is_that_of_numpy(device: gs.Device) -> None:
    from gpuscan.api.loop_vjp import gradients  # noqa: PLC0415

    def step(h: Any, x: Any) -> Any:
        return F(0.9) * h * x[0] + x[1], h * x[1]

    rng = np.random.default_rng(4)
    xs = tuple(rng.normal(size=(30, 2)).astype(F) for _ in range(2))
    weights, last = rng.normal(size=(30, 2)).astype(F), rng.normal(size=2).astype(F)
    wanted = gradients(step, F(1), xs, weights, grad_carry=last, axis=0, reverse=False, device="numpy")
    moved = tuple(map(device.asarray, xs))
    found = gs.loop_vjp(step, F(1), moved, device.asarray(weights), grad_carry=last)
    for ours, theirs in zip(oracle.leaves_of(found), oracle.leaves_of(wanted), strict=True):
        assert isinstance(ours, gs.Array)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)
    ones = device.asarray(np.ones(4, F))
    for number in (1.0, F(1)):
        (grad, _) = gs.loop_vjp(lambda h, x: F(0.5) * h + x, F(0), ones, None, grad_carry=number)
        assert grad.numpy() == 0.5**4


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])
@pytest.mark.parametrize("method", ["auto", "newton"])
def test_results_are_copied_and_pickled(method: Any, copied: Any) -> None:
    found = gs.loop(lambda s, x: s * F(0.5) + x, F(0), np.arange(4, dtype=F), method=method, device="numpy")
    other = copied(found)
    assert (other.carry, other.ys.tolist()) == (found.carry, found.ys.tolist())
    assert (other.form, other.iterations) == (found.form, found.iterations)


@pytest.mark.parametrize("method", ["auto", "sequential", "newton"])
@pytest.mark.parametrize(
    "limits", [{"tolerance": -1}, {"tolerance": "0"}, {"tolerance": np.nan}, {"tolerance": True}, {"tolerance": 1j},
               {"max_iterations": 0}, {"max_iterations": 1.5}, {"max_iterations": None}],
)  # fmt: skip
def test_limits_that_are_no_such_numbers_are_refused_for_every_method(method: Any, limits: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(limits))}=.*was passed"):
        gs.loop(lambda h, x: h + x, 0.0, np.ones(3, F), method=method, device="numpy", **limits)


LONG: dict[str, tuple[Any, Any, Any]] = {
    "many steps": (lambda h, x: h + x, np.int32(0), np.ones(70_000, np.int32)),
    "steps with loops": (lambda h, x: np.gcd(h + 1, x), np.int32(1), np.arange(20_000, dtype=np.int32) * 7919),
    "steps with powers": (lambda h, x: (h & 7) ** (x & 3), np.int32(0), np.arange(30_000, dtype=np.int32)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_sequential_loop_has_more_iterations_than_a_driver_allows(name: str, device: gs.Device) -> None:
    step, init, xs = LONG[name]
    found = gs.loop(step, init, device.asarray(xs), method="sequential")
    oracle.check(found, oracle.run(step, init, xs))
