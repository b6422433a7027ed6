"""Move arrays between NumPy and the GPU: small ones in one step, large ones through a ring of staging buffers."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType, Bytes
from gpuscan.device.backends import IN_BROWSER, webgpu
from gpuscan.device.interrupts import defer_interrupts
from gpuscan.device.queue import Mapping
from gpuscan.device.steps import Copy
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.sizes import concrete

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.buffer_pool import BufferPool
    from gpuscan.device.queue import Queue

T = TypeVar("T")

# Up to this many bytes, an array and the unread reports are read by one submission and one wait. Not tuned.
SMALL_READ_BYTES = 64 << 10
# How many threads share one copy.
_THREADS = min(TRANSFERS.max_copy_threads, os.cpu_count() or 1)


def round_up(nbytes: int, unit: int = 4) -> int:
    """Return `nbytes`, rounded up to a multiple of `unit`."""
    return -(-nbytes // unit) * unit


def bytes_of(array: AnyArray) -> Bytes:
    """Return the bytes of a contiguous array, as a view."""
    return array.reshape(-1).view(np.uint8)


# ----- Copies by several threads

_threads: ThreadPoolExecutor | None = None
_threads_lock = threading.Lock()


def _threads_for(devices: int) -> int:
    """Return the number of threads that all copies of this many devices share."""
    return min(TRANSFERS.copies_at_a_time * TRANSFERS.max_copy_threads * devices, os.cpu_count() or 1)


# How many threads there are for all copies.
_thread_count = _threads_for(1)


def serve_devices(count: int) -> None:
    """Let there be as many threads as that many devices need that copy at the same time.

    Raises:
        NotImplementedError: several devices were passed in a web page.
    """
    global _threads, _thread_count
    if IN_BROWSER and count > 1:
        raise NotImplementedError(
            f"{count} devices were passed, which gpuscan uses by threads, but Python has none in a web page. Pass one"
        )
    wanted = _threads_for(count)
    with _threads_lock:
        if wanted > _thread_count:
            _thread_count = wanted
            if _threads is not None:
                # It finishes the copies that it has.
                _threads.shutdown(wait=False)
                _threads = None


def _copy_threads() -> ThreadPoolExecutor:
    global _threads
    with _threads_lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(_thread_count, thread_name_prefix="gpuscan-copy")
        return _threads


def _forget_threads() -> None:
    """Drop the threads in a forked process, which has none of its parent's."""
    global _threads
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def copy(into: AnyArray, source: AnyArray) -> None:
    """Assign ``into[...] = source`` for arrays of one shape, with several threads if they are large."""
    count = max(into.shape)
    shares = min(_THREADS, max(into.nbytes, source.nbytes) // TRANSFERS.min_copy_share_bytes, count)
    if shares < 2:
        np.copyto(into, source, casting="unsafe")
        return
    longest = into.shape.index(count)
    into, source = np.moveaxis(into, longest, 0), np.moveaxis(source, longest, 0)
    edges = [count * i // shares for i in range(1, shares + 1)]
    parts: list[Future[None]] = []
    try:
        with defer_interrupts():
            for a, b in pairwise(edges):
                parts.append(start_call(_copy_threads(), partial(np.copyto, into[a:b], source[a:b], casting="unsafe")))
            # This thread has a share, too.
            np.copyto(into[: edges[0]], source[: edges[0]], casting="unsafe")
        for part in parts:
            part.result()
    finally:  # After an interrupt the memory may be unmapped next, so wait until all threads are done.
        while not all(part.done() for part in parts):
            with suppress(KeyboardInterrupt):
                wait(parts)


def start_call(threads: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    """Submit a call to the threads; make it here if they take no more, since the main thread has ended.

    Ctrl-C is deferred meanwhile. It would leave a thread that no one stops, or a RuntimeError about the locks of the
    threads. A caller who has to wait for the call defers it until the result is stored.

    Web pages have no threads, so the call is made here.
    """
    if not IN_BROWSER:
        with suppress(RuntimeError), defer_interrupts():
            return threads.submit(call)
    made: Future[T] = Future()
    try:
        made.set_result(call())
    except Exception as error:
        made.set_exception(error)
    return made


# ----- Staging


@contextmanager
def staging_ring(pool: BufferPool, usage: int, size: int, depth: int) -> Iterator[list[wgpu.GPUBuffer]]:
    """Lend staging buffers to a transfer. After an error they are discarded, because they may be mapped."""
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
    array: AnyArray,
    buffer: wgpu.GPUBuffer,
    offset: int = 0,
    pool: BufferPool | None = None,
    dtype: AnyDType | None = None,
) -> None:
    """Write an array into a buffer in C order, padded to whole 32-bit words.

    With a pool, a large array goes through a ring of mapped staging buffers: while one is on the bus, the next is
    filled.

    Args:
        queue: the queue of the device.
        array: the array, at any strides.
        buffer: the buffer on the device.
        offset: the byte of the buffer to begin at, a multiple of 4.
        pool: the pool of the staging buffers.
        dtype: the dtype that the numbers are cast to as they are copied (default: the array's dtype).
    """
    dtype = array.dtype if dtype is None else dtype
    if pool is None or array.size * dtype.itemsize <= TRANSFERS.single_write_bytes:
        data = bytes_of(np.ascontiguousarray(array, dtype))
        if data.nbytes % 4:
            data = np.pad(data, (0, -data.nbytes % 4))
        if data.nbytes:
            queue.write(buffer, offset, data)
        return
    if not array.flags.c_contiguous and dtype.itemsize * array.shape[-1] % 4:
        array = np.ascontiguousarray(array)  # parts would begin within words
    if array.flags.c_contiguous and dtype == array.dtype:
        array, dtype = bytes_of(array), np.dtype(np.uint8)  # bytes are copied faster than numbers of other sizes
    elif array.flags.c_contiguous:
        array = array.reshape(-1)
    usage = webgpu().BufferUsage.MAP_WRITE | webgpu().BufferUsage.COPY_SRC
    size = min(TRANSFERS.staging_bytes, round_up(array.size * dtype.itemsize))
    pieces = list(_cut(array, size // dtype.itemsize))
    with staging_ring(pool, usage, size, min(TRANSFERS.staging_depth, len(pieces))) as ring:
        free = deque((staging, queue.map(staging, write=True)) for staging in ring)
        for number, piece in enumerate(pieces):
            staging, mapping = free.popleft()
            nbytes = piece.size * dtype.itemsize
            mapping.sync_wait()
            copy(mapping.view(nbytes).view(dtype).reshape(piece.shape), piece)
            mapping.unmap()
            encoder = queue.encoder()
            encoder.copy_buffer_to_buffer(staging, 0, buffer, offset, round_up(nbytes))
            queue.submit(encoder)
            offset += nbytes
            if number + len(ring) < len(pieces):
                # It is mapped as soon as this copy is done, and not only after the copies behind it.
                free.append((staging, queue.map(staging, write=True)))


def _cut(array: AnyArray, size: int) -> Iterator[AnyArray]:
    """Yield the parts of an array of up to `size` items that are neighbours in C order, without axes of length 1."""
    array = array.squeeze() if array.size > 1 else array.reshape(-1)
    if array.size <= size:
        yield array
        return
    rows = size // (array.size // len(array))
    for start in range(0, len(array), max(rows, 1)):
        if rows:
            yield array[start : start + rows]
        else:
            yield from _cut(array[start], size)


def download(queue: Queue, pool: BufferPool, buffer: wgpu.GPUBuffer, offset: int, array: AnyArray) -> None:
    """Fill a contiguous array from a buffer, starting at a byte that is a multiple of 4."""
    data = bytes_of(array)
    usage = _read_usage()
    size = min(TRANSFERS.staging_bytes, round_up(data.nbytes))
    starts = deque(range(0, data.nbytes, size))
    queue.end_recording()
    under_way: deque[tuple[wgpu.GPUBuffer, Bytes, Mapping]] = deque()
    with staging_ring(pool, usage, size, min(TRANSFERS.staging_depth, len(starts))) as ring:
        free = deque(ring)
        while starts or under_way:
            while starts and free:
                staging, piece = free.popleft(), data[starts[0] : starts[0] + size]
                # The first copy is submitted together with the deferred runs.
                queue.flush([Copy(buffer, offset + starts.popleft(), staging, 0, round_up(piece.nbytes))])
                under_way.append((staging, piece, queue.map(staging, round_up(piece.nbytes))))
            staging, piece, mapping = under_way.popleft()
            mapping.sync_wait()
            copy(piece, mapping.view(piece.nbytes))
            mapping.unmap()
            free.append(staging)


def read_together(queue: Queue, pool: BufferPool, ranges: Sequence[tuple[wgpu.GPUBuffer, int, int]]) -> list[Bytes]:
    """Return copies of some short ranges of buffers, read by one submission, with the deferred runs, and one wait.

    Args:
        queue: of the buffers' device.
        pool: the pool of the staging buffers.
        ranges: buffer, first byte (a multiple of 4) and bytes of each.
    """
    if queue.recording is not None:
        # The read ends the recording, so sizes are no longer unknown.
        ranges = [(buffer, *concrete((start, nbytes))) for buffer, start, nbytes in ranges]
    # Parts of mapped bytes are viewed from multiples of 8 on.
    size = 0
    for _, _, nbytes in ranges:
        size += -(-nbytes // 8) * 8
    usages_and_sizes = [(_read_usage(), pool.size_of(size))]
    # Makes a named tuple without a call of Python's.
    new = tuple.__new__
    with defer_interrupts():
        (staging,) = taken = pool.take_all(usages_and_sizes)
        copies, at = [], 0
        for buffer, start, nbytes in ranges:
            copies.append(new(Copy, (buffer, start, staging, at, -(-nbytes // 4) * 4)))
            at += -(-nbytes // 8) * 8
        try:
            content = queue.read(staging, size, copies)
        except BaseException:
            pool.discard(staging)
            raise
        pool.give_all(taken, usages_and_sizes, clean=True)
    parts = []
    for copy, (_, _, nbytes) in zip(copies, ranges, strict=True):
        parts.append(content[copy.destination_offset :][:nbytes])
    return parts


@cache
def _read_usage() -> int:
    flags = webgpu().BufferUsage
    return int(flags.MAP_READ | flags.COPY_DST)
