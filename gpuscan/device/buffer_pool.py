"""Reuse GPU buffers: a pool by size class, owned by one device."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

from gpuscan.errors import DeviceMemoryError
from gpuscan.planning.heuristics import GPU

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.deferred_runs import HeldRun

# The size in bytes of the smallest buffer.
MIN_BYTES = 256
# Arrays are bound in multiples of this many bytes, since shaders read and write vectors of four words.
ALIGNMENT = 16
# Buffers up to this many bytes come in coarser size classes.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class MemoryUsage:
    """The memory that gpuscan holds on a device.

    Attributes:
        bytes_in_use: the bytes of the buffers that something uses now.
        bytes_reserved: the bytes of all buffers that gpuscan has created and not given back.
        allocations: the number of buffers in use.
    """

    bytes_in_use: int
    bytes_reserved: int
    allocations: int


@lru_cache(maxsize=256)
def size_class(nbytes: int, most: int) -> int:
    """Return the size of the buffer that serves a request for `nbytes`, where no buffer is larger than `most`.

    Up to 1 MiB there are four sizes between two powers of two, above it sixteen. There are few sizes, so that buffers
    fit later requests, and they are close together for large buffers, so that little memory is lost.
    """
    if nbytes <= MIN_BYTES:
        return MIN_BYTES
    steps = 8 if nbytes <= SMALL_BYTES else 32
    step = max(ALIGNMENT, (1 << (nbytes - 1).bit_length()) // steps)
    return min(-(-nbytes // step) * step, most)


class Allocation:
    """A buffer of a pool. It goes back to the pool once nothing refers to the allocation."""

    # The run that writes to it, if that was held. Nothing else keeps the run alive.
    held_run: HeldRun | None = None

    def __init__(self, pool: BufferPool, buffer: wgpu.GPUBuffer, nbytes: int, usage_and_size: tuple[int, int]) -> None:
        self.buffer = buffer
        # The bytes that were asked for; the buffer may be larger.
        self.nbytes = nbytes
        # The buffer's usage and size.
        self.usage_and_size = usage_and_size
        self._dropped = pool.dropped
        self._forgotten = pool.forgotten
        self._is_recorded = False

    def mark_recorded(self) -> None:
        """Keep the buffer out of the pool for good, because a caller's commands use it.

        The caller may submit them after the allocation is gone. The commands keep the memory until then.
        """
        self._is_recorded = True

    def __del__(self) -> None:
        # This may run inside any call of this thread, so it takes no lock.
        (self._forgotten if self._is_recorded else self._dropped).append((self.buffer, self.usage_and_size))


class SizedAllocation:
    """An allocation of a call that is being recorded. The sizes of the call decide how many bytes it has.

    Attributes:
        base: the allocation itself.
        buffer, nbytes, usage_and_size, held_run: as in `Allocation`.
    """

    held_run = None

    def __init__(self, base: Allocation, nbytes: int, usage_and_size: tuple[int, int]) -> None:
        self.base, self.buffer, self.nbytes, self.usage_and_size = base, base.buffer, nbytes, usage_and_size

    def mark_recorded(self) -> None:
        """Do what `Allocation.mark_recorded` does."""
        self.base.mark_recorded()


# What owns the memory of an array.
Memory: TypeAlias = Allocation | SizedAllocation


class BufferPool:
    """Buffers by usage and size class, which are taken and given back. `cleanup` destroys the free ones.

    Every array has a buffer of its own. WebGPU lets no dispatch read one part of a buffer while it writes another, so
    arrays that shared a buffer could not be source and destination of one scan.

    Args:
        wgpu_device: the device that owns the buffers.
        max_free_bytes: the bytes of free buffers that are kept. Above it, the least recently used are destroyed.
        keeps_as_used: True to keep as many free bytes as are in use, if that is more than `max_free_bytes`.
        flush: submits the runs that the device's queue holds, which may use a buffer that was given back, and perhaps
            taken again. It is called before buffers are destroyed.

    Attributes:
        lock: held while buffers are taken, given back or destroyed.
    """

    def __init__(
        self,
        wgpu_device: wgpu.GPUDevice,
        max_free_bytes: int = GPU.max_free_bytes,
        *,
        keeps_as_used: bool = False,
        flush: Callable[[], object] = lambda: None,
    ) -> None:
        self._device = wgpu_device
        self.largest: int = wgpu_device.limits["max-buffer-size"] // ALIGNMENT * ALIGNMENT
        # Returns the size of the buffer that serves a request for a number of bytes, mostly without a call of Python's.
        self.size_of: Callable[[int], int] = partial(size_class, most=self.largest)
        self._process = os.getpid()
        self._max_free_bytes = max_free_bytes
        self._keeps_as_used = keeps_as_used
        self._flush = flush
        self.lock = threading.RLock()
        # The free buffers by id, the least recently used first.
        self._free: OrderedDict[int, wgpu.GPUBuffer] = OrderedDict()
        self._by_class: dict[tuple[int, int], list[int]] = {}
        self._free_bytes = 0
        self._in_use = 0
        self._reserved = 0
        self._allocations = 0
        # The buffers in use by id. An allocation in a cycle of garbage is finalised together with all objects that only
        # the cycle refers to, and a finalised buffer could not be used again.
        self._taken: dict[int, wgpu.GPUBuffer] = {}
        # The buffers of allocations that were garbage-collected, not yet given back, with usage and size.
        self.dropped: deque[tuple[wgpu.GPUBuffer, tuple[int, int]]] = deque()
        # The same of buffers that a caller's commands may still use.
        self.forgotten: deque[tuple[wgpu.GPUBuffer, tuple[int, int]]] = deque()

    def take(self, nbytes: int, usage: int) -> wgpu.GPUBuffer:
        """Return a buffer of at least `nbytes`. It contains arbitrary data from earlier use.

        Raises:
            DeviceMemoryError: the device has no room, even after all free buffers were destroyed.
        """
        if nbytes > self.largest:
            raise DeviceMemoryError(
                f"a buffer of {nbytes} bytes was asked for; the device's largest has {self.largest}. Pass "
                'device="numpy", or open the device with a larger limit "max-buffer-size". For scans, pass a NumPy '
                "array, which gpuscan.scan takes piece by piece, or pass chunks to gpuscan.scan_chunks"
            )
        with self.lock:
            self._collect()
            (buffer,) = self._take([(usage, self.size_of(nbytes))])
            return buffer

    def give(self, buffer: wgpu.GPUBuffer) -> None:
        """Give back a buffer from `take`."""
        with self.lock:
            self._give([(buffer, (buffer.usage, buffer.size))])

    def take_all(self, usages_and_sizes: Sequence[tuple[int, int]]) -> list[wgpu.GPUBuffer]:
        """Return a buffer for each pair of usage and `size_of`, as `take` does; all of them or none."""
        with self.lock:
            if self.dropped or self.forgotten:
                self._collect()
            return self._take(usages_and_sizes)

    def give_all(
        self, buffers: Sequence[wgpu.GPUBuffer], usages_and_sizes: Sequence[tuple[int, int]], *, clean: bool
    ) -> None:
        """Return the buffers of `take_all` to the pool, or discard them after an error (`clean` is False)."""
        if not clean:
            for buffer in buffers:
                self.discard(buffer)
            return
        with self.lock:
            self._give(zip(buffers, usages_and_sizes, strict=False))

    def discard(self, buffer: wgpu.GPUBuffer) -> None:
        """Destroy a buffer from `take` that cannot be used again, for example because it is still mapped."""
        with self.lock:
            del self._taken[id(buffer)]
            self._in_use -= buffer.size
            self._allocations -= 1
            self._reserved -= buffer.size
        try:
            self._flush()
        finally:
            self._end(buffer)

    def _end(self, buffer: wgpu.GPUBuffer) -> None:
        # In a forked process the driver would wait for threads that only the parent has.
        if os.getpid() == self._process:
            buffer.destroy()

    def lend(self, nbytes: int, usage: int) -> Allocation:
        """Return a buffer of at least `nbytes` that goes back to the pool by itself."""
        if nbytes > self.largest:
            self.take(nbytes, usage)  # which raises the error
        usage_and_size = usage, self.size_of(nbytes)
        with self.lock:
            if self.dropped or self.forgotten:
                self._collect()
            (buffer,) = self._take([usage_and_size])
        return Allocation(self, buffer, nbytes, usage_and_size)

    def cleanup(self) -> None:
        """Destroy the free buffers, so that other programs can use their memory."""
        with self.lock:
            self._collect()
            for key in list(self._free):
                self._destroy(key)

    def usage(self) -> MemoryUsage:
        """Return how much memory the pool holds."""
        with self.lock:
            self._collect()
            return MemoryUsage(self._in_use, self._reserved, self._allocations)

    # ----- Called with the lock held

    def _collect(self) -> None:
        """Take back the buffers of allocations that were garbage-collected."""
        while self.dropped:
            # Each is taken from the queue as it is given back.
            self._give(map(deque.popleft, repeat(self.dropped, len(self.dropped))))
        while self.forgotten:
            buffer, (_, nbytes) = self.forgotten.popleft()
            del self._taken[id(buffer)]
            self._in_use -= nbytes
            self._reserved -= nbytes
            self._allocations -= 1

    def _take(self, usages_and_sizes: Sequence[tuple[int, int]]) -> list[wgpu.GPUBuffer]:
        """Return a buffer for each usage and size class; all of them or none."""
        buffers: list[wgpu.GPUBuffer] = []
        for usage_and_size in usages_and_sizes:
            usage, size = usage_and_size
            alike = self._by_class.get(usage_and_size)
            if alike:
                buffer = self._free.pop(alike.pop())
                self._free_bytes -= size
            else:
                try:
                    buffer = self._create(size, usage)
                except BaseException:
                    self._give(zip(buffers, usages_and_sizes, strict=False))
                    raise
            self._taken[id(buffer)] = buffer
            self._in_use += size
            self._allocations += 1
            buffers.append(buffer)
        return buffers

    def _give(self, buffers: Iterable[tuple[wgpu.GPUBuffer, tuple[int, int]]]) -> None:
        """Keep buffers with their usage and size class, and destroy the least recently used ones above the limit."""
        for buffer, usage_and_size in buffers:
            del self._taken[id(buffer)]
            self._in_use -= usage_and_size[1]
            self._allocations -= 1
            self._free[id(buffer)] = buffer
            self._by_class.setdefault(usage_and_size, []).append(id(buffer))
            self._free_bytes += usage_and_size[1]
            limit = max(self._max_free_bytes, self._in_use) if self._keeps_as_used else self._max_free_bytes
            while self._free_bytes > limit and self._free:
                self._destroy(next(iter(self._free)))

    def _create(self, size: int, usage: int) -> wgpu.GPUBuffer:
        try:
            buffer = self._device.create_buffer(size=size, usage=usage)
        except MemoryError:
            # Held runs keep what they read.
            self._flush()
            self.cleanup()
            try:
                buffer = self._device.create_buffer(size=size, usage=usage)
            except MemoryError as error:
                raise DeviceMemoryError(
                    f"a buffer of {size} bytes was asked for; the device has no room for it in addition to the "
                    f"{self._in_use} bytes in use. Delete arrays, or scan in chunks with gpuscan.scan_chunks"
                ) from error
        self._reserved += size
        return buffer

    def _destroy(self, key: int) -> None:
        self._flush()
        buffer = self._free[key]
        alike = self._by_class.get((buffer.usage, buffer.size), [])
        # Where Ctrl-C has stopped `_take`, the key is here no longer. It leaves this list first in any case: another
        # buffer may get the same key.
        if key in alike:
            alike.remove(key)
        if not alike:
            self._by_class.pop((buffer.usage, buffer.size), None)
        del self._free[key]
        self._free_bytes -= buffer.size
        self._reserved -= buffer.size
        self._end(buffer)
