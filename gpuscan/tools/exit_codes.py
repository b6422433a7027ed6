"""Exit codes of ``gpuscan``, and which error of the library leads to which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Never

import click

from gpuscan.device.adapters import ADAPTER_VARIABLE
from gpuscan.device.backends import BACKEND_VARIABLE
from gpuscan.errors import AdapterNotFoundError, OperatorError, StrategyError, UnsupportedDtypeError

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
