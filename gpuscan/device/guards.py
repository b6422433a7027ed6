"""What can go wrong beneath a call: the device is lost, memory runs out, the process was forked."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from gpuscan.device.backends import error_type, package_of
from gpuscan.errors import DeviceLostError, DeviceMemoryError, GpuscanError

if TYPE_CHECKING:
    import threading

    import wgpu

    from gpuscan.device.buffer_pool import BufferPool
    from gpuscan.device.queue import Queue
    from gpuscan.planning.capabilities import Capabilities

T = TypeVar("T")

_LOST = ("lost", "parent device", "destroyed before mapping")  # how wgpu-native and Dawn put it
_LOST_WHILE_COMPILING = ("device is lost", "device] is lost")  # the same; errors of a compiler quote a user's text
_BUFFER_GONE = ("has been destroyed", "while destroyed")  # the same two, of a buffer
_DESTROYED = "get_token"  # what the package wgpu misses when it maps a buffer of a device that was destroyed


class OpenDevice(Protocol):
    """The parts of a `DeviceContext` that the modules below it rely on."""

    wgpu_device: wgpu.GPUDevice
    capabilities: Capabilities
    process: int
    lost: bool
    queue: Queue
    pool: BufferPool
    lock: threading.RLock

    def memory_cleanup(self) -> None:
        """Give free memory back to the GPU."""


class guarded:  # noqa: N801
    """Run GPU work; what WebGPU raises comes out as gpuscan's own errors. A class, since small scans count its cost.

    Raises:
        DeviceLostError: the GPU went away, or the device was opened by another process.
        DeviceMemoryError: the GPU has no room.
        ValueError: the caller has destroyed a buffer.
    """

    __slots__ = ("_device",)

    def __init__(self, device: OpenDevice) -> None:
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        if os.getpid() != device.process:
            raise forked_error(f"{device.capabilities.summary} was opened", device.process)
        if device.lost:
            raise lost_error(device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, GpuscanError):
            return
        device = self._device
        if isinstance(error, AttributeError) and _DESTROYED in str(error):
            device.lost = True
            raise lost_error(device) from error
        if not isinstance(error, (error_type(device.wgpu_device), RuntimeError)):
            return
        if package_of(device.wgpu_device) == "wgpudawn":
            # Frames of its own, in a cycle with a buffer that was to be written: to collect them ends the process.
            traceback.clear_frames(trace)
        if isinstance(error, MemoryError):
            device.memory_cleanup()
            raise DeviceMemoryError(
                f"{device.capabilities.summary} ran out of memory ({error}); what was free was given back to it. Let "
                "go of arrays, or scan in chunks with gpuscan.scan_chunks"
            ) from error
        if any(words in str(error) for words in _BUFFER_GONE):
            raise ValueError(
                f"a buffer that was destroyed was passed to {device.capabilities.summary}; keep a buffer until nothing "
                "uses the arrays and plans that it was passed to"
            ) from error
        if any(word in str(error).lower() for word in _LOST):
            device.lost = True
            raise lost_error(device) from error


def guarded_steps(device: OpenDevice, steps: Iterator[T]) -> Iterator[T]:
    """The same steps, each of them guarded; what the caller does between them is not."""
    end = object()
    while True:
        with guarded(device):
            step = next(steps, end)
        if step is end:
            return
        yield step  # type: ignore[misc]


def lost_while_compiling(message: str) -> bool:
    """Whether an error of WebGPU is none of the shader that was to be compiled."""
    return any(words in message.lower() for words in _LOST_WHILE_COMPILING)


def forked_error(what: str, process: int) -> DeviceLostError:
    return DeviceLostError(
        f"{what} by process {process}, and this is process {os.getpid()}, forked from it: GPU drivers do not survive "
        'a fork. Start workers by multiprocessing.get_context("spawn"), or use the GPU in the workers only'
    )


def lost_error(device: OpenDevice) -> DeviceLostError:
    return DeviceLostError(
        f"{device.capabilities.summary} was lost (a driver reset, or the GPU was removed); arrays on it are gone. Open "
        "a new gpuscan.Device, or call again without device=: the default device is opened anew"
    )
