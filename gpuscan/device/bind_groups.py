"""Parts of buffers as shaders see them, and the bind groups that are made of them."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import wgpu

BIND_GROUPS_KEPT = 512


class Binding(NamedTuple):
    """A part of a buffer, as a shader sees it.

    Attributes:
        buffer, offset, size: the part, in bytes.
    """

    buffer: wgpu.GPUBuffer
    offset: int = 0
    size: int | None = None

    def resource(self) -> dict[str, object]:
        entry: dict[str, object] = {"buffer": self.buffer, "offset": self.offset}
        if self.size is not None:
            entry["size"] = self.size
        return entry


class BindGroups:
    """Bind groups, kept for later calls while their buffers live.

    Making one costs more than a dispatch, and the more are made, the slower an H100 gets: 9.2 us for 2^16 elements at
    first, 12.6 us after some ten thousand.

    A group keeps its buffers' memory, so it goes when the first of them is let go of, whoever it belongs to.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], tuple[Any, ...]] = OrderedDict()
        self._keys: dict[int, set[tuple[Any, ...]]] = {}  # of the groups that a buffer is in, by the buffer's id
        self._dropped: deque[int] = deque()  # ids of buffers that have died, whose groups are still kept

    def group(
        self, layout: wgpu.GPUBindGroupLayout, bound: Sequence[tuple[int, Binding]], keep: bool
    ) -> wgpu.GPUBindGroup:
        """The group of these bindings; kept, if asked for."""
        if not keep:
            return self._make(layout, bound)
        key = (id(layout), *[(binding, id(part.buffer), part.offset, part.size) for binding, part in bound])
        with self._lock:
            self._collect()
            found = self._kept.get(key)
            if found is None:
                found = (self._make(layout, bound), layout)
                self._kept[key] = found
                for _, part in bound:
                    self._watch(part.buffer).add(key)
                if len(self._kept) > BIND_GROUPS_KEPT:
                    self._forget(next(iter(self._kept)))
            else:
                self._kept.move_to_end(key)
        self._tidy()
        return found[0]

    def _watch(self, buffer: wgpu.GPUBuffer) -> set[tuple[Any, ...]]:
        """The keys of the groups that the buffer is in; when it dies they go."""
        if id(buffer) not in self._keys:
            self._keys[id(buffer)] = set()
            weakref.finalize(buffer, _drop, weakref.ref(self), id(buffer)).atexit = False
        return self._keys[id(buffer)]

    def _forget(self, key: tuple[Any, ...]) -> None:
        self._kept.pop(key, None)
        for _, buffer, _, _ in key[1:]:
            self._keys[buffer].discard(key)

    def _collect(self) -> None:
        """Let go of the groups of buffers that have died."""
        while self._dropped:
            buffer = self._dropped.popleft()
            for key in list(self._keys[buffer]):
                self._forget(key)
            del self._keys[buffer]

    def drop(self, buffer: int) -> None:
        """The buffer of this id has died. Whoever is at work here, this thread or another, collects it then."""
        self._dropped.append(buffer)
        self._tidy()

    def _tidy(self) -> None:
        """Collect what has died while nobody could; called without the lock."""
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _make(self, layout: wgpu.GPUBindGroupLayout, bound: Sequence[tuple[int, Binding]]) -> wgpu.GPUBindGroup:
        entries = [{"binding": binding, "resource": part.resource()} for binding, part in bound]
        return self._device.create_bind_group(layout=layout, entries=entries)

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        with self._lock:
            for key in list(self._kept):
                self._forget(key)
        self._tidy()


def _drop(groups: weakref.ref[BindGroups], buffer: int) -> None:
    alive = groups()
    if alive is not None:
        alive.drop(buffer)
