"""The tile for an element, a shape and an adapter: what a workgroup takes, and how its lanes share it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuscan.planning.tile_shapes import BLOCK, TileShape

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.plan import Work

GPU_WORKGROUP = 256  # invocations
GPU_STEPS = (1, 2, 4, 6, 8, 12)  # steps that are built for; few, so that few pipelines are
WIDE_WORKGROUP, FEW_STEPS = 512, 4  # of several words, and of single ones where look-ahead runs: short shaders
WIDE_WORKGROUP_WORDS = 9  # of an item, at most, in a wide workgroup; and none of bytes; measured on an H100
LEAST_STEPS, LONG_WORDS = 2, 16  # of long operators: steps, and else words of items that an invocation takes
WIDEST_WORDS = 64  # of an item, from which on a full workgroup brings more than staging does; measured on an H100
TILE_BYTES = 32 << 10  # of storage in such a tile; of smaller ones the fold of all tiles is late; measured on an H100
LONG_STEPS, TOGETHER = 8, (128, 256)  # where tiles of so many steps are so many that all run together
LONG_TILE_BYTES = 64 << 10  # in such a tile, at most
RESCANNED_BYTES, RESCANNED_WORDS = 2, 2  # in storage and as an item, at most, of what is scanned twice
REGISTER_WORDS = 48  # of payload that one invocation keeps between load and store; measured on an H100
WIDE_REGISTER_WORDS = 64  # of elements of 4 words and more in several arrays, and of bytes that are scanned once
FEW_REGISTER_WORDS = 32  # of 64-bit numbers, of matrices in one array, and of what is kept as it lies in storage
MASK_CHUNK = 16  # elements of a mask, whose bits are kept and not their sums
MASK_STEPS = (1, 2, 4)
MOVING_WORDS = 16 + 4  # of workgroup memory for an invocation: elements that are moved, and ranks of its chunks
TILES_WANTED = 64  # a small array is cut finer, so that every compute unit has work
LEAST_ROW = 128  # elements; rows that are shorter share tiles
ROW_WORKGROUP = 512  # invocations, at most, of a tile that ends where a row does
ROW_TILE = 2048, 256  # elements, at least, of tiles that end with rows: of several a row, of one; measured on an H100
ROW_USE = 0.75  # of a tile's places, at least, must hold elements where tiles end with rows
CPU_WORKGROUP, CPU_WIDE_WORKGROUP = 64, 32  # the latter of items of 4 words and more
CPU_CHUNK_WORDS = 64, 128  # of elements of a word, of wider ones; measured on lavapipe
CPU_LONG_CHUNK = 32  # elements, at most, of long operators, but of rows' own tiles: compiled in half the time of 64
CPU_ROW_WORDS = 16, 4  # in a chunk, at least, of tiles that end with rows: of several a row, of one; measured


def tile_shape(work: Work, capabilities: Capabilities, subgroups: bool = True) -> TileShape:
    """The tile for this element and length on this adapter.

    A GPU's lanes take short neighbouring chunks in several steps, so that a subgroup reads whole cache lines. A
    software adapter runs an invocation as one serial loop, so that a long chunk and no exchange between lanes is best.
    """
    if work.rows > 1 and not work.marked:  # both or none, since a stream may have to go on without subgroups
        in_rows = [row_tile(work, capabilities, with_subgroups) for with_subgroups in (False, True)]
        if None not in in_rows and (chosen := in_rows[subgroups]) is not None:
            return chosen
    chunk = MASK_CHUNK if work.moves else least_chunk(work)
    words = work.item_words
    subgroup_size = capabilities.subgroup_size if subgroups else 0
    limits = capabilities.limits
    most = min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"])
    # Workgroup memory: one item an invocation for scans, and a few more for totals and prefixes.
    held = words + (MOVING_WORDS if work.moves else 0)
    room = limits["max-compute-workgroup-storage-size"] // (4 * held) - 64
    if capabilities.adapter_type == "CPU" or not subgroup_size:
        serial = CPU_WIDE_WORKGROUP if words >= 4 else CPU_WORKGROUP
        workgroup = serial if capabilities.adapter_type == "CPU" else GPU_WORKGROUP
        most_words = CPU_CHUNK_WORDS[work.element.words > 1 and capabilities.adapter_type == "CPU"]
        if work.combine.long:
            most_words = min(most_words, CPU_LONG_CHUNK * words)
        chunks = [chunk]
        while chunks[-1] * 2 * words <= most_words and not work.moves:
            chunks.append(chunks[-1] * 2)
        if capabilities.adapter_type == "CPU" and work.length <= workgroup * chunks[-1]:
            chunk = min(size for size in chunks if work.length <= workgroup * size)  # one tile and one dispatch
        else:
            chunk = max((size for size in chunks if workgroup * size <= work.length), default=chunk)
        return TileShape(_power_below(min(workgroup, most, max(room, 32))), 0, 1, chunk)
    place_words = work.element.words if has_narrow_rows(work, capabilities) else words
    while (
        chunk * 2 * min(f.storage_bytes for f in work.source.fields) <= 16
        and chunk * 2 * place_words <= REGISTER_WORDS // 3
    ):
        chunk *= 2
    if subgroup_size >= BLOCK and words >= WIDEST_WORDS and not work.moves:
        room = max(room, GPU_WORKGROUP)  # few items lie in workgroup memory, since no scan goes through it
    workgroup = _power_below(min(GPU_WORKGROUP, most, max(room, subgroup_size)))
    workgroup = max(workgroup, subgroup_size)
    wide = _power_below(min(WIDE_WORKGROUP, most, max(room - WIDE_WORKGROUP // subgroup_size, workgroup)))
    workgroup, steps = lanes_and_steps(work, capabilities, chunk, workgroup, wide)
    once = work.combine.long or joins_rows_once(work, capabilities, chunk)
    return TileShape(workgroup, subgroup_size, steps, chunk, single_lead=once and chunk > 1 and not work.moves)


def lanes_and_steps(work: Work, capabilities: Capabilities, chunk: int, workgroup: int, wide: int) -> tuple[int, int]:
    """A GPU's invocations in a workgroup, either of the two numbers, and the chunks that each of them takes."""

    def fits_length(lanes: int, steps: int) -> bool:
        return lanes * steps * chunk * TILES_WANTED <= work.length

    stored = [field.storage_bytes for field in work.source.fields]
    lane_bytes = chunk * sum(stored)  # of a step
    bytewise, long = min(stored) == 1 and not has_narrow_rows(work, capabilities), work.combine.long
    alike = work.item_words == 1 and (set(stored) == {4} or (set(stored) == {2} and rescans(work, capabilities)))
    scanned_twice = rescans(work, capabilities) and not joins_rows_once(work, capabilities, chunk)
    fit = steps_that_fit(work, chunk, scanned_twice)
    if work.moves or not (work.item_words > 1 or long or (alike and capabilities.progress_later)):
        sizes = MASK_STEPS if work.moves else tuple(size for size in GPU_STEPS if size <= fit)
        return workgroup, max((size for size in sizes if fits_length(workgroup, size)), default=1)
    tiles = work.length / (wide * LONG_STEPS * chunk)
    short = wide * LONG_STEPS * lane_bytes <= LONG_TILE_BYTES and not long
    if TOGETHER[0] <= tiles <= TOGETHER[1] and short and fit >= LONG_STEPS and min(stored) > 2:
        return wide, LONG_STEPS
    widths = (workgroup,) if bytewise or work.item_words > WIDE_WORKGROUP_WORDS else (workgroup, wide)
    if long:
        fit = min(fit, max(LEAST_STEPS, LONG_WORDS // (chunk * work.item_words)))
    elif bytewise or wide * FEW_STEPS * lane_bytes >= TILE_BYTES:
        fit = min(fit, FEW_STEPS)
    shapes = [(lanes, steps) for lanes in widths for steps in GPU_STEPS if steps <= fit and fits_length(lanes, steps)]

    def preference(shape: tuple[int, int]) -> tuple[int, ...]:
        """The smallest tile of enough bytes, in few steps; else the largest."""
        lanes, steps = shape
        size = lanes * steps * lane_bytes
        return (0, size, max(0, steps - FEW_STEPS), lanes) if size >= TILE_BYTES else (1, -size, lanes)

    return min(shapes, key=preference, default=(workgroup, 1))


def row_tile(work: Work, capabilities: Capabilities, subgroups: bool) -> TileShape | None:
    """The tile that ends where rows do, or None where such tiles would be half empty, or a row needs too many.

    Items then need no head flag, and a tile that holds a whole row waits for no other.
    """
    length, words = work.row_length, work.element.words
    cpu = capabilities.adapter_type == "CPU"
    width = capabilities.subgroup_size if subgroups and not cpu else 0
    limits = capabilities.limits
    most = min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"], ROW_WORKGROUP)
    room = limits["max-compute-workgroup-storage-size"] // (4 * words) - 64
    if length < LEAST_ROW or room < 32:
        return None
    sizes = [size for size in (32, 64, 128, 256, 512) if width <= size <= min(most, room)]
    if not width:
        sizes = [size for size in sizes if size <= (CPU_WORKGROUP if cpu else GPU_WORKGROUP)]
    narrowest = min(f.storage_bytes for f in (*work.source.fields, *work.destination.fields))
    held = REGISTER_WORDS // 3 if width else CPU_CHUNK_WORDS[0]
    chunks = [least_chunk(work)]
    while chunks[-1] * 2 * words <= held and (not width or chunks[-1] * 2 * narrowest <= 16):
        chunks.append(chunks[-1] * 2)
    chunks = [chunk for chunk in chunks if length % chunk == 0]
    shapes = [
        TileShape(size, width, steps, chunk, per_row=True, single_lead=width > 0 and work.combine.long and chunk > 1)
        for size in sizes
        for chunk in (chunks[-1:] if width else chunks)
        for steps in (GPU_STEPS if width else (1,))
        if steps <= steps_that_fit(work, chunk, rescans(work, capabilities))
    ]
    tiles = {shape: -(-length // shape.tile_size) for shape in shapes}
    shapes = [shape for shape in shapes if tiles[shape] <= shape.block]
    use = {shape: length / (tiles[shape] * shape.tile_size) for shape in shapes}
    shapes = [shape for shape in shapes if use[shape] >= ROW_USE]
    if cpu:
        shapes = [shape for shape in shapes if shape.chunk * words >= CPU_ROW_WORDS[tiles[shape] == 1]]
        return max(shapes, key=lambda shape: (tiles[shape] == 1, shape.chunk, use[shape]), default=None)
    if width:
        shapes = [shape for shape in shapes if shape.tile_size >= ROW_TILE[tiles[shape] == 1]]
    if not shapes:
        return None
    many = [shape for shape in shapes if tiles[shape] * work.rows >= TILES_WANTED]
    shapes = many or [min(shapes, key=lambda shape: shape.tile_size)]
    best = max(use[shape] for shape in shapes)
    full = [shape for shape in shapes if use[shape] >= 0.9 * best]
    return max(full, key=lambda shape: (tiles[shape] == 1, use[shape] if tiles[shape] == 1 else 0, shape.tile_size))


def has_narrow_rows(work: Work, capabilities: Capabilities) -> bool:
    """Whether rows of 8- or 16-bit numbers share tiles, where each would be scanned twice if there were one row."""
    return work.rows > 1 and not work.marked and rescans(work, capabilities)


def joins_rows_once(work: Work, capabilities: Capabilities, chunk: int) -> bool:
    """Whether elements of narrow rows are joined once, like those of long operators: chunks' leads are joined instead.

    Heads make it dear to join an element twice, and to scan twice is to find them twice. An H100 takes 92 us, not 143,
    for 2^26 bytes in rows of 99, and 122, not 210, for 16-bit integers in rows of 100; 16-bit numbers in rows of whole
    chunks have one head a chunk, and take as long. (`logaddexp` and compensated sums take 15 % less, and are compiled
    sooner. Look-back of sums takes 3 % more, since leads are joined after the wait.)
    """
    if not has_narrow_rows(work, capabilities):
        return False
    return work.source.fields[0].storage_bytes == 1 or work.row_length % chunk > 0


def rescans(work: Work, capabilities: Capabilities) -> bool:
    """Whether it is worth to scan a chunk twice, and to keep it as it lies in storage between: see `Kernel`."""
    if work.moves or any(work.shifts) or len(work.source.fields) > 1:
        return False
    (field,) = work.source.fields
    light = all(code.light for code in (work.combine, work.before) if code is not None)
    cheap = field.scalar.kind != "float" or (field.scalar.name == "float16" and capabilities.packs_halves)
    return light and cheap and field.storage_bytes <= RESCANNED_BYTES and work.item_words <= RESCANNED_WORDS


def steps_that_fit(work: Work, chunk: int, scanned_twice: bool) -> int:
    """The most steps of such chunks that an invocation has registers for while its tile waits."""
    kept = chunk * work.item_words
    if scanned_twice:  # the words in storage, and for what comes before a chunk those that an item has more than one
        kept = chunk * work.source.fields[0].storage_bytes // 4 + work.item_words - 1
    numbers64 = any(f.scalar.bits == 64 and f.scalar.kind != "complex" for f in work.element.fields)
    if scanned_twice or numbers64 or (chunk == 1 and work.item_words >= 4):
        words = FEW_REGISTER_WORDS
    else:
        words = WIDE_REGISTER_WORDS if work.item_words >= 4 or chunk >= 16 else REGISTER_WORDS
    return max(1, words // kept)


def least_chunk(work: Work) -> int:
    """The fewest neighbouring elements whose storage fills whole 32-bit words in every field."""
    fields = (*work.source.fields, *work.destination.fields)
    return max(max(1, 4 // math.gcd(4, field.storage_bytes)) for field in fields)


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
