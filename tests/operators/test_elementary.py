"""The elementary functions: as exact as promised, and the same bits on every adapter as on NumPy.

``python -m tests.operators.test_elementary`` writes the digests again if the bits are meant to change.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import wgpu

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.operators.code import arithmetic_functions
from gpuscan.operators.wgsl_arithmetic import ELEMENTARY, ROUNDS_TO_ODD
from gpuscan.reference.elementary import elementary, errors_in_units, python_of
from tests.operators.evaluate import evaluate_map, open_device
from tests.operators.numbers import forms_of_int64
from tests.oracle import Array

REPOSITORY = Path(__file__).parent.parent.parent
DIGESTS = Path(__file__).parent / "elementary_digests.json"
OF_ONE = (*ROUNDS_TO_ODD, "sqrt")
OF_TWO = tuple(name for name in ELEMENTARY if name not in OF_ONE)
# The largest error of each function in units of the last place.
BOUNDS = dict.fromkeys(ELEMENTARY, 0.57) | {"sqrt": 0.5, "divide": 0.5, "logaddexp": 1.05}
BOUNDS |= {"hypot": 0.86, "log1p": 0.95, "arcsinh": 0.95, "arctanh": 0.7, "log": 0.93, "log2": 1.0, "log10": 0.99}
BOUNDS |= {"exp": 0.74, "exp2": 0.73, "expm1": 0.86, "sinh": 0.82, "cosh": 0.82, "tanh": 0.93}
BOUNDS |= {"sin": 0.88, "cos": 0.89, "tan": 1.4, "erf": 0.97, "power": 1.8}
BOUNDS |= {"arcsin": 0.74, "arccos": 0.72, "arctan": 0.8, "arctan2": 0.9, "cbrt": 0.6, "arccosh": 1.01}


def special_numbers() -> Array:
    bits = [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00123, 0x3F7FFFFF, 0x3F800001]
    borders = [0x42B17217, 0x42B17218, 0x42CFF1B5, 0x42FF0000, 0x43160000, 0x39800000, 0x397FFFFF, 0x32000000]
    numbers = np.array([1, 2, 3, 4, 0.5, 0.25, 0.75, 1.5, 8, 10, 27, 100, 1000, 2**24, 2**25 + 4, 2**32], np.float32)
    turns = (np.pi / 2 * np.array([1, 2, 3, 4, 1000, 1e9])).astype(np.float32)
    positive = np.concatenate([np.array(bits + borders, np.uint32).view(np.float32), numbers, turns])
    return np.concatenate([positive, -positive])


def arguments_of_one(count: int) -> Array:
    """Return special numbers, any bits, numbers of everyday size, near 1 and near 0."""
    rng = np.random.default_rng(5)
    scale = 10.0 ** -rng.integers(0, 8, count)
    return np.concatenate([
        special_numbers(),
        rng.integers(0, 1 << 32, count, np.uint32).view(np.float32),
        rng.uniform(-100, 100, count).astype(np.float32),
        (1 + rng.normal(0, 0.3, count) * scale).astype(np.float32),
        (rng.normal(0, 1, count) * scale).astype(np.float32),
    ])  # fmt: skip


def arguments_of_two(count: int) -> tuple[Array, Array]:
    """Return pairs of special numbers, of any bits, of everyday size, and with powers in the range of float32."""
    rng = np.random.default_rng(6)
    a, b = (each.ravel() for each in np.meshgrid(special_numbers(), special_numbers()))
    bits = rng.integers(0, 1 << 32, (2, count), np.uint32).view(np.float32)
    near = rng.normal(0, 10, (2, count)).astype(np.float32)
    base = np.exp(rng.normal(0, 3, count) * 10.0 ** -rng.integers(0, 6, count)).astype(np.float32)
    with np.errstate(all="ignore"):
        exponent = (rng.uniform(-104, 89, count) / np.log(base.astype(np.float64))).astype(np.float32)
    return np.concatenate([a, bits[0], near[0], base]), np.concatenate([b, bits[1], near[1], exponent])


def arguments_of(name: str, count: int) -> tuple[Array, ...]:
    return arguments_of_two(count) if name in OF_TWO else (arguments_of_one(count),)


def ufunc(name: str) -> np.ufunc:
    function: np.ufunc = scipy.special.erf if name == "erf" else getattr(np, name)
    return function


def exact(name: str, arguments: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        found: Array = ufunc(name)(*(each.astype(np.float64) for each in arguments))
    return found


def digest(found: Array) -> str:
    return hashlib.sha256(found.tobytes()).hexdigest()[:16]


def digests() -> dict[str, str]:
    return {name: digest(elementary(name, *arguments_of(name, 1 << 12))) for name in ELEMENTARY}


# ----- On NumPy


def test_constants_are_those_that_the_script_writes() -> None:
    script = [sys.executable, str(REPOSITORY / "script" / "polynomials.py"), "--check"]
    assert subprocess.run(script, check=False).returncode == 0


def test_high_products_of_words() -> None:
    names = {"u32": np.uint32, "i32": np.int32}
    as_type = {f"bits_as_{name}": lambda x, dtype=dtype: x.view(dtype) for name, dtype in names.items()}
    rng = np.random.default_rng(1)
    edges = np.array([0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    a, b = (each.ravel() for each in np.meshgrid(edges, edges))
    a, b = (np.concatenate([each, rng.integers(0, 1 << 32, 100_000, np.uint32)]) for each in (a, b))
    for name, dtype, wide in (("high_product", "u32", np.uint64), ("signed_high_product", "i32", np.int64)):
        scope: dict[str, Any] = {**names, **as_type}
        exec(python_of(arithmetic_functions()[name]), scope)
        left, right = (each.view(names[dtype]) for each in (a, b))
        with np.errstate(over="ignore"):
            found = scope[name](left, right)
        np.testing.assert_array_equal(found, (left.astype(wide) * right.astype(wide)) >> wide(32))


@pytest.mark.parametrize("name", ELEMENTARY)
def test_errors_are_bounded(name: str) -> None:
    arguments = arguments_of(name, 1 << 15)
    wanted = exact(name, arguments)
    errors = errors_in_units(elementary(name, *arguments), wanted)
    if name == "logaddexp":  # terms may cancel, so errors are relative to the largest number
        finite = np.isfinite(errors)
        exponents = [np.frexp(each[finite])[1] for each in (wanted, *arguments)]
        errors[finite] *= np.ldexp(1.0, np.maximum(exponents[0], -125) - np.maximum(-125, np.maximum.reduce(exponents)))
    at = errors.argmax()
    assert errors[at] <= BOUNDS[name], [each[at] for each in arguments]


def test_bits_are_those_of_the_digests() -> None:
    assert digests() == json.loads(DIGESTS.read_text())


# ----- On adapters

GROUPS = [OF_ONE[:7], OF_ONE[7:14], OF_ONE[14:], OF_TWO]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_every_adapter_gives_the_same_bits(adapter: wgpu.GPUAdapter, names: tuple[str, ...]) -> None:
    arguments = arguments_of(names[0], 1 << 11)
    for native in forms_of_int64(adapter, "int64"):
        results = evaluate_map(
            open_device(adapter),
            lambda x: {name: ufunc(name)(*x) for name in names},
            arguments,
            native_int64=native,
        )
        for name in names:
            expected = elementary(name, *arguments)
            np.testing.assert_array_equal(results[name].view(np.uint32), expected.view(np.uint32), err_msg=name)


def test_ufuncs_of_device_arrays_have_these_bits(adapter: wgpu.GPUAdapter) -> None:
    device = Device(adapter)
    for name in ("exp", "erf", "divide"):
        arguments = arguments_of(name, 1 << 8)
        found = np.asarray(ufunc(name)(*(device.asarray(each) for each in arguments)))
        np.testing.assert_array_equal(found.view(np.uint32), elementary(name, *arguments).view(np.uint32))
    numbers = arguments_of_one(1 << 8)
    mapped = gs.map(lambda x: np.tanh(x), numbers, device=device)
    np.testing.assert_array_equal(mapped.view(np.uint32), elementary("tanh", numbers).view(np.uint32))


def nearest_narrow(number: Array, dtype: Any) -> Array:
    """Return float64 numbers rounded once to a 16-bit float: by way of float32, rounded to odd."""
    with np.errstate(all="ignore"):
        near = number.astype(np.float32)
        bits = near.view(np.uint32).copy()
        bits[np.isfinite(number) & (np.abs(near.astype(np.float64)) > np.abs(number))] -= np.uint32(1)
        bits[np.isfinite(number) & (bits.view(np.float32) != number)] |= np.uint32(1)
        rounded: Array = bits.view(np.float32).astype(dtype)
    return rounded


NARROW = (np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("names", [ROUNDS_TO_ODD[k::4] for k in range(4)], ids=lambda names: names[0])
def test_all_16_bit_floats_are_rounded_once(names: tuple[str, ...]) -> None:
    for dtype in NARROW:
        numbers = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
        for name in names:
            with np.errstate(all="ignore"):
                assert_same_narrow(elementary(name, numbers, odd=True).astype(dtype), name, numbers)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.__name__)
def test_16_bit_floats_on_devices(adapter: wgpu.GPUAdapter, dtype: Any) -> None:
    names = ROUNDS_TO_ODD[:4] if dtype == np.float16 else ROUNDS_TO_ODD[-5:-1]  # SciPy's erf has no 16-bit form
    numbers = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    found = gs.map(lambda x: {name: ufunc(name)(x) for name in names}, numbers, device=Device(adapter))
    for name in names:
        assert_same_narrow(found[name], name, numbers.astype(np.float32))


def assert_same_narrow(found: Array, name: str, numbers: Array) -> None:
    expected = nearest_narrow(exact(name, (numbers,)), found.dtype)
    nan = np.isnan(expected.astype(np.float32))
    assert np.isnan(found[nan].astype(np.float32)).all()
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan], err_msg=name)


# ----- Complex numbers

COMPLEX = ("exp", "log", "sqrt", "sin", "cos", "sinh", "cosh", "tanh")


def complex_numbers() -> Array:
    rng = np.random.default_rng(8)
    special = np.array([0, -0.0, 1, -2, np.inf, -np.inf, np.nan, 1e-20, 3e38, 100, -90, 0.5], np.float32)
    real, imag = (each.ravel() for each in np.meshgrid(special, special))
    angle = rng.uniform(0, 7, 1000)
    near_one = [np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]
    others = rng.normal(0, 3, (2, 1000)).astype(np.float32), rng.uniform(-85, 85, (2, 1000)).astype(np.float32)
    parts = np.concatenate([[real, imag], near_one, *others], axis=1).astype(np.float32)
    return np.ascontiguousarray(parts.T).view(np.complex64).ravel()


def kinds(part: Array) -> Array:
    """Return a number for each kind of float: NaN, infinities, zeros by their signs, and others."""
    sign = np.where(np.signbit(part), -1, 1)
    return np.where(np.isnan(part), 9, np.where(np.isinf(part), 5 * sign, np.where(part == 0, sign, 0)))


def test_complex_functions_are_close_and_special_values_are_numpys(adapter: wgpu.GPUAdapter) -> None:
    z = complex_numbers()
    functions = {name: getattr(np, name) for name in COMPLEX}
    results = evaluate_map(
        open_device(adapter),
        lambda x: {name: function(x[0]) for name, function in functions.items()},
        (z,),
        native_int64=forms_of_int64(adapter, "int64")[0],
    )
    real, imag = (part.astype(np.longdouble) for part in (z.real, z.imag))
    with np.errstate(all="ignore"):
        for name, function in functions.items():
            found, wanted, narrow = results[name], function(z.astype(np.complex128)), function(z)
            if name == "log":  # NumPy's cancels where the modulus is near 1
                near = np.abs(np.abs(z) - 1) < 0.1
                wanted.real[near] = (np.log1p((real - 1) * (real + 1) + imag * imag) / 2)[near]
            finite = np.isfinite(narrow) & np.isfinite(wanted)
            size = np.maximum(np.abs(wanted[finite]), 1.2e-38)
            assert np.max(np.abs(found[finite] - wanted[finite]) / size) < 1.3 * 2**-23, name
            special = slice(0, 144) if name not in ("cos", "tanh") else np.isfinite(z)
            for part in ("real", "imag"):
                there, expected = (kinds(getattr(each, part)[special]) for each in (found, narrow))
                tiny = (there != expected) & (np.abs(getattr(wanted, part)[special]) < 1e-37)
                np.testing.assert_array_equal(there[~tiny], expected[~tiny], err_msg=f"{name} {part}")


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n")
