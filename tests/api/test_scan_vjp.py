"""Gradients of scans: finite differences in float64, JAX, closed forms, and the same results on every adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.api.gradients import (
    OPERATORS,
    close,
    differences,
    gradient,
    leaves,
    like,
    loss,
    on_numpy,
    one_by_one,
    positive,
    weights,
)
from tests.oracle import affine

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reverse": True},
    {"segments": [0, 3, 3, 4]},
    {"keys": np.array([2, 2, 0, 0, 0, 1, 1]), "reverse": True},
]
STARTS: list[dict[str, Any]] = [
    {},
    {"exclusive": True},
    {"segments": [0, 1, 4]},
    {"keys": np.arange(7) // 2, "reverse": True},
]


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy compute."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_the_gradient_of_finite_differences(name: str) -> None:
    """Try every operator forward, reversed, cut, exclusive and with an initial value."""
    op, x = OPERATORS[name]
    length = len(leaves(x)[0])
    single = leaves(x)[0].dtype == np.float32
    step, tolerance = (1e-2, 2e-2) if single else (1e-6, 1e-6)
    start = like(x, [leaf[length // 2] * 0.9 for leaf in leaves(x)])
    for cut in OPTIONS + [option | {"initial": start} for option in STARTS]:
        options = dict(cut)
        if "segments" in options:
            options["segments"] = [*options["segments"], length]
        if "keys" in options:
            options["keys"] = options["keys"][:length]
        y = on_numpy(x, op, **options)
        weight = weights(y)
        got = gs.scan_vjp(x, y, weight, op, **options)
        if "initial" in options:
            got, first = got
            rest = {key: value for key, value in options.items() if key != "initial"}
            whole = like(x, [np.asarray(leaf) for leaf in leaves(start)])
            wanted = differences(lambda v: loss(x, op, weight, initial=v, **rest), whole, step)  # noqa: B023
            close(first, wanted, tolerance)
        close(got, differences(lambda v: loss(v, op, weight, **options), x, step), tolerance)  # noqa: B023


# ----- JAX


@jax.jit(static_argnames=("function", "reverse"))
def jax_vjp(x: Any, weight: Any, function: Any, reverse: bool) -> tuple[Any, Any]:
    """Return the results and the gradient of `jax.lax.associative_scan`."""
    y, back = jax.vjp(lambda v: jax.lax.associative_scan(function, v, reverse=reverse), x)
    return y, back(weight)[0]


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize(("name", "reverse"), [("affine", False), ("matmul", True), ("logaddexp", False)])
def test_gradients_are_those_of_jax(name: str, reverse: bool) -> None:
    """Differentiate `jax.lax.associative_scan` of the same operator."""
    op, x = OPERATORS[name]
    x = like(x, [leaf.astype(np.float32) for leaf in leaves(x)])
    weight = weights(x)
    function = {"matmul": jnp.matmul, "logaddexp": jnp.logaddexp}.get(name, op)
    y, wanted = jax_vjp(x, weight, function, reverse)
    y = like(x, [np.asarray(leaf) for leaf in leaves(y)])
    close(gs.scan_vjp(x, y, weight, op, reverse=reverse), wanted, 2e-5)


@pytest.mark.usefixtures("numpy_device")
def test_complex_gradients_are_the_conjugates_of_those_of_jax() -> None:
    """Differentiate a product of complex numbers: the gradient is PyTorch's."""
    x = (positive(6) + 1j * positive(6)[::-1]).astype(np.complex64)
    weight = weights(x)
    y, wanted = jax_vjp(x, np.conj(weight), jnp.multiply, False)
    close(gs.scan_vjp(x, np.asarray(y), weight, "multiply"), np.conj(wanted), 2e-5)


# ----- Numbers of every type


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize(
    "op",
    [
        affine,
        lambda l, r: (l[0] * r[0], np.abs(r[0]) * l[1] + r[1]),
        lambda l, r: (l[0] * r[0], l[1] + np.conj(r[1]) * np.complex64(1j) + np.conj(r[0])),
    ],
)
@pytest.mark.parametrize("gates", [np.complex64, np.float32])
def test_complex_numbers(op: Callable[[Any, Any], Any], gates: Any) -> None:
    """Differentiate analytic and other functions of complex numbers, and of real and complex ones together."""
    shift = (positive(5)[::-1] - 0.5j * positive(5)).astype(np.complex64)
    x = (
        (positive(5) + 0.3j * positive(5)[::-1]).astype(gates) if gates is np.complex64 else positive(5).astype(gates),
        shift,
    )
    y = one_by_one(x, op)
    weight = weights(y)
    start = like(x, [leaf[:1].reshape(()) for leaf in x])
    close(gs.scan_vjp(x, y, weight, op), differences(lambda v: loss(v, op, weight), x, 1e-2), 2e-2)
    y = one_by_one(x, op, initial=start)
    got, first = gs.scan_vjp(x, y, weight, op, initial=start)
    close(got, differences(lambda v: loss(v, op, weight, initial=start), x, 1e-2), 2e-2)
    close(first, differences(lambda v: loss(x, op, weight, initial=v), start, 1e-2), 2e-2)


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_computed_in_float32(dtype: Any) -> None:
    """Compare with the gradient of the same numbers in float32, rounded."""
    x = positive(9).astype(dtype)
    y = on_numpy(x, "multiply")
    weight = weights(y)
    wide = [array.astype(np.float32) for array in (x, y, weight)]
    assert np.array_equal(gs.scan_vjp(x, y, weight, "multiply"), gradient(wide, "multiply").astype(dtype))


class Pair(NamedTuple):
    """A bundle within a bundle."""

    inner: Any
    outer: Any


@pytest.mark.usefixtures("numpy_device")
def test_structured_and_nested_elements() -> None:
    """Get the gradient in the form of the input."""
    record = np.zeros(5, [("gain", np.float32), ("shift", np.float32)])
    record["gain"], record["shift"] = positive(5), positive(5)[::-1]
    plain = record["gain"].copy(), record["shift"].copy()
    op = gs.operator(lambda l, r: {"gain": l["gain"] * r["gain"], "shift": r["gain"] * l["shift"] + r["shift"]})
    y = on_numpy(record, op)
    got = gs.scan_vjp(record, y, y, op)
    wanted = gs.scan_vjp(plain, (y["gain"].copy(), y["shift"].copy()), (y["gain"].copy(), y["shift"].copy()), affine)
    assert got.dtype == record.dtype
    assert np.array_equal(got["gain"], wanted[0])
    assert np.array_equal(got["shift"], wanted[1])

    nested = Pair({"a": plain[0]}, plain[1])

    def same(left: Pair, right: Pair) -> Pair:
        return Pair({"a": left.inner["a"] * right.inner["a"]}, right.inner["a"] * left.outer + right.outer)

    states = on_numpy(nested, same)
    found = gs.scan_vjp(nested, states, states, same)
    assert isinstance(found, Pair)
    assert np.array_equal(found.inner["a"], wanted[0])
    assert np.array_equal(found.outer, wanted[1])


# ----- Closed forms


@pytest.mark.usefixtures("numpy_device")
def test_products_with_zeros() -> None:
    """Divide by no element: one zero and two zeros have their right gradients."""
    ones = np.ones(5, np.float32)
    for x in ([2, 3, 0, 5, 7], [2, 0, 3, 0, 5], [0, 0, 1, 1, 1]):
        array = np.array(x, np.float32)
        wanted: Any = [sum(np.prod(np.delete(array[: t + 1], i)) for t in range(i, 5)) for i in range(5)]
        assert np.array_equal(gs.scan_vjp(array, on_numpy(array, "multiply"), ones, "multiply"), wanted)


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize(
    ("op", "x", "wanted"),
    [
        ("maximum", [1, 3, 3, 2, 4, 4], [1, 3, 0, 0, 2, 0]),
        ("minimum", [3, 3, 5, 1, 1, 2], [3, 0, 0, 3, 0, 0]),
        (lambda l, r: np.where(l > r, l, r), [1, 3, 3, 2, 4, 4], [1, 1, 2, 0, 1, 1]),
        ("logaddexp", [-np.inf, -np.inf, 0, -np.inf], [1, 0, 2, 0]),
        ("hypot", [0, 0, 3, 4], [1, 0, 1 + 3 / 5, 4 / 5]),
        ("maximum", [1, np.nan, 2, 3], [1, 3, 0, 0]),
    ],
)
def test_kinks(op: Any, x: list[float], wanted: list[float]) -> None:
    """Take the derivative that is documented where there are several."""
    array = np.array(x, np.float32)
    got = gs.scan_vjp(array, on_numpy(array, op), np.ones_like(array), op)
    np.testing.assert_allclose(got, np.array(wanted, np.float32), rtol=1e-6)


@pytest.mark.usefixtures("numpy_device")
def test_one_initial_value_for_all_rows_gets_their_sum() -> None:
    """Broadcast an initial value, and sum its gradient over what it was broadcast to."""
    x = positive(3, 4)
    y = on_numpy(x, "multiply", axis=1, initial=2.0)
    for initial, wanted in (
        (2.0, (y / 2).sum()),
        (np.full((3,), 2.0), (y / 2).sum(1)),
        (np.full(1, 2.0), [(y / 2).sum()]),
    ):
        _, first = gs.scan_vjp(x, y, np.ones_like(y), "multiply", axis=1, initial=initial)
        assert np.shape(first) == np.shape(initial)
        np.testing.assert_allclose(first, wanted)


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (3, 1)])
def test_few_elements(shape: tuple[int, ...]) -> None:
    """Differentiate scans of axes of length 0 and 1."""
    x = np.full(shape, 3, np.float32)
    y = on_numpy(x, "multiply", axis=-1)
    weight = np.full(shape, 2, np.float32)
    assert np.array_equal(gs.scan_vjp(x, y, weight, "multiply", axis=-1), weight)
    got, first = gs.scan_vjp(x, on_numpy(x, "multiply", axis=-1, initial=5), weight, "multiply", axis=-1, initial=5)
    assert np.array_equal(got, 5 * weight)
    assert first == 6 * x.size


# ----- Adapters

U = np.random.default_rng(0).uniform(0.7, 1.2, (3, 134))
COMPOSED = gs.operator(affine, identity=(1, 0))
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "affine of rows": (COMPOSED, (U[:2, :130].reshape(4, 65), U[1:, :130].reshape(4, 65)), {"axis": 1}),
    "affine of columns": (
        affine,
        (U[0].reshape(67, 2), U[1].reshape(67, 2)),
        {"axis": 0, "reverse": True, "initial": (0.5, U[0, :2])},
    ),
    "affine of segments": (affine, (U[0], U[1]), {"segments": [0, 5, 5, 31, 134], "initial": (0.5, 0.25)}),
    "affine of runs": (affine, (U[0], U[1]), {"keys": np.arange(134) // 45, "exclusive": True, "initial": (1.0, 0.0)}),
    "complex": (affine, tuple(np.exp(0.3j * U[i]) for i in range(2)), {}),
    "logaddexp": ("logaddexp", 10 * U[0] - 10, {}),
    "matmul": ("matmul", U[:, :132].reshape(99, 2, 2) / 2, {"exclusive": True}),
    "maximum": ("maximum", np.round(U[0], 1), {"reverse": True, "initial": 0.8}),
    "sum": ("add", U, {"axis": 1, "initial": 1.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_adapters_give_what_numpy_gives(device: gs.Device, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the gradients of NumPy arrays and of arrays on the device with NumPy's in float64."""
    op, given, options = CASES[name]
    narrow = np.complex64 if name == "complex" else np.float32
    x = like(given, [leaf.astype(narrow) for leaf in leaves(given)])
    y = on_numpy(x, op, **options)
    weight = weights(y)
    wide = narrow if name == "complex" else np.float64
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    exact = [like(given, [leaf.astype(wide) for leaf in leaves(each)]) for each in (x, y, weight)]
    wanted = gradient(exact, op, **options)
    monkeypatch.setenv("GPUSCAN_ADAPTER", device.capabilities.summary)
    on_device = [like(given, [device.asarray(leaf) for leaf in leaves(each)]) for each in (x, y, weight)]
    from_numpy, from_device = gs.scan_vjp(x, y, weight, op, **options), gradient(on_device, op, **options)
    if "initial" in options:
        first = like(given, [leaf.astype(narrow) for leaf in leaves(wanted[1])])
        assert all(isinstance(leaf, gs.Array) for leaf in leaves(from_device[1]))
        close(from_numpy[1], first, 1e-5)
        close(from_device[1], first, 1e-5)
        wanted, from_numpy, from_device = wanted[0], from_numpy[0], from_device[0]
    wanted = like(given, [leaf.astype(narrow) for leaf in leaves(wanted)])
    assert all(isinstance(leaf, gs.Array) for leaf in leaves(from_device))
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves(from_numpy))
    close(from_numpy, wanted, 1e-5)
    close(from_device, wanted, 1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"op": "multiply"},
        {"op": "multiply", "exclusive": True, "reverse": True},
        {"op": "maximum", "segments": [0, 3, 3, 7]},
        {"op": "add", "keys": np.arange(7) // 3},
        {"op": lambda l, r: l * r + r, "exclusive": True},
    ],
)
@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("shape", [(), (1,), None], ids=["one", "length-1", "each"])
def test_initial_values_on_a_device(
    device: gs.Device, options: dict[str, Any], rows: int, shape: tuple[int, ...] | None
) -> None:
    """Give initial values from the device the gradient of NumPy's, for arrays here and there."""
    x = np.random.default_rng(1).uniform(0.5, 1.5, (rows, 7)).astype(np.float32)
    initial = np.random.default_rng(2).uniform(0.5, 1.5, (rows,) if shape is None else shape).astype(np.float32)
    y = gs.scan(x, axis=1, initial=initial, device="numpy", **options)
    weight = weights(y)
    wanted = gs.scan_vjp(x, y, weight, axis=1, initial=initial, **options)
    there = device.asarray(initial)
    for given in ((x, y, weight), tuple(map(device.asarray, (x, y, weight)))):
        found = gs.scan_vjp(*given, axis=1, initial=there, **options)
        assert np.shape(found[1]) == initial.shape
        for one, other in zip(found, wanted, strict=True):
            close(one, other, 1e-5)


LAYOUTS: list[tuple[tuple[int, ...], Any, dict[str, Any]]] = [
    ((20_011,), np.float32, {}),
    ((3, 5003), np.float32, {"axis": 1, "reverse": True}),
    ((2003, 5), np.float32, {"axis": 0}),
    ((2, 301, 6), np.float16, {"axis": 1, "reverse": True}),
    ((13, 701), np.float16, {"axis": 1}),
    ((5003,), np.float32, {"exclusive": True}),
]


@pytest.mark.parametrize(("shape", "dtype", "options"), LAYOUTS)
def test_kernels_read_the_neighbours_of_every_layout(
    device: gs.Device, shape: tuple[int, ...], dtype: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare gradients of device arrays of many tiles with the gradients that NumPy computes from shifted copies."""
    x = tuple(np.random.default_rng(i).uniform(0.9, 1.02, shape).astype(dtype) for i in range(2))
    y = on_numpy(x, COMPOSED, **options)
    weight = weights(y)
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    wanted = gs.scan_vjp(x, y, weight, COMPOSED, **options)
    on_device = [tuple(device.asarray(leaf) for leaf in each) for each in (x, y, weight)]
    close(gradient(on_device, COMPOSED, **options), wanted, 1e-5 if dtype is np.float32 else 2e-3)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2, 1303), {"axis": 1}), ((2, 301, 6), {"axis": 1}), ((301, 6), {"axis": 0, "reverse": True})],
)
def test_kernels_know_the_first_elements(
    device: gs.Device, shape: tuple[int, ...], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare gradients of maxima, where first elements are their own results even if they are the identity."""
    x = np.round(np.random.default_rng(0).normal(size=shape), 1).astype(np.float32).cumsum(options["axis"]) / 4
    edge = tuple((-1 if options.get("reverse") else 0) if i == options["axis"] else slice(0, 2) for i in range(x.ndim))
    x[edge] = -np.inf
    x.flat[x.size // 2] = np.nan
    y = on_numpy(x, "maximum", **options)
    weight = weights(y)
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    wanted = gs.scan_vjp(x, y, weight, "maximum", **options)
    assert np.any(wanted[edge])
    close(gradient(map(device.asarray, (x, y, weight)), "maximum", **options), wanted, 1e-5)


# ----- What is refused

INTEGERS = np.arange(4, dtype=np.int32)
FLOATS = np.arange(4, dtype=np.float32)


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize(
    ("x", "op", "message"),
    [
        (INTEGERS, "add", "elements of int32.*floats and complex numbers only"),
        (INTEGERS, "bitwise_xor", "elements of int32"),
        ((FLOATS, INTEGERS), lambda l, r: (l[0] + r[0], l[1] + r[1]), "a field 'f1' of int32"),
        (FLOATS, gs.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a + b; }"), "is WGSL"),
        (FLOATS, lambda l, r: (l.view(np.uint32) | r.view(np.uint32)).view(np.float32), "reads the bits of numbers"),
    ],
)
def test_operators_without_derivatives_are_refused(x: Any, op: Any, message: str) -> None:
    """Name what has no derivative."""
    with pytest.raises(gs.OperatorError, match=message):
        gs.scan_vjp(x, x, x, op)


@pytest.mark.usefixtures("numpy_device")
@pytest.mark.parametrize(
    ("y", "grad_y", "error", "message"),
    [
        (FLOATS[:3], FLOATS, ValueError, r"y of shape \(3,\)"),
        (FLOATS, FLOATS[:, None], ValueError, "grad_y of shape"),
        (FLOATS, FLOATS.astype(np.float64), TypeError, "grad_y of dtype float64"),
        ((FLOATS, FLOATS), FLOATS, ValueError, "y of 2 arrays"),
    ],
)
def test_what_is_not_like_x_is_refused(y: Any, grad_y: Any, error: type[Exception], message: str) -> None:
    """Say which argument differs, and how."""
    with pytest.raises(error, match=message):
        gs.scan_vjp(FLOATS, y, grad_y)
