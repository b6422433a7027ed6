"""The shapes that `gpuscan tune` keeps: looked up, written, read, and ignored where they are damaged."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuscan.device import tile_cache
from gpuscan.planning import tuned_tiles as tuning
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tiles import tile_shape
from tests.fakes import capabilities, spec

LIMITS = {
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-storage-size": 32768,
}
GPU = capabilities(limits=LIMITS)
SHORT, LONG = TileShape(256, 32, 8, 4, bands=2), TileShape(512, 32, 12, 4)
TUNED = {(1, 1 << 18): SHORT, (1, 1 << 26): LONG, (2, 1 << 20): SHORT}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache folder of its own."""
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.parametrize(
    ("words", "length", "found"),
    [
        (1, 1 << 16, None),
        (1, (1 << 17) - 1, None),
        (1, 1 << 17, SHORT),
        (1, 1 << 21, SHORT),
        (1, 1 << 23, LONG),
        (1, 1 << 30, LONG),
        (2, 1 << 30, SHORT),
        (4, 1 << 20, None),
    ],
)
def test_nearest(words: int, length: int, found: TileShape | None) -> None:
    """Assert that the nearest length counts, by ratio, but nothing far shorter and no other elements."""
    assert tuning.nearest(TUNED, words, length) == found


def test_only_what_was_measured_is_tuned() -> None:
    """Assert that tuned tiles are for whole words in one row, from the same number of arrays."""
    assert tuning.find_tuned_tile(TUNED, spec(row_length=1 << 18)) == SHORT
    assert tuning.find_tuned_tile(TUNED, spec(row_length=0)) is None
    assert tuning.find_tuned_tile(TUNED, spec("int16", row_length=1 << 18)) is None
    assert tuning.find_tuned_tile(TUNED, spec("float32", "int16", row_length=1 << 18)) is None
    assert tuning.find_tuned_tile(TUNED, spec(rows=1 << 9, row_length=1 << 9)) is None
    assert tuning.find_tuned_tile(TUNED, spec("float32", "float32", row_length=1 << 20)) == SHORT
    assert tuning.find_tuned_tile(TUNED, spec("uint64", row_length=1 << 20)) is None
    for option in ({"has_segment_bits": True}, {"compacts": True}, {"field_offsets": (1,)}):
        assert tuning.find_tuned_tile(TUNED, spec(row_length=1 << 18, **option)) is None
    assert tuning.find_tuned_tile(tuning.UNTUNED, spec(row_length=1 << 18)) is None


def test_bits_do_not_change() -> None:
    """Assert that a tile is taken only where it combines elements in the order of the planner's own."""
    asked = spec("float32", row_length=1 << 26)
    planned = tile_shape(asked, GPU)
    for tile in (planned, *planned.same_order()):
        assert tuning.best_tile(asked, GPU, {(1, 1 << 26): tile}) == tile
    assert TileShape(512, 32, 4, 4).same_order() == [
        TileShape(512, 32, 4, 4),
        TileShape(256, 32, 8, 4, bands=2),
        TileShape(128, 32, 16, 4, bands=4),
        TileShape(64, 32, 32, 4, bands=8),
        TileShape(32, 32, 64, 4, bands=16),
    ]
    assert TileShape(256, 32, 8, 4, bands=2).same_order() == TileShape(512, 32, 4, 4).same_order()
    for other in (
        TileShape(256, 32, 8, 4),
        TileShape(512, 32, 8, 4),
        TileShape(512, 32, 8, 2),
        TileShape(512, 0, 1, 16),
    ):
        assert tuning.best_tile(asked, GPU, {(1, 1 << 26): other}) == planned


def test_lanes_need_subgroups() -> None:
    """Assert that tuned tiles do not rely on subgroups if a compiler may give a shader another size."""
    serial = TileShape(64, 0, 1, 64)
    assert tuning.find_tuned_tile(TUNED, spec(row_length=1 << 18), subgroups=False) is None
    assert tuning.find_tuned_tile({(1, 1 << 18): serial}, spec(row_length=1 << 18), subgroups=False) == serial


def test_written_and_read() -> None:
    """Assert that files belong to an adapter, and that other drivers have their own."""
    assert tile_cache.load(GPU) == {}
    path = tile_cache.store(GPU, TUNED)
    assert path is not None
    assert tile_cache.load(GPU) == TUNED
    assert os.listdir(path.parent) == [path.name]
    assert tile_cache.load(replace(GPU, driver="another")) == {}
    tile_cache.store(GPU, {})
    assert tile_cache.load(GPU) == {}


def test_frozen() -> None:
    """Assert that tables cannot change, since plans depend on them."""
    tile_cache.store(GPU, TUNED)
    loaded: Any = tile_cache.load(GPU)
    with pytest.raises(TypeError):
        loaded[1, 5] = SHORT


ROW = [1, 1 << 18, 256, 32, 4, 4, 1]


@pytest.mark.parametrize(
    "row",
    [
        [3, *ROW[1:]],
        [1, 0, *ROW[2:]],
        [*ROW[:2], 48, *ROW[3:]],
        [*ROW[:2], 16, *ROW[3:]],
        [*ROW[:2], 2048, *ROW[3:]],
        [*ROW[:3], 16, *ROW[4:]],
        [*ROW[:4], 0, 4, 1],
        [*ROW[:4], 4, 3, 1],
        [*ROW[:4], 10_000, 4, 1],
        [*ROW[:4], 4, 1 << 20, 1],
        [*ROW[:3], 0, 2, 4, 1],
        [*ROW[:5], 4.0, 1],
        [*ROW[:5], True, 1],
        [*ROW[:6], 0],
        [*ROW[:6], 3],
        [*ROW[:6], 8],
        ROW[:6],
        [*ROW, 1],
        None,
        "abcdef",
        {},
    ],
    ids=str,
)
def test_shapes_that_do_not_run_here_are_ignored(row: Any) -> None:
    """Assert that a file with one bad entry is ignored: it was not written by this gpuscan."""
    path = tile_cache.store(GPU, TUNED)
    assert path is not None
    kept = json.loads(path.read_text())
    kept["content"].append(row)
    path.write_text(json.dumps(kept))
    assert tile_cache.load(GPU) == {}


def test_wide_items_need_workgroup_memory() -> None:
    """Assert that a workgroup of 1024 in 16 KiB has room for one word each, and not for four."""
    small = capabilities(limits=LIMITS | {"max-compute-workgroup-storage-size": 16384})
    assert tuning.runs_on(TileShape(1024, 32, 4, 4), 1, small)
    assert not tuning.runs_on(TileShape(1024, 32, 4, 4), 4, small)
