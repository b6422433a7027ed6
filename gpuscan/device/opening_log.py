"""Keep the log of an adapter that cannot be opened away from the user's terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpuscan.device.backends import BACKENDS


@contextmanager
def log_unless_failed() -> Iterator[None]:
    """Hold back what WebGPU logs inside the ``with``: log it at the end, or drop it if an error leaves the block.

    Some drivers list an OpenGL adapter that cannot be opened, and wgpu-native logs why. The error says the same, and
    callers that continue without the adapter need no line about it.
    """
    # wgpudawn refuses to be imported if its logger is there before it.
    loggers = [logging.getLogger(package) for package in BACKENDS.values() if package in sys.modules]
    held: list[logging.LogRecord] = []

    def hold(record: logging.LogRecord) -> bool:
        held.append(record)
        return False

    for logger in loggers:
        logger.addFilter(hold)
    try:
        yield
    except BaseException:
        held.clear()
        raise
    finally:
        for logger in loggers:
            logger.removeFilter(hold)
        for record in held:
            logging.getLogger(record.name).handle(record)
