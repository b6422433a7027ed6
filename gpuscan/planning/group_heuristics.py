"""Hold the tuning constants of groups: one frozen table for each class of adapter, as `heuristics` has for scans."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GroupHeuristics:
    """The tuning constants of groups for one class of adapter. The defaults are those of a GPU."""

    # True if the lanes of a subgroup combine a stretch together. Otherwise each invocation has a stretch of its own.
    subgroups: bool = True
    # Stretches that all rows together are cut into, about: a workgroup for each. H200, 2^26 float32 with 1,000 labels:
    # 0.94 ms, by a sort 8.0 ms. Other numbers of stretches were last measured with one subgroup in a workgroup.
    stretches: int = 3500
    # Elements of a stretch, at least and at most. Not tuned.
    min_stretch: int = 2048
    max_stretch: int = 1 << 20
    # Words of elements that an invocation loads before it combines them, so that several loads are under way; a quarter
    # of that where operators are long. H200, with 8 subgroups in place of 4: 4, 8 and 16 words are alike within 10 %.
    steps: int = 8
    # Words of an element, at most. Not tuned.
    max_words: int = 8
    # Subgroups that share the carries of a workgroup; more of them if carries take more words than these for each. The
    # more words a workgroup takes, the fewer workgroups run at a time. H200, 2^26 int32 with 1,000 labels, the last
    # stage, when they took turns in a loop: 0.51 ms, with 2, 8 and 16 of them 0.61, 0.86 and 1.3 ms.
    subgroups_per_workgroup: int = 4
    carry_words_per_subgroup: int = 512
    # Invocations in a workgroup where each has a stretch of its own. Not tuned.
    serial_workgroup: int = 32
    # Invocations in a workgroup that combines the elements of a stretch by atomics; the elements that each loads at a
    # time; the carries for each label, at most, so that few invocations add to one at a time; and the words that all of
    # them take. H200, 2^26 int32, 1,000 labels: 0.145 ms; with 4,096 words 0.195 ms, with 4 elements 0.21 ms.
    atomic_workgroup: int = 256
    atomic_steps: int = 8
    atomic_copies: int = 32
    atomic_words: int = 1024
    # As `stretches`, for reductions by atomics.
    atomic_stretches: int = 1056
    # Words of carries from which on a reduction by atomics combines elements in the table, not in workgroup memory; and
    # how many tables there are, at most, and the words of all of them, which should stay in the GPU's cache. With
    # several tables, fewer invocations add to one carry at a time. Not tuned.
    max_atomic_words: int = 6000
    atomic_tables: int = 8
    atomic_table_words: int = 1 << 22
    # Labels side by side, and parts of their stretches one below the other, of a workgroup that scans the table; and
    # the carries that an invocation loads at a time. H200, 2,048 stretches of 1,000 labels: with 32 and 8, 2.5 times as
    # long.
    carry_columns: int = 8
    carry_parts: int = 32
    carry_loads: int = 4
    # Labels that a reduction by atomics makes a table for before it knows their number, if the caller does not pass it.
    # Not tuned.
    expected_labels: int = 2048
    # Words of the table for each word that is read and written otherwise, at most. Each of them is written twice and
    # read three times. Not tuned.
    max_table_share: float = 0.25
    # Elements from which on the largest of labels on the device is read, which waits for the device. Not tuned.
    min_read_elements: int = 1 << 20


GPU = GroupHeuristics()

CPU = replace(
    GPU,
    # An invocation is a serial loop. llvmpipe ends a loop after 65,535 iterations. With 16 or 256 stretches in place of
    # 64, lavapipe takes as long for 2^21 int32 and 1,000 labels: 51 ms; by a sort it takes 243 ms.
    subgroups=False,
    stretches=64,
    min_stretch=512,
    max_stretch=1 << 15,
    steps=1,
    serial_workgroup=8,
    carry_columns=32,
    carry_parts=1,
    carry_loads=1,
    # lavapipe, scan of 2^18 int32: 10,000 labels, a share of 2.4: 17 ms, by a sort 35 ms; 100,000 labels, a share of 6:
    # 39 and 42 ms, a share of 24: 107 and 42 ms.
    max_table_share=2.0,
    min_read_elements=1 << 12,
)


def group_heuristics_for(adapter_type: str) -> GroupHeuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return CPU if adapter_type == "CPU" else GPU
