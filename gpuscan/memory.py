"""GPU buffers that are used again: a pool by size class, owned by one device."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wgpu

LEAST_BYTES = 256
ALIGNMENT = 16  # bytes; shaders read and write whole vectors of four words


@dataclass(frozen=True)
class MemoryUsage:
    """What a device's pool holds.

    Attributes:
        bytes_in_use: in buffers that something uses now.
        bytes_reserved: in all buffers that the pool has taken from the device.
        allocations: buffers in use.
    """

    bytes_in_use: int
    bytes_reserved: int
    allocations: int


def size_class(nbytes: int) -> int:
    """The size of the buffer that serves `nbytes`: the next quarter step between powers of two."""
    nbytes = max(nbytes, LEAST_BYTES)
    step = max(ALIGNMENT, (1 << (nbytes - 1).bit_length()) // 8)
    return -(-nbytes // step) * step


class BufferPool:
    """Buffers by usage and size class; taken and given back, or given up for good by `cleanup`."""

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._lock = threading.Lock()
        self._free: dict[tuple[int, int], list[wgpu.GPUBuffer]] = defaultdict(list)
        self._in_use = 0
        self._reserved = 0
        self._allocations = 0

    def take(self, nbytes: int, usage: int) -> wgpu.GPUBuffer:
        """A buffer of at least `nbytes` whose contents are left over from earlier use."""
        size = min(size_class(nbytes), max(nbytes, self._device.limits["max-buffer-size"] // ALIGNMENT * ALIGNMENT))
        with self._lock:
            free = self._free[(usage, size)]
            buffer = free.pop() if free else None
        if buffer is None:
            buffer = self._device.create_buffer(size=size, usage=usage)
            with self._lock:
                self._reserved += size
        with self._lock:
            self._in_use += size
            self._allocations += 1
        return buffer

    def give(self, buffer: wgpu.GPUBuffer) -> None:
        """Give back a buffer from `take`."""
        with self._lock:
            self._free[(buffer.usage, buffer.size)].append(buffer)
            self._in_use -= buffer.size
            self._allocations -= 1

    def cleanup(self) -> None:
        """Give the free buffers back to the device."""
        with self._lock:
            free = [buffer for buffers in self._free.values() for buffer in buffers]
            self._free.clear()
            self._reserved -= sum(buffer.size for buffer in free)
        for buffer in free:
            buffer.destroy()

    def usage(self) -> MemoryUsage:
        with self._lock:
            return MemoryUsage(self._in_use, self._reserved, self._allocations)
