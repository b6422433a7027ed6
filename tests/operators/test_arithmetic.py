"""Every operation on integers, bool and complex64, and every conversion, on every adapter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

from tests.operators.evaluate import evaluate_map, has_int64, open_device
from tests.operators.numbers import INTEGERS, check, forms_of_int64, integer_pairs


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


# ----- conversions


@pytest.mark.parametrize("source", ["bool", *INTEGERS, "float16", "float32"])
def test_astype(adapter: wgpu.GPUAdapter, source: str) -> None:
    if source == "bool":
        numbers = np.array([False, True])
    elif source.startswith("float"):
        numbers = np.array([0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 99.99, 127.0, -128.0, 1000.5, -1000.5, 30000.0], source)
        large = np.array([2.0**30 + 64, -(2.0**31), 2.0**31 - 128], np.float32)
        numbers = np.concatenate([numbers, large]) if source == "float32" else numbers
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


@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "uint32"])
def test_widened_integers_keep_their_sign_in_comparisons(adapter: wgpu.GPUAdapter, source: str) -> None:
    """Assert the signs, since some compilers fold the widening into the comparison wrongly."""

    def comparisons(x: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for target in (np.int64, np.uint64):
            wide = x[0].astype(target)
            results |= {f"{target.__name__} < {n}": wide < n for n in (0, 1, -1, -7, 5, 200, 2**31, 2**32 + 5)}
            results |= {f"{target.__name__} >= {n}": wide >= n for n in (0, -2, 5, 2**33)}
            results |= {f"{target.__name__} % {n}": wide % n for n in (7, 100)}
        return results

    for native in {has_int64(adapter), False}:
        check(comparisons, (integer_pairs(source)[0],), adapter, native)


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
