"""One measurement, and all measurements as JSON, as tables and as a plot of speed against size."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.errors import GpuscanError
from gpuscan.tools.bench.cases import ScanCase, power_or_number
from gpuscan.tools.bench.timing import WALL

if TYPE_CHECKING:
    from rich.console import RenderableType

COPY = "copy"
OURS = "gpuscan"

# Width and height of a panel of the plot in inches.
PANEL_INCHES = (8.0, 5.5)

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

    case: ScanCase
    library: str
    name: str
    seconds: float | None = None
    clock: str = ""
    error: float | None = None
    right: bool | None = None
    note: str = ""

    def with_reason(self, reason: str) -> Measurement:
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


def copy_seconds(measurements: Sequence[Measurement], case: ScanCase) -> float | None:
    """Return the time of the copy of the case's bytes, if it was measured."""
    return next((m.seconds for m in measurements if m.library == COPY and m.case == case), None)


def ratio_to_copy(measurements: Sequence[Measurement], measurement: Measurement) -> float | None:
    """Return the speed relative to the copy of the same bytes."""
    copied = copy_seconds(measurements, measurement.case)
    if copied is None or measurement.seconds is None:
        return None
    return copied / measurement.seconds


def failures(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the wrong results of gpuscan itself and of the copy."""
    return [m for m in measurements if m.wrong and m.library in (OURS, COPY)]


# ----- JSON


def report(device: Device, measurements: Sequence[Measurement], command: Sequence[str]) -> dict[str, Any]:
    """Return a whole run as data for JSON, with times in microseconds and speeds in 10^9 bytes a second."""
    return describe_run(device, command) | {"measurements": [_row(measurements, m) for m in measurements]}


def describe_run(device: Device, command: Sequence[str]) -> dict[str, Any]:
    """Return when, where and by which command something is measured, as data for JSON."""
    capabilities = device.capabilities
    return {
        "gpuscan": __version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": list(command),
        "device": {
            "summary": capabilities.summary,
            "driver": capabilities.driver,
            "implementation": capabilities.implementation,
        },
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": sys.platform,
    }


def _row(measurements: Sequence[Measurement], m: Measurement) -> dict[str, object]:
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


# ----- Tables, with the fastest contender of each case first


def tables(measurements: Sequence[Measurement]) -> list[RenderableType]:
    """Return a table for each operator and dtype, with a section for each size, and the reasons for missing times."""
    from rich.text import Text

    by_series: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_series.setdefault(measurement.case.series, []).append(measurement)
    shown: list[RenderableType] = []
    for series, rows in by_series.items():
        timed = [m for m in rows if m.seconds is not None]
        common_notes = _find_common_notes(timed)
        shown.append(_tabulate_times(series, timed, measurements, common_notes))
        shown += [Text(f"{library}: {note}", "dim") for library, note in common_notes.items()]
        if untimed := [m for m in rows if m.seconds is None]:
            triples = [(who(m), m.note, m.case.size) for m in untimed]
            shown.append(tabulate_reasons(triples, len({m.case for m in rows})))
    return shown


def _find_common_notes(rows: Sequence[Measurement]) -> dict[str, str]:
    """Return the note of each library that has one and the same on all its rows, such as a version and a clock."""
    notes_by_library: dict[str, set[str]] = {}
    for m in rows:
        if m.library not in (OURS, COPY):
            notes_by_library.setdefault(m.library, set()).add(notes(m))
    return {library: note for library, (note, *others) in notes_by_library.items() if note and not others}


def _tabulate_times(
    series: str, rows: Sequence[Measurement], measurements: Sequence[Measurement], common_notes: Mapping[str, str]
) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=series, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("elements", no_wrap=True)
    table.add_column("what", no_wrap=True)
    for heading in ("µs", "GB/s", "of copy"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("error", no_wrap=True)
    table.add_column("note", min_width=12, overflow="fold")
    for case, group in groupby(rows, key=lambda m: m.case):
        section = sorted(group, key=lambda m: (m.library != COPY, m.seconds))  # the copy heads its section
        for row, m in enumerate(section):
            style = {OURS: "bold", COPY: "cyan"}.get(m.library, "")
            note = "" if m.library in common_notes else notes(m)
            cells = [case.size if row == 0 else "", who(m), *numbers(measurements, m), check_text(m), note]
            table.add_row(*(Text(cell) for cell in cells), style=style, end_section=row == len(section) - 1)
    return table


def tabulate_reasons(rows: Iterable[tuple[str, str, str]], cases: int = 0) -> RenderableType:
    """Return a row for each contender and reason why there is no time: it names the sizes, if these are not all."""
    from rich.table import Table
    from rich.text import Text

    reasons: dict[tuple[str, str], list[str]] = {}
    for name, note, size in rows:
        reasons.setdefault((name, note), []).append(size)
    grid = Table.grid(padding=(0, 2))
    for (name, note), sizes in reasons.items():
        at = "" if len(sizes) == cases else f" at {', '.join(sizes)}"
        grid.add_row(Text(f"no time for {name}{at}"), Text(note, "dim"))
    return grid


def who(m: Measurement) -> str:
    """Return the library and the function or strategy."""
    return f"{m.library} {m.name}"


def numbers(measurements: Sequence[Measurement], m: Measurement) -> tuple[str, str, str]:
    """Return microseconds, GB/s, and the share of the copy's speed."""
    if m.seconds is None or m.bytes_per_second is None:
        return "", "", ""
    ratio = ratio_to_copy(measurements, m)
    speed = m.bytes_per_second / 1e9
    return (
        f"{m.seconds * 1e6:,.1f}",
        f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}",
        "" if ratio is None else f"{ratio:.3f}",
    )


def check_text(m: Measurement) -> str:
    """Return what the check found: the largest error, relative to the value or to 1."""
    if m.error is None:
        return ""
    if m.wrong:
        return "WRONG" if m.error == float("inf") else f"WRONG {m.error:.0e}"
    return "exact" if m.error == 0 else f"{m.error:.0e}"


def notes(m: Measurement) -> str:
    """Return the note, and the clock if it is not the GPU's."""
    return ", ".join(part for part in (m.note, WALL if m.clock == WALL else "") if part)


# ----- The plot, on logarithmic axes and with the copy as the ceiling


def save_plot(path: Path, measurements: Sequence[Measurement], title: str, source: str = "") -> None:
    """Write the picture, with one panel for each operator and dtype.

    Args:
        path: the PNG file.
        measurements: what to draw.
        title: what to write above the panels.
        source: what the picture was made from; kept in the file.

    Raises:
        GpuscanError: matplotlib is not installed, or there is nothing to draw.
        OSError: the file cannot be written.
    """
    need_matplotlib()
    panels: dict[str, dict[tuple[str, str], list[Measurement]]] = {}
    for m in measurements:
        if m.seconds is not None:
            panels.setdefault(m.case.series, {}).setdefault((m.library, m.name), []).append(m)
    if not panels:
        raise GpuscanError(
            "a plot was asked for, but there is nothing to draw: no contender gave a time. The table says why"
        )
    figure_class: Any = importlib.import_module("matplotlib.figure").Figure
    width, height = PANEL_INCHES
    figure = figure_class(figsize=(width * len(panels), height), layout="constrained")
    figure.suptitle(title)
    for axes, (series, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for (library, name), line in lines.items():
            points = sorted((m.case.elements, (m.bytes_per_second or 0.0) / 1e9) for m in line)
            label = "copy of the same bytes" if library == COPY else f"{library} {name}"
            axes.plot(*zip(*points, strict=True), label=label, **_style(library))
        axes.set_xscale("log", base=2)
        sizes = sorted({m.case.elements for line in lines.values() for m in line})
        axes.set_xticks(sizes, [_power(size) for size in sizes])
        axes.minorticks_off()
        axes.set_yscale("log")
        for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatted(importlib.import_module("matplotlib.ticker").LogFormatter(labelOnlyBase=False))
        axes.set_title(series)
        axes.set_xlabel("elements")
        axes.set_ylabel("GB/s read and written")
        axes.grid(True, which="both", linewidth=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=150, format="png", metadata={"Source": source} if source else None)


def need_matplotlib() -> None:
    """Raise GpuscanError if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise GpuscanError(
            "a plot was asked for, but matplotlib is not installed. Install it with: pip install matplotlib"
        )


def _power(elements: int) -> str:
    """Return the label of a size, with its exponent set high."""
    base, power, exponent = power_or_number(elements).partition("^")
    return f"${base}^{{{exponent}}}$" if power else base


def _style(library: str) -> dict[str, object]:
    if library == COPY:
        return {"color": "black", "linestyle": "--", "linewidth": 1.5}
    if library == OURS:
        return {"marker": "o", "linewidth": 2.2, "zorder": 3}
    return {"marker": ".", "linewidth": 1.0, "alpha": 0.8}
