"""Sorts agree with NumPy's stable sort, for every kind of key, along every axis, and on every adapter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import Array, assert_same

DTYPES = [
    np.bool_,
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64),
]
# Lengths: rows in one workgroup, around the edges of runs, and of several tiles.
LENGTHS = (1, 33, 2047, 2049, 5000)


def bits_of(array: Any) -> bytes:
    """Return the bytes of an array, wherever it is."""
    return np.ascontiguousarray(np.asarray(array)).tobytes()


def keys_of(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return keys of every size, many of them equal. Of floats, a part is zeros of both signs, infinities and NaNs."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    keys = bits.view(dtype)[..., 0]
    if dtype.kind in "iu":
        return np.where(rng.random(shape) < 0.5, keys, keys % dtype.type(5))
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0]).astype(dtype)
    return np.where(rng.random(shape) < 0.5, keys, rng.choice(special, shape))


def comparable(array: Any) -> Array:
    """Return an array that NumPy's tests compare: bfloat16 as float32."""
    found = np.asarray(array)
    return found.astype(np.float32) if found.dtype == ml_dtypes.bfloat16 else found


def order_of(keys: Array, axis: int = -1, descending: bool = False) -> Array:
    """Return NumPy's stable order. To descend, flip the order of the flipped array, and put NaN at the end."""
    numbers = comparable(keys)
    if not descending:
        return np.argsort(numbers, axis=axis, kind="stable")
    last = keys.shape[axis] - 1
    order = np.flip(last - np.argsort(np.flip(numbers, axis), axis=axis, kind="stable"), axis)
    is_nan = np.take_along_axis(numbers != numbers, order, axis)
    return np.take_along_axis(order, np.argsort(is_nan, axis=axis, kind="stable"), axis)


def assert_sorted(found: Any, keys: Array, axis: int = -1, descending: bool = False) -> None:
    """Assert that an array holds the keys in order, with their bits."""
    expected = np.take_along_axis(keys, order_of(keys, axis, descending), axis)
    found = np.asarray(found)
    assert found.dtype == keys.dtype
    assert found.shape == keys.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


# ----- Every kind of key


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_kinds_of_keys(device: gs.Device, dtype: Any) -> None:
    """Assert that the keys in order, and the indices in descending order, are NumPy's for rows of every length."""
    for length in LENGTHS:
        keys = keys_of(dtype, (length,), length)
        assert_sorted(gs.sort(keys, device=device), keys)
        places = gs.argsort(keys, descending=True, device=device)
        assert places.dtype == np.int64
        np.testing.assert_array_equal(places, order_of(keys, descending=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_numpy_agrees(dtype: Any) -> None:
    """Assert that ``device="numpy"`` sorts as NumPy does, along every axis."""
    keys = keys_of(dtype, (3, 50, 2))
    for axis in (-1, 0, 1):
        for descending in (False, True):
            assert_sorted(gs.sort(keys, axis=axis, descending=descending, device="numpy"), keys, axis, descending)
            places = gs.argsort(keys, axis=axis, descending=descending, device="numpy")
            np.testing.assert_array_equal(places, order_of(keys, axis, descending))


def test_nan_comes_last(device: gs.Device) -> None:
    """Assert that NaN comes last in both directions, and that zeros of both signs are equal."""
    keys = np.array([np.nan, -0.0, 1.0, 0.0, -np.inf, np.inf], np.float32)
    for where in (device, "numpy"):
        assert gs.argsort(keys, device=where).tolist() == [4, 1, 3, 2, 5, 0]
        assert gs.argsort(keys, descending=True, device=where).tolist() == [5, 2, 1, 3, 4, 0]


# ----- Every axis


@pytest.mark.parametrize("shape", [(4, 700), (3, 2500), (2, 3, 40), (60, 1, 90), (3, 0), (0, 4), (1,)])
def test_axes(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Assert that arrays of any rank are sorted along any axis, on the device as from NumPy."""
    keys = keys_of(np.int16, shape)
    array = device.asarray(keys)
    for axis in range(-1, len(shape)):
        assert_sorted(gs.sort(keys, axis=axis, device=device), keys, axis)
        found = gs.sort(array, axis=axis, descending=True)
        assert isinstance(found, gs.Array)
        assert_sorted(found, keys, axis, descending=True)
        places = gs.argsort(array, axis=axis)
        assert isinstance(places, gs.Array)
        assert places.dtype == np.uint32
        np.testing.assert_array_equal(np.asarray(places), order_of(keys, axis))
    assert_sorted(gs.sort(keys, axis=None, device=device), keys.reshape(-1))


def test_memory_orders(device: gs.Device) -> None:
    """Assert that the input's strides and byte order do not matter, and that the input stays as it was."""
    keys = keys_of(np.float32, (30, 20))
    for given in (keys.T, keys[::-2, ::3], np.asfortranarray(keys), keys.astype(">f4")):
        before = given.tobytes()
        for where in (device, "numpy"):
            assert_sorted(gs.sort(given, axis=0, device=where), given.astype(np.float32), 0)
        assert given.tobytes() == before


def test_slices_of_arrays(device: gs.Device) -> None:
    """Assert that a view of an array on the device is sorted, wherever it begins, and that the array stays."""
    keys = keys_of(np.uint8, (6000,))
    array = device.asarray(keys)
    for start, stop in ((1, 4), (3, 5990), (257, 300)):
        assert_sorted(gs.sort(array[start:stop]), keys[start:stop])
    matrix = array.reshape(60, 100)
    assert_sorted(gs.sort(matrix[::3, ::-2].T, axis=0), keys.reshape(60, 100)[::3, ::-2].T, 0)
    assert_sorted(gs.sort(matrix.T, axis=None), keys.reshape(60, 100).T.reshape(-1))
    by_key = gs.sort_by_key(matrix[:, 7], matrix[:, ::40].T[0])[1]
    np.testing.assert_array_equal(np.asarray(by_key), keys[::100][order_of(keys[7::100])])
    np.testing.assert_array_equal(np.asarray(array), keys)


@pytest.mark.parametrize("reach", [1, 5, 300, 70_000], ids=lambda reach: f"below-{reach}")
def test_digits_that_do_not_differ(device: gs.Device, reach: int) -> None:
    """Assert that the result is right whichever digits are skipped, also where all keys are equal."""
    rng = np.random.default_rng(reach)
    for shift in (0, 8, 33):
        keys = (rng.integers(0, reach, 9000) << shift) + 7
        assert_sorted(gs.sort(keys, device=device), keys)
        in_order = np.sort(keys)
        assert_sorted(gs.sort(in_order, device=device), in_order)
        np.testing.assert_array_equal(
            gs.argsort(device.asarray(keys), descending=True).numpy(), order_of(keys, descending=True)
        )


# ----- Values


class Pair(NamedTuple):
    """A bundle of two arrays."""

    small: Any
    wide: Any


@pytest.mark.parametrize("length", [0, 1, 40, 5000])
def test_sort_by_key(device: gs.Device, length: int) -> None:
    """Assert that values of every width and rank move along with their keys, alone and in bundles."""
    rng = np.random.default_rng(length)
    keys = rng.integers(0, 50, length).astype(np.int32)
    arrays = {
        "word": rng.random(length, np.float32),
        "byte": rng.integers(0, 256, length).astype(np.uint8),
        "wide": rng.random(length),
        "complex": rng.random(length).astype(np.complex64),
        "rows": rng.integers(0, 1000, (length, 3)).astype(np.int16),
        "empty": np.zeros((length, 0), np.float32),
    }
    pair = Pair(arrays["byte"], arrays["wide"])
    for descending in (False, True):
        order = order_of(keys, descending=descending)
        values: Any
        for values in (*arrays.values(), pair, dict(arrays)):
            on_device = map_bundle(device.asarray, values)
            found_keys, found = gs.sort_by_key(device.asarray(keys), on_device, descending=descending)
            assert isinstance(found_keys, gs.Array)
            np.testing.assert_array_equal(np.asarray(found_keys), keys[order])
            assert_equal(found, map_bundle(lambda array, order=order: array[order], values))
            found_keys, found = gs.sort_by_key(keys, values, descending=descending)
            np.testing.assert_array_equal(found_keys, keys[order])
            assert_equal(found, map_bundle(lambda array, order=order: array[order], values))


def map_bundle(function: Callable[..., Any], values: Any) -> Any:
    """Return the values, or the bundle of them, with the function applied to each."""
    if isinstance(values, dict):
        return {name: function(value) for name, value in values.items()}
    if isinstance(values, tuple):
        return Pair(*map(function, values))
    return function(values)


def assert_equal(found: Any, expected: Any) -> None:
    """Assert that two arrays, or bundles of them, are equal and of one kind."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            np.testing.assert_array_equal(np.asarray(found[name]), expected[name])
    elif isinstance(expected, tuple):
        assert isinstance(found, Pair)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
    else:
        assert np.asarray(found).dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_structured_values() -> None:
    """Assert that structured arrays move whole."""
    values = np.zeros(30, [("a", np.float32), ("b", np.int8, (2,))])
    values["a"] = np.arange(30)
    values["b"] = np.arange(60).reshape(30, 2)
    keys = np.arange(30) % 7
    _, found = gs.sort_by_key(keys, values)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values[order_of(keys)])


# ----- Errors


def test_refused(device: gs.Device) -> None:
    """Assert that each wrong argument has an error of its own."""
    x = np.arange(6, dtype=np.int32)
    untyped: Any = gs
    with pytest.raises(np.exceptions.AxisError, match="axis=1 was passed for an array of shape"):
        gs.sort(x, axis=1, device=device)
    with pytest.raises(np.exceptions.AxisError, match=r"shape \(\) was to be sorted"):
        gs.argsort(np.float32(3), device=device)
    with pytest.raises(TypeError, match=r"axis=0\.5 was passed"):
        untyped.sort(x, axis=0.5, device=device)
    with pytest.raises(TypeError, match="descending='yes' was passed"):
        untyped.sort(x, descending="yes", device=device)
    with pytest.raises(TypeError, match="stable=3 was passed"):
        untyped.sort(x, stable=3, device=device)
    with pytest.raises(TypeError, match="a bundle of 2 arrays was to be sorted"):
        gs.sort((x, x), device=device)
    with pytest.raises(gs.UnsupportedDtypeError, match="complex numbers have no order"):
        gs.sort(x.astype(np.complex64), device=device)
    with pytest.raises(gs.UnsupportedDtypeError, match="cannot be an element"):
        gs.sort(np.array(["b", "a"]), device=device)
    with pytest.raises(ValueError, match=r"keys of shape \(2, 3\) were passed"):
        gs.sort_by_key(x.reshape(2, 3), x.reshape(2, 3))
    with pytest.raises(ValueError, match=r"6 keys were passed for values of shape \(5,\)"):
        gs.sort_by_key(x, x[:5])


def test_too_large(adapter: Any) -> None:
    """Assert that an array that a shader cannot bind is refused with a way out, and not sorted in part."""
    device = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    keys = np.zeros((1 << 18) + 1, np.float32)
    with pytest.raises(gs.DeviceMemoryError, match=r'262145 keys of dtype float32 .* device="numpy"'):
        gs.sort(keys, device=device)
    with pytest.raises(gs.DeviceMemoryError, match="an array of 8388608 bytes"):
        gs.sort_by_key(device.asarray(keys[: 1 << 18]), device.empty((1 << 18, 8), np.float32))


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]", ">M8[D]"])
def test_dates(device: gs.Device, dtype: str) -> None:
    """Compare sorts of dates and durations with NumPy's. NaT is last, in descending order as well."""
    numbers = np.random.default_rng(0).integers(-99, 99, (300, 5))
    numbers[1], numbers[2] = 2**63 - 1, 1 - 2**63
    native = numbers.view(np.dtype(dtype).newbyteorder("="))
    native[[0, 7, 9], [2, 2, 4]] = "NaT"
    x = native.astype(dtype)
    for where in (device, "numpy"):
        for axis in (0, 1, -1, None):
            assert_same(gs.sort(x, axis=axis, device=where), np.sort(native, axis, kind="stable"))
            assert_same(gs.argsort(x, axis=axis, device=where), np.argsort(native, axis, kind="stable"))
        found = gs.sort(x, axis=0, descending=True, device=where)
        missing = np.isnat(native).sum(0)
        for column, count in enumerate(missing):
            assert np.isnat(found[300 - count :, column]).all()
            assert_same(found[: 300 - count, column], np.sort(native[:, column])[: 300 - count][::-1].copy())
    keys, values = gs.sort_by_key(x[:, 2], np.arange(300))
    order = np.argsort(native[:, 2], kind="stable")
    assert_same(keys, native[order, 2])
    assert_same(values, order)
    with pytest.raises(gs.UnsupportedDtypeError, match=r"x\.view\(np\.int64\)"):
        gs.sort_by_key(x[:, 2], device.asarray(np.arange(300)))


# ----- Segments


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_sorted_segments(device: gs.Device, dtype: Any) -> None:
    """Assert that each segment is sorted by itself, along every axis, with offsets anywhere."""
    for shape, axis, offsets in (
        ((3000,), 0, [0, 1, 1, 900, 2990, 3000]),
        ((7, 50), 1, [0, 20, 50]),
        ((9, 4), 0, [0, 0, 9]),
    ):
        keys = keys_of(dtype, shape, 4)
        pairs = list(pairwise(offsets))
        for descending in (False, True):
            parts = [
                order_of(np.take(keys, range(low, high), axis), axis, descending) + low
                for low, high in pairs
                if high > low
            ]
            wanted = np.concatenate(parts, axis)
            ordered = np.take_along_axis(keys, wanted, axis)
            for segments in (offsets, device.asarray(np.array(offsets))):
                places = gs.argsort(device.asarray(keys), axis=axis, descending=descending, segments=segments)
                np.testing.assert_array_equal(np.asarray(places), wanted)
            for where in (device, "numpy"):
                found = gs.sort(keys, axis=axis, descending=descending, segments=offsets, device=where)
                assert bits_of(found) == ordered.tobytes()
                np.testing.assert_array_equal(
                    gs.argsort(keys, axis=axis, descending=descending, segments=offsets, device=where), wanted
                )
    for wrong in ([0, 5], [0, 9, 4, 9], [1, 9]):
        for there in (keys, device.asarray(keys)):
            with pytest.raises(ValueError, match="segments"):
                gs.sort(there, axis=0, segments=wrong)
