"""Hold the GPU buffers of one part in flight: the uploaded arrays, the results, and the staging buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray, Bytes
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.reports import REPORT_BYTES
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import round_up, upload

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext
    from gpuscan.device.queue import Mapping


class PartBuffers:
    """The buffers of one part in flight, taken from the device's pool.

    Arrays go through mapped staging buffers, or through mapped storage buffers if the adapter shares the CPU's memory.

    Args:
        inputs: bytes of each array that is uploaded.
        outputs: bytes of each array that is read back.
        heads_bytes: bytes of the segment bits that are uploaded; 0 without.
    """

    def __init__(self, context: DeviceContext, inputs: Sequence[int], outputs: Sequence[int], heads_bytes: int) -> None:
        flags, size_of, self._context = context.usage, context.pool.size_of, context
        inputs = [round_up(size, ALIGNMENT) for size in inputs]
        outputs = [round_up(size, ALIGNMENT) for size in outputs]
        # Kernels may read what the CPU writes, and write what the CPU reads, without copies from or to staging buffers.
        self._mapped = context.capabilities.mappable_storage
        storage = flags.STORAGE | flags.COPY_DST | flags.COPY_SRC
        read = flags.MAP_READ | flags.COPY_DST
        source_usage = flags.STORAGE | flags.MAP_WRITE if self._mapped else storage
        result_usage = flags.STORAGE | flags.COPY_DST | flags.MAP_READ if self._mapped else storage
        usages_and_sizes = [(source_usage, size_of(size)) for size in inputs]
        usages_and_sizes += [(result_usage, size_of(size)) for size in outputs]
        if heads_bytes:
            usages_and_sizes.append((storage, size_of(heads_bytes)))
        usages_and_sizes.append((read, size_of(REPORT_BYTES)))
        if not self._mapped:
            usages_and_sizes += [(flags.MAP_WRITE | flags.COPY_SRC, size_of(size)) for size in inputs]
            usages_and_sizes += [(read, size_of(size)) for size in outputs]
        self._usages_and_sizes = usages_and_sizes
        self._buffers = context.pool.take_all(usages_and_sizes)
        rest = iter(self._buffers)
        self._sources = [next(rest) for _ in inputs]
        self._results = [next(rest) for _ in outputs]
        self._heads = next(rest) if heads_bytes else None
        # Every run has room for a report, since a later plan may have one where this one has none.
        self._report = next(rest)
        self._uploads = self._sources if self._mapped else [next(rest) for _ in inputs]
        # The buffers through which the outputs are read back.
        self._readbacks = self._results if self._mapped else list(rest)
        # The mappings of the upload buffers; None for a buffer that is not mapped yet.
        self._writable: list[Mapping | None] = [None] * len(self._uploads)
        # The mappings of the staging buffers: the outputs' in order, then the report's.
        self._readable: list[Mapping] = []

    # ----- Upload

    def write(self, field: int, nbytes: int, fill: Callable[[Bytes], None]) -> None:
        """Upload one array, which `fill` writes."""
        mapping = self._writable[field] or self._context.queue.map(self._uploads[field], write=True)
        mapping.sync_wait()
        fill(mapping.view(nbytes))
        mapping.unmap()
        self._writable[field] = None

    def map_for_writing(self) -> None:
        """Ask for the upload buffers to be mapped as soon as the GPU is done with them."""
        self._writable = [self._context.queue.map(buffer, write=True) for buffer in self._uploads]

    def write_heads(self, words: AnyArray) -> Binding:
        """Upload the segment bits."""
        assert self._heads is not None
        upload(self._context.queue, words, self._heads)
        return Binding(self._heads)

    # ----- Record

    def source(self, field: int, nbytes: int) -> Binding:
        """Return the binding of an uploaded array."""
        return Binding(self._sources[field], 0, round_up(nbytes, ALIGNMENT))

    def result(self, field: int, nbytes: int) -> Binding:
        """Return the binding of an array that is read back."""
        return Binding(self._results[field], 0, round_up(nbytes, ALIGNMENT))

    def record_uploads(self, encoder: wgpu.GPUCommandEncoder, sizes: Sequence[int]) -> None:
        """Record the copies from staging to storage."""
        if self._mapped:
            return
        for staging, source, size in zip(self._uploads, self._sources, sizes, strict=True):
            encoder.copy_buffer_to_buffer(staging, 0, source, 0, round_up(size))

    def record_readback(self, encoder: wgpu.GPUCommandEncoder, state: wgpu.GPUBuffer, sizes: Sequence[int]) -> None:
        """Record the copies of the report and of the results to staging."""
        encoder.copy_buffer_to_buffer(state, 0, self._report, 0, REPORT_BYTES)
        if self._mapped:
            return
        for result, staging, size in zip(self._results, self._readbacks, sizes, strict=True):
            encoder.copy_buffer_to_buffer(result, 0, staging, 0, round_up(size))

    # ----- Read back

    def map_for_reading(self, sizes: Sequence[int]) -> None:
        """Ask for the staging buffers to be mapped once the GPU is done."""
        spans = [(buffer, round_up(size)) for buffer, size in zip(self._readbacks, sizes, strict=True)]
        self._readable = [
            self._context.queue.map(buffer, size) for buffer, size in (*spans, (self._report, REPORT_BYTES))
        ]

    def is_ready(self) -> bool:
        """Return True if `wait` would not wait."""
        return all(mapping.is_ready() for mapping in self._readable)

    def wait(self) -> list[int]:
        """Wait for the run; return its report."""
        for mapping in self._readable:
            mapping.sync_wait()
        numbers: list[int] = self._readable[-1].view(REPORT_BYTES).view(np.uint32).tolist()
        return numbers

    def read(self, field: int, nbytes: int) -> Bytes:
        """Return the bytes of a result, as a view that ends with `unmap`."""
        return self._readable[field].view(nbytes)

    def unmap(self) -> None:
        """Unmap the staging buffers, so that the next part can use them."""
        for mapping in self._readable:
            mapping.unmap()
        self._readable = []

    def close(self, *, clean: bool) -> None:
        """Return the buffers to the pool, or discard them after an error, since they may be in any state."""
        if clean:
            for mapping in self._writable:
                if mapping is not None:
                    mapping.sync_wait()
                    mapping.unmap()
        self._context.pool.give_all(self._buffers, self._usages_and_sizes, clean=clean)
        self._buffers = []
