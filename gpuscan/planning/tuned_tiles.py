"""Look up the tile shapes that ``gpuscan tune`` found faster on this adapter than the planner's own.

Only shapes that combine elements in the same order as the planner's count, so a tuned device gives the same bits as one
that is not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tiles import tile_shape

# The fastest shape for items of some number of 32-bit words at some length.
Tuned = Mapping[tuple[int, int], TileShape]

# The table of a device that was not tuned.
UNTUNED: Tuned = MappingProxyType({})

# The widths of items that are tuned, in words, and the number of arrays that each is read from.
TUNED_FIELDS = MappingProxyType({1: 1, 2: 2, 4: 1})

# The most steps, and words in a chunk, of a shape that is accepted from a file.
MAX_STEPS = 64
MAX_CHUNK_WORDS = 256

# The fewest invocations in the workgroup of a shape that is accepted from a file: the scan over a block needs them.
MIN_WORKGROUP = 32


def best_tile(spec: ScanSpec, capabilities: Capabilities, tuned: Tuned, subgroups: bool = True) -> TileShape:
    """Return the shape that was tuned for a scan, or the planner's own if there is none.

    Args:
        tuned: the shapes that were tuned on the adapter.
        subgroups: False to use no subgroup operations.
    """
    planned = tile_shape(spec, capabilities, subgroups)
    tuned_tile = find_tuned_tile(tuned, spec, subgroups)
    return planned if tuned_tile is None or tuned_tile not in planned.same_order() else tuned_tile


def find_tuned_tile(tuned: Tuned, spec: ScanSpec, subgroups: bool = True) -> TileShape | None:
    """Return the shape that was tuned for a scan, or None. Only scans of one row of whole words are tuned."""
    fields = (*spec.source.fields, *spec.destination.fields)
    if spec.everywhere or spec.rows > 1 or spec.combine.long or any(field.storage_bytes % 4 for field in fields):
        return None
    if spec.has_segment_bits or spec.compacts or any(spec.field_offsets):
        return None
    if len(spec.source.fields) != TUNED_FIELDS.get(spec.item_words):
        return None
    tile = nearest(tuned, spec.item_words, spec.length)
    return None if tile is None or (tile.subgroup_size and not subgroups) else tile


def nearest(tuned: Tuned, words: int, length: int) -> TileShape | None:
    """Return the shape that was tuned for items of this width at the nearest length.

    Lengths are compared by their ratio. The result is None for less than half of the shortest tuned length.
    """
    lengths = sorted(at for width, at in tuned if width == words)
    if not lengths or length < 1 or 2 * length < lengths[0]:
        return None
    return tuned[words, min(lengths, key=lambda at: abs(math.log2(at / length)))]


def runs_on(tile: TileShape, words: int, capabilities: Capabilities) -> bool:
    """Return True if a device can run a tile of this shape over items of this many words."""
    limits = capabilities.limits
    size = tile.workgroup_size
    return (
        MIN_WORKGROUP <= size <= limits["max-compute-invocations-per-workgroup"]
        and size <= limits["max-compute-workgroup-size-x"]
        and size & (size - 1) == 0
        and 4 * words * (size + 64) <= limits["max-compute-workgroup-storage-size"]
        and tile.subgroup_size in (0, capabilities.subgroup_size)
        and tile.subgroup_size <= size
        and 1 <= tile.steps <= (MAX_STEPS if tile.subgroup_size else 1)
        and tile.bands in range(1, tile.steps + 1)
        and tile.steps % tile.bands == 0
        and 1 <= tile.chunk <= MAX_CHUNK_WORDS // words
        and tile.chunk & (tile.chunk - 1) == 0
    )
