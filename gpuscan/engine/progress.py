"""Tell a watcher how much of a large array is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int], None]

_watcher: ContextVar[Progress | None] = ContextVar("gpuscan_progress", default=None)


@contextmanager
def watch_progress(progress: Progress) -> Iterator[None]:
    """Inside the ``with``, call `progress` with the bytes of input that scans of large arrays have done so far."""
    token = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_progress(done: int) -> None:
    """Tell the watcher, if there is one, how many bytes of input are done."""
    progress = _watcher.get()
    if progress is not None:
        progress(done)
