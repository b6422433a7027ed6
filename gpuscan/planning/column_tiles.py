"""Choose tiles for scans along an axis that is not the last, where neighbours in memory are different rows."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from operator import index

from gpuscan.elements import min_chunk
from gpuscan.operators.code import MAX_SHORT_CHARACTERS
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import Heuristics, heuristics_for
from gpuscan.planning.row_tiles import tile_of_few_columns
from gpuscan.planning.spec import ACCESS_BYTES, ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import MAX_MARKED_ROWS, ColumnTile, power_above, power_below
from gpuscan.planning.tiles import max_invocations
from gpuscan.problem.column_vectors import can_be_vectors
from gpuscan.problem.problem import Problem

# The lanes of a subgroup on most GPUs.
_LANES = 32

# From this number of batches on, a last batch that is not full costs little.
_MANY_BATCHES = 4

# Bytes of workgroup memory that a look-back takes in addition to chunks: a word for 32 groups, and two more.
_LOOK_BACK_BYTES = 4 * (8 + 2)


def column_tile(spec: ScanSpec, capabilities: Capabilities, subgroups: bool = True) -> ColumnTile:
    """Return the tile for a scan of columns on an adapter.

    Args:
        subgroups: False to use no subgroup operations even if the adapter has them.
    """
    if spec.reduces_rows:
        return tile_of_reduction(spec, capabilities)
    tile = _tile_of_scan(spec, capabilities)
    if capabilities.adapter_type == "CPU":
        return tile
    h = heuristics_for(capabilities.adapter_type)
    # Small arrays of any number of columns share their kernels.
    if _is_large(spec, h):
        tile = _with_busy_lanes(tile, _count_lines(spec, tile.chunk), h)
    exchanges = subgroups and bool(spec.unaligned_columns)
    return replace(tile, subgroup_size=capabilities.subgroup_size) if exchanges else tile


def _with_busy_lanes(tile: ColumnTile, lines: int, h: Heuristics) -> ColumnTile:
    """Return the tile with fewer columns if many of its lanes have none, given the chunks of all rows side by side.

    Its workgroups are still whole subgroups.
    """
    strips = -(-lines // tile.columns)
    if lines <= h.max_busy_lanes * strips * tile.columns:
        for columns in range(-(-lines // strips), tile.columns):
            step = _LANES // gcd(_LANES, columns)
            groups = tile.workgroup_size // columns // step * step
            if groups > 0:
                return replace(tile, columns=columns, groups=groups)
    return tile


def _tile_of_scan(spec: ScanSpec, capabilities: Capabilities) -> ColumnTile:
    h = heuristics_for(capabilities.adapter_type)
    # Head flags are bits while a tile waits, but counts of heads are words.
    own_words = spec.item_words if spec.reduces_segments else spec.element.words
    chunk = min_chunk(spec.source, spec.destination)
    if spec.unaligned_columns and own_words == 1:
        chunk = max(chunk, h.unaligned_chunk)
    heads_apart = spec.has_segment_bits and not spec.cuts_columns_alike
    single = _is_large(spec, h) and own_words == chunk == 1 and not heads_apart
    if single and spec.inner % 2 == 0:
        chunk = 2
    words = spec.item_words * chunk
    kept = (own_words + spec.neighbour_words) * chunk  # by an invocation, of each row, while its tile waits
    # Workgroup memory holds one chunk for each invocation, two more for each column, and a few words.
    capacity = (capabilities.limits["max-compute-workgroup-storage-size"] - _LOOK_BACK_BYTES) // (4 * words)
    whole = tile_of_short_columns(spec, capabilities, chunk, kept, capacity)
    if whole is not None:
        return whole
    columns = min(h.columns, power_above(_count_lines(spec, chunk)))
    if capabilities.adapter_type == "CPU":
        groups = max(1, h.min_column_workgroup // columns)
    else:
        groups = min(h.column_groups * h.columns // columns, h.max_column_groups)
    while groups > 1 and columns * (groups + 2) > capacity:
        groups //= 2
    while columns > 1 and columns * (groups + 2) > capacity:
        columns //= 2
    chained = tile_of_long_chains(spec, capabilities, chunk, kept)
    if chained is not None and chained.columns * (chained.groups + 2) <= capacity:
        return chained
    if (columns, groups) == (h.columns, h.column_groups):
        return tile_of_full_columns(spec, capabilities, chunk, kept, capacity)
    rows = rows_that_fit(h.column_rows, h.column_register_words // kept, groups, spec.row_length)
    return ColumnTile(columns, groups, rows, chunk)


def _is_large(spec: ScanSpec, h: Heuristics) -> bool:
    """Return True if there are enough elements for many large tiles."""
    return h.min_large_columns is not None and spec.rows * spec.row_length >= h.min_large_columns


def tile_of_reduction(spec: ScanSpec, capabilities: Capabilities) -> ColumnTile:
    """Return the tile for a reduction down columns on an adapter.

    The invocations side by side may take columns of several outer arrays. So they all have work, however few columns
    there are.
    """
    h = heuristics_for(capabilities.adapter_type)
    chunk = min_chunk(spec.source, spec.destination)
    while _can_be_wider(spec, h, chunk):
        chunk *= 2
    capacity = capabilities.limits["max-compute-workgroup-storage-size"] // (4 * spec.item_words * chunk)
    workgroup = min(h.reduced_workgroup, max_invocations(capabilities), power_below(capacity))
    lines = _count_lines(spec, chunk)
    columns = min(h.columns, workgroup, power_above(lines))
    groups = min(workgroup // columns, power_below(spec.row_length // h.min_reduced_rows))
    columns = min(workgroup // groups, power_above(lines))
    chains = -(-lines // columns)
    rows = h.reduced_rows
    if chains >= h.min_whole_chains:
        rows = max(rows, min(h.max_whole_rows, power_above(-(-spec.row_length // groups))))
    while rows < h.max_reduced_rows and chains * -(-spec.row_length // (groups * rows)) > h.reduced_tiles:
        rows *= 2
    return ColumnTile(columns, groups, rows, chunk)


def _can_be_wider(spec: ScanSpec, h: Heuristics, chunk: int) -> bool:
    """Return True if an invocation of a reduction can load twice as many columns, and still all rows together."""
    narrowest = min(field.storage_bytes for field in spec.source.fields)
    whole = spec.inner % (2 * chunk) == 0 and 2 * chunk * narrowest <= ACCESS_BYTES
    together = spec.row_length <= _most_loads(spec, h, 2 * chunk)
    return whole and together and _count_lines(spec, 2 * chunk) >= h.min_wide_lines


def _most_loads(spec: ScanSpec, h: Heuristics, chunk: int) -> int:
    """Return how many rows an invocation of a reduction loads together, at most."""
    most = h.long_words_in_flight if spec.has_long_terms else h.reduced_words_in_flight
    return max(1, most // (spec.source.storage_bytes * chunk // 4))


def count_loads(spec: ScanSpec, h: Heuristics, chunk: int, rows: int) -> int:
    """Return how many of its rows an invocation of a reduction loads together, so that batches are equally large.

    A batch that is larger than the rows that are left loads the last row again and again, which many rows can bear. The
    number is even unless it is 1, since the shader loads one row less in the last batch.
    """
    most = _most_loads(spec, h, chunk)
    if most == 1 or rows >= _MANY_BATCHES * most:
        return most
    batches = -(-rows // most)
    return index(-(-rows // (2 * batches)) * 2)  # the shader has the loads one by one


def count_chains(spec: ScanSpec, tile: ColumnTile) -> int:
    """Return the number of chains of tiles that run down an array side by side."""
    return -(-_count_lines(spec, tile.chunk) // tile.columns)


def _count_lines(spec: ScanSpec, chunk: int) -> int:
    """Return the number of chunks of neighbouring columns, of all outer arrays together."""
    return spec.rows // spec.inner * -(-spec.inner // chunk)


def takes_vectors(problem: Problem, capabilities: Capabilities) -> bool:
    """Return True if columns are so few and so long that a scan of vectors is faster on an adapter."""
    if problem.everywhere:
        return False
    h = heuristics_for(capabilities.adapter_type)
    inner = problem.inner
    if problem.reduces_rows and inner * problem.source.storage_bytes >= h.min_reduced_line_bytes:
        return False
    long = problem.row_length >= h.min_vector_rows
    few = problem.rows <= h.max_vector_columns or inner == 2
    named = problem.operator.kinds is not None and problem.before is problem.after is None
    words = inner * max(problem.source.words, problem.element.words, problem.destination.words)
    narrow = words <= h.max_vector_words and (named or inner <= h.max_function_vector)
    if not (long and few and narrow and _can_be_cut(problem, capabilities) and can_be_vectors(problem)):
        return False
    spec = scan_spec(problem, capabilities)
    takes_long = inner * spec.combine.characters > h.max_long_vector * MAX_SHORT_CHARACTERS
    # Chains of columns are slower if rows begin within words. H200, maxima of float16 in 9 and 13 columns: 474 and 476
    # us in chains, 163 and 287 as vectors; in 18 columns 229 and 333.
    if inner > h.max_long_vector and takes_long and not spec.unaligned_columns:
        return False
    return not problem.reduces_rows or tile_of_few_columns(spec, capabilities) is None


def _can_be_cut(problem: Problem, capabilities: Capabilities) -> bool:
    """Return True if parts of a scan of vectors fit a binding. Gradients, and reductions of rows, need whole rows."""
    if not any(problem.field_offsets) and (problem.rows == problem.inner or not problem.keep_last_only):
        return True
    elements = (problem.source, problem.destination)
    widest = max(field.storage_bytes for element in elements for field in element.fields)
    return widest * problem.size <= capabilities.limits["max-storage-buffer-binding-size"]


def rows_that_fit(choices: tuple[int, ...], most: int, groups: int, row_length: int) -> int:
    """Return the largest choice of at most `most` rows that leaves no more than half of a tile empty, or 1."""
    return max((rows for rows in choices if rows <= most and rows * groups < 2 * row_length), default=1)


def tile_of_short_columns(
    spec: ScanSpec, capabilities: Capabilities, chunk: int, kept: int, capacity: int
) -> ColumnTile | None:
    """Return the tile that holds whole columns, with as many rows for each invocation as registers hold.

    So invocations exchange as few totals as possible, and no tile waits for another. Return None if columns are longer
    than a workgroup holds, or if other tiles are as fast.

    Args:
        chunk: the neighbouring columns that an invocation takes.
        kept: the words that an invocation keeps of each row.
        capacity: the chunks that workgroup memory holds.
    """
    h = heuristics_for(capabilities.adapter_type)
    most = h.short_column_words // kept
    if spec.segmented:
        most = min(most, MAX_MARKED_ROWS)
    workgroup = min(h.columns * h.column_groups, max_invocations(capabilities))
    lines = _count_lines(spec, chunk)
    groups = max(1, workgroup // power_above(lines))
    while groups <= h.short_column_groups:
        rows = next((rows for rows in h.short_column_rows if rows <= most and rows * groups >= spec.row_length), None)
        columns = workgroup // groups
        fits = columns * (groups + 2) <= capacity
        enough = lines * groups >= h.min_short_column_invocations or groups == h.short_column_groups
        if rows is not None and fits and enough:
            return ColumnTile(columns, groups, rows, chunk)
        groups *= 2
    return None


def tile_of_long_chains(spec: ScanSpec, capabilities: Capabilities, chunk: int, kept: int) -> ColumnTile | None:
    """Return a tile of fewer columns than usual if chains of tiles are few and long, so that there are more chains.

    For elements of up to two words that also keep a neighbour, the tile may have the usual number of columns: it has
    fewer groups and more rows then. H200, gradients of recurrences of (131072, 512) along axis 0: 389 us in tiles of
    32 x 8 x 20, 586 in 32 x 16 x 8; of (7644, 1097) 71 and 91; of 16 arrays (8192, 512) 372 and 373. But gradients of
    maxima of (131072, 512) take 463 us with 15 rows, 423 with 16.

    Args:
        chunk: the neighbouring columns that an invocation takes.
        kept: the words that an invocation keeps of each row.
    """
    h = heuristics_for(capabilities.adapter_type)
    most_words = h.long_neighbour_register_words if spec.neighbour_field else h.column_register_words
    fit = most_words // kept
    rows = min(fit, h.paired_chained_rows if kept == chunk == 2 else dict(h.chained_rows).get(kept, fit))
    if 2 in spec.unaligned_columns:
        rows = min(rows, h.unaligned_chained_rows)
    words, workgroup = spec.item_words * chunk, h.columns * h.column_groups
    if not 0 < rows * words <= h.column_register_words or workgroup > max_invocations(capabilities):
        return None
    lines, narrowest_tile = _count_lines(spec, chunk), None
    narrowest = min(field.storage_bytes for field in (*spec.source.fields, *spec.destination.fields))
    columns_for_chain = h.columns_for_chain if narrowest >= 4 else h.narrow_columns_for_chain
    row_bytes = lines * chunk * (spec.source.storage_bytes + spec.destination.storage_bytes)
    for columns in h.chained_columns:
        if narrowest_tile is not None and columns * chunk * narrowest < h.min_chained_bytes:
            break
        tile = ColumnTile(columns, workgroup // columns, rows, chunk)
        if spec.row_length < h.min_chained_tiles * tile.height:
            break
        narrowest_tile = tile
        passed_bytes = row_bytes * tile.height * tile.groups  # by all chains while they look back once
        passes_much = tile.groups >= h.min_look_back_groups and passed_bytes >= h.min_look_back_bytes
        if passes_much or -(-lines // columns) >= h.min_chains + columns // columns_for_chain:
            break
    deeper = spec.neighbour_field is not None and spec.element.words <= 2
    usual = narrowest_tile is not None and narrowest_tile.columns == h.columns and not deeper
    return None if usual else narrowest_tile


def tile_of_full_columns(
    spec: ScanSpec, capabilities: Capabilities, chunk: int, kept: int, capacity: int
) -> ColumnTile:
    """Return the tile of a scan in which no chain is so long that there should be more of them.

    All parts of an array take the tile of the whole array, so that they combine in the same order.

    Args:
        chunk: the neighbouring columns that an invocation takes.
        kept: the words that an invocation keeps of each row.
        capacity: the chunks that fit into workgroup memory.
    """
    h = heuristics_for(capabilities.adapter_type)
    most_words, words, groups = h.column_register_words, spec.element.words, h.column_groups
    tile = ColumnTile(h.columns, groups, 1, chunk)
    slow = 1 in spec.unaligned_columns or (spec.combine.characters >= h.min_slow_characters and kept <= 2)
    if slow and count_chains(spec, tile) >= h.min_slow_chains:
        groups = h.slow_groups
    tile = replace(tile, groups=groups, rows=rows_that_fit(h.column_rows, most_words // kept, groups, spec.row_length))
    if spec.neighbour_field:
        groups = h.neighbour_column_groups
        if spec.segmented or words > 2 or tile.columns * groups > max_invocations(capabilities):
            return tile
        most = h.neighbour_register_words // kept
        return replace(tile, groups=groups, rows=rows_that_fit(h.column_rows, most, groups, spec.row_length))
    wide = replace(tile, columns=h.wide_columns, rows=h.wide_rows)
    fits = wide.workgroup_size <= max_invocations(capabilities) and wide.columns * (groups + 2) <= capacity
    short = kept == 1 and not (spec.segmented or spec.combine.long)
    if short and fits and _is_large(spec, h) and count_chains(spec, wide) >= h.min_wide_chains:
        return wide
    rows = dict(h.deep_column_rows).get(words, 0)
    rows = min(rows, h.max_cut_column_rows) if spec.cuts_columns_alike else rows
    if spec.destination.words > 2 or spec.keep_last_only or not 0 < rows * kept <= most_words:
        return tile
    height = groups * rows
    long = spec.row_length >= h.min_deep_column * height
    nearly_full = -spec.row_length % height * h.min_deep_column <= spec.row_length
    return replace(tile, rows=rows) if long or (nearly_full and _is_large(spec, h)) else tile
