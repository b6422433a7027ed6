"""The greatest elements, partitions, quantiles and medians agree with NumPy, on every adapter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.selecting import QuantileMethod
from gpuscan.planning import key_heuristics
from tests.api.test_sort import bits_of, keys_of, order_of

FLOATS = [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.float64], ids=lambda dtype: np.dtype(dtype).name)
def test_top_k(device: gs.Device, dtype: Any) -> None:
    """Assert that the first elements of a sort come out with their indices, from rows of every length."""
    for shape, axis, numbers in (((5000,), 0, (1, 60)), ((3, 200), -1, (5, 150)), ((40, 5), 0, (0, 7, 40))):
        keys = keys_of(dtype, shape, 6)
        for largest in (dtype != np.float32,):
            order = order_of(keys, axis, largest)
            for k in numbers:
                first = np.take(order, range(k), axis)
                for where in (keys, device.asarray(keys)):
                    values, indices = gs.top_k(where, k, axis=axis, largest=largest, device=device)
                    assert indices.dtype == (np.uint32 if isinstance(where, gs.Array) else np.int64)
                    np.testing.assert_array_equal(np.asarray(indices), first)
                    assert bits_of(values) == np.take_along_axis(keys, first, axis).tobytes()


def test_ties_of_many_tiles(device: gs.Device) -> None:
    """Assert that equal elements come in the order of their indices, although tiles drop what others exceed."""
    keys = np.zeros(30000, np.float32)
    keys[[29999, 17, 20000]] = 1.0, -1.0, 1.0
    values, indices = gs.top_k(device.asarray(keys), 6)
    assert np.asarray(indices).tolist() == [20000, 29999, 0, 1, 2, 3]
    assert np.asarray(values).tolist() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.int64])
def test_top_k_with_a_sample(device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    """Assert that a selection that begins with a few tiles finds the same, wherever the first keys are."""
    for name in ("GPU_COUNTING", "CPU_COUNTING"):
        sampled = replace(getattr(key_heuristics, name), min_sampled_tiles=2, sample_stride=3)
        monkeypatch.setattr(key_heuristics, name, sampled)
    random = keys_of(dtype, (2, 20_000), 6)
    rises = np.sort(random, axis=1)
    for keys in (random, rises, rises[:, ::-1].copy(), np.full_like(random, random[0, 0])):
        for k, largest in ((1, True), (70, False)):
            indices = gs.top_k(device.asarray(keys), k, axis=1, largest=largest)[1]
            np.testing.assert_array_equal(np.asarray(indices), order_of(keys, 1, largest)[:, :k])


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int16, np.float32, np.float64, np.complex128], ids=lambda d: np.dtype(d).name
)
def test_partition_by(device: gs.Device, dtype: Any) -> None:
    """Assert that both parts keep their order, for entries of every size, few and many picked."""
    rng = np.random.default_rng(8)
    for shape in ((1,), (3000,), (7000,), (200, 3), (50, 0), (0, 2)):
        x = rng.integers(0, 99, shape).astype(dtype)
        for share in (0.0, 0.2, 1.0):
            mask = rng.random(shape[0]) < share
            arrays: list[Any] = [x] if dtype == np.complex128 else [x, device.asarray(x)]
            for where in arrays:
                picked, others = gs.partition_by(where, mask, device=device)
                np.testing.assert_array_equal(np.asarray(picked), x[mask])
                np.testing.assert_array_equal(np.asarray(others), x[~mask])
    pair: dict[str, Any] = {"a": np.arange(10), "b": np.arange(20, dtype=np.int8).reshape(10, 2)}
    picked, others = gs.partition_by(pair, np.arange(10) > 6, device=device)
    assert picked["a"].tolist() == [7, 8, 9]
    np.testing.assert_array_equal(others["b"], pair["b"][:7])
    untyped: Any = gs.partition_by
    with pytest.raises(TypeError, match=r"a function was passed as mask.* gpuscan\.map\(mask, x\)"):
        untyped(np.arange(10), lambda x: x > 6, device=device)
    with pytest.raises(TypeError, match=r"a mask of dtype int64 was passed.* Pass mask != 0$"):
        gs.partition_by(np.arange(10), np.arange(10), device=device)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, *FLOATS], ids=lambda dtype: np.dtype(dtype).name)
def test_quantiles(device: gs.Device, dtype: Any) -> None:
    """Assert that quantiles and medians of NumPy arrays have NumPy's bits, and that device arrays agree with them."""
    rng = np.random.default_rng(9)
    x = rng.integers(0, 90, (6, 4, 11)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[1, 2, 3], x[2, 2, 2], x[0, 0, 0] = np.nan, np.inf, -0.0
    array = device.asarray(x)
    there = dtype != np.float64 or device.capabilities.float64
    tolerance = 2e-3 if dtype == np.float16 else 1e-6
    with np.errstate(invalid="ignore"):
        for axis in (None, 1, -1, (0, 2)):
            for q in (0.37, [0, 0.5, 0.8, 1]):
                wanted, found = np.quantile(x, q, axis=axis), gs.quantile(x, q, axis=axis, device=device)
                np.testing.assert_array_equal(found, wanted)
                assert np.asarray(found).dtype == wanted.dtype
                if there:
                    found = np.quantile(array, q, axis=axis)
                    np.testing.assert_allclose(np.asarray(found), wanted, rtol=tolerance)
            for rows in (x, x[:, :, :10]):
                wanted, found = np.median(rows, axis=axis), gs.median(rows, axis=axis, device=device)
                np.testing.assert_array_equal(found, wanted)
                assert np.asarray(found).dtype == wanted.dtype
        if there:
            found = np.median(array, axis=(0, 2), keepdims=True)
            np.testing.assert_allclose(np.asarray(found), np.median(x, axis=(0, 2), keepdims=True), rtol=tolerance)


def test_methods_of_quantiles(device: gs.Device) -> None:
    """Assert that every method of NumPy gives NumPy's values."""
    x = np.random.default_rng(1).integers(0, 50, 12).astype(np.float32)
    q = np.linspace(0, 1, 37)
    names: list[QuantileMethod] = ["inverted_cdf", "averaged_inverted_cdf", "closest_observation", "hazen"]
    names += ["interpolated_inverted_cdf", "weibull", "linear", "median_unbiased", "normal_unbiased", "lower", "higher"]
    names += ["midpoint", "nearest"]
    for method in names:
        for part in (x, x[:1], x[:5]):
            wanted = np.quantile(part, q, method=method)
            np.testing.assert_array_equal(gs.quantile(part, q, method=method, device=device), wanted, method)
        found = gs.quantile(device.asarray(x), q, method=method)
        np.testing.assert_allclose(np.asarray(found), np.quantile(x, q, method=method), rtol=1e-6, err_msg=method)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 has other dtypes")
def test_dtypes_of_quantiles(device: gs.Device) -> None:
    """Assert that quantiles of NumPy arrays have NumPy's dtype for every dtype of q."""
    methods: list[QuantileMethod] = ["linear", "midpoint"]
    dtype: Any
    for dtype in (np.float16, np.float32, np.int32):
        x = np.random.default_rng(1).integers(0, 50, 12).astype(dtype)
        q: Any
        for q in (np.float32(0.3), np.array([0.1, 0.77], np.float32), 0, 1, 1.0, [0, 1]):
            for method in methods:
                wanted = np.quantile(x, q, method=method)
                found = gs.quantile(x, q, method=method, device=device)
                np.testing.assert_array_equal(found, wanted, f"{dtype} {q} {method}")
                assert np.asarray(found).dtype == wanted.dtype, (dtype, q, method)


def test_least_and_greatest_element_beside_infinities(device: gs.Device) -> None:
    """Assert that the quantiles 0 and 1, as integers, are the extrema: nothing is interpolated."""
    x = np.array([3, -np.inf, np.inf, 2], np.float32)
    q: Any
    for q, wanted in ((0, -np.inf), (1, np.inf), ([1, 0], [np.inf, -np.inf]), (np.int64(0), -np.inf)):
        for found in (gs.quantile(x, q, device=device), gs.quantile(device.asarray(x), q)):
            np.testing.assert_array_equal(np.asarray(found), wanted)


def test_nan_among_bfloat16(device: gs.Device) -> None:
    """Assert that rows with NaN have no quantiles in a type that NumPy lacks, with and without an adapter."""
    x = np.array([[1, 2, np.nan, 4], [3, 1, 2, 7]]).astype(ml_dtypes.bfloat16)
    for where in (device, "numpy"):
        for found in (
            gs.median(x, axis=1, device=where),
            gs.quantile(x, 0.5, axis=1, device=where),
            gs.quantile(x, [0.5], axis=1, device=where)[0],
        ):
            np.testing.assert_array_equal(found.astype(np.float32), [np.nan, 2.5])
        assert np.isnan(gs.median(x, device=where))
        nearest = gs.quantile(x, 1, axis=1, method="nearest", keepdims=True, device=where)
        np.testing.assert_array_equal(nearest.astype(np.float32), [[np.nan], [7]])
