"""Write results to the CPU's arrays on another thread, while the thread of the call fills the next part."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from gpuscan.device.interrupts import interrupts_held
from gpuscan.device.transfer import begun
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    from gpuscan.engine.job import Flight


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that write results, which all devices share."""
    return ThreadPoolExecutor(TRANSFERS.max_drains, thread_name_prefix="gpuscan-drain")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


class Drains:
    """The parts of one call with results that are being written, oldest first."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Flight, Future[None]]] = deque()

    def begin(self, flight: Flight, drain: Callable[[], None], *, alone: bool) -> None:
        """Write the results of a part on another thread, or on this one if it has nothing else to do (`alone`)."""
        if alone:
            done: Future[None] = Future()
            drain()
            done.set_result(None)
            self._under_way.append((flight, done))
        else:
            # The thread keeps what it called for a moment after the result is set, so it must not keep the part alive.
            todo = [drain]
            with interrupts_held():
                self._under_way.append((flight, begun(_threads(), lambda: todo.pop()())))

    def finished(self, most: int) -> Iterator[Flight]:
        """Wait until at most `most` parts are being written, and yield those that are done."""
        while self._under_way and (len(self._under_way) > most or self._under_way[0][1].done()):
            flight, future = self._under_way[0]
            future.result()
            self._under_way.popleft()
            yield flight

    def close(self) -> None:
        """Wait for all parts, also after an error or an interrupt, because the memory that they read is freed next."""
        futures = [future for _, future in self._under_way]
        while not all(future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)
