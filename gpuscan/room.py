"""Whether a shader fits a device: its workgroup memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscan.errors import UnsupportedDtypeError

if TYPE_CHECKING:
    from gpuscan.capabilities import Capabilities
    from gpuscan.kernels import Kernel


LEAST_ITEMS = 32  # in workgroup memory: what is wider takes compilers minutes, also where no item goes there


def workgroup_bytes(kernel: Kernel) -> int:
    """Workgroup memory that the items of one workgroup take, or might."""
    tile = kernel.tile
    if kernel.in_columns:
        items = tile.workgroup_size * tile.chunk
    else:
        items = tile.workgroup_size if kernel.uses_scratch else 0
        items += tile.subgroups_per_workgroup + 1 if tile.subgroups_per_workgroup > 1 else 0
    return 4 * kernel.item_words * max(items, LEAST_ITEMS)


def check_room(kernel: Kernel, capabilities: Capabilities) -> None:
    """Refuse an element of more bytes than the device's shaders can hold.

    Raises:
        UnsupportedDtypeError: the message says what was asked for, what the device has, and what to do.
    """
    needed, room = workgroup_bytes(kernel), capabilities.limits["max-compute-workgroup-storage-size"]
    if needed > room:
        raise UnsupportedDtypeError(
            f"elements of {kernel.element.storage_bytes} bytes were passed, of which a workgroup's {needed} bytes do "
            f"not fit the {room} bytes of workgroup memory of {capabilities.summary}. Pass smaller elements, or "
            'device="numpy"'
        )
