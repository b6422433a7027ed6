"""GPU buffers that are used again: a pool by size class, owned by one device."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscan.errors import DeviceMemoryError

if TYPE_CHECKING:
    import wgpu

# The size in bytes of the smallest buffer.
MIN_BYTES = 256
# Arrays are bound in multiples of this many bytes, since shaders read and write vectors of four words.
ALIGNMENT = 16
# A pool keeps free buffers up to this many bytes; beyond it, the least recently used are given back to the device. A
# pool of a discrete GPU keeps as many bytes as are in use, if that is more: to create a buffer of 1 GiB takes an H200
# 25 ms, fifty times as long as to scan it.
KEPT_BYTES = 2 << 30
# The same where the device's memory is the computer's.
SHARED_KEPT_BYTES = 64 << 20
# Buffers up to this many bytes come in coarser size classes.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class MemoryUsage:
    """What a device's pool holds.

    Attributes:
        bytes_in_use: in buffers that something uses now.
        bytes_reserved: in all buffers that gpuscan has taken from the device.
        allocations: buffers in use.
    """

    bytes_in_use: int
    bytes_reserved: int
    allocations: int


def size_class(nbytes: int) -> int:
    """The size of the buffer that serves `nbytes`.

    Up to 1 MiB the next quarter step between powers of two, beyond it the next sixteenth: few classes, so that
    buffers fit again, and little lost where it counts.
    """
    nbytes = max(nbytes, MIN_BYTES)
    steps = 8 if nbytes <= SMALL_BYTES else 32
    step = max(ALIGNMENT, (1 << (nbytes - 1).bit_length()) // steps)
    return -(-nbytes // step) * step


def kept_bytes(adapter_type: str) -> int:
    """How many bytes of free buffers a pool keeps on an adapter of this type."""
    return SHARED_KEPT_BYTES if adapter_type in ("CPU", "IntegratedGPU") else KEPT_BYTES


class Allocation:
    """A buffer of a pool that goes back to it when nobody holds the allocation any more."""

    def __init__(self, pool: BufferPool, buffer: wgpu.GPUBuffer, nbytes: int) -> None:
        self.buffer = buffer
        self.nbytes = nbytes  # as asked for
        self._pool = pool
        # A finaliser may run inside any call of this thread, so it takes no lock. At interpreter exit there is
        # nothing to give back to.
        self._finalizer = weakref.finalize(self, pool.dropped.append, buffer)
        self._finalizer.atexit = False

    def recorded(self) -> None:
        """Let the buffer go for good with the allocation, and not to others: commands of a caller's use it.

        They may be submitted when the allocation is long gone, and keep the memory until then.
        """
        if self._finalizer.detach():
            weakref.finalize(self, self._pool.forgotten.append, self.buffer.size).atexit = False


class BufferPool:
    """Buffers by usage and size class; taken and given back, or given up for good by `cleanup`.

    Every array has a buffer of its own: WebGPU lets no dispatch read one part of a buffer while it writes another,
    so arrays that shared a buffer could not be source and destination of one scan.
    """

    def __init__(
        self, wgpu_device: wgpu.GPUDevice, kept_bytes: int = KEPT_BYTES, *, keeps_as_used: bool = False
    ) -> None:
        self._device = wgpu_device
        self._process = os.getpid()
        self._kept_bytes = kept_bytes
        self._keeps_as_used = keeps_as_used
        self._lock = threading.RLock()
        self._free: OrderedDict[int, wgpu.GPUBuffer] = OrderedDict()  # by id, the longest unused first
        self._by_class: dict[tuple[int, int], list[int]] = {}
        self._free_bytes = 0
        self._in_use = 0
        self._reserved = 0
        self._allocations = 0
        self.dropped: deque[wgpu.GPUBuffer] = deque()  # of allocations that have died, not yet given back
        self.forgotten: deque[int] = deque()  # bytes of those that a caller's commands may still use
        # Allocations that gpuscan keeps for later calls. They count as reserved, not as in use.
        self.kept: weakref.WeakSet[Allocation] = weakref.WeakSet()

    def take(self, nbytes: int, usage: int) -> wgpu.GPUBuffer:
        """A buffer of at least `nbytes` whose contents are left over from earlier use.

        Raises:
            DeviceMemoryError: the device has no room, even after everything free was given back.
        """
        most = self._device.limits["max-buffer-size"] // ALIGNMENT * ALIGNMENT
        if nbytes > most:
            raise DeviceMemoryError(
                f"a buffer of {nbytes} bytes was asked for; the device's largest has {most}. Scan the array in chunks "
                "with gpuscan.scan_chunks, or as a NumPy array, which gpuscan.scan takes piece by piece; or pass "
                'device="numpy", or open the device with a larger limit "max-buffer-size"'
            )
        size = min(size_class(nbytes), most)
        with self._lock:
            self._collect()
            return self._take((usage, size))

    def give(self, buffer: wgpu.GPUBuffer) -> None:
        """Give back a buffer from `take`."""
        with self._lock:
            self._give(buffer, (buffer.usage, buffer.size))

    def take_all(self, classes: Sequence[tuple[int, int]]) -> list[wgpu.GPUBuffer]:
        """A buffer for each usage and `size_class`, as `take` gives them, all or none."""
        buffers: list[wgpu.GPUBuffer] = []
        with self._lock:
            self._collect()
            try:
                for kind in classes:
                    buffers.append(self._take(kind))
            except BaseException:
                self.give_all(buffers, classes, clean=True)
                raise
        return buffers

    def give_all(self, buffers: Sequence[wgpu.GPUBuffer], classes: Sequence[tuple[int, int]], *, clean: bool) -> None:
        """Give back what `take_all` gave; or up, where an error has left it in any state."""
        if not clean:
            for buffer in buffers:
                self.discard(buffer)
            return
        with self._lock:
            for buffer, kind in zip(buffers, classes, strict=False):
                self._give(buffer, kind)

    def discard(self, buffer: wgpu.GPUBuffer) -> None:
        """Give up a buffer from `take` that is in no state to be used again, such as half mapped."""
        with self._lock:
            self._in_use -= buffer.size
            self._allocations -= 1
            self._reserved -= buffer.size
        self._end(buffer)

    def _end(self, buffer: wgpu.GPUBuffer) -> None:
        if os.getpid() == self._process:  # a forked process would wait here for threads that it does not have
            buffer.destroy()

    def lend(self, nbytes: int, usage: int) -> Allocation:
        """A buffer of so many bytes, and of whole vectors, that comes back by itself."""
        return Allocation(self, self.take(nbytes, usage), nbytes)

    def cleanup(self) -> None:
        """Give the free buffers back to the device."""
        with self._lock:
            self._collect()
            for key in list(self._free):
                self._destroy(key)

    def usage(self) -> MemoryUsage:
        with self._lock:
            self._collect()
            kept = [allocation.buffer.size for allocation in self.kept]
            return MemoryUsage(self._in_use - sum(kept), self._reserved, self._allocations - len(kept))

    # ----- Called with the lock held

    def _collect(self) -> None:
        """Take back what dead allocations held."""
        while self.dropped:
            self.give(self.dropped.popleft())
        while self.forgotten:
            nbytes = self.forgotten.popleft()
            self._in_use -= nbytes
            self._reserved -= nbytes
            self._allocations -= 1

    def _take(self, kind: tuple[int, int]) -> wgpu.GPUBuffer:
        """A buffer of this usage and size class."""
        usage, size = kind
        alike = self._by_class.get(kind)
        if alike:
            buffer = self._free.pop(alike.pop())
            self._free_bytes -= size
        else:
            buffer = self._create(size, usage)
        self._in_use += size
        self._allocations += 1
        return buffer

    def _give(self, buffer: wgpu.GPUBuffer, kind: tuple[int, int]) -> None:
        """Keep a buffer of this usage and size class for later; the longest unused go where too much is kept."""
        self._in_use -= kind[1]
        self._allocations -= 1
        self._free[id(buffer)] = buffer
        self._by_class.setdefault(kind, []).append(id(buffer))
        self._free_bytes += kind[1]
        while self._free_bytes > (max(self._kept_bytes, self._in_use) if self._keeps_as_used else self._kept_bytes):
            self._destroy(next(iter(self._free)))

    def _create(self, size: int, usage: int) -> wgpu.GPUBuffer:
        try:
            buffer = self._device.create_buffer(size=size, usage=usage)
        except MemoryError:
            self.cleanup()
            try:
                buffer = self._device.create_buffer(size=size, usage=usage)
            except MemoryError as error:
                raise DeviceMemoryError(
                    f"a buffer of {size} bytes was asked for; the device has no room for it beside the "
                    f"{self._in_use} bytes in use. Let go of arrays, or scan in chunks with gpuscan.scan_chunks"
                ) from error
        self._reserved += size
        return buffer

    def _destroy(self, key: int) -> None:
        buffer = self._free.pop(key)
        alike = self._by_class[(buffer.usage, buffer.size)]
        alike.remove(key)
        if not alike:
            del self._by_class[(buffer.usage, buffer.size)]
        self._free_bytes -= buffer.size
        self._reserved -= buffer.size
        self._end(buffer)
