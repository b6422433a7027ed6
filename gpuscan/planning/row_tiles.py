"""Choose tiles for reductions by operators that commute: of contiguous rows, and of few columns."""

from __future__ import annotations

import math

from gpuscan.elements import min_chunk
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import Heuristics, heuristics_for
from gpuscan.planning.spec import ACCESS_BYTES, ScanSpec
from gpuscan.planning.tile_shapes import RowTile, power_above, power_below
from gpuscan.planning.tiles import max_invocations

# The widest element, in words. Lanes that load wider ones do not load neighbouring words.
MAX_WORDS = 4


def tile_of_rows(spec: ScanSpec, capabilities: Capabilities) -> RowTile | None:
    """Return the tile for a reduction of contiguous rows, or None if the order counts or other tiles are faster.

    A few invocations share a short row. Few long rows are cut into parts, so that there are enough workgroups.
    """
    h = heuristics_for(capabilities.adapter_type)
    if spec.inner > 1 or not _can_be_in_any_order(spec, h):
        return None
    row_bytes = spec.row_length * spec.source.storage_bytes
    if row_bytes < (h.min_single_row_bytes if spec.rows == 1 else h.min_folded_row_bytes):
        return None
    chunk = _chunk_of(spec, ACCESS_BYTES if row_bytes >= h.min_vector_row_bytes else 4)
    loads, workgroup = _loads_and_workgroup(spec, capabilities, chunk, 1)
    short = min(h.short_row_lanes, power_above(-(-row_bytes // h.short_lane_bytes)))
    lanes = min(workgroup, max(short, power_below(row_bytes // (4 * h.long_lane_words))))
    enough = h.min_row_workgroups * workgroup
    while lanes < workgroup and spec.rows * lanes < enough and lanes * loads * chunk < spec.row_length:
        lanes *= 2
    parts = -(-row_bytes // (4 * h.max_lane_words * workgroup))
    batch = workgroup * loads * chunk
    if spec.rows * lanes < enough and spec.row_length >= h.min_row_batches * batch:
        parts = max(parts, -(-h.row_part_workgroups // spec.rows))
    part = spec.row_length if parts == 1 else max(batch, -(-spec.row_length // parts))
    if part < spec.row_length:
        lanes = workgroup
    elif spec.rows * lanes < h.min_folding_workgroups * workgroup:
        return None
    part = -(-part // chunk) * chunk
    loads = min(loads, power_above(-(-part // (lanes * chunk))))
    return RowTile(workgroup, lanes, loads, chunk, part)


def tile_of_few_columns(spec: ScanSpec, capabilities: Capabilities) -> RowTile | None:
    """Return the tile for a reduction down few columns, or None if other tiles are faster or keep the bits.

    A workgroup reads whole rows as they are in memory. Each invocation always meets the same columns.
    """
    h = heuristics_for(capabilities.adapter_type)
    line = spec.inner * spec.source.storage_bytes
    if spec.inner == 1 or line > h.max_folded_line_bytes or not _can_be_in_any_order(spec, h):
        return None
    # Slabs of host arrays take other tiles. Lines of 4, 8, 16, … bytes are as fast in these.
    if not spec.combine.order_free or line == max(4, power_below(line)):
        return None
    chunk = _chunk_of(spec, 4)
    loads, workgroup = _loads_and_workgroup(spec, capabilities, chunk, chunk)
    outer, size = spec.rows // spec.inner, spec.row_length * spec.inner
    least = workgroup * loads * chunk
    if spec.inner > workgroup or size < least:
        return None
    unit = math.lcm(spec.inner, chunk)
    part = max(least, -(-size // -(-h.column_part_workgroups // outer)))
    return RowTile(workgroup, workgroup, loads, chunk, -(-part // unit) * unit, columns=True)


def _can_be_in_any_order(spec: ScanSpec, h: Heuristics) -> bool:
    """Return True if whole rows, or columns, can be reduced in any order."""
    if not h.row_part_workgroups or not spec.reduces_rows or not spec.combine.commutes or spec.everywhere:
        return False
    depends_on_order = spec.reverse or spec.carried or spec.carry_out or spec.field_offsets or spec.index_step
    return not depends_on_order and spec.item_words <= MAX_WORDS


def _chunk_of(spec: ScanSpec, nbytes: int) -> int:
    """Return the neighbouring elements that are loaded together: whole words, and up to this many bytes."""
    chunk = min_chunk(spec.source)
    narrowest = min(field.storage_bytes for field in spec.source.fields)
    while 2 * chunk * narrowest <= nbytes:
        chunk *= 2
    return chunk


def _loads_and_workgroup(spec: ScanSpec, capabilities: Capabilities, chunk: int, items: int) -> tuple[int, int]:
    """Return the chunks that are loaded at a time, and the invocations of a workgroup.

    Args:
        chunk: the elements of a chunk.
        items: the items that an invocation keeps in workgroup memory.
    """
    h = heuristics_for(capabilities.adapter_type)
    words = h.long_words_in_flight if spec.has_long_terms else h.reduced_words_in_flight
    loads = max(1, words // max(1, spec.source.storage_bytes * chunk // 4))
    capacity = capabilities.limits["max-compute-workgroup-storage-size"] // (4 * spec.item_words * items)
    return loads, min(h.reduced_workgroup, max_invocations(capabilities), power_below(capacity))
