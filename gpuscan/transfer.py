"""Moves arrays between NumPy and the GPU, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import wgpu

    from gpuscan.memory import BufferPool

UPLOAD_PIECE = 64 << 20  # bytes; one submit each: a larger write is staged whole, which is slower
DOWNLOAD_PIECE = 32 << 20


def upload(wgpu_device: wgpu.GPUDevice, array: np.ndarray[Any, Any], buffer: wgpu.GPUBuffer) -> None:
    """Write a contiguous array to the begin of a buffer, padded with zeros to whole words."""
    data = array.reshape(-1).view(np.uint8)
    whole = data.nbytes // 4 * 4
    for start in range(0, whole, UPLOAD_PIECE):
        piece = data[start : min(start + UPLOAD_PIECE, whole)]
        wgpu_device.queue.write_buffer(buffer, start, piece)
        if whole > UPLOAD_PIECE:
            wgpu_device.queue.submit([])
    if whole < data.nbytes:
        tail = np.zeros(4, np.uint8)
        tail[: data.nbytes - whole] = data[whole:]
        wgpu_device.queue.write_buffer(buffer, whole, tail)


class Download:
    """The read-back of several buffers' beginnings, recorded behind the work that fills them.

    Copies to staging buffers are recorded into the caller's encoder as far as one piece each; `finish` maps them and
    fetches what is left, piece by piece.
    """

    def __init__(self, wgpu_device: wgpu.GPUDevice, pool: BufferPool, encoder: wgpu.GPUCommandEncoder) -> None:
        self._device = wgpu_device
        self._pool = pool
        self._encoder = encoder
        self._parts: list[tuple[wgpu.GPUBuffer, wgpu.GPUBuffer, np.ndarray[Any, Any]]] = []

    def add(self, buffer: wgpu.GPUBuffer, into: np.ndarray[Any, Any]) -> None:
        """Read the buffer's beginning into a contiguous array."""
        import wgpu

        data = into.reshape(-1).view(np.uint8)
        size = min(-(-data.nbytes // 4) * 4, DOWNLOAD_PIECE)
        staging = self._pool.take(size, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        self._encoder.copy_buffer_to_buffer(buffer, 0, staging, 0, size)
        self._parts.append((buffer, staging, data))

    def finish(self) -> None:
        """Wait for the GPU and fill the arrays. The encoder must have been submitted."""
        try:
            for buffer, staging, data in self._parts:
                self._fetch(staging, data[:DOWNLOAD_PIECE])
                for start in range(DOWNLOAD_PIECE, data.nbytes, DOWNLOAD_PIECE):
                    piece = data[start : start + DOWNLOAD_PIECE]
                    encoder = self._device.create_command_encoder()
                    encoder.copy_buffer_to_buffer(buffer, start, staging, 0, -(-piece.nbytes // 4) * 4)
                    self._device.queue.submit([encoder.finish()])
                    self._fetch(staging, piece)
        finally:
            for _, staging, _ in self._parts:
                self._pool.give(staging)
            self._parts.clear()

    @staticmethod
    def _fetch(staging: wgpu.GPUBuffer, into: np.ndarray[Any, Any]) -> None:
        import wgpu

        size = -(-into.nbytes // 4) * 4
        staging.map_sync(wgpu.MapMode.READ, 0, size)
        try:
            into[:] = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8, into.nbytes)
        finally:
            staging.unmap()


def padded_bytes(arrays: Sequence[np.ndarray[Any, Any]], alignment: int) -> list[int]:
    """The arrays' sizes, each rounded up to whole units of `alignment` bytes."""
    return [-(-array.nbytes // alignment) * alignment for array in arrays]
