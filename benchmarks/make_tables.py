"""Make the tables and plots that the README and the documents show, from the files in benchmarks/results/.

Run it after a program of benchmarks/ has written one of them: python benchmarks/make_tables.py

A page has a block for each table: the text between `<!-- KIND of FILES, by benchmarks/make_tables.py -->` and
`<!-- end -->`. The kinds are the functions below. FILES names one file, or subjects with commas between them. The
files of a subject are all `results/HARDWARE-SUBJECT.json`. tests/test_docs.py compares pages and plots with the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpuscan.tools.bench.cases import ScanCase, power_or_number
from gpuscan.tools.bench.results import COPY, OURS, Measurement, save_plot

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results"
PAGES = [CHECKOUT / name for name in ("README.md", "docs/performance.md", "docs/site/index.md")]

BLOCK = re.compile(r"(<!-- (\w+) of ([\w.,-]+), by benchmarks/make_tables\.py -->\n)(.*?)(<!-- end -->)", re.DOTALL)

# The sizes of the short table of sums.
SHORT_SIZES = (1 << 20, 1 << 25, 1 << 28)
# The least size of the long table of sums. Smaller ones measure the launch of a kernel.
LEAST_SIZE = 1 << 16
# The sizes of the table of calls.
CALL_SIZES = (1 << 10, 1 << 20)

# Calls from Python, and what PyTorch calls the same. An empty name means that PyTorch was not measured.
CALLS = {
    "scan(a, out=o), synchronize()": "cumsum(a, out=o), synchronize()",
    "scan(a), synchronize()": "",
    "10 plan(a, out=o), synchronize()": "10 cumsum(a, out=o), synchronize()",
    "reduce(a).numpy()": "sum().item()",
    "scan(NumPy array, out=…)": "cumsum(host.cuda()).cpu()",
    "device.synchronize()": "",
}

# The calls from the host's memory to the host's memory, by library, and their sizes.
TRANSFERS = {OURS: ("gpuscan", "scan(NumPy array, out=…)"), "torch": ("PyTorch", "cumsum(host.cuda()).cpu()")}
TRANSFER_SIZES = (1 << 20, 1 << 22, 1 << 25, 1 << 28)

NAMES = {"cub": "CUB", "torch": "PyTorch", "jax": "JAX", "cupy": "CuPy", "numpy": "NumPy"}
# The hardware and software in the names of files.
HARDWARE = {
    "h100": "H100",
    "h200": "H200",
    "lavapipe": "lavapipe",
    "swiftshader-wgpu": "SwiftShader, wgpu-native",
    "swiftshader-dawn": "SwiftShader, Dawn",
}

# Units of time, from the largest on, in microseconds. A table uses the largest that its shortest time reaches.
UNITS = {"Seconds": 1e6, "Milliseconds": 1e3, "Microseconds": 1.0}


@dataclass(frozen=True)
class Figures:
    """A file of figures, and the page that shows it."""

    path: Path
    page: Path

    @cached_property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text(encoding="utf-8")))

    @property
    def date(self) -> str:
        return str(self.data["date"])[:10]

    @property
    def gpu(self) -> str:
        """The name of the GPU, without its type and backend."""
        return str(self.data["device"]["summary"]).partition(" (")[0]

    @property
    def hardware(self) -> str:
        """The short name of the hardware, from the name of the file."""
        name = self.path.stem.rpartition("-")[0]
        return HARDWARE.get(name, name)

    @property
    def command(self) -> str:
        """The command that made the file, without the files that it wrote."""
        command = re.sub(r" --(json|plot) \S+", "", " ".join(self.data["command"]))
        # `gpuscan bench` once measured CUB too.
        return command.replace("gpuscan bench", "python benchmarks/compare.py") if "cub" in command else command

    @property
    def source(self) -> str:
        """Where, when and by which command the figures were measured."""
        copied = f", {self.data['note']}" if "note" in self.data else ""
        driver = self.data["device"]["driver"].partition(" (")[0]
        measured = f"**{self.gpu}**, driver {driver}, {self.date}, `{self.command}`"
        return f"{measured} ([figures]({self.link('.json')})){copied}"

    def link(self, suffix: str) -> str:
        """Return the path from the page to the file with this suffix: the figures or their plot."""
        return os.path.relpath(self.path.with_suffix(suffix), self.page.parent).replace(os.sep, "/")

    def rows(self) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
        """Return the timed measurements of each contender by their size, in the order of the file."""
        rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for measurement in self.data["measurements"]:
            if measurement["microseconds"]:
                rows.setdefault((measurement["library"], measurement["name"]), {})[measurement["length"]] = measurement
        return rows

    def peers(self) -> list[str]:
        """Return the names of the other libraries that were measured."""
        return list(dict.fromkeys(NAMES[library] for library, _ in self.rows() if library in NAMES))

    def call_times(self) -> dict[tuple[str, str, int], float]:
        """Return the microseconds of calls from Python by library, call and number of elements."""
        return {
            (call["library"], call["call"], call["elements"]): call["microseconds"]
            for call in self.data["calls"]
            if call["microseconds"]
        }


# ----- The kinds of blocks


def picture(files: Sequence[Figures]) -> str:
    """Return the plot, with the libraries that it shows."""
    (figures,) = files
    shown = " and ".join(filter(None, [", ".join(figures.peers()[:-1]), *figures.peers()[-1:]]))
    return f"![Throughput against size on an {figures.gpu}, with {shown}]({figures.link('.png')})\n"


def rates(files: Sequence[Figures]) -> str:
    """Return the short table of sums: GB/s of the strategies that matter and of the other libraries."""
    (figures,) = files
    head = (
        f"Sums of 32-bit integers on an {figures.gpu} over Vulkan, in GB/s of bytes read plus written, from\n"
        f"one run of `benchmarks/compare.py` ([figures]({figures.link('.json')}), {figures.date}):\n\n"
    )
    names = {
        (COPY, "kernel"): "a copy of the same bytes",
        (OURS, "lookahead"): "gpuscan (`lookahead`)",
        (OURS, "fallback"): "gpuscan (`fallback`, which any GPU can run)",
    }
    lines = [
        [names.get(key) or label(key, row), *(rate(row.get(size)) for size in SHORT_SIZES)]
        for key, row in figures.rows().items()
        if key in names or key[0] in NAMES
    ]
    return head + table(["", *map(power_or_number, SHORT_SIZES)], lines)


def times(files: Sequence[Figures]) -> str:
    """Return the long table of sums for each file: microseconds and shares of the copy's speed, by size."""
    blocks = []
    for figures in files:
        rows = figures.rows()
        sizes = [size for size in rows[COPY, "kernel"] if size >= LEAST_SIZE]
        lines = [
            [label(key, row), *(time_cell(row.get(size), share=key[0] != COPY) for size in sizes)]
            for key, row in rows.items()
        ]
        head = f"{figures.source[:-1]}, [plot]({figures.link('.png')})). Microseconds:\n\n"
        blocks.append(head + table(["", *map(power_or_number, sizes)], lines))
    return "\n".join(blocks)


def figures(files: Sequence[Figures]) -> str:
    """Return a table for each file that a program wrote by `benchmarks/figures.py`, with cases as rows."""
    blocks = []
    for file in files:
        cells = {(figure["case"], figure["column"]): figure for figure in file.data["figures"]}
        cases, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in range(2))
        least = min(figure["microseconds"] for figure in cells.values())
        unit = next(name for name, size in UNITS.items() if least >= size or size == 1)
        lines = [
            [case, *(time_cell(cells.get((case, column)), unit=UNITS[unit]) for column in columns)] for case in cases
        ]
        blocks.append(f"{file.source}. {unit}:\n\n" + table(["", *columns], lines))
    return "\n".join(blocks)


def families(files: Sequence[Figures]) -> str:
    """Return the shares of a copy's speed by families of random cases, for each file."""
    names = {"cases": "cases", "worst": "worst", "worst case": "worst case", "tenth": "worst tenth", "median": "median"}
    blocks = []
    for file in files:
        lines = [
            [
                family,
                *(plain_cell(counts[name]) for name in names),
                f"{counts['torch is faster']} of {counts['torch cases']}" if counts["torch cases"] else "",
            ]
            for family, counts in file.data["families"].items()
        ]
        head = f"{file.source}. Shares of a copy's speed:\n\n"
        blocks.append(head + table(["family", *names.values(), "slower than PyTorch"], lines))
    return "\n".join(blocks)


def calls(files: Sequence[Figures]) -> str:
    """Return the wall-clock times of calls from Python, with a column for each file and size."""
    columns = [
        (figures, size)
        for size in CALL_SIZES
        for figures in files
        if (OURS, next(iter(CALLS)), size) in figures.call_times()
    ]
    lines = []
    for ours, theirs in CALLS.items():
        cells = []
        for figures, size in columns:
            times_of_calls = figures.call_times()
            peer = times_of_calls.get(("torch", theirs, size))
            cells.append(f"{times_of_calls[OURS, ours, size]:,.0f}" + (f" ({peer:,.0f})" if peer else ""))
        lines.append([f"`{ours}`", *cells])
    head = [f"{figures.hardware}, {power_or_number(size)}" for figures, size in columns]
    return sources(files) + "Microseconds, with PyTorch's in parentheses:\n\n" + table(["", *head], lines)


def transfers(files: Sequence[Figures]) -> str:
    """Return the wall-clock times of sums from arrays in the host's memory to others."""
    lines = []
    for figures in files:
        times_of_calls = figures.call_times()
        for library, (name, call) in TRANSFERS.items():
            cells = [three_digits(times_of_calls[library, call, size] / 1e3) for size in TRANSFER_SIZES]
            lines.append([figures.hardware, f"{name} `{call}`", *cells])
    head = sources(files) + "Milliseconds:\n\n"
    return head + table(["", "", *map(power_or_number, TRANSFER_SIZES)], lines)


KINDS: dict[str, Callable[[Sequence[Figures]], str]] = {
    block.__name__: block for block in (picture, rates, times, figures, families, calls, transfers)
}


# ----- Cells


def sources(files: Sequence[Figures]) -> str:
    """Return when the figures of a table of several files were measured."""
    return "; ".join(f"[{file.hardware}]({file.link('.json')}), {file.date}" for file in files) + ". "


def plain_cell(value: float | int | str) -> str:
    """Return a share with two digits, and anything else as it is."""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def label(key: tuple[str, str], row: dict[int, dict[str, Any]]) -> str:
    """Return the name of a contender, with its version where the file has one."""
    library, name = key
    if library not in NAMES:
        return name if library == OURS else library
    version = re.search(r"(\d[\d.]*)", next(iter(row.values()))["note"])
    return f"{NAMES[library]}{f' {version[1]}' if version else ''} `{name.partition(',')[0]}`"


def rate(measured: dict[str, Any] | None) -> str:
    """Return a speed in GB/s, or nothing if there is no time."""
    return "" if measured is None else f"{measured['gigabytes_per_second']:.0f}"


def time_cell(measured: dict[str, Any] | None, unit: float = 1.0, share: bool = True) -> str:
    """Return a time, with the share of a copy's speed in parentheses if it was measured; nothing without a time.

    Shares below 0.005 would all be 0.00, so they are not shown.
    """
    if measured is None:
        return ""
    of_copy = measured.get("of_copy") or 0
    return three_digits(measured["microseconds"] / unit) + (f" ({of_copy:.2f})" if share and of_copy >= 0.005 else "")


def three_digits(number: float) -> str:
    """Return a number with three digits, or more if it is 1,000 or more."""
    return f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n".replace("  ", " ") for cells in (head, ["---"] * len(head), *lines))


# ----- Pages and plots


def files_of(names: str, page: Path) -> list[Figures]:
    """Return the files that a block names, for a page."""
    files = []
    for name in names.split(","):
        paths = [RESULTS / name] if name.endswith(".json") else sorted(RESULTS.glob(f"*-{name}.json"))
        files += [Figures(path, page) for path in paths]
    return files


def block_text(kind: str, names: str, page: Path) -> str:
    """Return the text of a block, or the command that would record its figures if there is no file yet."""
    if files := files_of(names, page):
        return KINDS[kind](files)
    command = f"python benchmarks/{names}.py --json benchmarks/results/GPU-{names}.json"
    return f"Not recorded yet. This measures it: `{command}`\n"


def page_text(page: Path) -> str:
    """Return the text of a page with its blocks made from the files."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{block_text(match[2], match[3], page)}{match[5]}"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def digest_of(path: Path) -> str:
    """Return the digest of a file of figures, which its plot holds as the text "Source"."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def draw(path: Path) -> None:
    """Draw the plot of a file into the same folder."""
    data = json.loads(path.read_text(encoding="utf-8"))
    measurements = [
        Measurement(
            ScanCase(measurement["op"], np.dtype(measurement["dtype"]), measurement["length"], measurement["rows"]),
            measurement["library"],
            measurement["name"],
            measurement["microseconds"] and measurement["microseconds"] / 1e6,
        )
        for measurement in data["measurements"]
    ]
    title = Figures(path, path).gpu
    save_plot(path.with_suffix(".png"), measurements, title, source=f"{path.name} {digest_of(path)}")


def main() -> None:
    """Write the pages, and draw the plots."""
    for page in PAGES:
        page.write_text(page_text(page), encoding="utf-8")
    for path in sorted(RESULTS.glob("*-sums.json")):
        draw(path)


if __name__ == "__main__":
    main()
