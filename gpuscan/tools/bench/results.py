"""One measurement, and all measurements as JSON."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.tools.bench.cases import Case

COPY = "copy"
OURS = "gpuscan"

# The number of characters after which a note is cut off.
MAX_NOTE_LENGTH = 200


@dataclass(frozen=True)
class Measurement:
    """The result of one contender on one case.

    Attributes:
        case: what was run.
        library: ``"copy"``, ``"gpuscan"`` or a peer's name.
        name: the function or strategy.
        seconds: the median time of a run, or None if there is none.
        clock: what timed it.
        error: the largest difference from NumPy, relative to the value or to 1.
        right: True if rounding explains the error.
        note: a tile's shape, a version, or the reason why there is no time.
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
        """Return the measurement without a time, and with the reason."""
        line = " ".join(reason.split())
        return replace(self, seconds=None, note=line if len(line) <= MAX_NOTE_LENGTH else f"{line[:MAX_NOTE_LENGTH]}…")

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes read and written in a second, if every element moves twice."""
        return None if self.seconds is None else self.case.moved_bytes / self.seconds

    @property
    def wrong(self) -> bool:
        return self.right is False


def copy_seconds(measurements: Sequence[Measurement], case: Case) -> float | None:
    """Return the time of the copy of the case's bytes, if it was measured."""
    return next((m.seconds for m in measurements if m.library == COPY and m.case == case), None)


def ratio_to_copy(measurements: Sequence[Measurement], measurement: Measurement) -> float | None:
    """Return the speed relative to the copy of the same bytes."""
    copied = copy_seconds(measurements, measurement.case)
    if copied is None or measurement.seconds is None:
        return None
    return copied / measurement.seconds


def report(device: Device, measurements: Sequence[Measurement], arguments: Sequence[str]) -> dict[str, Any]:
    """Return a whole run as data for JSON, with times in microseconds and speeds in 10^9 bytes a second."""
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
