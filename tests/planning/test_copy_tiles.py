"""Tiles of copies fit the workgroup memory, cover the views, and are only taken where neighbours are far apart."""

from __future__ import annotations

import struct
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from gpuscan.planning.copy_tiles import (
    TILE_BYTES,
    TILE_INVOCATIONS,
    CopiedAxis,
    CopyTiles,
    count_tiles,
    plan_copy_tiles,
    takes_tiles,
)


def axes_of(shape: tuple[int, ...], order: tuple[int, ...]) -> list[CopiedAxis]:
    """Return the axes of a copy of an array in C order with its axes in this order."""
    sizes = [shape[axis] for axis in order]
    return [
        CopiedAxis(shape[axis], prod(shape[axis + 1 :]), prod(sizes[place + 1 :])) for place, axis in enumerate(order)
    ]


@given(
    shape=st.lists(st.integers(2, 3000), min_size=2, max_size=5),
    order=st.randoms(use_true_random=False),
    unit=st.sampled_from([1, 2, 4, 8]),
)
def test_tiles_fit_and_cover(shape: list[int], order: object, unit: int) -> None:
    axes = axes_of(tuple(shape), tuple(order.sample(range(len(shape)), len(shape))))  # type: ignore[attr-defined]
    tiles = plan_copy_tiles(axes, unit)
    if tiles is None:
        return
    assert sorted(tiles.axes)[-len(axes) :] == sorted(axes)
    assert sorted(tiles.written) == [0, 1, 2]
    assert all(extent == 1 for extent in tiles.extents[3:])
    assert all(1 <= extent <= axis.size for extent, axis in zip(tiles.extents, tiles.axes, strict=True))
    assert tiles.axes[0].source == 1
    assert tiles.axes[tiles.written[0]].target == 1
    assert prod(tiles.extents) * unit <= TILE_BYTES[unit]
    check_parameters(tiles)


def check_parameters(tiles: CopyTiles) -> None:
    """Assert that each column of a tile has an invocation, that the shader divides exactly, and in 32 bits."""
    words = tiles.words(0, 0)
    numbers = struct.unpack(f"<{len(words) // 4}I", words)
    assert max(numbers[12], numbers[20]) <= TILE_INVOCATIONS
    most = max(numbers[7], numbers[11], TILE_INVOCATIONS)
    for at in range(12, 28, 4):
        divisor, factor, shift, _ = numbers[at : at + 4]
        for n in {*range(0, most + 1, 7), *range(divisor - 1, most + 1, divisor), *range(0, most + 1, divisor), most}:
            assert n * factor < 2**32
            assert n * factor >> shift == n // divisor


def test_tiles_of_few_rows() -> None:
    """Assert that a tile has no more columns than invocations, however short its other side is."""
    for shape in ((3, 3000), (3000, 3)):
        for unit in (4, 8):
            tiles = plan_copy_tiles(axes_of(shape, (1, 0)), unit)
            assert tiles is not None
            check_parameters(tiles)


def test_copies_without_tiles() -> None:
    """Assert that long runs, broadcast axes, wide steps, and short lines of bytes take none."""
    for unit in (1, 2, 4, 8):
        assert plan_copy_tiles(axes_of((30, 40, 100), (1, 0, 2)), unit) is None
        assert plan_copy_tiles([CopiedAxis(1000, 2, 1)], unit) is None
        assert plan_copy_tiles([CopiedAxis(50, 1, 60), CopiedAxis(60, 0, 1)], unit) is None
        assert plan_copy_tiles([CopiedAxis(50, 64, 60), CopiedAxis(60, 6400, 1)], unit) is None
        assert (plan_copy_tiles(axes_of((5, 1000), (1, 0)), unit) is None) == (unit < 4)
        assert plan_copy_tiles(axes_of((1000, 50), (1, 0)), unit) is not None


def test_tiles_for_sizes_of_one_call() -> None:
    assert takes_tiles(4, 377, 1, 88964, 46, 729118, 1)
    tiles = plan_copy_tiles([CopiedAxis(377, 1, 46), CopiedAxis(46, 377, 1)], 4)
    assert tiles is not None
    assert count_tiles(4, 377, 1, 46, 46, 377, 1) == tiles.count
    assert tiles.count * prod(tiles.extents) >= 377 * 46
