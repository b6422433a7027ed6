"""Choose the tile for an element, a shape and an adapter: what a workgroup takes, and how its lanes divide it."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from gpuscan.elements import min_chunk
from gpuscan.operators.code import Code
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import Heuristics, heuristics_for
from gpuscan.planning.spec import ACCESS_BYTES, ScanSpec
from gpuscan.planning.tile_shapes import BLOCK, CANONICAL_CHUNK, CANONICAL_GROUP, TileShape, power_below

# Words of workgroup memory for one invocation of a compaction: 16 of elements that are moved, 4 of its chunks' ranks.
MOVING_WORDS = 16 + 4

# The invocations of a workgroup that combines in the canonical order, and the elements of each, at most: of GPUs, and
# of CPU adapters, where a barrier costs much. lavapipe took half as long as in 256 x 4, SwiftShader a seventh. An H200
# took 334 us for linear recurrences of 2^25 in 128 x 16, 361 in 256 x 16, 374 in 256 x 8, 364 in 64 x 32.
HALVES_WORKGROUP, HALVES_CHUNK = 128, 16
HALVES_CPU_WORKGROUP, HALVES_CPU_CHUNK = 32, 8
# The invocations where tiles look back. An H200 takes 118 us for sums of 2^25 with 256 invocations, 131 with 512. With
# 32 elements for each it takes 114.
LOOK_BACK_WORKGROUP = 256
# The most words of a chunk. H200, sums in rows of 1,000: 370 us with 32 words, 430 with 16.
HALVES_WORDS = 32
# Characters of WGSL from which on functions take long to compile on CPU adapters. A sum has half as many.
HALVES_CHARACTERS = 3000


def tile_shape(spec: ScanSpec, capabilities: Capabilities, subgroups: bool = True) -> TileShape:
    """Return the tile for a scan on an adapter.

    A GPU's lanes take short neighbouring chunks in several steps, so that a subgroup reads whole cache lines. A CPU
    adapter runs an invocation as one serial loop, so that a long chunk and no exchange between lanes is best.

    Args:
        subgroups: False to use no subgroup operations even if the adapter has them.
    """
    if spec.everywhere:
        return tile_of_halves(spec, capabilities)
    has_lanes = capabilities.adapter_type != "CPU" and capabilities.subgroup_size > 0
    shared = end_with_rows(subgroup_tile(spec, capabilities), spec) if has_lanes else serial_tile(spec, capabilities)
    if not (spec.as_one_row or spec.reversed_together):
        without, with_subgroups = (row_tile(spec, capabilities, lanes) for lanes in (False, True))
        chosen = with_subgroups if subgroups else without
        both = without is not None and with_subgroups is not None
        takes_whole_rows = both or (subgroups and flags_cost_much(spec, capabilities))
        # The choice is the same without subgroups, since a stream may have to go on without them.
        waits_for_none = has_lanes and shared.tile_size % spec.row_length == 0
        if waits_for_none and with_subgroups is not None and is_small(with_subgroups, spec, capabilities):
            takes_whole_rows = False
        if chosen is not None and takes_whole_rows:
            return chosen
    return shared if subgroups or not has_lanes else serial_tile(spec, capabilities)


def is_small(tile: TileShape, spec: ScanSpec, capabilities: Capabilities) -> bool:
    """Return True if a tile of a whole row is so small that tiles of several whole rows are faster."""
    h = heuristics_for(capabilities.adapter_type)
    nbytes, words = tile.tile_size * bytes_accessed_together(spec), tile.tile_size * spec.element.words
    return nbytes < h.min_whole_row_bytes or words < h.min_whole_row_words


def end_with_rows(tile: TileShape, spec: ScanSpec) -> TileShape:
    """Return the tile with the nearest number of steps with which it ends where rows do, and so waits for no other.

    There may be one more step at most. Without such a number, return the tile itself.

    H200, 2^25 int64 in rows of 12, 3, 5 and 7: 133, 136, 140 and 246 us in tiles of 3, 3, 5 and 7 steps that do not
    wait; 187 to 195 us in tiles of 4 steps that do.
    """
    if spec.as_one_row or tile.bands > 1:
        return tile
    whole = [n for n in range(1, tile.steps + 2) if n * tile.tile_size // tile.steps % spec.row_length == 0]
    return replace(tile, steps=min(whole, key=lambda steps: abs(steps - tile.steps), default=tile.steps))


def tile_of_halves(spec: ScanSpec, capabilities: Capabilities) -> TileShape:
    """Return the tile for the canonical order. All tiles of a power of two of elements have this order.

    An invocation takes several chunks, so that fewer invocations wait for each other. On CPU adapters it takes one if
    the functions take long to compile.
    """
    is_cpu = capabilities.adapter_type == "CPU"
    workgroup, longest = (HALVES_CPU_WORKGROUP, HALVES_CPU_CHUNK) if is_cpu else (HALVES_WORKGROUP, HALVES_CHUNK)
    looks_back = spec.combine.bounded and not is_cpu
    if looks_back:
        workgroup = LOOK_BACK_WORKGROUP
    codes = [code for code in (spec.combine, spec.before, spec.after) if code is not None]
    takes_long = is_cpu and sum(code.quick_characters for code in codes) > HALVES_CHARACTERS
    items = CANONICAL_CHUNK
    while not takes_long and items < longest and items * 2 * spec.item_words <= HALVES_WORDS:
        items *= 2
    steps = items // CANONICAL_CHUNK
    capacity = max(CANONICAL_GROUP, items_that_fit(spec, capabilities) // steps)
    return TileShape(power_below(min(workgroup, max_invocations(capabilities), capacity)), 0, steps, CANONICAL_CHUNK)


def totals_tile(tile: TileShape, spec: ScanSpec, capabilities: Capabilities) -> TileShape:
    """Return the shape of the workgroup that combines the totals of all tiles, for tiles of this shape.

    In the canonical order one workgroup joins all totals, so it has as many invocations as it may. An H200 takes 23
    instead of 30 us for 2^14 totals.
    """
    if not spec.everywhere or capabilities.adapter_type == "CPU":
        return tile
    most = power_below(min(max_invocations(capabilities), tile.tile_size, max(1, items_that_fit(spec, capabilities))))
    return replace(tile, workgroup_size=most, steps=1, chunk=tile.tile_size // most)


def serial_tile(spec: ScanSpec, capabilities: Capabilities) -> TileShape:
    """Return the tile that uses no subgroup operations."""
    h = heuristics_for(capabilities.adapter_type)
    is_cpu = capabilities.adapter_type == "CPU"
    chunk = h.mask_chunk if spec.compacts else min_chunk(spec.source, spec.destination)
    words = spec.item_words
    workgroup = h.serial_wide_workgroup if words >= h.serial_wide_item_words else h.serial_workgroup
    most_words = h.serial_wide_chunk_words if spec.element.words > 1 else h.serial_chunk_words
    if spec.has_long_functions:
        most_words = min(most_words, h.serial_long_chunk * words)
    chunks = [chunk]
    while chunks[-1] * 2 * words <= most_words and not spec.compacts:
        chunks.append(chunks[-1] * 2)
    # An array of one tile takes one dispatch, and one kernel with twice the text compiles as fast as three. lavapipe,
    # 3000 uint32: 240 us instead of 380.
    longest = chunks[-1] * (1 if spec.has_long_functions or spec.compacts else 2)
    if is_cpu and spec.length <= workgroup * longest:
        chunk = min(size for size in (*chunks, longest) if spec.length <= workgroup * size)
    else:
        chunk = max((size for size in chunks if workgroup * size <= spec.length), default=chunk)
    capacity = items_that_fit(spec, capabilities)
    return TileShape(power_below(min(workgroup, max_invocations(capabilities), max(capacity, 32))), 0, 1, chunk)


def subgroup_tile(spec: ScanSpec, capabilities: Capabilities) -> TileShape:
    """Return the tile that uses subgroup operations."""
    measured = find_measured_tile(spec, capabilities)
    if measured is not None:
        return measured
    h = heuristics_for(capabilities.adapter_type)
    subgroup_size = capabilities.subgroup_size
    chunk = h.mask_chunk if spec.compacts else min_chunk(spec.source, spec.destination)
    words = spec.item_words
    held_words = spec.element.words if has_narrow_rows(spec, capabilities) else words
    held_words = held_words if spec.steps is None else spec.kept_words
    accessed = bytes_accessed_together(spec)
    # Longer chunks would cut the array into too few tiles.
    longest = spec.length // (h.workgroup * h.min_tiles)
    chunk_bytes = min(largest_chunk_bytes(spec, h), max(ACCESS_BYTES, longest * accessed))
    most_words = h.register_words // (2 if is_medium(spec.combine, h) else 3)
    while chunk * 2 * accessed <= chunk_bytes and chunk * 2 * held_words <= most_words:
        chunk *= 2
    capacity = items_that_fit(spec, capabilities)
    if subgroup_size >= BLOCK and words >= h.widest_words and not spec.compacts:
        capacity = max(capacity, h.workgroup)  # no scan goes through workgroup memory, so few items do
    most = max_invocations(capabilities)
    workgroup = max(power_below(min(h.workgroup, most, max(capacity, subgroup_size))), subgroup_size)
    wide = power_below(min(h.wide_workgroup, most, max(capacity - h.wide_workgroup // subgroup_size, workgroup)))
    rows = rows_of_whole_accesses(spec, h)
    if chunk < rows <= longest:
        chunk = rows
        most = h.vector_register_words // (chunk * words)
        steps = max((n for n in h.steps if n <= most and workgroup * n * chunk * h.min_tiles <= spec.length), default=1)
    else:
        workgroup, steps = lanes_and_steps(spec, capabilities, chunk, workgroup, wide)
    once = spec.combine.long or joins_rows_once(spec, capabilities, chunk) or joins_segments_once(spec)
    once = once or spec.steps is not None or is_medium(spec.combine, h) or has_flagged_pairs(spec)
    return TileShape(workgroup, subgroup_size, steps, chunk, single_lead=once and chunk > 1 and not spec.compacts)


def rows_of_whole_accesses(spec: ScanSpec, h: Heuristics) -> int:
    """Return how many consecutive short vectors fill whole accesses to storage, if registers can hold as many.

    In longer chunks, lanes exchange items in fewer rounds. H200, recurrences of 932,067 steps with one factor in 9
    columns: 61 us in chunks of 4 rows, 99 in chunks of one.

    Return 0 for elements that longer chunks do not speed up: single numbers, triples of words, and long vectors with
    items of no more words than in storage.
    """
    fields = (*spec.source.fields, *spec.destination.fields)
    nbytes = spec.source.fields[0].storage_bytes
    if len(fields) > 2 or fields[0].count == 1 or 4 * spec.item_words == nbytes == 12:
        return 0
    if nbytes >= 2 * ACCESS_BYTES and 4 * spec.element.words <= nbytes:
        return 0
    rows = ACCESS_BYTES // gcd(ACCESS_BYTES, nbytes)
    while rows * spec.item_words > h.vector_chunk_words:
        rows //= 2
    return rows


def bytes_accessed_together(spec: ScanSpec) -> int:
    """Return the bytes that one load or store takes of an element. They decide how many elements a chunk has.

    Return the size of the narrowest field that is loaded, or of the widest field that is stored if that is wider. H200,
    sums of 2^26 bools as int32: 99 us in chunks of 4, 214 in chunks of 16.
    """
    stored = () if spec.keep_last_only else spec.destination.fields
    return max(min(field.storage_bytes for field in spec.source.fields), *(field.storage_bytes for field in stored), 1)


def largest_chunk_bytes(spec: ScanSpec, h: Heuristics) -> int:
    """Return the most bytes of a chunk: more for longer operators, which lanes then combine in fewer rounds."""
    if spec.combine.long:
        return h.long_chunk_bytes
    return h.medium_chunk_bytes if is_medium(spec.combine, h) else ACCESS_BYTES


def is_brief(operator: Code, h: Heuristics) -> bool:
    """Return True if the operator takes so few steps that memory bounds a scan."""
    return not operator.long and operator.characters <= h.max_brief_characters


def is_medium(operator: Code, h: Heuristics) -> bool:
    """Return True if the operator is neither brief nor long."""
    return not operator.long and not is_brief(operator, h)


def find_measured_tile(spec: ScanSpec, capabilities: Capabilities) -> TileShape | None:
    """Return the shape that was measured for this type of element; None if none was, or if it does not run here."""
    h, size = heuristics_for(capabilities.adapter_type), capabilities.subgroup_size
    sizes = [field.storage_bytes for field in spec.source.fields]
    plain = spec.item_words == spec.element.words == sum(sizes) // 4 and not spec.compacts
    for shape in h.measured_shapes:
        is_for_type = plain and (spec.item_words, len(sizes)) == (shape.words, shape.fields)
        if not is_for_type or shape.lanes % size or (spec.combine.long and not shape.long_too):
            continue
        tile = TileShape(shape.lanes, size, shape.steps, shape.chunk, single_lead=shape.single_lead)
        if spec.length >= h.min_measured_tiles * tile.tile_size:
            capacity = min(max_invocations(capabilities), items_that_fit(spec, capabilities))
            return tile if shape.lanes <= capacity else None
    return None


def max_invocations(capabilities: Capabilities) -> int:
    """Return the most invocations that the adapter runs in a workgroup."""
    limits = capabilities.limits
    return min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"])


def items_that_fit(spec: ScanSpec, capabilities: Capabilities) -> int:
    """Return for how many invocations workgroup memory has room: an item each, and 64 items for totals and prefixes."""
    words = spec.item_words + (MOVING_WORDS if spec.compacts else 0)
    return capabilities.limits["max-compute-workgroup-storage-size"] // (4 * words) - 64


def lanes_and_steps(
    spec: ScanSpec, capabilities: Capabilities, chunk: int, workgroup: int, wide: int
) -> tuple[int, int]:
    """Return the invocations of a GPU's workgroup, and the chunks that each of them takes.

    Args:
        chunk: the elements in a chunk.
        workgroup: one choice for the number of invocations.
        wide: the other choice, of more invocations.
    """
    h = heuristics_for(capabilities.adapter_type)
    sizes = [field.storage_bytes for field in spec.source.fields]
    long, scans_twice = spec.combine.long, recomputes_scan(spec, capabilities)
    words = spec.item_words == 1 and set(sizes) == {4}
    halves = spec.item_words == 1 and set(sizes) == {2} and scans_twice
    looks_ahead = (words or halves) and capabilities.progress_later
    most_steps = steps_that_fit(spec, h, chunk, scans_twice and not joins_rows_once(spec, capabilities, chunk))

    def choices(lanes: int, most: int, among: tuple[int, ...] = h.steps) -> list[int]:
        """Return the numbers of steps, up to the most, that cut the array into enough tiles."""
        return [steps for steps in among if steps <= most and lanes * steps * chunk * h.min_tiles <= spec.length]

    if spec.compacts:
        return workgroup, max(choices(workgroup, h.mask_steps[-1], h.mask_steps), default=1)
    one_number = len(sizes) == 1 and spec.item_words == spec.element.words <= 2
    if one_number and spec.keep_last_only and capabilities.progress_later:
        # Items are exchanged once for each tile if the order of the elements is free, and otherwise once for each step.
        # So large tiles pay. H200, 2^28 elements: maxima of float32 304 us in 512 x 12 chunks, 546 in 512 x 4; sums of
        # int32 308 and 514; sums of float32, in order, 308 in 256 x 12, 400 in 512 x 4. 256 MiB: sums of int64 101 us
        # in 512 x 8 chunks, 145 in 512 x 4; of bytes 80 in 512 x 8, 128 in 256 x 8.
        lanes = wide if spec.combine.order_free else workgroup
        return lanes, max(choices(lanes, most_steps), default=1)
    if not (spec.item_words > 1 or long or looks_ahead):
        return workgroup, max(choices(workgroup, most_steps), default=1)
    if has_flagged_pairs(spec):
        return wide, max(choices(wide, min(most_steps, h.few_steps)), default=1)
    if words and not long:
        if most_steps >= h.deep_steps and spec.length >= h.min_deep_tiles * workgroup * h.deep_steps * chunk:
            return workgroup, h.deep_steps
        fewest, most = h.few_single_tiles
        if most_steps >= h.long_steps and fewest <= spec.length / (workgroup * h.long_steps * chunk) <= most:
            return workgroup, h.long_steps
    step_bytes = chunk * count_loaded_bytes(spec)  # of one invocation
    if wide * h.long_steps * step_bytes <= h.max_long_tile_bytes and not long and min(sizes) > 2:
        fewest, most = h.resident_tiles
        if most_steps >= h.long_steps and fewest <= spec.length / (wide * h.long_steps * chunk) <= most:
            return wide, h.long_steps
    medium = is_medium(spec.combine, h) and step_bytes > ACCESS_BYTES * len(sizes)
    has_bytes = min(sizes) == 1 and not has_narrow_rows(spec, capabilities)
    if long:
        fewest_steps = h.min_long_steps if chunk * bytes_accessed_together(spec) <= ACCESS_BYTES else 1
        most_steps = min(most_steps, max(fewest_steps, h.long_words // (chunk * spec.item_words)))
    elif medium:
        most_steps = min(most_steps, h.min_long_steps)
    elif has_bytes or wide * h.few_steps * step_bytes >= h.tile_bytes:
        most_steps = min(most_steps, h.few_steps)
    fits = workgroup > h.medium_workgroup and h.medium_workgroup % capabilities.subgroup_size == 0
    if medium and fits and spec.combine.characters <= h.max_medium_characters:
        workgroup = h.medium_workgroup
    widths = (
        (workgroup,) if has_bytes or medium or spec.item_words > h.max_words_in_wide_workgroup else (workgroup, wide)
    )
    shapes = [(lanes, steps) for lanes in widths for steps in choices(lanes, most_steps)]

    def preference(shape: tuple[int, int]) -> tuple[int, ...]:
        """Prefer the smallest tile of enough bytes, in few steps; else the largest."""
        lanes, steps = shape
        size = lanes * steps * step_bytes
        return (0, size, max(0, steps - h.few_steps), lanes) if size >= h.tile_bytes else (1, -size, lanes)

    return min(shapes, key=preference, default=(workgroup, 1))


def count_loaded_bytes(spec: ScanSpec) -> int:
    """Return the bytes of memory that a GPU reads for an element.

    A field of the element before or after is in the caches if the same array is also read for the element itself. That
    is assumed as long as there are such fields of its size. H200, gradients of maxima of 25 million `float32`, which
    read five fields of three arrays: 109 us in 256 x 4 chunks, 207 in 256 x 2.
    """
    own = [field.storage_bytes for i, field in enumerate(spec.source.fields) if spec.offset_of(i) == 0]
    total, unpaired = sum(own), list(own)
    for i, field in enumerate(spec.source.fields):
        if spec.offset_of(i) == 0:
            continue
        if field.storage_bytes in unpaired:
            unpaired.remove(field.storage_bytes)
        else:
            total += field.storage_bytes
    return total


def row_tile(spec: ScanSpec, capabilities: Capabilities, subgroups: bool) -> TileShape | None:
    """Return a tile that ends where rows do; None if such tiles would be half empty, or a row needs too many of them.

    Items then need no head flag, and a tile that holds a whole row waits for no other.
    """
    h = heuristics_for(capabilities.adapter_type)
    length, words = spec.row_length, spec.element.words
    is_cpu = capabilities.adapter_type == "CPU"
    width = capabilities.subgroup_size if subgroups and not is_cpu else 0
    most = min(max_invocations(capabilities), h.row_workgroup)
    capacity = capabilities.limits["max-compute-workgroup-storage-size"] // (4 * words) - 64
    if length < h.min_row or capacity < 32:
        return None
    sizes = [size for size in (32, 64, 128, 256, 512) if width <= size <= min(most, capacity)]
    if not width:
        sizes = [size for size in sizes if size <= h.serial_workgroup]
    accessed = bytes_accessed_together(spec)
    most_words = h.register_words // 3 if width else h.serial_chunk_words
    chunk_bytes = largest_chunk_bytes(spec, h)
    if spec.has_long_functions and not width:
        most_words = min(most_words, h.serial_long_chunk * words)
    chunks = [min_chunk(spec.source, spec.destination)]
    while chunks[-1] * 2 * words <= most_words and (not width or chunks[-1] * 2 * accessed <= chunk_bytes):
        chunks.append(chunks[-1] * 2)
    chunks = [chunk for chunk in chunks if length % chunk == 0]
    # With short chunks, lanes combine most elements. If that takes long, tiles that rows share are faster. H200, us in
    # tiles that end where rows do and in shared ones, rows of 407 and 1,022: logaddexp of 2^25 elements 305 and 183,
    # 232 and 185; loops of 2^23 steps with a maximum 540 and 174, 302 and 174; affine ones 107 and 61, 59 and 63.
    if width and not is_brief(spec.combine, h) and chunks[-1] * accessed < ACCESS_BYTES:
        return None
    once = spec.combine.long or spec.steps is not None
    # Long operators take tiles that rows share rather than short chunks. H100, logaddexp in rows of 1,472: 549, 819 us.
    long_chunks = [chunk for chunk in chunks if chunk * accessed > ACCESS_BYTES]
    all_steps = (h.row_steps if spec.length >= h.min_fitted_elements else h.steps) if width else (1,)
    shapes = [
        TileShape(size, width, steps, chunk, per_row=True, single_lead=width > 0 and chunk > 1 and once)
        for size in sizes
        for chunk in ((long_chunks or chunks[-1:]) if width else chunks)
        for steps in all_steps
        if steps <= steps_that_fit(spec, h, chunk, recomputes_scan(spec, capabilities))
    ]
    return best_row_tile(spec, h, shapes, is_cpu)


def best_row_tile(spec: ScanSpec, h: Heuristics, shapes: list[TileShape], is_cpu: bool) -> TileShape | None:
    """Return the best of these shapes for tiles that end where rows do, or None if none is full enough."""
    length, words = spec.row_length, spec.element.words
    words_with_neighbour = words + spec.neighbour_words
    tiles = {shape: -(-length // shape.tile_size) for shape in shapes}
    use = {shape: length / (tiles[shape] * shape.tile_size) for shape in shapes}
    least = h.min_row_use if is_brief(spec.combine, h) else h.min_long_row_use
    shapes = [shape for shape in shapes if tiles[shape] <= shape.block and use[shape] >= least]
    if is_cpu:
        few = {True: h.min_lone_row_chunk_words, False: h.min_row_chunk_words}
        shapes = [shape for shape in shapes if shape.chunk * words >= few[tiles[shape] == 1]]
        return max(shapes, key=lambda shape: (tiles[shape] == 1, shape.chunk, use[shape]), default=None)
    if shapes and shapes[0].subgroup_size:
        small = {True: h.min_lone_row_tile, False: h.min_row_tile}
        if words_with_neighbour > 1 or spec.reverse:
            small[True] = h.min_lone_wide_row_tile
        shapes = [shape for shape in shapes if shape.tile_size >= small[tiles[shape] == 1]]
    if not shapes:
        return None
    many = [shape for shape in shapes if tiles[shape] * spec.rows >= h.min_tiles]
    shapes = many or [min(shapes, key=lambda shape: shape.tile_size)]
    best = max(use[shape] for shape in shapes)
    full = [shape for shape in shapes if use[shape] >= h.row_use_tolerance * best]

    def preference(shape: TileShape) -> tuple[float, ...]:
        lone = tiles[shape] == 1
        most_steps = h.single_word_row_steps if words_with_neighbour == 1 else h.single_row_steps // shape.chunk
        flat = shape.steps if shape.steps <= max(most_steps, h.few_row_steps) else -shape.steps
        return lone, use[shape] if lone else 0, shape.tile_size, shape.chunk, flat

    return max(full, key=preference)


def has_narrow_rows(spec: ScanSpec, capabilities: Capabilities) -> bool:
    """Return True if rows of 8- or 16-bit numbers share tiles, where a single row would be scanned twice."""
    return not spec.as_one_row and recomputes_scan(spec, capabilities)


def joins_rows_once(spec: ScanSpec, capabilities: Capabilities, chunk: int) -> bool:
    """Return True if the elements of narrow rows should be joined once, as for long operators.

    Because of head flags it costs much to join an element twice, and to scan twice means to find the heads twice. An
    H100 takes 92 us instead of 143 for 2^26 bytes in rows of 99, and 122 instead of 210 for 16-bit integers in rows of
    100. 16-bit numbers in rows of whole chunks have one head in a chunk and take as long. (`logaddexp` and compensated
    sums take 15 % less and compile sooner. Look-back of sums takes 3 % more, since chunks are joined after the wait.)
    """
    if not has_narrow_rows(spec, capabilities):
        return False
    return spec.source.fields[0].storage_bytes == 1 or spec.row_length % chunk > 0


def joins_segments_once(spec: ScanSpec) -> bool:
    """Return True if the elements of segments should be joined once, as in narrow rows.

    That changes the order of combination, so it is done where no order changes a bit. An H200 takes 168 instead of 179
    us for sums of 2^26 integers in a million segments, and 162 instead of 179 for exclusive ones.
    """
    single_words = spec.item_words == 2 and all(field.storage_bytes == 4 for field in spec.source.fields)
    return spec.has_segment_bits and spec.combine.order_free and single_words and not spec.keep_last_only


def has_flagged_pairs(spec: ScanSpec) -> bool:
    """Return True if items are two 32-bit numbers and a head flag, and no neighbours are loaded.

    Each chunk of such items is combined once only, as in narrow rows. Their tiles are large, since the fold of all
    aggregates takes long. H200, recurrences of 8.4 million steps in tiles of 512 x 4 chunks, compared to the tiles
    for pairs without flags:

    - one factor, rows of 29: 38 us, not 48; rows of 44,485: 41 us, not 51;
    - a factor for each step, rows of 49: 43 us, not 49; rows of 88,989: 46 us, not 49;
    - a factor for each step, 100,000 segments: 58 us, not 61.
    """
    words = [field.words for field in spec.element.fields]
    loads_words = all(field.storage_bytes == 4 for field in spec.source.fields)
    own_only = not (spec.compacts or any(spec.field_offsets))
    return words == [1, 1] and spec.item_words > 2 and loads_words and own_only


def flags_cost_much(spec: ScanSpec, capabilities: Capabilities) -> bool:
    """Return True if tiles with head flags are slower than tiles that end with rows, even with short chunks.

    H200, us with and without flags: gradients of recurrences in rows of 43,082 107 and 70, of 83,887 108 and 95; sums
    of int64 in rows of 98,689 116 and 91; of float32 in rows of 85,380 94 and 85, of 104,206 100 and 99, of 33,555 95
    and 98. Recurrences in rows of 43,082 take 45 and 48, maxima of float16 in rows of 111,848 102 and 110. Rows of
    fewer elements than a tile are not measured.
    """
    long = spec.row_length > heuristics_for(capabilities.adapter_type).min_row_tile
    is_gpu = capabilities.adapter_type != "CPU"
    return is_gpu and long and not (has_flagged_pairs(spec) or has_narrow_rows(spec, capabilities))


def recomputes_scan(spec: ScanSpec, capabilities: Capabilities) -> bool:
    """Return True if it is worth scanning a chunk twice and keeping it in its storage form in between."""
    if spec.compacts or any(spec.field_offsets) or len(spec.source.fields) > 1:
        return False
    h = heuristics_for(capabilities.adapter_type)
    (field,) = spec.source.fields
    light = all(code.light for code in (spec.combine, spec.before) if code is not None)
    cheap = field.scalar.kind != "float" or (field.scalar.name == "float16" and capabilities.packs_halves)
    return light and cheap and field.storage_bytes <= h.recomputed_bytes and spec.item_words <= h.recomputed_words


def steps_that_fit(spec: ScanSpec, h: Heuristics, chunk: int, scanned_twice: bool) -> int:
    """Return the most steps of such chunks that an invocation has registers for while its tile waits."""
    kept = chunk * spec.item_words
    if spec.steps is not None:  # the sources, and what is before the chunk
        kept = chunk * spec.kept_words + spec.item_words
    if scanned_twice:  # the storage words, and of the items that precede chunks all words but one
        kept = chunk * spec.source.fields[0].storage_bytes // 4 + spec.item_words - 1
    numbers64 = any(f.scalar.bits == 64 and f.scalar.kind != "complex" for f in spec.element.fields)
    if scanned_twice or numbers64 or (chunk == 1 and spec.item_words >= 4):
        words = h.few_register_words
    else:
        words = h.wide_register_words if spec.item_words >= 4 or chunk >= 16 else h.register_words
    return max(1, words // kept)
