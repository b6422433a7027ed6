"""Decide how rows are sorted on a device: by merges in one workgroup, or by a radix sort over tiles."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscan.elements import Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.sort_heuristics import sort_heuristics_for

# Words of a key and of its place, in one of the two halves of workgroup memory.
_HALVES = 2


@dataclass(frozen=True)
class TileSort:
    """The shape of a radix sort over tiles.

    Attributes:
        radix_bits: bits of a digit.
        digits: digits of a key, the lowest first.
        workgroup: invocations in a workgroup; one workgroup sorts one tile.
        groups: subgroups of a workgroup that have counters; without subgroups, the invocations.
        subgroups: True if the lanes of a subgroup rank their elements together.
        staged: elements of a tile that workgroup memory has room for, so that a tile is brought in order there before
            it is stored; 0 if elements are stored at once.
        tile_size: elements of a tile.
        tiles_per_row: tiles of a row; a tile has elements of one row only.
        tiles: tiles of all rows.
    """

    radix_bits: int
    digits: int
    workgroup: int
    groups: int
    subgroups: bool
    staged: int
    tile_size: int
    tiles_per_row: int
    tiles: int

    @property
    def counts(self) -> int:
        """The number of counts: one for each value of a digit and each tile."""
        return self.tiles << self.radix_bits


@dataclass(frozen=True)
class RowSort:
    """The shape of a sort in which each workgroup sorts whole rows.

    Attributes:
        workgroup: invocations in a workgroup.
        capacity: elements that fit the workgroup's memory.
        rows: rows of one workgroup.
        workgroups: the number of workgroups.
    """

    workgroup: int
    capacity: int
    rows: int
    workgroups: int


def plan_sort(
    scalar: Scalar,
    rows: int,
    row_length: int,
    capabilities: Capabilities,
    *,
    places: bool = True,
    subgroups: bool | None = None,
    tile_size: int | None = None,
) -> TileSort | RowSort:
    """Return how rows are sorted.

    Args:
        scalar: the kind of key.
        rows: the number of rows, 1 or more.
        row_length: the keys in a row, 1 or more.
        capabilities: the device's.
        places: True if a word is moved along with each key.
        subgroups: whether tiles are ranked by subgroups. By default they are on GPUs that have subgroups.
        tile_size: the elements of a tile, to sort by tiles whatever the length.
    """
    h = sort_heuristics_for(capabilities.adapter_type)
    memory = capabilities.limits["max-compute-workgroup-storage-size"]
    most = capabilities.limits["max-compute-invocations-per-workgroup"]
    room = memory // (4 * _HALVES * (scalar.words + 1))
    capacity = min(h.row_capacity, 1 << (room.bit_length() - 1))
    if row_length <= capacity and tile_size is None:
        together = max(1, min(capacity // row_length, -(-rows // h.min_row_workgroups)))
        return RowSort(min(h.row_workgroup, most), capacity, together, -(-rows // together))
    if subgroups is None:
        subgroups = h.subgroups and bool(capabilities.subgroup_sizes)
    radix_bits = h.radix_bits if subgroups else h.serial_radix_bits
    workgroup = min(h.workgroup if subgroups else h.serial_workgroup, most)
    if subgroups:
        # A word for each invocation, and one that counts subgroups, come behind the counters.
        fitting = (memory // 4 - workgroup - 1) >> radix_bits
        groups = max(1, min(h.groups, workgroup // min(capabilities.subgroup_sizes), fitting))
    else:
        groups = workgroup
    staged = 0
    if subgroups and workgroup >= 1 << radix_bits:
        # The counters, a word for each invocation, one for each digit, and the number of subgroups.
        free = memory // 4 - (groups << radix_bits) - workgroup - (1 << radix_bits) - 1
        staged = min(h.items, free // (scalar.words + places) // workgroup) * workgroup
        if tile_size is not None and tile_size > staged:
            staged = 0
    if tile_size is None:
        most_each = staged // workgroup or h.items if subgroups else h.serial_items
        least = workgroup * min(most_each, h.min_items)
        wanted = -(-rows * row_length // h.min_tiles)
        tile_size = min(workgroup * most_each, max(least, -(-wanted // workgroup) * workgroup))
    tiles_per_row = -(-row_length // tile_size)
    bits = 1 if scalar.kind == "bool" else scalar.bits
    digits = -(-bits // radix_bits)
    return TileSort(
        radix_bits, digits, workgroup, groups, subgroups, staged, tile_size, tiles_per_row, rows * tiles_per_row
    )
