"""Find the line of a user's code at which an operator failed, for the messages of `OperatorError`."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np

from gpuscan.errors import OperatorError

_OURS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(np.__file__).parent))


class MissingAxisError(OperatorError):
    """A function used an axis that its value does not have. It may take elements of more axes than were tried."""


def operator_error(message: str) -> OperatorError:
    """Return an `OperatorError` that ends with the line of the user's code that is running now."""
    return OperatorError(message + running_line())


def missing_axis_error(message: str) -> MissingAxisError:
    """Return a `MissingAxisError` that ends with the line of the user's code that is running now."""
    return MissingAxisError(message + running_line())


def running_line() -> str:
    """Return the line of the user's code that is running now, quoted; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return "" if frame is None else quote_line(frame.f_code.co_filename, frame.f_lineno)


def quote_traceback(traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback, quoted; empty if there is none."""
    line = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_OURS):
            line = quote_line(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def quote_definition(function: Callable[..., object]) -> str:
    """Return the first line of a user's Python function, quoted; empty for any other function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_filename.startswith(_OURS):
        return ""
    return quote_line(code.co_filename, code.co_firstlineno)


def quote_line(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"\n  at {file}:{line}" + (f": {text}" if text else "")
