"""Keep what libraries write while adapters are listed and opened away from the user's terminal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpuscan.device.backends import BACKENDS

_log = logging.getLogger("gpuscan")

# Variables of drivers that are set while adapters are listed, unless the user has set them.
_QUIET = {
    # libwayland, which OpenGL's loader tries, prints that this one is not set. Any absolute folder quiets it: the
    # loader finds no display there and continues without one.
    "XDG_RUNTIME_DIR": os.path.sep,
    # Mesa's EGL prints a warning for each driver that it tries and cannot load.
    "EGL_LOG_LEVEL": "fatal",
}


@contextmanager
def libraries_quiet() -> Iterator[None]:
    """Log what WebGPU logs inside the ``with`` as details of gpuscan (level DEBUG), and quiet drivers.

    Some drivers list an OpenGL adapter that cannot be opened, and wgpu-native logs errors about it. A call
    that needs the adapter raises an error that says the same; other calls need no line about it.
    """
    # wgpudawn refuses to be imported if its logger is there before it.
    loggers = [logging.getLogger(package) for package in BACKENDS.values() if package in sys.modules]

    def to_details(record: logging.LogRecord) -> bool:
        _log.debug("%s: %s", record.name, record.getMessage())
        return False

    for logger in loggers:
        logger.addFilter(to_details)
    added = [name for name in _QUIET if os.name == "posix" and not os.environ.get(name)]
    before = {name: os.environ.get(name) for name in added}
    os.environ.update({name: _QUIET[name] for name in added})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        for logger in loggers:
            logger.removeFilter(to_details)
