"""Decides how a problem is run on a device: strategy, tile, kernels, dispatch sizes. Pure: plain values in and out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuscan.columns import column_stages, column_tile
from gpuscan.elements import Element
from gpuscan.errors import GpuscanError
from gpuscan.kernels import SPINS_PER_ROUND, STATE_HEADER_WORDS, ColumnTile, Kernel, TileShape

if TYPE_CHECKING:
    from gpuscan.capabilities import Capabilities
    from gpuscan.operators import Code

LOOKBACK_SECONDS = 0.5  # how long a tile waits for a post before look-back gives up
FALLBACK_SECONDS = 20e-6  # how long before fallback reduces the late tile itself
GPU_WORKGROUP = 256  # invocations
GPU_STEPS = (1, 2, 4, 6, 8, 12)  # steps that are built for; few, so that few pipelines are
LOOKAHEAD_WORKGROUP, LOOKAHEAD_STEPS = 512, 4  # of single words, where look-ahead runs: it wants many small tiles
REGISTER_WORDS = 48  # of payload that one invocation keeps between load and store; measured on an H100
WIDE_REGISTER_WORDS = 64  # of elements of 4 words and more, and of bytes
LONG_REGISTER_WORDS = 24  # of 64-bit numbers
MASK_CHUNK = 16  # elements of a mask, whose bits are kept and not their sums
MASK_STEPS = (1, 2, 4)
MOVING_WORDS = 16 + 4  # of workgroup memory for an invocation: elements that are moved, and ranks of its chunks
ACCESS_WORDS = 4  # 32-bit words in the widest load or store
TILES_WANTED = 64  # a small array is cut finer, so that every compute unit has work
CPU_FALLBACK_SPINS = 256
CPU_LOOKBACK_SPINS = 57_344  # llvmpipe leaves loops after 65,535 turns
CPU_PAUSES = 48  # divisions between two polls
CPU_WORKGROUP = 64
CPU_CHUNK_WORDS = 64
LENGTH_LIMIT = 2**31  # elements that 32-bit indices reach with room for a grid's last tiles


@dataclass(frozen=True)
class Work:
    """What is to be scanned, once the operator is WGSL: the part of a request that decides the shaders.

    Attributes:
        source, element, destination: what is loaded, combined, stored.
        combine, before, after: the operator's code and the fused maps.
        rows, row_length: the array as rows that are scanned each for itself.
        inner: rows that lie side by side, one element of each after the other; 1 where rows lie one after the other.
        reverse, exclusive, initial: as asked.
        carried: a carry of an earlier piece comes before the first element.
        carry_out: a carry is written for the next piece.
        shifts, tails: fields that are taken from a neighbour; see `gpuscan.kernels.Kernel`.
        marked: the one row there is restarts where marks say.
        ends: of each row only the last result is stored.
        moves: the first field is a mask that picks what is stored of the others.
    """

    source: Element
    element: Element
    destination: Element
    operator_name: str
    combine: Code
    rows: int
    row_length: int
    before: Code | None = None
    after: Code | None = None
    inner: int = 1
    reverse: bool = False
    exclusive: bool = False
    initial: bool = False
    carried: bool = False
    carry_out: bool = False
    shifts: tuple[int, ...] = ()
    tails: bool = False
    marked: bool = False
    ends: bool = False
    moves: bool = False

    @property
    def length(self) -> int:
        """Elements in all rows together."""
        return self.rows * self.row_length

    @property
    def item_words(self) -> int:
        """32-bit words of what the scan carries from tile to tile."""
        return self.element.words + (1 if self.segmented else 0)

    @property
    def segmented(self) -> bool:
        """Whether items carry a head flag."""
        return self.marked or (self.rows > 1 and self.inner == 1)


@dataclass(frozen=True)
class Placement:
    """How the arrays lie in their buffers.

    Attributes:
        width: 32-bit words of the widest access that the buffers allow.
        exact: bytes after the destination's end are someone else's.
        shared: a source and a destination lie in one buffer.
        in_place: each destination is its source.
    """

    width: int = ACCESS_WORDS
    exact: bool = False
    shared: bool = False
    in_place: bool = False


@dataclass(frozen=True)
class Stage:
    """One dispatch: a kernel and its grid."""

    name: str
    kernel: Kernel
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class ScanPlan:
    """How one problem is run.

    Attributes:
        strategy: how a tile learns its prefix.
        reason: why this strategy.
        tile: the tile's shape.
        length, tiles: elements, and tiles that hold them.
        row_length: elements from one row's head to the next's.
        stages: the dispatches, in order.
        spin_rounds: bound of a wait, in rounds of the kernel's spins.
    """

    strategy: str
    reason: str
    tile: TileShape | ColumnTile
    length: int
    tiles: int
    row_length: int
    stages: tuple[Stage, ...]
    spin_rounds: int
    inner: int = 1

    @property
    def posts(self) -> bool:
        """Whether tiles post to each other, in tagged words; else totals lie in plain words."""
        return self.strategy != "three_dispatch"

    @property
    def workgroups_beside(self) -> int:
        """Workgroups that scan no tile: look-ahead's first."""
        return 1 if self.strategy == "lookahead" else 0

    @property
    def reports(self) -> bool:
        """Whether a run can fail, of which its report tells: wait in vain, see another subgroup size, or not end."""
        return self.posts or self.loops or self.tile.subgroup_size > 0

    @property
    def loops(self) -> bool:
        """Whether the operator is WGSL with loops, whose turns are bounded."""
        return self.stages[-1].kernel.combine.loops

    @cached_property
    def state_bytes(self) -> int:
        """Size of the tile state."""
        words = self.stages[-1].kernel.item_words
        if isinstance(self.tile, ColumnTile):
            items = self.tiles * self.tile.width * (4 if self.posts else 1)
            return 4 * (STATE_HEADER_WORDS + items * words)
        blocks = -(-self.tiles // self.tile.block)
        posts = 2 * blocks if self.strategy == "lookahead" else blocks + 2 * -(-blocks // self.tile.block)
        items = 2 * self.tile.block * posts if self.posts else self.tiles
        return 4 * (STATE_HEADER_WORDS + items * words)


def plan_scan(
    work: Work,
    capabilities: Capabilities,
    strategy: str,
    reason: str,
    *,
    tile: TileShape | ColumnTile | None = None,
    withhold: int = 0,
    subgroups: bool = True,
    piece: int | None = None,
    placement: Placement | None = None,
) -> ScanPlan:
    """The plan of `work` by `strategy` on a device with these capabilities.

    Args:
        tile: a shape to use instead of the one for this adapter, element and length.
        withhold: leave out the post of every tile of this period; for tests.
        subgroups: False to do without subgroup operations where the adapter has them.
        piece: elements of a piece of the array, for a plan of that piece alone; its tiles are those of the whole.
        placement: how the arrays lie in their buffers.

    Raises:
        GpuscanError: the array is longer than 32-bit indices reach.
    """
    length = work.length if piece is None else piece
    if length >= LENGTH_LIMIT:
        raise GpuscanError(
            f"{length} elements were asked for in one piece; 32-bit indices reach {LENGTH_LIMIT - 1}. "
            "Scan the array in chunks with gpuscan.scan_chunks"
        )
    placement = placement or Placement()
    if isinstance(tile, TileShape):
        work = replace(work, inner=1)  # for rows that were brought together
    if tile is None:
        tile = tile_shape(work, capabilities, subgroups) if work.inner == 1 else column_tile(work, capabilities)
    if isinstance(tile, ColumnTile) and strategy == "lookahead":
        strategy, reason = "lookback", f"{reason}; columns are looked back, each group of them for itself"
    spins_per_round, spin_rounds, pauses = spin_bounds(strategy, capabilities)
    kernel = Kernel(
        stage="scan",
        strategy=strategy,
        source=work.source,
        element=work.element,
        destination=work.destination,
        operator_name=work.operator_name,
        combine=work.combine,
        before=work.before,
        after=work.after,
        tile=tile,
        reverse=work.reverse,
        exclusive=work.exclusive,
        initial=work.initial,
        segmented=work.segmented,
        marked=work.marked,
        ends=work.ends,
        moves=work.moves,
        carried=work.carried,
        carry_out=work.carry_out,
        shifts=work.shifts,
        tails=work.tails,
        shared=placement.shared,
        in_place=placement.in_place,
        exact=placement.exact,
        straddling=straddling(work, length),
        width=min(placement.width, access_width(work, length)),
        native_int64=capabilities.native_int64,
        immediates=capabilities.immediates,
        dawn=capabilities.enable_subgroups,
        withhold=withhold,
        spins_per_round=spins_per_round,
        pauses=pauses,
        software=capabilities.adapter_type == "CPU",
    )
    limit = capabilities.limits["max-compute-workgroups-per-dimension"]
    if isinstance(tile, ColumnTile):
        tiles, dispatches = column_stages(kernel, tile, work)
        return ScanPlan(
            strategy=strategy,
            reason=reason,
            tile=tile,
            length=length,
            tiles=tiles,
            row_length=work.row_length,
            stages=tuple(Stage(each.stage, each, grid_of(count, limit)) for each, count in dispatches),
            spin_rounds=spin_rounds,
            inner=work.inner,
        )
    tiles = max(1, -(-length // tile.tile_size))
    grid = grid_of(tiles, limit)
    stages = [Stage("scan", kernel, grid_of(tiles + 1, limit) if strategy == "lookahead" else grid)]
    alone = tiles == 1 and not (work.carried or work.carry_out)  # a tile that needs no prefix
    if strategy == "three_dispatch" and not alone:
        reduce = replace(kernel, stage="reduce", exclusive=False)
        totals = replace(kernel, stage="scan_totals", exclusive=False, initial=False)
        stages = [Stage("reduce", reduce, grid), Stage("scan_totals", totals, (1, 1, 1)), stages[0]]
    elif work.carry_out:
        stages.append(Stage("carry", replace(kernel, stage="carry", exclusive=False, initial=False), (1, 1, 1)))
    return ScanPlan(
        strategy=strategy,
        reason=reason,
        tile=tile,
        length=length,
        tiles=tiles,
        row_length=work.row_length,
        stages=tuple(stages),
        spin_rounds=spin_rounds,
    )


def spin_bounds(strategy: str, capabilities: Capabilities) -> tuple[int, int, int]:
    """How long a tile waits for a post: polls in a round, rounds, and pauses between two polls."""
    seconds = FALLBACK_SECONDS if strategy == "fallback" else LOOKBACK_SECONDS
    if capabilities.adapter_type == "CPU":
        spins = CPU_FALLBACK_SPINS if strategy == "fallback" else CPU_LOOKBACK_SPINS
        pauses = 0 if strategy == "fallback" else CPU_PAUSES
    else:
        spins = max(16, math.ceil(capabilities.spins_per_second * seconds))
        pauses = 0
    per_round = min(SPINS_PER_ROUND, 1 << (spins - 1).bit_length())
    return per_round, -(-spins // per_round), pauses


def tile_shape(work: Work, capabilities: Capabilities, subgroups: bool = True) -> TileShape:
    """The tile for this element and length on this adapter.

    A GPU's lanes take short neighbouring chunks in several steps, so that a subgroup reads whole cache lines. A
    software adapter runs an invocation as one serial loop, so that a long chunk and no exchange between lanes is best.
    """
    chunk = MASK_CHUNK if work.moves else least_chunk(work)
    words = work.item_words
    subgroup_size = capabilities.subgroup_size if subgroups else 0
    limits = capabilities.limits
    most = min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"])
    # Workgroup memory: one item an invocation for scans, and a few more for totals and prefixes.
    held = words + (MOVING_WORDS if work.moves else 0)
    room = limits["max-compute-workgroup-storage-size"] // (4 * held) - 64
    if capabilities.adapter_type == "CPU" or not subgroup_size:
        workgroup = CPU_WORKGROUP if capabilities.adapter_type == "CPU" else GPU_WORKGROUP
        while chunk * 2 * words <= CPU_CHUNK_WORDS and chunk * workgroup * 2 <= work.length and not work.moves:
            chunk *= 2
        return TileShape(_power_below(min(workgroup, most, max(room, 32))), 0, 1, chunk)
    workgroup = _power_below(min(GPU_WORKGROUP, most, max(room, subgroup_size)))
    workgroup = max(workgroup, subgroup_size)
    most_steps = GPU_STEPS[-1]
    while (
        chunk * 2 * min(f.storage_bytes for f in work.source.fields) <= 16 and chunk * 2 * words <= REGISTER_WORDS // 3
    ):
        chunk *= 2
    single = words == 1 and all(f.storage_bytes == 4 for f in work.source.fields)
    if single and capabilities.progress_later:
        large = LOOKAHEAD_WORKGROUP * LOOKAHEAD_STEPS * chunk * TILES_WANTED <= work.length
        most_steps, workgroup = LOOKAHEAD_STEPS, min(LOOKAHEAD_WORKGROUP, most) if large else workgroup
    steps = 1
    for candidate in MASK_STEPS if work.moves else GPU_STEPS:
        fits = work.moves or candidate * chunk * words <= register_words(work, chunk)
        wanted = candidate == 1 or workgroup * candidate * chunk * TILES_WANTED <= work.length
        if fits and wanted and candidate <= most_steps:
            steps = candidate
    return TileShape(workgroup, subgroup_size, steps, chunk)


def register_words(work: Work, chunk: int) -> int:
    """32-bit words of payload that an invocation keeps of such elements."""
    if any(f.scalar.bits == 64 and f.scalar.kind != "complex" for f in work.element.fields):
        return LONG_REGISTER_WORDS
    return WIDE_REGISTER_WORDS if work.item_words >= 4 or chunk >= 16 else REGISTER_WORDS


def least_chunk(work: Work) -> int:
    """The fewest neighbouring elements whose storage fills whole 32-bit words in every field."""
    fields = (*work.source.fields, *work.destination.fields)
    return max(max(1, 4 // math.gcd(4, field.storage_bytes)) for field in fields)


def access_width(work: Work, length: int) -> int:
    """32-bit words that one load or store may take: fewer where reading backwards begins off a vector's edge."""
    if not work.reverse or work.inner > 1:
        return ACCESS_WORDS
    width = ACCESS_WORDS
    for field in (*work.source.fields, *work.destination.fields):
        while width > 1 and length * field.storage_bytes % (4 * width):
            width //= 2
    return width


def straddling(work: Work, length: int) -> tuple[int, ...]:
    """The sizes of elements whose arrays, read backwards, begin within a word."""
    fields = (*work.source.fields, *work.destination.fields)
    sizes = {field.storage_bytes for field in fields if length * field.storage_bytes % 4}
    return tuple(sorted(sizes)) if work.reverse and work.inner == 1 else ()


def grid_of(tiles: int, limit: int) -> tuple[int, int, int]:
    """The smallest nearly even grid of at least so many workgroups with no side over the limit."""
    rows = -(-tiles // limit)
    return (-(-tiles // max(1, rows)), rows, 1)


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
