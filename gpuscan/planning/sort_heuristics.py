"""Hold the tuning constants of sorts: one frozen table for each class of adapter, as `heuristics` has for scans."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SortHeuristics:
    """The tuning constants of sorts for one class of adapter; the comments of `GPU` and `CPU` say what they mean."""

    radix_bits: int
    serial_radix_bits: int
    subgroups: bool
    workgroup: int
    items: int
    workgroup_with_places: int
    items_with_places: int
    serial_workgroup: int
    serial_items: int
    min_items: int
    min_tiles: int
    row_workgroup: int
    row_capacity: int
    min_row_workgroups: int
    keys_compared: int
    strategy_order: tuple[str, ...]
    block: int
    stretch: int
    min_single_pass_tiles: int


GPU = SortHeuristics(
    # Bits of a digit where subgroups rank a tile. With 8, a key of 32 bits takes four steps. Not tuned.
    radix_bits=8,
    # The same where single invocations do: each has counters of its own, so more bits leave room for fewer of them.
    serial_radix_bits=4,
    # True to rank by subgroups where the adapter has them.
    subgroups=True,
    # Invocations in a workgroup that ranks by subgroups, and elements for each of them. H200, 2^27 uint32: 5.8 ms; with
    # 8 or 12 elements 7.2 and 6.6 ms, with 512 invocations of 8 or 16 elements 6.4 and 6.5 ms.
    workgroup=256,
    items=16,
    # The same where keys take their indices along. H200, argsort of 2^27 uint32: 8.3 ms; 256 invocations of 8, 12 or 16
    # elements take 9.5, 10.0 and 9.1 ms.
    workgroup_with_places=512,
    items_with_places=8,
    # The same where single invocations rank.
    serial_workgroup=128,
    serial_items=64,
    # Elements for each invocation, at least, and the number of tiles that a smaller array is cut into. Not tuned.
    min_items=8,
    min_tiles=512,
    # Invocations in a workgroup that sorts whole rows. Not tuned.
    row_workgroup=256,
    # Elements that such a workgroup sorts, at most, so that several workgroups share a compute unit. Not tuned.
    row_capacity=2048,
    # Rows share a workgroup once there are this many workgroups. Not tuned.
    min_row_workgroups=512,
    # Keys that an invocation compares with the first one of their row. Not tuned.
    keys_compared=16,
    # The order in which "auto" tries how tiles learn where their elements belong; the first that is safe on the adapter
    # is taken. With ("lookback", "fallback", "three_dispatch") in its place, keys move in a single pass for each digit.
    # That pass is not measured on any GPU. It reads each key once and not twice, which is worth 2.1 of the 11.6 ms that
    # an H200 takes for 2^28 uint32. But a tile of 4,096 elements then posts 1.3 KiB and reads about 20 KiB of others'
    # posts, while it holds its registers; how long it waits there is not known.
    strategy_order=("three_dispatch", "lookback", "fallback"),
    # Tiles that a look covers, and for which a sum is posted, in a single pass. With fewer, a tile that looks far back
    # reads more words; with more, it needs more registers. Not tuned.
    block=8,
    # Tiles of a workgroup that counts the values of all digits, at most. With fewer, more workgroups add to the same
    # counts. Not tuned.
    stretch=32,
    # Tiles of a row, at least, that take a single pass: the counts of all digits of a row take as much memory as this
    # many of its tiles. Not tuned.
    min_single_pass_tiles=8,
)

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
