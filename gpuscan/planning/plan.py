"""Decide how a scan runs on a device: its tile, its kernels and its dispatches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from gpuscan.elements import intern_value
from gpuscan.errors import GpuscanError
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.column_tiles import column_tile, count_chains, count_loads
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import (
    NO_FAULTS,
    STATE_HEADER_WORDS,
    Access,
    InjectedFaults,
    Placement,
    Target,
    WaitPolicy,
)
from gpuscan.planning.row_tiles import tile_of_few_columns, tile_of_rows
from gpuscan.planning.spec import ACCESS_BYTES, ScanSpec
from gpuscan.planning.strategies import ends_loops, starts_in_order
from gpuscan.planning.tile_shapes import SPAN, ColumnTile, RowTile, Tile, TileShape
from gpuscan.planning.tiles import is_medium, recomputes_scan, totals_tile
from gpuscan.planning.tuned_tiles import UNTUNED, Tuned, best_tile
from gpuscan.planning.workgroup_memory import exchanges_chunks, needed_bytes
from gpuscan.sizes import concrete, has_size

# The 32-bit words in the widest load or store: WGSL's vec4<u32>.
ACCESS_WORDS = ACCESS_BYTES // 4

# The most posts that an invocation reads where a tile looks at all tiles of its span. Tiles of elements of up to four
# words need no more. More were not measured.
MAX_TILES_SEEN = 2

# One more than the most elements of a piece. 32-bit indices reach twice as far, which leaves room for the last tiles.
LENGTH_LIMIT = 2**31


@dataclass(frozen=True)
class Stage:
    """One dispatch: a kernel and its grid."""

    name: str
    kernel: Kernel
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class ScanPlan:
    """Describe how one scan runs.

    Attributes:
        strategy: how a tile learns its prefix.
        reason: why this strategy was chosen.
        tile: the tile's shape.
        length: the number of elements.
        tiles: the number of tiles that hold them.
        row_length: the elements from one row's head to the next one's.
        stages: the dispatches, in order.
        spin_rounds: the bound of a wait, in rounds of the kernel's spins.
        inner: the number of rows that are interleaved in memory.
        padding: the elements past the end of the array with which a scan from its end begins; see `padding_of`. They
            are among the `length` elements.
    """

    strategy: str
    reason: str
    tile: Tile
    length: int
    tiles: int
    row_length: int
    stages: tuple[Stage, ...]
    spin_rounds: int
    inner: int = 1
    padding: int = 0

    @property
    def position(self) -> tuple[int, int, int]:
        """The length of a row, the number of the row of the first element, and the elements of that row before it.

        Padding before the first row counts as rows with negative numbers.
        """
        if not self.padding:
            return self.row_length, 0, 0
        rows = -(-self.padding // self.row_length)
        return self.row_length, -rows % (1 << 32), rows * self.row_length - self.padding

    def without_sizes(self) -> ScanPlan:
        """Return the plan with the numbers of this call instead of its sizes. Messages about its run name them."""
        sizes = {name: getattr(self, name) for name in ("length", "tiles", "row_length", "inner", "padding")}
        if not has_size(sizes.values()):
            return self
        stages = tuple([replace(stage, grid=concrete(stage.grid)) for stage in self.stages])
        return replace(self, stages=stages, **{name: concrete(size) for name, size in sizes.items()})

    @property
    def posts(self) -> bool:
        """True if tiles post to each other, in tagged words. Otherwise their totals are plain words."""
        return self.stages[-1].kernel.posts

    @property
    def workgroups_without_tile(self) -> int:
        """The number of workgroups that scan no tile: the first one under look-ahead."""
        return 1 if self.stages[-1].kernel.strategy == "lookahead" else 0

    @property
    def reports(self) -> bool:
        """True if a run can fail and report it: a timeout, a wrong subgroup size, or a loop that does not end."""
        return self.posts or self.loops or self.tile.subgroup_size > 0

    @property
    def loops(self) -> bool:
        """True if the operator is WGSL with loops. Their iterations are bounded."""
        return self.stages[-1].kernel.spec.combine.loops

    @cached_property
    def min_timeout_seconds(self) -> float:
        """A time that passes before a run can fail, if its subgroups have the planned size; 0 if there is none.

        A run that ended sooner has done its work, and its report need not be read.
        """
        kernel = self.stages[-1].kernel
        if kernel.strategy not in ("lookahead", "lookback") or self.loops or kernel.target.driver_ends_loops:
            return 0.0
        per_round = max(1, kernel.wait_policy.spins_per_round // kernel.heuristics.fold_patience_divisor)
        return self.spin_rounds * per_round * kernel.heuristics.fastest_poll_seconds

    @cached_property
    def state_bytes(self) -> int:
        """The size of the tile state in bytes."""
        kernel = self.stages[-1].kernel
        words = kernel.item_words
        if kernel.strategy == "alone":
            return 4 * (STATE_HEADER_WORDS + words)  # The shader uses only the header.
        if isinstance(self.tile, ColumnTile):
            items = self.tiles * self.tile.width * (4 if self.posts else 1)
            return 4 * (STATE_HEADER_WORDS + items * words)
        if isinstance(self.tile, RowTile):
            return 4 * (STATE_HEADER_WORDS + self.tiles * self.inner * words * (2 if self.posts else 1))
        blocks = -(-self.tiles // self.tile.block)
        posts = blocks + 2 * -(-blocks // self.tile.block)
        if kernel.wait_policy.one_workgroup_folds:
            posts = (3 if self.strategy == "fallback" else 2) * blocks
        items = 2 * self.tile.block * posts if self.posts else self.tiles
        return 4 * (STATE_HEADER_WORDS + items * words)


def plan_scan(
    spec: ScanSpec,
    capabilities: Capabilities,
    strategy: str,
    reason: str,
    *,
    tile: Tile | None = None,
    subgroups: bool = True,
    piece: int | None = None,
    placement: Placement | None = None,
    one_workgroup_folds: bool | None = None,
    test_build: InjectedFaults = NO_FAULTS,
) -> ScanPlan:
    """Plan a scan by a strategy on a device.

    Args:
        strategy: how a tile learns its prefix.
        reason: why this strategy was chosen.
        tile: a shape to use instead of the one for this adapter, element and length.
        subgroups: False to use no subgroup operations even if the adapter has them.
        piece: the elements of a piece of the array, to plan that piece alone. The tile is chosen for the whole array.
        placement: how the arrays are placed in their buffers.
        one_workgroup_folds: whether one workgroup folds for all under lookback and fallback. By default it does if
            there are many tiles and the driver does not end loops.
        test_build: faults that a test injects.

    Raises:
        GpuscanError: the array is longer than 32-bit indices reach.
    """
    placement = placement or Placement()
    padding = padding_of(spec, placement) if piece is None else 0
    length = spec.length + padding if piece is None else piece
    if length >= LENGTH_LIMIT:
        raise GpuscanError(
            f"{length} elements were asked for in one piece; 32-bit indices reach {LENGTH_LIMIT - 1}. "
            "Scan the array in chunks with gpuscan.scan_chunks"
        )
    if isinstance(tile, TileShape):
        spec = replace(spec, inner=1)  # The elements of each row were made neighbours in memory.
    if tile is None:
        tile = choose_tile(spec, capabilities, UNTUNED, subgroups, piece)
    if spec.everywhere:
        strategy, reason = strategy_of_halves(spec, tile, strategy, reason)
    # Under fallback no workgroup depends on the progress of another one. Parts of columns would have many posts.
    in_two = isinstance(tile, RowTile) and (strategy == "fallback" or tile.columns or tile.parts_per_workgroup > 1)
    if in_two or (isinstance(tile, ColumnTile) and spec.reduces_rows):
        strategy, reason = "three_dispatch", f"{reason}; no tile of the reduction needs a prefix"
    if strategy == "lookahead" and (isinstance(tile, ColumnTile) or tile.per_row):
        strategy, reason = "lookback", f"{reason}; each row and column looks back by itself"
    alone = why_no_tile_waits(spec, tile, length)
    if alone:
        reason = f"{reason}; {alone}"
    if tile.per_row:
        spec = replace(spec, carried=False, carry_out=False)  # Pieces are whole rows, so they need no carry.
    rounds, wait_policy = wait_bounds(strategy, capabilities)
    kernel = Kernel(
        stage="scan",
        strategy="alone" if alone else strategy,
        spec=spec.shader_spec,
        tile=tile,
        access=access_of(spec, tile, length, placement, capabilities),
        target=target_of(capabilities, keeps_nan=spec.everywhere and spec.reads_nan),
        wait_policy=wait_policy,
        test_build=test_build,
    )
    max_bytes = capabilities.limits["max-compute-workgroup-storage-size"]
    if spec.everywhere and kernel.posts and needed_bytes(kernel) > max_bytes:
        strategy, reason = "three_dispatch", f"{reason}; the tiles of a span do not fit workgroup memory"
        kernel = replace(kernel, strategy=strategy)
    if exchanges_chunks(kernel, max_bytes):
        kernel = replace(kernel, access=replace(kernel.access, via_workgroup_memory=True))
    if isinstance(tile, ColumnTile):
        tiles, dispatches = column_stages(kernel, tile, spec)
    elif isinstance(tile, RowTile):
        tiles, dispatches = stages_of_parts(kernel, tile, spec)
    else:
        totals = totals_tile(tile, spec, capabilities)
        tiles, dispatches = tile_stages(kernel, tile, totals, spec, length, one_workgroup_folds)
    limit = capabilities.limits["max-compute-workgroups-per-dimension"]
    return ScanPlan(
        strategy=strategy,
        reason=reason,
        tile=tile,
        length=length,
        tiles=tiles,
        row_length=spec.row_length,
        stages=tuple(
            Stage(stage_kernel.stage, intern_value(stage_kernel), grid_of(count, limit))
            for stage_kernel, count in dispatches
        ),
        spin_rounds=rounds,
        inner=spec.inner,
        padding=padding,
    )


def choose_tile(
    spec: ScanSpec, capabilities: Capabilities, tuned: Tuned, subgroups: bool = True, piece: int | None = None
) -> Tile:
    """Return the tile for a scan of rows or columns.

    Args:
        tuned: the shapes that were tuned on the adapter.
        subgroups: False to use no subgroup operations.
        piece: the elements of a piece, if it may begin within a row.
    """
    if spec.inner > 1:
        return tile_of_few_columns(spec, capabilities) or column_tile(spec, capabilities, subgroups)
    whole_rows = tile_of_rows(spec, capabilities) if piece is None else None
    return whole_rows or best_tile(spec, capabilities, tuned, subgroups)


def strategy_of_halves(spec: ScanSpec, tile: Tile, strategy: str, reason: str) -> tuple[str, str]:
    """Return the strategy for the canonical order, and why this one.

    Under look-back a tile looks at all tiles of its span that are before it. In the other strategy the totals of tiles
    are joined first. Products may need exact steps, for which the later tiles would wait.
    """
    if strategy not in ("lookahead", "lookback") or not isinstance(tile, TileShape) or not spec.combine.bounded:
        return "three_dispatch", f"{reason}; the canonical order combines the totals of tiles first"
    if SPAN // tile.tile_size > MAX_TILES_SEEN * tile.workgroup_size:
        return "three_dispatch", f"{reason}; a span has more tiles than a tile can look at"
    return "lookback", f"{reason}; in the canonical order each tile looks back"


def why_no_tile_waits(spec: ScanSpec, tile: Tile, length: int) -> str:
    """Return the reason why no tile waits for another, or ``""`` if some may."""
    if isinstance(tile, RowTile):
        return "a part holds a whole row" if spec.row_length * spec.inner <= tile.part else ""
    if isinstance(tile, ColumnTile):
        return "a tile holds whole columns, so none waits for another" if spec.row_length <= tile.height else ""
    if tile.per_row and spec.row_length <= tile.tile_size:
        return "a tile holds a whole row, so none waits for another"
    if spec.carried or spec.carry_out:
        return ""
    if length <= tile.tile_size:
        return "one tile holds all, and waits for none"
    if spec.stacked_rows and not spec.as_one_row and tile.tile_size % spec.row_length == 0:
        return "tiles end where rows do, so none waits for another"
    return ""


# ----- Parts of the kernel


def target_of(capabilities: Capabilities, *, keeps_nan: bool = False) -> Target:
    """Return what the device's shaders may use.

    Args:
        keeps_nan: True for shaders that need the bits of each NaN: the device's unpacking may change them.
    """
    is_cpu = capabilities.adapter_type == "CPU"
    return Target(
        native_int64=capabilities.native_int64,
        int64_atomics=capabilities.int64_atomics,
        packs_halves=capabilities.packs_halves and not keeps_nan,
        enables_subgroups=capabilities.enable_subgroups,
        is_cpu_adapter=is_cpu,
        driver_ends_loops=ends_loops(capabilities),
        starts_in_order=starts_in_order(capabilities),
    )


def access_of(
    spec: ScanSpec,
    tile: Tile,
    length: int,
    placement: Placement,
    capabilities: Capabilities,
) -> Access:
    """Return how the scan's kernel reads and writes the arrays."""
    several = not spec.as_one_row and not isinstance(tile, ColumnTile)
    whole_chunks = tile.per_row or (several and spec.row_length % tile.chunk == 0)
    single_elements = reverses_rows(spec) and not whole_chunks
    fields = (*spec.source.fields, *spec.destination.fields)
    # Views are accessed word by word. Wide elements of all arrays are then exchanged word by word, views or not.
    words = placement.views and any(field.storage_bytes > 4 * ACCESS_WORDS for field in fields)
    unaligned_sizes = () if isinstance(tile, RowTile) else find_unaligned_sizes(spec, length)
    words = words or (spec.inner > 1 and bool(unaligned_sizes))
    return Access(
        width=1 if single_elements or words else min(placement.width, access_width(spec, length)),
        exact=placement.exact,
        shared=placement.shared,
        in_place=placement.in_place,
        views=placement.views,
        several_rows=spec.stacked_rows,
        whole_chunks=whole_chunks,
        whole_results=has_whole_results(spec, tile, placement),
        reversed_together=spec.reversed_together,
        unaligned_sizes=unaligned_sizes,
        recomputes_scan=recomputes_scan(spec, capabilities)
        and not (single_elements or tile.single_lead or spec.everywhere or isinstance(tile, ColumnTile)),
    )


def has_whole_results(spec: ScanSpec, tile: Tile, placement: Placement) -> bool:
    """Return True if the results of each chunk of a reduction down columns are whole words."""
    if not (isinstance(tile, ColumnTile) and spec.reduces_rows) or any(placement.views):
        return False
    results = all(tile.chunk * field.storage_bytes % 4 == 0 for field in spec.destination.fields)
    return results and spec.inner % tile.chunk == 0


def padding_of(spec: ScanSpec, placement: Placement) -> int:
    """Return with how many elements past the end of the array a scan of rows from its end begins.

    Its chunks are whole vectors then, also if the array does not end with a vector. The elements are in the memory that
    follows an array of gpuscan's own. No row begins before the first element of the array, so they reach no result.
    """
    if not spec.reversed_together or placement.width < ACCESS_WORDS or placement.exact or any(placement.views):
        return 0
    fields = (*spec.source.fields, *spec.destination.fields)
    unit = max(ACCESS_BYTES // gcd(ACCESS_BYTES, field.storage_bytes) for field in fields)
    return -spec.length % unit


def access_width(spec: ScanSpec, length: int) -> int:
    """Return the 32-bit words of one access: fewer if a reversed row does not end at the end of a vector."""
    if not spec.backwards_as_one:
        return ACCESS_WORDS
    width = ACCESS_WORDS
    for field in (*spec.source.fields, *spec.destination.fields):
        while width > 1 and length * field.storage_bytes % (4 * width):
            width //= 2
    return width


def wait_bounds(strategy: str, capabilities: Capabilities) -> tuple[int, WaitPolicy]:
    """Return how long a tile waits for a post: the rounds of a wait, and the policy with the polls in a round."""
    h = heuristics_for(capabilities.adapter_type)
    pauses = 0
    if strategy == "fallback":
        spins = h.fallback_spins
    elif h.fixed_lookback_spins is not None:
        spins, pauses = h.fixed_lookback_spins, h.pause_divisions
    else:
        spins = max(h.min_lookback_spins, math.ceil(capabilities.spins_per_second * h.lookback_seconds))
    per_round = min(h.spins_per_round, 1 << (spins - 1).bit_length())
    return -(-spins // per_round), WaitPolicy(per_round, per_round, pauses)


# ----- Dispatches


def tile_stages(
    kernel: Kernel, tile: TileShape, totals: TileShape, spec: ScanSpec, length: int, one_workgroup_folds: bool | None
) -> tuple[int, list[tuple[Kernel, int]]]:
    """Return the number of tiles, and the dispatches with their numbers of workgroups.

    `totals` is the shape of the workgroup that combines the totals of all tiles.
    """
    tiles = max(1, -(-length // tile.tile_size))
    if tile.per_row:
        tiles = length // spec.row_length * -(-spec.row_length // tile.tile_size)
    if spec.everywhere:
        one_workgroup_folds = False
    at_once = one_workgroup_folds is None and looks_at_once(kernel, tiles)
    if one_workgroup_folds is None:  # a fold is a loop over all tiles, which some drivers end
        many = tiles >= kernel.heuristics.min_tiles_for_fold
        one_workgroup_folds = many and not kernel.target.driver_ends_loops
    may_fold = kernel.strategy in ("lookback", "fallback") and not tile.per_row
    if kernel.strategy == "lookahead" or (may_fold and one_workgroup_folds):
        kernel = replace(kernel, wait_policy=folding_policy(kernel))
    elif at_once:
        kernel = replace(kernel, wait_policy=replace(kernel.wait_policy, at_once=True))
    dispatches = [(kernel, tiles + 1 if kernel.strategy == "lookahead" else tiles)]
    later = replace(kernel, spec=replace(kernel.spec, exclusive=False, initial=False))
    if kernel.strategy == "three_dispatch":
        if not tile.per_row:
            dispatches.insert(0, (replace(later, stage="scan_totals", tile=totals), 1))
        dispatches.insert(0, (reduction_of(kernel), tiles))
    elif spec.carry_out:
        dispatches.append((replace(later, stage="carry"), 1))
    return tiles, dispatches


def looks_at_once(kernel: Kernel, tiles: int) -> bool:
    """Return True if there are so few tiles that one looks at all before it at once."""
    plain = not (kernel.tile.per_row or kernel.spec.carry_out or kernel.segmented or kernel.wide)
    few = tiles <= kernel.heuristics.max_tiles_at_once
    return kernel.strategy == "lookback" and kernel.block_in_subgroup and plain and few


def folding_policy(kernel: Kernel) -> WaitPolicy:
    """Return how tiles wait where one workgroup folds for all."""
    policy, h = replace(kernel.wait_policy, one_workgroup_folds=True), kernel.heuristics
    if kernel.strategy == "lookahead" and kernel.block_in_subgroup and kernel.tile.subgroups_per_workgroup > 1:
        two = kernel.tile.subgroups_per_workgroup == 2
        wide = kernel.item_words >= (h.min_words_for_rounds_of_two if two else h.min_words_for_rounds)
        medium = is_medium(kernel.spec.combine, h) and kernel.item_words <= h.max_medium_words_for_rounds
        return replace(policy, in_rounds=wide or (medium and not two))
    if kernel.strategy != "fallback" or kernel.target.is_cpu_adapter:
        return policy
    long = kernel.spec.combine.long
    spins = h.long_fallback_spins if long else h.folded_fallback_spins
    plain = kernel.item_words == 1 and not kernel.access.recomputes_scan and not long
    return replace(policy, spins_per_round=spins, first_spins=h.first_fallback_spins if plain else spins)


def column_stages(kernel: Kernel, tile: ColumnTile, spec: ScanSpec) -> tuple[int, list[tuple[Kernel, int]]]:
    """Return the number of tiles, and the dispatches with their numbers of workgroups."""
    if spec.reduces_rows:
        return stages_of_reduction(kernel, tile, spec)
    chains = count_chains(spec, tile)
    tiles = chains * -(-spec.row_length // tile.height)
    least = kernel.heuristics.min_waiting_chains
    if kernel.strategy == "lookback" and least is not None and chains >= least:
        kernel = replace(kernel, wait_policy=replace(kernel.wait_policy, chained=True))
    dispatches = [(kernel, tiles)]
    if kernel.strategy == "three_dispatch":
        later = replace(kernel, spec=replace(kernel.spec, exclusive=False, initial=False))
        totals = replace(later, stage="scan_totals")
        dispatches.insert(0, (totals, -(-chains * tile.columns // tile.workgroup_size)))
        dispatches.insert(0, (reduction_of(kernel), tiles))
    return tiles, dispatches


def stages_of_reduction(kernel: Kernel, tile: ColumnTile, spec: ScanSpec) -> tuple[int, list[tuple[Kernel, int]]]:
    """Return the number of tiles, and the dispatches with their numbers of workgroups, of a reduction down columns."""
    chains = count_chains(spec, tile)
    tiles_of_chain = -(-spec.row_length // tile.height)
    tiles = chains * tiles_of_chain
    # The shaders compute the rows of an invocation from the number of tiles. The rows of the tile are loaded together.
    rows = -(-spec.row_length // (tiles_of_chain * tile.groups))
    kernel = replace(kernel, tile=replace(tile, rows=count_loads(spec, kernel.heuristics, tile.chunk, rows)))
    if kernel.strategy == "alone":
        return tiles, [(kernel, tiles)]
    return tiles, [(reduction_of(kernel), tiles), (kernel, chains)]


def stages_of_parts(kernel: Kernel, tile: RowTile, spec: ScanSpec) -> tuple[int, list[tuple[Kernel, int]]]:
    """Return the number of parts, and the dispatches with their numbers of workgroups, of a reduction of rows."""
    # The shaders compute the length of a part from the number of parts.
    kernel = replace(kernel, tile=replace(tile, part=tile.chunk))
    rows = spec.rows // spec.inner
    parts = rows * -(-spec.row_length * spec.inner // tile.part)
    last = (kernel, -(-rows // tile.parts_per_workgroup))
    if kernel.strategy == "alone":
        return parts, [last]
    if kernel.posts:
        return parts, [(kernel, parts)]
    return parts, [(reduction_of(kernel), -(-parts // tile.parts_per_workgroup)), last]


def reduction_of(kernel: Kernel) -> Kernel:
    """Return the kernel of the first dispatch of three_dispatch."""
    return replace(kernel, stage="reduce", spec=replace(kernel.spec, exclusive=False))


def grid_of(tiles: int, limit: int) -> tuple[int, int, int]:
    """Return the smallest nearly even grid of at least this many workgroups with no side over the limit.

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


# ----- Reversed rows


def reverses_rows(spec: ScanSpec) -> bool:
    """Return True if there are several contiguous rows, and each is reversed in its place."""
    return spec.reverse and spec.inner == 1 and not spec.backwards_as_one


def find_unaligned_sizes(spec: ScanSpec, length: int) -> tuple[int, ...]:
    """Return the sizes of elements, in bytes, with which chunks begin within a 32-bit word.

    Chunks of a single reversed row do if the row does not end with a word. For columns, see
    `ScanSpec.unaligned_columns`.
    """
    if spec.inner > 1:
        return spec.unaligned_columns
    if not spec.backwards_as_one:
        return ()
    fields = (*spec.source.fields, *spec.destination.fields)
    sizes = {field.storage_bytes for field in fields if length * field.storage_bytes % 4}
    return tuple(sorted(sizes))


def shares_words(spec: ScanSpec, length: int) -> bool:
    """Return True if invocations may store parts of one word, so that the array cannot be scanned in place."""
    packed = any(field.scalar.packed for field in spec.destination.fields)
    return (reverses_rows(spec) and packed) or bool(find_unaligned_sizes(spec, length))
