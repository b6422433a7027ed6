"""Describe how a workgroup divides a tile among its invocations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuscan.sizes import reveal

# The tiles of a block, at most: their aggregates are scanned together. It is the size of a subgroup on most GPUs. It
# fixes the order of combination, so it is the same on every adapter.
BLOCK = 32

# Under ``reproducible="everywhere"``, the elements of a chunk, which are combined from left to right, the chunks of a
# group, and the elements of a span (docs/numerics.md). Spans are folded from the left, so the carry of a piece is one
# item. These numbers are part of the promise and never change.
CANONICAL_CHUNK = 4
CANONICAL_GROUP = 32
SPAN = 1 << 20


def power_below(number: int) -> int:
    """Return the largest power of 2 up to the number, at least 1."""
    return reveal(1 << max(0, number.bit_length() - 1))  # type: ignore[no-any-return]


def power_above(number: int) -> int:
    """Return the smallest power of 2 from the number on, at least 1."""
    return 1 if number <= 1 else 2 * power_below(number - 1)


@dataclass(frozen=True)
class TileShape:
    """Divide neighbouring elements among a workgroup.

    With the operator, the size of a tile, its chunks, its bands and its block fix the order of combination. So shapes
    that differ only in how many bands a subgroup takes, and thus in the size of the workgroup, give the same bits
    (`same_order`).

    Attributes:
        workgroup_size: the invocations in a workgroup.
        subgroup_size: the lanes in a subgroup; 0 to use no subgroup operations.
        steps: the chunks of one invocation. From one to the next is one chunk for each lane of the subgroup, or in the
            canonical order for each invocation of the workgroup. Other tiles without subgroups have one step.
        chunk: the adjacent elements that one invocation takes in a step.
        per_row: tiles begin and end where rows do. A row is whole chunks, and no more tiles than a block has.
        single_lead: True to join the prefix of a chunk within its tile with the prefix of the tile first, and the
            result with each element: one join for each element. Otherwise each element is joined with the chunk's
            prefix while the tile waits, and with the tile's prefix at the end.
        bands: the bands of a subgroup: adjacent parts of its elements with equally many steps, each scanned by itself.
    """

    workgroup_size: int
    subgroup_size: int
    steps: int
    chunk: int
    per_row: bool = False
    single_lead: bool = False
    bands: int = 1

    @property
    def tile_size(self) -> int:
        """The number of elements in a tile."""
        return self.workgroup_size * self.steps * self.chunk

    @property
    def band_steps(self) -> int:
        """The number of steps that a band takes."""
        return self.steps // self.bands

    @property
    def bands_per_workgroup(self) -> int:
        """The number of bands that are scanned together, by their totals."""
        return self.subgroups_per_workgroup * self.bands

    @property
    def block(self) -> int:
        """The number of tiles that are scanned together."""
        return min(BLOCK, self.workgroup_size)

    @property
    def subgroups_per_workgroup(self) -> int:
        return self.workgroup_size // self.subgroup_size if self.subgroup_size else 1

    def same_order(self) -> list[TileShape]:
        """Return the shapes that combine elements in the same order as this one, itself among them.

        A workgroup of half the size, say, takes two bands in each subgroup where this one takes one.
        """
        if not self.subgroup_size:
            return [self]
        shapes = []
        for bands in range(1, self.bands_per_workgroup + 1):
            subgroups, rest = divmod(self.bands_per_workgroup, bands)
            size, steps = subgroups * self.subgroup_size, bands * self.band_steps
            shape = replace(self, workgroup_size=size, steps=steps, bands=bands)
            if not rest and shape.block == self.block and shape.bands_per_workgroup <= size:
                shapes.append(shape)
        return shapes


class _OfOneStep:
    """The attributes of a `TileShape`, for tiles with one step and no scans by subgroups."""

    steps = bands = block = 1
    single_lead = False
    subgroups_per_workgroup = bands_per_workgroup = 1


@dataclass(frozen=True)
class RowTile(_OfOneStep):
    """Divide parts of contiguous rows among a workgroup, for a reduction of an operator that commutes.

    Attributes:
        workgroup_size: the invocations in a workgroup.
        lanes: the invocations that share a part, a power of two. They take neighbouring chunks.
        loads: the chunks that an invocation loads before it combines them.
        chunk: the neighbouring elements that an invocation loads at a time.
        part: the elements of a part, at most; a multiple of `chunk`, and of whole columns.
        columns: True if the elements of a row belong to columns, which are reduced each by itself.
    """

    workgroup_size: int
    lanes: int
    loads: int
    chunk: int
    part: int
    columns: bool = False

    subgroup_size = 0
    per_row = True

    @property
    def tile_size(self) -> int:
        """The number of elements in a part."""
        return self.part

    @property
    def parts_per_workgroup(self) -> int:
        """The number of parts that a workgroup takes."""
        return self.workgroup_size // self.lanes


# A word holds the marks of segments of this many rows.
MAX_MARKED_ROWS = 32


@dataclass(frozen=True)
class ColumnTile(_OfOneStep):
    """Divide rows and columns among a workgroup, for a scan along an axis that is not the last.

    Attributes:
        columns: the invocations side by side, each with `chunk` neighbouring columns.
        groups: the invocations one below the other.
        rows: the rows that one invocation takes.
        chunk: the neighbouring columns that one invocation takes.
        subgroup_size: the lanes in a subgroup that exchange words; 0 to use no subgroup operations.
    """

    columns: int
    groups: int
    rows: int
    chunk: int
    subgroup_size: int = 0

    per_row = False

    @property
    def workgroup_size(self) -> int:
        """The number of invocations in a workgroup."""
        return self.columns * self.groups

    @property
    def height(self) -> int:
        """The number of rows in a tile."""
        return self.groups * self.rows

    @property
    def width(self) -> int:
        """The number of columns in a tile."""
        return self.columns * self.chunk

    @property
    def tile_size(self) -> int:
        """The number of elements in a tile."""
        return self.height * self.width


# The shape of any tile.
Tile: TypeAlias = TileShape | ColumnTile | RowTile
