"""Defer short runs, so that several of them are submitted together, or with the read of their results.

A submission takes longer than a short scan: 36 to 150 us on machines with an H200. So runs wait until the GPU needs
longer for them than their submission takes. Deferred runs go to the GPU before anything else that is submitted to the
device, also by a caller's own program, so no one sees the difference.

Runs that write masks are held: `np.where` can compute a mask again from what its run reads, and most masks are gone
after that. Held runs are submitted before anything else, unless their results are gone by then.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import call
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray, Bytes
from gpuscan.device.backends import webgpu
from gpuscan.device.interrupts import defer_interrupts
from gpuscan.device.steps import Binding, Clear, Copy
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    import wgpu

# What a method of the queue takes and returns.
P = ParamSpec("P")
R = TypeVar("R")

# Pipeline, bind group, grid of a dispatch (or where the grid is), and the dynamic offset of its bind group.
BoundDispatch = tuple["wgpu.GPUComputePipeline", "wgpu.GPUBindGroup", "tuple[int, int, int] | Binding", "int | None"]
# What a queue defers: dispatches, clears and copies, in order.
Command = BoundDispatch | Clear | Copy
# The most runs that are held. With their arrays, a kernel of all of them binds no more than every device can bind: 8.
MAX_HELD = 3
# The methods of the package's queue that may use what a deferred run reads or writes.
_METHODS = ("submit", "write_buffer", "on_submitted_work_done_async", "on_submitted_work_done_sync")


class Recorder(Protocol):
    """The recording of a call.

    Attributes:
        thread: the thread of the call.
    """

    thread: int

    def end(self) -> None:
        """Stop: the call does what a program cannot do again."""


class HeldRun:
    """A run that is submitted before the next one that is not held. It writes new memory, and is dropped with it.

    Attributes:
        call: the call. The run reads its arguments.
        submit: submits the run.
        program: what keeps the constants that it reads.
        used: True if another run has computed the result again.

    The call, `submit` and the program are None once the run is submitted.
    """

    __slots__ = ("__weakref__", "call", "program", "submit", "used")

    call: object
    submit: Callable[[], object] | None
    program: object
    used: bool


class DeferringQueue(ABC):
    """Base of the queues of a device: a list of runs to submit, in order, before anything else.

    Attributes:
        held: refers to the held runs.
        lock: held from the moment at which runs are taken off the list until they are submitted, so that no other
            submission comes between. A signal handler of the same thread may submit, too.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._deferred: list[Command] = []
        # How many runs they belong to.
        self._deferred_runs = 0
        self._deferred_bytes = 0
        # The buffer that deferred copies read, what it will contain, and how many of its bytes are used.
        self._uploads: wgpu.GPUBuffer | None = None
        self._uploaded = np.empty(0, np.uint8)
        self._upload_bytes = 0
        # How many times deferred runs could not be submitted.
        self.failures = 0
        # What a submission takes here: it falls at once, and grows slowly, since one may be held up by chance.
        self._submission_seconds = TRANSFERS.submission_seconds
        # The bytes of deferred runs from which on they are submitted.
        self._most_deferred_bytes = 0.0
        self._note_submission(TRANSFERS.submission_seconds, 1)
        self.lock = threading.RLock()
        self.held: list[weakref.ref[HeldRun]] = []
        # True while the held runs are being submitted.
        self._settling = False
        # True while this class itself calls a method of the package's queue.
        self._submitting = False
        # The call that is being recorded, if there is one. A program of it has no waits, uploads or commands of others.
        self.recording: Recorder | None = None
        for name in _METHODS:
            if hasattr(wgpu_device.queue, name):
                setattr(wgpu_device.queue, name, self._flushing(getattr(wgpu_device.queue, name)))

    @abstractmethod
    def encoder(self) -> Any:
        """Return a new command encoder."""

    @abstractmethod
    def _encode(self, commands: Sequence[Command]) -> object:
        """Return commands in compute passes. Each one goes on until something is cleared or copied."""

    @abstractmethod
    def _finish_encoder(self, encoder: Any) -> object:
        """Return the encoder's commands."""

    @abstractmethod
    def _send(self, commands: object) -> None:
        """Submit the commands. Ctrl-C is deferred meanwhile."""

    @abstractmethod
    def write(self, buffer: wgpu.GPUBuffer, offset: int, data: Bytes) -> None:
        """Write whole words of contiguous bytes to a buffer."""

    @abstractmethod
    def write_unread(self, buffer: wgpu.GPUBuffer, offset: int, data: AnyArray) -> None:
        """Write whole words to bytes of a buffer that no run has read yet, so that the deferred runs may come later."""

    @abstractmethod
    def map(self, buffer: wgpu.GPUBuffer, size: int | None = None, *, write: bool = False) -> Any:
        """Ask for a buffer to be mapped once everything submitted so far is done."""

    def read(self, staging: wgpu.GPUBuffer, size: int, copies: Sequence[Copy]) -> Bytes:
        """Return the first bytes of a buffer as copies leave them, which are submitted with the deferred runs.

        The caller defers Ctrl-C.
        """
        self.flush(copies)
        mapping = self.map(staging, size)
        mapping.sync_wait()
        content: Bytes = mapping.view(size).copy()
        mapping.unmap()
        return content

    def check_alive(self) -> None:
        """Raise an error if the device was destroyed, where wgpu-native would end the process.

        The package wgpu gives up its polling thread first, so a device without one was destroyed, or is about to be.
        """
        if getattr(self._device, "_poller", self) is None:
            raise RuntimeError("The device is lost: it was destroyed by `GPUDevice.destroy`.")

    def run(self, commands: Sequence[Command], nbytes: int) -> None:
        """Submit the commands of a run, at once or with what is submitted next.

        Args:
            commands: the commands, over buffers of the pool.
            nbytes: the bytes that the run reads, by which its time is estimated.
        """
        if getattr(self._device, "_poller", self) is None:
            self.check_alive()
        self._deferred += commands
        self._deferred_runs += 1
        self._deferred_bytes += nbytes
        if self._deferred_runs >= TRANSFERS.deferred_runs or self._deferred_bytes >= self._most_deferred_bytes:
            self.flush()

    def settle(self, keep: int = 0) -> None:
        """Submit the held runs.

        Call this before a run is added to the list, before anything is written that held runs may read, before a
        caller's encoder records something, and before a submission.

        Args:
            keep: leave them if there are no more than these.
        """
        with self.lock:
            if self._settling:
                return
            # Calling a reference returns the run, or None.
            self.held = list(filter(call, self.held))
            if len(self.held) <= keep:
                return
            self._settling = True
            try:
                for reference in self.held:
                    held_run = reference()
                    if held_run is not None and held_run.submit is not None:
                        held_run.submit()
                        held_run.call = held_run.submit = held_run.program = None
                # Other threads look at it without the lock, and add their runs once it is empty.
                self.held = []
            finally:
                self._settling = False

    def write_deferred(self, buffer: wgpu.GPUBuffer, data: Bytes) -> None:
        """Write whole words to the beginning of a buffer of the pool after the deferred runs, which may still use it.

        Few words are copied there by the GPU, so that nothing is submitted. Each submission writes the words of all
        copies to one buffer.
        """
        nbytes = data.nbytes
        if nbytes > TRANSFERS.deferred_upload_bytes:
            self.write(buffer, 0, data)
            return
        with self.lock:
            if self._uploads is None:
                usage = webgpu().BufferUsage.COPY_SRC | webgpu().BufferUsage.COPY_DST
                self._uploads = self._device.create_buffer(size=TRANSFERS.deferred_uploads_bytes, usage=usage)
                self._uploaded = np.empty(TRANSFERS.deferred_uploads_bytes, np.uint8)
            if self._upload_bytes + nbytes > len(self._uploaded):
                self.flush()
            start = self._upload_bytes
            self._uploaded[start : start + nbytes] = data
            self._upload_bytes += nbytes
            copy: Copy = tuple.__new__(Copy, (self._uploads, start, buffer, 0, nbytes))
            self._deferred.append(copy)
            self._deferred_bytes += nbytes

    def _note_submission(self, seconds: float, runs: int) -> None:
        """Learn from what a submission took. Later ones are made of runs that the GPU takes longer for.

        To record a run takes the same time in any submission. Only the rest is saved by fewer submissions.
        """
        seconds /= 1 + TRANSFERS.recorded_run_share * (max(runs, 1) - 1)
        self._submission_seconds = min(seconds, self._submission_seconds * TRANSFERS.submission_growth)
        worth = TRANSFERS.deferred_submissions * self._submission_seconds
        self._most_deferred_bytes = worth * TRANSFERS.most_bytes_per_second

    def flush(self, copies: Sequence[Copy] = ()) -> None:
        """Submit the deferred runs and then copies from buffer to buffer, if there are any, in one submission.

        An interrupt before the submission leaves the runs on the list. One in it is raised once it is made.
        """
        with self.lock:
            if self.held:
                self.settle()
            if not self._deferred and not copies:
                return
            start = time.perf_counter()
            uploaded = self._upload_bytes
            if uploaded:
                assert self._uploads is not None
                self.write_unread(self._uploads, 0, self._uploaded[:uploaded])
            # Other threads may add runs meanwhile.
            taken, runs = len(self._deferred), self._deferred_runs
            try:
                commands = self._encode([*self._deferred[:taken], *copies])
                with defer_interrupts():
                    self._send(commands)
                    self._forget(taken, uploaded)
                    taken = 0
                self._note_submission(time.perf_counter() - start, runs)
            except Exception:
                self.failures += 1
                if taken and copies:
                    # The copies may be at fault, and not the runs.
                    self.flush()
                else:
                    # What cannot be submitted now, cannot be submitted later.
                    self._forget(taken, uploaded)
                raise

    def submit(self, encoder: object) -> None:
        """Finish the encoder and submit its commands after the deferred runs; an interrupt is raised after that."""
        self.end_recording()
        with self.lock:
            self.flush()
            commands = self._finish_encoder(encoder)
            with defer_interrupts():
                self._send(commands)

    def _forget(self, taken: int, uploaded: int) -> None:
        """Take runs off the list, and use the buffer of uploads from its begin again if nothing was added to it."""
        del self._deferred[:taken]
        self._deferred_bytes = self._deferred_runs = 0
        if self._upload_bytes == uploaded:
            self._upload_bytes = 0

    def end_recording(self) -> None:
        """End the recording of this thread's call, because the call does what a program cannot do again."""
        if self.recording is not None and self.recording.thread == threading.get_ident():
            self.recording.end()

    def _flushing(self, method: Callable[P, R]) -> Callable[P, R]:
        """Return a method of the package's queue that submits the deferred runs first."""

        def call(*arguments: P.args, **options: P.kwargs) -> R:
            with self.lock:
                if not self._submitting:
                    self.flush()
            return method(*arguments, **options)

        return call
