"""Reductions by key give the key and the combination of each run of equal keys."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.oracle import AFFINE, Array, assert_same, one_by_one, words


def runs_of(rng: np.random.Generator, length: int, dtype: Any = np.int32) -> Array:
    """Return keys in runs of 1 to some 20 elements."""
    return np.cumsum(rng.random(length) < 0.2).astype(dtype) % dtype(5)


def each_run(keys: Array, x: tuple[Array, ...], function: Any) -> tuple[Array, tuple[Array, ...]]:
    """Return what reduce_by_key must give, by the definition."""
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.array([], int)
    bounds = itertools.pairwise([*starts, len(keys)])
    last = [[f[-1] for f in one_by_one(function, tuple(f[a:b] for f in x))] for a, b in bounds]
    return keys[starts], tuple(np.array([row[i] for row in last], f.dtype) for i, f in enumerate(x))


@pytest.mark.parametrize("length", [1, 63, 5000])
def test_operators_that_do_not_commute(device: gs.Device, length: int) -> None:
    rng = np.random.default_rng(length)
    keys, x = runs_of(rng, length), words(rng, 2, length)
    wanted_keys, wanted = each_run(keys, x, AFFINE.function)
    for call_device in (device, "numpy"):
        found, results = gs.reduce_by_key(keys, x, AFFINE, device=call_device)
        assert_same(found, wanted_keys)
        for result, field in zip(results, wanted, strict=True):
            assert_same(result, field)


def test_on_the_device(device: gs.Device) -> None:
    """Keep the number of runs on the device, of narrow elements and views as well."""
    rng = np.random.default_rng(2)
    for keys_dtype, dtype in ((np.int8, np.uint8), (np.float32, np.int16)):
        keys, x = runs_of(rng, 3000, keys_dtype), rng.integers(0, 100, 3000).astype(dtype)
        there, elements = device.asarray(np.repeat(keys, 2))[::2], device.asarray(x)
        wanted_keys, (wanted,) = each_run(keys, (x,), lambda l, r: (l[0] + r[0],))
        found, results = gs.reduce_by_key(there, elements)
        assert isinstance(found, gs.Array)
        assert isinstance(results, gs.Array)
        assert int(results.count.numpy()[0]) == len(wanted)
        assert_same(found, wanted_keys)
        assert_same(results, wanted)
        found, results = gs.reduce_by_key(keys, elements)
        assert_same(found, wanted_keys)
        assert_same(results, wanted)
        found, results = gs.reduce_by_key(there, x, device=device)
        assert_same(found, wanted_keys)
        assert isinstance(results, np.ndarray)
        assert_same(results, wanted)


@given(seed=st.integers(0, 999), length=st.integers(0, 70))
def test_on_numpy(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    keys, x = runs_of(rng, length), rng.integers(0, 2**32, length, dtype=np.uint32)
    wanted_keys, (wanted,) = each_run(keys, (x,), lambda l, r: (np.maximum(l[0], r[0]),))
    found, results = gs.reduce_by_key(keys, x, "maximum", device="numpy")
    assert_same(found, wanted_keys)
    assert_same(results, wanted)


def test_keys_of_any_dtype_and_many_fields(device: gs.Device) -> None:
    """Take text as keys, and more fields than an adapter binds."""
    keys = np.repeat(np.array(["a", "ab", "b", "a"]), [3, 1, 4, 2])
    x = tuple(np.arange(10, dtype=np.uint32) * i for i in range(6))
    wanted_keys, wanted = each_run(keys, x, lambda l, r: tuple(a + b for a, b in zip(l, r, strict=True)))
    op = gs.operator(lambda l, r: tuple(a + b for a, b in zip(l, r, strict=True)), name="sums")
    found, results = gs.reduce_by_key(keys, x, op, device=device)
    assert found.tolist() == wanted_keys.tolist()
    for result, field in zip(results, wanted, strict=True):
        assert_same(result, field)
    nothing, results = gs.reduce_by_key(device.asarray(np.zeros(0, np.int32)), device.asarray(np.zeros(0, np.uint32)))
    assert nothing.shape == results.shape == (0,)


def test_errors() -> None:
    x = np.arange(6, dtype=np.uint32)
    with pytest.raises(ValueError, match=r"keys of shape \(2, 3\) were passed, but keys must have one axis"):
        gs.reduce_by_key(x.reshape(2, 3), x, device="numpy")
    with pytest.raises(ValueError, match=r"array of shape \(6, 1\) was passed, but reduce_by_key takes"):
        gs.reduce_by_key(x, x.reshape(6, 1), device="numpy")
    with pytest.raises(ValueError, match=r"keys of shape \(5,\) were passed for an array of shape \(6,\)"):
        gs.reduce_by_key(x[:5], x, device="numpy")


def test_keys_of_several_fields(device: gs.Device) -> None:
    """Reduce by structured keys, and by bundles of keys from NumPy, from the device, and from both."""
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 5000):
        first, second = (
            np.sort(rng.integers(0, 40, length)),
            np.sort(rng.random(length) * 9).round(1).astype(np.float32),
        )
        second[length // 2 :][:3] = np.nan
        text = np.array(["b", "a", "c"])[first % 3]
        x = rng.integers(0, 99, length).astype(np.int32)
        changes = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        starts = np.flatnonzero(np.append(True, changes)[:length])
        sums = np.add.reduceat(x, starts, dtype=np.int32) if length else x
        records = np.empty(length, [("first", first.dtype), ("text", text.dtype), ("second", np.float32)])
        records["first"], records["text"], records["second"] = first, text, second
        there = [device.asarray(part) for part in (first, second)]
        for values in (x, device.asarray(x)):
            keys, found = gs.reduce_by_key(records, values)
            for name in ("first", "text", "second"):
                assert_same(keys[name], records[name][starts])
            assert_same(found, sums)
            for bundle in (
                {"first": first, "second": second, "text": text},
                {"first": there[0], "second": second, "text": text},
                {"first": there[0], "second": there[1]},
            ):
                keys, found = gs.reduce_by_key(bundle, values)
                assert list(keys) == list(bundle)
                for name, part in bundle.items():
                    assert isinstance(keys[name], gs.Array) == isinstance(part, gs.Array)
                    assert_same(keys[name], np.asarray(part)[starts])
                assert_same(found, sums)
        (keys, more), found = gs.reduce_by_key((first, text), x, device="numpy")
        assert_same(keys, first[np.flatnonzero(np.append(True, first[1:] != first[:-1])[:length])])
        assert len(keys) == len(more) == len(found)
    with pytest.raises(ValueError, match=r"keys of shape \(4,\) and \(3,\)"):
        gs.reduce_by_key((np.zeros(4), np.zeros(3)), np.zeros(4))
    assert_same(gs.reduce_by_key((7, 7, 2), np.arange(3))[0], np.array([7, 2]))
