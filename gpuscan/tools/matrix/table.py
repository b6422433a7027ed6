"""The matrix: what of the conformance suite passed where, as a table, as Markdown, and as JSON that merges."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscan._version import __version__
from gpuscan.errors import GpuscanError
from gpuscan.tools.matrix.conformance import Case, Outcome, check, suite

if TYPE_CHECKING:
    from rich.progress import TaskID
    from rich.table import Table

    from gpuscan.api.device import Device

FORMAT = "gpuscan matrix 1"
FAILURES_KEPT = 50  # in a column's file
FAILURE_LENGTH = 400  # characters


@dataclass(frozen=True)
class Cell:
    """How many cases of one feature ran on one adapter, and how many of those passed."""

    passed: int = 0
    run: int = 0
    refused: int = 0

    def __str__(self) -> str:
        if not self.run:
            return "refused" if self.refused else "–"
        return f"{self.passed}/{self.run}" + (f" ({self.refused} refused)" if self.refused else "")

    def plus(self, outcome: Outcome) -> Cell:
        refused = outcome.verdict == "refused"
        return Cell(self.passed + (outcome.verdict == "passed"), self.run + (not refused), self.refused + refused)


@dataclass(frozen=True)
class Column:
    """One adapter's share of the matrix.

    Attributes:
        adapter, driver, implementation: what ran the suite.
        version: gpuscan's, and that of the package that WebGPU came by.
        date: of the run, as ISO writes it.
        suite: ``"quick"``, ``"full"``, or what another page of the project ran.
        cells: kind of feature (``"strategy"``, ``"element"``, …) -> feature -> its cell.
        failures: what failed, in words.
    """

    adapter: str
    driver: str
    implementation: str
    version: str
    date: str
    suite: str
    cells: Mapping[str, Mapping[str, Cell]]
    failures: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What a later run replaces an earlier one by."""
        return self.adapter, self.driver, self.implementation

    @property
    def total(self) -> Cell:
        """All cases; each counts once in every kind."""
        cells = [cell for kind in list(self.cells.values())[:1] for cell in kind.values()]
        return Cell(sum(c.passed for c in cells), sum(c.run for c in cells), sum(c.refused for c in cells))

    @property
    def failed(self) -> bool:
        return self.total.passed < self.total.run or not self.total.run


# ----- Running


def run_column(
    device: Device, cases: Sequence[Case], suite: str, progress: Callable[[Outcome], None] = lambda outcome: None
) -> Column:
    """Run the cases on a device; `progress` is told of each as it ends."""
    cells: dict[str, dict[str, Cell]] = {}
    failures: list[str] = []
    for case in cases:
        outcome = check(device, case)
        for kind, feature in case.features().items():
            row = cells.setdefault(kind, {})
            row[feature] = row.get(feature, Cell()).plus(outcome)
        if outcome.verdict == "failed":
            failures.append(f"{case}: {' '.join(outcome.detail.split())[:FAILURE_LENGTH]}")
        progress(outcome)
    capabilities = device.capabilities
    return Column(
        adapter=capabilities.summary,
        driver=capabilities.driver,
        implementation=capabilities.implementation,
        version=f"gpuscan {__version__}, {_package(capabilities.implementation)}",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        suite=suite,
        cells=cells,
        failures=tuple(failures),
    )


def run_all(devices: Sequence[Device], quick: bool = False) -> list[Column]:
    """Run the suite on each device, with a progress bar for each on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cases = suite(quick)
    counts = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *counts, console=Console(stderr=True)) as progress:
        columns = []
        for device in devices:
            task = progress.add_task(device.capabilities.summary, total=len(cases), failed=0)
            failed = 0

            def show(outcome: Outcome, task: TaskID = task) -> None:
                nonlocal failed
                failed += outcome.verdict == "failed"
                progress.update(task, advance=1, failed=failed)

            columns.append(run_column(device, cases, "quick" if quick else "full", show))
        return columns


def _package(implementation: str) -> str:
    package = "wgpudawn" if implementation.startswith("Dawn") else "wgpu"
    return f"{package} {importlib.metadata.version(package)}"


# ----- JSON


def to_json(columns: Iterable[Column]) -> str:
    """The columns as a file of which several merge."""
    data = [asdict(column) | {"failures": column.failures[:FAILURES_KEPT]} for column in columns]
    return json.dumps({"format": FORMAT, "columns": data}, indent=1, ensure_ascii=False)


def read(path: Path) -> list[Column]:
    """The columns of a file that `to_json` wrote.

    Raises:
        GpuscanError: the file cannot be read, or is no such file.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT!r}")
        return [_column(column) for column in data["columns"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise GpuscanError(f"{path} is no file that `gpuscan matrix --json` wrote: {error}") from error


def _column(data: dict[str, Any]) -> Column:
    cells = {
        str(kind): {str(feature): Cell(**{name: int(n) for name, n in cell.items()}) for feature, cell in row.items()}
        for kind, row in data["cells"].items()
    }
    failures = tuple(str(failure) for failure in data["failures"])
    names = ("adapter", "driver", "implementation", "version", "date", "suite")
    return Column(**{name: str(data[name]) for name in names}, cells=cells, failures=failures)


def merge(columns: Iterable[Column]) -> list[Column]:
    """One column for each adapter, driver and implementation: that of the latest date, of equals the last."""
    merged: dict[tuple[str, str, str], Column] = {}
    for column in columns:
        if column.key not in merged or column.date >= merged[column.key].date:
            merged[column.key] = column
    return list(merged.values())


# ----- Tables


def rows(columns: Sequence[Column]) -> list[tuple[str, str, list[Cell]]]:
    """Kind, feature, and the cells of the columns, in the order of the suite; sizes by number."""
    features: dict[tuple[str, str], None] = {}
    for column in columns:
        for kind, row in column.cells.items():
            features |= dict.fromkeys((kind, feature) for feature in row)
    kinds = list(dict.fromkeys(kind for kind, _ in features))

    def place(feature: tuple[str, str]) -> tuple[int, int]:
        number = feature[1].replace(",", "")
        return kinds.index(feature[0]), int(number) if feature[0] == "size" and number.isdecimal() else 0

    return [
        (kind, feature, [column.cells.get(kind, {}).get(feature, Cell()) for column in columns])
        for kind, feature in sorted(features, key=place)
    ]


def _heads(columns: Sequence[Column]) -> list[list[str]]:
    return [
        [column.adapter, column.driver, column.implementation, column.version, f"{column.suite}, {column.date}"]
        for column in columns
    ]


def table(columns: Sequence[Column]) -> Table:
    """The matrix for a terminal: a cell that did not pass is red."""
    from rich.table import Table
    from rich.text import Text

    made = Table(row_styles=["", "dim"], header_style="bold")
    made.add_column("feature", no_wrap=True)
    for head in _heads(columns):
        made.add_column(Text("\n".join(head)), justify="right", overflow="fold")
    kind_before = ""
    for kind, feature, cells in rows(columns):
        if kind != kind_before:
            made.add_section()
            made.add_row(Text(kind, "bold italic"))
            kind_before = kind
        shown = [Text(str(cell), "bold red" if cell.passed < cell.run else "") for cell in cells]
        made.add_row(Text(f"  {feature}"), *shown)
    made.add_section()
    made.add_row("all", *(Text(str(column.total), "bold red" if column.failed else "bold green") for column in columns))
    return made


def markdown(columns: Sequence[Column]) -> str:
    """The matrix as a Markdown page."""
    lines = [
        "# What works where",
        "",
        "Made by `gpuscan matrix` from runs on the adapters named; `gpuscan matrix --merge` puts such runs together.",
        "A cell is the cases that passed of those that ran. Each case is one scan with a known result, and",
        "counts in one row of every section. *refused* means that gpuscan says no, with a reason: the probe found the",
        "strategy unsafe on this adapter, or the adapter lacks the type. *–* means that the suite has no such case.",
        "",
    ]
    for number, column in enumerate(columns, 1):
        lines.append(
            f"{number}. {column.adapter}: {column.driver}; {column.implementation}; {column.version}; "
            f"{column.suite} suite, {column.date}"
        )
    numbers = [str(number) for number in range(1, len(columns) + 1)]
    lines += ["", f"| | {' | '.join(numbers)} |", f"| --- |{' ---: |' * len(columns)}"]
    kind_before = ""
    for kind, feature, cells in rows(columns):
        if kind != kind_before:
            lines.append(f"| **{kind}** |{' |' * len(columns)}")
            kind_before = kind
        shown = [f"**{cell}**" if cell.passed < cell.run else str(cell) for cell in cells]
        lines.append(f"| {feature} | {' | '.join(shown)} |")
    lines.append(f"| **all** | {' | '.join(f'**{column.total}**' for column in columns)} |")
    failures = [(number, failure) for number, column in enumerate(columns, 1) for failure in column.failures]
    if failures:
        lines += ["", "Failures:", "", *(f"- {number}: {failure}" for number, failure in failures)]
    return "\n".join(lines) + "\n"
