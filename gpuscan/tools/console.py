"""The consoles that tables, panels and progress bars are printed on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Columns of a table that goes to a file or a pipe, where no window limits it.
FILE_COLUMNS = 240


def table_console() -> Console:
    """Return a console on standard output, wide enough for whole rows where it is no terminal.

    The variable COLUMNS sets another width.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = FILE_COLUMNS
    return console


def progress_console() -> Console:
    """Return a console on standard error."""
    from rich.console import Console

    return Console(stderr=True)
