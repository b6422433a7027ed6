"""Linear recurrences and their gradient on every adapter give the loop in float64; integers are exact."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.harness.scans import gradients_of
from tests.laws import dtype_of
from tests.oracle import Array, assert_same, limit_examples, some

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
# Layouts: one row, contiguous rows, and columns of one tile. Then few and many columns, of many tiles each.
SHAPES = [((1,), 0), ((2,), 0), ((997,), 0), ((7, 131), 1), ((64, 9), 1), ((2, 3, 5, 4), 2)]
FEW, MANY = ((131, 7), 0), ((3, 257, 20), 1)


def loop(a: Array, b: Array, axis: int, initial: Any, reverse: bool) -> Array:
    """Compute the states by the definition, one t at a time, in float64."""
    gates, inputs = (np.moveaxis(x.astype(np.float64), axis, 0) for x in (a, b))
    if reverse:
        gates, inputs = gates[::-1], inputs[::-1]
    state = (
        np.zeros(gates.shape[1:]) if initial is None else np.broadcast_to(np.asarray(initial, float), gates.shape[1:])
    )
    states = np.empty(gates.shape)
    for t in range(len(gates)):
        state = states[t] = gates[t] * state + inputs[t]
    return np.moveaxis(states[::-1] if reverse else states, 0, axis)


def loop_gradients(
    a: Array, h: Array, grad_h: Array, axis: int, initial: Any, reverse: bool
) -> tuple[Array, Array, Array]:
    """Compute ``G[t] = grad_h[t] + a[t+1] G[t+1]`` and the gradients that follow from it, in float64."""
    gates, states, grads = (np.moveaxis(x.astype(np.float64), axis, 0) for x in (a, h, grad_h))
    if reverse:
        gates, states, grads = gates[::-1], states[::-1], grads[::-1]
    start = (
        np.zeros(gates.shape[1:]) if initial is None else np.broadcast_to(np.asarray(initial, float), gates.shape[1:])
    )
    grad_a, grad_b = np.empty(gates.shape), np.empty(gates.shape)
    later = np.zeros(gates.shape[1:])
    for t in range(len(gates) - 1, -1, -1):
        grad_b[t] = grads[t] + later
        grad_a[t] = grad_b[t] * (states[t - 1] if t else start)
        later = gates[t] * grad_b[t]
    if reverse:
        grad_a, grad_b = grad_a[::-1], grad_b[::-1]
    return np.moveaxis(grad_a, 0, axis), np.moveaxis(grad_b, 0, axis), later


def draw_arrays(shape: tuple[int, ...], dtype: str, seed: int = 0) -> tuple[Array, Array, Array]:
    """Draw gates between 0 and 1, some of them exactly that; inputs and gradients of both signs."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(0, 1, shape)
    a[rng.random(shape) < 0.05] = 0
    a[rng.random(shape) < 0.05] = 1
    return tuple(x.astype(DTYPES[dtype]) for x in (a, rng.normal(size=shape), rng.normal(size=shape)))  # type: ignore[return-value]


def close(got: Any, wanted: Array, dtype: str, note: Any = "") -> None:
    got = np.asarray(got)
    assert got.dtype == DTYPES[dtype], note
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(
        got.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, err_msg=str(note)
    )


@pytest.mark.parametrize(
    ("dtype", "begin", "reverse", "columns"),
    [
        ("float32", False, False, FEW),
        ("float32", False, True, MANY),
        ("float32", True, False, MANY),
        ("float32", True, True, FEW),
        ("float16", False, False, FEW),
        ("float16", True, True, MANY),
        ("bfloat16", False, True, FEW),
        ("bfloat16", True, False, MANY),
    ],
)
def test_every_layout(device: gs.Device, dtype: str, begin: bool, reverse: bool, columns: Any) -> None:
    """Compare states and gradients, forward and reversed, from NumPy and device arrays; shapes take turns."""
    for shape, axis in some(device, (columns, *SHAPES[begin ^ reverse :: 2])):
        a, b, grad_h = draw_arrays(shape, dtype)
        others = tuple(n for i, n in enumerate(shape) if i != axis)
        initial = np.linspace(-1, 1, int(np.prod(others))).reshape(others).astype(DTYPES[dtype]) if begin else None
        note = shape, axis
        wanted = loop(a, b, axis, initial, reverse)
        start = None if initial is None else device.asarray(initial)
        h = gs.linear_recurrence(a, b, axis=axis, initial=initial, reverse=reverse, device=device)
        close(h, wanted, dtype, note)
        close(
            gs.linear_recurrence(device.asarray(a), device.asarray(b), axis=axis, initial=start, reverse=reverse),
            wanted,
            dtype,
            note,
        )
        grads = loop_gradients(a, np.asarray(h), grad_h, axis, initial, reverse)
        found = gradients_of(a, h, grad_h, axis=axis, initial=initial, reverse=reverse, where=device)
        on_device = gs.linear_recurrence_vjp(
            device.asarray(a), device.asarray(h), device.asarray(grad_h), axis=axis, initial=start, reverse=reverse
        )
        for results in (found, on_device):
            for result, gradient in zip(results[:2], grads[:2], strict=True):
                close(result, gradient, dtype, note)
            if begin:
                close(results[2], grads[2], dtype, note)
            else:
                assert results[2] is None


@limit_examples(25)
@given(
    shape=st.sampled_from([(5,), (1, 1), (4, 129), (129, 4), (1, 31, 8), (6, 64), (2, 2, 2, 2, 2)]),
    axis=st.integers(0, 4),
    reverse=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_are_exact(device: gs.Device, shape: tuple[int, ...], axis: int, reverse: bool, seed: int) -> None:
    axis %= len(shape)
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 2**32, shape, dtype=np.uint32) for _ in range(2))
    got = gs.linear_recurrence(a, b, axis=axis, reverse=reverse, device=device)
    gates, inputs = (np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0) for x in (a, b))
    states, state = [], np.zeros(gates.shape[1:], np.uint32)
    for gate, step in zip(gates, inputs, strict=True):
        state = gate * state + step
        states.append(state)
    wanted = np.moveaxis(np.array(states, np.uint32), 0, axis)
    assert_same(got, np.flip(wanted, axis) if reverse else wanted)


@pytest.mark.parametrize(("shape", "axis"), [((131_072,), 0), ((1, 131_072, 2), 1), ((3, 10_007), 1)])
def test_long(device: gs.Device, shape: tuple[int, ...], axis: int) -> None:
    """Scan rows that need many tiles, one of them of prime length."""
    a, b, grad_h = draw_arrays(shape, "float32")
    a *= np.float32(0.99)
    h = gs.linear_recurrence(a, b, axis=axis, device=device)
    close(h, loop(a, b, axis, None, False), "float32")
    grad_a, grad_b, _ = gradients_of(a, h, grad_h, axis=axis, initial=None, reverse=False, where=device)
    for result, wanted in zip((grad_a, grad_b), loop_gradients(a, h, grad_h, axis, None, False), strict=False):
        close(result, wanted, "float32")


def test_the_device_that_is_no_gpu() -> None:
    a, b, grad_h = draw_arrays((5, 40), "float32")
    for reverse in (False, True):
        h = gs.linear_recurrence(a, b, reverse=reverse, initial=2, device="numpy")
        close(h, loop(a, b, 1, 2, reverse), "float32")
        grads = gradients_of(a, h, grad_h, axis=1, initial=2, reverse=reverse, where="numpy")
        *wanted, of_copies = loop_gradients(a, h, grad_h, 1, 2, reverse)
        for result, each in zip(grads, (*wanted, of_copies.sum()), strict=True):
            close(result, each, "float32")


def test_empty(device: gs.Device) -> None:
    empty = np.zeros((3, 0), np.float32)
    assert gs.linear_recurrence(empty, empty, device=device).shape == (3, 0)
    grad_a, grad_b, none = gradients_of(empty, empty, empty, axis=1, initial=None, reverse=False, where=device)
    assert (grad_a.shape, grad_b.shape, none) == ((3, 0), (3, 0), None)


def test_errors(device: gs.Device) -> None:
    a = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match=r"a of shape \(3, 4\) and b of shape \(3, 5\)"):
        gs.linear_recurrence(a, np.ones((3, 5), np.float32), device=device)
    with pytest.raises(TypeError, match=r"a of dtype float32 and b of dtype float16.*dtype="):
        gs.linear_recurrence(a, a.astype(np.float16), device=device)
    for initial in (None, 1.0):
        with pytest.raises(TypeError, match="dtype 'zz' was passed"):
            gs.linear_recurrence(a, a, axis=0, dtype="zz", initial=initial, device=device)
    with pytest.raises(ValueError, match="axis=2 was passed"):
        gs.linear_recurrence(a, a, axis=2, device=device)
    with pytest.raises(ValueError, match=r"initial of shape \(7,\).*\(3,\)"):
        gs.linear_recurrence(a, a, initial=np.ones(7, np.float32), device=device)
    with pytest.raises(ValueError, match=r"initial of shape \(7,\) was passed.*does not broadcast to \(3,\)"):
        gs.linear_recurrence_vjp(a, a, a, initial=np.ones(7, np.float32))
    with pytest.raises(ValueError, match=r"h of shape \(3, 4\) and grad_h of shape \(4,\)"):
        gs.linear_recurrence_vjp(a, a, a[0])
    with pytest.raises(TypeError, match="all must agree"):
        gs.linear_recurrence_vjp(a, a, a.astype(np.float16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_gradients_are_rounded_once(device: gs.Device, dtype: str) -> None:
    """Assert that gradients are summed over broadcast axes, also where products exceed float16."""
    ones = np.ones((5120, 2, 1), dtype_of(dtype))
    a = np.full(18, 2, dtype_of(dtype))
    h, grad_h = np.full(18, 2.0**-14).astype(a.dtype), np.zeros(18, a.dtype)
    grad_h[-1] = 1
    for where in (device, "numpy"):
        found = gradients_of(ones, ones, ones, axis=2, initial=ones[0, :, 0], reverse=False, where=where)[2]
        assert_same(found, np.full(2, 5120, a.dtype))
        grad_a, _, _ = gradients_of(a, h, grad_h, axis=0, initial=None, reverse=False, where=where)
        assert_same(grad_a, np.array([0, *(2.0 ** (2 - i) for i in range(17))]).astype(a.dtype))


@pytest.mark.parametrize("initial", [1 + 1j, [1 + 1j, 2j], np.array([1j])])
def test_complex_starts(device: gs.Device, initial: Any) -> None:
    """Pass Python's and NumPy's complex numbers, which have 128 bits."""
    a = np.full((2, 3), 1 + 1j, np.complex64)
    h = gs.linear_recurrence(a, a, initial=initial, device=device)
    assert_same(h[:, 0], a[:, 0] * np.broadcast_to(np.asarray(initial), (1, 2))[0].astype(np.complex64) + a[:, 0])
    for where in (device, "numpy"):
        grad_initial = gradients_of(a, h, a, axis=1, initial=initial, reverse=False, where=where)[2]
        assert grad_initial.shape == np.shape(initial)
        each = a[0, 0] + a[0, 0] ** 2 + a[0, 0] ** 3
        assert_same(grad_initial.sum(), (each * a[0, 0] * 2).astype(np.complex64))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 1), (2, 1), (1, 3), (2, 3)])
def test_the_gradient_of_what_was_broadcast(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Assert that the gradient has the shape of `initial`, and agrees with small steps."""
    rng = np.random.default_rng(6)
    a, b, grad_h = (rng.integers(-3, 4, (2, 5, 3)).astype(np.float32) for _ in range(3))
    initial = rng.integers(-3, 4, shape).astype(np.float32)
    for reverse in (False, True):
        h = gs.linear_recurrence(a, b, axis=1, initial=initial, reverse=reverse, device="numpy")
        wide = np.broadcast_to(initial, (2, 3))
        _, _, copies = gradients_of(a, h, grad_h, axis=1, initial=wide, reverse=reverse, where=device)
        _, _, found = gradients_of(a, h, grad_h, axis=1, initial=initial, reverse=reverse, where=device)
        assert found.shape == shape
        assert found.sum() == copies.sum()
        for place in np.ndindex(shape):
            moved = initial.copy()
            moved[place] += 1
            there = gs.linear_recurrence(a, b, axis=1, initial=moved, reverse=reverse, device="numpy")
            assert found[place] == ((there - h) * grad_h).sum()  # exact: the states are linear, and all are integers


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(300, 4000), (301, 4001)])
def test_gradients_of_arrays_larger_than_a_binding(
    adapter: wgpu.GPUAdapter, shape: tuple[int, int], reverse: bool
) -> None:
    """Assert that an element finds its neighbour's gate and state if the array exceeds a binding."""
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 22})
    a, b, grad_h = draw_arrays(shape, "float32")
    h = gs.linear_recurrence(a, b, reverse=reverse, device=small)
    wanted = loop_gradients(a, h, grad_h, -1, None, reverse)[:2]
    for arrays in ((a, h, grad_h), tuple(map(small.asarray, (a, h, grad_h)))):
        got = gradients_of(*arrays, reverse=reverse, where=small)[:2]
        for result, expected in zip(got, wanted, strict=True):
            close(result, expected, "float32", (shape, reverse))
    row = tuple(small.asarray(x.reshape(-1)) for x in (a, h, grad_h))
    with pytest.raises(gs.GpuscanError, match="Cut the row"):
        gs.linear_recurrence_vjp(*row, reverse=reverse)


# ----- Gates of another shape or dtype


@pytest.mark.parametrize(("dtype", "reverse", "shapes"), [("float32", False, (0, 1, 2)), ("float16", True, (3,))])
def test_gates_that_broadcast(device: gs.Device, dtype: str, reverse: bool, shapes: tuple[int, ...]) -> None:
    """Compare states and gradients with full gates. The gradient is then summed to the shape of the gates."""
    full, b, grad_h = draw_arrays((5, 40, 6), dtype)
    for a in some(device, [(full[0, 0, 0], full[:, :1], full[0, :, :1], full[0])[i] for i in shapes]):
        wide = np.broadcast_to(a, b.shape)
        initial = b[:, :1, 0].copy()
        wanted = loop(wide, b, 1, initial, reverse)
        states = gs.linear_recurrence(wide, b, axis=1, initial=initial, reverse=reverse, device="numpy")
        every, *others = loop_gradients(wide, states, grad_h, 1, initial, reverse)
        lead = every.ndim - a.ndim
        axes = tuple(i for i in range(every.ndim) if i < lead or a.shape[i - lead] == 1 != every.shape[i])
        of_a = every.sum(axis=axes, keepdims=True).reshape(a.shape)
        of_initial = others[1].sum(axis=1, keepdims=True)
        for where in (device, "numpy", None):
            put = device.asarray if where is None else np.asarray
            gates, inputs, states_there, grads = (put(each) for each in (a, b, states, grad_h))
            h = gs.linear_recurrence(gates, inputs, axis=1, initial=initial, reverse=reverse, device=where)
            close(h, wanted, dtype, (a.shape, where))
            options: dict[str, Any] = {"axis": 1, "initial": initial, "reverse": reverse, "where": where}
            found = gradients_of(gates, states_there, grads, **options)
            for result, each in zip(found, (of_a, others[0], of_initial), strict=True):
                assert isinstance(result, gs.Array) == (where is None)
                assert result.shape == each.shape
                close(result, each, dtype, (a.shape, where))


def test_numbers_as_gates(device: gs.Device) -> None:
    """Assert that a number takes the dtype of the inputs, and that no shader is made for each."""
    b = np.random.default_rng(1).normal(size=(3, 50)).astype(np.float32)
    for number in (0.5, 0.25, 1, np.float32(0.75), np.full((1, 1), 0.1, np.float32)):
        wanted = loop(np.broadcast_to(np.float64(number), b.shape), b, 1, None, False)
        for inputs, where in ((b, device), (device.asarray(b), None), (b, "numpy")):
            close(gs.linear_recurrence(number, inputs, device=where), wanted, "float32", number)
    whole = np.arange(6, dtype=np.int32)
    for where in (device, "numpy"):
        assert_same(gs.linear_recurrence(2, whole, device=where), np.array([0, 1, 4, 11, 26, 57], np.int32))
        with pytest.raises(TypeError, match=r"a of dtype float64 and b of dtype int32.*dtype="):
            gs.linear_recurrence(0.5, whole, device=where)
        halves = gs.linear_recurrence(0.5, whole, dtype=np.float32, device=where)
        close(halves, loop(np.full(6, 0.5), whole, 0, None, False), "float32")
    grad_a, _, _ = gs.linear_recurrence_vjp(0.5, np.ones(4, np.float32), np.ones(4, np.float32))
    assert_same(np.asarray(grad_a), np.float32(1.75 + 1.5 + 1))
    for bad in (np.ones((2, 50), np.float32), np.ones((1, 3, 50), np.float32), np.ones(3, np.float32)):
        with pytest.raises(ValueError, match=r"or in one that broadcasts to it"):
            gs.linear_recurrence(bad, b, device=device)


def test_complex_gates_with_real_inputs(device: gs.Device) -> None:
    rng = np.random.default_rng(2)
    gates = np.exp(1j * rng.uniform(0, 6, (4, 1))).astype(np.complex64) * np.float32(0.9)
    b, grad_h = rng.normal(size=(4, 60)).astype(np.float32), rng.normal(size=(4, 60)).astype(np.complex64)
    wanted = gs.linear_recurrence(np.broadcast_to(gates, b.shape), b.astype(np.complex64), device="numpy")
    full = gs.linear_recurrence_vjp(np.abs(gates).astype(np.complex64) * np.ones((1, 60), np.float32), wanted, grad_h)
    for inputs, where in ((b, device), (device.asarray(b), None), (b, "numpy")):
        h = gs.linear_recurrence(gates, inputs, device=where)
        np.testing.assert_allclose(np.asarray(h), wanted, rtol=1e-4, atol=1e-5)
        assert h.dtype == np.complex64
    for real_gates, where in ((np.abs(gates), device), (device.asarray(np.abs(gates)), None), (np.abs(gates), "numpy")):
        put = device.asarray if where is None else np.asarray
        grad_a, grad_b, _ = gradients_of(real_gates, put(wanted), put(grad_h), where=where)
        assert grad_a.dtype == np.float32
        np.testing.assert_allclose(np.asarray(grad_a), full[0].real.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(np.asarray(grad_b), full[1], rtol=1e-4, atol=1e-4)
