"""The stages that take and put elements at indices do what their CPU twins do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from gpuscan.engine.array_indices import IndexedArray, number_labels, put, resolve_indices, take
from tests.harness.devices import read_validation_flags
from tests.twins import indices as stages

DTYPES = ("bool", "int8", "uint16", "float16", ml_dtypes.bfloat16, "int32", "float32", "int64", "float64", "complex64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_resolve_indices(device: gs.Device, dtype: str) -> None:
    """Compare places and flags of right and wrong indices, at both ends of every type, of two axes together."""
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.max, 0, 1, 4, 5, 6, 7, limits.max // 2], dtype)
    some = np.array([5, 2, 0, 4, -1, -5, -6, 7, 3], np.int8).astype(dtype)
    places, worst = None, []
    for given, length in ((edges, 7), (some, 5)):
        places, above, below = stages.resolve_indices(given, length, places)
        worst.append((above, below))
    context = device._context
    known = len(context.run_log.validation_flags)
    found = resolve_indices(context, [device.asarray(edges), device.asarray(some)], [(0, 7), (1, 5)])
    assert places is not None
    assert found._read().tolist() == places.tolist()
    assert read_validation_flags(device, known) == [list(pair) for pair in worst]
    with pytest.raises(IndexError):
        device.synchronize()
    device.synchronize()


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_number_labels(device: gs.Device, dtype: str) -> None:
    """Assert that labels become numbers, missing labels the last number, and that the flag has the wrong labels."""
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    signed = [-1, -2] if limits[0] < 0 else []
    labels = np.array([0, 1, 1, 0, *limits, *signed, *([] if dtype == "bool" else [4, 5])], dtype)
    known = len(device._context.run_log.validation_flags)
    found = number_labels(device.asarray(labels), 5)._read()
    wide = [int(label) for label in labels]
    assert found.tolist() == [label if 0 <= label < 5 else 5 for label in wide]
    ((above, below),) = read_validation_flags(device, known)
    assert above == min(max([label for label in wide if label >= 5], default=0), stages.NO_INDEX)
    assert below == min(max([-label for label in wide if label < -1], default=0), stages.NO_INDEX)
    if above or below:
        with pytest.raises(ValueError, match="label"):
            device.synchronize()
    device.synchronize()


def forms(dtype: Any) -> list[tuple[Any, ...]]:
    """Return arrays in elements: shape of the buffer, first element, and then what `IndexedArray` takes."""
    return [
        ((60,), 0, (7,), (0,), (1,), ((60, 1),)),
        ((60,), 59, (7,), (0,), (1,), ((20, -3),)),
        ((4, 5, 3), 0, (4, 7, 3), (15, 0, 1), (0, 1, 0), ((5, 3),)),
        ((4, 5, 3), 0, (7, 5), (0, 3), (1, 0), ((4, 15), (3, 1))),
        ((4, 5, 3), 2, (5, 2, 4), (3, 0, 0), (0, 4, 1), ((4, 15), (3, -1))),
        ((4, 5, 3), 0, (4, 2, 3), (15, 0, 1), (6, 3, 1), ((5, 3),)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_take_and_put(device: gs.Device, dtype: Any) -> None:
    """Compare elements that are taken and put, with places that do not exist among them, at strides of all kinds."""
    rng = np.random.default_rng(3)
    for shape, first, wanted, strides, index_strides, rows in forms(dtype):
        flat = rng.integers(0, 2 if dtype == "bool" else 99, shape).astype(dtype).reshape(-1)
        size = np.dtype(dtype).itemsize
        count = 1 + sum((n - 1) * step for n, step in zip(wanted, index_strides, strict=True))
        places = rng.permutation(np.prod([n for n, _ in rows]))[:count].astype(np.uint32)
        places = np.resize(places, count) if len(places) < count else places
        places[count // 2] = stages.NO_INDEX
        exists, at = stages.places_of_elements(wanted, strides, index_strides, rows, places)
        array = device.asarray(flat)
        # The view's own shape says how far it reaches.
        reached = (*[n for n, s in zip(wanted, strides, strict=True) if s], *[n for n, _ in rows])
        reach = (*[s * size for s in strides if s], *[s * size for _, s in rows])
        view = array._view_at(reached, reach, first * size)
        byte_rows = tuple((n, s * size) for n, s in rows)
        indexed = IndexedArray(
            view, wanted, tuple(s * size for s in strides), index_strides, byte_rows, device.asarray(places)
        )
        assert np.array_equal(take(indexed)._read(), stages.take(flat, first, exists, at))
        values = rng.integers(0, 2 if dtype == "bool" else 99, wanted).astype(dtype)
        kept = stages.keep_last(places)
        stays, _ = stages.places_of_elements(wanted, strides, index_strides, rows, kept)
        expected = flat.copy()
        stages.put(expected, first, stays, at, values)
        put(device._executor, indexed, device.asarray(values), unique=False)
        assert np.array_equal(array.numpy(), expected)
