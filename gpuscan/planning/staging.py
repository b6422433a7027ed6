"""Whether a shader's chunks go through workgroup memory between storage and invocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.workgroup_memory import workgroup_bytes

if TYPE_CHECKING:
    from gpuscan.planning.kernel import Kernel

FEW_ITEMS = 8  # in workgroup memory beside those that are counted: a prefix, a seed of the fold


def worth_staging(kernel: Kernel, room: int) -> bool:
    """Whether elements are so wide that one takes several accesses, and whether `room` bytes hold a step's chunks.

    Where each invocation reads its own wide elements, lanes do not access neighbours: an H100 then has 0.35 (36 bytes)
    to 0.7 (64 bytes) of its memory's speed, through workgroup memory all of it.
    """
    tile = kernel.tile
    if not isinstance(tile, TileShape) or not tile.subgroup_size or tile.per_row:
        return False
    several = len(kernel.source.fields) > 1 or len(kernel.destination.fields) > 1
    turned = kernel.backwards and kernel.several_rows  # so that the chunks of a subgroup do not lie side by side
    if several or turned or kernel.moves or kernel.ends or kernel.shifts:
        return False
    source, destination = kernel.source.fields[0], kernel.destination.fields[0]
    if source.storage_bytes != destination.storage_bytes or source.storage_bytes % 4:
        return False
    width = 4 * kernel.field_width(source)
    staged = kernel.staged_vectors * width
    return source.storage_bytes > width and staged + workgroup_bytes(kernel) + FEW_ITEMS * 4 * kernel.item_words <= room
