"""The tables of measurements, with the fastest contender of each case first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gpuscan.tools.bench.results import COPY, OURS, Measurement, ratio_to_copy
from gpuscan.tools.bench.scans import tile_text
from gpuscan.tools.bench.tile_search import Found
from gpuscan.tools.bench.timer import WALL

if TYPE_CHECKING:
    from rich.console import RenderableType


def tables(measurements: Sequence[Measurement]) -> list[RenderableType]:
    """Return a table for each operator and dtype, with a section for each size, and the reasons for missing times."""
    from rich.text import Text

    by_series: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_series.setdefault(measurement.case.series, []).append(measurement)
    shown: list[RenderableType] = []
    for series, rows in by_series.items():
        timed = [m for m in rows if m.seconds is not None]
        shared = _shared_notes(timed)
        shown.append(_timed(series, timed, measurements, shared))
        shown += [Text(f"{library}: {note}", "dim") for library, note in shared.items()]
        if untimed := [m for m in rows if m.seconds is None]:
            shown.append(_untimed(untimed, len({m.case for m in rows})))
    return shown


def _shared_notes(rows: Sequence[Measurement]) -> dict[str, str]:
    """Return the note of each library that has one and the same on all its rows, such as a version and a clock."""
    found: dict[str, set[str]] = {}
    for m in rows:
        if m.library not in (OURS, COPY):
            found.setdefault(m.library, set()).add(notes(m))
    return {library: each for library, (each, *others) in found.items() if each and not others}


def _timed(
    series: str, rows: Sequence[Measurement], measurements: Sequence[Measurement], shared: Mapping[str, str]
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
        for place, m in enumerate(section):
            style = {OURS: "bold", COPY: "cyan"}.get(m.library, "")
            note = "" if m.library in shared else notes(m)
            cells = [case.size if place == 0 else "", who(m), *numbers(measurements, m), verdict(m), note]
            table.add_row(*(Text(cell) for cell in cells), style=style, end_section=place == len(section) - 1)
    return table


def _untimed(rows: Sequence[Measurement], cases: int) -> RenderableType:
    """Return a row for each reason why there is no time, not for each size."""
    from rich.table import Table
    from rich.text import Text

    reasons: dict[tuple[str, str], list[str]] = {}
    for m in rows:
        reasons.setdefault((who(m), m.note), []).append(m.case.size)
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


def verdict(m: Measurement) -> str:
    """Return what the check found: the largest error, relative to the value or to 1."""
    if m.error is None:
        return ""
    if m.wrong:
        return "WRONG" if m.error == float("inf") else f"WRONG {m.error:.0e}"
    return "exact" if m.error == 0 else f"{m.error:.0e}"


def notes(m: Measurement) -> str:
    """Return the note, and the clock if it is not the GPU's."""
    return ", ".join(part for part in (m.note, WALL if m.clock == WALL else "") if part)


def tuning_table(found: Sequence[Found]) -> RenderableType:
    """Return the table of the shapes that a search found."""
    from rich import box
    from rich.table import Table

    table = Table(header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("element", "length", "tried", "default", "µs", "fastest", "µs", "gain"):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("tried", "µs", "gain") else "left")
    for f in found:
        gain = f.default_seconds / f.best_seconds - 1
        times = (f"{f.default_seconds * 1e6:,.1f}", f"{f.best_seconds * 1e6:,.1f}")
        shapes = (tile_text(f.default), "the same" if f.best == f.default else tile_text(f.best))
        table.add_row(f.case.series, f.case.size, str(f.tried), shapes[0], times[0], shapes[1], times[1], f"{gain:.1%}")
    return table
