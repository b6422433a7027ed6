"""One measurement, and all of them as data."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan._version import __version__
from gpuscan.tools.bench.cases import Case

if TYPE_CHECKING:
    from gpuscan.api.device import Device

COPY = "copy"
OURS = "gpuscan"
LONGEST_NOTE = 200  # characters


@dataclass(frozen=True)
class Measurement:
    """What one contender did on one case.

    Attributes:
        case: what was run.
        library: ``"copy"``, ``"gpuscan"`` or a peer's name.
        name: which of its ways.
        seconds: the median time of a run; None where there was none.
        clock: what timed it.
        error: the largest difference from NumPy, as a share of the value or of 1.
        right: whether rounding explains the error.
        note: what a reader should know: a tile's shape, a version, or why there is no time.
    """

    case: Case
    library: str
    name: str
    seconds: float | None = None
    clock: str = ""
    error: float | None = None
    right: bool | None = None
    note: str = ""

    def failed(self, reason: str) -> Measurement:
        """The same without a time, and why."""
        line = " ".join(reason.split())
        return replace(self, seconds=None, note=line if len(line) <= LONGEST_NOTE else f"{line[:LONGEST_NOTE]}…")

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read and written a second, as if every element moved twice."""
        return None if self.seconds is None else self.case.moved_bytes / self.seconds

    @property
    def wrong(self) -> bool:
        return self.right is False


def copy_seconds(measurements: Sequence[Measurement], case: Case) -> float | None:
    """What the copy of the case's bytes took."""
    return next((m.seconds for m in measurements if m.library == COPY and m.case == case), None)


def ratio_to_copy(measurements: Sequence[Measurement], measurement: Measurement) -> float | None:
    """The speed as a share of the copy's of the same bytes."""
    copied = copy_seconds(measurements, measurement.case)
    if copied is None or measurement.seconds is None:
        return None
    return copied / measurement.seconds


def report(device: Device, measurements: Sequence[Measurement], arguments: Sequence[str]) -> dict[str, Any]:
    """All of a run as JSON has it: times in microseconds, speeds in 10^9 bytes a second."""
    capabilities = device.capabilities
    return {
        "gpuscan": __version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": ["gpuscan", "bench", *arguments],
        "device": {
            "summary": capabilities.summary,
            "driver": capabilities.driver,
            "implementation": capabilities.implementation,
        },
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": sys.platform,
        "measurements": [_row(measurements, m) for m in measurements],
    }


def _row(measurements: Sequence[Measurement], m: Measurement) -> dict[str, Any]:
    speed = m.bytes_per_second
    ratio = ratio_to_copy(measurements, m)
    finite = m.error is not None and np.isfinite(m.error)
    return m.case.describe() | {
        "library": m.library,
        "name": m.name,
        "bytes": m.case.moved_bytes,
        "microseconds": None if m.seconds is None else round(m.seconds * 1e6, 3),
        "gigabytes_per_second": None if speed is None else round(speed / 1e9, 3),
        "of_copy": None if ratio is None else round(ratio, 4),
        "clock": m.clock or None,
        "error": m.error if finite else None,
        "right": m.right,
        "note": m.note,
    }
