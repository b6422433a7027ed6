"""NumPy's ufuncs, functions and protocols on `gpuscan.Array`, compared with the same calls on NumPy arrays."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import count_reads, count_shader_modules

RNG = np.random.default_rng(0)
A = RNG.integers(1, 50, (6, 7)).astype(np.float32)
B = RNG.integers(1, 9, (7,)).astype(np.int8)
C = RNG.integers(1, 9, (6, 7)).astype(np.int32)

# Expressions of a float32, an int8 and an int32 array. Each group runs on one software adapter, in turn.
GROUPS: dict[str, list[Callable[[Any, Any, Any], Any]]] = {
    "arithmetic": [
        lambda a, b, c: a * 2 + 1,
        lambda a, b, c: 1 - a / 3,
        lambda a, b, c: (-c // 3, c % 4, c**2, 7 - b, abs(-b), +c),
        lambda a, b, c: divmod(c, 5),
        lambda a, b, c: A - a.T.T,
        lambda a, b, c: np.float32(2) * a + b,
        lambda a, b, c: np.add(a, b, dtype=np.float32),
    ],
    "bits and comparisons": [
        lambda a, b, c: (a == 25) | (a < 3),
        lambda a, b, c: (a > b, b != 3, a <= A, c <= 3),
        lambda a, b, c: (c << 1, 64 >> c, ~c ^ (c & 3)),
        lambda a, b, c: np.logical_not(c),
        lambda a, b, c: np.isclose(a, a[::-1]),
    ],
    "functions": [
        lambda a, b, c: np.exp(-a / 8),
        lambda a, b, c: (np.sqrt(a), np.square(a), np.sign(a - 20)),
        lambda a, b, c: np.maximum([5.0] * 7, a, dtype=np.float32),
        lambda a, b, c: (np.where(a > b, a, 0), np.where(c > 3, b, c), np.clip(a, 5, 30), np.clip(c, None, 4)),
    ],
    "accumulate": [
        lambda a, b, c: np.add.accumulate(a, axis=1),
        lambda a, b, c: np.add.accumulate(b),
        lambda a, b, c: np.maximum.accumulate(c[:, ::-2]),
        lambda a, b, c: np.logical_or.accumulate(c > 7, axis=1),
        lambda a, b, c: (np.cumsum(b), np.cumsum(c), np.cumsum(a, axis=0, dtype=np.float32), np.cumprod(b)),
    ],
    "reduce": [
        lambda a, b, c: np.maximum.reduce(c),
        lambda a, b, c: np.add.reduce(b, axis=None),
        lambda a, b, c: np.add.reduce(c, axis=(0, 1), keepdims=True),
        lambda a, b, c: (np.sum(c, axis=1), np.prod(b, dtype=np.uint32), np.max(a, axis=1), np.min(a)),
        lambda a, b, c: (np.any(a > 48, axis=0), np.all(a > 0)),
        lambda a, b, c: np.sum(a.T, axis=0, initial=5),
    ],
    "methods": [
        lambda a, b, c: (c.sum(axis=1), b.prod(dtype=np.uint32), a.max(axis=1), a.min(), c.max(0, keepdims=True)),
        lambda a, b, c: (b.sum(), c.sum((0, 1), keepdims=True), a.T.sum(axis=0, initial=5)),
        lambda a, b, c: ((a > 48).any(axis=0), (a > 0).all()),
        lambda a, b, c: (a.mean(), np.mean(a, axis=1, keepdims=True), c.mean((0, -1), dtype=np.float32)),
        lambda a, b, c: (b.cumsum(), c.cumsum(), a.cumsum(axis=0, dtype=np.float32), b.cumprod()),
    ],
    "reduceat": [
        lambda a, b, c: np.add.reduceat(c, [0, 2, 5], axis=1),
        lambda a, b, c: np.add.reduceat(b, [2, 4]),
        lambda a, b, c: np.add.reduceat(b, [0, 4, 1, 5, 2, 6]),
        lambda a, b, c: np.maximum.reduceat(a, [3, 1, 1], axis=0),
    ],
    "order and shape": [
        lambda a, b, c: (np.sort(a), np.sort(c, axis=None), np.sort(c.T, axis=0, kind="stable")),
        lambda a, b, c: (np.flip(a, 0), np.flip(a), np.transpose(a), np.swapaxes(c, 0, 1), np.ravel(c.T)),
        lambda a, b, c: (np.concatenate([c, c[::-2]]), np.concatenate([b, a], axis=None), np.stack([a, a + 1], axis=1)),
        lambda a, b, c: (np.vstack([a, a[:1]]), np.vstack([b, b]), np.hstack([a, a.T[:6, :2]]), np.hstack([b, b[:1]])),
        lambda a, b, c: (np.append(a, b), np.append(a, a, axis=1), np.flipud(a), np.flipud(b), np.fliplr(c)),
        lambda a, b, c: (np.squeeze(c[:1]), np.squeeze(c[:, :1], 1), np.moveaxis(c, 0, -1), np.round(a / 4, 1)),
        lambda a, b, c: (np.zeros_like(a), np.ones_like(b), np.full_like(c, 7)),
        lambda a, b, c: (np.expand_dims(b, 0), np.broadcast_to(b, (2, 7)), np.reshape(a, (7, 6)), np.copy(c[::2])),
    ],
}


def assert_equal(got: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        for one, other in zip(got, wanted, strict=True):
            assert_equal(one, other)
        return
    assert isinstance(got, gs.Array)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-6)


@pytest.mark.parametrize("group", GROUPS)
def test_expressions(device: gs.Device, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """Assert that no expression copies elements through the CPU."""
    a, b, c = (device.asarray(x) for x in (A, B, C))
    with monkeypatch.context() as patched:
        reads = count_reads(patched)
        got = [expression(a, b, c) for expression in GROUPS[group]]
        assert reads == []
    for result, expression in zip(got, GROUPS[group], strict=True):
        assert_equal(result, expression(A, B, C))


def test_results_in_place(device: gs.Device) -> None:
    a, c = device.asarray(A), device.asarray(C)
    out: Any  # NumPy's types do not know that its functions write to arrays on devices
    before = a, c
    a += 1
    c >>= 1
    c[:, ::2].__imul__(3)
    assert (a, c) is not before
    assert a is before[0]
    wanted = C >> 1
    wanted[:, ::2] *= 3
    assert_equal(a, A + 1)
    assert_equal(c, wanted)
    out = a
    assert np.add(A, 2, out=out) is a
    assert_equal(a, A + 2)
    out = device.empty((6, 7), np.int64)
    assert np.add.accumulate(c, axis=1, out=out) is out
    assert_equal(out, np.add.accumulate(wanted, axis=1))
    out = device.empty((6, 7), np.int32), device.empty((6, 7), np.int32)
    np.divmod(c, 5, out=out)
    assert_equal(out, divmod(wanted, 5))
    out = device.empty((6,), np.int64)
    np.sum(c, axis=1, out=out)
    assert_equal(out, wanted.sum(axis=1))


def test_masks_choose_what_is_written(device: gs.Device) -> None:
    a, wanted = device.asarray(A), C.copy()
    c: Any = device.asarray(C)
    a[a > 20] = 20
    assert_equal(a, np.minimum(A, 20))
    np.copyto(c, c[::-1], where=c > 4)
    np.copyto(wanted, C[::-1], where=C > 4)
    assert_equal(c, wanted)
    with pytest.raises(TypeError, match="casting='same_kind'"):
        np.copyto(c, A)
    with pytest.raises(ValueError, match="only their lengths along that axis may differ"):
        np.concatenate([c, c[:, :2]])


@pytest.mark.parametrize("function", [np.sort, np.argsort])
def test_kinds_of_sorts_are_numpys(device: gs.Device, function: Any) -> None:
    a = device.asarray(np.array([3, 1, 2], np.float32))
    np.testing.assert_array_equal(function(a, kind="mergesort").numpy(), function(a.numpy()))
    for options in ({"kind": "x"}, {"kind": "stable", "stable": True}):
        with pytest.raises(ValueError, match="kind"):
            function(a, **options)


def test_argsort_gives_indices_on_the_device(device: gs.Device) -> None:
    c = device.asarray(C)
    for axis in (-1, 0, None):
        places = np.argsort(c, axis=axis)
        assert isinstance(places, gs.Array)
        np.testing.assert_array_equal(places.numpy(), np.argsort(C, axis=axis, kind="stable"))


def test_numbers_and_truth(device: gs.Device) -> None:
    a, b = device.asarray(A), device.asarray(B)
    assert float(np.sum(a)) == A.sum()
    assert device.asarray(C).tolist() == C.tolist()
    assert (int(b[3]), complex(b[3]), b[3].item()) == (B[3], complex(B[3]), B[3])
    assert hex(b[3]) == hex(B[3])
    assert bool(b[0] > 0) is True
    assert np.array_equal(a, A)
    assert not np.array_equal(a, A + 1)
    assert not np.array_equal(a, b)
    assert np.allclose(a, A + np.float32(1e-6))
    assert (np.shape(a), np.ndim(a), np.size(a, 1)) == ((6, 7), 2, 7)
    assert f"{b[3]:.2f} {b[3]:d}" == f"{B[3]:.2f} {B[3]:d}"
    assert np.empty_like(a, dtype=np.int8).dtype == np.int8
    for call, error, match in (
        (lambda: bool(a), ValueError, "truth of an array"),
        (lambda: float(a), TypeError, "the only number of an array"),
        (lambda: [0, 1][a], TypeError, "as an index"),
        (lambda: hash(a), TypeError, "unhashable"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_dlpack_gives_a_copy_on_the_cpu(device: gs.Device) -> None:
    a = device.asarray(A)
    there = np.from_dlpack(a[::2].T)
    np.testing.assert_array_equal(there, A[::2].T)
    assert a.__dlpack_device__() == (1, 0)
    for options in ({"copy": False}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError, match="Leave copy and dl_device out"):
            a.__dlpack__(**options)


def test_what_is_not_supported_names_the_way_out(device: gs.Device) -> None:
    a, c = device.asarray(A), device.asarray(C)
    for call in (
        lambda: a @ a.T,
        lambda: np.frexp(a),
        lambda: a + "text",
        lambda: a == object(),
        lambda: c / 2,
        lambda: c.mean(),
        lambda: np.var(a, dtype=np.complex64),
        lambda: a.astype(np.complex64).std(dtype=np.float32),
        lambda: operator.iadd(c, 1.5),
        lambda: np.linalg.norm(a),
        lambda: np.fft.fft(a),
        lambda: np.copyto(np.zeros((6, 7)), a),
        lambda: np.add.outer(a, a),
        # NumPy never frees the arguments of a reduction that its protocol refuses, so it is not asked by name.
        lambda: a.__array_ufunc__(np.subtract, "accumulate", a),
        lambda: np.add(a, b := 1, out=np.empty((6, 7), np.float32)) and b,
        lambda: np.add(a, 1, where=a > 1),
        lambda: np.where(a > 1),
        lambda: np.sum(a, where=a > 1),
        lambda: np.sort(a, order="f"),
    ):
        with pytest.raises(TypeError, match=r"\.numpy\(\)"):
            call()
    with pytest.raises(ValueError, match="do not broadcast"):
        a + np.ones(3, np.float32)
    with pytest.raises(ValueError, match="nothing to combine"):
        a[:0].max(axis=0)
    assert (a[:0].max(axis=1).shape, a[:0].sum().item(), a[:0].max(initial=3).item()) == ((0,), 0, 3)
    with pytest.raises(IndexError, match="pass indices from 0 to 6"):
        a.__array_ufunc__(np.add, "reduceat", a, [7], axis=1)
    assert_equal(a, A)
    assert_equal(c, C)


WRITING: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, out: np.sum(a, axis=0, out=out[0]),
    "a method": lambda a, out: a.sum(0, out=out[0]),
    "max": lambda a, out: np.max(a, 1, out[:, 0]),
    "clip": lambda a, out: np.clip(a, 2, 3, out),
    "concatenate": lambda a, out: np.concatenate([a[:2], a[2:]], out=out),
    "stack": lambda a, out: np.stack([a[0], a[1]], 0, out[:2]),
    "cumsum": lambda a, out: np.cumsum(a, axis=0, out=out),
    "copyto": lambda a, out: np.copyto(out, a),
    "copyto by name": lambda a, out: np.copyto(dst=out, src=a, where=a > 3),
    "copyto of NumPy": lambda a, out: np.copyto(out, A, where=a > 3),
}


@pytest.mark.parametrize("name", WRITING)
def test_no_function_writes_to_an_array_of_numpy(device: gs.Device, name: str) -> None:
    """Assert that the call says so, and does not write to a copy on the device. The second call would be launched."""
    a, out = device.asarray(A), np.zeros_like(A)
    for _ in range(3):
        with pytest.raises(TypeError, match=r"gpuscan\.Array|\.numpy\(\)"):
            WRITING[name](a, out)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_operands_are_converted_to_the_dtype_that_is_asked_for(device: gs.Device, dtype: str) -> None:
    """Assert that wide numbers are narrowed first, and Python's numbers take the dtype."""
    if dtype == "float64" and not device.capabilities.float64:
        pytest.skip("the device has no float64")
    narrow = {"int64": np.int32, "float64": np.float32}[dtype]
    x = (C * 1.1e9).astype(dtype)
    wide = device.asarray(x)
    for mine, theirs in ((wide, x), (device.asarray(B), B)):
        assert_equal(np.add(wide, mine, dtype=narrow), np.add(x, theirs, dtype=narrow, casting="same_kind"))
    assert_equal(np.multiply(wide, 3, dtype=narrow), np.multiply(x, 3, dtype=narrow))
    assert_equal(np.maximum(wide, True, dtype=narrow), np.maximum(x, True, dtype=narrow))


def test_no_number_equals_none_or_text(device: gs.Device) -> None:
    a = device.asarray(A)
    values: list[Any] = [None, "text", b"text", np.str_("text")]
    for value in values:
        for found in (a == value, value == a, np.equal(a, value)):
            assert_equal(found, np.zeros(A.shape, bool))
        assert_equal(a != value, np.ones(A.shape, bool))


def test_one_kernel_finds_an_element(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that `in` gives the answer of NumPy, and reads one number."""
    a, values = device.asarray(A), [25, -1, 25.5, None, "text", A[0]]
    for value in values:
        with monkeypatch.context() as patched:
            reads = count_reads(patched)
            found = value in a
            assert len(reads) == 1
        assert found == (value in A)
    assert 3 not in a[:0]


def test_rounding_to_a_number_of_python(device: gs.Device) -> None:
    untyped: Any = pow
    for number in (np.float32(2.5), np.float32(-3.75), np.int32(15)):
        for digits in ((), (0,), (1,), (-1,)):
            found, wanted = round(device.asarray(number), *digits), round(number, *digits)
            assert (found, type(found)) == (wanted, type(wanted))
    with pytest.raises(TypeError, match=r"np\.round\(array, digits\)"):
        round(device.asarray(A))
    with pytest.raises(TypeError, match="exponent % modulus"):
        untyped(device.asarray(C), 2, 3)


def test_integers_have_no_negative_powers(device: gs.Device) -> None:
    """Assert NumPy's error, wherever the exponents are, and NumPy's results for others."""
    base = np.array([0, 1, 2, -3], np.int32)
    exponents = np.array([3, 0, 2, 1], np.int8)
    a = device.asarray(base)
    for negative in (-1, np.int16(-2), exponents - np.int8(1), device.asarray(exponents - np.int8(1))[1:2]):
        for call in (lambda: a**negative, lambda: np.power(a, negative), lambda: operator.ipow(a, negative)):  # noqa: B023
            with pytest.raises(ValueError, match="integers have no negative powers"):
                call()
    with pytest.raises(ValueError, match="integers have no negative powers"):
        7 ** device.asarray(exponents - np.int8(1))
    for other in (2, exponents, device.asarray(exponents), exponents[:0].reshape(0, 1), exponents.astype(np.uint8)):
        assert_equal(a**other, base ** (other.numpy() if isinstance(other, gs.Array) else other))
    assert_equal(np.power(a, -1.0, dtype=np.float32)[1:], np.power(base[1:], -1.0, dtype=np.float32))
    assert_equal(a, base)


def test_functions_of_signed_zeros_and_bools(device: gs.Device) -> None:
    """Assert the signs of zeros, and the dtypes of bools."""
    for name in ["float32", "float16"] + ["float64"] * device.capabilities.float64:
        x = np.array([0.0, -0.0, -2.0, 3.0, np.nan], name)
        names = ["sign", "negative", "absolute", "rint", "trunc", "floor", "ceil", "sqrt", "sinh"]
        for function in (getattr(np, each) for each in names + ["arctan"] * (name != "float64")):
            with np.errstate(invalid="ignore"):
                found, wanted = function(device.asarray(x)).numpy(), function(x)
            zero = wanted == 0
            np.testing.assert_array_equal(found == 0, zero)
            np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(wanted[zero]), function.__name__)
    for ufunc, numbers in ((np.gcd, np.array([[-4], [6]], np.int32)), (np.hypot, np.array([[-1.5, 2]], np.float32))):
        for axis in (0, 1, ()):
            assert_equal(ufunc.reduce(device.asarray(numbers), axis), ufunc.reduce(numbers, axis))
    flags = np.array([True, False])
    for rounded in (np.round, np.rint):
        assert_equal(rounded(device.asarray(flags)), rounded(flags))
    with pytest.raises(TypeError, match=r"np\.round of bool to decimals=1"):
        np.round(device.asarray(flags), 1)


def test_numbers_share_a_shader(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a call with another number compiles nothing, and that numbers keep NumPy's meaning."""
    a, b = device.asarray(A), device.asarray(B)
    made = count_shader_modules(device, monkeypatch)
    for number in (3, 5, 7):
        assert_equal(b - number, B - number)
    for factor in (0.5, 3, -0.0):
        assert_equal(a * factor, A * factor)
    assert len(made) <= 2
    assert_equal(b < 300, B < 300)
    assert_equal(b + np.int32(70_000), B + np.int32(70_000))
    with pytest.raises(TypeError, match=r"does not fit.*\.numpy\(\)"):
        b + 300


class Other:
    """An object with ufuncs of its own."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> str:
        return "mine"


def test_objects_with_their_own_ufuncs_take_over(device: gs.Device) -> None:
    a = device.asarray(A)
    other: Any = Other()
    assert (a + other, other * a) == ("mine", "mine")


def test_axes_of_a_single_number_are_those_of_numpy(device: gs.Device) -> None:
    number = np.array(3, np.float32)
    ours = device.asarray(number)
    for function in (np.sum, np.prod, np.max, np.min, np.any, np.all):
        for axis in (0, -1, None, ()):
            wanted = np.asarray(function(number, axis=axis))
            found = np.asarray(function(ours, axis=axis))
            assert (found.shape, found.dtype, found) == (wanted.shape, wanted.dtype, wanted)
        for bad in (1, (0,)):
            with pytest.raises(np.exceptions.AxisError, match=r"shape \(\) was passed, which has no axis"):
                function(ours, axis=bad)
    spread: Any
    for spread in (np.mean, np.std, np.var):
        for bad in (0, -1, (0,)):
            with pytest.raises(np.exceptions.AxisError, match=r"shape \(\) was passed, which has no axis"):
                spread(ours, axis=bad)
    with pytest.raises(np.exceptions.AxisError, match="axis=2 was passed"):
        np.mean(device.asarray(np.ones(3, np.float32)), axis=2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 1), (1, 2)])
def test_a_variance_writes_no_array_of_squares(
    device: gs.Device, dtype: str, axis: int | tuple[int, ...] | None
) -> None:
    """Assert that the second reduction reads the array and its mean, and squares what it reads."""
    x = np.random.default_rng(7).normal(5, 3, (9, 40, 7)).astype(dtype)
    ours = device.asarray(x)
    with device.profile() as profile:
        results = np.var(ours, axis), np.std(ours, axis)
        device.synchronize()
    assert not {"map_elements", "copy_elements"} & {span.stage for span in profile.spans}
    exact = x.astype(np.complex128)
    for result, wanted in zip(results, (np.var(exact, axis), np.std(exact, axis)), strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, 2e-3 if dtype == "float16" else 2e-5)


@pytest.mark.parametrize("first", ["int8", "uint8", "int16", "uint16", "float16", "float32"])
@pytest.mark.parametrize("second", ["bool", "int8", "uint16", "float16", "float32", 2])
def test_heaviside_has_the_dtype_that_numpy_gives(device: gs.Device, first: str, second: str | int) -> None:
    x = np.array([-2, 0, 3], np.float32).astype(first)
    y = second if isinstance(second, int) else np.array([1, 0, 3], np.float32).astype(second)
    for a, b in ((x, y), (y, x)):
        arguments: list[Any] = [each if isinstance(each, int) else device.asarray(each) for each in (a, b)]
        found: Any = np.heaviside(arguments[0], arguments[1])
        expected = np.heaviside(a, b)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected)


def test_heaviside_of_wide_integers_is_refused(device: gs.Device) -> None:
    with pytest.raises(TypeError, match=r"of int32 and int32 is float64 in NumPy"):
        np.heaviside(device.asarray(np.arange(3, dtype=np.int32)), np.int32(1))


@pytest.mark.parametrize("number", [0.5, -2.0, 0.0, -0.0, 1e-310, math.nan, math.inf])
def test_heaviside_of_a_number_of_python(device: gs.Device, number: float) -> None:
    x = np.array([-2, 0, 3], np.float32)
    found: Any = np.heaviside(number, device.asarray(x))
    np.testing.assert_array_equal(found.numpy(), np.heaviside(number, x))


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int32", "float16", "float32"])
def test_clip_has_the_dtype_that_numpy_gives(device: gs.Device, name: str) -> None:
    """Assert NumPy's results for bounds of all kinds, and an error where NumPy raises one."""
    x = np.array([1, 3, 100, 0], np.float32).astype(name)
    bounds = (None, 0, -300, 300, 2**40, 1.5, True, np.int8(1), np.int16(400), np.float32(2), np.array(3, np.uint8))
    for low, high in itertools.product(bounds, repeat=2):
        arguments: tuple[Any, ...] = (low, high)
        try:
            wanted = np.clip(x, *arguments)
        except (TypeError, OverflowError):
            with pytest.raises(TypeError, match=r"\.numpy\(\)"):
                np.clip(device.asarray(x), *arguments)
            continue
        if wanted.dtype != np.float64:
            assert_equal(np.clip(device.asarray(x), *arguments), wanted)


def test_closeness_of_bools_and_narrow_integers(device: gs.Device) -> None:
    """Assert the answers of NumPy. Equal numbers are close for any tolerance."""
    arrays: list[Any] = [A, A.astype(np.int8), A > 20, B.astype(np.uint16), B > 4, np.float32(1), True, 3]
    options: list[dict[str, Any]] = [{}, {"atol": 1}, {"rtol": 0.5, "equal_nan": True}, {"atol": -1.0}]
    for (one, other), each in itertools.product(itertools.product(arrays[:5], arrays), options):
        a, b = (device.asarray(x) if isinstance(x, np.ndarray) else x for x in (one, other))
        assert_equal(np.isclose(a, b, **each), np.isclose(one, other, **each))
        assert np.allclose(a, b, **each) == np.allclose(one, other, **each)


def test_a_single_number_has_a_place_but_no_differences(device: gs.Device) -> None:
    number = np.array(3, np.float32)
    x = device.asarray(number)
    for function in (np.argmax, np.argmin):
        for axis in (None, 0, -1):
            assert np.asarray(function(x, axis=axis)) == function(number, axis=axis)
        with pytest.raises(np.exceptions.AxisError, match="which has no axis"):
            function(x, axis=1)
    with pytest.raises(ValueError, match="differences of an array of shape"):
        np.diff(x)


# Calls of an array on the device or in NumPy, and of an array of that place made of another one.
Rule = Callable[[Any, Callable[[Any], Any]], Any]
HALVES = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 2
WIDE = np.array([[300, 5, 2], [-200, 7, 70_000]], np.int32)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, of: np.less(x, 1.5, dtype=np.bool_),
        lambda x, of: np.signbit(x, dtype=np.bool_),
        lambda x, of: np.add(x > 0, np.int8(3), dtype=np.float32),
        lambda x, of: np.multiply(x, np.float32(3), dtype=np.float16),
        lambda x, of: np.bitwise_count(of(WIDE), dtype=np.uint8),
        lambda x, of: np.subtract(of(WIDE), 2.5, dtype=np.float32),
        lambda x, of: np.logical_and(x, of(HALVES), dtype=np.bool_),
    ],
)
def test_dtype_chooses_the_loop_of_numpy(device: gs.Device, call: Rule) -> None:
    """Assert that `dtype` is the one of the result, and not always the one to which operands are converted."""
    assert_equal(call(device.asarray(HALVES), device.asarray), call(HALVES, np.asarray))


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda x, of: np.less(x, 1, dtype=np.float32)),
        (TypeError, lambda x, of: np.positive(x, dtype=np.int32)),
        (TypeError, lambda x, of: np.negative(of(WIDE), dtype=np.uint32)),
        (TypeError, lambda x, of: np.exp(of(WIDE), dtype=np.int16)),
        (TypeError, lambda x, of: np.add(of(WIDE), 1.5, dtype=np.int32)),
        (TypeError, lambda x, of: np.concatenate([x, of(HALVES)], dtype=np.int32)),
        (TypeError, lambda x, of: np.concatenate([x], out=of(np.zeros((3, 4), np.int32)))),
        (TypeError, lambda x, of: np.concatenate([x], out=of(HALVES), dtype=np.float32)),
        (TypeError, lambda x, of: np.stack([x, x], dtype=np.uint8)),
        (TypeError, lambda x, of: np.copyto(of(WIDE), np.float64(1.5))),
        (TypeError, lambda x, of: np.copyto(of(WIDE), 1.5)),
        (TypeError, lambda x, of: np.copyto(x > 1, 1)),
        (TypeError, lambda x, of: np.copyto(x, np.float64(1), casting="safe")),
        (ValueError, lambda x, of: np.append(x, 5, axis=0)),
        (ValueError, lambda x, of: np.concatenate([x, x[0]])),
        (ValueError, lambda x, of: np.hstack([x, x[0]])),
        (ValueError, lambda x, of: np.stack([x, x[0]], axis=-1)),
        (ValueError, lambda x, of: np.expand_dims(x, (-1, -1))),
        (ValueError, lambda x, of: np.flip(x, (0, -2))),
        (ValueError, lambda x, of: np.squeeze(x[:1], (0, 0))),
        (ValueError, lambda x, of: np.broadcast_to(x[0, :1], (-1,))),
        (ValueError, lambda x, of: np.max(x[:0, :0], axis=0)),
    ],
)
def test_what_numpy_refuses_is_refused(device: gs.Device, error: type[Exception], call: Rule) -> None:
    """Assert NumPy's errors, and that nothing is changed by them."""
    for of in (np.asarray, device.asarray):
        x = of(HALVES.copy())
        with pytest.raises(error):
            call(x, of)
        np.testing.assert_array_equal(np.asarray(x), HALVES)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, of: np.concatenate([x, of(WIDE)], axis=None, dtype=np.int16, casting="unsafe"),
        lambda x, of: np.expand_dims(x, [0, -1]),
        lambda x, of: np.broadcast_to(x[0, :1], np.int64(3)),  # type: ignore[call-overload]
        lambda x, of: np.cumsum(x[1, 1], axis=0),
        lambda x, of: np.cumprod(x[1, 1], axis=-1),
        lambda x, of: np.repeat(x[1, 1], 2, axis=0),
        lambda x, of: np.take(x[1, 1], [0, 0], axis=0),
        lambda x, of: np.squeeze(x[1, 1], axis=0),
        lambda x, of: np.diff(x[1, 1], n=0),
        lambda x, of: np.partition(x[:, :0], 3),
        lambda x, of: (x > 0) ** 2,
        lambda x, of: np.isclose(of(WIDE.astype(np.uint32)), of(WIDE.astype(np.uint32) + 1), rtol=0, atol=1),
        lambda x, of: np.isclose(of(WIDE.astype(np.uint32) * 0), True, rtol=0, atol=1),
        lambda x, of: np.isclose(of(np.array([2**31 - 1], np.int32)), of(np.array([-(2**31)], np.int32)), 0, 1),
    ],
)
def test_what_numpy_takes_is_taken(device: gs.Device, call: Rule) -> None:
    assert_equal(call(device.asarray(HALVES), device.asarray), call(HALVES, np.asarray))
    assert np.size(device.asarray(HALVES), (0, 1)) == HALVES.size


@pytest.mark.parametrize(
    ("x", "dtype", "call"),
    [
        (HALVES, np.int32, lambda x, out: np.sum(x, axis=1, out=out)),
        (HALVES, np.int32, lambda x, out: np.add.reduce(x, axis=1, out=out)),
        (HALVES * 4, np.int8, lambda x, out: np.max(x, axis=1, out=out)),
        (WIDE, np.int8, lambda x, out: np.max(x, axis=1, out=out)),
        (WIDE.astype(np.int64), np.uint64, lambda x, out: np.min(abs(x), axis=1, out=out)),
        (WIDE.astype(np.int8), np.uint16, lambda x, out: np.prod(abs(x), axis=1, out=out)),
        (WIDE, np.float32, lambda x, out: np.sum(x, axis=1, out=out)),
    ],
)
def test_narrow_results_are_converted_after_they_are_combined(
    device: gs.Device, x: Any, dtype: Any, call: Callable[[Any, Any], Any]
) -> None:
    """Assert NumPy's rule for an `out` that does not hold the elements: the sum of 0.5 and 0.5 is 1, not 0 + 0."""
    out, wanted = device.empty((len(x),), dtype), np.empty(len(x), dtype)
    assert call(device.asarray(x), out) is out
    assert_equal(out, call(x, wanted))
    running: Any = device.empty(x.shape, np.int16)
    steps = np.empty(x.shape, np.int16)
    assert np.add.accumulate(device.asarray(x), axis=1, out=running) is running
    assert_equal(running, np.add.accumulate(x, axis=1, out=steps))


def test_any_integer_is_copied(device: gs.Device) -> None:
    """Assert that the dtype of the array holds the integers of all calls, which are parameters of one program."""
    for dtype in (np.uint8, np.float16, np.int64):
        a: Any = device.asarray(np.zeros(3, dtype))
        for number in (3, 4, 5, 6):
            np.copyto(a, number)
            np.testing.assert_array_equal(a.numpy(), number)


def test_numbers_of_python_are_halves_beside_halves(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert NumPy's bits: 0.1 is the nearest half, 2049 is 2048, and 100,000 is infinite."""
    x = np.array([0.1, 0.5, 3, 1000, 2048, -0.0, np.nan], np.float16)
    a, made = device.asarray(x), count_shader_modules(device, monkeypatch)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda v, c: v * c,
        lambda v, c: v == c,
        lambda v, c: c > v,
        lambda v, c: c - v,
        lambda v, c: np.maximum(v, c),
    ]
    for call in calls:
        for number in (0.1, 0.7, 1e5, 2049, 3):
            with np.errstate(all="ignore"):
                wanted = call(x, number)
            found = call(a, number)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found.numpy(), wanted)
    assert len(made) <= 2 * len(calls)
