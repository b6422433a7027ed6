"""Numbers worth trying, and the comparison of a function on the GPU with the same function on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import wgpu

from tests.operators.evaluate import evaluate_map, has_int64, open_device
from tests.oracle import Array

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def forms_of_int64(adapter: wgpu.GPUAdapter, dtype: str) -> list[bool]:
    """Return which forms of 64-bit integers to test: native (True), two words (False), or both."""
    return [True, False] if has_int64(adapter) and dtype.endswith("64") else [has_int64(adapter)]


def pairs_of(special: Array, random: Array) -> tuple[Array, Array]:
    """Return every special number with every other, then random numbers."""
    left, right = np.meshgrid(special, special)
    half = len(random) // 2
    return np.concatenate([left.ravel(), random[:half]]), np.concatenate([right.ravel(), random[half:]])


def integer_pairs(dtype: str) -> tuple[Array, Array]:
    limits = np.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max - 1, limits.max, limits.max // 3, *range(9), 31, 32, 33, 63]
    special = np.array([n for n in near if n <= limits.max] + ([-1, -2, -7] if limits.min else [64, 65]), dtype)
    generator = np.random.default_rng(5)
    random = generator.integers(limits.min, limits.max, 400, dtype=dtype, endpoint=True)
    random[::3] >>= np.asarray(limits.bits // 2, dtype)  # divisors of few bits
    return pairs_of(special, random)


# A NaN with a payload.
NAN_BITS = 0x7FC00123


def float_numbers() -> Array:
    special = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 100.0, -7.25, 2.0**24, -(2.0**31), 2.0**40, 1e30, -1e-30]
    nan = np.array([NAN_BITS, NAN_BITS | 0x80000000], np.uint32).view(np.float32)
    return np.concatenate([np.array([*special, np.inf, -np.inf], np.float32), nan])


def float_pairs() -> tuple[Array, Array]:
    random = np.random.default_rng(7).normal(0, 50, 600).astype(np.float32)
    random[::4] = np.round(random[::4])
    return pairs_of(float_numbers(), random)


def check(function: Callable[[Any], dict[str, Any]], arrays: tuple[Array, ...], adapter: Any, native: bool) -> None:
    """Assert that the function gives the bits and dtypes on the GPU that it gives on NumPy."""
    results = evaluate_map(open_device(adapter), function, arrays, native_int64=native)
    with np.errstate(all="ignore"):
        expected = function(arrays)
    for name, value in expected.items():
        assert results[name].dtype == value.dtype, name
        wrong = np.flatnonzero(results[name] != value)
        shown = [(*(array[i] for array in arrays), results[name][i], value[i]) for i in wrong[:4]]
        assert not len(wrong), f"{name} (arguments, result, expected): {shown}"


def same_floats(result: Array, expected: Array) -> Any:
    """Return True for equal numbers and for two NaNs. Numbers that GPUs may flush to zero count as zero."""
    tiny = np.finfo(np.float32).tiny
    flushed = (np.abs(expected) < tiny) & (np.abs(result) < tiny)
    return (result == expected) | (np.isnan(result) & np.isnan(expected)) | flushed


def check_floats(
    function: Callable[[Any], dict[str, Any]], arrays: tuple[Array, ...], adapter: Any, places: float = 0.0,
    expected: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Assert that the function gives NumPy's dtypes on the GPU, and its floats to some units in the last place."""
    results = evaluate_map(open_device(adapter), function, arrays, native_int64=has_int64(adapter))
    with np.errstate(all="ignore"):
        expected = expected or function(arrays)
        for name, value in expected.items():
            result = results[name]
            assert result.dtype == value.dtype, name
            good = same_floats(result, value) if value.dtype.kind == "f" else result == value
            if places and value.dtype.kind == "f":
                good |= np.abs(result - value) <= places * np.spacing(np.abs(value))
            wrong = np.flatnonzero(~good)
            shown = [(*(array[i] for array in arrays), result[i], value[i]) for i in wrong[:4]]
            assert not len(wrong), f"{name} (arguments, result, expected): {shown}"
