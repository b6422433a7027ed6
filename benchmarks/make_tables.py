"""Make the tables and plots of benchmarks/results/*-sums.json that the README and the documents show.

Run it after `python benchmarks/compare.py … --json benchmarks/results/NAME-sums.json`: python benchmarks/make_tables.py

A page has a block for each table: the text between `<!-- KIND of FILE, by benchmarks/make_tables.py -->` and
`<!-- end -->`. The kinds are the functions below. tests/test_docs.py compares pages and plots with the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuscan.tools.bench.cases import ScanCase, power_or_number
from gpuscan.tools.bench.results import COPY, OURS, Measurement, save_plot

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results"
PAGES = [CHECKOUT / name for name in ("README.md", "docs/performance.md", "docs/site/index.md")]

BLOCK = re.compile(r"(<!-- (\w+) of ([\w.-]+), by benchmarks/make_tables\.py -->\n)(.*?)(<!-- end -->)", re.DOTALL)

# The sizes of the short table, and the largest size of the long one for which times say more than rates.
SHORT_SIZES = (1 << 20, 1 << 25, 1 << 28)
LARGEST_TIMED = 1 << 22
# The least size of the long table. Smaller ones measure the launch of a kernel.
LEAST_SIZE = 1 << 16

# The calls from Python to show: the name here, gpuscan's and PyTorch's name in the file.
CALLS = (
    ("a scan into an array, and a wait", "scan(a, out=o), synchronize()", "cumsum(a, out=o), synchronize()"),
    ("ten calls of a plan, and one wait", "10 plan(a, out=o), synchronize()", "10 cumsum(a, out=o), synchronize()"),
    ("a reduction to a number in Python", "reduce(a).numpy()", "sum().item()"),
)
CALL_SIZES = (1 << 10, 1 << 20)

# The calls from the host's memory to the host's memory, by library, and their sizes.
TRANSFERS = {OURS: ("gpuscan", "scan(NumPy array, out=…)"), "torch": ("PyTorch", "cumsum(host.cuda()).cpu()")}
TRANSFER_SIZES = (1 << 20, 1 << 22, 1 << 25, 1 << 28)

NAMES = {"cub": "CUB", "torch": "PyTorch", "jax": "JAX", "cupy": "CuPy", "numpy": "NumPy"}


@dataclass(frozen=True)
class Figures:
    """A file of `compare.py --json`, and the page that shows it."""

    path: Path
    page: Path

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text(encoding="utf-8")))

    @property
    def date(self) -> str:
        return str(self.data["date"])[:10]

    @property
    def gpu(self) -> str:
        """The name of the GPU, without its type and backend."""
        return str(self.data["device"]["summary"]).partition(" (")[0]

    def link(self, suffix: str) -> str:
        """Return the path from the page to the file with this suffix: the figures or their plot."""
        return os.path.relpath(self.path.with_suffix(suffix), self.page.parent).replace(os.sep, "/")

    def rows(self) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
        """Return the timed measurements of each contender by their size, in the order of the file."""
        rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for each in self.data["measurements"]:
            if each["microseconds"]:
                rows.setdefault((each["library"], each["name"]), {})[each["length"]] = each
        return rows

    def peers(self) -> list[str]:
        """Return the names of the other libraries that were measured."""
        return list(dict.fromkeys(NAMES[library] for library, _ in self.rows() if library in NAMES))


# ----- The kinds of blocks


def picture(figures: Figures) -> str:
    """Return the plot, with the libraries that it shows."""
    shown = " and ".join(filter(None, [", ".join(figures.peers()[:-1]), *figures.peers()[-1:]]))
    return f"![Throughput against size on an {figures.gpu}, with {shown}]({figures.link('.png')})\n"


def rates(figures: Figures) -> str:
    """Return the short table: GB/s of the strategies that matter and of the other libraries."""
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


def times(figures: Figures) -> str:
    """Return the long table: microseconds of short arrays, GB/s and shares of the copy's speed of long ones."""
    options = " ".join(figures.data["command"][2:])  # after the program: `python benchmarks/compare.py`
    options = re.sub(r" --(json|plot) \S+", "", options)
    head = (
        f"Sums of `uint32`, measured on {figures.date}. This measures them again:\n"
        f"`python benchmarks/compare.py {options}`\n"
        f"([figures]({figures.link('.json')}), [plot]({figures.link('.png')})).\n"
        "Microseconds up to 2^22, then GB/s and shares of the copy's speed:\n\n"
    )
    rows = figures.rows()
    sizes = [size for size in rows[COPY, "kernel"] if size >= LEAST_SIZE]
    lines = [[label(key, row), *(cell(row.get(size)) for size in sizes)] for key, row in rows.items()]
    return head + table(["", *map(power_or_number, sizes)], lines)


def calls(figures: Figures) -> str:
    """Return the wall-clock times of calls from Python."""
    found = {(each["library"], each["call"], each["elements"]): each for each in figures.data["calls"]}
    lines = []
    for name, ours, theirs in CALLS:
        pairs = [
            [found[library, call, size] for library, call in ((OURS, ours), ("torch", theirs))] for size in CALL_SIZES
        ]
        lines.append([name, *(" (".join(f"{each['microseconds']:.0f}" for each in pair) + ")" for pair in pairs)])
    head = f"Calls on an {figures.gpu} in microseconds, and PyTorch's in parentheses:\n\n"
    return head + table(["", *map(power_or_number, CALL_SIZES)], lines)


def transfers(figures: Figures) -> str:
    """Return the wall-clock times of sums from arrays in the host's memory to others."""
    found = {(each["library"], each["call"], each["elements"]): each for each in figures.data["calls"]}
    lines = [
        [f"{name} `{call}`", *(f"{found[library, call, size]['microseconds'] / 1e3:.2f}" for size in TRANSFER_SIZES)]
        for library, (name, call) in TRANSFERS.items()
    ]
    head = f"Sums of arrays in the host's memory into others, by an {figures.gpu}, in milliseconds:\n\n"
    return head + table(["", *map(power_or_number, TRANSFER_SIZES)], lines)


KINDS = {"picture": picture, "rates": rates, "times": times, "calls": calls, "transfers": transfers}


# ----- Cells


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


def cell(measured: dict[str, Any] | None) -> str:
    """Return the time of a short array, or the speed of a long one with its share of the copy's."""
    if measured is None:
        return ""
    if measured["length"] <= LARGEST_TIMED:
        return f"{measured['microseconds']:.1f}"
    return rate(measured) + ("" if measured["library"] == COPY else f" ({measured['of_copy']:.2f})")


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n".replace("  ", " ") for cells in (head, ["---"] * len(head), *lines))


# ----- Pages and plots


def page_text(page: Path) -> str:
    """Return the text of a page with its blocks made from the files."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}{KINDS[found[2]](Figures(RESULTS / found[3], page))}{found[5]}"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def digest_of(path: Path) -> str:
    """Return the digest of a file of figures, which its plot holds as the text "Source"."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def draw(path: Path) -> None:
    """Draw the plot of a file into the same folder."""
    data = json.loads(path.read_text(encoding="utf-8"))
    measurements = [
        Measurement(
            ScanCase(each["op"], np.dtype(each["dtype"]), each["length"], each["rows"]),
            each["library"],
            each["name"],
            each["microseconds"] and each["microseconds"] / 1e6,
        )
        for each in data["measurements"]
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
