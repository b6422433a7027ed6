"""Draw small tables for notebooks, which show an object by its ``_repr_html_``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a table as HTML. Every text is escaped.

    Args:
        title: stands above the table.
        rows: the cells; without `head` the first cell of each row names it.
        head: the names of the columns.
    """
    style = ' style="text-align:left"'
    lines = [f"<table><caption{style}><b>{escape(title)}</b></caption>"]
    if head:
        lines.append("<tr>" + "".join(f"<th{style}>{escape(name)}</th>" for name in head) + "</tr>")
    for row in rows:
        tags = ["td"] * len(row) if head else ["th", *["td"] * (len(row) - 1)]
        cells = (f"<{tag}{style}>{escape(str(cell))}</{tag}>" for tag, cell in zip(tags, row, strict=True))
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])
