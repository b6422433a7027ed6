"""`gpuscan.selective_scan`, its gradient and one step of it give what mamba's formula does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import half_of

# Which axes B and C have, and whether the states are complex.
FORMS = ("fixed", "varying", "grouped", "complex")
NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


def arguments(form: str, with_all: bool, seed: int = 0) -> dict[str, Any]:
    """Return arguments of float64 for 2 batches of 4 channels of 3 states."""
    rng = np.random.default_rng(seed)
    batch, dim, states, length = 2, 4, 3, 19
    shapes: dict[str, Any] = {"fixed": [(dim, states)] * 2, "varying": [(batch, states, length), (dim, states)],
              "grouped": [(batch, 2, states, length), (batch, 1, states, length)],
              "complex": [(batch, states, length)] * 2}  # fmt: skip
    decays = -rng.random((dim, states))
    weights = [rng.normal(size=shape) for shape in shapes[form]]
    if form == "complex":
        decays = decays + 1j * rng.normal(size=decays.shape)
        weights = [each + 1j * rng.normal(size=each.shape) for each in weights]
    u, delta = rng.normal(size=(batch, dim, length)), np.abs(rng.normal(size=(batch, dim, length)))
    found = dict(zip(NAMES, (u, delta, decays, *weights), strict=False))
    if with_all:
        found |= {"D": rng.normal(size=dim), "z": rng.normal(size=u.shape), "delta_bias": rng.normal(size=dim)}
    return found


def formula(
    u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, delta_bias: Any = None, soft: bool = False  # noqa: N803
) -> tuple[Any, Any]:  # fmt: skip
    """Compute one step after the other."""
    step = delta if delta_bias is None else delta + delta_bias[:, np.newaxis]
    step = np.log1p(np.exp(step)) if soft else step
    batch, dim, length = u.shape

    def at(weights: Any, t: int) -> Any:
        if weights.ndim == 2:
            return weights
        weights = weights if weights.ndim == 4 else weights[:, np.newaxis]
        return np.repeat(weights[..., t], dim // weights.shape[1], axis=1)

    h, y = np.zeros((batch, *A.shape), np.result_type(A, u)), np.empty(u.shape)
    for t in range(length):
        dt = step[:, :, t, np.newaxis]
        h = np.exp(dt * A) * h + dt * at(B, t) * u[:, :, t, np.newaxis]
        sums = (h * at(C, t)).sum(-1)
        y[..., t] = 2 * sums.real if np.iscomplexobj(A) else sums
    y = y if D is None else y + u * D[:, np.newaxis]
    return (y if z is None else y * z / (1 + np.exp(-z))), h


def narrow(given: dict[str, Any]) -> dict[str, Any]:
    return {name: each.astype(np.complex64 if np.iscomplexobj(each) else np.float32) for name, each in given.items()}


def assert_near(found: Any, wanted: Any, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=atol * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("form", FORMS)
def test_on_numpy(form: str) -> None:
    """Compare with the formula and with its differences."""
    rng = np.random.default_rng(5)
    given = arguments(form, True)
    soft: dict[str, Any] = {"delta_softplus": True, "device": "numpy"}
    wanted = formula(**given, soft=True)
    found = gs.selective_scan(**given, return_last_state=True, **soft)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other, 1e-12)
    weights = rng.normal(size=wanted[0].shape), rng.normal(size=wanted[1].shape)
    grads = gs.selective_scan_vjp(
        **given, grad_y=weights[0], grad_last_state=weights[1].astype(wanted[1].dtype), **soft
    )
    for name, grad in zip(NAMES, grads, strict=True):
        assert grad.shape == given[name].shape
        way = rng.normal(size=grad.shape) * (1 + 1j if np.iscomplexobj(grad) else 1)
        losses = []
        for side in (1e-5, -1e-5):
            results = formula(**given | {name: given[name] + side * way}, soft=True)
            losses.append(sum((one.real * weight).sum() for one, weight in zip(results, weights, strict=True)))
        np.testing.assert_allclose((np.conj(grad) * way).real.sum(), (losses[0] - losses[1]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("form", ["varying", "grouped", "complex"])
def test_on_devices(device: gs.Device, form: str) -> None:
    """Compare with the formula and with the gradients on NumPy."""
    for with_all in half_of(device, [True, False], FORMS.index(form)):
        given = arguments(form, with_all)
        options: dict[str, Any] = {"delta_softplus": with_all}
        wanted = formula(**given, soft=with_all)
        grads = {"grad_y": np.cos(wanted[0]), "grad_last_state": np.sin(wanted[1])}
        exact = gs.selective_scan_vjp(**given, **grads, **options, device="numpy")
        for on_device in (False, True):
            there, weights = narrow(given), narrow(grads)
            if on_device:
                there, weights = ({n: device.asarray(x) for n, x in part.items()} for part in (there, weights))
            found = gs.selective_scan(**there, return_last_state=True, device=device, **options)
            for one, other in zip(found, wanted, strict=True):
                assert isinstance(one, gs.Array) == on_device
                assert_near(one, other)
            found = gs.selective_scan_vjp(**there, **weights, device=device, **options)
            for one, other in zip(found, exact, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    assert isinstance(one, gs.Array) == on_device
                    assert_near(one, other, 1e-4)


@pytest.mark.parametrize("form", ["complex", "one state"])
def test_gradients_of_arrays_of_the_host(device: gs.Device, form: str) -> None:
    """Compute the gradient with softplus by several kernels, and of one state with weights that many channels share."""
    rng = np.random.default_rng(0)
    if form == "complex":
        decays = -rng.random((2, 3)) + 1j * rng.normal(size=(2, 3))
        weights = rng.normal(size=(2, 2, 3)) + 1j * rng.normal(size=(2, 2, 3))
        given = dict(
            zip(NAMES, (rng.normal(size=(3, 2, 20)), rng.normal(size=(3, 2, 20)), decays, *weights), strict=False)
        )
    else:
        shapes = ((1, 4, 17), (1, 4, 17), (4, 1), (1, 1, 17), (1, 1, 17))
        given = dict(zip(NAMES, (rng.normal(size=shape) for shape in shapes), strict=False))
        given["A"] = -np.exp(given["A"])
    grad = np.cos(given["u"])
    exact = gs.selective_scan_vjp(**given, grad_y=grad, delta_softplus=True, device="numpy")
    found = gs.selective_scan_vjp(**narrow(given | {"grad_y": grad}), delta_softplus=True, device=device)
    for one, other in zip(found, exact, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_near(one, other, 1e-4)


@pytest.mark.parametrize("heads", [1, 2])
def test_steps(device: gs.Device, heads: int) -> None:
    """Take the steps of a scan one by one, also with heads and groups, and compare with the scan."""
    given = arguments("fixed", True)
    given |= {name: np.random.default_rng(3).normal(size=(2, 3, 6)) for name in "BC"}
    given |= {name: given[name][..., :6] for name in ("u", "delta", "z")}
    wanted, last = formula(**given, soft=True)
    small = narrow(given)
    for on_device in (False, True):
        state: Any = np.zeros((2, 4, 3) if heads == 1 else (2, heads, 2, 3), np.float32)
        state = device.asarray(state) if on_device else state

        def cut(array: Any, lead: int = 1) -> Any:
            return array if heads == 1 else array.reshape(*array.shape[: lead - 1], heads, 2, *array.shape[lead:])

        fixed = {"A": cut(small["A"]), "D": cut(small["D"]), "dt_bias": cut(small["delta_bias"])}
        for t in range(6):
            moving = {name: cut(small[name][..., t], lead=2) for name in ("u", "delta", "z")}
            weights = {name: small[name][..., t] for name in "BC"}
            if heads > 1 and t % 2:
                weights = {name: each[:, np.newaxis] for name, each in weights.items()}
            y = gs.selective_state_update(
                state, moving["u"], moving["delta"], **fixed, **weights, z=moving["z"], dt_softplus=True
            )
            assert isinstance(y, gs.Array) == on_device
            assert_near(np.asarray(y).reshape(2, 4), wanted[..., t])
        assert_near(np.asarray(state).reshape(last.shape), last)


def test_steps_of_complex_states(device: gs.Device) -> None:
    """Compare with the scan, which takes twice the real part of the sum over the states."""
    rng = np.random.default_rng(5)

    def draw(*shape: int) -> Any:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)

    moving: dict[str, Any] = {name: rng.random((2, 3, 5), np.float32) for name in ("u", "delta", "z")}
    weights: dict[str, Any] = {name: draw(2, 4, 5) for name in "BC"}
    fixed: dict[str, Any] = {"A": draw(3, 4) - 3, "D": rng.random(3, np.float32)}
    wanted = gs.selective_scan(**moving, **weights, **fixed, device="numpy")
    for make in (np.asarray, device.asarray):
        state: Any = make(np.zeros((2, 3, 4), np.complex64))
        for t in range(5):
            x, dt, z = (make(moving[name][..., t].copy()) for name in ("u", "delta", "z"))
            now: dict[str, Any] = {name: make(each[..., t].copy()) for name, each in weights.items()}
            now |= {name: make(array) for name, array in fixed.items()}
            y = gs.selective_state_update(state, x, dt, **now, z=z)
            assert_near(np.asarray(y), wanted[..., t])


def test_narrow_floats() -> None:
    given = {name: each.astype(np.float16) for name, each in arguments("varying", True).items()}
    wanted, last = formula(**{name: each.astype(float) for name, each in given.items()}, soft=True)
    y, state = gs.selective_scan(**given, delta_softplus=True, return_last_state=True, device="numpy")
    assert (y.dtype, state.dtype) == (np.float16, np.float32)
    assert_near(y.astype(float), wanted, 2e-3)
    assert_near(state, last)
    grads = gs.selective_scan_vjp(**given, grad_y=given["u"], delta_softplus=True, device="numpy")
    assert {each.dtype for each in grads} == {np.dtype(np.float16)}


def test_errors() -> None:
    given = narrow(arguments("varying", False))
    for name, value, error, message in [
        ("u", given["u"][0], ValueError, r"u of shape \(4, 19\) was passed; pass an array \(batch, dim, length\)"),
        ("delta", given["u"][:1], ValueError, r"delta of shape \(1, 4, 19\) was passed for u of shape \(2, 4, 19\)"),
        ("A", given["A"].T, ValueError, r"A of shape \(3, 4\) was passed for 4 channels; pass an array \(4, N\)"),
        ("B", given["B"][0], ValueError, r"B of shape \(3, 19\) was passed; pass an array \(4, 3\), \(2, 3, 19\), or"),
        ("C", None, TypeError, "C=None was passed"),
        ("u", given["u"].astype(int), TypeError, "u of dtype int64 was passed"),
    ]:
        with pytest.raises(error, match=message):
            gs.selective_scan(**given | {name: value}, device="numpy")
    state, x = np.zeros((2, 4, 3), np.float32), given["u"][..., 0]
    with pytest.raises(ValueError, match=r"B of shape \(2, 4\) was passed for a state of shape \(2, 4, 3\)"):
        gs.selective_state_update(state, x, x, given["A"], x, x)
    with pytest.raises(TypeError, match="state of type list was passed, which cannot be written"):
        gs.selective_state_update([0.0], x, x, given["A"], x, x)
