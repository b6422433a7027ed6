"""Compute the workgroup memory that a shader takes, and decide what it is used for."""

from __future__ import annotations

from gpuscan.elements import Element
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.tile_shapes import ColumnTile, RowTile, TileShape

# Items of workgroup memory that are counted for every shader. Compilers take minutes over items so wide that fewer
# fit, even where the shader puts no item there.
MIN_ITEMS = 32

# Words of workgroup memory that a waiting tile needs in addition to items: a ticket, a late tile, the outcome.
WAIT_WORDS = 8

# Items of workgroup memory that a kernel needs in addition to the items of its scans. Among them are a prefix and the
# seed of a fold.
OTHER_ITEMS = 8

# The longest vectors that are no whole words and go through workgroup memory.
MAX_VECTOR_OF_PARTS = 8


def count_scanned_items(kernel: Kernel) -> int:
    """Return the number of items that a workgroup's scans put in workgroup memory."""
    tile = kernel.tile
    if kernel.in_columns:
        return tile.workgroup_size * tile.chunk
    if isinstance(tile, RowTile):
        return tile.workgroup_size * (tile.chunk if tile.columns else 1)
    items = tile.workgroup_size * (1 if tile.subgroup_size else tile.steps) if kernel.uses_scratch else 0
    if kernel.spec.everywhere and kernel.stage == "scan":
        items += items // kernel.chunks_per_group + kernel.tile_leads
    return items + (tile.bands_per_workgroup + 1 if tile.bands_per_workgroup > 1 else 0)


def workgroup_bytes(kernel: Kernel) -> int:
    """Return the bytes of workgroup memory that the items of one workgroup take, or might take."""
    return 4 * kernel.item_words * max(count_scanned_items(kernel), MIN_ITEMS)


def waiting_bytes(kernel: Kernel) -> int:
    """Return the bytes that a waiting workgroup takes in addition: prefixes, a fold's seed and lanes' conditions."""
    if not kernel.posts:
        return 0
    tile = kernel.tile
    items = tile.columns * tile.chunk if isinstance(tile, ColumnTile) else 1 + kernel.wait_policy.one_workgroup_folds
    words = tile.columns if isinstance(tile, ColumnTile) else tile.block
    if kernel.spec.everywhere:
        items += kernel.tiles_per_span
    if kernel.wait_policy.at_once:
        items += kernel.heuristics.max_tiles_at_once // tile.block
    folders = tile.subgroups_per_workgroup if kernel.wait_policy.in_rounds else 0
    return 4 * (kernel.item_words * (items + folders) + words + folders + WAIT_WORDS)


def check_element(element: Element, capabilities: Capabilities) -> None:
    """Raise an error if a workgroup cannot hold enough elements. This needs no trace and no plan.

    Raises:
        UnsupportedDtypeError: the workgroup memory is too small for the element.
    """
    _check_bytes(element, 4 * element.words * MIN_ITEMS, capabilities)


def needed_bytes(kernel: Kernel) -> int:
    """Return the bytes of workgroup memory that a kernel needs."""
    together = 4 * kernel.item_words * count_scanned_items(kernel) + waiting_bytes(kernel)
    return max(workgroup_bytes(kernel), together)


def check_workgroup_memory(kernel: Kernel, capabilities: Capabilities) -> None:
    """Raise an error if the kernel needs more workgroup memory than the device has.

    Raises:
        UnsupportedDtypeError: the workgroup memory is too small for the element.
    """
    _check_bytes(kernel.spec.element, needed_bytes(kernel), capabilities)


def _check_bytes(element: Element, needed: int, capabilities: Capabilities) -> None:
    max_bytes = capabilities.limits["max-compute-workgroup-storage-size"]
    if needed > max_bytes:
        raise UnsupportedDtypeError(
            f"elements of {element.storage_bytes} bytes were passed. They need {needed} bytes of workgroup "
            f"memory, and {capabilities.summary} has {max_bytes}. Pass smaller elements, or "
            'device="numpy"'
        )


def exchanges_chunks(kernel: Kernel, max_bytes: int) -> bool:
    """Return True if chunks should go through workgroup memory between storage and invocations.

    They should if an element takes several accesses to storage and `max_bytes` hold the chunks of one step. Views are
    accessed word by word, so there it is enough that a chunk takes several accesses. So it is for short vectors that
    are no whole words, and for words that are read backwards from an end within a vector. If each invocation reads its
    own wide elements, lanes do not access neighbours: an H100 then has 0.35 (36 bytes) to 0.7 (64 bytes) of its
    memory's speed, and all of it through workgroup memory. An H200 takes 73 instead of 115 us for 2^25 `uint8` in 5
    columns, but 277 instead of 242 in 13. Of 33554293 elements from the end, it scans sums of `float32` in 108 instead
    of 126 us, maxima of `int32` in 106 instead of 138, and `logaddexp` in 173 instead of 295. But sums of `int64` take
    219 instead of 213.

    Args:
        kernel: the shader, without the exchange.
        max_bytes: the bytes of workgroup memory that the device has.
    """
    tile, spec = kernel.tile, kernel.spec
    if not isinstance(tile, TileShape) or not tile.subgroup_size or tile.per_row:
        return False
    several_fields = len(spec.source.fields) > 1 or len(spec.destination.fields) > 1
    reversed_rows = kernel.reads_backwards and kernel.several_rows  # the chunks of a subgroup are not neighbours then
    if several_fields or reversed_rows or spec.compacts or spec.keep_last_only or spec.field_offsets:
        return False
    source, destination = spec.source.fields[0], spec.destination.fields[0]
    in_parts = source.storage_bytes % 4 > 0  # elements begin within words, but chunks do not
    if in_parts and (kernel.access.views or not 1 < source.count <= MAX_VECTOR_OF_PARTS or kernel.is_unaligned(source)):
        return False
    if source.storage_bytes != destination.storage_bytes:
        return False
    if kernel.access.views:
        access_bytes, several = 4, tile.chunk * source.storage_bytes > 4
    else:
        access_bytes = 4 * kernel.field_width(source)
        whole = in_parts or (kernel.reads_backwards and source.storage_bytes == 4)
        several = source.storage_bytes * (tile.chunk if whole else 1) > access_bytes
    needed = kernel.exchange_vectors * access_bytes + workgroup_bytes(kernel) + OTHER_ITEMS * 4 * kernel.item_words
    return several and needed <= max_bytes
