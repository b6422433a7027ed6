"""Decide how groups are scanned if only the GPU knows how many labels there are.

Rows are cut into sections, and a table has a carry for each section and label, as in `gpuscan.planning.group_plan`.
The GPU chooses the number of sections, so that the table fits its memory. Workgroups sort the elements of a section by
their labels, tile by tile, so no workgroup needs memory for all labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuscan.elements import Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.group_plan import GroupKernel
from gpuscan.planning.kernel_parts import Access, WaitPolicy
from gpuscan.planning.key_heuristics import GroupHeuristics, group_heuristics_for
from gpuscan.planning.plan import target_of
from gpuscan.planning.sort_plan import fewest_lanes
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape, power_below
from gpuscan.problem.packed_fields import STORAGE_LIMIT

# Shaders count elements and the words of the table in 32 bits.
_MOST_COUNTED = 2**31
# Invocations of a workgroup that sorts tiles: one for each value of a digit.
WORKGROUP = 256
# A table for few elements has room for this many carries.
_LEAST_CARRIES = 64
# The counters of digits, at most.
_COUNTERS = 2048
# The words of workgroup memory that a tile needs once.
_WORDS = 64


@dataclass(frozen=True)
class UncountedGroups:
    """The shape of a scan of groups by a table, for any number of labels.

    Attributes:
        rows: the number of rows.
        row_length: the elements in a row.
        carries: the carries that the table has room for.
        unit: the elements of a unit. Sections have whole units, but for the last one of a row.
        sections: the sections of all rows, about: no more, if there are fewer rows.
        max_section_length: the elements of a section, at most.
        max_labels: the most labels.
        kernels: the stages, in their order.
        max_partitioned: the most labels if elements are sorted by buckets of labels first; 0 if they cannot be.
        partitioned: the stages then.
        heuristics: the choices that were measured.
    """

    rows: int
    row_length: int
    carries: int
    unit: int
    sections: int
    max_section_length: int
    max_labels: int
    kernels: tuple[GroupKernel, ...]
    max_partitioned: int
    partitioned: tuple[GroupKernel, ...]
    heuristics: GroupHeuristics

    @property
    def table_words(self) -> int:
        """The 32-bit words of the table."""
        return self.carries * self.kernels[0].carry_words

    @property
    def cleared_words(self) -> int:
        """The words of the table that are cleared first: the marks."""
        return self.carries if self.kernels[0].marked else 0

    @property
    def local_words(self) -> int:
        """The 32-bit words of the results within sections; 0 if elements are loaded again instead."""
        sorts = self.kernels[0].stage == "combine_tiles"
        return self.rows * self.row_length * self.kernels[0].item_words if sorts else 0

    def workgroups(self, kernel: GroupKernel) -> int:
        """Return the number of workgroups of a stage. In the last stages, a workgroup may take several parts."""
        tile, most = kernel.tile, self.heuristics.most_workgroups
        if kernel.stage == "combine_tiles":
            return max(self.rows, self.sections)
        if kernel.stage in ("combine_groups", "scan_groups"):
            return -(-max(self.rows, self.sections) // tile.workgroup_size)
        if kernel.stage == "scan_carries":
            return min(most, -(-self.carries // (tile.workgroup_size // kernel.parts)))
        return min(most, -(-self.rows * self.row_length // tile.tile_size))


def plan_uncounted(
    spec: ScanSpec, label: Scalar, capabilities: Capabilities, *, partitions: bool
) -> UncountedGroups | None:
    """Return how groups are scanned if there are few enough labels; None if that cannot be.

    Args:
        spec: the scan of contiguous rows, without heads.
        label: the type of the labels.
        partitions: True if elements can be sorted by the buckets of their labels.
    """
    h, limits = group_heuristics_for(capabilities.adapter_type), capabilities.limits
    words = spec.element.words
    if spec.combine.loops or spec.field_offsets or words > h.max_words or spec.length > _MOST_COUNTED // words:
        return None
    tile = _tile_of_sorted_groups(spec, capabilities) if h.subgroups else TileShape(h.serial_workgroup, 0, 1, h.steps)
    if tile is None:
        return None
    first = GroupKernel(
        "combine_tiles" if h.subgroups else "combine_groups",
        "table",
        spec.shader_spec,
        tile,
        Access(width=1),
        target_of(capabilities),
        WaitPolicy(1, 1),
        label=label,
        max_subgroups=tile.workgroup_size // fewest_lanes(capabilities) if h.subgroups else 1,
        marked=not h.subgroups,
        interleaved=h.subgroups,
    )
    carrying = replace(
        first,
        stage="scan_carries",
        tile=TileShape(h.carry_columns * h.carry_parts, 0, 1, 1),
        max_subgroups=1,
        parts=h.carry_parts,
        carry_loads=h.carry_loads,
    )
    if h.subgroups:
        unit, longest = tile.tile_size, max(tile.tile_size, -(-spec.length // h.min_sections))
        last = replace(first, stage="finish_groups", tile=TileShape(WORKGROUP, 0, 1, h.finished_items))
        # A label and a place in a tile share a word.
        most = 2**32 // unit
    else:
        unit, longest, most = h.min_section_length, h.max_section_length, _MOST_COUNTED
        last = replace(first, stage="scan_groups")
    kernels = first, carrying, last
    # In smaller tiles there is room for more labels. Few sections have elements of a bucket.
    items = min(h.bucket_items, tile.chunk)
    own = replace(first, tile=replace(tile, chunk=items)) if h.subgroups else first
    scanning = replace(carrying, tile=TileShape(WORKGROUP, 0, 1, 1), parts=h.bucket_parts)
    placing = replace(last, stage="place_results")
    partitioned = tuple(replace(kernel, partitioned=True) for kernel in (own, scanning, last, placing))
    storage = limits[STORAGE_LIMIT]
    partitions = partitions and h.subgroups and spec.rows == 1 and not spec.reverse and not spec.index_step
    partitions = partitions and all(len(kernel.bindings) <= storage for kernel in partitioned)
    if any(len(kernel.bindings) > storage for kernel in kernels):
        return None
    moved_words = sum(f.storage_bytes for f in (*spec.source.fields, *spec.destination.fields)) / 4
    wanted = math.floor(spec.length * moved_words * h.max_table_share / first.carry_words)
    carries = min(max(_LEAST_CARRIES, wanted), limits["max-storage-buffer-binding-size"] // (4 * first.carry_words))
    sections = max(h.uncounted_sections, -(-spec.length // longest))
    return UncountedGroups(
        spec.rows,
        spec.row_length,
        carries,
        unit,
        sections,
        -(-longest // unit) * unit,
        min(most, h.max_tabled_labels) if partitions else most,
        kernels,
        2**32 // own.tile.tile_size if partitions else 0,
        partitioned,
        h,
    )


def _tile_of_sorted_groups(spec: ScanSpec, capabilities: Capabilities) -> TileShape | None:
    """Return the shape of a tile that a workgroup sorts by its labels; None if the device cannot."""
    h, limits = group_heuristics_for(capabilities.adapter_type), capabilities.limits
    few = limits["max-compute-invocations-per-workgroup"] < WORKGROUP
    if spec.combine.neutral is None or capabilities.subgroup_size == 0 or few:
        return None
    words, subgroups = spec.element.words, WORKGROUP // fewest_lanes(capabilities)
    once = subgroups * (2 + words) + _WORDS
    items = min(h.tile_items, power_below(h.tile_words // words))
    while items and 4 * (_words_for_counters(items) + once) > limits["max-compute-workgroup-storage-size"]:
        items //= 2
    return TileShape(WORKGROUP, min(capabilities.subgroup_sizes), 1, items) if items else None


def _words_for_counters(items: int) -> int:
    """Return the words of workgroup memory for counters, and for the keys of tiles."""
    return max(_COUNTERS + 1, (items + 1) * WORKGROUP)
