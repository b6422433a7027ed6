"""Every operation on floats, on every adapter, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.elements import scalar_of
from gpuscan.operators.wgsl_arithmetic import literal
from tests.operators.evaluate import evaluate_map, has_int64, open_device
from tests.operators.numbers import check_floats, float_pairs, pairs_of, same_floats
from tests.oracle import assert_same, strategies_on


def exact_float_operations(x: Any) -> dict[str, Any]:
    """Return operations that give the same bits everywhere, except the sign of zero and the payload of NaN."""
    a, b = x
    return {
        "add": a + b,
        "subtract": a - b,
        "multiply": a * b,
        "negative": -a,
        "absolute": abs(a),
        "minimum": np.minimum(a, b),
        "maximum": np.maximum(a, b),
        "fmin": np.fmin(a, b),
        "fmax": np.fmax(a, b),
        "floor": np.floor(a),
        "ceil": np.ceil(a),
        "trunc": np.trunc(a),
        "rint": np.rint(a),
        "sign": np.sign(a),
        "copysign": np.copysign(a, b),
        "square": a**2,
        "isnan": np.isnan(a),
        "isinf": np.isinf(a),
        "isfinite": np.isfinite(a),
        "signbit": np.signbit(a),
        "differs": a != b,
        "is_nan": a != a,
        "same": a == a,
        "where": np.where(np.isnan(a), b, a),
        "truth": a.astype(bool),
        "either": np.logical_or(a, b),
        "clip": np.clip(a, -2, 2.5),
    }


def float32_operations(x: Any) -> dict[str, Any]:
    a, b = x
    return {"fmod": np.fmod(a, b), "remainder": a % b, "bits": a.view(np.int32) ^ 5}


def test_float32_is_numpys(adapter: wgpu.GPUAdapter) -> None:
    check_floats(exact_float_operations, float_pairs(), adapter)
    check_floats(float32_operations, float_pairs(), adapter)


def test_comparisons_of_floats(adapter: wgpu.GPUAdapter) -> None:
    numbers = [array[np.isfinite(float_pairs()[0]) & np.isfinite(float_pairs()[1])] for array in float_pairs()]

    def comparisons(x: Any) -> dict[str, Any]:
        a, b = x
        return {"less": a < b, "le": a <= b, "greater": a > b, "ge": a >= b, "equal": a == b, "not_equal": a != b}

    check_floats(comparisons, tuple(numbers), adapter)


@pytest.mark.parametrize("kind", ["numbers", "a constant", "NaN"])
def test_choices_between_compared_numbers(adapter: wgpu.GPUAdapter, kind: str) -> None:
    """Assert that a choice by a comparison treats NaN as NumPy does. Some drivers make a minimum or a maximum of it."""

    def choices(x: Any) -> dict[str, Any]:
        a, b = x
        b = b if kind == "numbers" else np.full_like(b, 6 if kind == "a constant" else np.nan)
        orders = {"less": a < b, "le": a <= b, "greater": b > a, "ge": b >= a}
        orders |= {f"not {name}": np.logical_not(holds) for name, holds in orders.items()}
        return {
            f"{name}, {side}": np.where(holds, *pair)
            for name, holds in orders.items()
            for side, pair in (("compared", (a, b)), ("swapped", (b, a)))
        }

    check_floats(choices, float_pairs(), adapter)


def test_minimum_returns_the_nan_itself(adapter: wgpu.GPUAdapter) -> None:
    a, b = float_pairs()
    unordered = np.isnan(a) | np.isnan(b)

    def bits(x: Any) -> dict[str, Any]:
        low, high = np.minimum(x[0], x[1]), np.maximum(x[0], x[1])
        return {"low": low.view(np.uint32), "high": high.view(np.uint32), "fmin": np.fmin(*x).view(np.uint32)}

    results = evaluate_map(open_device(adapter), bits, (a, b), native_int64=has_int64(adapter))
    expected = np.where(np.isnan(a), a, b).view(np.uint32)
    np.testing.assert_array_equal(results["low"][unordered], expected[unordered])
    np.testing.assert_array_equal(results["high"][unordered], expected[unordered])
    # Where there are numbers the zeros are ordered too, so that the operators are associative in every bit.
    assert set(results["low"][(a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b))]) == {0x80000000}
    assert set(results["high"][(a == 0) & (b == 0) & ~(np.signbit(a) & np.signbit(b))]) == {0}


def round_floats(x: Any) -> dict[str, Any]:
    a, b = x
    return {
        "divide": a / b,
        "reciprocal": np.reciprocal(a),
        "floor_divide": a // b,
        "power_half": abs(a) ** 0.5,
        "cube": a**3,
        "inverse_square": a**-2,
        "sqrt": np.sqrt(abs(a)),
        "radians": np.deg2rad(a),
    }


def test_divisions_and_roots(adapter: wgpu.GPUAdapter) -> None:
    a, b = float_pairs()
    large = (np.abs(a) > 1e20) | (np.abs(b) > 1e20) | (np.abs(a) < 1e-20) & (a != 0)  # beyond WGSL's accuracy
    keep = ~large & ~np.isnan(a) & ~np.isnan(b) & (b != 0) & (a != 0)
    check_floats(round_floats, (a[keep], b[keep]), adapter, places=4)


def functions(x: Any) -> dict[str, Any]:
    (a,) = x
    small = a * np.float32(0.04)
    unit = np.tanh(a * np.float32(0.01))
    return {
        "exp": np.exp(small),
        "exp2": np.exp2(small),
        "expm1": np.expm1(small),
        "log": np.log(abs(a) + 0.25),
        "log2": np.log2(abs(a) + 0.25),
        "log10": np.log10(abs(a) + 0.25),
        "log1p": np.log1p(abs(a)),
        "log1p_small": np.log1p(unit * np.float32(0.6)),
        "tanh": np.tanh(small),
        "sinh": np.sinh(small),
        "cosh": np.cosh(small),
        "arctan": np.arctan(a),
        "arcsin": np.arcsin(unit),
        "arccos": np.arccos(unit),
        "cbrt": np.cbrt(a),
        "hypot": np.hypot(a, small),
        "arctan2": np.arctan2(a, small - 1),
        "sin": np.sin(small),
        "cos": np.cos(small),
        "tan": np.tan(small * np.float32(0.2)),
        "power": np.power(abs(a) + 0.125, np.float32(1.7)),
        "logaddexp": np.logaddexp(a, small),
        "logaddexp2": np.logaddexp2(small, a),
    }


def test_functions_are_close(adapter: wgpu.GPUAdapter) -> None:
    a = np.random.default_rng(11).normal(0, 40, 4000).astype(np.float32)
    results = evaluate_map(open_device(adapter), functions, (a,), native_int64=has_int64(adapter))
    for name, expected in functions((a.astype(np.float64),)).items():
        np.testing.assert_allclose(results[name], expected, rtol=4e-6, atol=4e-7, err_msg=name)


def limits_of_functions(x: Any) -> dict[str, Any]:
    a, b = x
    return {
        "logaddexp": np.logaddexp(a, b),
        "hypot": np.hypot(a, b),
        "tanh": np.tanh(a),
        "cbrt": np.cbrt(a),
        "power": np.power(a, b),
        "arctan2": np.arctan2(a, b),
        "floor_divide": a // b,
    }


def test_limits_of_functions(adapter: wgpu.GPUAdapter) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -2.0, 0.5, np.inf, -np.inf, np.nan], np.float32)
    a, b = pairs_of(special, special[:0])
    results = evaluate_map(open_device(adapter), limits_of_functions, (a, b), native_int64=has_int64(adapter))
    with np.errstate(all="ignore"):
        expected = limits_of_functions((a, b))
    for name, value in expected.items():
        good = np.isclose(results[name], value, rtol=1e-4, atol=1e-6, equal_nan=True)
        if name != "logaddexp":  # of -0 and -inf: -0 here, the operand; NumPy gives +0
            good &= (np.signbit(results[name]) == np.signbit(value)) | (value != 0) | np.isnan(value)
        wrong = np.flatnonzero(~good)
        assert not len(wrong), f"{name}: {[(a[i], b[i], results[name][i], value[i]) for i in wrong[:6]]}"


@pytest.mark.parametrize("shape", [(6,), (3, 6), (4, 8), (300, 16)])
def test_signs_under_a_choice(device: Device, shape: tuple[int, ...]) -> None:
    """Compare a choice between a number and its magnitude with a sign, in scans that load single elements."""
    x = np.random.default_rng(3).normal(0, 4, shape).astype(np.float32)

    def chosen(v: Any) -> Any:
        return np.where(v > 5, v, np.copysign(np.abs(v) * 2, v))

    for axis in range(len(shape)):
        last: dict[str, Any] = {"op": lambda l, r: r, "axis": axis, "device": device}
        assert_same(gs.scan(x, before=chosen, **last), chosen(x))
        np.testing.assert_allclose(gs.scan(x, before=np.tanh, **last), np.tanh(x), rtol=4e-6, atol=4e-7)


# ----- 16-bit floats: combined in float32, rounded when stored


def small_float_operations(x: Any) -> dict[str, Any]:
    a, b = x
    return {
        "add": a + b,
        "polynomial": a * b + a,
        "minimum": np.minimum(a, b),
        "constant": a * 2 + 1,
        "less": a < b,
        "where": np.where(np.isnan(a), b, a),
    }


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_once(adapter: wgpu.GPUAdapter, name: str) -> None:
    dtype = np.dtype(np.float16 if name == "float16" else ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        arrays = tuple(array.astype(dtype) for array in float_pairs())
        expected = small_float_operations(tuple(array.astype(np.float32) for array in arrays))
        rounded = {key: v if v.dtype == bool else v.astype(dtype) for key, v in expected.items()}
    results = evaluate_map(open_device(adapter), small_float_operations, arrays, native_int64=has_int64(adapter))
    finite = ~(np.isnan(arrays[0]) | np.isnan(arrays[1]))
    for key, value in rounded.items():
        result = results[key].astype(value.dtype)  # a bfloat16 with a Python number is float32
        good = (result == value) | (np.isnan(result) & np.isnan(value))
        assert np.all(good | (~finite if key == "less" else False)), key


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_numbers_beside_16_bit_floats_are_not_rounded(device: Device, name: str) -> None:
    """Assert that Python's and gpuscan's own constants are combined in float32."""
    dtype = np.dtype(np.float16 if name == "float16" else ml_dtypes.bfloat16)
    x = np.array([1000, 0.3, -7, 0.5], dtype)
    for function in (lambda v: v * 0.1, lambda v: v + 2049, np.deg2rad, np.rad2deg, lambda v: np.logaddexp2(v, v)):
        maps: dict[str, Any] = {"before": function, "after": lambda v: v.astype(np.float32)}
        result = gs.scan(x, lambda l, r: r, device=device, **maps)
        np.testing.assert_allclose(result, function(x.astype(np.float32)), rtol=2e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_astype_of_16_bit_floats_rounds(adapter: wgpu.GPUAdapter, name: str) -> None:
    """Assert rounding to even, subnormals, overflow and NaN included; also of a bit cast."""
    dtype = np.dtype(np.float16 if name == "float16" else ml_dtypes.bfloat16)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        between = (every + np.roll(every, -1)) / 2  # where ties are
    numbers = np.concatenate([every, between, np.nextafter(between, np.float32(np.inf))])
    numbers = numbers[(np.abs(numbers) >= np.finfo(np.float32).tiny) | (numbers == 0) | np.isnan(numbers)]

    def rounding(x: Any) -> dict[str, Any]:
        rounded = x[0].astype(dtype)
        return {"again": rounded.astype(np.float32), "bits": rounded.view(np.uint16), "signed": rounded.view(np.int16)}

    results = evaluate_map(open_device(adapter), rounding, (numbers,), native_int64=has_int64(adapter))
    with np.errstate(all="ignore"):
        expected = rounding((numbers,))
    np.testing.assert_array_equal(results["again"], expected["again"])
    ordered = ~np.isnan(numbers)
    for key in ("bits", "signed"):
        np.testing.assert_array_equal(results[key][ordered], expected[key][ordered])

    def reading(x: Any) -> Any:
        return x[0].view(dtype).astype(np.float32)

    patterns = np.arange(1 << 16, dtype=np.uint16)
    result = evaluate_map(open_device(adapter), reading, (patterns,), native_int64=has_int64(adapter))
    assert np.all(same_floats(result, reading((patterns,))))


def test_literals_are_in_range() -> None:
    """Assert that literals of the largest numbers are not above them, which Tint refuses, and are read as they were."""
    for name in ("float32", "float64"):
        for value in (np.finfo(name).max, np.finfo(name).min, np.finfo(name).tiny, np.dtype(name).type(0.1)):
            spelling = literal(value, scalar_of(np.dtype(name)), native_int64=True).text.rstrip("lf")
            assert abs(float(spelling)) <= float(np.finfo(name).max)
            assert np.dtype(name).type(spelling) == value


# ----- float64, where the adapter has it


def test_float64_is_numpys(adapter: wgpu.GPUAdapter) -> None:
    if "shader-f64" not in adapter.features:
        return  # the planner refuses float64 there
    a, b = (array.astype(np.float64) for array in float_pairs())

    def exact(x: Any) -> dict[str, Any]:
        left, right = x
        return exact_float_operations((left, right)) | {
            "bits": left.view(np.int64) ^ 5,
            "to_int": np.where(np.isfinite(left), left, 0.0).astype(np.int64),
            "narrow": left.astype(np.float32),
            "wide": left.astype(np.float32).astype(np.float64),
            "constant": left * 0.1 - 1e300,
            "infinity": np.where(left > 0, np.inf, left),
        }

    keep = ~(np.abs(a) > 9e18) & ~np.isnan(a)
    check_floats(exact, (a[keep], b[keep]), adapter)


def test_float64_is_rounded_to_whole_numbers(device: gs.Device) -> None:
    """Assert the bits of results, which tell the signs of zeros."""
    if not device.capabilities.float64:
        return
    x = np.array([0, 0.2, 0.5, 0.7, 1.5, 2.5, 3.5, 4.499, 1e15 + 0.5, 2.0**52 - 0.5, 2.0**53, 1e300, np.inf, np.nan])
    x = np.concatenate([x, -x])
    functions: list[Callable[[Any], Any]] = [np.rint, np.trunc, np.floor, np.ceil]
    for function in functions:
        found = function(device.asarray(x)).numpy()
        np.testing.assert_array_equal(found, function(x))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(function(x)))


def test_float64_functions_where_they_end(device: gs.Device) -> None:
    """Assert infinities, NaN and what is near the ends of domains."""
    if not device.capabilities.float64:
        return
    x = np.array([0, 0.5, 1, 1.5, 2, 700, 1e10, 1e300, np.inf, np.nan])
    x = np.concatenate([x, -x])
    names = ["exp", "expm1", "log", "log1p", "exp2", "log2", "log10", "sqrt"]
    names += [prefix + name for prefix in ("", "arc") for name in ("sinh", "cosh", "tanh")]
    for name in names:
        function = getattr(np, name)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(function(device.asarray(x)).numpy(), function(x), rtol=1e-12, err_msg=name)


def test_distant_terms_of_logaddexp_and_powers_of_two(device: gs.Device) -> None:
    """Assert relative errors of a few units where a logarithm of a sum is tiny, or a power of two is far from 1."""

    def compute(function: Any, *arrays: Any) -> Any:
        return function(*(device.asarray(array) for array in arrays)).numpy()

    far = -np.random.default_rng(17).uniform(20, 120, 300)
    for name in ("float32", "float64") if device.capabilities.float64 else ("float32",):
        low, zero, least = (array.astype(name) for array in (far, np.full(300, -0.0), np.full(300, -np.inf)))
        places: dict[str, Any] = {"rtol": 4 * np.finfo(name).eps, "atol": 1e-44}
        np.testing.assert_allclose(compute(np.exp2, low), np.exp2(low), **places)
        for function in (np.logaddexp, np.logaddexp2):
            exact = function(zero.astype(np.float64), low.astype(np.float64)).astype(name)
            np.testing.assert_allclose(compute(function, zero, low), exact, err_msg=function.__name__, **places)
            np.testing.assert_array_equal(compute(function, least, low), low)
            assert not np.signbit(compute(function, zero, least)).any()


def test_float64_functions(adapter: wgpu.GPUAdapter) -> None:
    if "shader-f64" not in adapter.features:
        return  # the planner refuses float64 there
    generator = np.random.default_rng(13)
    a = np.concatenate([generator.normal(0, 1, 500), generator.normal(0, 200, 500), generator.normal(0, 1e-9, 100)])

    def functions64(x: Any) -> dict[str, Any]:
        return {
            "exp": np.exp(x[0]),
            "expm1": np.expm1(x[0]),
            "log": np.log(abs(x[0])),
            "log1p": np.log1p(abs(x[0])),
            "log1p_small": np.log1p(x[0] * 1e-4),
            "logaddexp": np.logaddexp(x[0], x[0] * 0.9),
            "sqrt": np.sqrt(abs(x[0])),
        }

    results = evaluate_map(open_device(adapter), functions64, (a,), native_int64=True)
    for key, expected in functions64((a,)).items():
        np.testing.assert_allclose(results[key], expected, rtol=4e-15, atol=1e-16, err_msg=key)
    edges = np.array([np.inf, -np.inf, np.nan, 0.0, 5e-324, 800.0, -800.0])

    def limits(x: Any) -> dict[str, Any]:
        return {"exp": np.exp(x[0]), "log": np.log(x[0]), "lae": np.logaddexp(x[0], -np.inf)}

    results = evaluate_map(open_device(adapter), limits, (edges,), native_int64=True)
    with np.errstate(all="ignore"):
        for key, expected in limits((edges,)).items():
            np.testing.assert_allclose(results[key], expected, rtol=1e-14, err_msg=key)


def test_long_chunks_of_logaddexp(device: Device) -> None:
    """Assert that compilers accept many combinations in the loops of a look-back, in bounded time and memory."""
    x = np.random.default_rng(0).standard_normal(20_011).astype(np.float32)
    (first, *others) = [gs.scan(x, "logaddexp", device=device, strategy=each) for each in strategies_on(device)]
    np.testing.assert_allclose(first, np.logaddexp.accumulate(x.astype(np.float64)), rtol=1e-5)
    for other in others:
        np.testing.assert_array_equal(other, first)
