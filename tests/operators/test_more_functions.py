"""Functions beyond plain arithmetic on every adapter, against NumPy: divisors, bits, complex numbers, axes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from tests.operators.evaluate import evaluate_map, has_int64, open_device
from tests.operators.numbers import INTEGERS, check, check_floats, float_pairs, forms_of_int64, integer_pairs
from tests.oracle import assert_same, pick_strategies


def evaluate_on(adapter: wgpu.GPUAdapter, function: Any, arrays: tuple[Any, ...], axes: int = 0) -> Any:
    return evaluate_map(open_device(adapter), function, arrays, native_int64=has_int64(adapter), axes=axes)


# ----- Integers


@pytest.mark.parametrize("dtype", INTEGERS)
def test_divisors_multiples_and_bits(adapter: wgpu.GPUAdapter, dtype: str) -> None:
    def operations(x: Any) -> dict[str, Any]:
        a, b = x
        return {"gcd": np.gcd(a, b), "lcm": np.lcm(a, b), "bits": np.bitwise_count(a), "round": np.round(a)}

    for native in forms_of_int64(adapter, dtype):
        check(operations, integer_pairs(dtype), adapter, native)


# ----- Real numbers


def test_rounding_and_closeness(adapter: wgpu.GPUAdapter) -> None:
    def operations(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "round": np.round(a),
            "quarters": np.round(a, -1),
            "known": np.nan_to_num(a),
            "replaced": np.nan_to_num(a, nan=5.0, posinf=1.0, neginf=2.0),
            "close": np.isclose(a, b, rtol=0.1),
            "same": np.isclose(a, a, equal_nan=True),
        }

    a, b = float_pairs()
    keep = (np.abs(a) < 1e9) | ~np.isfinite(a)
    check_floats(operations, (a[keep], b[keep]), adapter, places=2)


def test_inverse_hyperbolic_functions(adapter: wgpu.GPUAdapter) -> None:
    rng = np.random.default_rng(3)
    unit = np.concatenate([rng.uniform(-1, 1, 500), [0.0, 1e-5, -1e-5, 0.999, -0.999]]).astype(np.float32)
    wide = (unit * np.float32(10) ** rng.uniform(-6, 30, unit.shape)).astype(np.float32)

    def functions(x: Any) -> dict[str, Any]:
        a, b, c = x
        return {"arcsinh": np.arcsinh(b), "arccosh": np.arccosh(c), "arctanh": np.arctanh(a)}

    above_one = 1 + np.abs(wide)
    results = evaluate_on(adapter, functions, (unit, wide, above_one))
    for name, expected in functions((unit, wide, above_one)).items():
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)
    edges = np.array([np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 0.0], np.float32)
    results = evaluate_on(adapter, functions, (edges, edges, edges))
    with np.errstate(all="ignore"):
        for name, expected in functions((edges, edges, edges)).items():
            np.testing.assert_allclose(results[name], expected, rtol=1e-5, err_msg=name)


def test_undefined_values_of_functions(adapter: wgpu.GPUAdapter) -> None:
    """Assert that NaN and numbers outside the domain give NaN, and infinities what NumPy gives."""
    edges = np.array([np.nan, np.inf, -np.inf, -1.0, -2.0, 0.0, 1.0], np.float32)
    names = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sinh", "cosh", "tanh", "arctan", "cbrt")

    def functions(x: Any) -> dict[str, Any]:
        return {name: getattr(np, name)(x[0]) for name in names}

    results = evaluate_on(adapter, functions, (edges,))
    with np.errstate(all="ignore"):
        for name, expected in functions((edges,)).items():
            np.testing.assert_allclose(results[name], expected, rtol=1e-4, err_msg=name)


# ----- Choices


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "float32", "bfloat16"])
def test_choices_of_python_numbers_take_the_type_of_the_others(adapter: wgpu.GPUAdapter, dtype: str) -> None:
    """Choose between an array and numbers of Python: NumPy gives all choices the type of the array."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = np.arange(12).astype(kind)

    def choose(x: Any) -> dict[str, Any]:
        low, high = x[0] < x[0].dtype.type(3), x[0] > x[0].dtype.type(8)
        return {
            "first": np.select([low, high], [x[0], 0], 1),
            "last": np.select([low, high], [5, 6], x[0]),
            "second": np.select([low, high], [5, x[0]]),
        }

    results = evaluate_on(adapter, choose, (a,))
    for name, expected in choose((a,)).items():
        assert results[name].dtype == expected.dtype == kind, name
        np.testing.assert_array_equal(results[name].astype(float), expected.astype(float), err_msg=name)
    if kind.kind == "f":
        halves = evaluate_on(adapter, lambda x: np.select([x[0] < 3, x[0] > 8], [x[0], 0.5], 1.5), (a,))
        assert halves.dtype == kind
        np.testing.assert_array_equal(halves, np.select([a < 3, a > 8], [a, 0.5], 1.5))


# ----- Complex numbers


def test_complex_functions(adapter: wgpu.GPUAdapter) -> None:
    rng = np.random.default_rng(4)
    parts = rng.normal(0, 2, (4, 500)).astype(np.float32)
    a, b = (parts[0] + 1j * parts[1]).astype(np.complex64), (parts[2] + 1j * parts[3]).astype(np.complex64)
    b[:3] = [1, 1j, -2]
    a[:4] = [4, -4, 9j, -9j]

    def functions(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "divide": a / b,
            "by a number": a / 2,
            "reciprocal": np.reciprocal(b),
            "exp": np.exp(a),
            "log": np.log(b),
            "sqrt": np.sqrt(a),
            "cube": a**3,
            "inverse square": b**-2,
        }

    results = evaluate_on(adapter, functions, (a, b))
    for name, expected in functions((a, b)).items():
        assert results[name].dtype == np.complex64
        close = np.abs(results[name] - expected) <= 1e-3 * np.abs(expected) + 1e-6
        assert np.all(close), (name, a[~close][:4], b[~close][:4], results[name][~close][:4])
    exact = evaluate_on(adapter, lambda x: (x[0] / x[1], np.sqrt(x[0])), (a * 0 + 8, b * 0 + 4))
    assert_same(exact[0], np.full(500, 2, np.complex64))
    np.testing.assert_allclose(exact[1], np.sqrt(a * 0 + 8), rtol=1e-6)


def test_complex_questions(adapter: wgpu.GPUAdapter) -> None:
    """Ask for NaN and infinities, and compare complex numbers with NaN as one part."""
    numbers = [0.0, 1.5, np.inf, -np.inf, np.nan]
    every = np.array([complex(x, y) for x in numbers for y in numbers], np.complex64)
    a, b = (np.ascontiguousarray(each.ravel()) for each in np.meshgrid(every, every))

    def questions(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "nan": np.isnan(a),
            "inf": np.isinf(a),
            "finite": np.isfinite(a),
            "same": a == b,
            "other": a != b,
            "itself": a == a,
            "not itself": a != a,
            "not zero": a != 0,
            "true": a.astype(bool),
        }

    results = evaluate_on(adapter, questions, (a, b))
    for name, expected in questions((a, b)).items():
        assert_same(results[name], expected)


def test_rounded_complex_numbers(adapter: wgpu.GPUAdapter) -> None:
    parts = np.random.default_rng(6).integers(-999, 999, (2, 300)).astype(np.float32) / 16
    a = (parts[0] + 1j * parts[1]).astype(np.complex64)

    def round_parts(x: Any) -> dict[str, Any]:
        return {"rint": np.rint(x[0]), "round": np.round(x[0]), "tenths": np.round(x[0], 1)}

    results = evaluate_on(adapter, round_parts, (a,))
    for name, expected in round_parts((a,)).items():
        np.testing.assert_allclose(results[name], expected, rtol=1e-6, err_msg=name)


def test_powers_of_a_complex_zero(adapter: wgpu.GPUAdapter) -> None:
    """Raise zero to powers: of a positive real part it is zero, and of another one it is NaN, unless both are zero."""
    exponents = np.array([1, 2.5, 1 + 1j, -1, -2, -1 + 1j, 1j, -1j, 0], np.complex64)
    zeros = np.zeros_like(exponents)
    with np.errstate(all="ignore"):
        expected = np.power(zeros, exponents)
    assert_same(evaluate_on(adapter, lambda x: np.power(x[0], x[1]), (zeros, exponents)), expected)


def test_bundles_of_many_complex_fields(device: Device) -> None:
    """Assert that fields share a buffer if there are more of them than an adapter binds."""
    x = {f"f{i}": (np.arange(50) % 7 + 1j * i).astype(np.complex64) for i in range(20)}
    got = gs.scan(x, lambda l, r: {name: l[name] + r[name] for name in l}, device=device)
    for name, field in x.items():
        assert_same(got[name], np.cumsum(field))


# ----- Axes of the element


def test_axes_and_products_of_the_element(adapter: wgpu.GPUAdapter) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-9, 9, (60, 3, 3)).astype(np.float32) for _ in range(2))

    def operations(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "dots": np.vecdot(a, b),
            "applied": np.matvec(a, b[..., 0]),
            "columns": np.unstack(a, axis=-1)[1] + np.unstack(b, axis=-2)[2],
            "numbers": sum(np.unstack(np.unstack(a, axis=-1)[0], axis=-1)),
            "expanded": np.squeeze(np.expand_dims(a, axis=-2), axis=-2),
            "sum": np.expand_dims(a[..., 0], axis=-1) * b,
            "mean": np.mean(a * 3, axis=-1),
            "kept": np.mean(a * 3, axis=-2, keepdims=True),
        }

    results = evaluate_on(adapter, operations, (a, b), axes=2)
    for name, expected in operations((a, b)).items():
        np.testing.assert_allclose(results[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


# ----- Named operators


def test_fmin_and_fmax_pass_over_nan(device: Device) -> None:
    rng = np.random.default_rng(6)
    x = np.where(rng.random(3000) < 0.4, np.nan, rng.normal(0, 9, 3000)).astype(np.float32)
    x[:5] = np.nan
    for rotation, ufunc in enumerate((np.fmin, np.fmax)):
        wanted = ufunc.accumulate(x)
        for strategy in pick_strategies(device, rotation):
            np.testing.assert_array_equal(gs.scan(x, ufunc, device=device, strategy=strategy), wanted)
        np.testing.assert_array_equal(gs.scan(x, ufunc.__name__, device="numpy"), wanted)
        exclusive = gs.scan(x, ufunc, exclusive=True, device=device)
        np.testing.assert_array_equal(exclusive, np.append(np.float32(np.nan), wanted[:-1]))
        whole = rng.integers(-99, 99, 500).astype(np.int16)
        assert_same(gs.scan(whole, ufunc, device=device), ufunc.accumulate(whole))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int32", "int64", "uint64"])
def test_gcd_by_name(device: Device, dtype: str) -> None:
    rng = np.random.default_rng(7)
    x = (rng.integers(1, 20, 900) * 6).astype(dtype)
    x[0] = 120
    x[3] = 0
    if np.iinfo(dtype).min:
        x[5] *= -1
    for device_or_name in (device, "numpy"):
        assert_same(gs.scan(x, "gcd", device=device_or_name), np.gcd.accumulate(x))
        assert gs.reduce(x, np.gcd, device=device_or_name) == np.gcd.reduce(x)
    assert gs.reduce(x[:0], "gcd", device=device) == 0


def test_functions_too_long_for_a_gpu_run_on_numpy(device: Device) -> None:
    x = np.random.default_rng(9).integers(0, 99, 50).astype(np.int32)

    def sum_by_detours(l: Any, r: Any) -> Any:
        total = l + r
        for i in range(1, 3501):
            total = total + i - 2 * i + i
        return total

    op = gs.operator(sum_by_detours, identity=0)
    with pytest.raises(gs.OperatorError, match=r"more than 10,000 operations .* or device=\"numpy\""):
        gs.scan(x, op, device=device)
    assert_same(gs.scan(x, op, device="numpy"), x.cumsum(dtype=np.int32))


def test_hypot_and_logaddexp2_by_name(device: Device) -> None:
    x = np.random.default_rng(8).normal(0, 3, 2000).astype(np.float32)
    for ufunc in (np.hypot, np.logaddexp2):
        wanted = ufunc.accumulate(x.astype(np.float64))
        for device_or_name in (device, "numpy"):
            got = gs.scan(x, ufunc.__name__, device=device_or_name)
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    empty = x[:0]
    assert gs.reduce(empty, "hypot", device=device) == 0
    assert gs.reduce(empty, "logaddexp2", device=device) == -np.inf


# ----- Small matrices


def test_small_linear_algebra(adapter: wgpu.GPUAdapter) -> None:
    """Compare solutions, inverses, determinants and sums of products; some matrices need their rows swapped."""
    rng = np.random.default_rng(10)
    a, b = (rng.normal(size=(200, 3, 3)).astype(np.float32) for _ in range(2))
    a[::3, 0, 0] = 0
    a += np.sign(a) * np.float32(0.5) * np.eye(3, dtype=np.float32)[[1, 2, 0]]
    a = a[np.linalg.cond(a) < 50]
    b = b[: len(a)]
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)

    def operations(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "solve": np.linalg.solve(a, b),
            "inv": np.linalg.inv(a),
            "det": np.linalg.det(a),
            "cholesky": np.linalg.cholesky(a @ a.mT + np.eye(3, dtype=np.float32)),
            "of the upper half": np.linalg.cholesky(a @ a.mT + np.eye(3, dtype=np.float32), upper=True),
            "norm": np.linalg.norm(a, axis=-1),
            "cross": np.cross(a[..., 0, :], b[..., 1, :]),
            "product": np.einsum("...ij,...jk->...ik", a, b),
            "traces": np.einsum("...ii,...jj", a, b),
            "form": np.einsum("...i,ij,...j->...", a[..., 0], weights, b[..., 0]),
            "turned": np.matrix_transpose(a),
            "flat": np.reshape(a, a.shape[:-2] + (9,)),  # noqa: RUF005 (a traced shape)
            "wide": np.broadcast_to(a[..., :1, :], b.shape),
        }

    results = evaluate_on(adapter, operations, (a, b), axes=2)
    for name, expected in operations((a, b)).items():
        assert results[name].dtype == expected.dtype, name
        np.testing.assert_allclose(results[name], expected, rtol=2e-4, atol=2e-4, err_msg=name)
    z = (a[:, :2, :2] + 1j * b[:, :2, :2]).astype(np.complex64)
    z = z[np.linalg.cond(z) < 50]

    def of_complex(x: Any) -> Any:
        positive = x[0] @ np.conj(x[0]).mT + np.eye(2, dtype=np.complex64)
        return np.linalg.inv(x[0]), np.linalg.det(x[0]), np.linalg.cholesky(positive)

    inverse, det, factor = evaluate_on(adapter, of_complex, (z,), axes=2)
    np.testing.assert_allclose(factor, of_complex((z,))[2], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(inverse, np.linalg.inv(z), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(det, np.linalg.det(z), rtol=1e-3, atol=1e-3)


def test_complex_waves_and_powers(adapter: wgpu.GPUAdapter) -> None:
    rng = np.random.default_rng(11)
    parts = rng.uniform(-3, 3, (4, 300)).astype(np.float32)
    a, b = (parts[0] + 1j * parts[1]).astype(np.complex64), (parts[2] + 1j * parts[3]).astype(np.complex64)
    a[0], b[1] = 0, 0

    def functions(x: Any) -> dict[str, Any]:
        a, b = x
        return {
            "sin": np.sin(a),
            "cos": np.cos(a),
            "sinh": np.sinh(a),
            "cosh": np.cosh(a),
            "tanh": np.tanh(a),
            "power": np.where(b.real > 0, a**b, b),
            "root": a**0.5,
            "cube root": a ** (1 / 3),
            "angle": np.angle(a),
        }

    results = evaluate_on(adapter, functions, (a, b))
    with np.errstate(all="ignore"):
        for name, expected in functions((a, b)).items():
            assert results[name].dtype == expected.dtype, name
            close = np.abs(results[name] - expected) <= 2e-3 * np.abs(expected) + 1e-5
            assert np.all(close), (name, a[~close][:4], b[~close][:4], results[name][~close][:4], expected[~close][:4])


def test_more_functions_of_float64(adapter: wgpu.GPUAdapter) -> None:
    if not {"shader-f64", "shader-int64"} <= set(adapter.features):
        with pytest.raises(gs.OperatorError, match="64-bit numbers"):
            evaluate_on(adapter, lambda x: np.tanh(x[0]), (np.ones(3),))
        return
    rng = np.random.default_rng(12)
    x = np.concatenate([rng.uniform(-1, 1, 300) * 10.0 ** rng.uniform(-8, 2.5, 300), [0.0, -0.0, 700.0, -700.0]])
    unit, above = np.tanh(x) * 0.999, 1 + np.abs(x)

    def functions(v: Any) -> dict[str, Any]:
        x, unit, above = v
        return {
            "tanh": np.tanh(x),
            "sinh": np.sinh(x),
            "cosh": np.cosh(x),
            "exp2": np.exp2(x),
            "log2": np.log2(above),
            "log10": np.log10(above),
            "arcsinh": np.arcsinh(x),
            "arccosh": np.arccosh(above),
            "arctanh": np.arctanh(unit),
            "hypot": np.hypot(x, unit),
        }

    results = evaluate_on(adapter, functions, (x, unit, above))
    for name, expected in functions((x, unit, above)).items():
        np.testing.assert_allclose(results[name], expected, rtol=1e-12, atol=1e-300, err_msg=name)
    edges = np.array([np.inf, -np.inf, np.nan])
    results = evaluate_on(adapter, functions, (edges, edges, edges))
    with np.errstate(all="ignore"):
        for name, expected in functions((edges, edges, edges)).items():
            np.testing.assert_array_equal(results[name], expected, err_msg=name)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: np.dot(x, x), r"np\.dot of whole arrays .* np\.vecdot"),
        (lambda x: np.einsum("ij,jk->ik", x, x), "begin the subscripts of each operand"),
        (lambda x: np.einsum("...ij,...jk->...il", x, x), "is not traced"),
        (lambda x: np.einsum("...i,...i->...", x, x), "has 2 axes, its subscripts 'i' name 1"),
        (lambda x: np.reshape(x, (2, 2)), r"x\.shape\[:-1\] \+ \(2, 2\)"),
        (lambda x: x.reshape(-1), "names every axis of an array"),
        (lambda x: x.reshape(x.shape[:-2] + (5,)), "cannot reshape"),  # noqa: RUF005
        (lambda x: np.broadcast_to(x, (3, 2, 2)), "names every axis of an array"),
        (lambda x: np.broadcast_to(x[..., 0], x.shape), "would not line up"),
        (lambda x: np.linalg.solve(x, x[..., 0]), "must be a matrix of the element"),
        (lambda x: np.linalg.inv(x.astype(np.int32)), "write .astype"),
        (lambda x: np.linalg.norm(x, ord=1, axis=-1), "the Euclidean norm is"),
        (lambda x: np.linalg.eigvals(x), r"np\.linalg\.eigvals is not traced"),
    ],
)
def test_what_is_not_traced_says_what_to_write(function: Any, said: str) -> None:
    op = gs.operator(lambda l, r: function(l), element_axes=2)
    with pytest.raises(gs.OperatorError, match=said):
        gs.check_associative(op, np.float32, shape=(2, 2))
