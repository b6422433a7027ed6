"""The columns of the matrix: how much of the suite passed on one adapter; their files, and their table."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.tools.matrix.conformance import Case, Outcome, check

if TYPE_CHECKING:
    from rich.console import RenderableType

# The name of the file format, with its version.
FORMAT = "gpuscan matrix 1"

# The text between the parts of a case in a file.
SEPARATOR = " | "

# The number of failures of a column that a file keeps.
MAX_FAILURES = 50

# The number of characters after which a failure's text is cut off.
MAX_FAILURE_LENGTH = 400


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

    @property
    def in_short(self) -> str:
        """The cell for a terminal, where columns are narrow."""
        return f"{self.passed}/{self.run}" + (f" -{self.refused}" if self.refused else "") if self.run else str(self)

    def plus(self, outcome: Outcome) -> Cell:
        refused = outcome.status == "refused"
        return Cell(self.passed + (outcome.status == "passed"), self.run + (not refused), self.refused + refused)


@dataclass(frozen=True)
class Column:
    """The results of one run of the suite on one adapter.

    Attributes:
        adapter, driver, implementation: what ran the suite.
        version: the versions of gpuscan and of the package that provides WebGPU.
        date: the date of the run in ISO form.
        suite: ``"quick"``, ``"full"``, or the name of another suite, such as the exported page's.
        cells: category of feature (``"strategy"``, ``"element"``, …) -> feature -> its cell.
        failures: a description of each case that failed.
        cases: the cases that were run; empty in columns of browsers, which have cases of their own.
    """

    adapter: str
    driver: str
    implementation: str
    version: str
    date: str
    suite: str
    cells: Mapping[str, Mapping[str, Cell]]
    failures: tuple[str, ...] = ()
    cases: frozenset[Case] = frozenset()

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the column: a later run of the same key replaces it."""
        return self.adapter, self.driver, self.implementation

    @property
    def total(self) -> Cell:
        """The cell of all cases. Each case counts once in every category, so one category is summed."""
        cells = [cell for row in list(self.cells.values())[:1] for cell in row.values()]
        return Cell(sum(c.passed for c in cells), sum(c.run for c in cells), sum(c.refused for c in cells))

    @property
    def failed(self) -> bool:
        return self.total.passed < self.total.run or not self.total.run

    def plus(self, outcome: Outcome) -> Column:
        """Return the column with one more case."""
        case, cells, failures = outcome.case, dict(self.cells), self.failures
        for category, feature in case.features().items():
            row = cells.get(category, {})
            cells[category] = {**row, feature: row.get(feature, Cell()).plus(outcome)}
        if outcome.status == "failed":
            failures += (f"{case}: {' '.join(outcome.detail.split())[:MAX_FAILURE_LENGTH]}",)
        return replace(self, cells=cells, failures=failures, cases=self.cases | {case})


# ----- Running


def empty_column(device: Device, suite: str) -> Column:
    """Return the column of a device before its first case."""
    capabilities = device.capabilities
    return Column(
        adapter=capabilities.summary,
        driver=capabilities.driver,
        implementation=capabilities.implementation,
        version=f"gpuscan {__version__}, {' '.join(webgpu_package(capabilities.implementation))}",
        date=_today(),
        suite=suite,
        cells={},
    )


def run_column(
    device: Device,
    cases: Sequence[Case],
    suite: str,
    progress: Callable[[Outcome, Column], None] = lambda outcome, column: None,
    start: Column | None = None,
) -> Column:
    """Run the cases on a device, and call `progress` with each outcome and the column so far.

    Args:
        device: where to run them.
        cases: the cases to run. Cases that `start` already has are skipped.
        suite: the name of the suite that the column then has.
        progress: called after each case.
        start: a column of the device to add the cases to.
    """
    column = empty_column(device, suite) if start is None else replace(start, date=_today())
    for case in cases:
        if case not in column.cases:
            outcome = check(device, case)
            column = replace(column.plus(outcome), suite=f"part of the {suite}")
            progress(outcome, column)
    return replace(column, suite=suite)


def find_column(columns: Iterable[Column], device: Device) -> Column | None:
    """Return the column that more cases of a device can be added to: of its adapter, driver and versions."""
    fresh = empty_column(device, "")
    for column in columns:
        if (column.key, column.version) == (fresh.key, fresh.version) and column.cases:
            return column
    return None


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def webgpu_package(implementation: str) -> tuple[str, str]:
    """Return the package that provides WebGPU, and its version."""
    browser, _, pyodide = implementation.partition(", by Pyodide ")
    if pyodide:
        return "pyodide", pyodide
    package = "wgpudawn" if browser.startswith("Dawn") else "wgpu"
    return package, importlib.metadata.version(package)


# ----- JSON


def to_json(columns: Iterable[Column]) -> str:
    """Return the columns as the text of a file that `read_columns` reads."""
    data = [without_cases(column) | {"cases": _case_names(column.cases)} for column in columns]
    return json.dumps({"format": FORMAT, "columns": data}, indent=1, ensure_ascii=False)


def without_cases(column: Column) -> dict[str, object]:
    """Return the column as data, without the names of its cases."""
    data = asdict(replace(column, failures=column.failures[:MAX_FAILURES], cases=frozenset()))
    del data["cases"]
    return data


def read_columns(path: Path) -> list[Column]:
    """Return the columns of a file that `to_json` wrote.

    Raises:
        ValueError: the file cannot be read, or has another format.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT!r}")
        return [_column(column) for column in data["columns"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a file that `gpuscan matrix --json` wrote ({error}). Name one that is."
        ) from error


def _case_names(cases: Iterable[Case]) -> dict[str, str]:
    """Return the strategies of the cases that differ in nothing else: ``"uint32 | add | inclusive | 33": "auto …"``."""
    names: dict[str, list[str]] = {}
    for case in sorted(cases, key=lambda case: (case.element, case.operator, case.layout, case.size, case.strategy)):
        rest = SEPARATOR.join((case.element, case.operator, case.layout, str(case.size)))
        names.setdefault(rest, []).append(case.strategy)
    return {rest: " ".join(strategies) for rest, strategies in names.items()}


def _cases_named(names: Mapping[str, str]) -> frozenset[Case]:
    """Return the cases that `_case_names` wrote."""
    cases = set()
    for rest, strategies in names.items():
        element, operator, layout, size = rest.split(SEPARATOR)
        cases |= {Case(strategy, element, operator, layout, int(size)) for strategy in strategies.split()}
    return frozenset(cases)


def _column(data: dict[str, Any]) -> Column:
    cells = {
        str(category): {
            str(feature): Cell(**{name: int(n) for name, n in cell.items()}) for feature, cell in row.items()
        }
        for category, row in data["cells"].items()
    }
    failures = tuple(str(failure) for failure in data["failures"])
    names = ("adapter", "driver", "implementation", "version", "date", "suite")
    told = {name: str(data[name]) for name in names}
    return Column(**told, cells=cells, failures=failures, cases=_cases_named(data.get("cases", {})))


def merge_columns(columns: Iterable[Column]) -> list[Column]:
    """Keep one column for each adapter, driver and implementation.

    It is the one of the latest date; of those, the one with the most cases; and of those, the last.
    """
    merged: dict[tuple[str, str, str], Column] = {}
    for column in columns:
        kept = merged.get(column.key)
        if kept is None or (column.date, len(column.cases)) >= (kept.date, len(kept.cases)):
            merged[column.key] = column
    return list(merged.values())


# ----- The table, for a terminal and as a Markdown page


def rows(columns: Sequence[Column]) -> list[tuple[str, str, list[Cell]]]:
    """Return category, feature and the columns' cells for each row, in the suite's order; sizes in rising order."""
    features: dict[tuple[str, str], None] = {}
    for column in columns:
        for category, row in column.cells.items():
            features |= dict.fromkeys((category, feature) for feature in row)
    categories = list(dict.fromkeys(category for category, _ in features))

    def sort_key(feature: tuple[str, str]) -> tuple[int, int]:
        number = feature[1].replace(",", "")
        return categories.index(feature[0]), int(number) if feature[0] == "size" and number.isdecimal() else 0

    return [
        (category, feature, [column.cells.get(category, {}).get(feature, Cell()) for column in columns])
        for category, feature in sorted(features, key=sort_key)
    ]


def _about(number: int, column: Column) -> str:
    """Return the line that says what a column's number stands for."""
    count = column.total.run + column.total.refused
    return (
        f"{number}. {column.adapter}: {column.driver}; {column.implementation}; {column.version}; "
        f"{column.suite} suite of {count:,} cases, {column.date}"
    )


def table(columns: Sequence[Column]) -> list[RenderableType]:
    """Return the matrix for a terminal, after a line about each column. A cell in which a case failed is red."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(row_styles=["", "dim"], header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.add_column("feature", no_wrap=True)
    for number in range(1, len(columns) + 1):
        made.add_column(str(number), justify="right", overflow="fold")
    category_before = ""
    for category, feature, cells in rows(columns):
        if category != category_before:
            made.add_section()
            made.add_row(Text(category, "bold italic"))
            category_before = category
        shown = [Text(cell.in_short, "bold red" if cell.passed < cell.run else "") for cell in cells]
        made.add_row(Text(f"  {feature}"), *shown)
    made.add_section()
    totals = [Text(column.total.in_short, "bold red" if column.failed else "bold green") for column in columns]
    made.add_row("all", *totals)
    key = Text("A cell says how many cases passed and how many ran, and after a minus how many gpuscan refuses there.")
    return [*(Text(_about(number, column)) for number, column in enumerate(columns, 1)), key, made]


def markdown(columns: Sequence[Column]) -> str:
    """Return the matrix as a Markdown page."""
    lines = [
        "# What works where",
        "",
        "`gpuscan matrix` made this page from runs on the adapters below. `gpuscan matrix --merge` joins such runs.",
        "A cell says how many cases passed and how many ran. Each case is one scan with a known result, and",
        "counts in one row of every section. *refused* means that gpuscan says no, with a reason: the probe found the",
        "strategy unsafe on this adapter, or the adapter lacks the type. *–* means that the suite has no such case.",
        "The suite has grown: a column with fewer cases is from an earlier version of the suite.",
        "",
    ]
    lines += [_about(number, column) for number, column in enumerate(columns, 1)]
    numbers = [str(number) for number in range(1, len(columns) + 1)]
    lines += ["", f"| | {' | '.join(numbers)} |", f"| --- |{' ---: |' * len(columns)}"]
    category_before = ""
    for category, feature, cells in rows(columns):
        if category != category_before:
            lines.append(f"| **{category}** |{' |' * len(columns)}")
            category_before = category
        shown = [f"**{cell}**" if cell.passed < cell.run else str(cell) for cell in cells]
        lines.append(f"| {feature} | {' | '.join(shown)} |")
    lines.append(f"| **all** | {' | '.join(f'**{column.total}**' for column in columns)} |")
    failures = [(number, failure) for number, column in enumerate(columns, 1) for failure in column.failures]
    if failures:
        lines += ["", "Failures:", "", *(f"- {number}: {failure}" for number, failure in failures)]
    return "\n".join(lines) + "\n"
