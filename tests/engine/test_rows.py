"""Rows that are long enough for tiles of their own: a tile ends where its row does, and items carry no head flag."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.scans import MIN_ROW, find_tile, make_problem, scan_with
from tests.harness.stages import twin_of
from tests.oracle import (
    AFFINE,
    FIRST,
    MATRICES,
    Array,
    assert_same,
    half_of,
    limit_examples,
    one_by_one,
    pick_strategies,
    several,
    some,
    strategies_in_turn,
    strategies_on,
    words,
)


def row_tiles(device: gs.Device) -> list[TileShape]:
    """Return small tiles that end with rows: with and without subgroups, wider than a block and not."""
    size = device.capabilities.subgroup_size
    shapes = [TileShape(32, 0, 1, 4, per_row=True), TileShape(64, 0, 1, 2, per_row=True)]
    if size:
        shapes += [TileShape(max(32, size), size, 3, 4, per_row=True)]
        shapes += [TileShape(max(64, 2 * size), size, 1, 2, per_row=True)]
    return shapes


def lengths(tile: TileShape) -> list[int]:
    """Return row lengths of one tile and less, of a few tiles, and of a block, with a full last tile and without."""
    size, chunk = tile.tile_size, tile.chunk
    return [chunk, size - chunk, size, size + chunk, 3 * size, tile.block * size - chunk, tile.block * size]


def options(rows: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return options that need different shaders."""
    initial = tuple(rng.integers(0, 2**32, rows, dtype=np.uint32) for _ in range(2))
    return [
        {},
        {"reverse": True},
        {"initial": initial},
        {"exclusive": True, "reverse": True, "initial": initial},
        {"exclusive": True},
    ]


def test_every_length_and_option(device: gs.Device) -> None:
    """Assert that the scan of a bundle equals the fold one by one, with an operator that does not commute."""
    rng = np.random.default_rng(0)
    for rotation, tile in half_of(device, enumerate(row_tiles(device))):
        for number, length in some(device, enumerate(lengths(tile))):
            x = words(rng, 2, (3, length))
            asked = options(3, rng)[number % 5]
            begin = {"initial": (1, 0)} if asked.get("exclusive") else {}  # the operator's identity
            wanted = one_by_one(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), x, axis=1, **(begin | asked))
            for strategy in strategies_in_turn(device, number + rotation):
                results = scan_with(device, make_problem(x, AFFINE, axis=1, **asked), strategy, tile=tile)
                for got, field in zip(results, wanted, strict=True):
                    assert_same(got, field, (tile, length, asked, strategy))


def test_float_bits(device: gs.Device) -> None:
    """Assert that float sums have the bits of the twin under every strategy."""
    rng = np.random.default_rng(1)
    for tile in half_of(device, row_tiles(device), 1):
        for rotation, length in some(device, enumerate(lengths(tile))):
            problem = make_problem(rng.standard_normal((4, length)).astype(np.float32), axis=1)
            (wanted,) = twin_of(problem, tile)
            for strategy in pick_strategies(device, rotation):
                (got,) = scan_with(device, problem, strategy, tile=tile)
                assert_same(got, wanted, (tile, length, strategy))


@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_are_whole_rows(device: gs.Device, reverse: bool) -> None:
    """Assert that an array scanned in pieces has the bits of one that is scanned whole."""
    x = np.random.default_rng(2).standard_normal((37, 4 * MIN_ROW)).astype(np.float32)
    problem = make_problem(x, axis=1, reverse=reverse)
    tile = find_tile(device, problem)
    assert isinstance(tile, TileShape)
    assert tile.per_row
    (wanted,) = twin_of(problem, tile)
    for strategy in strategies_on(device):
        for rows in (1, 5, 37, 100):
            (got,) = scan_with(device, problem, strategy, piece_bytes=rows * x.nbytes // 37)
            assert_same(got, wanted, (strategy, rows))


@pytest.mark.parametrize(
    ("number", "dtype"), list(enumerate(["uint8", "int16", "bool", "float16", "int64", "complex64"]))
)
def test_elements(device: gs.Device, number: int, dtype: str) -> None:
    """Scan elements of other widths, packed ones too, at lengths where rows share tiles and where they do not."""
    op = "logical_xor" if dtype == "bool" else "add"
    rng = np.random.default_rng(3)
    for rotation, length in enumerate((MIN_ROW + 1, (MIN_ROW, 5 * MIN_ROW + 4)[number % 2]), number):
        x = rng.integers(0, 2, (several(device, 3), length)).astype(dtype)
        wanted = np.logical_xor.accumulate(x, axis=1) if dtype == "bool" else np.cumsum(x, axis=1, dtype=x.dtype)
        for strategy in strategies_in_turn(device, rotation):
            assert_same(gs.scan(x, op, axis=1, device=device, strategy=strategy), wanted, (length, strategy))


def test_no_identity_and_arrays_on_the_device(device: gs.Device) -> None:
    x = words(np.random.default_rng(4), 4, (6, 2 * MIN_ROW))
    wanted = one_by_one(MATRICES.function, x, axis=1)
    for strategy in strategies_on(device):
        got = gs.scan(tuple(map(device.asarray, x)), MATRICES, axis=1, strategy=strategy)
        for field, exact in zip(got, wanted, strict=True):
            assert_same(field.numpy(), exact, strategy)
    first = gs.scan(x[0].reshape(2, 3, -1), FIRST, axis=2, device=device)
    assert_same(first, np.broadcast_to(x[0].reshape(2, 3, -1)[:, :, :1], first.shape))


def test_in_place(device: gs.Device) -> None:
    x = np.random.default_rng(5).integers(0, 2**32, (40, 3 * MIN_ROW), dtype=np.uint32)
    array = device.asarray(x)
    assert gs.scan(array, axis=1, out=array) is array
    assert_same(array.numpy(), np.cumsum(x, axis=1, dtype=np.uint32))


@limit_examples(20)
@given(st.data())
def test_any_row(device: gs.Device, data: st.DataObject) -> None:
    """Reduce and scan rows of about the smallest length that gets tiles of its own."""
    length = data.draw(st.integers(MIN_ROW - 5, 3 * MIN_ROW))
    rows = data.draw(st.integers(2, 70))
    reverse = data.draw(st.booleans())
    x: Array = np.random.default_rng(length).integers(0, 2**32, (rows, length), dtype=np.uint32)
    wanted = np.cumsum(x[:, ::-1] if reverse else x, axis=1, dtype=np.uint32)
    got = gs.scan(x, axis=1, reverse=reverse, device=device)
    assert_same(got, wanted[:, ::-1] if reverse else wanted)
    assert_same(gs.reduce(x, axis=1, device=device), np.add.reduce(x, axis=1, dtype=np.uint32))
