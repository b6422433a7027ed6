"""Arrays in shards on several devices. Devices on one adapter stand in for several GPUs."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.devices import mark_lost
from tests.oracle import assert_same

RNG = np.random.default_rng(29)
X = RNG.integers(-9, 9, (40, 7)).astype(np.int32)


@cache
def three_on(adapter: wgpu.GPUAdapter) -> list[gs.Device]:
    return [gs.Device(adapter) for _ in range(3)]


@pytest.fixture
def three(adapter: wgpu.GPUAdapter) -> list[gs.Device]:
    """Return three devices on one adapter."""
    return three_on(adapter)


def affine(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.parametrize(("sharded", "axis"), [(0, 0), (0, 1), (1, 0)])
def test_scans_and_reductions(three: list[gs.Device], sharded: int, axis: int) -> None:
    """Scan and reduce along the divided axis and along the other one."""
    x = gs.ShardedArray.from_numpy(X, three[:2], axis=sharded)
    assert (x.shape, x.dtype, x.nbytes, len(x.shards)) == (X.shape, X.dtype, X.nbytes, 2)
    assert_same(np.asarray(x), X)
    rows = RNG.integers(-9, 9, np.delete(X.shape, axis)).astype(np.int32)
    for options in ({}, {"initial": rows, "exclusive": True, "reverse": True}, {"dtype": np.int64, "initial": 4}):
        found = gs.scan(x, axis=axis, **options)
        assert isinstance(found, gs.ShardedArray)
        assert [shard.device for shard in found.shards] == three[:2]
        assert_same(found.numpy(), gs.scan(X, axis=axis, device="numpy", **options))
    for options in ({}, {"initial": rows, "after": lambda v: v * 2}):
        found = x.reduce(axis=axis, **options)
        assert isinstance(found, gs.ShardedArray) == (axis != sharded)
        assert_same(np.asarray(found), gs.reduce(X, axis=axis, device="numpy", **options))


def operators_that_do_not_commute(three: list[gs.Device]) -> None:
    matrices = RNG.integers(-2, 3, (30, 2, 2)).astype(np.int32)
    sharded = gs.ShardedArray.from_numpy(matrices, three)
    assert_same(sharded.scan("matmul", reverse=True).numpy(), gs.scan(matrices, "matmul", reverse=True, device="numpy"))
    assert_same(gs.reduce(sharded, "matmul"), gs.reduce(matrices, "matmul", device="numpy"))
    gates, inputs = RNG.integers(-2, 3, (2, 60)).astype(np.int32)
    pair = tuple(gs.ShardedArray.from_numpy(part, three) for part in (gates, inputs))
    for part, whole in zip(gs.scan(pair, affine), gs.scan((gates, inputs), affine, device="numpy"), strict=True):
        assert_same(part.numpy(), whole)
    assert gs.reduce(pair, affine, initial=(1, 2)) == gs.reduce((gates, inputs), affine, initial=(1, 2), device="numpy")
    # All elements, in C order, of an array that is divided along its last axis.
    table = gs.ShardedArray.from_numpy(X, three, axis=1)
    assert int(gs.reduce(table)) == X.sum()
    assert int(gs.reduce(table, lambda l, r: l, initial=5)) == 5
    last = gs.reduce(table, lambda l, r: r)
    assert int(last) == X[-1, -1]


def short_arrays(three: list[gs.Device]) -> None:
    """Leave devices out where there are fewer elements than devices, or none."""
    one = gs.ShardedArray.from_numpy(np.array([5, 6], np.int32), three)
    assert_same(gs.scan(one).numpy(), np.array([5, 11], np.int32))
    none = gs.ShardedArray.from_numpy(np.zeros(0, np.int32), three)
    assert gs.scan(none).shape == (0,)
    assert int(gs.reduce(none)) == 0


def what_is_refused(three: list[gs.Device]) -> None:
    x = gs.ShardedArray.from_numpy(X, three)
    other = gs.ShardedArray.from_numpy(X, three[:2])
    across = gs.ShardedArray.from_numpy(X, three, axis=1)
    vectors = gs.operator(lambda l, r: l + r, element_axes=1)
    for call, error, message in (
        (lambda: gs.scan(x, axis=0, segments=[0, 40]), TypeError, "segments= was passed with a gpuscan.ShardedArray"),
        (lambda: gs.scan(x, axis=0, device=three), TypeError, "device= was passed"),
        (lambda: gs.scan((x, X), affine, axis=0), TypeError, "its arrays must be together"),
        (lambda: gs.scan((x, other), affine, axis=0), ValueError, "sharded in different ways"),
        (lambda: gs.scan(across, vectors), ValueError, "that axis belongs to the element"),
        (lambda: gs.scan(x, axis=0, before=lambda v, i: v), TypeError, "do not know where they begin"),
        (lambda: gs.ShardedArray.from_numpy(X, []), ValueError, "names no device"),
        (lambda: gs.ShardedArray.from_numpy(X, three, axis=2), ValueError, "axis=2 was passed"),
        (lambda: pickle.dumps(x), TypeError, r"Pickle array.numpy\(\)"),
    ):
        with pytest.raises(error, match=message):
            call()


def lost(three: list[gs.Device]) -> None:
    x = gs.ShardedArray.from_numpy(X, three)
    mark_lost(three[0], True)
    try:
        for call in (lambda: gs.scan(x, axis=0), lambda: gs.reduce(x, axis=0)):
            with pytest.raises(gs.DeviceLostError):
                call()
    finally:
        mark_lost(three[0], False)
    assert_same(gs.scan(x, axis=0).numpy(), np.cumsum(X, axis=0, dtype=np.int32))


def dicts(three: list[gs.Device]) -> None:
    """Return bundles as plain dicts, like those that were passed."""
    x = {"a": gs.ShardedArray.from_numpy(X, three)}

    def add(left: Any, right: Any) -> Any:
        return {"a": left["a"] + right["a"]}

    for call in (lambda axis: gs.scan(x, add, axis=axis), lambda axis: gs.reduce(x, add, axis=axis)):
        assert [type(call(axis)) for axis in (0, 1)] == [dict, dict]


@pytest.mark.parametrize("case", [operators_that_do_not_commute, dicts, short_arrays, what_is_refused, lost])
def test_what_else_there_is(three: list[gs.Device], case: Any) -> None:
    case(three)
