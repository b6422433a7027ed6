"""Tile shapes that `gpuscan tune` found faster here than the planner's own, and the file that keeps them.

One file an adapter (see cache_files.py). What has shapes that this device cannot run counts as absent.

A tile's shape fixes the order of combination, so floats may differ in their last bits between a tuned device and one
that is not. For each of them the bits stay the same from run to run and under every strategy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpuscan._version import __version__
from gpuscan.device import disk_cache as cache_files
from gpuscan.planning.tile_shapes import TileShape

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.plan import Work

Tuned = Mapping[tuple[int, int], TileShape]  # (32-bit words of an item, elements) -> the fastest shape for them

UNTUNED: Tuned = MappingProxyType({})
FOLDER = "tuning"
FIELDS_TUNED = MappingProxyType({1: 1, 2: 2, 4: 1})  # words of an item -> arrays that it is read from
MOST_STEPS, MOST_CHUNK_WORDS = 64, 256  # of a shape that is believed
LEAST_WORKGROUP = 32  # invocations


def nearest(tuned: Tuned, words: int, length: int) -> TileShape | None:
    """The shape tuned for items of so many words at the nearest length; None under half the shortest."""
    lengths = sorted(at for width, at in tuned if width == words)
    if not lengths or length < 1 or 2 * length < lengths[0]:
        return None
    return tuned[words, min(lengths, key=lambda at: abs(math.log2(at / length)))]


def tile_for(tuned: Tuned, work: Work, subgroups: bool = True) -> TileShape | None:
    """The shape tuned for this work, or None: only what was measured is tuned, whole words in one row, short code."""
    fields = (*work.source.fields, *work.destination.fields)
    if work.rows > 1 or work.combine.long or any(field.storage_bytes % 4 for field in fields):
        return None
    if work.marked or work.moves or any(work.shifts) or len(work.source.fields) != FIELDS_TUNED.get(work.item_words):
        return None
    found = nearest(tuned, work.item_words, work.length)
    return None if found is None or (found.subgroup_size and not subgroups) else found


def load(capabilities: Capabilities) -> Tuned:
    """The shapes kept for this adapter; empty where there are none."""
    try:
        shapes = cache_files.read(FOLDER, _key(capabilities))
        return MappingProxyType(dict(_entry(row, capabilities) for row in shapes or ()))
    except (ValueError, TypeError):
        return UNTUNED


def store(capabilities: Capabilities, tuned: Tuned) -> Path | None:
    """Keep the shapes; where they were written, or None where they could not be."""
    rows = [
        [words, length, tile.workgroup_size, tile.subgroup_size, tile.steps, tile.chunk]
        for (words, length), tile in sorted(tuned.items(), key=lambda entry: entry[0])
    ]
    return cache_files.write(FOLDER, _key(capabilities), rows)


def runs_on(tile: TileShape, words: int, capabilities: Capabilities) -> bool:
    """Whether a device can run a tile of this shape over items of so many words."""
    limits = capabilities.limits
    size = tile.workgroup_size
    return (
        LEAST_WORKGROUP <= size <= limits["max-compute-invocations-per-workgroup"]
        and size <= limits["max-compute-workgroup-size-x"]
        and size & (size - 1) == 0
        and 4 * words * (size + 64) <= limits["max-compute-workgroup-storage-size"]
        and tile.subgroup_size in (0, capabilities.subgroup_size)
        and tile.subgroup_size <= size
        and 1 <= tile.steps <= (MOST_STEPS if tile.subgroup_size else 1)
        and 1 <= tile.chunk <= MOST_CHUNK_WORDS // words
        and tile.chunk & (tile.chunk - 1) == 0
    )


def _entry(row: list[Any], capabilities: Capabilities) -> tuple[tuple[int, int], TileShape]:
    """One row of the file.

    Raises:
        ValueError, TypeError: it is not one, or its shape does not run here.
    """
    words, length, workgroup_size, subgroup_size, steps, chunk = row
    if any(type(number) is not int for number in row):
        raise TypeError(f"expected integers, found {row!r}")
    tile = TileShape(workgroup_size, subgroup_size, steps, chunk)
    if words not in FIELDS_TUNED or length < 1 or not runs_on(tile, words, capabilities):
        raise ValueError(f"{row!r} is no shape for {capabilities.summary}")
    return (words, length), tile


def _key(capabilities: Capabilities) -> dict[str, Any]:
    names = ("summary", "name", "vendor", "driver", "backend", "adapter_type", "implementation", "subgroup_size")
    return {name: getattr(capabilities, name) for name in names} | {"gpuscan": __version__}
