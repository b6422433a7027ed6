"""What gpuscan logs, as lines on standard error in the form of the command line's other messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

_log = logging.getLogger("gpuscan")


class _Lines(logging.Handler):
    """Prints each record as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"gpuscan: {record.levelname.lower()}: {' '.join(record.getMessage().split())}", err=True)


@contextmanager
def log_shown() -> Iterator[None]:
    """Show warnings inside the ``with``, and more where `show_more` says."""
    lines, level = _Lines(), _log.level
    _log.addHandler(lines)
    _log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        _log.removeHandler(lines)
        _log.setLevel(level)


def show_more(verbose: int) -> None:
    """Show from now on what is done (1), or also every plan and compilation and the libraries' own logs (2)."""
    if verbose:
        _log.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


def add_verbose_option(group: click.Group) -> None:
    """Give every command of the group, and the group itself, the option ``--verbose``."""

    def show(context: click.Context, parameter: click.Parameter, value: int) -> None:
        show_more(value)

    for command in (group, *group.commands.values()):
        option = click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=show,
            help="Say what is done on standard error; -vv says all, with the logs of libraries.",
        )
        command.params.append(option)
