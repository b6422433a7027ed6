"""Ends the command ``gpuscan`` with one line if Ctrl-C comes while Python still imports it."""

import os
import signal
import sys
import threading
from types import FrameType

# The exit code of a process that Ctrl-C ended, as shells report it.
INTERRUPTED = 130


def is_command() -> bool:
    """Return True in a process of ``gpuscan`` or ``python -m gpuscan``, not in a program that imports the package."""
    arguments, given = getattr(sys, "argv", None) or [""], sys.orig_argv
    if arguments[0] == "-m":
        # Python looks for the module, and has not put its path here yet.
        return given[len(given) - len(arguments)] == "gpuscan"
    return os.path.splitext(os.path.basename(str(arguments[0])))[0] == "gpuscan"


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process, until `handle_interrupts`, if it is the command and nothing else handles Ctrl-C."""
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def handle_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    # No exception: an import that fails may turn it into another one.
    os.write(2, b"gpuscan: interrupted\n")
    os._exit(INTERRUPTED)
