"""What the runs of a device share: the buffers that tiles tell each other through, the epochs, and the parameters."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpuscan.device.backends import webgpu
from gpuscan.device.bind_groups import Binding
from gpuscan.errors import GpuscanError, smaller

if TYPE_CHECKING:
    import wgpu

    from gpuscan.planning.plan import ScanPlan

# length, tiles, epoch, spin_rounds, row_length, first_row, row_offset, inner: see shaders/shared/header.wgsl
PARAMS = struct.Struct("<8I")
EPOCH_WORD = 2
# Epochs are 16 bits and begin at 1: see shaders/shared/tile_state.wgsl and shaders/scan/load_words.wgsl.
LAST_EPOCH = 0xFFFF
MOST_AHEAD, GROWTH = 256, 16  # runs whose parameters are written at once: 1, 16, then 256
KINDS_KEPT = 64  # of parameters


def parameters(plan: ScanPlan, place: tuple[int, int, int], epoch: int) -> tuple[int, ...]:
    """The numbers that `PARAMS` packs; place: length, first row and offset of the rows."""
    return (plan.length, plan.tiles, epoch, plan.spin_rounds, *place, plan.inner)


class TileStateSizeError(GpuscanError):
    """What tiles would tell each other does not fit a binding; nothing was submitted."""


class Begun(NamedTuple):
    """What one run is given.

    Attributes:
        state: the buffer of posts or totals.
        epoch: the run's own number.
        params: the uniform buffer that the run's parameters lie in.
        offset: where they begin, in bytes.
    """

    state: wgpu.GPUBuffer
    epoch: int
    params: Binding
    offset: int


@dataclass
class _Ahead:
    """Places for the parameters of runs."""

    params: Binding
    first: int  # the epoch of the first of them, where they are written ahead
    count: int
    used: int = 0


class TileState:
    """The buffers that tiles tell each other through, kept from run to run, and the parameters of the runs.

    Runs on one queue follow each other, so all of a device's runs share one buffer; each run's epoch tells its posts
    from what earlier ones left, so nothing is cleared between runs. Plain totals lie in a buffer of their own, since
    their words could look like posts.

    Parameters lie in uniform buffers, where a dispatch picks its own by a dynamic offset. Those of a kind of run that
    comes again are written for many runs ahead, whose epochs are set aside; nothing is ever written twice, for commands
    may be submitted long after they were recorded. On an H100 `var<immediate>` costs every dispatch 1.8 us of the
    GPU's time.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._posts: wgpu.GPUBuffer | None = None
        self._totals: wgpu.GPUBuffer | None = None
        self._epoch = 0  # the last that is in use or set aside
        self._ahead: OrderedDict[tuple[int, ...], _Ahead | None] = OrderedDict()  # None: seen once
        self._once: _Ahead | None = None  # those of kinds that were not seen before, each written as it comes
        self._most = int(wgpu_device.limits["max-storage-buffer-binding-size"])
        self._stride = max(PARAMS.size, int(wgpu_device.limits["min-uniform-buffer-offset-alignment"]))
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that the state holds on the device."""
        # Without the lock: a signal handler may ask while its thread is at work here.
        written = [each.params.buffer for each in (self._once, *list(self._ahead.values())) if each is not None]
        return sum(buffer.size for buffer in (self._posts, self._totals, *written) if buffer is not None)

    def begin(self, plan: ScanPlan, place: tuple[int, int, int]) -> Begun:
        """The buffers and the epoch for one run of the plan; `place` as in `parameters`.

        Raises:
            TileStateSizeError: the plan's posts or totals are larger than a binding.
        """
        if plan.state_bytes > self._most:
            raise TileStateSizeError(
                f"a scan of {plan.length} elements was asked for, whose {plan.tiles} tiles leave each other "
                f"{plan.state_bytes} bytes; the device binds at most {self._most}. "
                f"{smaller(plan.length // max(1, plan.row_length))}"
            )
        kind = parameters(plan, place, epoch=0)
        with self._lock:
            if kind not in self._ahead:
                params, number, epoch = self._write_once(kind)
            else:
                ahead = self._ahead[kind]
                self._ahead.move_to_end(kind)
                if ahead is None or ahead.used == ahead.count:
                    ahead = self._write_ahead(kind, min(GROWTH * ahead.count, MOST_AHEAD) if ahead else GROWTH)
                params, number, epoch = ahead.params, ahead.used, ahead.first + ahead.used
                ahead.used += 1
            return Begun(self._buffer(plan), epoch, params, number * self._stride)

    def release(self) -> None:
        """Let go of the buffers; recorded runs keep theirs until they are done."""
        with self._lock:
            self._start_over()

    # ----- Called with the lock held

    def _start_over(self) -> None:
        self._posts = self._totals = self._once = None  # a new buffer is all zeros
        self._epoch = 0
        self._ahead.clear()

    def _set_aside(self, count: int) -> int:
        """The first of so many epochs."""
        if self._epoch + count > LAST_EPOCH:
            self._start_over()
        self._epoch += count
        return self._epoch - count + 1

    def _write_once(self, kind: tuple[int, ...]) -> tuple[Binding, int, int]:
        """Write the parameters of a first run of this kind: where they are, as which of how many, with what epoch."""
        epoch = self._set_aside(1)
        once = self._once
        if once is None or once.used == once.count:
            usage = webgpu().BufferUsage.UNIFORM | webgpu().BufferUsage.COPY_DST
            buffer = self._device.create_buffer(size=MOST_AHEAD * self._stride, usage=usage)
            once = self._once = _Ahead(Binding(buffer, 0, PARAMS.size), 0, MOST_AHEAD)
        number = once.used
        once.used += 1
        words = PARAMS.pack(*kind[:EPOCH_WORD], epoch, *kind[EPOCH_WORD + 1 :])
        self._device.queue.write_buffer(once.params.buffer, number * self._stride, words)
        self._keep(kind, None)
        return once.params, number, epoch

    def _write_ahead(self, kind: tuple[int, ...], count: int) -> _Ahead:
        """Set epochs aside for so many runs, and write their parameters."""
        first = self._set_aside(count)
        words = np.zeros((count, self._stride // 4), np.uint32)
        words[:, : len(kind)] = kind
        words[:, EPOCH_WORD] = np.arange(first, first + count)
        buffer = self._device.create_buffer_with_data(data=words, usage=webgpu().BufferUsage.UNIFORM)
        ahead = _Ahead(Binding(buffer, 0, PARAMS.size), first, count)
        self._keep(kind, ahead)
        return ahead

    def _keep(self, kind: tuple[int, ...], ahead: _Ahead | None) -> None:
        self._ahead[kind] = ahead
        if len(self._ahead) > KINDS_KEPT:
            self._ahead.popitem(last=False)

    def _buffer(self, plan: ScanPlan) -> wgpu.GPUBuffer:
        """The posts or the totals, as large as the plan wants them."""
        buffer = self._posts if plan.posts else self._totals
        if buffer is None or buffer.size < plan.state_bytes:
            usage = webgpu().BufferUsage.STORAGE | webgpu().BufferUsage.COPY_SRC
            size = max(plan.state_bytes, min(2 * buffer.size if buffer else 1 << 16, self._most))
            buffer = self._device.create_buffer(size=-(-size // 16) * 16, usage=usage)
            if plan.posts:
                self._posts = buffer
            else:
                self._totals = buffer
        return buffer
