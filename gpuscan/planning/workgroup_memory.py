"""Whether a shader fits a device: its workgroup memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscan.errors import UnsupportedDtypeError
from gpuscan.planning.tile_shapes import ColumnTile

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.kernel import Kernel


LEAST_ITEMS = 32  # in workgroup memory: what is wider takes compilers minutes, also where no item goes there


FEW_WORDS = 8  # in workgroup memory beside items: a ticket, a late tile, what the look-back found


def scanned_items(kernel: Kernel) -> int:
    """Items that a workgroup's scans put in workgroup memory."""
    tile = kernel.tile
    if kernel.in_columns:
        return tile.workgroup_size * tile.chunk
    items = tile.workgroup_size if kernel.uses_scratch else 0
    return items + (tile.subgroups_per_workgroup + 1 if tile.subgroups_per_workgroup > 1 else 0)


def workgroup_bytes(kernel: Kernel) -> int:
    """Workgroup memory that the items of one workgroup take, or might."""
    return 4 * kernel.item_words * max(scanned_items(kernel), LEAST_ITEMS)


def waiting_bytes(kernel: Kernel) -> int:
    """Workgroup memory of what a workgroup that looks back holds beside: prefixes, a fold's seed, lanes' conditions."""
    if not kernel.posts:
        return 0
    tile = kernel.tile
    items = tile.columns * tile.chunk if isinstance(tile, ColumnTile) else 1 + kernel.folds
    words = tile.columns if isinstance(tile, ColumnTile) else tile.block
    return 4 * (kernel.item_words * items + words + FEW_WORDS)


def check_room(kernel: Kernel, capabilities: Capabilities) -> None:
    """Refuse an element of more bytes than the device's shaders can hold.

    Raises:
        UnsupportedDtypeError: the message says what was asked for, what the device has, and what to do.
    """
    room = capabilities.limits["max-compute-workgroup-storage-size"]
    together = 4 * kernel.item_words * scanned_items(kernel) + waiting_bytes(kernel)
    needed = max(workgroup_bytes(kernel), together)
    if needed > room:
        raise UnsupportedDtypeError(
            f"elements of {kernel.element.storage_bytes} bytes were passed, of which a workgroup's {needed} bytes do "
            f"not fit the {room} bytes of workgroup memory of {capabilities.summary}. Pass smaller elements, or "
            'device="numpy"'
        )
