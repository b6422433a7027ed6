"""Decide how rows are sorted on a device: by merges in one workgroup, or by a radix sort over tiles."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscan.elements import Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.sort_heuristics import sort_heuristics_for

# The halves of workgroup memory in a sort of rows: each round merges from one half to the other.
_HALVES = 2
# The fewest lanes that the compilers for a vendor's GPUs choose for a subgroup, and those for GPUs of other vendors.
_FEWEST_LANES = {"NVIDIA": 32, "AMD": 32, "Apple": 32, "Intel": 8}
_FEWEST_LANES_ANYWHERE = 4


@dataclass(frozen=True)
class TileSort:
    """The shape of a radix sort over tiles.

    Attributes:
        radix_bits: bits of a digit.
        digits: digits of a key, the lowest first.
        workgroup: invocations in a workgroup; one workgroup sorts one tile.
        groups: the most subgroups of a workgroup; without subgroups, the invocations.
        subgroups: True if the lanes of a subgroup rank their elements together.
        tile_size: elements of a tile.
        tiles_per_row: tiles of a row; a tile has elements of one row only.
        tiles: tiles of all rows.
    """

    radix_bits: int
    digits: int
    workgroup: int
    groups: int
    subgroups: bool
    tile_size: int
    tiles_per_row: int
    tiles: int

    @property
    def items(self) -> int:
        """The elements of an invocation, at most."""
        return -(-self.tile_size // self.workgroup)

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


def fewest_lanes(capabilities: Capabilities) -> int:
    """Return the fewest lanes of a subgroup for which shaders need counters.

    A compiler may choose another size for each shader than the probe saw. A workgroup has counters for
    as many subgroups as there can be, so that a sort is right whatever the compiler chooses.
    """
    seen = min(capabilities.subgroup_sizes)
    if capabilities.adapter_type == "CPU":
        return seen
    return min(seen, _FEWEST_LANES.get(capabilities.vendor, _FEWEST_LANES_ANYWHERE))


def plan_sort(
    scalar: Scalar,
    rows: int,
    row_length: int,
    capabilities: Capabilities,
    *,
    with_places: bool = False,
    subgroups: bool | None = None,
    tile_size: int | None = None,
) -> TileSort | RowSort:
    """Return how rows are sorted.

    Args:
        scalar: the kind of key.
        rows: the number of rows, 1 or more.
        row_length: the keys in a row, 1 or more.
        capabilities: the device's.
        with_places: True if each key takes its index along.
        subgroups: True to rank tiles by subgroups (default: on GPUs that have subgroups).
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
    wanted_size = h.workgroup_with_places if with_places else h.workgroup
    workgroup = min(wanted_size if subgroups else h.serial_workgroup, most)
    if subgroups:
        # The counters, with a word for each invocation, share their memory with the tile's keys. There are three more
        # words for each digit, and one that counts subgroups.
        words = memory // 4 - 1 - (3 << radix_bits)
        groups = max(1, workgroup // fewest_lanes(capabilities))
        while groups > 1 and (groups << radix_bits) + workgroup > words:
            workgroup, groups = workgroup // 2, groups // 2
        fitting = words // scalar.words
    else:
        groups, fitting = workgroup, workgroup * h.serial_items
    if tile_size is None:
        items = h.items_with_places if with_places else h.items
        most_each = items if subgroups else h.serial_items
        least = workgroup * min(most_each, h.min_items)
        wanted = -(-rows * row_length // h.min_tiles)
        fitting = fitting // workgroup * workgroup or fitting
        tile_size = min(fitting, workgroup * most_each, max(least, -(-wanted // workgroup) * workgroup))
    tiles_per_row = -(-row_length // tile_size)
    bits = 1 if scalar.kind == "bool" else scalar.bits
    digits = -(-bits // radix_bits)
    return TileSort(radix_bits, digits, workgroup, groups, subgroups, tile_size, tiles_per_row, rows * tiles_per_row)
