"""Figures of a benchmark: options that the programs share, lines to read, and a file for benchmarks/make_tables.py.

A file is a JSON object that says when, where and by which command it was measured. Its "figures" are the cells of a
table: each has a "case" (the row), a "column", "microseconds", and "of_copy" where a copy of the same bytes was timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gpuscan as gs
from gpuscan.tools.bench.results import describe_run


@dataclass(frozen=True)
class Figure:
    """One measured time.

    Attributes:
        case: what was computed.
        column: how or by which library it was computed.
        microseconds: the time.
        of_copy: the time of a copy of the same bytes over this time; None if no copy was measured.
    """

    case: str
    column: str
    microseconds: float
    of_copy: float | None = None


class FigureList:
    """The figures of one run of a program, which are printed as they come."""

    def __init__(self, device: gs.Device) -> None:
        self._device = device
        self._figures: list[Figure] = []
        print(device, device.capabilities.driver)

    def add(self, case: str, column: str, seconds: float, copy_seconds: float | None = None) -> None:
        """Keep a time and print it.

        Args:
            case: what was computed.
            column: how or by which library it was computed.
            seconds: the time.
            copy_seconds: the time of a copy of the same bytes.
        """
        share = None if copy_seconds is None else copy_seconds / seconds
        shown = "" if share is None else f"  {share:.3f} of a copy"
        print(f"{case:48} {column:16} {seconds * 1e6:11.1f} us{shown}", flush=True)
        rounded = None if share is None else round(share, 4)
        self._figures.append(Figure(case, column, round(seconds * 1e6, 3), rounded))

    def write(self, path: Path | None, **more: Any) -> None:
        """Write the figures to a file, with more entries if there are any, or do nothing without a path."""
        if path is None:
            return
        program = f"benchmarks/{Path(sys.argv[0]).name}"
        record = describe_run(self._device, ["python", program, *_arguments_without_files(sys.argv[1:])])
        if self._figures:
            more = {"figures": [asdict(figure) for figure in self._figures]} | more
        path.write_text(json.dumps(record | more, indent=1) + "\n", encoding="utf-8")


def _arguments_without_files(arguments: list[str]) -> list[str]:
    """Return the arguments of a program without `--json FILE`, which names a place on one machine."""
    kept = list(arguments)
    if "--json" in kept:
        at = kept.index("--json")
        del kept[at : at + 2]
    return [argument for argument in kept if not argument.startswith("--json=")]


def option_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all programs have: `--device` and `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="a part of an adapter's name")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    return parser
