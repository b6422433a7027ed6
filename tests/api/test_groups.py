"""Scans of groups: each element is combined with the earlier elements of its own label, in any order of labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.key_heuristics import group_heuristics_for
from tests.harness.devices import as_gpu
from tests.oracle import AFFINE, MATRICES, Array, assert_same, one_by_one, words


def by_definition(function: Any, x: tuple[Array, ...], labels: Array, axis: int = 0, **options: Any) -> list[Array]:
    """Scan each group of a bundle by itself, one element at a time."""
    shape = x[0].shape
    if labels.shape != shape:
        labels = labels.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    labels = np.moveaxis(np.broadcast_to(labels, shape), axis, -1)
    results = [np.empty(shape, field.dtype) for field in x]
    rows = [np.moveaxis(field, axis, -1) for field in x]
    initial = options.pop("initial", None)
    for row in np.ndindex(labels.shape[:-1]):
        seeds = None if initial is None else tuple(np.broadcast_to(v, labels.shape[:-1])[row] for v in initial)
        for label in np.unique(labels[row]):
            chosen = labels[row] == label
            fields = tuple(field[row][chosen] for field in rows)
            found = one_by_one(function, fields, initial=seeds, **options)
            for result, part in zip(results, found, strict=True):
                np.moveaxis(result, axis, -1)[row][chosen] = part
    return results


def add(left: Any, right: Any) -> Any:
    """Add the only fields of two elements."""
    return (left[0] + right[0],)


LENGTHS = (1, 33, 5000)


@pytest.mark.parametrize("reach", [2, 7, 1000], ids=lambda reach: f"{reach}-labels")
def test_pandas_agrees(device: gs.Device, reach: int) -> None:
    """Assert that sums by group are pandas', from NumPy and on the device, for labels in any order and sorted."""
    rng = np.random.default_rng(reach)
    for length in LENGTHS:
        x = rng.integers(-99, 99, length).astype(np.int32)
        # -1 says that a label is missing.
        for labels in (
            2 * rng.integers(-3, reach - 3, length),
            np.sort(rng.integers(0, reach, length)).astype(np.uint16),
        ):
            expected = pd.Series(x).groupby(labels).cumsum().to_numpy()
            for where in (device, "numpy"):
                found = gs.scan(x, groups=labels, device=where)
                assert found.dtype == x.dtype
                np.testing.assert_array_equal(found, expected)
            on_device = gs.scan(device.asarray(x), groups=device.asarray(labels))
            assert isinstance(on_device, gs.Array)
            np.testing.assert_array_equal(np.asarray(on_device), expected)


@pytest.mark.parametrize("names", ["", "exclusive", "reverse", "initial", "exclusive reverse initial"])
def test_options(device: gs.Device, names: str) -> None:
    """Assert that elements of groups are combined in order, whatever the options; the operator does not commute."""
    rng = np.random.default_rng(5)
    given: dict[str, Any] = dict.fromkeys(names.split(), True)
    if "initial" in given:
        given["initial"] = (np.uint32(3), np.uint32(5))
    x, labels = words(rng, 2, 1300), rng.integers(0, 30, 1300)
    # Without `initial`, exclusive scans begin with the identity.
    first = {"initial": (np.uint32(1), np.uint32(0))} if "exclusive" in given else {}
    expected = by_definition(AFFINE.function, x, labels, **(first | given))
    for where in (device, "numpy"):
        found = gs.scan(x, AFFINE, groups=labels, device=where, **given)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    array = tuple(device.asarray(field) for field in x)
    for one, other in zip(gs.scan(array, AFFINE, groups=labels, **given), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(device: gs.Device, axis: int) -> None:
    """Assert that every row has groups of its own, by one label for each place and by one for each element."""
    rng = np.random.default_rng(axis)
    shape = (6, 50, 4)
    x = rng.integers(0, 1000, shape).astype(np.int16)
    initial = rng.integers(0, 9, tuple(n for i, n in enumerate(shape) if i != axis)).astype(np.int16)
    for labels in (rng.integers(0, 3, shape), rng.integers(0, 3, shape[axis]), np.zeros(shape, bool)):
        (expected,) = by_definition(add, (x,), labels, axis, reverse=True, initial=(initial,))
        options: dict[str, Any] = {"axis": axis, "reverse": True, "initial": initial}
        for where in (device, "numpy"):
            np.testing.assert_array_equal(gs.scan(x, groups=labels, device=where, **options), expected)
        found = gs.scan(device.asarray(x), groups=device.asarray(labels), **options)
        np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint16, np.int32, np.int64, np.uint64], ids=lambda d: d.__name__
)
def test_labels(device: gs.Device, dtype: Any) -> None:
    """Assert that labels of every integer dtype, up to their limits, tell groups apart."""
    rng = np.random.default_rng(0)
    choices = [False, True] if dtype == np.bool_ else [np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max]
    labels = rng.choice(np.array(choices, dtype), 3000)
    x = rng.integers(0, 9, 3000).astype(np.uint8)
    (expected,) = by_definition(add, (x,), labels)
    for where in (device, "numpy"):
        np.testing.assert_array_equal(gs.scan(x, groups=labels, device=where), expected)
    np.testing.assert_array_equal(np.asarray(gs.scan(device.asarray(x), groups=device.asarray(labels))), expected)


def test_elements(device: gs.Device) -> None:
    """Assert that elements of every width are moved whole: bytes, matrices, four fields, maps to other dtypes."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 5, 400)
    matrices = rng.integers(0, 3, (400, 2, 2)).astype(np.int32)
    fields = words(rng, 4, 400)
    for where in (device, "numpy"):
        found = gs.scan(matrices, "matmul", groups=labels, device=where)
        for label in range(5):
            alone = gs.scan(matrices[labels == label], "matmul", axis=0, device="numpy")
            np.testing.assert_array_equal(found[labels == label], alone)
        expected = by_definition(MATRICES.function, fields, labels)
        for one, other in zip(gs.scan(fields, MATRICES, groups=labels, device=where), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        small = fields[0].astype(np.int8)
        wide = gs.scan(small, groups=labels, before=lambda v: v.astype(np.float32), after=lambda v: v * 2, device=where)
        (expected_wide,) = by_definition(add, (small.astype(np.float32),), labels)
        np.testing.assert_array_equal(wide, 2 * expected_wide)


@pytest.mark.parametrize("op", ["maximum", "logical_and", "bitwise_xor"])
def test_bools(device: gs.Device, op: str) -> None:
    """Assert results of bools by the plans of a GPU. Their carries begin with a neutral element."""
    device = as_gpu(device)
    rng = np.random.default_rng(3)
    x, labels = rng.integers(0, 2, 20_000) > 0, rng.integers(0, 37, 20_000)
    starts: list[dict[str, Any]] = [{}, {"initial": True}]
    for options in starts:
        got = gs.scan(device.asarray(x), op, groups=labels, **options)
        assert_same(got.numpy(), gs.scan(x, op, groups=labels, device="numpy", **options))
    got = gs.reduce(device.asarray(x), op, groups=labels, num_groups=37)
    assert_same(got.numpy(), gs.reduce(x, op, groups=labels, num_groups=37, device="numpy"))


def test_indices(device: gs.Device) -> None:
    """Assert that `before` gets an element's own index along the axis, not its place among the sorted elements."""
    rng = np.random.default_rng(6)
    x, labels = rng.integers(0, 9, (3, 200)).astype(np.int32), rng.integers(0, 4, 200)
    weighted = x * np.arange(200, dtype=np.int32)
    (expected,) = by_definition(add, (weighted,), labels, 1)
    options: dict[str, Any] = {"axis": 1, "groups": labels, "before": lambda v, i: v * i}
    sums = np.stack([weighted[:, labels == label].sum(axis=1) for label in range(4)], axis=1)
    for where in (device, "numpy"):
        np.testing.assert_array_equal(gs.scan(x, device=where, **options), expected)
        np.testing.assert_array_equal(gs.reduce(x, device=where, **options), sums)
    np.testing.assert_array_equal(gs.scan(device.asarray(x), **options).numpy(), expected)
    np.testing.assert_array_equal(gs.reduce(device.asarray(x), **options).numpy(), sums)


def test_out(device: gs.Device) -> None:
    """Assert that results are written to `out`, which may be the input, a view, or an array in another order."""
    rng = np.random.default_rng(3)
    x, labels = rng.integers(0, 9, (40, 30)).astype(np.int32), rng.integers(0, 4, 30)
    (expected,) = by_definition(add, (x,), labels, 1)
    for where in (device, "numpy"):
        out = np.full((40, 30), -1, np.int32, order="F")
        assert gs.scan(x, axis=1, groups=labels, out=out, device=where) is out
        np.testing.assert_array_equal(out, expected)
    array = device.asarray(x)
    output = device.asarray(np.full((30, 40), -1, np.int32)).T
    assert gs.scan(array, axis=1, groups=labels, out=output) is output
    np.testing.assert_array_equal(output.numpy(), expected)
    assert gs.scan(array, axis=1, groups=labels, out=array) is array
    np.testing.assert_array_equal(array.numpy(), expected)


def test_compensated(device: gs.Device) -> None:
    """Compare compensated sums of groups with the compensated sum of each group by itself."""
    rng = np.random.default_rng(4)
    x, labels = rng.standard_normal(3000).astype(np.float32), rng.integers(0, 3, 3000)
    found = gs.scan(x, groups=labels, compensated=True, device=device)
    for label in range(3):
        exact = np.cumsum(x[labels == label], dtype=np.float64)
        np.testing.assert_allclose(found[labels == label], exact, rtol=1e-7, atol=1e-7)


def test_empty(device: gs.Device) -> None:
    """Assert that arrays without elements have results without elements."""
    for shape in ((0,), (3, 0), (0, 3)):
        x, labels = np.zeros(shape, np.float32), np.zeros(shape, int)
        for where in (device, "numpy"):
            assert gs.scan(x, axis=-1, groups=labels, device=where).shape == shape


def test_refused(device: gs.Device) -> None:
    """Assert that wrong labels have errors of their own."""
    x = np.arange(6, dtype=np.int32)
    with pytest.raises(TypeError, match="groups of dtype float32 were passed"):
        gs.scan(device.asarray(x), groups=device.asarray(x.astype(np.float32)))
    with pytest.raises(TypeError, match="cannot be hashed"):
        gs.scan(x, groups=np.array([[], *"abcde"], object), device=device)
    with pytest.raises(ValueError, match=r"groups of shape \(5,\) were passed for an array of shape \(6,\)"):
        gs.scan(x, groups=x[:5], device=device)
    with pytest.raises(ValueError, match=r"pass labels of shape \(3,\), the same for every row, or \(2, 3\)"):
        gs.scan(x.reshape(2, 3), axis=1, groups=np.zeros(2, int), device=device)
    with pytest.raises(ValueError, match="keys= and groups= were both passed"):
        gs.scan(x, groups=x, keys=x, device=device)
    with pytest.raises(ValueError, match="segments=, keys= and groups= were all passed"):
        gs.scan(x, groups=x, keys=x, segments=[0, 6], device=device)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int64], ids=str)
def test_many_labels(device: gs.Device, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that results go back to their places part by part."""
    rng = np.random.default_rng(9)
    x, labels = rng.integers(-99, 99, 70_000).astype(dtype), rng.integers(0, 30_000, 70_000).astype(np.int32)
    labels[9] = 1 << 30
    expected = gs.scan(x, groups=labels, device="numpy")
    small = replace(group_heuristics_for("CPU"), min_partitioned_bytes=1)
    monkeypatch.setattr("gpuscan.engine.groups.group_heuristics_for", lambda _: small)
    np.testing.assert_array_equal(gs.scan(device.asarray(x), groups=device.asarray(labels)).numpy(), expected)


def test_elements_that_fit_a_binding_alone_but_not_with_their_indices(
    adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = 1 << 17
    own = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 8 * length - 16})
    rng = np.random.default_rng(10)
    x, labels = rng.integers(-99, 99, length).astype(np.int32), rng.integers(0, 30_000, length)
    small = replace(group_heuristics_for("CPU"), min_partitioned_bytes=1)
    monkeypatch.setattr("gpuscan.engine.groups.group_heuristics_for", lambda _: small)
    given = own.asarray(x), own.asarray(labels.astype(np.int32))
    expected = gs.scan(x, groups=labels, device="numpy")
    np.testing.assert_array_equal(gs.scan(given[0], groups=given[1]).numpy(), expected)
    wide = own.asarray(x.astype(np.int64))
    for call in (gs.scan, gs.reduce):
        with pytest.raises(gs.DeviceMemoryError, match=f"array of {8 * length} bytes was to be reordered"):
            call(wide, groups=given[1])


def test_few_labels(device: gs.Device) -> None:
    """Assert that long arrays of few labels are scanned where they are: slices, views, `out`, and labels below zero."""
    rng = np.random.default_rng(8)
    length = 6001
    x, labels = rng.integers(-99, 99, length).astype(np.int32), rng.integers(0, 9, length)
    expected = pd.Series(x).groupby(labels).cumsum().to_numpy()
    (exclusive,) = by_definition(add, (x,), labels, exclusive=True, reverse=True, initial=(np.int32(0),))
    there, other = device.asarray(np.concatenate([x[:1], x])), device.asarray(np.concatenate([[7, 7, 7], labels]))
    out = device.asarray(np.full(length, -1, np.int32))
    assert gs.scan(there[1:], groups=other[3:], out=out) is out
    np.testing.assert_array_equal(out.numpy(), expected)
    around = device.asarray(np.full(2 * length, -1, np.int32))
    gs.scan(there[1:], groups=other[3:], out=around[1::2])
    np.testing.assert_array_equal(around.numpy(), np.stack([np.full(length, -1), expected], 1).reshape(-1))
    assert gs.scan(there[1:], groups=other[3:], out=there[1:]).shape == (length,)
    np.testing.assert_array_equal(there.numpy(), [x[0], *expected])
    array = device.asarray(x)
    for kind in (np.int64, np.uint16):
        found = gs.scan(array, groups=device.asarray(labels.astype(kind)), exclusive=True, reverse=True)
        np.testing.assert_array_equal(found.numpy(), exclusive)
    for few in (2 * labels - 8, labels * 100_000):
        np.testing.assert_array_equal(gs.scan(array, groups=device.asarray(few)).numpy(), expected)
    # A bundle with a field of bytes: neighbours share a word.
    small = x.astype(np.int8)
    sums, most = gs.scan(
        (array, device.asarray(small)),
        lambda l, r: (l[0] + r[0], np.maximum(l[1], r[1])),
        groups=device.asarray(labels),
    )
    np.testing.assert_array_equal(sums.numpy(), expected)
    np.testing.assert_array_equal(most.numpy(), pd.Series(small).groupby(labels).cummax())
