"""Hold the tuning constants for views of arrays on a device, as `planning/heuristics.py` holds the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Views:
    """The tuning constants for views, on every adapter. The comments of `VIEWS` say what they mean."""

    max_pitch: int


VIEWS = Views(
    # The distance between two rows of a view, in lengths of a row, up to which kernels read it where it is. Up to 2, no
    # strategy moves more bytes than with a copy: three dispatches read 2 * 2n and write n, and with a copy they move
    # 2n + n + 3n. There was no experiment.
    max_pitch=2,
)
