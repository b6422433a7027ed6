"""The matrix as a table for a terminal, and as a Markdown page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscan.tools.matrix.columns import Cell, Column

if TYPE_CHECKING:
    from rich.console import RenderableType


def rows(columns: Sequence[Column]) -> list[tuple[str, str, list[Cell]]]:
    """Return kind, feature and the columns' cells for each row, in the order of the suite; sizes in rising order."""
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
    kind_before = ""
    for kind, feature, cells in rows(columns):
        if kind != kind_before:
            made.add_section()
            made.add_row(Text(kind, "bold italic"))
            kind_before = kind
        shown = [Text(cell.in_short, "bold red" if cell.passed < cell.run else "") for cell in cells]
        made.add_row(Text(f"  {feature}"), *shown)
    made.add_section()
    totals = [Text(column.total.in_short, "bold red" if column.failed else "bold green") for column in columns]
    made.add_row("all", *totals)
    key = Text("A cell is the cases that passed of those that ran, and after a minus those that gpuscan refuses there.")
    return [*(Text(_about(number, column)) for number, column in enumerate(columns, 1)), key, made]


def markdown(columns: Sequence[Column]) -> str:
    """Return the matrix as a Markdown page."""
    lines = [
        "# What works where",
        "",
        "Made by `gpuscan matrix` from runs on the adapters named; `gpuscan matrix --merge` puts such runs together.",
        "A cell is the cases that passed of those that ran. Each case is one scan with a known result, and",
        "counts in one row of every section. *refused* means that gpuscan says no, with a reason: the probe found the",
        "strategy unsafe on this adapter, or the adapter lacks the type. *–* means that the suite has no such case.",
        "The suite has grown: a column with fewer cases than others is of an earlier one.",
        "",
    ]
    lines += [_about(number, column) for number, column in enumerate(columns, 1)]
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
