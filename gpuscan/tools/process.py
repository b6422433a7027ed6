"""Runs a command line as a process: one line on standard error for every failure, exit codes, and signals."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from gpuscan._start import INTERRUPTED, handle_interrupts
from gpuscan.tools.command_words import in_command_words
from gpuscan.tools.exit_codes import SIGNALLED, WORK_FAILED, exit_code_of
from gpuscan.tools.log_lines import log_shown
from gpuscan.tools.option_types import DeviceType

# Seconds after a signal in which a second one is ignored: `timeout` of GNU coreutils sends two at once.
REPEATED_SIGNAL_SECONDS = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised like Ctrl-C so that partial files are removed on the way out."""


class Terminator:
    """Handles SIGTERM and SIGHUP."""

    def __init__(self) -> None:
        self._last = -math.inf

    def install(self) -> None:
        """Handle the signals, except those that the caller ignores (nohup) or handles."""
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._raise)

    def _raise(self, number: int, _: Any) -> None:
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
    return any(isinstance(kind, DeviceType) and kind.numpy for kind in types)


def _fail(message: str, code: int) -> int:
    click.echo(f"gpuscan: {' '.join(message.split())}", err=True)
    return code


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    words = in_command_words(" ".join(str(message).split()), numpy=True)
    click.echo(f"gpuscan: warning: {words}", err=True)


def _discard_stdout() -> None:
    """Discard what standard output still buffers, so that Python does not fail to write it at exit."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
