"""Keep the bind groups that later calls share."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpuscan.device.interrupts import defer_interrupts
from gpuscan.device.steps import Binding

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.queue import Queue
    from gpuscan.device.steps import SlotDispatch

# How many bind groups a device keeps; the least recently used goes first.
MAX_BIND_GROUPS = 1024


Bound = Sequence[tuple[int, Binding]]


class BindGroups:
    """Bind groups that are kept for later calls while their buffers are alive.

    To create a bind group costs more than a dispatch. It also slows an H100 down: a scan of 2^16 elements takes 9.2 us
    at first, and 12.6 us after some ten thousand bind groups were created.

    A group keeps the memory of its buffers, so it is dropped as soon as one of them is garbage-collected.

    Args:
        queue: the queue of the device, which makes the groups.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[object, ...]] = OrderedDict()
        # By the id of a buffer, the keys of the groups that contain the buffer.
        self._keys: dict[int, set[tuple[object, ...]]] = {}
        # By the same id, a reference that tells when the buffer is collected. A `weakref.finalize` would no longer tell
        # while Python ends, and functions that run at exit may scan: a new buffer would get the group of a former one.
        # So it would after Ctrl-C in a function of Python's that tells, and `deque.append` is none. The second
        # reference only makes sure that the groups are dropped at once.
        self._references: dict[int, tuple[weakref.KeyedRef[int, wgpu.GPUBuffer], weakref.ref[wgpu.GPUBuffer]]] = {}
        # The first references of buffers that were garbage-collected and still have groups in the cache.
        self._dropped: deque[weakref.KeyedRef[int, wgpu.GPUBuffer]] = deque()

    def group(self, layout: wgpu.GPUBindGroupLayout, bound: Bound, keep: bool) -> wgpu.GPUBindGroup:
        """Return a bind group of these bindings; with `keep`, one that later calls share."""
        if not keep:
            return self._queue.bind_group(layout, bound)
        ranges: list[object] = [id(layout)]
        buffers = []
        for binding, part in bound:
            ranges.append((binding, part.offset, part.size))
            buffers.append(id(part.buffer))
        key = tuple(ranges), *buffers
        return self._find(key) or self._keep(key, layout, bound)

    def of_dispatch(self, item: SlotDispatch, buffers: Sequence[wgpu.GPUBuffer]) -> wgpu.GPUBindGroup:
        """Return the bind group of a program's dispatch over the buffers in its slots, which later calls share."""
        key = (item.key, *map(id, buffers))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and not self._dropped:
                self._kept.move_to_end(key)
                return kept[0]
        # Makes a named tuple without a call of Python's.
        new = tuple.__new__
        bound = [
            (number, new(Binding, (buffer, binding.offset, binding.size)))
            for number, binding, buffer in zip(item.numbers, item.bindings, buffers, strict=True)
        ]
        return self._find(key) or self._keep(key, item.dispatch.layout, bound)

    def _find(self, key: tuple[object, ...]) -> wgpu.GPUBindGroup | None:
        """Return the group that is kept under a key; None if there is none."""
        with self._lock:
            if self._dropped:
                self._collect()
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
        self.tidy()
        return kept[0]

    def _keep(self, key: tuple[object, ...], layout: wgpu.GPUBindGroupLayout, bound: Bound) -> wgpu.GPUBindGroup:
        """Make a group, and keep it under a key, which ends with the ids of its buffers, until one is collected."""
        with self._lock:
            group = self._queue.bind_group(layout, bound)
            # First, so that no group is kept of a buffer that is not watched if Ctrl-C comes between.
            keys = self._keys
            for _, part in bound:
                buffer = part.buffer
                number = id(buffer)
                if number not in keys:
                    # The newest reference tells first.
                    tidying = weakref.ref(buffer, partial(_tidy, weakref.ref(self)))
                    self._references[number] = weakref.KeyedRef(buffer, self._dropped.append, number), tidying
                    keys[number] = set()
                keys[number].add(key)
            # The layout stays alive, so that its id stays its own.
            self._kept[key] = (group, layout)
            if len(self._kept) > MAX_BIND_GROUPS:
                self._forget(next(iter(self._kept)))
        if self._dropped:
            self.tidy()
        return group

    def _forget(self, key: tuple[object, ...]) -> None:
        self._kept.pop(key, None)
        for buffer in key[1:]:
            if buffer in self._keys:
                self._keys[buffer].discard(key)

    def _collect(self) -> None:
        """Drop the groups of buffers that were garbage-collected."""
        while self._dropped:
            buffer = self._dropped[0].key
            for key in list(self._keys.get(buffer, ())):
                self._forget(key)
            self._keys.pop(buffer, None)
            self._references.pop(buffer, None)
            # Last, so that Ctrl-C before leaves the rest to the next call.
            self._dropped.popleft()

    def tidy(self) -> None:
        """Drop the groups of buffers that were garbage-collected; called without the lock.

        A finaliser calls this at any point of any thread. If the lock is taken, its holder drops the groups.
        """
        if not self._dropped:
            return
        # Ctrl-C after the lock is taken would leave it locked.
        with defer_interrupts():
            while self._dropped and self._lock.acquire(blocking=False):
                try:
                    self._collect()
                finally:
                    self._lock.release()

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Drop all groups."""
        with self._lock:
            for key in list(self._kept):
                self._forget(key)
        self.tidy()


def _tidy(groups: weakref.ref[BindGroups], _: weakref.ref[wgpu.GPUBuffer]) -> None:
    alive = groups()
    if alive is not None:
        # In a thread that ends with Python, the groups are dropped by a call of another thread.
        with suppress(SystemExit):
            alive.tidy()
