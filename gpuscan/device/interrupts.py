"""Hold Ctrl-C back where it would be lost: in callbacks of native code, in `__del__`, and inside a thread pool."""

from __future__ import annotations

import threading

# The module signal wraps these functions and looks for enums among the handlers, which takes 10 µs a submission.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from signal import SIGINT
from types import TracebackType
from typing import Any

_INTERRUPT = int(SIGINT)


class interrupts_held:  # noqa: N801
    """Hold Ctrl-C back inside the ``with``; it is handled at the end.

    Native code calls Python back for buffers that are mapped by now. What Python raises in such a callback is dropped,
    so a KeyboardInterrupt there would be lost, and the caller would wait for the buffer forever.
    """

    __slots__ = ("_handler", "_held")
    # True inside a ``with`` of the main thread, which then holds Ctrl-C back for those inside it.
    _holding = False

    def __enter__(self) -> None:
        self._handler = None
        # Signals reach Python on its main thread only, and only where it has a handler of its own.
        if interrupts_held._holding or threading.get_ident() != threading.main_thread().ident:
            return
        handler = getsignal(_INTERRUPT)
        if callable(handler):
            self._held: list[tuple[Any, ...]] = []
            self._handler = handler
            signal(_INTERRUPT, self._hold)
            interrupts_held._holding = True

    def _hold(self, *event: Any) -> None:
        self._held.append(event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            interrupts_held._holding = False
            signal(_INTERRUPT, self._handler)
            if self._held:
                self._handler(*self._held[-1])
