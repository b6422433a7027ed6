"""Share the tile state between the runs of a device: the buffers of posts, the epochs, and the parameters."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.backends import webgpu
from gpuscan.device.steps import Binding
from gpuscan.errors import GpuscanError, smaller
from gpuscan.recent_values import RecentValues

if TYPE_CHECKING:
    import wgpu

    from gpuscan.planning.plan import ScanPlan

# The parameters of a run: length, tiles, epoch, spin_rounds, row_length, first_row, row_offset and inner. See
# shaders/shared/header.wgsl.
PARAMS = struct.Struct("<8I")
# The word of the parameters that holds the epoch.
EPOCH_WORD = 2
# Epochs are 16 bits and begin at 1: see shaders/shared/tile_state.wgsl and shaders/scan/load_words.wgsl.
LAST_EPOCH = 0xFFFF
# The parameters of runs with one descriptor are written for 1 run at first, then for 16 and then for 256 runs at once.
GROWTH = 16
MAX_AHEAD = 256
# Makes a named tuple without a call of Python's: each run of a program has one.
_new = tuple.__new__
# A buffer that is not made yet, and its size.
_NO_MEMORY = (None, -1)
# How many descriptors have their parameters kept; the least recently used goes first.
MAX_DESCRIPTORS = 64


def parameters(plan: ScanPlan, position: tuple[int, int, int], epoch: int) -> tuple[int, ...]:
    """Return the numbers that `PARAMS` packs.

    Args:
        plan: the plan of the run.
        position: the length of a row, the first row, and the offset of the first element in it.
        epoch: the number of the run.
    """
    return (plan.length, plan.tiles, epoch, plan.spin_rounds, *position, plan.inner)


class TileStateSizeError(GpuscanError):
    """Raised if the tile state of a plan does not fit one binding. Nothing was submitted."""


class RunDescriptor(NamedTuple):
    """What runs have in common that differ in their epochs only.

    Attributes:
        words: the parameters of each dispatch, with an epoch of 0.
        epoch_word: the word of the parameters that takes the epoch.
        memory: the buffer that the run writes: ``"posts"``, ``"totals"`` or ``"counts"``.
        nbytes: how many bytes of it the run needs.
        epochs: how many epochs the run takes.
    """

    words: tuple[tuple[int, ...], ...]
    epoch_word: int
    memory: str
    nbytes: int
    epochs: int = 1


def describe_run(plan: ScanPlan, position: tuple[int, int, int]) -> RunDescriptor:
    """Return the descriptor of a run of a plan; `position` as in `parameters`."""
    memory = "posts" if plan.posts else "totals"
    return RunDescriptor((parameters(plan, position, epoch=0),), EPOCH_WORD, memory, plan.state_bytes)


class RunBuffers(NamedTuple):
    """The tile state and the parameters of one run.

    Attributes:
        state: the buffer of posts, totals or counts.
        epoch: the number of the run, the first of its epochs.
        params: the uniform buffer that holds the run's parameters. The binding's size is the size of one dispatch's
            parameters.
        offset: the byte at which the parameters of the first dispatch begin.
        stride: the number of bytes from the parameters of one dispatch to the parameters of the next dispatch.
    """

    state: wgpu.GPUBuffer
    epoch: int
    params: Binding
    offset: int
    stride: int


@dataclass
class _ParameterBuffer:
    """A buffer for the parameters of several runs.

    Attributes:
        params: the buffer, bound by the size of one run's parameters.
        first: the epoch of the first run, if the parameters are written ahead.
        count: how many runs it serves.
        used: how many runs have begun.
    """

    params: Binding
    first: int
    count: int
    used: int = 0


class TileState:
    """The buffers of posts and totals, kept from run to run, and the parameters of the runs.

    Runs on one queue follow each other, so all runs of a device share one buffer. Each post carries the epoch of its
    run, and tiles ignore the posts of earlier runs. So nothing is cleared between runs. Plain totals are in a second
    buffer, since their words could look like posts. The posts of sorts are in a third one, since they take single words
    of 32 bits, and half of a 64-bit post could look like such a word.

    Parameters are in uniform buffers, and each dispatch selects its own by a dynamic offset. When a descriptor comes
    again, its parameters are written for many runs ahead, with reserved epochs. No parameters are ever overwritten,
    because commands may be submitted long after they were recorded. `var<immediate>` would be slower: on an H100 it
    costs every dispatch 1.8 us of GPU time.

    Args:
        write: writes to bytes of a buffer that nothing has read yet.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice, write: Callable[[wgpu.GPUBuffer, int, AnyArray], None]) -> None:
        self._device, self._write = wgpu_device, write
        # The buffers of posts, of totals and of the counts of sorts, by `RunDescriptor.memory`, and their sizes.
        self._memory: dict[str, tuple[object, int]] = {}
        # The last epoch that is in use or reserved.
        self._epoch = 0
        # The parameters by the descriptor of the runs; None for one that came once.
        self._ahead: RecentValues[RunDescriptor, _ParameterBuffer | None] = RecentValues(MAX_DESCRIPTORS)
        # The parameters of runs with new descriptors, each written when it comes.
        self._once: _ParameterBuffer | None = None
        self._most = int(wgpu_device.limits["max-storage-buffer-binding-size"])
        self._stride = max(PARAMS.size, int(wgpu_device.limits["min-uniform-buffer-offset-alignment"]))
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes that the state holds on the device."""
        # This takes no lock, since a signal handler may ask while its thread holds it.
        written = [
            parameters_of_runs.params.buffer
            for parameters_of_runs in (self._once, *list(self._ahead.values()))
            if parameters_of_runs is not None
        ]
        return sum(int(size) for _, size in list(self._memory.values())) + sum(int(buffer.size) for buffer in written)

    def check(self, plan: ScanPlan) -> None:
        """Raise TileStateSizeError if the plan's posts or totals are larger than a binding."""
        if plan.state_bytes > self._most:
            raise TileStateSizeError(
                f"a scan of {plan.length} elements was asked for; it needs {plan.state_bytes} bytes of tile state for "
                f"{plan.tiles} tiles, and the device binds at most {self._most}. "
                f"{smaller(plan.length // max(1, plan.row_length))}"
            )

    def begin(self, run_descriptor: RunDescriptor) -> RunBuffers:
        """Return the buffers and the epoch for one run with this descriptor, which fits a binding."""
        with self._lock:
            if run_descriptor not in self._ahead:
                params, number, epoch = self._write_once(run_descriptor)
            else:
                ahead = self._ahead[run_descriptor]
                self._ahead.move_to_end(run_descriptor)
                if ahead is None or ahead.used == ahead.count:
                    ahead = self._write_ahead(run_descriptor, min(GROWTH * ahead.count, MAX_AHEAD) if ahead else GROWTH)
                params, number, epoch = ahead.params, ahead.used, ahead.first + ahead.used * run_descriptor.epochs
                ahead.used += 1
            memory, size = self._memory.get(run_descriptor.memory, _NO_MEMORY)
            if size < run_descriptor.nbytes:
                memory = self._grow(run_descriptor)
            offset = number * len(run_descriptor.words) * self._stride
            return _new(RunBuffers, (memory, epoch, params, offset, self._stride))

    def release(self) -> None:
        """Drop the buffers. Recorded runs keep theirs until they are done."""
        with self._lock:
            self._start_over()

    # ----- Called with the lock held

    def _start_over(self) -> None:
        # New buffers are all zeros, so epochs may begin at 1 again.
        self._memory.clear()
        self._once = None
        self._epoch = 0
        self._ahead.clear()

    def _reserve_epochs(self, count: int) -> int:
        """Reserve `count` epochs and return the first one."""
        if self._epoch + count > LAST_EPOCH:
            self._start_over()
        self._epoch += count
        return self._epoch - count + 1

    def _parameter_words(
        self, run_descriptor: RunDescriptor, first: int, count: int
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
        """Return the parameters of `count` runs with this descriptor. `first` is the first epoch of the first run."""
        words = np.zeros((count, len(run_descriptor.words), self._stride // 4), np.uint32)
        words[:, :, : len(run_descriptor.words[0])] = run_descriptor.words
        words[:, :, run_descriptor.epoch_word] = (first + run_descriptor.epochs * np.arange(count))[:, None]
        return words

    def _write_once(self, run_descriptor: RunDescriptor) -> tuple[Binding, int, int]:
        """Write the parameters of the first such run; return their buffer, their index in it, and the epoch."""
        epoch = self._reserve_epochs(run_descriptor.epochs)
        if len(run_descriptor.words) > 1:
            ahead = self._write_ahead(run_descriptor, 1, epoch)
            ahead.used = 1
            return ahead.params, 0, epoch
        once = self._once
        if once is None or once.used == once.count:
            usage = webgpu().BufferUsage.UNIFORM | webgpu().BufferUsage.COPY_DST
            buffer = self._device.create_buffer(size=MAX_AHEAD * self._stride, usage=usage)
            once = self._once = _ParameterBuffer(Binding(buffer, 0, PARAMS.size), 0, MAX_AHEAD)
        number = once.used
        once.used += 1
        words = list(run_descriptor.words[0])
        words[run_descriptor.epoch_word] = epoch
        self._write(once.params.buffer, number * self._stride, np.array(words, np.uint32))
        self._ahead.keep(run_descriptor, None)
        return once.params, number, epoch

    def _write_ahead(self, run_descriptor: RunDescriptor, count: int, first: int | None = None) -> _ParameterBuffer:
        """Write the parameters of `count` runs. Their epochs begin at `first`; without `first`, reserve new epochs."""
        first = self._reserve_epochs(count * run_descriptor.epochs) if first is None else first
        words = self._parameter_words(run_descriptor, first, count)
        usage = webgpu().BufferUsage.UNIFORM | webgpu().BufferUsage.COPY_DST
        buffer = self._device.create_buffer(size=words.nbytes, usage=usage)
        self._write(buffer, 0, words)
        ahead = _ParameterBuffer(Binding(buffer, 0, PARAMS.size), first, count)
        self._ahead.keep(run_descriptor, ahead)
        return ahead

    def _grow(self, run_descriptor: RunDescriptor) -> wgpu.GPUBuffer:
        """Make the buffer that runs with this descriptor write, and return it."""
        _, before = self._memory.get(run_descriptor.memory, _NO_MEMORY)
        usage = webgpu().BufferUsage.STORAGE | webgpu().BufferUsage.COPY_SRC
        size = max(run_descriptor.nbytes, min(2 * before if before > 0 else 1 << 16, self._most))
        made = self._device.create_buffer(size=-(-size // 16) * 16, usage=usage)
        self._memory[run_descriptor.memory] = made, made.size
        return made
