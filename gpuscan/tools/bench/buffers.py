"""GPU buffers of the benchmarks: filled, and read at a few indices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan import Device
from gpuscan.device.backends import webgpu
from gpuscan.device.buffer_pool import ALIGNMENT

if TYPE_CHECKING:
    import wgpu

# Bytes of a word. WebGPU copies whole words.
WORD = 4

# Bytes that one submission uploads. wgpu would stage a larger write whole.
UPLOAD_PIECE = 64 << 20


def place(device: Device, array: np.ndarray[Any, Any] | None, nbytes: int = 0) -> wgpu.GPUBuffer:
    """Return a buffer of the array's bytes, or an empty one of `nbytes`, rounded up to whole vectors."""
    usage = webgpu().BufferUsage
    size = max(ALIGNMENT, -(-(nbytes if array is None else array.nbytes) // ALIGNMENT) * ALIGNMENT)
    buffer = device.wgpu_device.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
    if array is not None:
        _upload(device.wgpu_device, array, buffer)
    return buffer


def _upload(gpu: wgpu.GPUDevice, array: np.ndarray[Any, Any], buffer: wgpu.GPUBuffer) -> None:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.nbytes // WORD * WORD
    for start in range(0, whole, UPLOAD_PIECE):
        gpu.queue.write_buffer(buffer, start, data[start : min(start + UPLOAD_PIECE, whole)])
        gpu.queue.submit([])
    if whole < data.nbytes:
        gpu.queue.write_buffer(buffer, whole, np.pad(data[whole:], (0, WORD - data.nbytes + whole)))


def release(buffers: Iterable[wgpu.GPUBuffer]) -> None:
    """Release the buffers' memory at once."""
    for buffer in buffers:
        buffer.destroy()


def gather(
    device: Device,
    buffer: wgpu.GPUBuffer,
    indices: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    shape: tuple[int, ...] = (),
) -> np.ndarray[Any, Any]:
    """Return the elements of `shape` at the indices, as an array (indices, *shape).

    They are copied together on the GPU and read at once. An element is whole words, or a part of one word.
    """
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    slot = -(-max(size, WORD) // WORD) * WORD
    usage = webgpu().BufferUsage
    together = device.wgpu_device.create_buffer(size=slot * len(indices), usage=usage.COPY_SRC | usage.COPY_DST)
    encoder = device.wgpu_device.create_command_encoder()
    starts = indices.astype(np.int64) * size
    for i, start in enumerate(starts.tolist()):
        encoder.copy_buffer_to_buffer(buffer, start // WORD * WORD, together, i * slot, slot)
    device.wgpu_device.queue.submit([encoder.finish()])
    data = np.frombuffer(device.wgpu_device.queue.read_buffer(together), np.uint8).reshape(len(indices), slot)
    together.destroy()
    columns = (starts % WORD)[:, np.newaxis] + np.arange(size)
    picked = np.take_along_axis(data, columns, axis=1)
    return np.ascontiguousarray(picked).view(dtype).reshape(len(indices), *shape)
