"""How a workgroup shares out a tile: of neighbours in memory, or of rows of columns."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 32  # tiles whose aggregates are scanned together, at most


@dataclass(frozen=True)
class TileShape:
    """How a workgroup shares out a tile; with the operator it fixes the order of combination.

    Attributes:
        workgroup_size: invocations in a workgroup.
        subgroup_size: lanes in a subgroup; 0 to do without subgroup operations.
        steps: chunks that one invocation takes, a subgroup's width apart; 1 without subgroups.
        chunk: neighbouring elements that one invocation takes in a step.
        per_row: tiles begin and end where rows do; a row is whole chunks, and no more tiles than a block has.
        single_lead: all that comes before a chunk is joined first, and then with each element, which is joined once;
            else what comes before it in the tile is, while the tile waits, and what comes before the tile at the end.
    """

    workgroup_size: int
    subgroup_size: int
    steps: int
    chunk: int
    per_row: bool = False
    single_lead: bool = False

    @property
    def tile_size(self) -> int:
        """Elements in a tile."""
        return self.workgroup_size * self.steps * self.chunk

    @property
    def block(self) -> int:
        """Tiles whose aggregates are scanned together."""
        return min(BLOCK, self.workgroup_size)

    @property
    def subgroups_per_workgroup(self) -> int:
        return self.workgroup_size // self.subgroup_size if self.subgroup_size else 1


@dataclass(frozen=True)
class ColumnTile:
    """How a workgroup shares out a tile of an array whose scanned axis is not the last: rows of columns.

    Attributes:
        columns: invocations side by side, each with `chunk` neighbouring columns.
        groups: invocations one below the other.
        rows: rows that one invocation takes.
        chunk: neighbouring columns that one invocation takes.
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
        """Invocations in a workgroup."""
        return self.columns * self.groups

    @property
    def height(self) -> int:
        """Rows in a tile."""
        return self.groups * self.rows

    @property
    def width(self) -> int:
        """Columns in a tile."""
        return self.columns * self.chunk

    @property
    def tile_size(self) -> int:
        """Elements in a tile."""
        return self.height * self.width

    @property
    def subgroups_per_workgroup(self) -> int:
        return 1
