"""Reductions of segments give what a reduction of each segment gives, in one pass."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import wgpu
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from tests.harness.scans import scan_with, segments_of
from tests.oracle import (
    AFFINE,
    MATRICES,
    Array,
    assert_same,
    draw_offsets,
    heads_along,
    one_by_one,
    pick_strategies,
    small_tiles,
    words,
)

SHAPES = [((700,), 0, "int8"), ((3, 300), 1, "uint32"), ((2, 150, 4), 1, "uint32"), ((300, 4), 0, "int8")]
SHAPES += [((2, 60, 3), 1, "int8")]


def each(x: Array, cuts: Array, axis: int, op: str, initial: Any) -> Array:
    """Return the reductions of the segments, in the order of the segments."""
    ufunc: np.ufunc = getattr(np, op)
    begin = np.zeros([n for i, n in enumerate(x.shape) if i != axis], x.dtype) if initial is None else initial
    parts = [x.take(range(a, b), axis) for a, b in itertools.pairwise(cuts)]
    return np.stack([ufunc(ufunc.reduce(part, axis, dtype=x.dtype), begin) for part in parts], axis)


@pytest.mark.parametrize(("shape", "axis", "dtype"), SHAPES)
def test_every_shape(device: gs.Device, shape: tuple[int, ...], axis: int, dtype: str) -> None:
    """Reduce rows and columns, of whole words and of bytes, with empty segments and without."""
    rng = np.random.default_rng(1)
    for full in (True, False):
        x = rng.integers(0, 100, shape).astype(dtype)
        cuts = draw_offsets(rng, shape[axis], 25, full=full)
        initial = rng.integers(0, 50, [n for i, n in enumerate(shape) if i != axis]).astype(dtype)
        options: dict[str, Any] = {"axis": axis, "segments": cuts, "initial": initial}
        wanted = each(x, cuts, axis, "add", initial)
        assert_same(gs.reduce(x, device="numpy", **options), wanted)
        assert_same(gs.reduce(x, device=device, **options), wanted)
        out = device.asarray(np.full(wanted.shape, 77, dtype))
        assert gs.reduce(device.asarray(x), out=out, **options) is out
        assert_same(out, wanted)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_under_each_strategy(device: gs.Device, layout: str) -> None:
    """Count heads over many tiles, where a head cuts off no count, and store into words that results share."""
    rng = np.random.default_rng(4)
    shape, axis = ((6000,), 0) if layout == "rows" else ((300, 5), 0)
    tile: TileShape | ColumnTile = small_tiles(device)[-1] if layout == "rows" else ColumnTile(2, 4, 2, 1)
    x, cuts = words(rng, 2, shape), draw_offsets(rng, shape[axis], 90, full=True)
    scanned = one_by_one(AFFINE.function, x, heads=heads_along(axis, shape, segments=cuts), axis=axis)
    problem = segments_of(x, AFFINE, axis=axis, segments=cuts)
    for strategy in pick_strategies(device, layout == "rows"):
        got = scan_with(device, problem, strategy, tile=tile)
        for result, field in zip(got, scanned, strict=True):
            assert_same(result, field[cuts[1:] - 1], strategy)


@settings(max_examples=100)
@given(data=st.data())
def test_on_numpy(data: st.DataObject) -> None:
    """Reduce by the reference, of any shape, with an operator that does not commute."""
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = draw_offsets(rng, shape[axis], data.draw(st.integers(1, 6)), full=False)
    lead = tuple(n for i, n in enumerate(shape) if i != axis)
    x, initial = words(rng, 4, shape), words(rng, 4, lead)
    got = gs.reduce(x, MATRICES, axis=axis, segments=cuts, initial=initial, device="numpy")
    for number, (a, b) in enumerate(itertools.pairwise(cuts)):
        part = tuple(np.take(field, range(a, b), axis) for field in x)
        wanted = initial
        if a < b and part[0].size:
            scanned = one_by_one(MATRICES.function, part, axis=axis, initial=initial)
            wanted = tuple(np.take(field, -1, axis) for field in scanned)
        for result, field in zip(got, wanted, strict=True):
            assert_same(np.take(result, number, axis), field)


def test_maps_and_bundles(device: gs.Device) -> None:
    """Reduce to the mean of each segment, which an empty one gets of `initial`."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 9, 500).astype(np.float32)
    cuts = draw_offsets(rng, 500, 60, full=False)
    got = gs.reduce(
        x,
        lambda l, r: (l[0] + r[0], l[1] + r[1]),
        segments=cuts,
        initial=(0, 0),
        before=lambda v: (v, np.ones_like(v)),
        after=lambda p: p[0] / np.maximum(p[1], 1),
        device=device,
    )
    for result, (a, b) in zip(got, itertools.pairwise(cuts), strict=True):
        np.testing.assert_allclose(result, x[a:b].mean() if a < b else 0, rtol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((700_001,), 0), ((1100, 320), 0), ((3, 900, 130), 1)])
def test_larger_than_a_binding(adapter: wgpu.GPUAdapter, shape: tuple[int, ...], axis: int) -> None:
    """Reduce in pieces, which store into one array, and in slabs of columns."""
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    rng = np.random.default_rng(3)
    dtype = np.int16 if shape[-1] == 130 else np.uint32
    x = rng.integers(0, 2**15, shape, dtype=dtype)
    cuts = draw_offsets(rng, shape[axis], 300, full=shape[-1] == 130)
    options: dict[str, Any] = {"axis": axis, "segments": cuts}
    wanted = each(x, cuts, axis, "add", None)
    assert_same(gs.reduce(x, device=small, **options), wanted)
    assert_same(gs.reduce(small.asarray(x), **options), wanted)


def test_errors(device: gs.Device) -> None:
    x = np.arange(6, dtype=np.uint32)
    first = gs.operator(lambda l, r: l, name="first")
    for call_device in (device, "numpy"):
        with pytest.raises(ValueError, match=r"segment 1 is empty and the operator 'first' has no identity"):
            gs.reduce(x, first, segments=[0, 2, 2, 6], device=call_device)
        assert_same(gs.reduce(x, first, segments=[0, 2, 6], device=call_device), x[[0, 2]])
        assert_same(gs.reduce(x[:0], segments=[0], device=call_device), x[:0])
        assert_same(gs.reduce(x[:0], "multiply", segments=[0, 0], device=call_device), np.ones(1, np.uint32))
        with pytest.raises(ValueError, match="from 0 to 5 were passed for 6 elements"):
            gs.reduce(x, segments=[0, 5], device=call_device)


def test_as_many_segments_as_columns(device: gs.Device) -> None:
    """Assert that square results of columns with the same bits everywhere are not transposed."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    initial = np.array([10, 20, 30], np.float32)
    options: dict[str, Any] = {"axis": 0, "segments": [0, 1, 1, 4], "initial": initial}
    found = gs.reduce(x, device=device, reproducible="everywhere", **options)
    np.testing.assert_array_equal(found, [initial + x[0], initial, initial + x[1:].sum(axis=0)])
