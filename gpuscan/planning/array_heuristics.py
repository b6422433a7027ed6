"""Hold the tuning constants for arrays on a device, as `planning/heuristics.py` holds those of scans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArrayHeuristics:
    """The tuning constants for arrays, on every adapter."""

    # The distance between two rows of a view, in lengths of a row, up to which kernels read it where it is. Up to 2, no
    # strategy moves more bytes than with a copy: three dispatches read 2 * 2n and write n, and with a copy they move
    # 2n + n + 3n. There was no experiment.
    max_pitch: int = 2
    # The most states of a selective scan that are computed at a time. A device holds up to eight arrays of this size.
    # Not tuned.
    max_states: int = 1 << 25
    # The channels and steps of a workgroup of a selective scan, and the states of an invocation. The tiles of inputs
    # and weights, 12.8 kB, fit into the 16 KiB of workgroup memory that every adapter has.
    selective_channels: int = 64
    selective_times: int = 16
    selective_states: int = 16
    # The same for its gradient: channels, steps of a tile, and steps of a stretch. An invocation holds the states of a
    # stretch. The first that fits is taken. They need 42, 24 and 14 kB, most of it for a number of each channel, step
    # of a stretch, state and weight.
    selective_gradient_tiles: tuple[tuple[int, int, int], ...] = ((32, 16, 8), (32, 16, 4), (16, 16, 4))
    # The fewest states of all rows, 16 of each at most, for which a GPU computes the gradient by one kernel instead of
    # several over all states. H200: 0.77 and 1.32 ms for 2^11 rows of 16 states; of 2^10 rows of 64, 4.9 and 2.4 ms.
    min_selective_gradient_states: int = 1 << 15
    # The most steps of that gradient, which bound the time that an invocation takes: 45 ms on an H200.
    max_selective_gradient_length: int = 1 << 16
    # The invocations that a selective scan should have on a GPU. If it has fewer rows, the steps are cut into chunks,
    # which takes a second pass.
    selective_rows: int = 1 << 14
    # The least and the most steps of such a chunk. The most bounds the time that an invocation takes, and its loops.
    min_selective_chunk: int = 128
    max_selective_chunk: int = 1 << 13
    # The most bytes of the input of a selective scan that are on a device at a time. While one piece is computed, the
    # next is uploaded.
    selective_piece_bytes: int = 64 << 20


ARRAYS = ArrayHeuristics()
