"""Buffers and encoders that callers made on a device of gpuscan's, checked before anything is recorded with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpuscan.device.backends import error_type, webgpu
from gpuscan.device.guards import guarded

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext

_ENCODER_STATES = {  # as wgpu-native and Dawn put it
    "Encoding must not have ended": "is finished",
    "is already finished": "is finished",
    "Encoder is locked": "has an open pass, and cannot be used any more",
}


def check_buffer(wgpu_device: wgpu.GPUDevice, buffer: Any, name: str, usages: Sequence[str] = ("STORAGE",)) -> None:
    """See that it is a buffer of the device with these usages; with STORAGE shaders can bind it.

    Raises:
        TypeError: it is no buffer.
        ValueError: it is another device's, or a usage is missing.
    """
    if not (hasattr(buffer, "usage") and hasattr(buffer, "size")):
        raise TypeError(
            f"{name} was {type(buffer).__name__}; it must be a wgpu buffer of device.wgpu_device, or a gpuscan.Array"
        )
    _check_device(wgpu_device, buffer, name)
    flags = webgpu().BufferUsage
    missing = [usage for usage in usages if not buffer.usage & getattr(flags, usage)]
    if missing:
        raise ValueError(f"{name} was a buffer without the usage {', '.join(missing)}; create it with those as well")


def check_state(device: DeviceContext, buffer: wgpu.GPUBuffer, name: str) -> None:
    """See that a caller's buffer is neither mapped nor destroyed, before commands that use it are submitted.

    wgpu-native ends the process in a submission of such. That a buffer was destroyed shows nowhere but where a bind
    group is made of it; Dawn tells at the submission.

    Raises:
        ValueError: it is.
    """
    if buffer.map_state != "unmapped":
        raise ValueError(f"{name} was passed in the state {buffer.map_state!r}; unmap it before the GPU uses it")
    if buffer.size < 4:  # too small to bind, and of an array without elements
        return
    entry = {"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 4}}
    with guarded(device):
        device.wgpu_device.create_bind_group(layout=device.lone_layout, entries=[entry])


def check_encoder(wgpu_device: wgpu.GPUDevice, encoder: Any) -> None:
    """See that it is a command encoder of the device.

    Raises:
        TypeError: it is none.
        ValueError: it is another device's.
    """
    if not hasattr(encoder, "begin_compute_pass"):
        raise TypeError(
            f"encoder was {type(encoder).__name__}; it must be one of device.wgpu_device.create_command_encoder()"
        )
    _check_device(wgpu_device, encoder, "encoder")


@contextmanager
def recording(wgpu_device: wgpu.GPUDevice) -> Iterator[None]:
    """Record into a caller's encoder. What state that is in shows only in what WebGPU makes of the commands.

    Raises:
        ValueError: it is finished, or a pass is open in it; Dawn tells of the pass where the encoder is finished.
    """
    try:
        yield
    except error_type(wgpu_device) as error:
        for words, found in _ENCODER_STATES.items():
            if words in str(error):
                raise ValueError(f"the encoder {found}; record between passes, before it is finished") from error
        raise


def _check_device(wgpu_device: wgpu.GPUDevice, thing: Any, name: str) -> None:
    if getattr(thing, "_device", wgpu_device) is not wgpu_device:
        raise ValueError(f"{name} is of another device; make it on the plan's or array's own, device.wgpu_device")
