"""Moves arrays between NumPy and the GPU: by one write or map where they are small, by a ring of pieces where not."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpuscan.device.backends import webgpu
from gpuscan.device.native_queue import Bytes
from gpuscan.device.queue import Mapping

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.buffer_pool import BufferPool
    from gpuscan.device.queue import Queue

T = TypeVar("T")

# One thread does not fill the bus; more than eight do not help. Measured on an H100.
_THREADS = min(8, os.cpu_count() or 1)
COPY_SHARE = 2 << 20  # bytes that are worth a thread
STAGING_PIECE = 32 << 20  # bytes of a staging buffer
STAGING_DEPTH = 3  # staging buffers in a ring: one filled, one on the bus, one waiting
SINGLE_WRITE = 1 << 20  # bytes up to which the queue's own staging is the faster way


def padded(nbytes: int, unit: int = 4) -> int:
    """The bytes of so many whole units as hold `nbytes`."""
    return -(-nbytes // unit) * unit


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """The bytes of a contiguous array, as a view."""
    return array.reshape(-1).view(np.uint8)


# ----- Copies by several threads

_threads: ThreadPoolExecutor | None = None
_threads_lock = threading.Lock()


def _copy_threads() -> ThreadPoolExecutor:
    global _threads
    with _threads_lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="gpuscan-copy")
        return _threads


def _forget_threads() -> None:
    """A forked process has none of its parent's threads."""
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def copy(into: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """``into[...] = source`` for arrays of one shape, in shares along the first axis that are copied side by side."""
    count = len(into)
    shares = min(_THREADS, into.nbytes // COPY_SHARE, count)
    if shares < 2:
        np.copyto(into, source, casting="unsafe")
        return
    edges = [count * i // shares for i in range(shares + 1)]
    parts: list[Future[None]] = []
    try:
        for a, b in pairwise(edges):
            parts.append(begun(_copy_threads(), partial(np.copyto, into[a:b], source[a:b], casting="unsafe")))
        for part in parts:
            part.result()
    finally:  # none goes on after an interrupt, for the memory may be unmapped then
        while not all(part.done() for part in parts):
            with suppress(KeyboardInterrupt):
                wait(parts)


def begun(threads: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    """A call that other threads make; this one does where they take no more, since the main thread has ended."""
    try:
        return threads.submit(call)
    except RuntimeError:
        made: Future[T] = Future()
        try:
            made.set_result(call())
        except Exception as error:
            made.set_exception(error)
        return made


# ----- Staging


@contextmanager
def staging_ring(pool: BufferPool, usage: int, size: int, depth: int) -> Iterator[list[wgpu.GPUBuffer]]:
    """Staging buffers for the length of a transfer; given up where it ends in an error, for they may be mapped."""
    buffers: list[wgpu.GPUBuffer] = []
    try:
        while len(buffers) < depth:
            buffers.append(pool.take(size, usage))
        yield buffers
    except BaseException:
        for buffer in buffers:
            pool.discard(buffer)
        raise
    for buffer in buffers:
        pool.give(buffer)


def upload(
    queue: Queue,
    array: np.ndarray[Any, Any],
    buffer: wgpu.GPUBuffer,
    offset: int = 0,
    pool: BufferPool | None = None,
) -> None:
    """Write a contiguous array into a buffer, from a multiple of four bytes on. Whole words are written.

    A large one goes through a ring of mapped staging buffers, where there is a pool to take them from: while one is
    on the bus the next is filled.
    """
    data = bytes_of(array)
    if pool is None or data.nbytes <= SINGLE_WRITE:
        if data.nbytes % 4:
            data = np.pad(data, (0, -data.nbytes % 4))
        if data.nbytes:
            queue.write(buffer, offset, data)
        return
    usage = webgpu().BufferUsage.MAP_WRITE | webgpu().BufferUsage.COPY_SRC
    size = min(STAGING_PIECE, padded(data.nbytes))
    starts = range(0, data.nbytes, size)
    with staging_ring(pool, usage, size, min(STAGING_DEPTH, len(starts))) as ring:
        for number, start in enumerate(starts):
            staging = ring[number % len(ring)]
            piece = data[start : start + size]
            mapping = queue.map(staging, padded(piece.nbytes), write=True)
            mapping.sync_wait()
            copy(mapping.view(piece.nbytes), piece)
            mapping.unmap()
            encoder = queue.encoder()
            encoder.copy_buffer_to_buffer(staging, 0, buffer, offset + start, padded(piece.nbytes))
            queue.submit(encoder)


def download(queue: Queue, pool: BufferPool, buffer: wgpu.GPUBuffer, offset: int, array: np.ndarray[Any, Any]) -> None:
    """Read a stretch of a buffer, from a multiple of four bytes on, into a contiguous array."""
    data = bytes_of(array)
    usage = webgpu().BufferUsage.MAP_READ | webgpu().BufferUsage.COPY_DST
    size = min(STAGING_PIECE, padded(data.nbytes))
    starts = deque(range(0, data.nbytes, size))
    under_way: deque[tuple[wgpu.GPUBuffer, Bytes, Mapping]] = deque()
    with staging_ring(pool, usage, size, min(STAGING_DEPTH, len(starts))) as ring:
        free = deque(ring)
        while starts or under_way:
            while starts and free:
                staging, piece = free.popleft(), data[starts[0] : starts[0] + size]
                encoder = queue.encoder()
                encoder.copy_buffer_to_buffer(buffer, offset + starts.popleft(), staging, 0, padded(piece.nbytes))
                queue.submit(encoder)
                under_way.append((staging, piece, queue.map(staging, padded(piece.nbytes))))
            staging, piece, mapping = under_way.popleft()
            mapping.sync_wait()
            copy(piece, mapping.view(piece.nbytes))
            mapping.unmap()
            free.append(staging)


def read_together(
    queue: Queue, pool: BufferPool, stretches: Sequence[tuple[wgpu.GPUBuffer, int, int]]
) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Return copies of some short stretches of buffers, read by one submission and one wait.

    Args:
        queue: of the buffers' device.
        pool: where a staging buffer is taken from.
        stretches: buffer, first byte (a multiple of 4) and bytes of each.
    """
    usage = webgpu().BufferUsage.MAP_READ | webgpu().BufferUsage.COPY_DST
    # Mapped bytes are viewed from multiples of 8 on.
    places = [0]
    for _, _, nbytes in stretches:
        places.append(places[-1] + padded(nbytes, 8))
    with staging_ring(pool, usage, places[-1], 1) as (staging,):
        encoder = queue.encoder()
        for (buffer, start, nbytes), place in zip(stretches, places, strict=False):
            encoder.copy_buffer_to_buffer(buffer, start, staging, place, padded(nbytes))
        queue.submit(encoder)
        mapping = queue.map(staging, places[-1])
        mapping.sync_wait()
        content = [mapping.view(nbytes, at).copy() for (_, _, nbytes), at in zip(stretches, places, strict=False)]
        mapping.unmap()
    return content
