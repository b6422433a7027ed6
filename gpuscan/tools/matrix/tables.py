"""The matrix as a table for a terminal, and as a Markdown page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscan.tools.matrix.columns import Cell, Column

if TYPE_CHECKING:
    from rich.table import Table


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


def _heads(columns: Sequence[Column]) -> list[list[str]]:
    return [
        [column.adapter, column.driver, column.implementation, column.version, f"{column.suite}, {column.date}"]
        for column in columns
    ]


def table(columns: Sequence[Column]) -> Table:
    """Return the matrix for a terminal. A cell in which a case failed is red."""
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
    """Return the matrix as a Markdown page."""
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
