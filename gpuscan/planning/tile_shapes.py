"""Describe how a workgroup divides a tile among its invocations."""

from __future__ import annotations

from dataclasses import dataclass

# The most tiles that are scanned together, by their aggregates. It is the size of a subgroup on most GPUs. It fixes the
# order of combination, so it is the same on every adapter.
BLOCK = 32


@dataclass(frozen=True)
class TileShape:
    """Divide neighbouring elements among a workgroup. With the operator, the shape fixes the order of combination.

    Attributes:
        workgroup_size: the invocations in a workgroup.
        subgroup_size: the lanes in a subgroup; 0 to use no subgroup operations.
        steps: the chunks of one invocation, the width of a subgroup apart; 1 without subgroups.
        chunk: the neighbouring elements that one invocation takes in a step.
        per_row: tiles begin and end where rows do. A row is whole chunks, and no more tiles than a block has.
        single_lead: the prefix of a chunk within its tile and the prefix of the tile are joined first, and the result
            is joined with each element, which is thus joined once. Otherwise each element is joined with the former
            while the tile waits, and with the latter at the end.
    """

    workgroup_size: int
    subgroup_size: int
    steps: int
    chunk: int
    per_row: bool = False
    single_lead: bool = False

    @property
    def tile_size(self) -> int:
        """The number of elements in a tile."""
        return self.workgroup_size * self.steps * self.chunk

    @property
    def block(self) -> int:
        """The number of tiles that are scanned together."""
        return min(BLOCK, self.workgroup_size)

    @property
    def subgroups_per_workgroup(self) -> int:
        return self.workgroup_size // self.subgroup_size if self.subgroup_size else 1


@dataclass(frozen=True)
class ColumnTile:
    """Divide rows and columns among a workgroup, for a scan along an axis that is not the last.

    Attributes:
        columns: the invocations side by side, each with `chunk` neighbouring columns.
        groups: the invocations one below the other.
        rows: the rows that one invocation takes.
        chunk: the neighbouring columns that one invocation takes.
    """

    columns: int
    groups: int
    rows: int
    chunk: int

    subgroup_size = 0
    steps = 1
    block = 1
    per_row = False
    single_lead = False

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

    @property
    def subgroups_per_workgroup(self) -> int:
        return 1
