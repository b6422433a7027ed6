"""Cut a scan into parts that a device can bind and hold. This is the only place that splits work.

A scan is cut in one of two ways:

- into *pieces* along the scan: whole blocks of tiles, or whole rows if tiles end with rows. A carry connects each piece
  with the piece before. The tile is the one of the whole array, so the result has the same bits as in one piece.
- into *slabs* between rows: some outer arrays and some columns of an array (outer, row_length, inner). A slab holds
  whole rows, so it needs no carry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import min_chunk
from gpuscan.errors import GpuscanError, smaller
from gpuscan.planning.heuristics import CPU, heuristics_for
from gpuscan.planning.kernel_parts import STATE_HEADER_WORDS
from gpuscan.planning.plan import LENGTH_LIMIT, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import SPAN, ColumnTile, Tile, TileShape, power_above
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities


@dataclass(frozen=True)
class Part:
    """A piece or a slab: the share of a scan that one pass over the device computes.

    Attributes:
        spec: the scan of this part alone: its rows, and whether a carry comes in or goes out.
        start: the index of the first element: for a piece in the order of the scan, for a slab in C order.
        length: the number of elements.
        last: True if no part follows.
        outer, columns: the outer arrays and the columns of a slab; None for a piece.
        tile: the tile of a slab; None for the planner's choice.
    """

    spec: ScanSpec
    start: int
    length: int
    last: bool
    outer: slice | None = None
    columns: slice | None = None
    tile: Tile | None = None

    @property
    def is_slab(self) -> bool:
        """Return True if the part is a slab of rows and columns, not a piece along the scan."""
        return self.outer is not None

    @property
    def results(self) -> int:
        """Return how many results the part has: one for each element, or for each row of a reduction."""
        return self.spec.rows if self.spec.keep_last_only else self.length


# ----- Pieces


def piece(spec: ScanSpec, start: int, length: int, *, last: bool) -> Part:
    """Return the piece of `length` elements from `start` on."""
    return Part(replace(spec, carried=start > 0, carry_out=not last), start, length, last)


def pieces(spec: ScanSpec, length: int) -> Iterator[Part]:
    """Cut the scan into pieces of `length` elements. The last one may be shorter."""
    if spec.length <= length:
        yield Part(spec, 0, spec.length, last=True)
        return
    for start in range(0, spec.length, length):
        count = min(length, spec.length - start)
        yield piece(spec, start, count, last=start + count == spec.length)


def piece_unit(spec: ScanSpec, tiles: tuple[TileShape, ...], alignment: int = 1) -> int:
    """Return the number of elements that a piece must hold a multiple of.

    Args:
        spec: the whole scan.
        tiles: the tiles that the planner may choose, with and without subgroups.
        alignment: bytes that the place of a piece in a device buffer must be a multiple of.
    """
    if spec.everywhere:
        return math.lcm(SPAN, 8 * alignment if spec.has_segment_bits else alignment)
    # Whole rows are enough if one of the tiles ends with rows. Tiles without subgroups may then give floats other bits.
    ends_with_rows = any(tile.per_row for tile in tiles)
    unit = spec.row_length if ends_with_rows else math.lcm(*(tile.tile_size * tile.block for tile in tiles))
    if alignment > 1:
        unit = math.lcm(unit, alignment)
        if spec.has_segment_bits:
            # The segment bits are bound at a byte for every eight elements.
            unit = math.lcm(unit, 8 * alignment)
    return unit


def rows_in_whole_units(spec: ScanSpec, unit: int, most: int) -> int:
    """Return the largest number of rows up to `most` that are whole units of elements; 0 if there is none."""
    whole = unit // math.gcd(unit, spec.row_length)
    return most // whole * whole


def largest_field(spec: ScanSpec) -> int:
    """Return the bytes of one element in the widest array."""
    stored = () if spec.keep_last_only else spec.destination.fields
    return max(field.storage_bytes for field in (*spec.source.fields, *stored))


def host_piece_length(spec: ScanSpec, unit: int, capabilities: Capabilities, piece_bytes: int | None) -> int:
    """Return how many elements a piece of host arrays takes.

    Raises:
        GpuscanError: the smallest piece does not fit a binding.
    """
    whole = max(spec.source.storage_bytes, 0 if spec.keep_last_only else spec.destination.storage_bytes)
    if piece_bytes is None:
        h = heuristics_for(capabilities.adapter_type)
        piece_bytes = min(h.piece_bytes, max(h.min_piece_bytes, spec.length * whole // h.pieces_wanted))
    wanted = max(1, piece_bytes // (unit * whole)) * unit
    return min(wanted, device_piece_length(spec, unit, capabilities))


def device_piece_length(spec: ScanSpec, unit: int, capabilities: Capabilities) -> int:
    """Return the number of elements in the largest piece that a device can bind.

    Raises:
        GpuscanError: the smallest piece does not fit a binding.
    """
    limit = capabilities.limits["max-storage-buffer-binding-size"]
    widest = largest_field(spec)
    length = min(limit // (unit * widest) * unit, (LENGTH_LIMIT - 1) // unit * unit)
    if length == 0 and spec.length < LENGTH_LIMIT and spec.length * widest <= limit:
        return spec.length  # one piece, which no other follows
    if length == 0:
        rows = f"{spec.rows} rows of " if spec.rows > 1 else ""
        raise GpuscanError(
            f"a scan of {rows}{spec.row_length} elements was asked for, but its smallest piece of {unit} elements of "
            f"{widest} bytes exceeds the {limit} bytes that {capabilities.summary} binds at a time. "
            f"{smaller(spec.rows)}"
        )
    return length


# ----- Slabs


def max_elements(spec: ScanSpec, capabilities: Capabilities) -> int:
    """Return the number of elements that a shader can bind and index."""
    limit = capabilities.limits["max-storage-buffer-binding-size"]
    return int(min(limit // largest_field(spec), LENGTH_LIMIT - 1))


def whole_fits(spec: ScanSpec, capabilities: Capabilities) -> bool:
    """Return True if the arrays and the auxiliary buffers each fit in one binding."""
    limit = capabilities.limits["max-storage-buffer-binding-size"]
    results = spec.rows * max(field.storage_bytes for field in spec.destination.fields) if spec.keep_last_only else 0
    return spec.length <= max_elements(spec, capabilities) and results <= limit and auxiliary_fits(spec, capabilities)


def auxiliary_fits(spec: ScanSpec, capabilities: Capabilities, tile: Tile | None = None) -> bool:
    """Return True if the auxiliary buffers (tile totals and initial values) each fit in one binding.

    Only arrays scanned down their columns can have more of these than of elements.
    """
    limit = capabilities.limits["max-storage-buffer-binding-size"]
    if spec.inner == 1:
        return True
    # A tile has at most one total a column, and its last columns may be half outside the array.
    if 4 * (STATE_HEADER_WORDS + 2 * spec.length * spec.item_words) <= limit:
        return True
    seeds = 4 * spec.element.words * spec.rows if spec.initial or spec.exclusive else 0
    return max(seeds, plan_scan(spec, capabilities, "three_dispatch", "", tile=tile).state_bytes) <= limit


def narrow_tile(tile: Tile, outer: int, columns: int) -> Tile:
    """Return the tile for a slab of some columns of some arrays: as high, for the same bits, but narrower."""
    if not isinstance(tile, ColumnTile):
        return tile
    wanted = power_above(outer * -(-columns // tile.chunk))
    return replace(tile, columns=min(tile.columns, max(wanted, -(-CPU.min_column_workgroup // tile.groups))))


def slab_size(
    spec: ScanSpec, tile: Tile, capabilities: Capabilities, wanted_bytes: int | None = None
) -> tuple[int, int]:
    """Return the numbers of outer arrays and of columns in a slab; (0, 0) if a single column does not fit.

    Args:
        spec: the whole scan.
        tile: the tile of the whole array.
        capabilities: what the device has.
        wanted_bytes: the largest field's share of a slab; None for all that a binding holds.
    """
    widest, length, inner = largest_field(spec), spec.row_length, spec.inner
    outer = spec.rows // inner
    most = max_elements(spec, capabilities)
    if wanted_bytes is not None:
        most = min(most, max(wanted_bytes, 4 * length * widest) // widest)
    chunk = tile.chunk if isinstance(tile, ColumnTile) else min_chunk(spec.source, spec.destination)
    while length <= most:
        together, columns = max(1, min(outer, most // (length * inner))), inner
        if most // length < inner:
            together, columns = 1, most // length
            # Narrow numbers of neighbouring columns share words, so a slab takes whole words of them, and whole chunks.
            unit = max(4, chunk)
            columns = columns // unit * unit if columns >= unit else columns // chunk * chunk
            if columns == 0:
                return 0, 0
        part = replace(spec, rows=together * columns, inner=columns)
        if auxiliary_fits(part, capabilities, narrow_tile(tile, together, columns)):
            return together, columns
        if together == 1 and columns <= max(4, chunk):
            return 0, 0
        most = together * columns // 2 * length
    return 0, 0


def slabs(spec: ScanSpec, tile: Tile, together: int, columns: int = 1) -> Iterator[Part]:
    """Cut an array (outer, row_length, inner) into slabs of `together` outer arrays and `columns` columns."""
    inner = spec.inner
    outer = spec.rows // inner
    tile = narrow_tile(tile, together, columns)
    for first in range(0, outer, together):
        outers = slice(first, min(first + together, outer))
        for column in range(0, inner, columns):
            across = slice(column, min(column + columns, inner))
            wide = across.stop - across.start
            rows = (outers.stop - outers.start) * wide
            yield Part(
                replace(spec, rows=rows, inner=wide),
                (first * spec.row_length * inner) + column,
                rows * spec.row_length,
                last=outers.stop == outer and across.stop == inner,
                outer=outers,
                columns=across,
                tile=tile,
            )


def needs_whole_rows(spec: ScanSpec) -> bool:
    """Return True if no row can be cut: elements use their neighbours, or only some results are stored."""
    return any(spec.field_offsets) or (spec.keep_last_only and not spec.has_segment_bits) or spec.compacts


# ----- Several devices


@dataclass(frozen=True)
class DeviceRange:
    """A share of a scan that one of several devices computes: indices along an axis, in the order of the scan.

    Attributes:
        device: the number of the device in the caller's list.
        start, stop: the first index, and the one after the last.
        last: True if no range follows.
    """

    device: int
    start: int
    stop: int
    last: bool


def cut_by_speed(length: int, speeds: Sequence[int]) -> list[DeviceRange]:
    """Cut an axis into one range for each device, in proportion to their speeds. No scan goes along this axis."""
    edges = [length * sum(speeds[:number]) // sum(speeds) for number in range(len(speeds) + 1)]
    return [
        DeviceRange(device, start, stop, stop == length)
        for device, (start, stop) in enumerate(pairwise(edges))
        if start < stop
    ]


def cut_segments_by_speed(offsets: AnyArray, speeds: Sequence[int]) -> list[DeviceRange]:
    """Cut the segments of a row into one range of segments for each device, in proportion to their speeds.

    The elements are cut between the two segments that are nearest to the share of each device. So a segment that is
    longer than a share goes to one device as a whole.

    Args:
        offsets: the first index of each segment, then the length of the row.
        speeds: the relative speed of each device.
    """
    segments, length = len(offsets) - 1, int(offsets[-1])
    cuts = [0]
    for part in range(1, len(speeds)):
        wanted = length * sum(speeds[:part]) // sum(speeds)
        after = int(np.searchsorted(offsets, wanted))
        before = max(after - 1, 0)
        nearest = before if wanted - offsets[before] < offsets[after] - wanted else after
        cuts.append(max(cuts[-1], nearest))
    return [
        DeviceRange(device, start, stop, stop == segments)
        for device, (start, stop) in enumerate(pairwise([*cuts, segments]))
        if start < stop
    ]


def cut_into_shards(length: int, speeds: Sequence[int]) -> list[DeviceRange]:
    """Cut an axis into the ranges of an array that stays on several devices.

    A very long axis will be the scan's. Others are cut into one range for each device, in proportion to its speed.
    Only the length decides, so that all arrays of a bundle are divided at the same indices.
    """
    if len(speeds) == 1 or length < DEVICE_GROUPS.min_ordered_length:
        return cut_by_speed(length, speeds)
    return cut_scan_axis(length, speeds)


def cut_scan_axis(length: int, speeds: Sequence[int]) -> list[DeviceRange]:
    """Cut the axis of a scan of an array on devices, so that all devices are busy and end together.

    The first device gets the first range and the last one, and every other device gets one between them. The first
    device scans its first range at once, which reads and writes each element: 2 units of time for each. Meanwhile the
    others reduce their ranges, which reads each element: 1 unit. Then all carries are known. The others scan their
    ranges, and the first device scans the last one, which needs no reduction. With the speeds v[0], v[1], …, the
    times of both steps are equal for ranges of v[0], 2 v[1], 2 v[2], …, 2 v[0] parts:

    - first step: ``2 v[0] / v[0] == 2 v[j] / v[j]``
    - second step: ``2 · 2 v[0] / v[0] == 2 · 2 v[j] / v[j]``

    So P equal devices take 6 units for ``2 P + 1`` parts, for which one device takes ``2 (2 P + 1)``: they are
    (2 P + 1) / 3 times as fast. If each device reduced and scanned one range, they would be 2 P / 3 times as fast.
    """
    first, *others = speeds
    devices = [*range(len(speeds)), 0]
    cuts = cut_by_speed(length, [first, *(2 * speed for speed in others), 2 * first])
    return [replace(cut, device=devices[cut.device]) for cut in cuts]


def next_devices(speeds: Sequence[int]) -> Iterator[int]:
    """Yield the device that takes the next chunk, for ever: each one as often as its speed, spread evenly."""
    order = sorted((number / speed, device) for device, speed in enumerate(speeds) for number in range(speed))
    return cycle(device for _, device in order)


def round_robin_chunks(length: int, chunk_length: int, devices: Iterator[int]) -> Iterator[DeviceRange]:
    """Cut the axis of a scan into round-robin chunks, which the devices take in turn.

    Args:
        length: the length of the axis.
        chunk_length: places in a round-robin chunk.
        devices: the device of each round-robin chunk.
    """
    for start, device in zip(range(0, length, chunk_length), devices, strict=False):
        stop = min(start + chunk_length, length)
        yield DeviceRange(device, start, stop, stop == length)


def round_robin_length(length: int, place_bytes: int, speeds: Sequence[int]) -> int:
    """Return how many indices of a scan's axis a round-robin chunk has: all of them if the array is short.

    Args:
        length: the length of the axis.
        place_bytes: the bytes of the elements of all rows at one index.
        speeds: the relative speed of each device.
    """
    even = -(-length // sum(speeds))
    chunk_length = min(
        max(even, DEVICE_GROUPS.min_round_robin_bytes // place_bytes),
        max(1, DEVICE_GROUPS.round_robin_bytes // place_bytes),
    )
    return chunk_length // DEVICE_GROUPS.whole_places * DEVICE_GROUPS.whole_places or chunk_length
