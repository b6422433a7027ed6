"""Hold the tuning constants of what works by keys and labels: sorts, groups, segments, counts, searches and selections.

A constant belongs here if changing it changes only the speed, or which of several safe shapes is chosen. Each entry
names its evidence, by the words of `gpuscan.planning.heuristics`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# ----- Sorts


@dataclass(frozen=True)
class SortHeuristics:
    """The tuning constants of sorts for one class of adapter. The defaults are for a GPU."""

    # Bits of a digit where subgroups rank a tile. With 8, a key of 32 bits takes four steps. Not measured: published
    # sorts for GPUs use 8 bits, which divide all keys.
    radix_bits: int = 8
    # The same where single invocations do. Not measured: each has counters, so more bits leave room for fewer of them.
    serial_radix_bits: int = 4
    # True to rank by subgroups where the adapter has them. Not measured: without subgroups, invocations rank in turn.
    subgroups: bool = True
    # Invocations in a workgroup that ranks by subgroups, words of keys for each of them, and batches in which a tile
    # that is in order is stored. With more batches a workgroup takes less workgroup memory, and more of them run at a
    # time: on an H200, workgroups of a compute unit share 48 KiB. H200, 2^27 uint32: 3.72 ms; in 4 and 8 batches 3.86
    # and 4.22; 20 words in 2 batches or in one 3.94 and 4.23 ms, 16 words 4.24 and 4.59, 24, 28 and 40 words 4.01, 4.04
    # and 5.18; 512 invocations of 12, 16 or 20 words in 2 batches 4.32, 5.06 and 4.88.
    workgroup: int = 256
    items: int = 32
    batches: int = 2
    # The same where keys take their indices along, which are stored in the same room after the keys. H200, pairs of
    # 2^27 uint32: 5.5 ms; in 2 batches 5.8, with 512 invocations of 8 words 5.6, with 384 of 12 words in 2 batches 5.5.
    workgroup_with_payload: int = 256
    items_with_payload: int = 16
    batches_with_payload: int = 1
    # Copies of the counters of a workgroup that counts digits. H200, 2^27 uint32: 0.96 ms; with 4 0.97, with 8 1.02.
    copies: int = 2
    # The same where single invocations rank. Not measured: almost all GPUs have subgroups.
    serial_workgroup: int = 128
    serial_items: int = 64
    # Elements for each invocation, at least, and the number of tiles that a smaller array is cut into. Not measured: a
    # sort of so few elements takes hardly longer than its submissions.
    min_items: int = 8
    min_tiles: int = 512
    # Sorts of whole rows: the elements that an invocation exchanges at a time, and the elements of a workgroup, as
    # powers of 2. H100, argsort of 48,021 columns of 698 float32: 1,289 us; with 8 elements 1,614, with 4 2,409.
    log_row_items: int = 4
    log_row_capacity: int = 11
    # The longest rows of words that are sorted so; rows of two words are half as long. H100, 8,192 rows of 4,096
    # float32: argsort 1,326 us, by tiles 1,606; sort 817, by tiles 1,300.
    max_row_length: int = 4096
    # True if shaders have no loop over the exchanges of elements of one word. Each power of 2 has a shader then. H100,
    # sorts of int32: columns of 1,397 354 us in place of 648, rows of 62 126 in place of 173. Where an element has two
    # words, shaders take a second to compile, and gain about a tenth.
    unrolls_rows: bool = True
    # Keys that an invocation compares with the first one of their row. Not measured: the test for equal digits reads
    # each key once, whatever the number.
    keys_compared: int = 16
    # The order in which "auto" tries how tiles learn where their elements belong; the first that is safe on the adapter
    # is taken. With "lookback" first, keys move in a single pass for each digit, which reads each key once and not
    # twice. H200, 2^28 uint32: 8.0 ms, and 7.3 with three dispatches, since a tile waits for the posts of others.
    strategy_order: tuple[str, ...] = ("three_dispatch", "lookback", "fallback")
    # Tiles that a look covers, and for which a sum is posted, in a single pass. With fewer, a tile that looks far back
    # reads more words; with more, it needs more registers. Not measured: single passes are no one's first choice.
    block: int = 8
    # Tiles of a workgroup that counts the values of all digits, at most. With fewer, more workgroups add to the same
    # counts. Not measured: single passes are not the first choice of any adapter.
    tiles_per_workgroup: int = 32
    # Tiles of a row, at least, that take a single pass: the counts of all digits of a row take as much memory as this
    # many of its tiles. Not measured: single passes are not the first choice of any adapter.
    min_single_pass_tiles: int = 8


SORTS_GPU = SortHeuristics()

SORTS_CPU = replace(
    SORTS_GPU,
    # Not measured on record: an invocation is a serial loop, so long loops and few invocations are best.
    subgroups=False,
    serial_radix_bits=8,
    serial_workgroup=16,
    serial_items=2048,
    min_items=64,
    min_tiles=16,
    # lavapipe takes 4 s to compile exchanges of 16 elements, and 1 s for 8; argsort of 2^20 float32 in rows of 1,024
    # takes 0.7 and 0.9 s.
    log_row_items=3,
    log_row_capacity=10,
    max_row_length=2048,
    unrolls_rows=False,  # lavapipe takes many seconds to compile them
    keys_compared=64,
    # llvmpipe ends a loop after 65,535 iterations; with 4 tiles there are 8,192.
    tiles_per_workgroup=4,
)


def sort_heuristics_for(adapter_type: str) -> SortHeuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return SORTS_CPU if adapter_type == "CPU" else SORTS_GPU


# ----- Groups


@dataclass(frozen=True)
class GroupHeuristics:
    """The tuning constants of groups for one class of adapter. The defaults are for a GPU."""

    # True if the lanes of a subgroup combine a section together. Otherwise each invocation has one of its own.
    # Not measured: almost all GPUs have subgroups.
    subgroups: bool = True
    # Sections that all rows together are cut into, about: a workgroup for each. H200, 2^26 float32 with 1,000 labels:
    # 0.94 ms, by a sort 8.0 ms. Other numbers of sections were last measured with one subgroup in a workgroup.
    sections: int = 3500
    # Elements of a section, at least and at most. Not measured: they bound what `sections` gives.
    min_section_length: int = 2048
    max_section_length: int = 1 << 20
    # Words of elements that an invocation loads before it combines them, so that several loads are under way. For long
    # operators, a quarter of this. H200, with 8 subgroups in place of 4: the times with 4, 8 and 16 words differ by at
    # most 10 %.
    steps: int = 8
    # Words of an element, at most. Not measured: wider elements are rare, and take the sort.
    max_words: int = 8
    # Subgroups that share the carries of a workgroup; more of them if carries take more words than these for each. The
    # more words a workgroup takes, the fewer workgroups run at a time. H200, 2^26 int32 with 1,000 labels, the last
    # stage, when they took turns in a loop: 0.51 ms, with 2, 8 and 16 of them 0.61, 0.86 and 1.3 ms.
    subgroups_per_workgroup: int = 4
    carry_words_per_subgroup: int = 512
    # Invocations in a workgroup where each has a section of its own. Not measured: almost all GPUs have subgroups.
    serial_workgroup: int = 32
    # Invocations in a workgroup that combines the elements of a section by atomics; the elements that each loads at a
    # time; the carries for each label, at most, so that few invocations add to one at a time; and the words that all of
    # them take. H200, 2^26 int32, 1,000 labels: 0.145 ms; with 4,096 words 0.195 ms, with 4 elements 0.21 ms.
    atomic_workgroup: int = 256
    atomic_steps: int = 8
    atomic_copies: int = 32
    atomic_words: int = 1024
    # As `sections`, for reductions by atomics. Not measured on record: eight for each compute unit of an H200.
    atomic_sections: int = 1056
    # Words of carries from which on few workgroups fit a compute unit, so that each has more invocations and a longer
    # section; and these invocations and sections. H200, 2^25 int32, 2,000 and 5,409 labels: 79 and 87 us; with 512
    # invocations in 528 sections 85 and 134, in 264 sections 82 and 91, with 256 invocations in 1,056 sections 97 and
    # 460.
    many_carry_words: int = 2048
    many_carries_workgroup: int = 1024
    many_carries_sections: int = 132
    # Workgroups that share the labels of a section if they combine by atomics, at most: each of them reads all elements
    # of the section. With more labels, elements are combined in the table. H200, 2^25 int32: 195 us in 2 parts, 346 in
    # 3, 516 in 4, and 370 to 390 in the table; int64: 245 us in 2 parts, 573 in 4, and 550 to 590 in the table.
    most_label_parts: int = 2
    # How many tables there are then, at most, and the words of all of them, which should stay in the GPU's cache. With
    # several tables, fewer invocations add to one carry at a time. Not measured: they are 16 MiB.
    atomic_tables: int = 8
    atomic_table_words: int = 1 << 22
    # Labels side by side, and parts of their sections one below the other, of a workgroup that scans the table; and
    # the carries that an invocation loads at a time. H200, 2,048 sections of 1,000 labels: with 32 and 8, 2.5 times as
    # long.
    carry_columns: int = 8
    carry_parts: int = 32
    carry_loads: int = 4
    # Words of the table for each word that is read and written otherwise, at most. Each of them is written twice and
    # read three times. Not measured on a GPU: such a table moves about as many words as the elements.
    max_table_share: float = 0.25
    # Bytes of results from which on they are partitioned by their places before they go back there; None if never.
    # H100, 2^25 results in random places: words 0.95 ms, and 2.33 at once; pairs of words 1.11 and 2.47. Not measured
    # for fewer bytes: a GPU's cache holds them.
    min_partitioned_bytes: int | None = 1 << 25
    # Elements from which on the GPU looks for the largest of labels, and chooses a table or a sort by it. Not measured:
    # a sort of fewer elements takes hardly longer than the stages of a table.
    min_counted_elements: int = 1 << 20
    # Then: the elements of an invocation that sorts tiles by their labels, and the words of these elements, at most.
    # H100, 2^25 float32, that stage: 595 labels 0.52 ms, with 16 elements 0.53; int64, 3,602 labels: 1.09 ms, with 16
    # elements 1.24. An earlier form took 0.62 ms for 595 labels, and 0.69 with 4 elements.
    tile_items: int = 8
    tile_words: int = 16
    # The same if elements are in buckets, at most. With 4, there may be 2^22 labels, with 8 half as many. H100, 2^25
    # numbers, 2^20 labels, the stage: int64 1.12 ms, with 8 1.16; float32 0.71 and 0.64 ms.
    bucket_items: int = 4
    # Sections that all rows are cut into, about. H100, 2^25 float32, that stage: with 15 and 595 labels 0.35 and 0.52
    # ms; with 528 sections 0.42 and 0.61.
    uncounted_sections: int = 792
    # The carries of a table, about, and the sections for which it has more of them. H100, 2^25 int64, 16,905 labels:
    # 264 sections 2.39 ms, 1,056 2.86, since scans of more carries take longer.
    wanted_carries: int = 1 << 22
    least_sections: int = 264
    # The fewest sections of a table. H100, 2^25 int64, 131,072 labels, 128 sections: 4.1 ms, as long as a sort; with
    # 524,288 labels and 32 sections 10.3 ms.
    min_sections: int = 128
    # The most labels of a table if elements can be sorted by buckets. H100, 2^25 int64, 3,602 labels: 1.57 ms, in
    # buckets 1.90; 16,905 labels: 2.24 and 1.78 ms.
    max_tabled_labels: int = 1 << 13
    # Parts of the sections of a bucket that a workgroup scans the carries of side by side. H100, 2^25 int64, 2^20
    # labels: 0.06 ms with 4, 0.03 with 1, 0.44 with 32. One part would take long for a bucket that all elements are in.
    bucket_parts: int = 2
    # Elements that an invocation of the last stages loads at a time, and the workgroups of these stages, at most: more
    # take longer to find that they have nothing to do. H100, 2^25 int64, 2^20 labels: 0.29 and 0.43 ms with 2,112
    # workgroups, 0.28 and 0.41 with 6,144, 0.26 and 0.37 with 32,768. For nothing, these take 6, 8 and 24 us. With 8
    # elements 0.27 and 0.49 ms.
    finished_items: int = 4
    most_workgroups: int = 6144


GROUPS_GPU = GroupHeuristics()

GROUPS_CPU = replace(
    GROUPS_GPU,
    # An invocation is a serial loop. llvmpipe ends a loop after 65,535 iterations. With 16 or 256 sections in place of
    # 64, lavapipe takes as long for 2^21 int32 and 1,000 labels: 51 ms; by a sort it takes 243 ms.
    subgroups=False,
    sections=64,
    min_section_length=512,
    max_section_length=1 << 15,
    steps=1,
    serial_workgroup=8,
    carry_columns=32,
    carry_parts=1,
    carry_loads=1,
    # lavapipe, scan of 2^18 int32: 10,000 labels, a share of 2.4: 17 ms, by a sort 35 ms; 100,000 labels, a share of 6:
    # 39 and 42 ms, a share of 24: 107 and 42 ms.
    max_table_share=2.0,
    min_partitioned_bytes=None,
    min_counted_elements=1 << 12,
    uncounted_sections=64,
)


def group_heuristics_for(adapter_type: str) -> GroupHeuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return GROUPS_CPU if adapter_type == "CPU" else GROUPS_GPU


# ----- Counts, searches and selections


@dataclass(frozen=True)
class CountingHeuristics:
    """The tuning constants of counts, searches and selections for one class of adapter. The defaults are a GPU's."""

    # Invocations in a workgroup that counts, and its counters: more if there are more bins and they fit. H100, 2^26
    # numbers in 256 bins, and labels below 1000: 369 and 277 us with 256 invocations and 4096 counters, 218 and 144
    # with 512 and 2048, 207 and 138 with 1024 and 1024.
    count_workgroup: int = 1024
    counters: int = 1024
    # Copies of a bin's counter, at most. Not measured: one for each lane of a subgroup, since lanes add at a time.
    max_copies: int = 32
    # Workgroups that count, about, and vectors of four words of each, at least. Not measured: 8 for each compute unit
    # of an H100, and enough vectors to be worth the clearing of the counters.
    count_workgroups: int = 1056
    min_share: int = 1024
    # Bins from which on fewer workgroups count, since each adds its counters to the counts. H100, 2^26 labels below
    # 10^4 in 1056, 528 and 264 workgroups: 221, 193 and 184 us; below 1000 in 1056 and 528: 158 and 160 us.
    few_bins: int = 2048
    few_count_workgroups: int = 264
    # Bins that are too many for one workgroup are divided among parts of at most this many bins. The numbers below are:
    # the bins of a part, at most; the parts, at most; the elements that are divided, at least; the invocations of a
    # workgroup that divides; the elements of 32 bits that each takes, in bits; the counters of all parts, about; the
    # workgroups that count parts, about; the invocations that take the elements of a tile together, at least; and the
    # words that each of them loads at a time. H100, 2^26 labels below 10^5: 265 us to divide, with 256 invocations 285,
    # with 8 elements 284; 126 us to count with 264 workgroups, and 136 with 528. The other numbers are not measured.
    part_bins: int = 1 << 14
    max_parts: int = 256
    min_divided: int = 1 << 20
    divide_workgroup: int = 512
    divided_bits: int = 16 * 32
    part_counters: int = 2048
    part_workgroups: int = 264
    part_lanes: int = 8
    parts_at_once: int = 4
    # Vectors of four words of an invocation, at most: llvmpipe ends a loop after 65,535 iterations.
    max_vectors: int = 4096
    # Edges of bins that a workgroup keeps in its memory, at most. Not measured: the edges of 1,024 bins take 4 KiB.
    cached_edges: int = 1025
    # Invocations in a workgroup that searches; the keys that each takes, so that several loads are under way; and the
    # blocks that sorted keys are cut into: 4 KiB of workgroup memory. Not measured.
    search_workgroup: int = 256
    search_items: int = 8
    search_top: int = 1024
    # Invocations in a workgroup that selects, and the words of keys of each: the fewest that hold a row, else the most.
    # Not measured: 16 words leave room in registers.
    select_workgroup: int = 256
    select_items: tuple[int, ...] = (1, 2, 4, 8, 16)
    # The share of a tile that is kept, at most; if more keys are wanted, rows are sorted. With a quarter, all rounds
    # together read a third more than the first. Not measured.
    max_kept: float = 0.25
    # The tiles of a row from which on a sample of the tiles is selected from first, so that other tiles drop almost all
    # of their keys at once; and the distance between the tiles of the sample. H100, 100 of 2^26 random floats: 486 us
    # without a sample; with each 16th, 64th and 256th tile 328, 335 and 419 us. The least number is not measured.
    min_sampled_tiles: int = 512
    sample_stride: int = 32


GPU_COUNTING = CountingHeuristics()

CPU_COUNTING = replace(
    GPU_COUNTING,
    # An invocation is a serial loop, so long loops and few invocations are best. With one key for an invocation, a
    # selection compiles in a quarter of the time that four take. lavapipe, 100 of 2^22 float32: 2.4 s with one alone.
    count_workgroup=16,
    counters=4096,
    max_copies=1,
    count_workgroups=32,
    few_count_workgroups=32,
    max_parts=0,
    max_vectors=16384,
    search_workgroup=16,
    search_top=64,
    select_items=(1, 8),
)


def counting_heuristics_for(adapter_type: str) -> CountingHeuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return CPU_COUNTING if adapter_type == "CPU" else GPU_COUNTING


# ----- Segments


@dataclass(frozen=True)
class SegmentHeuristics:
    """The tuning constants of reductions of segments."""

    # Invocations in a workgroup, at most and at least; words of the neighbouring elements that an invocation combines;
    # and words of a tile. H100, 2^25 elements, the second stage: int32 in 256 x 8 elements 68 us, in 128 x 16, 64 x 32
    # 69, 75 us; float32 74, 72, 75 us; float64 in 256 x 4 elements 123 us, in 128 x 8, 128 x 16 153, 176 us; int8 in
    # 128 x 16 elements 52 us, in 256 x 16 62 us.
    lanes: int = 256
    min_lanes: int = 32
    own_words: int = 8
    tile_words: int = 2048
    # Words of an item, at most, for which the scan over lanes is no loop. Not measured.
    max_unrolled_words: int = 4
    # Words of workgroup memory for all but elements. Not measured: it is more than they are.
    other_words: int = 1024
    # A workgroup joins the segments that begin in this number of tiles and go on. One invocation joins a segment of at
    # most `few_parts` parts, and the whole workgroup a segment of more. The third number is of the segments that an
    # invocation checks and fills. H100, int32 by 1,686 segments, the third stage: 9.7 us; with 32 and 64 tiles
    # 10.8, 12.7 us. With 32 parts, and with 2 and 8 segments, it takes about as long.
    joined_tiles: int = 16
    few_parts: int = 16
    segments_each: int = 4
    # Invocations in a workgroup that looks at segments; and the results that an invocation stores at a time.
    # Not measured against others.
    finding_lanes: int = 256
    results_at_once: int = 4


SEGMENTS = SegmentHeuristics()
