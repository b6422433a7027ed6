"""Plan copies by tiles: boxes of elements that are read in the source's order and written in the destination's."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

# Bytes of workgroup memory that a tile takes, by the bytes of a unit: 32 x 32 words with a word between rows, or 64 x
# 64 bytes. And the invocations that copy a tile. Each stays in a column, so a row has at most as many blocks. H200,
# 2^25 float32 transposed, (540, 62117) and (8192, 4096): 88 and 87 us; 98 and 95 with 5 KiB, since fewer workgroups are
# at work at a time; 108 and 105 with 10 KiB and 256 invocations. uint8 (1486, 22577): 55 us, and 70 in smaller tiles;
# float16 (5001, 6703): 101 us, and 113 in the shape of uint8.
TILE_BYTES = {1: 4352, 2: 4224, 4: 4224, 8: 4224}
TILE_INVOCATIONS = 128
# Axes that a tile may have.
_TILE_AXES = 3
# A copy without tiles is fast if neighbours in the result have this many bytes together in the source, too.
_MIN_RUN_BYTES = 64
# A line of a tile has at least this many bytes where units are smaller than words.
_MIN_LINE_BYTES = 32
# Extents of tiles are multiples of this many bytes if possible, which GPUs read and write together.
_SECTOR_BYTES = 32


class CopiedAxis(NamedTuple):
    """An axis of two views of the same shape.

    Attributes:
        size: the length.
        source: units from one element to the next in the source.
        target: the same in the destination.
    """

    size: int
    source: int
    target: int


@dataclass(frozen=True)
class CopyTiles:
    """Tiles of a copy.

    Attributes:
        axes: all axes; first the three of a tile, the one with the nearest neighbours in the source first.
        extents: elements of a tile along each axis; 1 along the others.
        written: the axes of a tile, the one with the nearest neighbours in the destination first.
        unit: bytes of what is copied at once: 1, 2, 4 or 8.
        flipped: True if axis 0 is walked backwards in both views, so that its elements are neighbours in the source.
    """

    axes: tuple[CopiedAxis, ...]
    extents: tuple[int, ...]
    written: tuple[int, ...]
    unit: int
    flipped: bool

    @property
    def count(self) -> int:
        """The number of tiles."""
        return prod(self._counts)

    @property
    def has_layers(self) -> bool:
        """True if a tile extends along three axes."""
        return max(self.extents[2], self.extents[self.written[2]]) > 1

    @property
    def _counts(self) -> list[int]:
        return [-(-axis.size // extent) for axis, extent in zip(self.axes, self.extents, strict=True)]

    def words(self, first: int, target_first: int) -> bytes:
        """Return the parameters of arrays/copy_tiles.wgsl.

        Args:
            first, target_first: the units of the source and of the destination where the views begin.
        """
        if self.flipped:
            last = self.axes[0].size - 1
            first, target_first = first - last * self.axes[0].source, target_first - last * self.axes[0].target
        # Tiles that share words and sectors are near each other if the axes with few tiles are walked along first.
        counts = self._counts
        order = sorted(range(len(counts)), key=lambda at: (counts[at] == 1, at < _TILE_AXES, -counts[at]))
        inner, middle, outer = self.written
        line, together = self.extents[inner], units_in_word(self.unit)
        if together > 1:
            # An invocation writes two of the words that a line is in.
            line = -(-((line + 2 * together - 2) // together) // 2)
        blocks, slots = _blocks_and_slots(self.extents, inner, self.unit)
        reads, writes = blocks[1] * blocks[2], self.extents[middle] * self.extents[outer]
        most = max(reads, writes, TILE_INVOCATIONS)
        numbers = [first, target_first, prod(counts), sum(count > 1 for count in counts)]
        numbers += [*map(order.index, range(_TILE_AXES)), reads, *map(order.index, self.written), writes]
        for divisor in (*blocks[:2], line, self.extents[middle]):
            numbers += [divisor, *_reciprocal(divisor, most), 0]
        before = prod(counts)
        for at in order:
            before //= counts[at]
            numbers += [before, self.extents[at], *self.axes[at], slots[at] if at < _TILE_AXES else 0, 0, 0]
        return struct.pack(f"<{len(numbers)}I", *[number % 2**32 for number in numbers])


def units_in_word(unit: int) -> int:
    """Return how many units of this many bytes are in a word; 1 if a unit is a word or more."""
    return max(1, 4 // unit)


def _blocks_and_slots(extents: Sequence[int], inner: int, unit: int) -> tuple[list[int], list[int]]:
    """Return the blocks in which a tile is read, and the slots of workgroup memory in which it is stored.

    Args:
        extents: the tile's elements along each of its three axes.
        inner: the axis with the nearest neighbours in the destination.
        unit: bytes of what is copied at once.

    Returns:
        The number of blocks along each axis. A block is one unit; if several units are in a word, it has as many units
        along axis 0, and as many along the inner axis. And the distance in slots from one element to the next along
        each axis, and the number of all slots. A slot is a unit, or a word of neighbours along the inner axis. With
        such words, slots along axis 0 are sorted by the index modulo the units of a word.
    """
    together = units_in_word(unit)
    blocks = list(extents[:_TILE_AXES])
    # Slots that are written together are an odd number of words apart, and so in different banks of the memory.
    if together == 1:
        row = blocks[0] | (inner == 1)
        layer = row * blocks[1] | (inner == 2)
        return blocks, [1, row, layer, layer * blocks[2]]
    for at in (0, inner):
        blocks[at] = -(-blocks[at] // together)
    row = blocks[inner] | 1
    layer = row * blocks[0] * together
    return blocks, [row, *((1, layer) if inner == 1 else (layer, 1)), layer * blocks[3 - inner]]


def _reciprocal(divisor: int, most: int) -> tuple[int, int]:
    """Return factor and shift with n // divisor == n * factor >> shift for all n up to `most`, below 2**15."""
    shift = (most * divisor).bit_length()
    return -(-(1 << shift) // divisor), shift


# ----- What an engine calls with sizes that are not known


def takes_tiles(unit: int, *numbers: int) -> bool:
    """Return True if a copy by tiles is faster.

    Args:
        unit: bytes of what is copied at once.
        numbers: three numbers for each axis of two elements or more: size, source and target.
    """
    return _plan(unit, numbers) is not None


def count_tiles(unit: int, *numbers: int) -> int:
    """Return how many tiles a copy has; see `takes_tiles`."""
    tiles = _plan(unit, numbers)
    assert tiles is not None
    return tiles.count


def has_layers(unit: int, *numbers: int) -> bool:
    """Return True if the tiles of a copy extend along three axes; see `takes_tiles`."""
    tiles = _plan(unit, numbers)
    assert tiles is not None
    return tiles.has_layers


def words_of_tiles(first: int, target_first: int, unit: int, *numbers: int) -> bytes:
    """Return the parameters of a copy by tiles; see `takes_tiles` and `CopyTiles.words`."""
    tiles = _plan(unit, numbers)
    assert tiles is not None
    return tiles.words(first, target_first)


def axes_of_tiles(axes: int) -> int:
    """Return how many axes the parameters describe for a copy of that many: a tile has three."""
    return max(_TILE_AXES, axes)


@lru_cache(maxsize=256)
def _plan(unit: int, numbers: tuple[int, ...]) -> CopyTiles | None:
    return plan_copy_tiles([CopiedAxis(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)], unit)


# ----- The plan


def plan_copy_tiles(axes: Sequence[CopiedAxis], unit: int) -> CopyTiles | None:
    """Return the tiles of a copy, or None if a copy without tiles is as fast.

    Args:
        axes: the axes, of two elements or more each.
        unit: bytes of what is copied at once.
    """
    axes = [*axes, *[CopiedAxis(1, 0, 0)] * (_TILE_AXES - len(axes))]
    numbers = range(len(axes))
    # The axes with the nearest neighbours first. An axis that is broadcast has none in the source.
    read = sorted(numbers, key=lambda at: (axes[at].size == 1, abs(axes[at].source) or 2**63, abs(axes[at].target)))
    write = sorted(numbers, key=lambda at: (axes[at].size == 1, abs(axes[at].target)))
    if not _needs_tiles(axes, unit, read, write):
        return None
    near = axes[read[0]]
    flipped = near.source < 0
    if flipped:
        axes[read[0]] = CopiedAxis(near.size, -near.source, -near.target)
    extents, inside = _grow([axis.size for axis in axes], unit, read, write)
    order = [*inside, *(at for at in read if at not in inside)]
    written = sorted(range(_TILE_AXES), key=lambda number: (order[number] not in inside, write.index(order[number])))
    even = tuple(_even_extent(axes[at].size, extents[at], unit) for at in order)
    return CopyTiles(tuple(axes[at] for at in order), even, tuple(written), unit, flipped)


def _needs_tiles(axes: Sequence[CopiedAxis], unit: int, read: Sequence[int], write: Sequence[int]) -> bool:
    """Return True if a tile brings neighbours together."""
    near, inner = axes[read[0]], axes[write[0]]
    if read[:2] == write[:2] or inner.source == 0 or abs(near.source) * unit >= _SECTOR_BYTES:
        return False
    if unit < 4:
        # A tile is read and written in words of neighbours, and words at the ends of short lines are shared.
        return abs(near.source) == inner.target == 1 and near != inner and inner.size * unit >= _MIN_LINE_BYTES
    return near != inner or inner.size * unit < _MIN_RUN_BYTES


def _grow(sizes: Sequence[int], unit: int, read: Sequence[int], write: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the extents of the largest tile that fits, and its axes in the order of `read`.

    A tile grows where fewer of its elements are neighbours, in the source or in the destination.
    """
    extents = [1] * len(sizes)
    inside = [at for at in read if at in (read[0], write[0])]
    while True:
        ends = []  # the elements that are neighbours on a side, and the axis that ends them
        for order in (read, write):
            run = 1
            for at in order:
                run *= extents[at]
                if extents[at] < sizes[at]:
                    if extents[at] < TILE_INVOCATIONS:
                        ends.append((run, at))
                    break
        for _, axis in sorted(ends, key=lambda end: end[0]):
            axes = [at for at in read if at in inside or at == axis]
            larger = [*extents]
            larger[axis] = min(sizes[axis], 2 * extents[axis], TILE_INVOCATIONS)
            if len(axes) <= _TILE_AXES and _fits([larger[at] for at in axes], axes.index(write[0]), unit):
                extents, inside = larger, axes
                break
        else:
            return extents, inside


def _fits(extents: list[int], inner: int, unit: int) -> bool:
    """Return True if a tile fits the workgroup memory."""
    _, slots = _blocks_and_slots([*extents, *[1] * (_TILE_AXES - len(extents))], inner, unit)
    return slots[3] * max(4, unit) <= TILE_BYTES[unit]


def _even_extent(size: int, extent: int, unit: int) -> int:
    """Return an extent, at most the given one, with which the tiles along an axis have about the same size."""
    even = -(-size // -(-size // extent))
    step = max(1, _SECTOR_BYTES // unit)
    return even if extent == size or extent < step else -(-even // step) * step
