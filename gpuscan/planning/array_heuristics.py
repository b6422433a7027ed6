"""Hold the tuning constants for arrays on a device, as `planning/heuristics.py` holds those of scans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArrayHeuristics:
    """The tuning constants for arrays, on every adapter. The comments of `ARRAYS` say what they mean."""

    max_pitch: int
    max_states: int


ARRAYS = ArrayHeuristics(
    # The distance between two rows of a view, in lengths of a row, up to which kernels read it where it is. Up to 2, no
    # strategy moves more bytes than with a copy: three dispatches read 2 * 2n and write n, and with a copy they move
    # 2n + n + 3n. There was no experiment.
    max_pitch=2,
    # The most states of a selective scan that are computed at a time. A device holds up to eight arrays of this size.
    # Not tuned.
    max_states=1 << 25,
)
