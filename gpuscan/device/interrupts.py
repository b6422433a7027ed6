"""Defer Ctrl-C and the end of Python where native code calls Python, or where they would be lost.

Native code calls Python back for buffers that are mapped by now. What Python raises in such a callback is dropped. And
if Python ends meanwhile, it ends the thread in the callback, inside of native code, which prints a panic with its
backtrace or aborts the process.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

# The module signal wraps these functions and looks for enums among the handlers, which takes 10 µs a submission.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from contextlib import suppress
from signal import SIGINT
from types import TracebackType
from typing import Protocol
from weakref import WeakSet

_INTERRUPT = int(SIGINT)
# Seconds for which the end of Python waits at most, so that a GPU that hangs does not keep the process alive.
_MAX_WAIT_SECONDS = 30.0
# Seconds between two looks at the threads that the end of Python waits for.
_LOOK_SECONDS = 1e-3


class Idling(Protocol):
    """A queue that has to be idle before Python ends."""

    def wait_idle(self) -> None:
        """Wait until everything submitted so far is done."""


# The thread on which signals are handled.
_main_thread = threading.main_thread().ident
# How many of the blocks below each thread is in, except for the main thread, which cannot be in one as Python ends.
_blocks: dict[int, int] = {}
# The thread that ends Python, once it does.
_ending: int | None = None
# What handlers of other signals than Ctrl-C have raised in callbacks.
_dropped: list[BaseException] = []
# Queues for which another thread, of the WebGPU package, is called back.
_called_elsewhere: WeakSet[Idling] = WeakSet()


class defer_exit:  # noqa: N801
    """Defer the end of Python inside the ``with``. While Python ends, a thread that comes to one ends there.

    Raises:
        SystemExit: Python ends. In a thread it prints nothing, and what the thread holds is released.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if thread != _main_thread:
            _begin_block(thread)

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        if thread != _main_thread:
            _end_block(thread)


def keep_dropped(error: BaseException) -> None:
    """Keep an error that a callback has raised, which native code drops, for the end of the `defer_interrupts`."""
    _dropped.append(error)


class defer_interrupts:  # noqa: N801
    """Defer Ctrl-C inside the ``with``, where it would be lost, and the end of Python as `defer_exit` does.

    Ctrl-C is handled at the end. A KeyboardInterrupt in a callback would be dropped, and the caller would wait for the
    buffer forever. What the handler of another signal raises in a callback is raised again at the end.

    Raises:
        SystemExit: Python ends, as in `defer_exit`.
    """

    __slots__ = ("_deferred", "_handler", "_thread")
    # True inside a ``with`` of the main thread, which then defers Ctrl-C for those inside it.
    _deferring = False

    def __enter__(self) -> None:
        self._handler = self._thread = None
        thread = threading.get_ident()
        if thread != _main_thread:
            _begin_block(thread)
            self._thread = thread
            return
        # Signals reach Python on its main thread only, and only where it has a handler of its own.
        if defer_interrupts._deferring:
            return
        handler = getsignal(_INTERRUPT)
        if callable(handler):
            self._deferred: list[tuple[object, ...]] = []
            self._handler = handler
            signal(_INTERRUPT, self._defer)
            defer_interrupts._deferring = True

    def _defer(self, *event: object) -> None:
        self._deferred.append(event)

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            _end_block(self._thread)
        elif self._handler is not None:
            defer_interrupts._deferring = False
            signal(_INTERRUPT, self._handler)
            if self._deferred:
                self._handler(*self._deferred[-1])
        if _dropped and self._thread is None and not defer_interrupts._deferring:
            raise _dropped.pop()


# ----- The end of Python


def idle_at_exit(queue: Idling) -> None:
    """Wait for the queue to be idle before Python ends, since callbacks of its maps come on a thread of the package."""
    _called_elsewhere.add(queue)


def _begin_block(thread: int) -> None:
    inside = _blocks.get(thread, 0)
    # Counted before the look at `_ending`: `_wait_for_blocks` sets that first, and looks at the counts then.
    _blocks[thread] = inside + 1
    if not inside and _ending not in (None, thread):
        del _blocks[thread]
        raise SystemExit("Python ends, so the thread makes no more calls of the GPU")


def _end_block(thread: int) -> None:
    inside = _blocks[thread] - 1
    if inside:
        _blocks[thread] = inside
    else:
        del _blocks[thread]


@atexit.register
def _wait_for_blocks() -> None:
    """Wait for the calls that other threads make, and let them begin no new ones."""
    global _ending
    _ending = threading.get_ident()
    until = time.monotonic() + _MAX_WAIT_SECONDS
    while any(thread != _ending for thread in list(_blocks)) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    for queue in list(_called_elsewhere):
        with suppress(Exception):  # The device may be lost.
            queue.wait_idle()


def _forget_threads() -> None:
    """Forget, in a forked process, what only its parent has: other threads, and a GPU that works."""
    global _main_thread
    _main_thread = thread = threading.get_ident()
    for other in [number for number in _blocks if number != thread]:
        del _blocks[other]
    _called_elsewhere.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
