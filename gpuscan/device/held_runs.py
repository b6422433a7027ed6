"""Hold short runs back, so that several of them are submitted together, or with the read of their results.

A submission takes longer than a short scan: about 36 us on an H200. What a queue holds goes to the GPU before anything
else that is submitted to the device, also by a caller's own program, so no one sees the difference.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gpuscan.device.interrupts import interrupts_held
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    import wgpu

# Pipeline, bind group and grid of a dispatch.
Dispatch = tuple[Any, Any, tuple[int, int, int]]
# A buffer, and the first byte and the number of bytes to set to zero.
Clear = tuple[Any, int, int]
# The dispatches of a run, the dynamic offset of their bind groups (None without), and what is cleared before.
Held = tuple[Sequence[Dispatch], int | None, Sequence[Clear]]
# Source, its first byte, destination, its first byte, and the number of bytes.
Copy = tuple[Any, int, Any, int, int]
# The methods of the package's queue that may use what a held run reads or writes.
_METHODS = ("submit", "write_buffer", "on_submitted_work_done_async", "on_submitted_work_done_sync")


class HoldingQueue(ABC):
    """Base of the queues of a device: a list of runs to submit, in order, before anything else."""

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._held: list[Held] = []
        self._held_bytes = 0
        # Held from the moment at which runs are taken off the list until they are submitted, so that no other
        # submission comes between. A signal handler of the same thread may submit, too.
        self._lock = threading.RLock()
        # True while this class itself calls a method of the package's queue.
        self._submitting = False
        for name in _METHODS:
            if hasattr(wgpu_device.queue, name):
                setattr(wgpu_device.queue, name, self._flushing(getattr(wgpu_device.queue, name)))

    @abstractmethod
    def encoder(self) -> Any:
        """Return a new command encoder."""

    @abstractmethod
    def _record(self, encoder: Any, runs: Sequence[Held]) -> None:
        """Record the runs in compute passes. Each one goes on until something is cleared."""

    @abstractmethod
    def _finished(self, encoder: Any) -> Any:
        """Return the encoder's commands."""

    @abstractmethod
    def _send(self, commands: Any) -> None:
        """Submit the commands. Ctrl-C is held back meanwhile."""

    def run(self, stages: Sequence[Dispatch], offset: int | None, nbytes: int, clears: Sequence[Clear] = ()) -> None:
        """Submit the stages in one compute pass, at once or with what is submitted next.

        Args:
            stages: the dispatches.
            offset: the dynamic offset of every bind group; None without.
            nbytes: the bytes that the run reads, by which its time is estimated.
            clears: what is set to zero before.
        """
        self._held.append((stages, offset, clears))
        self._held_bytes += nbytes
        if len(self._held) >= TRANSFERS.held_runs or self._held_bytes > TRANSFERS.held_bytes:
            self.flush()

    def flush(self, copies: Sequence[Copy] = ()) -> None:
        """Submit the held runs and then copies from buffer to buffer, if there are any, in one submission.

        An interrupt before the submission leaves the runs on the list. One in it is raised once it is made.
        """
        if not self._held and not copies:
            return
        with self._lock:
            encoder = self.encoder()
            # Other threads may add runs meanwhile.
            taken = len(self._held)
            if taken:
                self._record(encoder, self._held[:taken])
            for copy in copies:
                encoder.copy_buffer_to_buffer(*copy)
            try:
                commands = self._finished(encoder)
                with interrupts_held():
                    self._send(commands)
                    self._forget(taken)
                    taken = 0
            except Exception:
                if taken and copies:
                    # The copies may be at fault, and not the runs.
                    self.flush()
                else:
                    # What cannot be submitted now, cannot be submitted later.
                    self._forget(taken)
                raise

    def submit(self, encoder: Any) -> None:
        """Finish the encoder and submit its commands after the held runs; an interrupt is raised after that."""
        with self._lock:
            self.flush()
            commands = self._finished(encoder)
            with interrupts_held():
                self._send(commands)

    def _forget(self, taken: int) -> None:
        """Take runs off the list."""
        del self._held[:taken]
        self._held_bytes = 0

    def _flushing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of the package's queue that submits the held runs first."""

        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                if not self._submitting:
                    self.flush()
            return method(*arguments, **options)

        return call
