"""Submits commands, and holds Ctrl-C back meanwhile."""

from __future__ import annotations

import threading

# The module signal wraps these, and looks for enums among the handlers: 10 us a submission, of the 300 of a short scan.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from signal import SIGINT
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import wgpu

_INTERRUPT = int(SIGINT)


def submit(wgpu_device: wgpu.GPUDevice, commands: wgpu.GPUCommandBuffer) -> None:
    """Submit commands to the device's queue; an interrupt that comes meanwhile is raised once they are submitted.

    Within a submission wgpu-native calls back for buffers of earlier ones that are mapped by now. What Python raises in
    a callback is dropped, so a KeyboardInterrupt there would be lost, and who waits for the buffer would wait for ever.
    """
    queue = wgpu_device.queue
    handler = getsignal(_INTERRUPT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):  # signals reach Python on its main thread only, and where it has a handler of its own
        queue.submit([commands])
        return
    held: list[tuple[Any, ...]] = []
    try:
        signal(_INTERRUPT, lambda *event: held.append(event))
        queue.submit([commands])
    finally:
        signal(_INTERRUPT, handler)
        if held:
            handler(*held[-1])
