"""Reductions of groups: one result for each label, wherever its elements are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpuscan as gs
from tests.api.test_groups import add, by_definition
from tests.oracle import AFFINE, LATER, Array, words


def last_of_each(scanned: Array, labels: Array, groups: int, fill: Any) -> Array:
    """Return the last result of each label along the last axis of (rows, n) arrays."""
    results = np.empty((*scanned.shape[:-1], groups), scanned.dtype)
    results[...] = np.expand_dims(np.asarray(fill, scanned.dtype), -1)
    for row in np.ndindex(scanned.shape[:-1]):
        for place, label in enumerate(labels[row]):
            results[row][label] = scanned[row][place]
    return results


@pytest.mark.parametrize("reach", [3, 700], ids=lambda reach: f"{reach}-labels")
def test_pandas_agrees(device: gs.Device, reach: int) -> None:
    """Assert that sums and maxima of groups are pandas', from NumPy and on the device."""
    rng = np.random.default_rng(reach)
    for length in (1, 5000):
        x = rng.integers(-99, 99, length).astype(np.int32)
        for labels in (rng.integers(0, reach, length), np.sort(rng.integers(0, reach, length)).astype(np.uint8)):
            found = pd.Series(x).groupby(labels)
            every = range(int(labels.max()) + 1)
            sums = found.sum().reindex(every, fill_value=0).to_numpy()
            least = np.iinfo(np.int32).min
            largest = found.max().reindex(every, fill_value=least).to_numpy()
            for where in (device, "numpy"):
                np.testing.assert_array_equal(gs.reduce(x, groups=labels, device=where), sums)
                more = gs.reduce(x, "maximum", groups=labels, num_groups=len(every) + 3, device=where)
                np.testing.assert_array_equal(more, [*largest, least, least, least])
            on_device = gs.reduce(device.asarray(x), groups=device.asarray(labels))
            assert isinstance(on_device, gs.Array)
            np.testing.assert_array_equal(np.asarray(on_device), sums)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(device: gs.Device, axis: int) -> None:
    """Assert that the axis becomes as long as there are groups, whatever its place, with and without `initial`."""
    rng = np.random.default_rng(axis)
    shape = (6, 50, 4)
    x = rng.integers(0, 100, shape).astype(np.int16)
    seeds = rng.integers(0, 9, tuple(n for i, n in enumerate(shape) if i != axis)).astype(np.int16)
    for labels in (rng.integers(0, 3, shape), rng.integers(0, 3, shape[axis])):
        wide = labels if labels.shape == shape else labels.reshape([-1 if i == axis else 1 for i in range(3)])
        rows = np.moveaxis(np.broadcast_to(wide, shape), axis, -1)
        for initial in (None, seeds):
            options = {} if initial is None else {"initial": (initial,)}
            (scanned,) = by_definition(add, (x,), labels, axis, **options)
            fill = np.zeros_like(seeds) if initial is None else initial
            expected = np.moveaxis(last_of_each(np.moveaxis(scanned, axis, -1), rows, 5, fill), -1, axis)
            given: dict[str, Any] = {"axis": axis, "initial": initial, "num_groups": 5}
            for where in (device, "numpy"):
                np.testing.assert_array_equal(gs.reduce(x, groups=labels, device=where, **given), expected)
            found = gs.reduce(device.asarray(x), groups=device.asarray(labels), **given)
            np.testing.assert_array_equal(np.asarray(found), expected)
    whole = gs.reduce(x, groups=x % 4, device=device)
    np.testing.assert_array_equal(whole, [x[x % 4 == label].sum(dtype=np.int16) for label in range(4)])


def test_elements(device: gs.Device) -> None:
    """Assert that bundles, matrices, bytes and mapped elements are reduced in the order of the elements."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 6, 300)
    pairs = words(rng, 2, 300)
    matrices = rng.integers(0, 3, (300, 2, 2)).astype(np.int32)
    small = pairs[0].astype(np.int8)
    for where in (device, "numpy"):
        scanned = by_definition(AFFINE.function, pairs, labels)
        found = gs.reduce(pairs, AFFINE, groups=labels, num_groups=8, device=where)
        for one, other, fill in zip(found, scanned, (1, 0), strict=True):
            np.testing.assert_array_equal(one, last_of_each(other, labels, 8, fill))
        products = gs.reduce(matrices, "matmul", axis=0, groups=labels, device=where)
        for label in range(6):
            alone = gs.reduce(matrices[labels == label], "matmul", axis=0, device="numpy")
            np.testing.assert_array_equal(products[label], alone)
        squares = gs.reduce(
            small, groups=labels, before=lambda v: v.astype(np.int32) ** 2, after=lambda v: -v, device=where
        )
        wide = small.astype(np.int32) ** 2
        np.testing.assert_array_equal(squares, [-wide[labels == label].sum() for label in range(6)])
        np.testing.assert_array_equal(
            gs.reduce(small, groups=labels, device=where), [small[labels == n].sum(dtype=np.int8) for n in range(6)]
        )


def test_labels_of_every_width(device: gs.Device) -> None:
    """Assert that labels of every dtype name the same places, on the device as well."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 9, 900).astype(np.uint32)
    numbers = rng.integers(0, 2, 900)
    expected = np.bincount(numbers, x).astype(np.uint32)
    array = device.asarray(x)
    for dtype in (np.bool_, np.int8, np.uint16, np.int32, np.uint64):
        labels = device.asarray(numbers.astype(dtype))
        np.testing.assert_array_equal(np.asarray(gs.reduce(array, groups=labels)), expected)
        alone = gs.reduce(array, groups=device.asarray(np.zeros(900, dtype)))
        np.testing.assert_array_equal(alone.numpy(), [x.sum()])


def test_out(device: gs.Device) -> None:
    """Assert that results are written to `out`, which is returned."""
    x, labels = np.arange(12, dtype=np.int32).reshape(3, 4), np.array([1, 0, 1, 3])
    expected = np.stack([x[:, 1], x[:, 0] + x[:, 2], 0 * x[:, 0], x[:, 3]], axis=1)
    for where in (device, "numpy"):
        out = np.full((3, 4), -1, np.int32)
        assert gs.reduce(x, axis=1, groups=labels, out=out, device=where) is out
        np.testing.assert_array_equal(out, expected)
    output = device.asarray(np.full((4, 3), -1, np.int32)).T
    assert gs.reduce(device.asarray(x), axis=1, groups=labels, out=output) is output
    np.testing.assert_array_equal(output.numpy(), expected)


def test_empty(device: gs.Device) -> None:
    """Assert that groups without elements give `initial`, else the identity, also of arrays without elements."""
    x = np.zeros((2, 0), np.float32)
    labels = np.zeros(0, int)
    for given, where in ((x, device), (x, "numpy"), (device.asarray(x), None)):
        assert gs.reduce(given, axis=1, groups=labels, device=where).shape == (2, 0)
        initial = np.array([3, 4], np.float32)
        found = gs.reduce(given, axis=1, groups=labels, num_groups=2, initial=initial, device=where)
        np.testing.assert_array_equal(np.asarray(found), [[3, 3], [4, 4]])
    # No rows, but labels.
    none, wrong = device.asarray(x.T), device.asarray(np.array([3, 0]))
    assert gs.reduce(none, axis=1, groups=wrong).shape == (0, 4)
    gs.reduce(none, axis=1, groups=wrong, num_groups=3)
    with pytest.raises(ValueError, match="label"):
        device.synchronize()


def test_extrema_without_elements(device: gs.Device) -> None:
    """Assert that the infinities of groups without elements are the identity's, and that nothing warns about them."""
    x, labels = np.array([1, -0.5, np.nan, -np.inf], np.float32), np.array([4, 4, 0, 2])
    for op, expected in (
        ("maximum", [np.nan, -np.inf, -np.inf, -np.inf, 1]),
        ("minimum", [np.nan, np.inf, -np.inf, np.inf, -0.5]),
    ):
        for where in (device, "numpy"):
            with warnings.catch_warnings(action="error"):
                found = gs.reduce(x, op, groups=labels, device=where)
                np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_refused(device: gs.Device) -> None:
    """Assert that labels outside, and empty groups without a value, have errors of their own, on a device as well."""
    x = np.arange(6, dtype=np.int32)
    for given, low, high in (
        (x, np.array([0, 1, -2, 0, 1, 1]), x),
        (device.asarray(x), device.asarray(np.array([0, 1, -2, 0, 1, 1])), device.asarray(x)),
    ):
        with pytest.raises(
            ValueError, match=r"groups with the label -2 were passed to a reduction.*gpuscan\.unique_inverse\(groups\)"
        ):
            gs.reduce(given, groups=low)
        for count in (0, 4):
            # With the number of groups, labels on the device are checked there, and the next read raises.
            with pytest.raises(ValueError, match=f"groups with the label 5 were passed with num_groups={count}"):
                np.asarray(gs.reduce(given, groups=high, num_groups=count))
        bundle = (given, given)
        with pytest.raises(ValueError, match=r"group 6 is empty and .* has no identity"):
            np.asarray(gs.reduce(bundle, LATER, groups=high, num_groups=7)[0])
        wide = tuple(each.reshape(2, 3) for each in bundle)
        with pytest.raises(ValueError, match=r"group 3 is empty and .* has no identity"):
            np.asarray(gs.reduce(wide, LATER, axis=1, groups=high[:3], num_groups=20_000)[0])
    with pytest.raises(ValueError, match="group 6 is empty"):
        gs.reduce((x, x), LATER, groups=x, num_groups=7, device="numpy")
    wrong: Any = 2.0
    with pytest.raises(TypeError, match=r"num_groups=2\.0 was passed"):
        gs.reduce(x, groups=x, num_groups=wrong, device=device)
    with pytest.raises(ValueError, match="num_groups=3 was passed without groups="):
        gs.reduce(x, num_groups=3, device=device)
    with pytest.raises(ValueError, match="segments= and groups= were both passed"):
        gs.reduce(x, groups=x, segments=[0, 6], device=device)
    if device.capabilities.limits["max-storage-buffer-binding-size"] <= 2**31:
        with pytest.raises(gs.DeviceMemoryError, match="a reduction of 1000000001 groups"):
            gs.reduce(device.asarray(x), groups=x * 200_000_000)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("by_element", [False, True])
def test_no_elements(device: gs.Device, shape: tuple[int, ...], by_element: bool) -> None:
    """Reduce arrays without elements by labels here and on the device, with and without groups."""
    x, labels = np.zeros(shape, np.float32), np.zeros(shape if by_element else shape[-1:], np.int32)
    for count in (None, 0, 2):
        groups = count if count is not None else int(labels.size > 0)
        wanted = np.zeros((*shape[:-1], groups), np.float32)
        for given in (x, device.asarray(x)):
            for cut in (labels, device.asarray(labels)):
                if labels.size and count == 0:
                    continue
                found = gs.reduce(given, axis=-1, groups=cut, num_groups=count)
                np.testing.assert_array_equal(np.asarray(found), wanted)
    device.synchronize()


def test_wrong_labels_without_results(device: gs.Device) -> None:
    """Assert that labels on the device are checked where nothing is reduced, also for arrays of NumPy."""
    zeros = device.asarray(np.zeros(3, np.int64))
    for given in (np.ones(3, np.float32), device.asarray(np.ones(3, np.float32))):
        with pytest.raises(ValueError, match="groups with the label 0 were passed with num_groups=0"):
            gs.reduce(given, groups=zeros, num_groups=0)
        missing = gs.reduce(given, groups=zeros - 1, num_groups=0)
        assert np.asarray(missing).shape == (0,)
    with pytest.raises(ValueError, match="groups with the label 4 were passed with num_groups=2"):
        gs.reduce(np.ones((0, 3), np.float32), axis=1, groups=zeros + 4, num_groups=2)
    device.synchronize()
