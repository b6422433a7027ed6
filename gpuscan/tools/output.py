"""What commands print and write, with which exit code an error ends them, and the consoles of tables and progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Never

import click

from gpuscan.device.adapters import ADAPTER_VARIABLE
from gpuscan.device.backends import BACKEND_VARIABLE
from gpuscan.errors import AdapterNotFoundError, GpuscanError, OperatorError, StrategyError, UnsupportedDtypeError
from gpuscan.replaced_file import replace_file

if TYPE_CHECKING:
    from rich.console import Console

# A target that stands for standard output.
STDOUT = Path("-")

# Columns of a table that goes to a file or a pipe, where no window limits it.
FILE_COLUMNS = 240

# The work itself failed: a full disk, a lost device, a wrong result.
WORK_FAILED = 1

# The command line asks for something that does not exist or does not go together, or names a file of the wrong kind.
USAGE_WRONG = 2

# A signal ended the process: its number is added to this.
SIGNALLED = 128

WRONG_REQUESTS = (UnsupportedDtypeError, OperatorError, StrategyError)


def exit_code_of(error: Exception) -> int:
    """Return the exit code for an error that a command raised, the same in every command."""
    if isinstance(error, WRONG_REQUESTS):
        return USAGE_WRONG
    if isinstance(error, AdapterNotFoundError):
        named = any(os.environ.get(name, "").strip() for name in (ADAPTER_VARIABLE, BACKEND_VARIABLE))
        return USAGE_WRONG if named else WORK_FAILED
    return WORK_FAILED


def fail_to_write(path: Path, error: OSError) -> Never:
    """Raise the error of a file that cannot be written (exit code 1)."""
    raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error


def fail_to_read(path: Path, error: OSError) -> Never:
    """Raise the error of a file that cannot be read (exit code 1)."""
    raise click.ClickException(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def usage_errors(target: Path) -> Iterator[None]:
    """Say which errors of a scan are the command line's: its options do not go with the array."""
    try:
        yield
    except GpuscanError:
        raise
    except (FileExistsError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        fail_to_write(target, error)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, or print it where the path is `STDOUT`."""
    if path == STDOUT:
        with click.open_file("-", "w", encoding="utf-8") as file:
            file.write(text)
        return
    try:
        with replace_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        fail_to_write(path, error)


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
