"""Writes the text files of commands."""

from __future__ import annotations

from pathlib import Path

import click

from gpuscan.replaced_file import replaced_file
from gpuscan.tools.exit_codes import fail_to_write
from gpuscan.tools.option_types import STDOUT


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, or print it where the path is `STDOUT`."""
    if path == STDOUT:
        with click.open_file("-", "w", encoding="utf-8") as file:
            file.write(text)
        return
    try:
        with replaced_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        fail_to_write(path, error)
