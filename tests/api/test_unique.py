"""Unique values and runs agree with a sort of the array and with NumPy, for every kind of key and on every adapter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.api.test_sort import bits_of, comparable, keys_of, order_of
from tests.harness.builds import assert_no_waits
from tests.harness.devices import as_gpu

# Kinds of keys that differ in how shaders load or compare them.
KINDS = [np.bool_, np.int16, np.uint64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: np.dtype(dtype).name)
def test_unique(device: gs.Device, dtype: Any) -> None:
    """Compare values, first places, inverse indices and counts with a sort of the array."""
    for shape in ((1,), (37, 3), (2500,)):
        keys = keys_of(dtype, shape, 5)
        flat = keys.reshape(-1)
        order = order_of(flat)
        ordered = comparable(flat)[order]
        changes = np.append(True, ordered[1:] != ordered[:-1])
        inverse = np.empty(flat.size, np.int64)
        inverse[order] = np.cumsum(changes) - 1
        starts = np.flatnonzero(changes)
        wanted = flat[order[starts]], order[starts], inverse.reshape(shape), np.diff(np.append(starts, flat.size))
        for where, call_device in ((keys, device), (device.asarray(keys), device), (keys, "numpy")):
            found = gs.unique_all(where, device=call_device)
            kinds = [np.asarray(part).dtype for part in found]
            count = np.uint32 if isinstance(where, gs.Array) else np.int64
            assert kinds == [keys.dtype, count, count, count]
            assert all(isinstance(part, gs.Array) == isinstance(where, gs.Array) for part in found)
            assert bits_of(found.values) == wanted[0].tobytes()
            for part, expected in zip(found[1:], wanted[1:], strict=True):
                np.testing.assert_array_equal(np.asarray(part), expected)
    array = device.asarray(keys)
    assert bits_of(gs.unique_values(array)) == wanted[0].tobytes()
    np.testing.assert_array_equal(np.asarray(gs.unique_counts(array).counts), wanted[3])
    np.testing.assert_array_equal(np.asarray(gs.unique_inverse(array).inverse_indices), wanted[2])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_numpy_unique(device: gs.Device, dtype: Any) -> None:
    """Assert that np.unique takes all NaN for one value, unless it is asked not to."""
    keys = keys_of(dtype, (600,), 2)
    array = device.asarray(keys)
    for equal_nan in (True, False):
        options: dict[str, Any] = dict.fromkeys(["return_index", "return_inverse", "return_counts"], True)
        options["equal_nan"] = equal_nan
        found, wanted = np.unique(array, **options), np.unique(keys, **options)
        for part, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(part), expected)
    np.testing.assert_array_equal(np.asarray(np.unique(array)), np.unique(keys))
    with pytest.raises(TypeError, match="numpy"):
        np.unique(array.reshape(2, 300), axis=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.int64])
def test_runs_of_any_length(device: gs.Device, dtype: Any) -> None:
    """Assert that runs end where they should around chunks and tiles, with the tiles of GPUs as well."""
    rng = np.random.default_rng(3)
    for place in (device, as_gpu(device)):
        for length, longest in ((1, 1), (31, 2), (257, 40), (4097, 2), (9001, 3000), (20_000, 1)):
            base = rng.integers(0, 3, length) if longest > 1 else np.arange(length)
            keys = np.repeat(base, rng.integers(1, longest + 1, length))[:length].astype(dtype)
            starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
            found = gs.run_length_encode(place.asarray(keys))
            np.testing.assert_array_equal(found.values.numpy(), keys[starts])
            np.testing.assert_array_equal(found.counts.numpy(), np.diff(np.append(starts, length)))
        place.memory_cleanup()


@pytest.mark.parametrize("dtype", [*KINDS, ml_dtypes.bfloat16, np.complex64], ids=lambda dtype: np.dtype(dtype).name)
def test_run_length_encode(device: gs.Device, dtype: Any) -> None:
    """Assert that runs come back as they were, and that each NaN is a run."""
    base = keys_of(np.float32, (400,), 9).astype(dtype) if dtype == np.complex64 else keys_of(dtype, (400,), 9)
    keys = np.repeat(base, np.random.default_rng(0).integers(0, 9, 400))
    changes = np.append(True, comparable(keys)[1:] != comparable(keys)[:-1])
    starts = np.flatnonzero(changes)
    for where in (keys, device.asarray(keys)):
        values, counts = gs.run_length_encode(where, device=device)
        assert bits_of(values) == keys[starts].tobytes()
        np.testing.assert_array_equal(np.asarray(counts), np.diff(np.append(starts, keys.size)))


def test_lengths_wait_only_when_asked_for(device: gs.Device) -> None:
    """Assert that no call waits for a length that depends on the data, and that a result shares it."""
    array, mask = device.asarray(np.arange(100, dtype=np.int32) // 7), device.asarray(np.arange(100) % 3 == 0)
    for call in (
        lambda: gs.unique_counts(array),
        lambda: gs.run_length_encode(array),
        lambda: gs.partition_by(array, mask),
        lambda: np.nonzero(array.reshape(10, 10)),
    ):
        call()
        with assert_no_waits(device):
            found = call()
        if isinstance(found[0], gs.Array):
            assert len({id(part.count.buffer) for part in found}) == 1
        assert all(part.ndim == 1 for part in found)
