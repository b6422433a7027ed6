"""Gated linear attention and the gated delta rule give what their recurrences do, step by step in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from gpuscan.engine import linear_attention as engine
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.reference import attention_stages as stages
from tests.oracle import half_of

# The forms: decays of heads, decays of keys, and the delta rule.
FORMS = ("heads", "keys", "delta")
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "heads": (gs.gated_linear_attention, gs.gated_linear_attention_vjp),
    "keys": (gs.gated_linear_attention, gs.gated_linear_attention_vjp),
    "delta": (gs.gated_delta_rule, gs.gated_delta_rule_vjp),
}


def arguments(form: str, shape: tuple[int, ...], seed: int = 0) -> list[Any]:
    """Return q, k, v, g and with the delta rule beta, for a shape (batch, time, head, key, value)."""
    rng = np.random.default_rng(seed)
    *steps, keys, values = shape
    q, k, v = (rng.normal(size=(*steps, numbers)) for numbers in (keys, keys, values))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = -0.3 * rng.exponential(size=(*steps, keys) if form == "keys" else steps)
    return [q, k, v, g, *([rng.random(steps)] if form == "delta" else [])]


def state_of(shape: tuple[int, ...], seed: int = 1) -> Any:
    batches, _, heads, keys, values = shape
    return np.random.default_rng(seed).normal(size=(batches, heads, keys, values))


def recurrence(given: list[Any], state: Any, scale: float) -> tuple[Any, Any]:
    """Compute one step after the other."""
    q, k, v, g, *beta = given
    o = np.empty(v.shape)
    for t in range(k.shape[1]):
        gate = g[:, t] if g.ndim == 4 else g[:, t, :, np.newaxis]
        state = np.exp(gate)[..., np.newaxis] * state
        update = v[:, t]
        if beta:
            update = beta[0][:, t, :, np.newaxis] * (update - np.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t, :, :, np.newaxis] * update[:, :, np.newaxis]
        o[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], state)
    return o, state


def narrow(arrays: Any) -> list[Any]:
    return [array.astype(np.float32) for array in arrays]


def assert_near(found: Any, wanted: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=atol * max(1, np.abs(wanted).max()))


# ----- The twin on NumPy, against the recurrence and its differences


@pytest.mark.parametrize("form", FORMS)
def test_on_numpy(form: str) -> None:
    function, vjp = FUNCTIONS[form]
    rng = np.random.default_rng(3)
    for shape in ((2, 75, 2, 5, 3), (1, 1, 1, 1, 2)):
        given, state = arguments(form, shape), state_of(shape)
        wanted = recurrence(given, state, 0.7)
        found = function(*given, scale=0.7, initial_state=state, output_final_state=True, device="numpy")
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other, 1e-12)
        weights = rng.normal(size=wanted[0].shape), rng.normal(size=state.shape)
        grads = vjp(*given, weights[0], scale=0.7, initial_state=state, grad_final_state=weights[1], device="numpy")
        points = [*given, state]
        assert len(grads) == len(points)

        def loss(points: list[Any], weights: Any = weights) -> Any:
            found = recurrence(points[:-1], points[-1], 0.7)
            return sum((one * weight).sum() for one, weight in zip(found, weights, strict=True))

        for place, grad in enumerate(grads):
            assert grad.shape == points[place].shape
            way = rng.normal(size=grad.shape)
            ends = [loss([x + side * way if i == place else x for i, x in enumerate(points)]) for side in (1e-5, -1e-5)]
            np.testing.assert_allclose((grad * way).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-6)


# ----- On devices


@pytest.mark.parametrize("form", FORMS)
def test_on_devices(device: gs.Device, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Compare with the recurrence and with the gradients on NumPy, also in stretches and by heads."""
    function, vjp = FUNCTIONS[form]
    # Rows of several products, odd numbers, several stretches, one step, and long keys.
    shapes = [(2, 70, 3, 40, 36), (1, 100, 2, 5, 7), (1, 1, 1, 1, 1), (1, 33, 1, 130, 8)]
    for shape in half_of(device, shapes, FORMS.index(form)):
        few: dict[str, Any] = {}
        if shape[1] == 100:
            few = {"max_attention_chunks": 2, "attention_state_numbers": 1 << 30}
        monkeypatch.setattr(engine, "ARRAYS", replace(ARRAYS, **few))
        given, state = arguments(form, shape), state_of(shape)
        wanted = recurrence(given, state, shape[3] ** -0.5)
        options: dict[str, Any] = {"initial_state": state.astype(np.float32), "device": device}
        found = function(*narrow(given), output_final_state=True, **options)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == np.float32
            assert_near(one, other)
        weights = np.cos(wanted[0]), np.sin(wanted[1])
        of_state = weights[1].astype(np.float32)
        grads = vjp(*narrow(given), weights[0].astype(np.float32), grad_final_state=of_state, **options)
        exact = vjp(*given, weights[0], initial_state=state, grad_final_state=weights[1], device="numpy")
        for one, other in zip(grads, exact, strict=True):
            assert one.dtype == np.float32
            assert_near(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_stages(device: gs.Device, form: str) -> None:
    """Compare what the stages leave behind with what their twins return."""
    shape = 1, 45, 2, 6, 5
    given = narrow(arguments(form, shape))
    beta = given[4] if form == "delta" else None
    there: list[Any] = [device.asarray(x) for x in given[:4]]
    attention = engine.DeviceAttention(*[*there, None, 0.5, None])
    if beta is not None:
        attention = replace(attention, beta=device.asarray(beta))
    attention.outputs()
    host = stages.HostAttention(*[*given[:4], beta, 0.5, None])
    matrices = attention._matrices._read()
    gates = attention._gates._read()[: given[3].size].reshape(given[3].shape)
    for number, first in enumerate((0, 32)):
        chunk = host._chunk(first)
        assert_near(gates[:, first : first + 32].swapaxes(1, 2), chunk.gates)
        for place, twin in enumerate(stages.pairs(chunk)):
            if twin is not None:
                steps = twin.shape[-1]
                assert_near(matrices[number, :, :, place, :steps, :steps], twin)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_on_a_device(device: gs.Device, form: str) -> None:
    """Keep arrays on the device, in any memory order, and launch later calls of other lengths."""
    function, vjp = FUNCTIONS[form]
    for length in (40, 40, 70):
        given = narrow(arguments(form, (1, length, 2, 4, 6), length))
        there = [device.asarray(np.ascontiguousarray(x.swapaxes(1, 2))).swapaxes(1, 2) for x in given]
        o, state = function(*there, output_final_state=True)
        grads = vjp(*there, o)
        wanted = recurrence(given, np.zeros((1, 2, 4, 6)), 0.5)
        assert isinstance(o, gs.Array)
        assert isinstance(state, gs.Array)
        assert_near(o, wanted[0])
        assert_near(state, wanted[1])
        *exact, nothing = vjp(*given, o.numpy(), device="numpy")
        assert grads[-1] is nothing is None
        for one, other in zip(grads, exact, strict=False):
            assert isinstance(one, gs.Array)
            assert_near(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_extreme_decays_and_weights(device: gs.Device, form: str) -> None:
    """Forget at once, keep all, write all and nothing. NaN stays in its head."""
    function, vjp = FUNCTIONS[form]
    shape = 1, 50, 3, 4, 6
    given = arguments(form, shape)
    given[3][:, 10], given[3][:, 11], given[3][:, 33] = -1e4, -np.inf, -200
    given[3][:, 20:30] = 0
    if form == "delta":
        given[4][:, ::4], given[4][:, 1::4] = 0, 1
    exact = [x.copy() for x in given]
    given[2][0, 5, 1] = np.nan
    weights = np.ones(given[2].shape, np.float32)
    o = function(*narrow(given), device=device)
    wanted, _ = recurrence(exact, np.zeros((1, 3, 4, 6)), 0.5)
    # After a very small decay, sums of logarithms round by a few 1e-5 until the chunk ends.
    assert_near(o[:, :, ::2], wanted[:, :, ::2], 1e-3)
    assert np.isnan(o[0, 5:, 1]).all()
    grads, twins = vjp(*narrow(given), weights, device=device), vjp(*exact, weights, device="numpy")
    for one, other in zip(grads[:-1], twins[:-1], strict=True):
        assert_near(one[:, :, ::2], other[:, :, ::2], 1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_parts_and_narrow_floats(device: gs.Device, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Compute some heads at a time where a device binds little, and round 16-bit results once."""
    function, vjp = FUNCTIONS[form]
    shape = 2, 40, 3, 4, 6
    given = [x.astype(ml_dtypes.bfloat16) for x in arguments(form, shape)]
    given[3] = given[3].astype(np.float16)
    state = state_of(shape).astype(np.float32)
    wanted, last = recurrence([x.astype(np.float64) for x in given], state, 0.5)
    monkeypatch.setattr(type(device._context), "binding_limit", 4096)
    for on_device in (False, True):
        there = [device.asarray(x) for x in given] if on_device else given
        o, found = function(*there, initial_state=state, output_final_state=True, device=device)
        assert o.dtype == ml_dtypes.bfloat16
        assert isinstance(o, gs.Array) == on_device
        assert_near(np.asarray(o).astype(np.float64), wanted, 1e-2)
        assert_near(found, last)
        grads = vjp(*there, o, initial_state=state, grad_final_state=found, device=device)
        twins = vjp(*given, np.asarray(o), initial_state=state, grad_final_state=np.asarray(found), device="numpy")
        assert [each.dtype for each in grads] == [each.dtype for each in twins]
        for one, other in zip(grads, twins, strict=True):
            assert_near(np.asarray(one).astype(np.float64), other.astype(np.float64), 1e-2)


@pytest.mark.parametrize("form", FORMS)
def test_pieces_of_batches(device: gs.Device, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Compute two batches at a time, while others are uploaded and read."""
    function, vjp = FUNCTIONS[form]
    shape = 5, 40, 3, 4, 6
    given, state = narrow(arguments(form, shape)), state_of(shape).astype(np.float32)
    options: dict[str, Any] = {"initial_state": state, "device": device}
    whole = function(*given, output_final_state=True, **options)
    grads = vjp(*given, whole[0], grad_final_state=whole[1], **options)
    small = replace(ARRAYS, piece_bytes=2 * 4 * 40 * 3 * 6)
    monkeypatch.setattr("gpuscan.api.linear_attention.ARRAYS", small)
    in_pieces = function(*given, output_final_state=True, **options)
    for one, other in zip(in_pieces, whole, strict=True):
        assert_near(one, other)
    for one, other in zip(vjp(*given, whole[0], grad_final_state=whole[1], **options), grads, strict=True):
        assert_near(one, other)


def test_errors(device: gs.Device) -> None:
    q, k, v, g, beta = narrow(arguments("delta", (1, 3, 2, 4, 5)))
    for wrong, error, message in [
        ((q[0], k, v, g, beta), ValueError, r"q of shape \(3, 2, 4\) was passed for keys of shape \(1, 3, 2, 4\)"),
        ((q, k[:, :0], v, g, beta), ValueError, r"k of shape \(1, 0, 2, 4\) was passed; pass an array \(batch, time"),
        ((q, k, v[:, :2], g, beta), ValueError, r"v of shape \(1, 2, 2, 5\)"),
        ((q, k, v, np.zeros_like(q), beta), ValueError, r"g of shape .*; pass an array of shape \(1, 3, 2\)"),
        ((q, k, v, g, beta.astype(int)), TypeError, r"beta of dtype int64 was passed, but attention takes floats"),
        ((q.astype(float), k, v, g, beta), gs.UnsupportedDtypeError, r"q of dtype float64 .* device=\"numpy\""),
    ]:
        with pytest.raises(error, match=message):
            gs.gated_delta_rule(*wrong, device=device)
    with pytest.raises(ValueError, match=r"initial_state of shape \(1,\).*pass an array of shape \(1, 2, 4, 5\)"):
        gs.gated_linear_attention(q, k, v, g, initial_state=np.zeros(1, np.float32), device=device)
    scales: list[Any] = ["0.5", [0.5, 1.0], 1j]
    for wrong_scale in scales:
        with pytest.raises(TypeError, match=r"scale=.* was passed, but it is the factor of the outputs"):
            gs.gated_linear_attention(q, k, v, g, scale=wrong_scale, device=device)
    with pytest.raises(TypeError, match="grad_o=None was passed"):
        gs.gated_linear_attention_vjp(q, k, v, g, None, device=device)
