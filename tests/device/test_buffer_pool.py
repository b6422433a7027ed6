"""The buffer pool on a fake device: counting, keeping, giving back, and running out of memory."""

from __future__ import annotations

import gc
import itertools
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import gpuscan as gs
from gpuscan.device import buffer_pool
from gpuscan.device.buffer_pool import MIN_BYTES, BufferPool, MemoryUsage, size_class

USAGE = 0x80


class FakeDevice:
    """Makes buffers until `capacity` bytes are taken."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.limits = {"max-buffer-size": 1 << 30}
        self.capacity = capacity
        self.alive: list[Any] = []
        self.made = 0

    @property
    def taken(self) -> int:
        """Bytes of the buffers that were not destroyed."""
        return sum(buffer.size for buffer in self.alive)

    def create_buffer(self, *, size: int, usage: int) -> Any:
        """Return a buffer, or raise MemoryError as wgpu does."""
        if self.taken + size > self.capacity:
            raise MemoryError("out of memory")
        buffer = SimpleNamespace(size=size, usage=usage)
        buffer.destroy = lambda: self.alive.remove(buffer)
        self.alive.append(buffer)
        self.made += 1
        return buffer


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 257, 5000, 1 << 20, (1 << 20) + 1, 123_456_789])
def test_size_classes_fit_and_waste_little(nbytes: int) -> None:
    size = size_class(nbytes, 1 << 40)
    assert size >= max(nbytes, MIN_BYTES)
    assert size % 16 == 0
    assert size <= max(MIN_BYTES, nbytes * 1.25)
    assert size_class(size, 1 << 40) == size
    assert size_class(nbytes, size - 1) == size - 1 or size == MIN_BYTES


def test_a_buffer_is_used_again() -> None:
    device = FakeDevice()
    pool = BufferPool(device)
    first = pool.take(1000, USAGE)
    assert pool.usage() == MemoryUsage(first.size, first.size, 1)
    pool.give(first)
    assert pool.usage() == MemoryUsage(0, first.size, 0)
    assert pool.take(1010, USAGE) is first
    assert pool.take(1010, USAGE) is not first
    assert pool.take(1000, USAGE | 1).usage == USAGE | 1


def test_what_is_counted_is_what_is_there() -> None:
    device = FakeDevice()
    pool = BufferPool(device, max_free_bytes=1 << 20)
    held: list[Any] = []
    chance = random.Random(0)
    for _ in range(3000):
        if held and chance.random() < 0.5:
            pool.give(held.pop(chance.randrange(len(held))))
        else:
            held.append(pool.take(chance.randrange(1, 300_000), USAGE))
        if len(held) > 20:
            pool.give(held.pop(0))
        usage = pool.usage()
        assert usage == MemoryUsage(sum(b.size for b in held), device.taken, len(held))
        assert usage.bytes_reserved - usage.bytes_in_use <= 1 << 20
    for buffer in held:
        pool.give(buffer)
    pool.cleanup()
    assert pool.usage() == MemoryUsage(0, 0, 0)
    assert device.alive == []


def test_an_allocation_gives_its_buffer_back_when_it_dies() -> None:
    pool = BufferPool(FakeDevice())
    lent = [pool.lend(1000, USAGE) for _ in range(3)]
    ring: list[Any] = [lent.pop()]
    ring.append(ring)  # only the collector of cycles finds this one
    assert pool.usage().allocations == 3
    del lent[0]
    assert pool.usage().allocations == 2
    del ring
    gc.collect()
    assert pool.usage().allocations == 1
    lent.clear()
    assert pool.usage() == MemoryUsage(0, 3 * pool.size_of(1000), 0)


def test_a_buffer_outlives_an_allocation_in_a_cycle() -> None:
    """Assert that the collector of cycles finalises no buffer that goes back to the pool, as WebGPU's would be."""
    finalised: list[Any] = []

    class Buffer(SimpleNamespace):
        def __del__(self) -> None:
            finalised.append(self.size)

    device = FakeDevice()

    def create_buffer(size: int, usage: int) -> Any:
        return Buffer(size=size, usage=usage)

    device.create_buffer = create_buffer  # type: ignore[method-assign]
    pool = BufferPool(device)
    ring: list[Any] = [pool.lend(1000, USAGE)]
    ring.append(ring)
    del ring
    gc.collect()
    assert pool.usage().allocations == 0
    assert finalised == []


def test_out_of_memory_is_tried_once_more_after_a_cleanup() -> None:
    device = FakeDevice(capacity=3 << 20)
    pool = BufferPool(device)
    for buffer in [pool.take(size, USAGE) for size in (1 << 20, 1 << 19)]:
        pool.give(buffer)
    kept = pool.take(5 << 19, USAGE)  # fits once the free buffers are gone
    assert pool.usage() == MemoryUsage(kept.size, kept.size, 1)
    with pytest.raises(gs.DeviceMemoryError, match=r"2097152 bytes.*in use"):
        pool.take(2 << 20, USAGE)
    assert pool.usage() == MemoryUsage(kept.size, kept.size, 1)
    pool.give(kept)
    pool.give(pool.take(2 << 20, USAGE))
    assert isinstance(gs.DeviceMemoryError(), MemoryError)


def test_larger_than_the_largest_buffer() -> None:
    with pytest.raises(gs.DeviceMemoryError, match="largest has 1073741824"):
        BufferPool(FakeDevice()).take((1 << 30) + 1, USAGE)


def test_a_discarded_buffer_is_gone() -> None:
    device = FakeDevice()
    pool = BufferPool(device)
    pool.discard(pool.take(1000, USAGE))
    assert pool.usage() == MemoryUsage(0, 0, 0)
    assert device.alive == []


def test_deferred_runs_are_submitted_before_a_buffer_is_discarded() -> None:
    """Assert it, since a run that was deferred before the buffer was taken again may still use it."""
    device, alive = FakeDevice(), list[int]()
    pool = BufferPool(device, flush=lambda: alive.append(len(device.alive)))
    pool.give_all(pool.take_all([(USAGE, MIN_BYTES)] * 2), [(USAGE, MIN_BYTES)] * 2, clean=False)
    assert (alive[0], device.alive) == (2, [])


def test_an_interrupt_at_any_time_leaves_the_pool_usable() -> None:
    """Raise KeyboardInterrupt before each instruction of the pool in turn."""
    sizes = [MIN_BYTES, 5000, MIN_BYTES, 70_000]
    for stop in itertools.count():
        pool, left, stopped = BufferPool(FakeDevice(), max_free_bytes=8000), itertools.count(), False

        def interrupt(frame: Any, event: str, _: object, left: Any = left, stop: int = stop) -> Any:
            frame.f_trace_opcodes = frame.f_code.co_filename == buffer_pool.__file__
            if event == "opcode" and next(left) == stop:
                raise KeyboardInterrupt
            return interrupt

        for size in sizes:
            pool.give(pool.take(size, USAGE))
        tracer = sys.gettrace()
        sys.settrace(interrupt)
        try:
            for buffer in [pool.take(size, USAGE) for size in sizes]:
                pool.give(buffer)
            pool.cleanup()
        except KeyboardInterrupt:
            stopped = True
        finally:
            sys.settrace(tracer)
        taken = [pool.take(size, USAGE) for size in sizes]
        assert all(buffer.size >= size for buffer, size in zip(taken, sizes, strict=True))
        assert len({id(buffer) for buffer in taken}) == len(sizes)
        for buffer in taken:
            pool.give(buffer)
        pool.cleanup()
        if not stopped:
            break
