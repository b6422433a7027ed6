"""Scans of rows and columns that restart at offsets or keys give what a scan of each segment gives, exactly."""

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
from tests.harness.scans import device_marks, make_problem, scan_with
from tests.harness.stages import twin_of
from tests.oracle import (
    AFFINE,
    MATRICES,
    assert_same,
    draw_offsets,
    heads_along,
    one_by_one,
    strategies_in_turn,
    tile_in_turn,
    words,
)

# A tile of 8 rows and 2 columns, so that short columns make many tiles.
COLUMN_TILE = ColumnTile(2, 4, 2, 1)


def cuts_of(rng: np.random.Generator, kind: str, shape: tuple[int, ...], axis: int) -> dict[str, Any]:
    """Return an argument that cuts rows."""
    length = shape[axis]
    if kind == "segments":
        return {"segments": draw_offsets(rng, length, 1 + length // 9)}
    keys_shape = (length,) if kind == "shared keys" else shape
    return {"keys": rng.random(keys_shape) < 0.15}


CASES = [
    (layout, kind, *options)
    for number, (layout, kind) in enumerate(
        [("rows", "shared keys"), ("columns", "segments"), ("rows", "own keys"), ("columns", "own keys")]
    )
    for options in [((False, False), (True, True)), ((False, True), (True, False))][number % 2]
]


@pytest.mark.parametrize(("layout", "kind", "exclusive", "reverse"), CASES)
def test_every_layout(device: gs.Device, layout: str, kind: str, exclusive: bool, reverse: bool) -> None:
    """Return an operator that does not commute, with an initial value for each row, under several strategies."""
    rng = np.random.default_rng(0)
    shape, axis = ((5, 901), 1) if layout == "rows" else ((2, 301, 5), 1)
    tile: TileShape | ColumnTile = tile_in_turn(device, exclusive) if layout == "rows" else COLUMN_TILE
    x, lead = words(rng, 2, shape), tuple(n for i, n in enumerate(shape) if i != axis)
    cuts = cuts_of(rng, kind, shape, axis)
    options: dict[str, Any] = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    options["initial"] = words(rng, 2, lead)
    wanted = one_by_one(AFFINE.function, x, heads=heads_along(axis, shape, **cuts), **options)
    for strategy in strategies_in_turn(device, exclusive + reverse):
        out = [np.full(shape, 0xABCD, np.uint32) for _ in wanted]
        problem = make_problem(x, AFFINE, **cuts, **options)
        got = scan_with(device, problem, strategy, tile=tile, out=out)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, strategy)


SHAPES = [((3, 70), 1), ((70, 3), 0), ((66, 4), 0), ((2, 65, 4), 1), ((2, 33, 3), 1), ((1, 50), 0), ((40, 1), 0)]


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["segments", "shared keys", "own keys"]))
def test_from_anywhere(device: gs.Device, seed: int, kind: str) -> None:
    """Cut NumPy arrays and arrays on the device, by keys in any memory order that are here or there."""
    rng = np.random.default_rng(seed)
    shape, axis = SHAPES[seed % len(SHAPES)]
    x = rng.integers(0, 2**8, shape, dtype=np.uint8)
    cuts = cuts_of(rng, kind, shape, axis)
    options: dict[str, Any] = {"axis": axis - len(shape), "reverse": bool(seed % 2)}
    heads = heads_along(axis, shape, **cuts)
    (wanted,) = one_by_one(lambda l, r: (l[0] + r[0],), (x,), heads=heads, axis=axis, reverse=options["reverse"])
    assert_same(gs.scan(x, device="numpy", **cuts, **options), wanted)
    assert_same(gs.scan(x, device=device, **cuts, **options), wanted)
    on_device = device.asarray(x)
    assert_same(gs.scan(on_device, **cuts, **options), wanted)
    if kind != "segments":
        there = device.asarray(cuts["keys"])
        assert_same(gs.scan(on_device, keys=there, **options), wanted)
        assert_same(gs.scan(x, device=device, keys=there, **options), wanted)
        assert_same(gs.scan(x, device=device, keys=np.asfortranarray(cuts["keys"]), **options), wanted)


@settings(max_examples=60)
@given(data=st.data())
def test_on_numpy(data: st.DataObject) -> None:
    """Scan by the reference, with every combination of options."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = cuts_of(rng, data.draw(st.sampled_from(["segments", "shared keys", "own keys"])), shape, axis)
    options: dict[str, Any] = {"axis": axis, "exclusive": data.draw(st.booleans()), "reverse": data.draw(st.booleans())}
    x, lead = words(rng, 4, shape), tuple(n for i, n in enumerate(shape) if i != axis)
    options["initial"] = words(rng, 4, lead) if options["exclusive"] or data.draw(st.booleans()) else None
    wanted = one_by_one(MATRICES.function, x, heads=heads_along(axis, shape, **cuts), **options)
    got = gs.scan(x, MATRICES, device="numpy", **cuts, **options)
    for result, field in zip(got, wanted, strict=True):
        assert_same(result, field)


@pytest.mark.parametrize(("kind", "reverse"), [("own keys", False), ("segments", True), ("own keys", True)])
def test_in_pieces(device: gs.Device, kind: str, reverse: bool) -> None:
    """Assert that pieces, which begin and end anywhere in rows, have the bits of the whole."""
    rng = np.random.default_rng(4)
    shape, tile = (7, 5_003), tile_in_turn(device, reverse)
    x = rng.normal(size=shape).astype(np.float32)
    options: dict[str, Any] = {"axis": 1, "reverse": reverse}
    problem = make_problem(x, **cuts_of(rng, kind, shape, 1), **options)
    (wanted,) = twin_of(problem, tile)
    for piece_bytes in (None, 1 << 16):
        strategy = strategies_in_turn(device, reverse)[0]
        (got,) = scan_with(device, problem, strategy, tile=tile, piece_bytes=piece_bytes)
        assert_same(got, wanted, piece_bytes)


@pytest.mark.parametrize(
    ("shape", "axis"), [((600_001,), 0), ((614_400,), 0), ((700, 520), 1), ((700, 520), 0), ((3, 700, 260), 1)]
)
def test_larger_than_a_binding(adapter: wgpu.GPUAdapter, shape: tuple[int, ...], axis: int) -> None:
    """Scan arrays in pieces and in slabs of columns, with keys that are just as large."""
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32)
    initial = rng.integers(0, 2**32, [n for i, n in enumerate(shape) if i != axis], dtype=np.uint32)
    for number, kind in enumerate(("own keys", "segments")):
        cuts = cuts_of(rng, kind, shape, axis)
        options: dict[str, Any] = {"axis": axis, "reverse": number == 0, "initial": initial}
        wanted = gs.scan(x, device="numpy", **cuts, **options)
        assert_same(gs.scan(x, device=small, **cuts, **options), wanted)
        assert_same(gs.scan(small.asarray(x), **cuts, **options), wanted)
        if kind == "own keys":
            there = small.asarray(cuts["keys"].astype(np.int32))
            assert_same(gs.scan(small.asarray(x), keys=there, **options), wanted)
        else:
            # Offsets that exceed a binding: most segments are empty.
            many = small.asarray(np.repeat(cuts["segments"], 3_000 if len(shape) > 1 else 5))
            assert_same(gs.scan(small.asarray(x), segments=many, **options), wanted)


def test_matrices_and_maps(device: gs.Device) -> None:
    """Cut columns of matrices, with functions fused into the load and the store."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 2**32, (60, 2, 2, 2), dtype=np.uint32)
    cuts = draw_offsets(rng, 60, 8)
    fields = tuple(x[..., i, j] for i, j in itertools.product((0, 1), (0, 1)))
    wanted = one_by_one(MATRICES.function, fields, heads=heads_along(0, (60, 2), segments=cuts))
    got = gs.scan(x, "matmul", axis=0, device=device, segments=cuts)
    for (i, j), field in zip(itertools.product((0, 1), (0, 1)), wanted, strict=True):
        assert_same(got[..., i, j], field)
    y = rng.integers(0, 50, (30, 8)).astype(np.float32)
    keys = rng.random((30, 8)) < 0.1
    (sums,) = one_by_one(lambda l, r: (l[0] + r[0],), (y * y,), heads=heads_along(0, y.shape, keys=keys))
    mapped = gs.scan(y, axis=0, keys=keys, before=lambda v: v * v, after=lambda v: v + 1, device=device)
    assert_same(mapped, sums + 1)


def test_the_marks_are_those_of_the_cpu(device: gs.Device) -> None:
    """Assert that mark_keys.wgsl, repeat_heads.wgsl and mark_segments.wgsl agree with their twins on NumPy."""
    rng = np.random.default_rng(6)
    shapes: list[tuple[tuple[int, ...], int]] = [((length,), 0) for length in (1, 31, 32, 33, 5000)]
    shapes += (((2, 3), 1), ((9, 31), 1), ((40, 65), 1), ((65, 40), 0), ((3, 33, 6), 1), ((3, 4, 50), 2))
    for number, ((shape, axis), reverse) in enumerate(itertools.product(shapes, (False, True))):
        in_columns = axis < len(shape) - 1
        keys = rng.integers(0, 2, shape).astype(("uint8", "int64", "float32")[number % 3])
        for cuts in ({"segments": draw_offsets(rng, shape[axis], 5)}, {"keys": keys}):
            made, wanted = device_marks(device, shape, axis, reverse, in_columns, **cuts)
            assert_same(made, wanted, (shape, axis, reverse))
        made, wanted = device_marks(device, shape, axis, reverse, False, keys=device.asarray(keys))
        assert_same(made, wanted, (shape, axis, reverse))
