"""The plot of speed against size on logarithmic axes, with the copy as the ceiling."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuscan.errors import GpuscanError
from gpuscan.tools.bench.cases import power_or_number
from gpuscan.tools.bench.results import COPY, OURS, Measurement

# Width and height of a panel in inches.
PANEL_INCHES = (8.0, 5.5)


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
            axes.plot(*zip(*points, strict=True), label=_label(library, name), **_style(library))
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


def _label(library: str, name: str) -> str:
    return "copy of the same bytes" if library == COPY else f"{library} {name}"


def _style(library: str) -> dict[str, Any]:
    if library == COPY:
        return {"color": "black", "linestyle": "--", "linewidth": 1.5}
    if library == OURS:
        return {"marker": "o", "linewidth": 2.2, "zorder": 3}
    return {"marker": ".", "linewidth": 1.0, "alpha": 0.8}
