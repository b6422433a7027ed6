"""Hold the tuning constants of sorts: one frozen table for each class of adapter, as `heuristics` has for scans."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SortHeuristics:
    """The tuning constants of sorts for one class of adapter. The defaults are those of a GPU."""

    # Bits of a digit where subgroups rank a tile. With 8, a key of 32 bits takes four steps. Not tuned.
    radix_bits: int = 8
    # The same where single invocations do: each has counters of its own, so more bits leave room for fewer of them.
    serial_radix_bits: int = 4
    # True to rank by subgroups where the adapter has them.
    subgroups: bool = True
    # Invocations in a workgroup that ranks by subgroups, words of keys for each of them, and the turns in which a tile
    # that is in order is stored. With more turns a workgroup takes less workgroup memory, and more of them run at a
    # time: on an H200, those of a compute unit have 48 KiB together. H200, 2^27 uint32: 3.72 ms; in 4 and 8 turns 3.86
    # and 4.22; 20 words in 2 turns or in one 3.94 and 4.23 ms, 16 words 4.24 and 4.59, 24, 28 and 40 words 4.01, 4.04
    # and 5.18; 512 invocations of 12, 16 or 20 words in 2 turns 4.32, 5.06 and 4.88.
    workgroup: int = 256
    items: int = 32
    turns: int = 2
    # The same where keys take their indices along, which are stored in the same room after the keys. H200, pairs of
    # 2^27 uint32: 5.5 ms; in 2 turns 5.8, with 512 invocations of 8 words 5.6, with 384 of 12 words in 2 turns 5.5.
    workgroup_with_places: int = 256
    items_with_places: int = 16
    turns_with_places: int = 1
    # Copies of the counters of a workgroup that counts digits. H200, 2^27 uint32: 0.96 ms; with 4 0.97, with 8 1.02.
    copies: int = 2
    # The same where single invocations rank.
    serial_workgroup: int = 128
    serial_items: int = 64
    # Elements for each invocation, at least, and the number of tiles that a smaller array is cut into. Not tuned.
    min_items: int = 8
    min_tiles: int = 512
    # Invocations in a workgroup that sorts whole rows. Not tuned.
    row_workgroup: int = 256
    # Elements that such a workgroup sorts, at most, so that several workgroups share a compute unit. Not tuned.
    row_capacity: int = 2048
    # Rows share a workgroup once there are this many workgroups. Not tuned.
    min_row_workgroups: int = 512
    # Keys that an invocation compares with the first one of their row. Not tuned.
    keys_compared: int = 16
    # The order in which "auto" tries how tiles learn where their elements belong; the first that is safe on the adapter
    # is taken. With "lookback" first, keys move in a single pass for each digit, which reads each key once and not
    # twice. H200, 2^28 uint32: 8.0 ms, and 7.3 with three dispatches, since a tile waits for the posts of others.
    strategy_order: tuple[str, ...] = ("three_dispatch", "lookback", "fallback")
    # Tiles that a look covers, and for which a sum is posted, in a single pass. With fewer, a tile that looks far back
    # reads more words; with more, it needs more registers. Not tuned.
    block: int = 8
    # Tiles of a workgroup that counts the values of all digits, at most. With fewer, more workgroups add to the same
    # counts. Not tuned.
    stretch: int = 32
    # Tiles of a row, at least, that take a single pass: the counts of all digits of a row take as much memory as this
    # many of its tiles. Not tuned.
    min_single_pass_tiles: int = 8


GPU = SortHeuristics()

CPU = replace(
    GPU,
    # An invocation is a serial loop, so long stretches and few invocations are best.
    subgroups=False,
    serial_radix_bits=8,
    serial_workgroup=16,
    serial_items=2048,
    min_items=64,
    min_tiles=16,
    row_workgroup=64,
    min_row_workgroups=16,
    keys_compared=64,
    # llvmpipe ends a loop after 65,535 iterations; with 4 tiles there are 8,192.
    stretch=4,
)


def sort_heuristics_for(adapter_type: str) -> SortHeuristics:
    """Return the table for an adapter of this type, such as ``"DiscreteGPU"`` or ``"CPU"``."""
    return CPU if adapter_type == "CPU" else GPU
