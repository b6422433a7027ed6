"""Submit work to a device: encoders, submissions, writes and maps.

`open_queue` returns a queue that calls the C library (`gpuscan.device.native_queue`) if it can, else one that uses the
public objects of the WebGPU package. Both have the same methods.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray, Bytes
from gpuscan.device.backends import module_of, package_of, webgpu
from gpuscan.device.deferred_runs import Command, DeferringQueue
from gpuscan.device.interrupts import defer_exit, idle_at_exit
from gpuscan.device.native_queue import NativeMapping, NativeQueue, is_available, missing_internal
from gpuscan.device.steps import Binding, Clear, Copy

if TYPE_CHECKING:
    import wgpu


_log = logging.getLogger("gpuscan")


def open_queue(wgpu_device: wgpu.GPUDevice) -> Queue:
    """Return the fastest queue that works for the device; warn once if that is not wgpu-native's fastest."""
    if is_available(wgpu_device):
        return NativeQueue(wgpu_device)
    if package_of(wgpu_device) == "wgpu" and (missing := missing_internal(wgpu_device)) is not None:
        _warn_once(module_of(wgpu_device).__version__, missing)
    return PublicQueue(wgpu_device)


@cache
def _warn_once(version: str, missing: str) -> None:
    _log.warning(
        "gpuscan submits by the public objects of wgpu %s, so calls on small arrays take longer: its fast "
        "way needs internals that this version does not have (%s). Install a version that gpuscan was tested with",
        *(version, missing),
    )


class PublicMapping:
    """A buffer that is being mapped, or is mapped, by the public objects."""

    def __init__(self, buffer: wgpu.GPUBuffer, size: int | None, write: bool) -> None:
        self._buffer, self._write = buffer, write
        # The package wgpu would submit once more before it maps for reading, in case nothing was submitted; its own
        # `read_buffer` leaves that out by this mode.
        native = type(buffer).__module__.startswith("wgpu.backends.wgpu_native")
        read = "READ_NOSYNC" if native else webgpu().MapMode.READ
        self._promise = buffer.map_async(webgpu().MapMode.WRITE if write else read, 0, size)
        self._written: list[tuple[Bytes, int]] = []

    def is_ready(self) -> bool:
        """Return False: only a wait shows when the buffer is mapped."""
        return False

    def sync_wait(self) -> None:
        """Wait until the buffer is mapped."""
        with defer_exit():
            self._promise.sync_wait()

    def view(self, size: int, offset: int = 0) -> Bytes:
        """Return mapped bytes as a view that ends with `unmap`."""
        padded = -(-size // 4) * 4
        if not self._write:
            return np.frombuffer(self._buffer.read_mapped(offset, padded, copy=False), np.uint8, size)
        if hasattr(self._buffer, "_experimental_get_mapped_range"):
            return np.frombuffer(self._buffer._experimental_get_mapped_range(offset, padded), np.uint8, size)
        data = np.zeros(padded, np.uint8)
        self._written.append((data, offset))
        return data[:size]

    def unmap(self) -> None:
        """Unmap the buffer, once what was written is there."""
        for data, offset in self._written:
            self._buffer.write_mapped(data, offset)
        self._buffer.unmap()


class PublicQueue(DeferringQueue):
    """The queue of a device, by the public objects of the WebGPU package."""

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        super().__init__(wgpu_device)
        idle_at_exit(self)

    def encoder(self) -> wgpu.GPUCommandEncoder:
        """Return a new command encoder."""
        return self._device.create_command_encoder()

    def encoder_over(self, encoder: wgpu.GPUCommandEncoder) -> wgpu.GPUCommandEncoder:
        """Return an encoder that records into a caller's."""
        if self.held:
            self.settle()
        return encoder

    def bind_group(self, layout: wgpu.GPUBindGroupLayout, bound: Iterable[tuple[int, Binding]]) -> wgpu.GPUBindGroup:
        """Return a new bind group of these parts of buffers, by the number of each binding."""
        entries = [{"binding": number, "resource": part.resource()} for number, part in bound]
        return self._device.create_bind_group(layout=layout, entries=entries)

    def _encode(self, commands: Sequence[Command]) -> wgpu.GPUCommandBuffer:
        """Return commands in compute passes. Each one goes on until something is cleared or copied."""
        encoder, compute = self.encoder(), None
        for command in commands:
            if isinstance(command, (Clear, Copy)):
                if compute is not None:
                    compute.end()
                    compute = None
                encode = encoder.clear_buffer if isinstance(command, Clear) else encoder.copy_buffer_to_buffer
                encode(*command)
                continue
            compute = compute or encoder.begin_compute_pass()
            pipeline, group, grid, offset = command
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group, [] if offset is None else [offset])
            if isinstance(grid, Binding):
                compute.dispatch_workgroups_indirect(grid.buffer, grid.offset)
            else:
                compute.dispatch_workgroups(*grid)
        if compute is not None:
            compute.end()
        return encoder.finish()

    def _finish_encoder(self, encoder: wgpu.GPUCommandEncoder) -> wgpu.GPUCommandBuffer:
        """Return the encoder's commands."""
        return encoder.finish()

    def _send(self, commands: wgpu.GPUCommandBuffer) -> None:
        """Submit the commands."""
        self._submitting = True
        try:
            self._device.queue.submit([commands])
        finally:
            self._submitting = False

    def write(self, buffer: wgpu.GPUBuffer, offset: int, data: Bytes) -> None:
        """Write whole words of contiguous bytes to a buffer."""
        self.end_recording()
        # This submits the deferred runs first; see `DeferringQueue`.
        self._device.queue.write_buffer(buffer, offset, data)

    def write_unread(self, buffer: wgpu.GPUBuffer, offset: int, data: AnyArray) -> None:
        """Write whole words to bytes of a buffer that no run has read yet, so that the deferred runs may come later."""
        self._submitting = True
        try:
            self._device.queue.write_buffer(buffer, offset, data)
        finally:
            self._submitting = False

    def map(self, buffer: wgpu.GPUBuffer, size: int | None = None, *, write: bool = False) -> PublicMapping:
        """Ask for a buffer to be mapped once everything submitted so far is done."""
        self.end_recording()
        self.flush()
        return PublicMapping(buffer, size, write)

    def is_soon_idle(self) -> bool:
        """Return False: only a wait shows when everything is done."""
        return False

    def wait_idle(self) -> None:
        """Wait until everything submitted so far is done."""
        usage = webgpu().BufferUsage
        fence = self._device.create_buffer(size=16, usage=usage.MAP_READ | usage.COPY_DST)
        encoder = self.encoder()
        # A buffer that no submission uses could be mapped while the GPU is still at work.
        encoder.clear_buffer(fence)
        self.submit(encoder)
        mapping = self.map(fence, 4)
        mapping.sync_wait()
        mapping.unmap()
        fence.destroy()


Queue = NativeQueue | PublicQueue
Mapping = NativeMapping | PublicMapping
