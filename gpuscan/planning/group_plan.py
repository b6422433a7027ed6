"""Decide how groups of few labels are combined without a sort: by a table with a carry for each section and label.

Rows are cut into sections. Each section combines its elements label by label. A scan of the table along the sections
then gives each section its carries, one for each label. At last, each section combines its elements again, from its
carries on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gpuscan.elements import SCALARS, HashedOnce, Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import Access, BoundArray, WaitPolicy
from gpuscan.planning.key_heuristics import GroupHeuristics, group_heuristics_for
from gpuscan.planning.plan import target_of
from gpuscan.planning.sort_plan import fewest_lanes
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape, power_below
from gpuscan.problem.packed_fields import STORAGE_LIMIT

# A capacity is a multiple of this part of the next power of 2, so that few numbers of labels need shaders of their own.
_CAPACITY_STEPS = 8
# The bits of a digit by which tiles are sorted, at most, and the counters of a workgroup that sorts.
_MAX_DIGIT_BITS = 7
_COUNTERS = 2048
# Shaders count elements and the words of the table in 32 bits.
_MOST_COUNTED = 2**32 - 1


@dataclass(frozen=True)
class GroupKernel(Kernel):
    """One shader of a scan or reduction of groups by a table.

    Its stages are ``"combine_groups"``, ``"scan_carries"`` and ``"scan_groups"``, or in place of the last two
    ``"reduce_carries"``; if only the GPU knows the number of labels, ``"combine_tiles"``, ``"scan_carries"`` and
    ``"finish_groups"``. If ``partitioned``, ``"place_results"`` follows. The elements are loaded and stored one by one.

    Attributes:
        label: the type of the labels.
        label_bits: the bits in which labels may differ.
        capacity: the labels for which there is workgroup memory; 0 if each invocation has a section of its own.
        copies: the carries for each label in workgroup memory, if atomics combine elements there; else 0.
        in_table: True if atomics combine elements in the table.
        splits_labels: True if several workgroups take a section, each for some of the labels.
        encoded: True if the table has the bits of carries xored with the bits of the identity.
        checked: True to leave out missing labels and wrong ones, and to report the wrong ones.
        max_subgroups: the most subgroups that a workgroup may have. They take turns with its carries.
        marked: True if the table says which carries are there. Otherwise all are: they begin with the identity.
        alone: True if there are no carries before any section, since each is a whole row.
        parts: the parts of the sections that a workgroup scans the carries of side by side.
        carry_loads: the carries that an invocation loads at a time.
        interleaved: True if the words of each carry are side by side in the table.
        partitioned: True if elements were sorted by the buckets of their labels before.
    """

    label: Scalar = SCALARS["uint32"]
    label_bits: int = 0
    capacity: int = 0
    copies: int = 0
    in_table: bool = False
    splits_labels: bool = False
    encoded: bool = False
    checked: bool = False
    max_subgroups: int = 1
    marked: bool = True
    alone: bool = False
    parts: int = 1
    carry_loads: int = 1
    interleaved: bool = False
    partitioned: bool = False

    labels_binding = 1
    after_arrays = ("table", "seeds", "fills", "captured", "validation_flag", "locals", "moves")
    __hash__ = HashedOnce.__hash__

    @property
    def template(self) -> str:
        """The path of the stage's template under shaders/."""
        return f"groups/{'scan_carries' if self.stage == 'reduce_carries' else self.stage}.wgsl"

    @property
    def single_elements(self) -> bool:
        """True: each element is loaded and stored by itself."""
        return True

    @property
    def uses_scratch(self) -> bool:
        """False: no item goes through workgroup memory on its way to another invocation."""
        return False

    @property
    def carry_words(self) -> int:
        """The 32-bit words of a carry: the words of an item, and one for a mark if carries are marked."""
        return self.item_words + (1 if self.marked else 0)

    @property
    def digit_bits(self) -> int:
        """The bits of a digit by which tiles are sorted, at most: all subgroups have room for `_COUNTERS` counters."""
        return min(_MAX_DIGIT_BITS, (_COUNTERS // self.max_subgroups).bit_length() - 1)

    @property
    def locals_access(self) -> str:
        """How the stage accesses the results of elements within their sections."""
        stores = self.stage == "combine_tiles" or (self.partitioned and self.stage == "finish_groups")
        return "read_write" if stores else "read"

    @property
    def walk(self) -> str:
        """How sections are combined: the template of a main function in shaders/groups/."""
        if self.in_table:
            return "walk_by_table_atomics"
        return f"walk_by_{'atomics' if self.copies else 'subgroups' if self.subgroups else 'invocations'}"

    @property
    def stores_results(self) -> bool:
        """True if the stage stores results for the caller."""
        last = "place_results" if self.partitioned else "finish_groups"
        return self.stage in ("scan_groups", "reduce_carries", last)

    @cached_property
    def bindings(self) -> tuple[BoundArray, ...]:
        """Every storage buffer that the stage binds."""
        bound = [BoundArray("table", self.binding_of("table"), "read_write")]
        if self.stage in ("scan_carries", "reduce_carries"):
            bound += self.destinations
        else:
            bound += [BoundArray("labels", self.labels_binding, "read"), *self.arrays]
        if self.stage in ("combine_tiles", "finish_groups", "place_results"):
            bound.append(BoundArray("locals", self.binding_of("locals"), self.locals_access))
        if self.partitioned and self.stage in ("scan_carries", "place_results"):
            bound.append(BoundArray("moves", self.binding_of("moves"), "read"))
        if self.spec.seeded:
            bound.append(BoundArray("seeds", self.binding_of("seeds"), "read"))
        if self.stage == "reduce_carries" and self.marked:
            bound.append(BoundArray("fills", self.binding_of("fills"), "read"))
        if self.checked:
            bound.append(BoundArray("validation_flag", self.binding_of("validation_flag"), "read_write"))
        return tuple(bound)


@dataclass(frozen=True)
class GroupTable:
    """The shape of a scan or reduction of groups by a table.

    Attributes:
        groups: the labels of a row.
        rows: the number of rows.
        row_length: the elements in a row.
        section_length: the elements of a section; the last one of a row may have fewer.
        kernels: the stages, in their order.
        sharers: the workgroups that share a section if they combine by atomics: its elements in the table, or its
            labels.
    """

    groups: int
    rows: int
    row_length: int
    section_length: int
    kernels: tuple[GroupKernel, ...]
    sharers: int = 1

    @property
    def sections(self) -> int:
        """The sections of a row."""
        return -(-self.row_length // self.section_length)

    @property
    def plane(self) -> int:
        """The carries in the table. A plane has one word of each of them; if they are marked, a first one the marks."""
        return self.rows * self.sections * self.groups

    @property
    def results(self) -> int:
        """The results of a reduction. After the planes there is a word for each, if carries are marked."""
        return self.rows * self.groups

    @property
    def words(self) -> int:
        """The 32-bit words of the table."""
        return self.plane * self.kernels[0].carry_words + self.results

    @property
    def cleared_words(self) -> int:
        """The words of the table that are cleared first: marks, or carries that are combined in the table."""
        first = self.kernels[0]
        if first.in_table:
            return self.words
        return self.plane if first.stage in ("combine_groups", "scan_groups") and not first.capacity else 0

    def workgroups(self, kernel: GroupKernel) -> int:
        """Return the number of workgroups of a stage."""
        if kernel.stage in ("combine_groups", "scan_groups"):
            sections = self.rows * self.sections
            shared = kernel.in_table or kernel.capacity
            return sections * self.sharers if shared else -(-sections // kernel.tile.workgroup_size)
        return self.rows * -(-self.groups // (kernel.tile.workgroup_size // kernel.parts))


def plan_groups(
    spec: ScanSpec,
    label: Scalar,
    groups: int,
    capabilities: Capabilities,
    *,
    reduces: bool = False,
    subgroups: bool | None = None,
    section_length: int | None = None,
    label_parts: int | None = None,
) -> GroupTable | None:
    """Return how groups are combined by a table; None if that cannot be, or would be slower than a sort.

    Args:
        spec: the scan of contiguous rows, without heads. It has `initial` if the seeds of a reduction are the results
            of empty groups.
        label: the type of the labels.
        groups: the number of labels, 1 or more. In a scan, the labels' bits, taken for unsigned numbers, are less.
        reduces: True for one result for each label, without missing labels. The first stage checks the labels.
        subgroups: True to combine sections by subgroups (default: on GPUs that have subgroups).
        section_length: the elements of a section, to take a table whatever its size.
        label_parts: the workgroups that share the labels of a section, if a reduction combines by atomics; 0 to combine
            in the table (default: the faster way).
    """
    h = group_heuristics_for(capabilities.adapter_type)
    words = spec.element.words
    if spec.combine.loops or spec.field_offsets or spec.length > _MOST_COUNTED or words > h.max_words:
        return None
    if subgroups is None:
        subgroups = h.subgroups and capabilities.subgroup_size > 0
        if h.subgroups and not subgroups:
            return None
    by_atomics = subgroups and spec.combine.atomic is not None
    reduces_by_atomics = by_atomics and reduces
    # A walk without subgroups has its carries in the table, and leaves out the others.
    marked = not subgroups or spec.combine.neutral is None or (reduces and not spec.initial)
    carry_words = words + 1 if marked else words
    limits = capabilities.limits
    most_labels = (limits["max-compute-workgroup-storage-size"] // 4 - 1) // carry_words - 1  # in workgroup memory
    if label_parts is None:
        label_parts = -(-groups // most_labels) if reduces_by_atomics else 1
        label_parts = label_parts if label_parts <= h.most_label_parts else 0
    in_table, capacity = label_parts == 0, 0
    if subgroups and not in_table:
        labels = -(-groups // label_parts)
        if labels > most_labels:
            return None
        capacity = min(_capacity(labels), most_labels)
    walking = GroupKernel(
        "combine_groups",
        "table",
        spec.shader_spec,
        _walking_tile(spec, capabilities, subgroups, carry_words * capacity),
        Access(width=1),
        target_of(capabilities),
        WaitPolicy(1, 1),
        label=label,
        label_bits=(groups - 1).bit_length(),
        capacity=capacity,
        marked=marked,
    )
    if subgroups:
        walking = replace(walking, max_subgroups=walking.tile.workgroup_size // fewest_lanes(capabilities))
    combining = replace(walking, checked=reduces)
    if by_atomics:
        combining = replace(_by_atomics(combining, capabilities, in_table), splits_labels=label_parts > 1)
    sharers = max(1, label_parts)
    if in_table:
        unit = h.atomic_workgroup * h.atomic_steps
        tables = max(1, min(h.atomic_tables, h.atomic_table_words // (carry_words * groups * spec.rows)))
        section_length = section_length or -(-spec.row_length // (tables * unit)) * unit
        sharers = max(1, min(h.sections // spec.rows // tables, -(-section_length // unit)))
    elif section_length is None:
        unit = walking.tile.tile_size if subgroups else walking.tile.chunk
        sections = _atomic_shape(carry_words * capacity, h)[1] if reduces_by_atomics else h.sections
        section_length = _find_section_length(spec, h, carry_words * groups, unit, sections)
        if section_length is None and reduces_by_atomics:
            return plan_groups(spec, label, groups, capabilities, reduces=True, subgroups=True, label_parts=0)
        if section_length is None:
            return None
    carrying = _carrying_kernel(combining, capabilities, spec.row_length, section_length, reduces)
    if carrying is None:
        return None
    scanning = replace(walking, stage="scan_groups")
    if reduces:
        kernels: tuple[GroupKernel, ...] = (combining, carrying)
    elif section_length < spec.row_length or spec.initial:
        kernels = (combining, carrying, scanning)
    else:
        kernels = (replace(scanning, alone=True),)
    table = GroupTable(groups, spec.rows, spec.row_length, section_length, kernels, sharers)
    bound = max(len(kernel.bindings) for kernel in kernels)
    if bound > limits[STORAGE_LIMIT] or 4 * table.words > limits["max-storage-buffer-binding-size"]:
        return None
    return table


def _capacity(groups: int) -> int:
    """Return the number of labels that a shader has workgroup memory for: `groups`, or a few more."""
    step = max(1, (1 << (groups - 1).bit_length()) // _CAPACITY_STEPS)
    return -(-groups // step) * step


def _walking_tile(spec: ScanSpec, capabilities: Capabilities, subgroups: bool, memory_words: int) -> TileShape:
    """Return the invocations that go through a section together, and the elements that each loads at a time.

    Args:
        subgroups: True if the lanes of subgroups combine a section; otherwise each invocation has one of its own.
        memory_words: the words of the carries in workgroup memory.
    """
    h = group_heuristics_for(capabilities.adapter_type)
    most_loads = h.steps // spec.element.words // (4 if spec.combine.long else 1)
    if not subgroups:
        return TileShape(h.serial_workgroup, 0, 1, power_below(min(most_loads, spec.row_length)))
    lanes = fewest_lanes(capabilities)
    wanted = max(h.subgroups_per_workgroup, memory_words // h.carry_words_per_subgroup)
    most = min(-(-spec.row_length // lanes), capabilities.limits["max-compute-invocations-per-workgroup"] // lanes)
    workgroup = lanes * power_below(min(wanted, most))
    loads = power_below(min(most_loads, spec.row_length // workgroup))
    return TileShape(workgroup, min(capabilities.subgroup_sizes), 1, loads)


def _by_atomics(kernel: GroupKernel, capabilities: Capabilities, in_table: bool) -> GroupKernel:
    """Return the kernel that combines the elements of sections by atomics, in the table or in workgroup memory."""
    h = group_heuristics_for(capabilities.adapter_type)
    invocations, _ = _atomic_shape(kernel.carry_words * kernel.capacity, h)
    workgroup = min(invocations, capabilities.limits["max-compute-invocations-per-workgroup"])
    tile = TileShape(workgroup, kernel.tile.subgroup_size if in_table else 0, 1, h.atomic_steps)
    kernel = replace(kernel, tile=tile, label_bits=0, max_subgroups=1)
    if in_table:
        return replace(kernel, in_table=True, encoded=True)
    copies = power_below(h.atomic_words // (kernel.carry_words * kernel.capacity))
    return replace(kernel, copies=min(h.atomic_copies, copies))


def _atomic_shape(carries_words: int, h: GroupHeuristics) -> tuple[int, int]:
    """Return the invocations of a workgroup that combines by atomics in its memory, and the number of sections."""
    if carries_words < h.many_carry_words:
        return h.atomic_workgroup, h.atomic_sections
    return h.many_carries_workgroup, h.many_carries_sections


def _find_section_length(
    spec: ScanSpec, h: GroupHeuristics, carries_words: int, unit: int, sections: int
) -> int | None:
    """Return the elements of a section, in whole units; None if the table would be too large.

    Args:
        h: the tuning constants.
        carries_words: the words of the table for one section.
        unit: the elements that are combined at a time.
        sections: the number of sections in all rows, about.
    """
    wanted = max(h.min_section_length, min(h.max_section_length, -(-spec.length // sections)))
    moved_words = sum(f.storage_bytes for f in (*spec.source.fields, *spec.destination.fields)) / 4
    most = spec.length * moved_words * h.max_table_share / (carries_words * spec.rows)  # sections of a row
    if most < 1:
        return None
    wanted = max(wanted, -(-spec.row_length // math.floor(most)))
    return None if wanted > h.max_section_length else -(-wanted // unit) * unit


def _carrying_kernel(
    combining: GroupKernel, capabilities: Capabilities, row_length: int, section_length: int, reduces: bool
) -> GroupKernel | None:
    """Return the kernel that scans or reduces the carries of the table; None if no workgroup has memory for it.

    Args:
        combining: the kernel that makes the carries.
        row_length: the elements of a row.
        section_length: the elements of a section.
        reduces: True for one result for each label.
    """
    h, limits = group_heuristics_for(capabilities.adapter_type), capabilities.limits
    columns, parts = h.carry_columns, h.carry_parts
    memory = limits["max-compute-workgroup-storage-size"] // (4 * combining.carry_words)
    most = min(memory, limits["max-compute-invocations-per-workgroup"])
    while parts > 1 and columns * parts > most:
        parts //= 2
    while parts > 1 and parts * section_length * h.carry_loads > row_length:
        columns, parts = 2 * columns, parts // 2
    if columns * parts > most:
        return None
    return replace(
        combining,
        stage="reduce_carries" if reduces else "scan_carries",
        tile=TileShape(columns * parts, 0, 1, 1),
        label_bits=0,
        capacity=0,
        copies=0,
        in_table=False,
        splits_labels=False,
        checked=False,
        max_subgroups=1,
        parts=parts,
        carry_loads=h.carry_loads,
    )
