"""Ways to run the command line in a test."""

from __future__ import annotations

import numpy as np
import pytest

from gpuscan import cli

# The array in in.npy.
ARRAY = np.array([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]], np.int32)

# Code for the beginning of a child process. A test run that was started with `nohup … &` ignores these signals, and
# children inherit that.
DEFAULT_SIGNALS = (
    "import signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "hasattr(signal, 'SIGHUP') and signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a command line."""
    code = cli.run(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return exit code and message of a command line that must fail in one line."""
    code, out, err = run(capsys, *arguments)
    assert out == ""
    assert err.startswith("gpuscan: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return code, err
