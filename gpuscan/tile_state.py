"""What the runs of a device share: the buffers that tiles tell each other through, the epochs, and the parameters."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpuscan.backends import webgpu
from gpuscan.bind_groups import Binding

if TYPE_CHECKING:
    import wgpu

    from gpuscan.planning import ScanPlan

# length, tiles, epoch, spin_rounds, row_length, first_row, row_offset, inner: see shaders/parts/header.wgsl
PARAMS = struct.Struct("<8I")
EPOCH_WORD = 2
LAST_EPOCH = 0xFFFF  # epochs are 16 bits and begin at 1: see shaders/parts/tile_state.wgsl
MOST_AHEAD, GROWTH = 256, 16  # runs whose parameters are written at once: 1 at first, then so many times as many
KINDS_KEPT = 64  # of parameters


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
    """Parameters of runs that differ in the epoch alone."""

    params: Binding
    first: int  # the epoch of the first of them
    count: int
    used: int = 0


class TileState:
    """The buffers that tiles tell each other through, kept from run to run, and the parameters of the runs.

    Runs on one queue follow each other, so all of a device's runs share one buffer; each run's epoch tells its posts
    from what earlier ones left, so nothing is cleared between runs. Plain totals lie in a buffer of their own, since
    their words could look like posts.

    Parameters lie in uniform buffers, written for many runs ahead, whose epochs are set aside: a dispatch picks its own
    by a dynamic offset. On an H100 `var<immediate>` costs every dispatch 1.8 us of the GPU's time.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._posts: wgpu.GPUBuffer | None = None
        self._totals: wgpu.GPUBuffer | None = None
        self._epoch = 0  # the last that is in use or set aside
        self._ahead: OrderedDict[tuple[int, ...], _Ahead] = OrderedDict()
        self._stride = max(PARAMS.size, int(wgpu_device.limits["min-uniform-buffer-offset-alignment"]))
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that the state holds on the device."""
        with self._lock:
            buffers = [self._posts, self._totals, *(ahead.params.buffer for ahead in self._ahead.values())]
            return sum(buffer.size for buffer in buffers if buffer is not None)

    def begin(self, plan: ScanPlan, place: tuple[int, int, int]) -> Begun:
        """The buffers and the epoch for one run of the plan; place: length, first row and offset of its rows."""
        kind = (plan.length, plan.tiles, 0, plan.spin_rounds, *place, plan.inner)
        with self._lock:
            ahead = self._ahead.get(kind)
            if ahead is None or ahead.used == ahead.count:
                ahead = self._write_ahead(kind, min(GROWTH * ahead.count, MOST_AHEAD) if ahead else 1)
            offset, epoch = ahead.used * self._stride, ahead.first + ahead.used
            ahead.used += 1
            return Begun(self._buffer(plan), epoch, ahead.params, offset)

    def release(self) -> None:
        """Let go of the buffers; recorded runs keep theirs until they are done."""
        with self._lock:
            self._start_over()

    # ----- Called with the lock held

    def _start_over(self) -> None:
        self._posts = self._totals = None  # a new buffer is all zeros
        self._epoch = 0
        self._ahead.clear()

    def _write_ahead(self, kind: tuple[int, ...], count: int) -> _Ahead:
        """Set epochs aside for so many runs, and write their parameters."""
        if self._epoch + count > LAST_EPOCH:
            self._start_over()
        first = self._epoch + 1
        words = np.zeros((count, self._stride // 4), np.uint32)
        words[:, : len(kind)] = kind
        words[:, EPOCH_WORD] = np.arange(first, first + count)
        buffer = self._device.create_buffer_with_data(data=words, usage=webgpu().BufferUsage.UNIFORM)
        self._epoch += count
        ahead = self._ahead[kind] = _Ahead(Binding(buffer, 0, PARAMS.size), first, count)
        self._ahead.move_to_end(kind)
        if len(self._ahead) > KINDS_KEPT:
            self._ahead.popitem(last=False)
        return ahead

    def _buffer(self, plan: ScanPlan) -> wgpu.GPUBuffer:
        """The posts or the totals, as large as the plan wants them."""
        buffer = self._posts if plan.posts else self._totals
        if buffer is None or buffer.size < plan.state_bytes:
            usage = webgpu().BufferUsage.STORAGE | webgpu().BufferUsage.COPY_SRC
            size = max(plan.state_bytes, 2 * buffer.size if buffer else 1 << 16)
            buffer = self._device.create_buffer(size=-(-size // 16) * 16, usage=usage)
            if plan.posts:
                self._posts = buffer
            else:
                self._totals = buffer
        return buffer
