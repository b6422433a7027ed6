"""Counts, histograms, searches and repetitions agree with NumPy, for every kind of key and on every adapter."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning import key_heuristics
from tests.api.test_sort import DTYPES, comparable, keys_of, order_of
from tests.harness.devices import as_gpu
from tests.oracle import Array

INTEGERS = [dtype for dtype in DTYPES if np.dtype(dtype).kind in "biu"]
FLOATS = [np.float16, np.float32, np.float64]


# ----- Counts


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_bincount(device: gs.Device, dtype: Any) -> None:
    """Assert that labels of every type are counted as NumPy counts them, whatever their distribution."""
    rng = np.random.default_rng(3)
    most = 2 if dtype == np.bool_ else 100
    for labels in (rng.integers(0, most, 3000), np.full(3000, most - 1), np.sort(rng.zipf(1.3, 3000) % most)):
        keys = labels.astype(dtype)
        for least in (0, 150, 300):
            wanted = np.bincount(labels, minlength=least)
            for where in (keys, device.asarray(keys)):
                found = gs.bincount(where, minlength=least, device=device)
                assert np.asarray(found).dtype == (np.uint32 if isinstance(where, gs.Array) else np.int64)
                np.testing.assert_array_equal(np.asarray(found), wanted)


def test_bincount_adds_real_numbers(device: gs.Device) -> None:
    """Assert that complex weights are refused, as by NumPy, wherever they are."""
    labels, weights = np.array([1, 0, 1]), np.array([1, 2j, 3], np.complex64)
    for sums in (weights, device.asarray(weights)):
        with pytest.raises(TypeError, match=r"weights\.real"):
            gs.bincount(device.asarray(labels), sums)
    with pytest.raises(TypeError, match=r"weights\.real"):
        gs.bincount(labels, weights, device=device)


def test_bincount_of_many_labels(device: gs.Device) -> None:
    """Assert that more labels than workgroups have counters for are counted, also where a few are most of them."""
    rng = np.random.default_rng(4)
    labels = np.where(rng.random(20000) < 0.5, 77777, rng.integers(0, 90000, 20000)).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(np.bincount(device.asarray(labels))), np.bincount(labels))


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.uint64])
def test_bins_in_parts(device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Assert that bins are counted in parts, whatever their distribution, and that the largest label is found."""
    small = replace(key_heuristics.GPU_COUNTING, part_bins=2048, max_parts=32, min_divided=1, part_workgroups=8)
    monkeypatch.setattr(key_heuristics, "GPU_COUNTING", small)
    place = as_gpu(device)
    rng = np.random.default_rng(6)
    most = 45_000
    for length in (1, 4095, 20_001):
        random = rng.integers(0, most, length)
        for labels in (
            random,
            np.sort(random),
            np.full(length, most - 1),
            np.where(rng.random(length) < 0.5, most // 3, random),
            most - rng.zipf(1.2, length) % most - 1,
        ):
            found = gs.bincount(place.asarray(labels.astype(dtype)), minlength=most)
            np.testing.assert_array_equal(found.numpy(), np.bincount(labels, minlength=most))
    with pytest.raises(ValueError, match="label -7"):
        gs.bincount(place.asarray(np.array([3, -7, 5], np.int32)), minlength=most)
    numbers = np.append(rng.normal(size=9000), [np.nan, np.inf, -np.inf]).astype(np.float32)
    for bins, limits in ((40_000, (-2, 2)), (np.linspace(-1, 3, 30_001) ** 3, None)):
        counts = gs.histogram(place.asarray(numbers), bins, limits)[0]
        np.testing.assert_array_equal(counts.numpy(), np.histogram(numbers, bins, limits)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.float16])
def test_weights(device: gs.Device, dtype: Any) -> None:
    """Assert that weights are summed for each label and for each bin."""
    rng = np.random.default_rng(5)
    labels, weights = rng.integers(0, 9, 500), rng.integers(-4, 9, 500).astype(dtype)
    found = gs.bincount(device.asarray(labels), weights, 12)
    assert found.dtype == (np.int64 if dtype == np.int16 else np.float32)
    np.testing.assert_array_equal(np.asarray(found), np.bincount(labels, weights, 12))
    np.testing.assert_array_equal(gs.bincount(labels, weights, device=device), np.bincount(labels, weights))
    numbers = rng.normal(size=500).astype(np.float32)
    for bins, limits in ((7, None), (5, (-0.5, 0.7)), ([-1.0, 0.0, 0.5], None)):
        counts, edges = gs.histogram(device.asarray(numbers), bins, limits, weights=device.asarray(weights))
        wanted = np.histogram(numbers, bins, limits, weights=weights)
        np.testing.assert_array_equal(np.asarray(counts), wanted[0])
        np.testing.assert_array_equal(np.asarray(edges), wanted[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, *FLOATS], ids=lambda dtype: np.dtype(dtype).name)
def test_histogram(device: gs.Device, dtype: Any) -> None:
    """Assert that counts and edges are NumPy's, for equal bins, given edges, and a range beyond the numbers."""
    rng = np.random.default_rng(6)
    numbers = rng.normal(100, 30, (50, 41)).clip(0, 255).astype(dtype)
    numbers[0, :9] = np.linspace(60, 140, 9).astype(dtype)
    cases: list[tuple[Any, Any]] = [(10, None), (8, (60, 140)), (5, (1000, 1010))]
    cases += [([0, 0.5, 70, 70, 99.5, 300], None), (np.array([3]), None)]
    if dtype != np.float16:  # float16 has too few numbers for this
        cases.append((256, (-7, 131.3)))
    for bins, limits in cases:
        wanted = np.histogram(numbers, bins, limits)
        if dtype == np.float16:
            # NumPy guesses the bin in 16 bits, which may be off by more than it corrects.
            wanted = np.histogram(numbers, wanted[1])
        for where in (numbers, device.asarray(numbers)):
            count = np.histogram if isinstance(where, gs.Array) else partial(gs.histogram, device=device)
            found = count(where, bins, limits)
            np.testing.assert_array_equal(np.asarray(found[0]), wanted[0], str((bins, limits)))
            np.testing.assert_array_equal(np.asarray(found[1]), wanted[1])
            assert np.asarray(found[1]).dtype == wanted[1].dtype
    if np.dtype(dtype).kind == "f":
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, 3.0], dtype)
        for bins in (4, [0, 1, 2]):
            limits = (0, 2) if bins == 4 else None
            found = gs.histogram(device.asarray(special), bins, limits)
            np.testing.assert_array_equal(np.asarray(found[0]), np.histogram(special, bins, limits)[0])
        with pytest.raises(ValueError, match="finite"):
            gs.histogram(device.asarray(special))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint16])
def test_histogram_of_numbers_next_to_edges(device: gs.Device, dtype: Any) -> None:
    """Assert that numbers next to edges are counted where they belong, also where float32 cannot tell edges apart."""
    limits: list[tuple[float, float]] = [(0, 1000), (-3, 40000), (1e6, 1e6 + 300), (0.5, 99.25)]
    if dtype == np.float32:
        limits += [(-3.3, 7.1), (0, 1e-37), (1, 1 + 1e-3), (-1e30, 3e38)]
    info = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    for bins in (1, 7, 256, 3000):
        for low, high in limits:
            edges = np.histogram_bin_edges(np.zeros(0), bins, (low, high)).clip(float(info.min), float(info.max))
            near = edges.astype(dtype)
            if np.dtype(dtype).kind == "f":
                around = [np.nextafter(near, dtype(-np.inf)), near, np.nextafter(near, dtype(np.inf))]
            else:
                around = [near - 1, near, near + 1]
            numbers = np.concatenate(around).astype(dtype)
            found = gs.histogram(device.asarray(numbers), bins, (low, high))[0]
            wanted = np.histogram(numbers.astype(np.float64), np.histogram_bin_edges(numbers, bins, (low, high)))[0]
            np.testing.assert_array_equal(np.asarray(found), wanted, str((bins, low, high)))


def test_bins_before_the_first_number_of_a_type(device: gs.Device) -> None:
    """Assert that narrow bins below the least number of a type do not keep others from their numbers."""
    numbers = np.tile(np.array([0, 1], np.uint8), 2000)
    wanted = np.histogram(numbers, 5000, (-2, 2))[0]
    np.testing.assert_array_equal(np.asarray(gs.histogram(device.asarray(numbers), 5000, (-2, 2))[0]), wanted)


def test_edges_on_a_device(device: gs.Device) -> None:
    """Assert that edges may be on the device, and that falling ones are an error."""
    numbers = np.random.default_rng(7).integers(-5, 20, 300).astype(np.int32)
    edges = np.array([-2, 0, 5, 5, 19], np.int32)
    found = gs.histogram(device.asarray(numbers), device.asarray(edges))
    np.testing.assert_array_equal(np.asarray(found[0]), np.histogram(numbers, edges)[0])
    assert isinstance(found[1], gs.Array)
    with pytest.raises(ValueError, match="decrease"):
        gs.histogram(device.asarray(numbers), device.asarray(edges[::-1].copy()))


# ----- Searches and repetitions


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_searchsorted(device: gs.Device, dtype: Any) -> None:
    """Assert that keys of every type find their places, on both sides of equal keys, with NaN at the end."""
    ordered = keys_of(dtype, (1500,), 8)
    ordered = ordered[order_of(ordered)]
    values = np.append(keys_of(dtype, (200,), 1), ordered[:55]).reshape(5, 51)
    for side in ("left", "right"):
        wanted = np.searchsorted(comparable(ordered), comparable(values), side)
        for found in (
            gs.searchsorted(ordered, values, side=side, device=device),
            np.searchsorted(device.asarray(ordered), device.asarray(values), side),
        ):
            assert found.dtype == (np.uint32 if isinstance(found, gs.Array) else np.int64)
            np.testing.assert_array_equal(np.asarray(found), wanted)


def test_values_of_other_types(device: gs.Device) -> None:
    """Assert that values of NumPy are compared exactly, although the keys keep a dtype that cannot hold them."""
    rng = np.random.default_rng(2)
    lists: list[Array] = [
        np.arange(20, dtype=np.int32) * 3,
        np.sort(rng.normal(size=100).astype(np.float32)),
        np.array([False, True]),
    ]
    lists += [np.zeros(0, np.float32), np.array([-(2**31), 5, 2**31 - 1], np.int32), np.array([0, 255], np.uint8)]
    for keys in lists:
        array = device.asarray(keys)
        for value in (5, 5.5, 1e20, -1e20, np.nan, np.array([[3, 4], [300, -7]]), keys[:3].astype(np.float64) + 0.1):
            for side in ("left", "right"):
                wanted = np.searchsorted(keys, value, side)
                np.testing.assert_array_equal(np.asarray(gs.searchsorted(array, value, side=side)), wanted)
                np.testing.assert_array_equal(gs.searchsorted(keys, value, side=side, device=device), wanted)
    # NumPy knows no common dtype of bfloat16 and others.
    halves = np.arange(-4, 5).astype(ml_dtypes.bfloat16)
    for values in (np.array([3, -9, 2], np.int16), np.array([0.5, np.nan, 2], np.float16), np.array([True, False])):
        for left, right in ((halves, values), (np.sort(values), halves)):
            wanted = np.searchsorted(left.astype(np.float64), right.astype(np.float64))
            for where in (left, device.asarray(left)):
                for sought in (right, device.asarray(right)):
                    np.testing.assert_array_equal(np.asarray(gs.searchsorted(where, sought)), wanted)
    shuffled = rng.permutation(50).astype(np.float32)
    sorter = np.argsort(shuffled)
    found = gs.searchsorted(device.asarray(shuffled), np.float32(3.5), sorter=device.asarray(sorter))
    assert int(found) == np.searchsorted(shuffled, 3.5, sorter=sorter)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.complex64, np.dtype("M8[s]"), np.complex128])
def test_repeat(device: gs.Device, dtype: Any) -> None:
    """Assert that entries of every size are repeated along every axis, by one number or one for each."""
    x = np.arange(60).reshape(3, 5, 4).astype(dtype)
    there: list[Any] = [x] if x.dtype.kind == "M" or dtype == np.complex128 else [x, device.asarray(x)]
    rng = np.random.default_rng(1)
    for axis in (None, 0, 1, -1):
        length = x.size if axis is None else x.shape[axis]
        for repeats in (0, 3, np.array([2]), rng.integers(0, 4, length), np.zeros(length, np.uint8)):
            wanted = np.repeat(x, repeats, axis)
            for array in there:
                np.testing.assert_array_equal(np.asarray(gs.repeat(array, repeats, axis=axis, device=device)), wanted)
        counts = rng.integers(0, 4, length).astype(np.int32)
        found = np.repeat(there[-1], device.asarray(counts), axis) if len(there) > 1 else None
        if found is not None:
            np.testing.assert_array_equal(np.asarray(found), np.repeat(x, counts, axis))
    pair = gs.repeat((x, x[..., 0]), [1, 0, 2], axis=0, device=device)
    np.testing.assert_array_equal(pair[1], np.repeat(x[..., 0], [1, 0, 2], 0))


# ----- NumPy's other functions


@pytest.mark.parametrize("dtype", [np.bool_, np.float64])
def test_views_whose_elements_are_no_neighbours(device: gs.Device, dtype: Any) -> None:
    """Count and search bools, and floats that an adapter may read by their bits, in views with steps."""
    x = np.random.default_rng(3).integers(0, 2, 75).astype(dtype)
    there = device.asarray(x)
    for step in (-1, 2, -3):
        view, wanted = there[::step], x[::step]
        for options in ({"bins": 3}, {"bins": np.array([0, 0.5, 1.0])}, {"bins": 2, "range": (0.0, 1.0)}):
            numbers = wanted.astype(np.uint8) if dtype is np.bool_ else wanted
            counts, edges = gs.histogram(view, **options)
            expected = np.histogram(numbers, **options)
            np.testing.assert_array_equal(np.asarray(counts), expected[0])
            np.testing.assert_allclose(np.asarray(edges), expected[1])
    ordered = device.asarray(np.sort(x)[::-1].copy())[::-1]
    values = np.array([0, 1, 1, 0], np.int16 if dtype is np.bool_ else dtype)
    np.testing.assert_array_equal(np.asarray(gs.searchsorted(ordered, values)), np.searchsorted(np.sort(x), values))


def test_numpy_functions(device: gs.Device) -> None:
    """Assert that differences, places and partitions of arrays on a device are NumPy's."""
    x = np.random.default_rng(5).integers(-9, 9, (12, 20)).astype(np.float32)
    x[3, 4] = x[3, 9] = np.nan
    array, bools = device.asarray(x), device.asarray(x > 0)
    for axis in (None, 1):
        for function in (np.argmax, np.argmin):
            np.testing.assert_array_equal(np.asarray(function(array, axis)), function(x, axis))
    wanted = np.argmax(x, axis=1, keepdims=True)
    for found in (np.argmax(array, axis=1, keepdims=True), array.argmax(1, keepdims=True)):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    assert (array.argmax().item(), array.argmin().item()) == (x.argmax(), x.argmin())
    for n, axis in ((1, -1), (2, 0), (0, 1)):
        np.testing.assert_array_equal(np.asarray(np.diff(array, n, axis)), np.diff(x, n, axis))
    assert np.diff(array, 10**15).shape == (*array.shape[:-1], 0)
    np.testing.assert_array_equal(np.asarray(np.diff(bools)), np.diff(x > 0))
    ends = np.diff(x, prepend=np.float32(1), append=x[:, :2])
    np.testing.assert_array_equal(np.asarray(np.diff(array, prepend=np.float32(1), append=x[:, :2])), ends)
    for there, values in ((array, x), (bools, x > 0), (array[0], x[0]), (array[:0], x[:0])):
        for found, expected in zip(np.nonzero(there), np.nonzero(values), strict=True):
            np.testing.assert_array_equal(np.asarray(found), expected)
    found = np.asarray(np.partition(array, 5, axis=0))
    np.testing.assert_array_equal(found[5], np.partition(x, 5, axis=0)[5])
    assert (np.sort(found, axis=0).tobytes()) == np.sort(x, axis=0).tobytes()


# ----- Edges of the contract


def test_empty_arrays(device: gs.Device) -> None:
    """Assert that arrays without elements give what NumPy gives."""
    none = np.zeros(0, np.int32)
    for where in (none, device.asarray(none)):
        assert [part.shape for part in gs.unique_all(where)] == [(0,)] * 4
        assert [part.shape for part in gs.run_length_encode(where)] == [(0,)] * 2
        assert [part.shape for part in gs.top_k(where, 0)] == [(0,)] * 2
        assert np.asarray(gs.bincount(where, minlength=3)).tolist() == [0, 0, 0]
        assert np.asarray(gs.histogram(where, 2)[0]).tolist() == [0, 0]
        assert gs.repeat(where, 3).shape == (0,)
        assert gs.repeat(where, none).shape == (0,)
        assert np.asarray(gs.searchsorted(where, [1, 2])).tolist() == [0, 0]
        assert np.isnan(float(gs.median(device.asarray(np.zeros(0, np.float32)))))
        with pytest.raises(IndexError):
            gs.quantile(where, 0.5)
        assert [np.asarray(part).shape for part in np.unique(device.asarray(none), return_counts=True)] == [(0,)] * 2


def test_wrong_arguments(device: gs.Device) -> None:
    """Assert that wrong arguments raise NumPy's errors, with and without an adapter, for arrays anywhere."""
    untyped: Any = gs
    calls: list[tuple[Any, Any]] = [
        (ValueError, lambda x, o: gs.bincount(x, **o)),
        (ValueError, lambda x, o: gs.bincount(x.reshape(1, 3), **o)),
        (ValueError, lambda x, o: gs.bincount(x[:1], minlength=-1, **o)),
        (ValueError, lambda x, o: gs.bincount(x[:1], [1.0, 2.0], **o)),
        (TypeError, lambda x, o: gs.bincount(x.astype(np.float32), **o)),
        (ValueError, lambda x, o: gs.repeat(x, -1, **o)),
        (ValueError, lambda x, o: gs.repeat(x, [1, -2, 3], **o)),
        (ValueError, lambda x, o: gs.repeat(x, [1, 2], **o)),
        (ValueError, lambda x, o: gs.histogram(x, [3, 1], **o)),
        (ValueError, lambda x, o: gs.histogram(x, 0, **o)),
        (ValueError, lambda x, o: gs.histogram(x, 3, (2, 1), **o)),
        (ValueError, lambda x, o: gs.histogram(x, weights=[1.0], **o)),
        (ValueError, lambda x, o: gs.searchsorted(x.reshape(1, 3), 1, **o)),
        (ValueError, lambda x, o: untyped.searchsorted(x, 1, side="middle", **o)),
        (ValueError, lambda x, o: gs.searchsorted(x, 1, sorter=[0], **o)),
        (ValueError, lambda x, o: gs.top_k(x, 4, **o)),
        (ValueError, lambda x, o: gs.top_k(x, -1, **o)),
        (TypeError, lambda x, o: untyped.top_k(x, 1.5, **o)),
        (ValueError, lambda x, o: gs.quantile(x, 1.5, **o)),
        (ValueError, lambda x, o: untyped.quantile(x, 0.5, method="none", **o)),
        (TypeError, lambda x, o: untyped.quantile(x, 0.5, keepdims="yes", **o)),
        (TypeError, lambda x, o: untyped.median(x, keepdims=None, **o)),
        (ValueError, lambda x, o: untyped.searchsorted(x, 1, side=np.zeros(2), **o)),
        (ValueError, lambda x, o: untyped.quantile(x, 0.5, method=np.zeros(2), **o)),
        (ValueError, lambda x, o: untyped.quantile(x, [[0.5], [0.1, 1.0]], **o)),
        (ValueError, lambda x, o: untyped.histogram(x, range=3, **o)),
        (ValueError, lambda x, o: untyped.histogram(x, range="ab", **o)),
        (TypeError, lambda x, o: untyped.histogram(np.array(["a", "b"]), **o)),
        (ValueError, lambda x, o: gs.run_length_encode(x.reshape(1, 3), **o)),
        (ValueError, lambda x, o: gs.partition_by(x, [True], **o)),
        (TypeError, lambda x, o: gs.partition_by(x, [1, 0, 1], **o)),
    ]
    labels = np.array([3, -1, 4], np.int32)
    for where, options in ((labels, {"device": device}), (labels, {"device": "numpy"}), (device.asarray(labels), {})):
        for error, call in calls:
            with pytest.raises(error):
                call(where, options)
    with pytest.raises(ValueError, match="without arrays was passed as keys"):
        gs.reduce_by_key({}, labels)
    with pytest.raises(TypeError, match="weights of dtype bool were passed"):
        gs.histogram(device.asarray(labels), weights=labels > 0)
    with pytest.raises(ValueError, match="negative"):
        gs.repeat(device.asarray(labels), device.asarray(np.array([1, -1, 2], np.int32)))
    device.synchronize()


# ----- Any call


@settings(max_examples=10)
@given(st.data())
def test_any_array(data: st.DataObject) -> None:
    """Assert the laws that hold for all arrays, on the default device."""
    dtype = data.draw(st.sampled_from([np.uint8, np.int32, np.float32]))
    keys = keys_of(dtype, (data.draw(st.integers(1, 5000)),), data.draw(st.integers(0, 9)))
    device = gs.default_device()
    array = device.asarray(keys)
    found = gs.unique_all(array)
    values, firsts, inverse, counts = (np.asarray(part) for part in found)
    assert counts.sum() == keys.size
    np.testing.assert_array_equal(values[inverse], keys)
    np.testing.assert_array_equal(keys[firsts], values)
    lengths = gs.run_length_encode(array)
    np.testing.assert_array_equal(np.asarray(gs.repeat(*lengths)), keys)
    mask = np.random.default_rng(keys.size).random(keys.size) < data.draw(st.sampled_from([0.01, 0.5, 0.99]))
    for part, picks in zip(gs.partition_by(array, mask), (mask, ~mask), strict=True):
        np.testing.assert_array_equal(np.asarray(part), keys[picks])
    k = data.draw(st.integers(0, min(keys.size, 100)))
    np.testing.assert_array_equal(np.asarray(gs.top_k(array, k)[1]), order_of(keys, 0, descending=True)[:k])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_are_no_floats(device: gs.Device, dtype: str) -> None:
    """Compare histograms and searches of numbers that NumPy rounds to float64 first."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    for bits in range(50, 63):
        x = np.append(2**bits + rng.integers(-9, 9, 20), [0, info.max if bits % 2 else 2**bits + 1]).astype(dtype)
        for bins in (1, 3, np.sort(rng.choice(x.astype(np.float64), 4))):
            counts, edges = gs.histogram(x, bins, device=device)
            wanted, wanted_edges = np.histogram(x, bins)
            np.testing.assert_array_equal(counts, wanted)
            np.testing.assert_array_equal(edges, wanted_edges)
        ordered, places = np.sort(x), rng.choice(x.astype(np.float64), 5)
        for side in ("left", "right"):
            wanted = np.searchsorted(ordered, places, side)
            np.testing.assert_array_equal(gs.searchsorted(ordered, places, side=side, device=device), wanted)


def test_edges_of_another_dtype(device: gs.Device) -> None:
    """Count with edges on the device that the array's dtype does not have, with NaN as an edge, and with one edge."""
    unsigned, signed = np.array([1, 2, 3], np.uint64), np.array([0, 1, 1, 2], np.int32)
    for x, edges in ((unsigned, np.array([-1, 2, 5])), (signed, np.array([0.5, 1.5, 2], np.float32))):
        counts, kept = gs.histogram(device.asarray(x), device.asarray(edges))
        np.testing.assert_array_equal(counts.numpy(), np.histogram(x, edges)[0])
        np.testing.assert_array_equal(kept.numpy(), edges)
    for dtype in ("int32", "uint8", "int64", "float32"):
        numbers = signed.astype(dtype)
        for bounds in ([-1.0, np.nan], [0, 1, np.nan], [np.nan, np.nan], [-np.inf, 1, np.inf], [1.0]):
            found, wanted = gs.histogram(numbers, bounds, device=device)[0], np.histogram(numbers, bounds)[0]
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype
