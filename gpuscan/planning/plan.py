"""Decides how a problem is run on a device: strategy, tile, kernels, dispatch sizes. Pure: plain values in and out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuscan.elements import Element
from gpuscan.errors import GpuscanError
from gpuscan.planning.column_tiles import column_stages, column_tile
from gpuscan.planning.kernel import SPINS_PER_ROUND, STATE_HEADER_WORDS, Kernel
from gpuscan.planning.staging import worth_staging
from gpuscan.planning.strategies import in_order
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from gpuscan.planning.tiles import rescans, tile_shape

if TYPE_CHECKING:
    from gpuscan.operators.code import Code
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.problem.problem import Problem

LOOKBACK_SECONDS = 0.5  # how long a tile waits for a post before look-back gives up
LEAST_LOOKBACK_SPINS = 1 << 18  # polls, however slow they were when others kept the GPU busy during the probe
FALLBACK_SPINS = 4  # polls before fallback reduces the late tile itself; a few, as Smith, Levien & Owens found
FOLDED_FALLBACK_SPINS = 8  # the same where one folds for all; measured on an H100
LONG_FALLBACK_SPINS = 32  # the same for long operators, whose tiles take their time
FIRST_FALLBACK_SPINS = 1  # the same in the first round of a wait, for single words, whose tiles take as long as a load
MANY_TILES = 1024  # from here on it is faster that one folds for all than that each looks back; measured on an H100
ACCESS_WORDS = 4  # 32-bit words in the widest load or store
CPU_FALLBACK_SPINS = 256
CPU_LOOKBACK_SPINS = 57_344  # llvmpipe leaves loops after 65,535 turns
CPU_PAUSES = 48  # divisions between two polls
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
        shifts, tails: fields that are taken from a neighbour; see `gpuscan.planning.kernel.Kernel`.
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
        return self.stages[-1].kernel.posts

    @property
    def workgroups_beside(self) -> int:
        """Workgroups that scan no tile: look-ahead's first."""
        return 1 if self.stages[-1].kernel.strategy == "lookahead" else 0

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
        if self.stages[-1].kernel.strategy == "alone":
            return 4 * (STATE_HEADER_WORDS + words)  # of which only the header is used
        if isinstance(self.tile, ColumnTile):
            items = self.tiles * self.tile.width * (4 if self.posts else 1)
            return 4 * (STATE_HEADER_WORDS + items * words)
        blocks = -(-self.tiles // self.tile.block)
        posts = blocks + 2 * -(-blocks // self.tile.block)
        if self.stages[-1].kernel.folds:
            posts = (3 if self.strategy == "fallback" else 2) * blocks
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
    many: bool | None = None,
    scheduler: str = "",
    subgroups: bool = True,
    piece: int | None = None,
    placement: Placement | None = None,
) -> ScanPlan:
    """The plan of `work` by `strategy` on a device with these capabilities.

    Args:
        tile: a shape to use instead of the one for this adapter, element and length.
        withhold: leave out the post of every tile of this period; for tests.
        many: whether one workgroup folds for all under lookback and fallback; left out, where tiles are many, on a GPU
            whose driver leaves loops alone.
        scheduler: play one that delays workgroups ("random"), runs one at a time ("serial") or lets them begin in
            bursts ("bursts"); for tests.
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
    if strategy == "lookahead" and (isinstance(tile, ColumnTile) or tile.per_row):
        strategy, reason = "lookback", f"{reason}; rows and columns are looked back, each for itself"
    alone = tile.per_row and work.row_length <= tile.tile_size  # then no tile waits for another
    if alone:
        reason = f"{reason}; a tile holds a whole row, so none waits for another"
    elif isinstance(tile, ColumnTile) and work.row_length <= tile.height:
        alone, reason = True, f"{reason}; a tile holds whole columns, so none waits for another"
    elif length <= tile.tile_size and not (isinstance(tile, ColumnTile) or work.carried or work.carry_out):
        alone, reason = True, f"{reason}; one tile holds all, and waits for none"
    if tile.per_row:
        work = replace(work, carried=False, carry_out=False)  # pieces are whole rows
    spins_per_round, spin_rounds, pauses = spin_bounds(strategy, capabilities)
    several = work.rows > 1 and not isinstance(tile, ColumnTile)
    whole_chunks = tile.per_row or (several and work.row_length % tile.chunk == 0)
    scattered = several and work.reverse and not whole_chunks
    kernel = Kernel(
        stage="scan",
        strategy="alone" if alone else strategy,
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
        segmented=work.segmented and not tile.per_row,
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
        whole_chunks=whole_chunks,
        width=1 if scattered else min(placement.width, access_width(work, length)),
        native_int64=capabilities.native_int64,
        int64_atomics=capabilities.int64_atomics,
        packs_halves=capabilities.packs_halves,
        dawn=capabilities.enable_subgroups,
        withhold=withhold,
        scheduler=scheduler,
        rescans=rescans(work, capabilities) and not (scattered or tile.single_lead),
        in_order=in_order(capabilities) and scheduler not in ("serial", "bursts"),  # which are played by tickets
        spins_per_round=spins_per_round,
        first_spins=spins_per_round,
        pauses=pauses,
        software=capabilities.adapter_type == "CPU",
        leaves_loops=capabilities.adapter_type == "CPU" or capabilities.loop_iterations > 0,
    )
    if worth_staging(kernel, capabilities.limits["max-compute-workgroup-storage-size"]):
        kernel = replace(kernel, staged=True)
    limit = capabilities.limits["max-compute-workgroups-per-dimension"]
    if isinstance(tile, ColumnTile):
        tiles, dispatches = column_stages(kernel, tile, work)
    else:
        tiles, dispatches = tile_stages(kernel, tile, work, length, many)
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


def tile_stages(
    kernel: Kernel, tile: TileShape, work: Work, length: int, many: bool | None
) -> tuple[int, list[tuple[Kernel, int]]]:
    """The number of tiles, and the dispatches with their workgroups; `many` as in `plan_scan`."""
    tiles = max(1, -(-length // tile.tile_size))
    if tile.per_row:
        tiles = length // work.row_length * -(-work.row_length // tile.tile_size)
    if kernel.strategy in ("lookback", "fallback") and not tile.per_row:
        worth_it = tiles >= MANY_TILES and not kernel.leaves_loops  # a fold is a loop over all tiles
        kernel = replace(kernel, many=worth_it if many is None else many)
        if kernel.many and kernel.strategy == "fallback" and not kernel.software:
            spins = LONG_FALLBACK_SPINS if kernel.combine.long else FOLDED_FALLBACK_SPINS
            plain = kernel.item_words == 1 and not kernel.rescans and not kernel.combine.long
            kernel = replace(kernel, spins_per_round=spins, first_spins=FIRST_FALLBACK_SPINS if plain else spins)
    dispatches = [(kernel, tiles + 1 if kernel.strategy == "lookahead" else tiles)]
    if kernel.strategy == "three_dispatch":
        if not tile.per_row:
            dispatches.insert(0, (replace(kernel, stage="scan_totals", exclusive=False, initial=False), 1))
        dispatches.insert(0, (replace(kernel, stage="reduce", exclusive=False), tiles))
    elif work.carry_out:
        dispatches.append((replace(kernel, stage="carry", exclusive=False, initial=False), 1))
    return tiles, dispatches


def spin_bounds(strategy: str, capabilities: Capabilities) -> tuple[int, int, int]:
    """How long a tile waits for a post: polls in a round, rounds, and pauses between two polls."""
    cpu, pauses = capabilities.adapter_type == "CPU", 0
    if strategy == "fallback":
        spins = CPU_FALLBACK_SPINS if cpu else FALLBACK_SPINS
    elif cpu:
        spins, pauses = CPU_LOOKBACK_SPINS, CPU_PAUSES
    else:
        spins = max(LEAST_LOOKBACK_SPINS, math.ceil(capabilities.spins_per_second * LOOKBACK_SECONDS))
    per_round = min(SPINS_PER_ROUND, 1 << (spins - 1).bit_length())
    return per_round, -(-spins // per_round), pauses


def access_width(work: Work, length: int) -> int:
    """32-bit words that one load or store may take: fewer where reading backwards begins off a vector's edge."""
    if not work.reverse or work.inner > 1 or work.rows > 1:
        return ACCESS_WORDS
    width = ACCESS_WORDS
    for field in (*work.source.fields, *work.destination.fields):
        while width > 1 and length * field.storage_bytes % (4 * width):
            width //= 2
    return width


def turns_rows(work: Work | Problem) -> bool:
    """Whether rows that lie one after the other are read backwards, each in its own place."""
    return work.reverse and work.inner == 1 and work.rows > 1


def straddling(work: Work | Problem, length: int) -> tuple[int, ...]:
    """The sizes of elements of which one row, read backwards, begins within a word."""
    fields = (*work.source.fields, *work.destination.fields)
    sizes = {field.storage_bytes for field in fields if length * field.storage_bytes % 4}
    return tuple(sorted(sizes)) if work.reverse and work.inner == 1 and work.rows == 1 else ()


def shares_words(work: Work | Problem, length: int) -> bool:
    """Whether invocations may store parts of one word, so that the array cannot be scanned in place."""
    packed = any(field.scalar.packed for field in work.destination.fields)
    return (turns_rows(work) and packed) or bool(straddling(work, length))


def grid_of(tiles: int, limit: int) -> tuple[int, int, int]:
    """The smallest nearly even grid of at least so many workgroups with no side over the limit.

    Raises:
        GpuscanError: there is none.
    """
    rows = -(-tiles // limit)
    if rows > limit:
        raise GpuscanError(
            f"{tiles} workgroups were asked for; the device dispatches {limit} by {limit}. Open it with a larger limit "
            '"max-compute-workgroups-per-dimension", or scan in chunks with gpuscan.scan_chunks'
        )
    return (-(-tiles // max(1, rows)), rows, 1)
