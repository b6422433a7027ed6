"""React to timeouts of strategies: try again, raise an error, or pause a strategy that times out often.

`handle_timeout` reacts to a timeout in a call that waits for its report. Where no call waits,
`gpuscan.device.reports.RunLog` finds the timeout with the next read.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.strategies import strategy_asked_for

if TYPE_CHECKING:
    from gpuscan.device.error_translation import ContextLike

# A strategy is paused once it has timed out this often within the following time, in seconds. One timeout says little:
# other programs that use the GPU can cause it.
TIMEOUTS_TO_PAUSE = 3
TIMEOUT_WINDOW = 60.0
# The seconds of a strategy's first pause, and of the longest. Each pause is twice as long as the one before, so a
# strategy that never works costs less and less, and one that other programs disturbed comes back.
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0
# The seconds after a timeout for which calls on device arrays wait for their own report: a run that no call waits for
# cannot be done again.
WATCH_SECONDS = 600.0


class Timeouts:
    """The timeouts of a device's strategies, and the strategies that are paused.

    All of this is forgotten when the process ends.
    """

    def __init__(self) -> None:
        self.clock = time.monotonic
        # The last timeouts of each strategy, the length of its last pause, and the end of its pause.
        self._times: dict[str, list[float]] = {}
        self._pauses: dict[str, float] = {}
        self._until: dict[str, float] = {}
        self._last = -math.inf

    def note(self, strategy: str) -> float | None:
        """Note a timeout; return the seconds of the pause that begins now, or None if none does."""
        self._last = now = self.clock()
        times = [earlier for earlier in self._times.get(strategy, ()) if now - earlier < TIMEOUT_WINDOW]
        self._times[strategy] = times = [*times, now]
        if len(times) < TIMEOUTS_TO_PAUSE:
            return None
        del self._times[strategy]
        pause = min(2 * self._pauses.get(strategy, FIRST_PAUSE / 2), LONGEST_PAUSE)
        self._pauses[strategy] = pause
        self._until[strategy] = now + pause
        return pause

    @property
    def paused(self) -> tuple[str, ...]:
        """The strategies that are not used now."""
        return tuple(self._until)

    def end_pauses(self) -> bool:
        """End the pauses that are over; return True if there are any."""
        if not self._until:
            return False
        now = self.clock()
        over = [strategy for strategy, until in self._until.items() if now >= until]
        for strategy in over:
            del self._until[strategy]
        return bool(over)

    @property
    def recent(self) -> bool:
        """True for a while after a timeout."""
        return self.clock() - self._last < WATCH_SECONDS


def handle_timeout(
    device: ContextLike, strategy: str, requested: str, failed: list[str], *, may_try_again: bool = True
) -> None:
    """Note that a strategy timed out, or let the call try again; raise if the caller or the environment named it.

    Args:
        device: where it timed out.
        requested: what the caller passed.
        failed: the strategies that timed out in this call, to which this one is added.
        may_try_again: False if the run has overwritten its input.

    Raises:
        ProgressTimeoutError: the strategy was asked for by name, and this adapter's retries are used up.
    """
    failed.append(strategy)
    by_name = strategy_asked_for(requested) != "auto"
    retries = heuristics_for(device.capabilities.adapter_type).timeout_retries if may_try_again else 0
    if by_name and len(failed) <= retries:
        return
    device.note_timeout(strategy)
    if by_name:
        raise ProgressTimeoutError(
            f"strategy {strategy!r} was asked for, but on {device.capabilities.summary} a workgroup waited too "
            'long for an earlier one. Use strategy="auto", which continues with another strategy, or '
            'strategy="three_dispatch", in which no workgroup waits'
        )


def timeout_error(device: ContextLike, what: str, runs: int, how: str) -> ProgressTimeoutError:
    """Return the error for one of several runs that timed out without anybody waiting for it."""
    return ProgressTimeoutError(
        f"a {what} on {device.capabilities.summary}, one of the last {runs}, {how} waiting for an earlier "
        "workgroup, so arrays computed since the last read or synchronize may be wrong. Compute them again: for the "
        "next minutes each call waits for its own result, and takes another strategy if one times out"
    )
