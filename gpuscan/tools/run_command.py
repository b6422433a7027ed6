"""Runs a command line as a process: one line on standard error for every failure, exit codes, and signals."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from gpuscan._start import INTERRUPTED, handle_interrupts
from gpuscan.tools.option_types import DeviceType
from gpuscan.tools.output import SIGNALLED, WORK_FAILED, exit_code_of

# Seconds after a signal in which a second one is ignored: `timeout` of GNU coreutils sends two at once.
REPEATED_SIGNAL_SECONDS = 1.0

# Advice that names an argument which the command line does not have. The clause is dropped.
_NOT_HERE = (
    r",? or open the device with unsafe=True",
    r", the NumPy ufunc of such a name, a gs\.Operator, or a function of \(left, right\)",
    r",? or x\.reshape\(-1\)[^.;]*",
    r"\.? Pass x\[np\.newaxis\][^.;]*",
)

# A clause that suggests NumPy, for commands that run on GPU adapters only.
_NUMPY_CLAUSE = r"(?:[,:;]? or|[;:,.])\s[^,;.:]*\bdevice=\"numpy\"[^,;.]*"

_SPELLINGS = (
    (r"Convert the array with \.astype\(\.\.\.\) first", "Save the array in one of these types"),
    (r"\bdtype=(?:np\.)?(\w+)", r"--dtype \1"),
    (r"\b(device|strategy)=\"(\w+)\"", r"--\1 \2"),
    (r"\baxis=(-?\d+)", r"--axis \1"),
    (r"\b(axis|dtype)=(?!\S*[\w\"])", r"--\1"),
    (r"\bop='(\w+)'", r"--op \1"),
    (r"\bcompact=(?:True)?", r"--compact"),
    (r"\b(exclusive|reverse|compensated|segments|force)=True", r"--\1"),
    (r"\b(exclusive|reverse|compensated)=False", r"no --\1"),
)

_log = logging.getLogger("gpuscan")


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised like Ctrl-C so that partial files are removed on the way out."""


class Terminator:
    """Handles SIGTERM and SIGHUP."""

    def __init__(self) -> None:
        self._last = -math.inf

    def install(self) -> None:
        """Handle the signals, unless the caller ignores them (nohup) or handles them."""
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._raise)

    def _raise(self, number: int, _: object) -> None:
        before, self._last = self._last, time.monotonic()
        if self._last - before > REPEATED_SIGNAL_SECONDS:
            raise Terminated(number)


def main(commands: click.Group, arguments: Sequence[str]) -> None:
    """Run a command and end the process with its exit code."""
    handle_interrupts()
    Terminator().install()
    sys.exit(run(commands, arguments))


def run(commands: click.Group, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code.

    0: done. 1: the work failed. 2: the command line is wrong. 129, 130, 143: stopped by SIGHUP, Ctrl-C, SIGTERM.
    """
    numpy = True
    try:
        with warnings.catch_warnings(), log_shown():
            warnings.showwarning = _show_warning
            with commands.make_context("gpuscan", list(arguments) or ["--help"]) as context:
                numpy = _takes_numpy(commands, arguments)
                commands.invoke(context)
            if sys.stdout is not None:  # None where it was closed before the start
                sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _fail(in_command_words(error.format_message(), numpy), error.exit_code)
    except Terminated as stopped:
        return _fail("terminated", SIGNALLED + stopped.args[0])
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of standard output closed it, as `head` does
        _discard_stdout()
        return WORK_FAILED
    except Exception as error:
        if isinstance(error, OSError):
            _discard_stdout()
        return _fail(in_command_words(str(error) or type(error).__name__, numpy), exit_code_of(error))
    return 0


def _takes_numpy(commands: click.Group, arguments: Sequence[str]) -> bool:
    """Return True if the command that is called takes ``--device numpy``."""
    called = next((commands.commands[name] for name in arguments if name in commands.commands), None)
    types = [parameter.type for parameter in called.params] if called is not None else []
    return any(isinstance(option_type, DeviceType) and option_type.numpy for option_type in types)


def _fail(message: str, code: int) -> int:
    click.echo(f"gpuscan: {' '.join(message.split())}", err=True)
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    words = in_command_words(" ".join(str(message).split()), numpy=True)
    click.echo(f"gpuscan: warning: {words}", err=True)


def _discard_stdout() -> None:
    """Discard what standard output still buffers, so that Python does not fail to write it at exit."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ----- The library's messages in the words of the command line: `--dtype float32` for `dtype=np.float32`


def in_command_words(message: str, numpy: bool) -> str:
    """Return the message with Python's spelling of arguments replaced by options.

    Args:
        message: what an error of the library says.
        numpy: True if the command takes ``--device numpy``. Otherwise a clause that suggests it is dropped.
    """
    for clause in _NOT_HERE if numpy else (*_NOT_HERE, _NUMPY_CLAUSE):
        message = re.sub(clause, "", message)
    for pattern, option in _SPELLINGS:
        message = re.sub(pattern, option, message)
    return message


# ----- What gpuscan logs, as lines on standard error in the form of the other messages


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
            help="Log what the command does to standard error; -vv logs everything, also of libraries.",
        )
        command.params.append(option)
