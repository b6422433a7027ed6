"""Decide how segments by offsets are reduced in three stages, without a look-back.

Elements are cut into tiles. The first stage marks where segments begin, finds the first segment of each tile, and
stores the results of empty segments. The second stage combines the elements of each tile segment by segment, and stores
the results of the segments that are whole in a tile. The third stage joins the parts of the other segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpuscan.elements import HashedOnce, Scalar, min_chunk
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import Access, BoundArray, WaitPolicy
from gpuscan.planning.key_heuristics import SEGMENTS
from gpuscan.planning.plan import ACCESS_WORDS, LENGTH_LIMIT, target_of
from gpuscan.planning.sort_plan import fewest_lanes
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape, power_below
from gpuscan.planning.tiles import max_invocations
from gpuscan.problem.packed_fields import STORAGE_LIMIT

# A word has a bit for each of the neighbouring elements that an invocation combines.
_MOST_OWN = 32


@dataclass(frozen=True, kw_only=True)
class SegmentKernel(Kernel):
    """One shader of a reduction of segments: ``"find_segments"``, ``"fold_segments"`` or ``"join_segments"``.

    Attributes:
        offset: the type of the offsets.
        segment_tile: the elements of a tile.
        checked: True to check the offsets.
        needs_full: True to check also that no segment is empty.
        fills: True if empty segments have results.
        joined_tiles: the tiles of a workgroup that joins segments. It joins segments that begin there and go on.
        few_parts: the most parts of a segment that one invocation joins.
        segments_each: the segments that an invocation looks at, to check and to fill them.
    """

    offset: Scalar
    segment_tile: int
    checked: bool
    needs_full: bool
    fills: bool
    joined_tiles: int
    few_parts: int
    segments_each: int

    first_array = 1
    after_arrays = ("memory", "offsets", "heads", "seeds", "fills", "captured", "validation_flag")
    __hash__ = HashedOnce.__hash__

    @property
    def template(self) -> str:
        """The path of the stage's template under shaders/."""
        return f"segments/{self.stage}.wgsl"

    @property
    def marks(self) -> bool:
        """True if the stage marks where segments begin."""
        return self.stage == "find_segments"

    @property
    def results_at_once(self) -> int:
        """The offsets that an invocation of the second stage loads before it stores the results of their segments."""
        return SEGMENTS.results_at_once

    @property
    def segmented(self) -> bool:
        """True if items carry a head flag, as they do between invocations of the second stage."""
        return self.stage == "fold_segments"

    @property
    def loops_over_elements(self) -> bool:
        """True if an invocation combines its elements in a loop, so that the shader compiles sooner."""
        return self.spec.combine.long

    @property
    def loops_over_lanes(self) -> bool:
        """True if the scan over lanes is a loop, for the same reason."""
        return self.spec.combine.long or self.item_words > SEGMENTS.max_unrolled_words

    @property
    def stores_results(self) -> bool:
        """True: each stage stores some of them."""
        return True

    @cached_property
    def arrays(self) -> tuple[BoundArray, ...]:
        """The arrays that the stage binds."""
        return (*self.sources, *self.destinations) if self.stage == "fold_segments" else self.destinations

    @cached_property
    def bindings(self) -> tuple[BoundArray, ...]:
        """Every storage buffer that the stage binds."""
        bound = [*self.arrays, BoundArray("memory", self.binding_of("memory"), "read_write")]
        bound.append(BoundArray("offsets", self.binding_of("offsets"), "read"))
        if self.stage != "join_segments":
            bound.append(BoundArray("heads", self.binding_of("heads"), "read_write" if self.marks else "read"))
        if self.spec.seeded and not self.marks:
            bound.append(BoundArray("seeds", self.binding_of("seeds"), "read"))
        if self.fills:
            bound.append(BoundArray("fills", self.binding_of("fills"), "read"))
        if self.checked:
            bound.append(BoundArray("validation_flag", self.binding_of("validation_flag"), "read_write"))
        return tuple(bound)


@dataclass(frozen=True)
class SegmentPlan:
    """The shape of a reduction of segments.

    Attributes:
        find, fold, join: the stages.
        length: the elements of all rows.
        segments: the segments of all rows.
    """

    find: SegmentKernel
    fold: SegmentKernel
    join: SegmentKernel
    length: int
    segments: int

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return -(-self.length // self.fold.segment_tile)

    @property
    def searches(self) -> int:
        """The workgroups of the first stage that find the first segments of tiles, and of the end."""
        return -(-(self.tiles + 1) // self.find.tile.workgroup_size)

    @property
    def stages(self) -> tuple[tuple[SegmentKernel, int], ...]:
        """The stages with their numbers of workgroups."""
        looks = -(-self.segments // (self.find.segments_each * self.find.tile.workgroup_size))
        joins = -(-self.tiles // self.join.joined_tiles)
        return ((self.find, self.searches + looks), (self.fold, self.tiles), (self.join, joins))

    @property
    def memory_words(self) -> int:
        """The words of what stages keep about tiles."""
        return self.tiles * (2 + 2 * self.fold.spec.element.words) + 1

    @property
    def head_words(self) -> int:
        """The words of the bits that say where segments begin."""
        return self.length // 32 + 1


def plan_segments(
    spec: ScanSpec,
    segments: int,
    offset: Scalar,
    capabilities: Capabilities,
    *,
    checked: bool,
    needs_full: bool,
    fills: bool,
) -> SegmentPlan | None:
    """Return how segments are reduced in three stages; None if that cannot be.

    Args:
        spec: the reduction of contiguous rows, without heads.
        segments: the segments of a row.
        offset: the type of the offsets.
        checked, needs_full, fills: as in `SegmentKernel`.
    """
    if spec.combine.loops or any(spec.field_offsets) or spec.reverse or spec.length >= LENGTH_LIMIT:
        return None
    tile = _tile(spec, capabilities)
    if tile is None:
        return None
    own = tile.steps * tile.chunk

    def stage(name: str, shape: TileShape) -> SegmentKernel:
        return SegmentKernel(
            stage=name,
            strategy="alone",
            spec=spec.shader_spec,
            tile=shape,
            access=Access(width=ACCESS_WORDS, several_rows=spec.rows > 1),
            target=target_of(capabilities),
            wait_policy=WaitPolicy(1, 1),
            offset=offset,
            segment_tile=tile.workgroup_size * own,
            checked=checked and name == "find_segments",
            needs_full=needs_full,
            fills=fills and name == "find_segments",
            joined_tiles=SEGMENTS.joined_tiles,
            few_parts=SEGMENTS.few_parts,
            segments_each=SEGMENTS.segments_each,
        )

    joining = power_below(
        min(SEGMENTS.lanes, max_invocations(capabilities), _words_for_elements(capabilities) // spec.element.words)
    )
    fold, join = stage("fold_segments", tile), stage("join_segments", TileShape(joining, 0, 1, tile.chunk))
    find = stage("find_segments", TileShape(SEGMENTS.finding_lanes, 0, 1, tile.chunk))
    if max(len(stage_kernel.bindings) for stage_kernel in (find, fold, join)) > capabilities.limits[STORAGE_LIMIT]:
        return None
    return SegmentPlan(find, fold, join, spec.length, segments * spec.rows)


def _words_for_elements(capabilities: Capabilities) -> int:
    """Return the words of workgroup memory for elements."""
    return capabilities.limits["max-compute-workgroup-storage-size"] // 4 - SEGMENTS.other_words


def _tile(spec: ScanSpec, capabilities: Capabilities) -> TileShape | None:
    """Return the shape of a tile of the second stage; None if too few elements fit workgroup memory."""
    if capabilities.adapter_type == "CPU":  # lavapipe takes 1.3 times as long as with segment bits
        return None
    h, words = SEGMENTS, spec.element.words
    size = capabilities.subgroup_size
    if size and {fewest_lanes(capabilities)} != set(capabilities.subgroup_sizes):
        size = 0  # a shader may get subgroups of another size, which this stage does not report
    chunk = min_chunk(spec.source)
    widest = max(field.storage_bytes for field in spec.source.fields)
    while chunk * 2 * widest <= 4 * ACCESS_WORDS:
        chunk *= 2
    own = max(chunk, power_below(min(h.own_words // words, _MOST_OWN)))
    most = min(h.lanes, h.tile_words // (own * words), max_invocations(capabilities))
    lanes = power_below(
        min(max(most, size, h.min_lanes), _words_for_elements(capabilities) // (own * words + words + 2))
    )
    return TileShape(lanes, size, own // chunk, chunk) if own <= _MOST_OWN and lanes >= max(size, h.min_lanes) else None
