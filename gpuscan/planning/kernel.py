"""Describe one shader as a value: its stage, its strategy, and all that decides its text and its bindings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import ClassVar

from gpuscan.elements import Field, HashedOnce
from gpuscan.operators.user_wgsl import label
from gpuscan.planning.heuristics import CPU, GPU, Heuristics
from gpuscan.planning.kernel_parts import (
    NO_FAULTS,
    Access,
    BoundArray,
    Fold,
    InjectedFaults,
    PostFormat,
    Target,
    WaitPolicy,
)
from gpuscan.planning.spec import ShaderSpec
from gpuscan.planning.tile_shapes import CANONICAL_GROUP, SPAN, ColumnTile, RowTile, Tile, TileShape

# Neighbouring elements that an invocation of a compaction moves at a time. See shaders/scan/compact.wgsl.
MOVED = 4

# The word of the counts at which the list of runs begins: where every adapter can bind it.
KEY_RUNS_AT = 64

# The word of the counts that has the number of elements that a partition does not select: where every adapter can bind
# it.
OTHERS_AT = 64


@dataclass(frozen=True)
class Kernel(HashedOnce):
    """One shader. Equal kernels have equal text, so a kernel is the key of a compiled pipeline.

    Attributes:
        stage: ``"scan"``, ``"reduce"``, ``"scan_totals"`` or ``"carry"``: the template of that name.
        strategy: the way in which a tile learns its prefix; ``"alone"`` if it holds whole rows and has no prefix.
        spec: the scan that the shader computes.
        tile: the tile's shape.
        access: how the arrays are read and written.
        target: what the device's shaders may use.
        wait_policy: how a tile waits.
        test_build: faults that a test injects.
    """

    stage: str
    strategy: str
    spec: ShaderSpec
    tile: Tile
    access: Access
    target: Target
    wait_policy: WaitPolicy
    test_build: InjectedFaults = NO_FAULTS

    __hash__ = HashedOnce.__hash__

    @property
    def template(self) -> str:
        """The path of the stage's template under shaders/."""
        if self.folds_rows and self.posts:
            return "rows/look_back.wgsl"
        if self.folds_rows:
            return "rows/store_totals.wgsl" if self.stage == "scan" else "rows/reduce.wgsl"
        if self.stores_totals:
            return "scan/store_totals.wgsl"
        if self.reduces_columns and self.stage == "scan":
            return "columns/store_totals.wgsl"
        if self.spec.everywhere and self.stage == "scan_totals":
            return "scan/halve_totals.wgsl"
        return f"{'columns' if self.in_columns else 'scan'}/{self.stage}.wgsl"

    @property
    def operator_label(self) -> str:
        """The operator's name for comments and labels."""
        return label(self.spec.operator_name)

    @property
    def heuristics(self) -> Heuristics:
        """The tuning constants for the adapter's class."""
        return CPU if self.target.is_cpu_adapter else GPU

    # ----- Rows and chunks

    @property
    def in_columns(self) -> bool:
        """True if neighbours in memory belong to different rows."""
        return isinstance(self.tile, ColumnTile)

    @property
    def reads_backwards(self) -> bool:
        """True if a chunk is read from its end."""
        return self.spec.reverse and not self.in_columns

    @property
    def segmented(self) -> bool:
        """True if items carry a head flag, since several rows or segments share tiles."""
        cut = self.spec.has_segment_bits and not self.spec.picks_heads
        return (cut or self.access.several_rows) and not self.tile.per_row

    @property
    def heads_cut_off(self) -> bool:
        """True if a head makes all before it needless. Where heads are counted, it does not."""
        return self.segmented and not self.spec.reduces_segments

    @property
    def several_rows(self) -> bool:
        """True if there are several contiguous rows. A reversed scan then reverses each row by itself."""
        return self.tile.per_row or (
            self.access.several_rows and not (self.spec.has_segment_bits or self.access.reversed_together)
        )

    @property
    def heads_begin_chunks(self) -> bool:
        """True if the shader assumes that rows begin only where chunks begin.

        An H100 then takes 5 to 15 % less time where rows share tiles, and half for 16-bit floats. Bundles of two arrays
        fill its registers and take a quarter more.
        """
        return self.tile.per_row or (self.access.whole_chunks and len(self.spec.source.fields) == 1)

    @property
    def single_elements(self) -> bool:
        """True if each element is loaded and stored by itself, since a reversed chunk holds parts of two rows."""
        return self.reads_backwards and self.several_rows and not self.access.whole_chunks

    @property
    def subgroups(self) -> bool:
        """True if the shader uses subgroup operations."""
        return self.tile.subgroup_size > 0

    @property
    def item_words(self) -> int:
        """The 32-bit words of an item: the element's, and one for the head flag."""
        return self.spec.element.words + (1 if self.segmented else 0)

    # ----- Posts and folds

    @property
    def posts(self) -> bool:
        """True if tiles post to each other, in words that carry the epoch. Otherwise totals are plain words."""
        return self.strategy not in ("three_dispatch", "alone")

    @property
    def wide(self) -> bool:
        """True if posts are interleaved, and scans through workgroup memory are loops, since items are wide."""
        return self.item_words >= self.heuristics.wide_words

    @property
    def prefix_post(self) -> str:
        """The name of the WGSL functions that write and read prefixes: ``write_`` and ``read_`` stand before it.

        It is "prefix" if a prefix is posted in fewer words than an item has, and otherwise "post", as for aggregates.
        """
        folds = self.wait_policy.one_workgroup_folds and not self.spec.everywhere
        return "prefix" if folds and len(self.prefix_words) < self.item_words else "post"

    @cached_property
    def prefix_words(self) -> tuple[int, ...]:
        """The indices of the words of an item that a tile needs of its prefix.

        The head flag of a prefix is never needed. If the items are maps ``h -> a h + b`` that are applied to an initial
        value, a tile needs only ``b``.
        """
        spec = self.spec
        needs_all = spec.carry_out or spec.reduces_segments or spec.neighbour_field or spec.compacts or self.in_columns
        if needs_all:
            return tuple(range(self.item_words))
        sizes = [field.words for field in spec.element.fields]
        starts = [sum(sizes[:field]) for field in range(len(sizes))]
        # A post has at least one word, which says that it is complete.
        return tuple(starts[field] + word for field in spec.fields_of_prefix for word in range(sizes[field])) or (0,)

    @cached_property
    def post_format(self) -> PostFormat:
        """The words of a post."""
        # Where each tile looks back over single words, an H100 takes 905 us for 2^28 by halves, 976 by 64-bit words.
        single = self.item_words == 1 and self.strategy in ("lookback", "fallback")
        read_once = self.wait_policy.one_workgroup_folds or self.wait_policy.at_once or self.in_columns
        in_64_bits = self.target.int64_atomics and (read_once or not single)
        return PostFormat(self.item_words, in_64_bits, stride=self.tile.block if self.wide else 1)

    @cached_property
    def fold(self) -> Fold:
        """The way in which a workgroup folds the aggregates of all tiles."""
        one_a_load = self.wide and self.tile.chunk == 1  # an element fills a lane's load
        short = not (one_a_load or self.spec.combine.long)
        blocks = self.heuristics.fold_blocks if short else self.heuristics.long_fold_blocks
        # If several workgroups may fold in turn, reading ahead costs an H100 3 to 30 % under lookback, 10 % under
        # fallback.
        return Fold(blocks, reads_ahead=blocks == 1 and self.strategy == "lookahead")

    # ----- Scans over lanes and blocks

    @property
    def block_in_subgroup(self) -> bool:
        """True if one subgroup is wide enough to look at a block of tiles at once."""
        return self.tile.subgroup_size >= self.tile.block

    @property
    def loops_over_lanes(self) -> bool:
        """True if scans over lanes are loops, so that the shader contains the operator once and not for each distance.

        An H100 then compiles wide items and long operators in half the time, and runs them as fast. Bytes compile in
        two thirds of the time and run 1 % slower. Other single words would run 3 % slower on short arrays.
        """
        bytewise = min(field.storage_bytes for field in self.spec.source.fields) == 1
        return bytewise or self.wide or self.spec.combine.long

    @property
    def loops_over_block(self) -> bool:
        """True if the scan over the lanes of a block is a loop. Tiles wait for it, so wide items are unrolled."""
        h = self.heuristics
        most = h.max_unrolled_words_lookahead if self.strategy == "lookahead" else h.max_unrolled_words
        return (self.spec.combine.long and not self.wide) or self.item_words > most

    @property
    def totals_fit_subgroup(self) -> bool:
        """True if one subgroup can scan the totals of all bands of the workgroup."""
        return self.tile.bands_per_workgroup <= self.tile.subgroup_size

    @property
    def uses_scratch(self) -> bool:
        """True if some scan goes through workgroup memory."""
        return not self.subgroups or not self.totals_fit_subgroup or not self.block_in_subgroup

    @property
    def has_bools(self) -> bool:
        """True if an item has bools. In workgroup memory they are words: NVIDIA's compiler loses writes of bools."""
        return any(field.scalar.kind == "bool" for field in self.spec.element.fields)

    @property
    def tiles_per_span(self) -> int:
        """The tiles of a span in the canonical order."""
        return SPAN // self.tile.tile_size

    @property
    def chunks_per_group(self) -> int:
        """The chunks of a group in the canonical order."""
        return CANONICAL_GROUP

    @property
    def tile_leads(self) -> int:
        """The items before a tile in the canonical order: a half for each bit of its number, and the fold of spans."""
        return self.tiles_per_span.bit_length()

    @property
    def blocks_at_once(self) -> int:
        """The blocks of totals that scan_totals scans at a time, one in each subgroup."""
        return self.tile.subgroups_per_workgroup if self.block_in_subgroup else 1

    # ----- Reductions

    @property
    def stores_totals(self) -> bool:
        """True if this is the last stage of a reduction that needs no scan, only the aggregates of tiles."""
        only_totals = self.spec.keep_last_only and self.spec.combine.order_free
        return self.stage == "scan" and only_totals and not (self.segmented or self.in_columns or self.folds_rows)

    @property
    def stores_one_total(self) -> bool:
        """True if a scan of tiles stores one result in all: the total of the only row."""
        elsewhere = self.segmented or self.tile.per_row or self.in_columns or self.stores_totals
        return self.spec.reduces_rows and not (elsewhere or self.spec.everywhere)

    @property
    def folds_rows(self) -> bool:
        """True if this is a stage of a reduction of rows in any order. Parts are reduced, and then their totals."""
        return isinstance(self.tile, RowTile)

    @property
    def reduces_columns(self) -> bool:
        """True if this is a stage of a reduction down columns. Tiles are reduced, and then their totals."""
        return self.in_columns and self.spec.reduces_rows

    @property
    def loads_at_once(self) -> int:
        """The rows, or chunks, that an invocation of a reduction loads before it combines them."""
        if isinstance(self.tile, RowTile):
            return self.tile.loads
        return self.tile.rows if isinstance(self.tile, ColumnTile) else 1

    @property
    def reduces_in_any_order(self) -> bool:
        """True if a tile's elements are combined lane by lane first, which changes no bit of the tile's aggregate.

        A scan keeps to the order: floats so that every strategy gives the same NaN, and others since nothing is gained.
        """
        reduces = self.stores_totals or (self.stage == "reduce" and self.spec.keep_last_only)
        elsewhere = self.segmented or self.in_columns or self.folds_rows
        return self.spec.combine.order_free and reduces and not elsewhere

    # ----- What a tile does while it waits

    @property
    def takes_steps(self) -> bool:
        """True if the loop's own steps compute the results within a chunk. Maps are composed for its total."""
        tile, stage = self.tile, self.stage in ("scan", "reduce")
        joined_once = tile.single_lead or not self.subgroups
        fits = isinstance(tile, TileShape) and joined_once and tile.chunk > 1
        return self.spec.steps is not None and stage and fits and not self.access.via_workgroup_memory

    @property
    def reloads_after_help(self) -> bool:
        """True if a workgroup under fallback drops its own tile while it reduces a late one, and loads it again.

        Keeping the elements meanwhile would cost a GPU registers all the time: a tenth of an H100's speed. llvmpipe
        keeps them, since it takes long to compile loops.
        """
        scans = self.stage == "scan" and not self.stores_totals
        return self.strategy == "fallback" and scans and self.block_in_subgroup and not self.in_columns

    @property
    def times_out(self) -> bool:
        """True if a tile may give up. One that reduces late tiles itself does not, unless the driver ends its loop."""
        return self.target.driver_ends_loops or not self.reloads_after_help

    @property
    def repeats_tile(self) -> bool:
        """True if a workgroup may drop its own tile to do something for others, and loads it again."""
        return self.reloads_after_help or (self.strategy == "lookahead" and self.stage == "scan")

    @property
    def reduces(self) -> bool:
        """True if the shader has a function that reduces a tile."""
        reduces = self.stage == "reduce" or self.stores_totals
        return reduces or (self.strategy == "fallback" and not self.reloads_after_help)

    @property
    def keeps_storage_form(self) -> bool:
        """True if an invocation keeps its chunks in their storage form while its tile waits."""
        return self.access.recomputes_scan and self.stage == "scan" and self.subgroups and not self.stores_totals

    @property
    def exchanges_chunks(self) -> bool:
        """True if chunks go through workgroup memory: see shaders/scan/chunk_exchange.wgsl."""
        return self.access.via_workgroup_memory and self.stage in ("scan", "reduce")

    @property
    def loads_words_first(self) -> bool:
        """True if a chunk's words are loaded by one function and turned into elements by another."""
        return self.keeps_storage_form or self.exchanges_chunks

    @property
    def tiles_by_number(self) -> bool:
        """True if each workgroup takes the tile of its own number. Otherwise workgroups draw tickets."""
        return self.target.starts_in_order and not self.test_build.needs_tickets

    @property
    def last_tiles_first(self) -> bool:
        """True if the last tiles are scanned first, since a GPU's cache still holds the end of the reduction's input.

        An H100 takes 151.5 instead of 157.5 us for 2^25 words then. lavapipe takes 5.4 instead of 4.8 ms for 2^22.
        """
        return self.stage == "scan" and self.strategy == "three_dispatch" and not self.target.is_cpu_adapter

    @property
    def moved_at_once(self) -> int:
        """The loads in one iteration of a compaction, so that several are under way."""
        words = self.heuristics.moved_words_in_flight // (2 if self.spec.partitions else 1)
        return max(1, words // self.spec.result.words)

    # ----- Bindings: 0 parameters, 1 tile state, then the sources, the destinations and `after_arrays`
    state_binding = 1
    # A subclass has numbers and names of its own.
    first_array: ClassVar[int] = 2
    after_arrays: ClassVar[tuple[str, ...]] = ("seeds", "carries", "carry_out", "heads", "captured", "count", "views")

    @cached_property
    def sources(self) -> tuple[BoundArray, ...]:
        """The arrays that are loaded."""
        access = "read_write" if self.access.shared or self.access.in_place else "read"
        views = self.access.views or [""] * len(self.spec.source.fields)
        return tuple(
            BoundArray(
                f"source{i}",
                self.first_array + i,
                access,
                1 if views[i] else self.field_width(field),
                view=views[i],
                number=i,
            )
            for i, field in enumerate(self.spec.source.fields)
        )

    @property
    def stores_results(self) -> bool:
        """True if the stage stores results for the caller."""
        return self.stage == "scan"

    @cached_property
    def destinations(self) -> tuple[BoundArray, ...]:
        """The arrays that are stored."""
        if not self.stores_results:
            return ()
        if self.access.in_place:
            return self.sources
        bound = []
        for i, field in enumerate(self.spec.destination.fields):
            number, atomic = len(self.spec.source.fields) + i, self.shares_words(field)
            view = self.access.views[number] if self.access.views else ""
            width = 1 if self.stores_singly or atomic or view else self.field_width(field)
            bound.append(
                BoundArray(f"destination{i}", self.first_array + number, "read_write", width, atomic, view, number)
            )
        return tuple(bound)

    def binding_of(self, name: str) -> int:
        """Return the number of a binding. These bindings are numbered after the arrays."""
        arrays = len(self.spec.source.fields) + len(self.spec.destination.fields)
        return self.first_array + arrays + self.after_arrays.index(name)

    @cached_property
    def uniforms(self) -> tuple[tuple[int, str], ...]:
        """The number and the role of each uniform buffer but the parameters."""
        views = self.stage in ("scan", "reduce") and any(array.view for array in self.arrays)
        used = {"captured": self.spec.captured_functions, "views": views}
        return tuple((self.binding_of(role), role) for role in used if used[role])

    @cached_property
    def arrays(self) -> tuple[BoundArray, ...]:
        """The sources and destinations, each once."""
        return tuple(dict.fromkeys((*self.sources, *self.destinations)))

    @cached_property
    def bindings(self) -> tuple[BoundArray, ...]:
        """Every storage buffer that the stage binds."""
        spec = self.spec
        bound = [BoundArray("state", self.state_binding, "read_write")]
        if self.stage in ("scan", "reduce"):
            bound += self.arrays
            if spec.seeded or spec.has_tail_values:
                bound.append(BoundArray("seeds", self.binding_of("seeds"), "read"))
            if spec.has_segment_bits:
                bound.append(BoundArray("heads", self.binding_of("heads"), "read"))
            if (spec.compacts or spec.lists_key_runs) and self.destinations:
                bound.append(BoundArray("count", self.binding_of("count"), "read_write"))
        reads_carry = spec.everywhere and self.stage == "scan"
        if spec.carried and (self.stage == "scan_totals" or self.strategy != "three_dispatch" or reads_carry):
            bound.append(BoundArray("carries", self.binding_of("carries"), "read"))
        if spec.carry_out and self.stage in ("scan_totals", "carry"):
            bound.append(BoundArray("carry_out", self.binding_of("carry_out"), "read_write"))
        return tuple(bound)

    @cached_property
    def slots(self) -> tuple[tuple[int, str, int], ...]:
        """The bindings: for each its number, its role, and its index among the sources or destinations."""
        roles = {array: ("destination", i) for i, array in enumerate(self.destinations)}
        roles |= {array: ("source", i) for i, array in enumerate(self.sources)}
        slots = tuple((array.binding, *roles.get(array, (array.name, 0))) for array in self.bindings)
        return (*slots, *((binding, role, 0) for binding, role in self.uniforms))

    @cached_property
    def cleared(self) -> tuple[int, ...]:
        """The numbers of the destinations that must be zero before the scan, since single results are added."""
        fields = self.spec.destination.fields if self.stores_singly else ()
        return tuple(i for i, field in enumerate(fields) if field.scalar.packed)

    @property
    def stores_singly(self) -> bool:
        """True if each result is stored by itself."""
        return (
            (self.spec.keep_last_only and not self.access.whole_results) or self.spec.compacts or self.single_elements
        )

    # ----- Accesses to a field's array

    def field_width(self, field: Field) -> int:
        """Return the 32-bit words of one access to the field's array: the most that are allowed and divide a chunk."""
        mask = None if self.spec.before or self.spec.picks_heads else self.spec.source.fields[0]
        moved = self.spec.compacts and field is not mask
        return gcd(self.access.width, (MOVED if moved else self.tile.chunk) * field.storage_bytes // 4)

    def chunk_accesses(self, field: Field, width: int | None = None) -> int:
        """Return the number of accesses that a chunk of the field takes, each of `width` words."""
        width = width or self.field_width(field)
        return self.tile.chunk * field.storage_bytes // 4 // width + self.is_unaligned(field)

    @property
    def exchange_vectors(self) -> int:
        """The vectors of workgroup memory through which one step's chunks go: see shaders/scan/chunk_exchange.wgsl."""
        accesses = self.chunk_accesses(self.spec.source.fields[0], 1 if self.access.views else None)
        vectors = self.tile.workgroup_size * accesses
        return vectors + (vectors // 8 if accesses % 2 == 0 else 0)

    def shares_words(self, field: Field) -> bool:
        """Return True if invocations store parts of one word of the destination."""
        return self.is_unaligned(field) or (self.stores_singly and field.scalar.packed)

    def is_unaligned(self, field: Field) -> bool:
        """Return True if the field's chunks begin and end within words, or past the end of a row."""
        return field.storage_bytes in self.access.unaligned_sizes
