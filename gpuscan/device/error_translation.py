"""Turn the errors of WebGPU into gpuscan's own: a lost device, memory that ran out, a forked process."""

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

# Parts of the texts by which wgpu-native and Dawn report a lost device, and the package wgpu one that was destroyed.
_LOST = ("lost", "parent device", "destroyed before mapping", "cannot use pollthread")
# The same in an error of the shader compiler. They are longer, since such errors quote the text of a user's shader.
_LOST_WHILE_COMPILING = ("device is lost", "device] is lost")
# Parts of the texts by which wgpu-native and Dawn report a buffer that was destroyed.
_BUFFER_GONE = ("has been destroyed", "while destroyed")
# The attribute that the package wgpu does not find when it maps a buffer of a device that was destroyed.
_DESTROYED = "get_token"

# This process. To ask the system for it at each call would cost a short scan time.
_process = os.getpid()


def _note_fork() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class ContextLike(Protocol):
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

    def note_timeout(self, strategy: str) -> None:
        """Note that a run timed out."""


class translate_errors:  # noqa: N801
    """Turn the errors of WebGPU inside the ``with`` into gpuscan's own.

    It is a class because a generator would cost a small scan more time.

    Raises:
        DeviceLostError: the GPU was lost, or another process opened the device.
        DeviceMemoryError: the GPU ran out of memory.
        ValueError: the caller destroyed a buffer.
    """

    __slots__ = ("_device",)

    def __init__(self, device: ContextLike) -> None:
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        if _process != device.process:
            raise make_fork_error(f"{device.capabilities.summary} was opened", device.process)
        if device.lost:
            raise lost_error(device)

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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
            # The error's frames form a cycle with a buffer that is being written. To garbage-collect such a cycle ends
            # the process, so it is broken here.
            traceback.clear_frames(trace)
        if isinstance(error, MemoryError):
            device.memory_cleanup()
            raise DeviceMemoryError(
                f"{device.capabilities.summary} ran out of memory ({error}), also after gpuscan gave its free buffers "
                "back. Delete arrays, or scan in chunks with gpuscan.scan_chunks"
            ) from error
        if any(words in str(error) for words in _BUFFER_GONE):
            raise ValueError(
                f"a buffer that was destroyed was passed to {device.capabilities.summary}; keep a buffer until nothing "
                "uses the arrays and plans that it was passed to"
            ) from error
        if any(word in str(error).lower() for word in _LOST):
            device.lost = True
            raise lost_error(device) from error


def translate_errors_in_steps(device: ContextLike, steps: Iterator[T]) -> Iterator[T]:
    """Yield the same steps, and translate the errors of each. Errors of the caller's code between them stay."""
    end = object()
    while True:
        with translate_errors(device):
            step = next(steps, end)
        if step is end:
            return
        yield step  # type: ignore[misc]


def lost_while_compiling(message: str) -> bool:
    """Return True if the compiler failed because the device is lost, not because of the shader."""
    return any(words in message.lower() for words in _LOST_WHILE_COMPILING)


def make_fork_error(what: str, process: int) -> DeviceLostError:
    """Return the error for a process that was forked from one that uses the GPU."""
    return DeviceLostError(
        f"{what} by process {process}, and this is process {os.getpid()}, forked from it: GPU drivers do not survive "
        'a fork. Start workers by multiprocessing.get_context("spawn"), or use the GPU in the workers only'
    )


def lost_error(device: ContextLike) -> DeviceLostError:
    """Return the error for a call on a lost device."""
    return DeviceLostError(
        f"{device.capabilities.summary} was lost (the driver was reset, the GPU was removed, or the device was "
        "destroyed); arrays on it are gone. Open a new gpuscan.Device, or call again without device=, which opens the "
        "default device again"
    )
