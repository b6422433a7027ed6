"""Every operation that a traced function may use, on every adapter, against NumPy on the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wgpu

from tests.gpu.evaluate import evaluate_map, has_int64, open_device

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
Array = np.ndarray[Any, Any]


def forms_of_int64(adapter: wgpu.GPUAdapter, dtype: str) -> list[bool]:
    """Whether to test 64-bit integers natively, as two words, or both."""
    return [True, False] if has_int64(adapter) and dtype.endswith("64") else [has_int64(adapter)]


def pairs_of(special: Array, random: Array) -> tuple[Array, Array]:
    """Every special number with every other, then random numbers."""
    left, right = np.meshgrid(special, special)
    half = len(random) // 2
    return np.concatenate([left.ravel(), random[:half]]), np.concatenate([right.ravel(), random[half:]])


def integer_pairs(dtype: str) -> tuple[Array, Array]:
    limits = np.iinfo(dtype)
    near = [
        limits.min,
        limits.min + 1,
        limits.max - 1,
        limits.max,
        limits.max // 3,
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        31,
        32,
        33,
        63,
    ]
    special = np.array([n for n in near if n <= limits.max] + ([-1, -2, -7] if limits.min else [64, 65]), dtype)
    generator = np.random.default_rng(5)
    random = generator.integers(limits.min, limits.max, 400, dtype=dtype, endpoint=True)
    random[::3] >>= np.asarray(limits.bits // 2, dtype)  # divisors of few bits
    return pairs_of(special, random)


def integer_operations(x: Any) -> dict[str, Any]:
    a, b = x
    return {
        "add": a + b,
        "subtract": a - b,
        "multiply": a * b,
        "floor_divide": a // b,
        "remainder": a % b,
        "fmod": np.fmod(a, b),
        "minimum": np.minimum(a, b),
        "maximum": np.maximum(a, b),
        "fmin": np.fmin(a, b),
        "negative": -a,
        "positive": +a,
        "absolute": abs(a),
        "sign": np.sign(a),
        "square": np.square(a),
        "power": np.power(a, b & 7),
        "power5": a**5,
        "and_": a & b,
        "or_": a | b,
        "xor_": a ^ b,
        "invert": ~a,
        "left": a << b,
        "right": a >> b,
        "left3": a << 3,
        "right3": a >> 3,
        "left_far": a << 100,
        "right_far": a >> 100,
        "by_zero": a // 0,
        "by_seven": a // 7,
        "mod_seven": a % 7,
        "less": a < b,
        "less_equal": a <= b,
        "greater": a > b,
        "greater_equal": a >= b,
        "equal": a == b,
        "not_equal": a != b,
        "beyond": a < 10**30,
        "where": np.where(a > b, a, b),
        "clip": np.clip(a, 3, 100),
        "logical": np.logical_xor(a, b),
        "not_": np.logical_not(a),
        "floor": np.floor(a),
        "isnan": np.isnan(a),
        "mixed": (a + b) // np.maximum(b, 1) + (a << 2),
    }


def check(function: Callable[[Any], dict[str, Any]], arrays: tuple[Array, ...], adapter: Any, native: bool) -> None:
    """The function on the GPU gives the bits and dtypes that it gives on NumPy."""
    results = evaluate_map(open_device(adapter), function, arrays, native_int64=native)
    with np.errstate(all="ignore"):
        expected = function(arrays)
    for name, value in expected.items():
        assert results[name].dtype == value.dtype, name
        wrong = np.flatnonzero(results[name] != value)
        shown = [(*(array[i] for array in arrays), results[name][i], value[i]) for i in wrong[:4]]
        assert not len(wrong), f"{name} (arguments, result, expected): {shown}"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_numpys(adapter: wgpu.GPUAdapter, dtype: str) -> None:
    for native in forms_of_int64(adapter, dtype):
        check(integer_operations, integer_pairs(dtype), adapter, native)


# ----- bool


def bool_operations(x: Any) -> dict[str, Any]:
    a, b = x
    return {
        "add": a + b,
        "multiply": a * b,
        "minimum": np.minimum(a, b),
        "maximum": np.maximum(a, b),
        "and_": a & b,
        "or_": a | b,
        "xor_": a ^ b,
        "invert": ~a,
        "less": a < b,
        "less_equal": a <= b,
        "greater": a > b,
        "greater_equal": a >= b,
        "equal": a == b,
        "not_equal": a != b,
        "where": np.where(a, b, ~b),
        "with_true": a & True,
        "count": a.astype(np.int8) + b.astype(np.int8),
    }


def test_bool_is_numpys(adapter: wgpu.GPUAdapter) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    check(bool_operations, (a, b), adapter, has_int64(adapter))


# ----- floats

NAN_BITS = 0x7FC00123  # a NaN with a payload


def float_numbers() -> Array:
    special = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 100.0, -7.25, 2.0**24, -(2.0**31), 2.0**40, 1e30, -1e-30]
    nan = np.array([NAN_BITS, NAN_BITS | 0x80000000], np.uint32).view(np.float32)
    return np.concatenate([np.array([*special, np.inf, -np.inf], np.float32), nan])


def float_pairs() -> tuple[Array, Array]:
    random = np.random.default_rng(7).normal(0, 50, 600).astype(np.float32)
    random[::4] = np.round(random[::4])
    return pairs_of(float_numbers(), random)


def exact_float_operations(x: Any) -> dict[str, Any]:
    """What gives the same bits everywhere, but for the sign of zero and the payload of NaN."""
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


def same_floats(result: Array, expected: Array) -> Any:
    """Equal, or both NaN. Numbers that GPUs may flush to zero count as zero."""
    tiny = np.finfo(np.float32).tiny
    flushed = (np.abs(expected) < tiny) & (np.abs(result) < tiny)
    return (result == expected) | (np.isnan(result) & np.isnan(expected)) | flushed


def check_floats(
    function: Callable[[Any], dict[str, Any]], arrays: tuple[Array, ...], adapter: Any, places: float = 0.0,
    expected: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """The function on the GPU gives NumPy's dtypes, and its floats to some units in the last place."""
    results = evaluate_map(open_device(adapter), function, arrays, native_int64=has_int64(adapter))
    with np.errstate(all="ignore"):
        expected = expected or function(arrays)
        for name, value in expected.items():
            result = results[name]
            assert result.dtype == value.dtype, name
            good = same_floats(result, value) if value.dtype.kind == "f" else result == value
            if places:
                good |= np.abs(result - value) <= places * np.spacing(np.abs(value))
            wrong = np.flatnonzero(~good)
            shown = [(*(array[i] for array in arrays), result[i], value[i]) for i in wrong[:4]]
            assert not len(wrong), f"{name} (arguments, result, expected): {shown}"


def test_float32_is_numpys(adapter: wgpu.GPUAdapter) -> None:
    check_floats(exact_float_operations, float_pairs(), adapter)
    check_floats(float32_operations, float_pairs(), adapter)


def test_comparisons_of_floats(adapter: wgpu.GPUAdapter) -> None:
    numbers = [array[np.isfinite(float_pairs()[0]) & np.isfinite(float_pairs()[1])] for array in float_pairs()]

    def comparisons(x: Any) -> dict[str, Any]:
        a, b = x
        return {"less": a < b, "le": a <= b, "greater": a > b, "ge": a >= b, "equal": a == b, "not_equal": a != b}

    check_floats(comparisons, tuple(numbers), adapter)


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


def rounded_float_operations(x: Any) -> dict[str, Any]:
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
    check_floats(rounded_float_operations, (a[keep], b[keep]), adapter, places=4)


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
        loose = name in ("arcsin", "arccos", "sin", "cos", "tan", "arctan", "arctan2")  # WGSL promises 2^-11
        np.testing.assert_allclose(results[name], expected, rtol=1e-3 if loose else 4e-6, atol=1e-3 if loose else 4e-7, err_msg=name)  # fmt: skip


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
    ml_dtypes = pytest.importorskip("ml_dtypes")
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
def test_astype_of_16_bit_floats_rounds(adapter: wgpu.GPUAdapter, name: str) -> None:
    """To even, subnormals, overflow and NaN included; so does a bit cast."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
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


# ----- conversions


@pytest.mark.parametrize("source", ["bool", *INTEGERS, "float16", "float32"])
def test_astype(adapter: wgpu.GPUAdapter, source: str) -> None:
    if source == "bool":
        numbers = np.array([False, True])
    elif source.startswith("float"):
        numbers = np.array([0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 99.99, 127.0, -128.0, 1000.5, -1000.5, 30000.0], source)
        numbers = np.concatenate([numbers, np.array([2.0**30 + 64, -(2.0**31), 2.0**31 - 128] * (source == "float32"), source)])  # fmt: skip
    else:
        numbers = integer_pairs(source)[0]
    targets = ("bool", *INTEGERS, "float16", "float32")

    def conversions(x: Any) -> dict[str, Any]:
        return {f"to_{target}": x[0].astype(target) for target in targets}

    for native in {has_int64(adapter), False}:
        results = evaluate_map(open_device(adapter), conversions, (numbers,), native_int64=native)
        with np.errstate(all="ignore"):
            expected = conversions((numbers,))
        for key, value in expected.items():
            compared = np.ones(len(numbers), bool)
            if source.startswith("float") and key.startswith("to_uint"):
                compared = numbers >= 0  # C leaves a negative float to unsigned open
            if source.startswith("float") and key in ("to_int8", "to_int16", "to_uint8", "to_uint16"):
                limits = np.iinfo(key[3:])
                compared &= (numbers > float(limits.min) - 1) & (numbers < float(limits.max) + 1)
            if key == "to_float32":  # WGSL leaves the rounding of large integers to the adapter; to one place
                np.testing.assert_allclose(results[key], value, rtol=1.2e-7, err_msg=source)
                continue
            np.testing.assert_array_equal(results[key][compared], value[compared], err_msg=f"{source} {key} {native}")


def test_floats_to_64_bit_integers(adapter: wgpu.GPUAdapter) -> None:
    powers = 2.0 ** np.arange(-3, 63)
    numbers = np.concatenate([powers, powers * 1.7, powers * 1.99, [0.0]]).astype(np.float32)
    numbers = numbers[numbers < 2.0**63]

    def conversions(x: Any) -> dict[str, Any]:
        return {"signed": (-x[0]).astype(np.int64), "unsigned": x[0].astype(np.uint64)}

    for native in {has_int64(adapter), False}:
        results = evaluate_map(open_device(adapter), conversions, (numbers,), native_int64=native)
        np.testing.assert_array_equal(results["signed"], (-numbers).astype(np.int64))
        np.testing.assert_array_equal(results["unsigned"], numbers.astype(np.uint64))


def test_bit_casts(adapter: wgpu.GPUAdapter) -> None:
    words = np.random.default_rng(3).integers(0, 1 << 32, 500, dtype=np.uint32)
    numbers = (words.astype(np.uint8), words.astype(np.int16), words, words.astype(np.uint64) * 0x9E3779B97F4A7C15)

    def views(x: Any) -> dict[str, Any]:
        a, b, c, d = x
        return {"a": a.view(np.int8), "b": b.view(np.uint16), "c": c.view(np.int32), "d": d.view(np.int64)}

    for native in {has_int64(adapter), False}:
        results = evaluate_map(open_device(adapter), views, numbers, native_int64=native)
        for key, value in views(numbers).items():
            np.testing.assert_array_equal(results[key], value)


def test_int64_with_uint64(adapter: wgpu.GPUAdapter) -> None:
    signed, unsigned = integer_pairs("int64")[0], integer_pairs("int64")[1].view(np.uint64)

    def comparisons(x: Any) -> dict[str, Any]:
        a, b = x
        return {"l": a < b, "le": a <= b, "g": a > b, "ge": a >= b, "e": a == b, "n": a != b, "swapped": b < a}

    for native in {has_int64(adapter), False}:
        check(comparisons, (signed, unsigned), adapter, native)


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


# ----- complex64


def test_complex64_is_numpys(adapter: wgpu.GPUAdapter) -> None:
    whole = np.random.default_rng(17).integers(-30, 30, (4, 300)).astype(np.float32)
    a, b = whole[0] + 1j * whole[1], whole[2] + 1j * whole[3]

    def operations(x: Any) -> dict[str, Any]:
        left, right = x
        return {
            "add": left + right,
            "subtract": left - right,
            "multiply": left * right,
            "negative": -left,
            "real": left.real,
            "imag": np.imag(left),
            "conjugate": np.conj(left),
            "scaled": left * 2 + 1j,
            "equal": left == right,
            "not_equal": left != right,
            "from_real": left.real.astype(np.complex64) * right,
            "truth": left.astype(bool),
        }

    check(operations, (a.astype(np.complex64), b.astype(np.complex64)), adapter, has_int64(adapter))
