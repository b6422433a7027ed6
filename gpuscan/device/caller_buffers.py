"""Check buffers and encoders that a caller made, before commands that use them are recorded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from gpuscan.device.backends import error_type, webgpu
from gpuscan.device.error_translation import translate_errors

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext

# Parts of the error texts of wgpu-native and Dawn, and what they say about the encoder.
_ENCODER_STATES = {
    "Encoding must not have ended": "is finished",
    "is already finished": "is finished",
    "Encoder is locked": "has an open pass, and cannot be used any more",
}


def check_buffer(wgpu_device: wgpu.GPUDevice, buffer: object, name: str, usages: Sequence[str] = ("STORAGE",)) -> None:
    """Check that `buffer` is a buffer of the device with these usages.

    Args:
        wgpu_device: the device that must own the buffer.
        buffer: what the caller passed.
        name: the caller's name for it, for messages.
        usages: WebGPU's names of the usages. Shaders can bind a buffer with STORAGE.

    Raises:
        TypeError: `buffer` is not a buffer.
        ValueError: it belongs to another device, or a usage is missing.
    """
    if not (hasattr(buffer, "usage") and hasattr(buffer, "size")):
        raise TypeError(
            f"{name} was {type(buffer).__name__}; it must be a wgpu buffer of device.wgpu_device, or a gpuscan.Array"
        )
    _check_device(wgpu_device, buffer, name)
    missing = _missing(buffer, usages)
    if missing:
        raise ValueError(f"{name} was a buffer without the usage {missing}; create it with those as well")


def check_usages(buffer: wgpu.GPUBuffer, usages: Sequence[str]) -> None:
    """Check that the caller's buffer of an array has the usages that the running public call needs.

    Raises:
        ValueError: one is missing; the message names the call.
    """
    missing = _missing(buffer, usages)
    if missing:
        raise ValueError(
            f"{_running_call()} was called with an array in a buffer without the usage {missing}, which the call needs "
            "there. Create the buffer with that usage as well"
        )


def _missing(buffer: wgpu.GPUBuffer, usages: Sequence[str]) -> str:
    """Return the names of the usages that the buffer does not have; empty if it has all."""
    flags, given, missing = webgpu().BufferUsage, buffer.usage, []
    for usage in usages:
        if not given & getattr(flags, usage):
            missing.append(usage)
    return ", ".join(missing)


def _running_call() -> str:
    """Return the name of the function of gpuscan that was called from outside, such as ``gpuscan.scan``."""
    frame, name = sys._getframe(1), ""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gpuscan":
        # Functions that wrap public ones are not named.
        name = name if "<locals>" in frame.f_code.co_qualname else frame.f_code.co_qualname
        frame = frame.f_back  # type: ignore[assignment]
    return f"gpuscan.{name}"


def check_state(device: DeviceContext, buffer: wgpu.GPUBuffer, name: str) -> None:
    """Check that a caller's buffer is neither mapped nor destroyed, before commands that use it are submitted.

    With wgpu-native, a submission that uses such a buffer ends the process, and only the creation of a bind group
    shows that a buffer was destroyed. Dawn reports it at the submission. Buffers without the usage STORAGE, which can
    only be copied, have no such test.

    Raises:
        ValueError: the buffer is mapped or was destroyed.
    """
    if buffer.map_state != "unmapped":
        raise ValueError(f"{name} was passed in the state {buffer.map_state!r}; unmap it before the GPU uses it")
    if buffer.size < 4 or _missing(buffer, ("STORAGE",)):  # Smaller ones have no elements.
        return
    entry = {"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 4}}
    with translate_errors(device):
        device.wgpu_device.create_bind_group(layout=device.lone_layout, entries=[entry])


def check_encoder(wgpu_device: wgpu.GPUDevice, encoder: object) -> None:
    """Check that `encoder` is a command encoder of the device.

    Raises:
        TypeError: it is not a command encoder.
        ValueError: it belongs to another device.
    """
    if not hasattr(encoder, "begin_compute_pass"):
        raise TypeError(
            f"encoder was {type(encoder).__name__}; it must be one of device.wgpu_device.create_command_encoder()"
        )
    _check_device(wgpu_device, encoder, "encoder")


class encoding:  # noqa: N801
    """Raise a clear error if the commands inside the ``with`` do not fit the state of the caller's encoder.

    The state of an encoder cannot be asked for. It shows only in WebGPU's errors.

    Raises:
        ValueError: the encoder is finished or has an open pass. Dawn and wgpu 0.31 report an open pass when the encoder
            is finished.
    """

    __slots__ = ("_device",)

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        self._device = wgpu_device

    def __enter__(self) -> None: ...

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not isinstance(error, error_type(self._device)):
            return
        for words, state in _ENCODER_STATES.items():
            if words in str(error):
                raise ValueError(f"the encoder {state}; record between passes, before it is finished") from error


def _check_device(wgpu_device: wgpu.GPUDevice, thing: object, name: str) -> None:
    if getattr(thing, "_device", wgpu_device) is not wgpu_device:
        raise ValueError(f"{name} is of another device; make it on the plan's or array's own, device.wgpu_device")
