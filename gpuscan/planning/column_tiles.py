"""Choose tiles for scans along an axis that is not the last, where neighbours in memory are different rows."""

from __future__ import annotations

from dataclasses import replace

from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.spec import ScanSpec, column_chunk
from gpuscan.planning.tile_shapes import ColumnTile


def column_tile(spec: ScanSpec, capabilities: Capabilities) -> ColumnTile:
    """Return the tile for a scan of columns on an adapter."""
    h = heuristics_for(capabilities.adapter_type)
    chunk = max(1, column_chunk(spec.source, spec.destination, spec.inner))
    words = spec.item_words * chunk
    following = spec.neighbour_field.words if spec.neighbour_field else 0
    kept = words + following * chunk  # by an invocation, of each row, while its tile waits
    columns = min(h.columns, 1 << (-(-spec.inner // chunk) - 1).bit_length())
    if capabilities.adapter_type == "CPU":
        groups = max(1, h.min_column_workgroup // columns)
    else:
        groups = min(h.column_groups * h.columns // columns, h.max_column_groups)
    # Workgroup memory holds one chunk for each invocation, and two more for each column.
    room = capabilities.limits["max-compute-workgroup-storage-size"] // (4 * words)
    while groups > 1 and columns * (groups + 2) > room:
        groups //= 2
    while columns > 1 and columns * (groups + 2) > room:
        columns //= 2
    rows = 1
    for candidate in h.column_rows:
        if candidate * kept <= h.column_register_words and candidate * groups < 2 * spec.row_length:
            rows = candidate
    if h.long_column_tile is not None and (columns, groups) == (h.columns, h.column_groups):
        long = ColumnTile(*h.long_column_tile)
        fits = chunk == long.chunk and long.rows * words <= h.column_register_words
        if fits and spec.row_length >= h.long_column_chain * long.height:
            return replace(long, rows=min(long.rows, h.column_register_words // kept))
    return ColumnTile(columns, groups, rows, chunk)
