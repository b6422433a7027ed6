"""Record, submit and wait by the C functions that the package wgpu wraps in objects.

A short scan would spend most of its time in these objects, and in waking the thread that polls for mapped buffers. Here
commands go straight to the C library, and the thread that waits also polls. `is_available` checks that the installed
package has everything that this module relies on; otherwise `gpuscan.device.queue` uses the public objects.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyArray, Bytes
from gpuscan.device.backends import package_of
from gpuscan.device.deferred_runs import Command, DeferringQueue
from gpuscan.device.interrupts import defer_interrupts, keep_dropped
from gpuscan.device.steps import Binding, Clear, Copy
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    import wgpu

# The C functions that this module calls, with the types of their results and arguments, without "const". A handle such
# as ``struct WGPUDeviceImpl *`` is written ``Device``.
_FUNCTIONS = {
    "wgpuDeviceCreateCommandEncoder": "CommandEncoder (Device, WGPUCommandEncoderDescriptor *)",
    "wgpuDeviceCreateBindGroup": "BindGroup (Device, WGPUBindGroupDescriptor *)",
    "wgpuBindGroupRelease": "void (BindGroup)",
    "wgpuCommandEncoderBeginComputePass": "ComputePassEncoder (CommandEncoder, WGPUComputePassDescriptor *)",
    "wgpuComputePassEncoderSetPipeline": "void (ComputePassEncoder, ComputePipeline)",
    "wgpuComputePassEncoderSetBindGroup": "void (ComputePassEncoder, uint32_t, BindGroup, size_t, uint32_t *)",
    "wgpuComputePassEncoderDispatchWorkgroups": "void (ComputePassEncoder, uint32_t, uint32_t, uint32_t)",
    "wgpuComputePassEncoderDispatchWorkgroupsIndirect": "void (ComputePassEncoder, Buffer, uint64_t)",
    "wgpuComputePassEncoderEnd": "void (ComputePassEncoder)",
    "wgpuComputePassEncoderRelease": "void (ComputePassEncoder)",
    "wgpuCommandEncoderCopyBufferToBuffer": "void (CommandEncoder, Buffer, uint64_t, Buffer, uint64_t, uint64_t)",
    "wgpuCommandEncoderClearBuffer": "void (CommandEncoder, Buffer, uint64_t, uint64_t)",
    "wgpuCommandEncoderResolveQuerySet": "void (CommandEncoder, QuerySet, uint32_t, uint32_t, Buffer, uint64_t)",
    "wgpuCommandEncoderFinish": "CommandBuffer (CommandEncoder, WGPUCommandBufferDescriptor *)",
    "wgpuCommandEncoderRelease": "void (CommandEncoder)",
    "wgpuCommandBufferRelease": "void (CommandBuffer)",
    "wgpuQueueSubmitForIndex": "uint64_t (Queue, size_t, CommandBuffer *)",
    "wgpuQueueWriteBuffer": "void (Queue, Buffer, uint64_t, void *, size_t)",
    "wgpuDevicePoll": "uint32_t (Device, uint32_t, uint64_t *)",
    "wgpuBufferMapAsync": "WGPUFuture (Buffer, uint64_t, size_t, size_t, WGPUBufferMapCallbackInfo)",
    "wgpuBufferGetConstMappedRange": "void * (Buffer, size_t, size_t)",
    "wgpuBufferGetMappedRange": "void * (Buffer, size_t, size_t)",
    "wgpuBufferUnmap": "void (Buffer)",
}
# The structures that it fills or reads: their fields and the types of these.
_STRUCTURES = {
    "WGPUBindGroupEntry": {"binding": "uint32_t", "buffer": "Buffer", "offset": "uint64_t", "size": "uint64_t"},
    "WGPUBindGroupDescriptor": {
        "layout": "BindGroupLayout",
        "entryCount": "size_t",
        "entries": "WGPUBindGroupEntry *",
    },
    "WGPUBufferMapCallbackInfo": {
        "mode": "WGPUCallbackMode",
        "callback": "void (WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
        "userdata1": "void *",
    },
    "WGPUStringView": {"data": "char *", "length": "size_t"},
}
# The same of the structure for timestamps, which has another name in wgpu 0.31.
_TIMES = {"querySet": "QuerySet", "beginningOfPassWriteIndex": "uint32_t", "endOfPassWriteIndex": "uint32_t"}
# The numbers that the library has a name for.
_CONSTANTS = (
    "WGPUMapAsyncStatus_Success",
    "WGPUMapMode_Read",
    "WGPUMapMode_Write",
    "WGPUCallbackMode_AllowProcessEvents",
)
# The size of a binding that ends with its buffer (WGPU_WHOLE_SIZE).
_WHOLE_SIZE = 2**64 - 1
# Seconds between two polls if the library runs a callback on another thread.
_POLL_SECONDS = 20e-6
# `map` with it makes no Python calls.
_size_of = itemgetter("size")


class _Library:
    """The C library, and the callback that it calls when a buffer is mapped."""

    def __init__(self) -> None:
        from wgpu.backends.wgpu_native import ffi, lib
        from wgpu.backends.wgpu_native._api import libf

        # Calls through `checked` raise the errors that WebGPU reports. Calls through `lib` are faster; they are for
        # functions that cannot fail.
        self.ffi, self.lib, self.checked = ffi, lib, _raising_functions(lib, libf)
        # How the maps ended, by the map's number: None, or the error's text.
        self.ended: dict[int, str | None] = {}
        self.numbers = itertools.count(1)

        # The methods of `ffi` are functions of Python around these. Types by their names would be looked up at each
        # call.
        backend = getattr(ffi, "_backend", ffi)
        self.new, self.cast = getattr(backend, "newp", ffi.new), getattr(backend, "cast", ffi.cast)
        self.from_buffer = getattr(backend, "from_buffer", ffi.from_buffer)
        self.pointer, self.index_pointer = ffi.typeof("void *"), ffi.typeof("WGPUSubmissionIndex *")
        self.entries, self.descriptor_pointer = (
            ffi.typeof("WGPUBindGroupEntry[]"),
            ffi.typeof("WGPUBindGroupDescriptor *"),
        )
        self.offsets, self.bytes = ffi.typeof("uint32_t[]"), ffi.typeof("char[]")
        self.times_pointer = _times_type(ffi)
        cast, address = self.cast, ffi.typeof("uintptr_t")

        def on_mapped(status: int, message: Any, number: object, _: object) -> None:
            text = None
            if status != lib.WGPUMapAsyncStatus_Success:
                length = min(int(message.length), 4096) if message.data != ffi.NULL else 0
                text = ffi.unpack(message.data, length).decode(errors="replace") if length else "no reason given"
                text = f"Could not map buffer ({status} : {text})."
            self.ended[int(cast(address, number))] = text

        def on_raised(_: object, error: BaseException, trace: TracebackType) -> None:
            # The handler of a signal has raised. A thread may wait for the map.
            keep_dropped(error)
            given = trace.tb_frame.f_locals
            on_mapped(*[given[name] for name in ("status", "message", "number", "_")])

        declaration = "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)"
        self.on_mapped = ffi.callback(declaration, on_mapped, onerror=on_raised)


class _ErrorSlot:
    """Takes the error that the library reports during a call. It has the attributes of the package's own."""

    name = ""
    type = ""
    message: str | None = None


def _raising_functions(lib: object, wrapped: Any) -> Any:
    """Return the library's functions in forms that raise the errors that WebGPU reports.

    The package has such forms, which take six Python calls each. These take one. They use the same stack of errors,
    and are the package's own if its stack is not where it was.
    """
    try:
        from wgpu.backends.wgpu_native._helpers import ERROR_TYPES

        # The attribute `stack` of each thread.
        threads = wrapped._error_handler._per_thread_data
    except (ImportError, AttributeError):
        return wrapped

    def raising(name: str) -> Callable[..., object]:
        function, in_package = getattr(lib, name), getattr(wrapped, name)

        def call(*arguments: object) -> object:
            try:
                stack = threads.stack
            except AttributeError:  # the first call of the thread
                return in_package(*arguments)
            slot = _ErrorSlot()
            stack.append(slot)
            try:
                result = function(*arguments)
            finally:
                stack.pop()
            if slot.message is not None:
                raise ERROR_TYPES.get(slot.type, ERROR_TYPES[""])(slot.message)
            return result

        return call

    return SimpleNamespace(**{name: raising(name) for name in _FUNCTIONS})


_library: _Library | None = None
_lock = threading.Lock()


def is_available(wgpu_device: wgpu.GPUDevice) -> bool:
    """Return True if the device belongs to wgpu-native, and has all that this module relies on."""
    return package_of(wgpu_device) == "wgpu" and missing_internal(wgpu_device) is None


def missing_internal(wgpu_device: wgpu.GPUDevice) -> str | None:
    """Return what this module relies on and the installed package wgpu does not have; None if it has everything."""
    for thing, name in ((wgpu_device, "_internal"), (wgpu_device, "_poller"), (wgpu_device.queue, "_internal")):
        if not hasattr(thing, name):
            return f"{type(thing).__name__}.{name}"
    try:
        from wgpu.backends.wgpu_native import ffi, lib
        from wgpu.backends.wgpu_native._api import libf  # noqa: F401
    except ImportError as error:
        return str(error)
    try:
        return _missing_in(ffi, lib)
    except Exception as error:  # cffi has one of its own for types that it does not know
        return f"{type(error).__name__}: {error}"


def _missing_in(ffi: Any, lib: object) -> str | None:
    for name in _CONSTANTS:
        if not hasattr(lib, name):
            return name
    for name, signature in _FUNCTIONS.items():
        if not hasattr(lib, name) or _spell(ffi.typeof(getattr(lib, name))) != signature:
            return f"{name}: {signature}"
    for structure, wanted in _STRUCTURES.items():
        if missing := _missing_field(ffi.typeof(structure), wanted):
            return missing
    return _missing_field(_times_type(ffi).item, _TIMES)


def _missing_field(structure: Any, wanted: Mapping[str, str]) -> str | None:
    spelled = {name: _spell(field.type) for name, field in structure.fields}
    return next(
        (
            f"{structure.cname}.{name}: {type_name}"
            for name, type_name in wanted.items()
            if spelled.get(name) != type_name
        ),
        None,
    )


def _spell(c_type: Any) -> str:
    """Return a C type as `_FUNCTIONS` spells it."""
    return re.sub(r"struct WGPU(\w+)Impl \*", r"\1", c_type.cname).replace("(*)", " ")


def _times_type(ffi: Any) -> Any:
    """Return the type of a pointer to the structure for the timestamps of a compute pass."""
    return dict(ffi.typeof("WGPUComputePassDescriptor").fields)["timestampWrites"].type


def _get_library() -> _Library:
    global _library
    with _lock:
        if _library is None:
            _library = _Library()
        return _library


class NativeBindGroup:
    """A bind group of the C library."""

    __slots__ = ("_internal",)

    def __init__(self, handle: object) -> None:
        # The name that wgpu's own bind groups have for it.
        self._internal = handle


class NativePass:
    """A compute pass that records straight into the C library. Errors show when it begins, or when it ends."""

    __slots__ = ("_library", "_pass")

    def __init__(self, library: _Library, handle: object) -> None:
        self._library, self._pass = library, handle

    def set_pipeline(self, pipeline: wgpu.GPUComputePipeline) -> None:
        """Set the pipeline of the dispatches that follow."""
        self._library.lib.wgpuComputePassEncoderSetPipeline(self._pass, pipeline._internal)

    def set_bind_group(self, index: int, group: wgpu.GPUBindGroup, offsets: Sequence[int] = ()) -> None:
        """Set a bind group of the dispatches that follow."""
        library = self._library
        array = library.new(library.offsets, offsets) if offsets else library.ffi.NULL
        library.lib.wgpuComputePassEncoderSetBindGroup(self._pass, index, group._internal, len(offsets), array)

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the pipeline on a grid of workgroups."""
        self._library.lib.wgpuComputePassEncoderDispatchWorkgroups(self._pass, x, y, z)

    def dispatch_workgroups_indirect(self, buffer: wgpu.GPUBuffer, offset: int) -> None:
        """Run the pipeline on a grid of workgroups that the buffer has at a byte."""
        self._library.lib.wgpuComputePassEncoderDispatchWorkgroupsIndirect(self._pass, buffer._internal, offset)

    def end(self) -> None:
        """End the pass."""
        try:
            self._library.checked.wgpuComputePassEncoderEnd(self._pass)
        finally:
            self._library.lib.wgpuComputePassEncoderRelease(self._pass)


class NativeEncoder:
    """A command encoder that records straight into the C library, with the methods of wgpu's that gpuscan calls."""

    __slots__ = ("_library", "handle")

    def __init__(self, library: _Library, handle: object) -> None:
        self._library, self.handle = library, handle

    def begin_compute_pass(self, *, timestamp_writes: dict[str, Any] | None = None) -> NativePass:
        """Open a compute pass."""
        ffi = self._library.ffi
        descriptor = ffi.NULL
        if timestamp_writes is not None:
            times = ffi.new(self._library.times_pointer)
            times.querySet = timestamp_writes["query_set"]._internal
            times.beginningOfPassWriteIndex = timestamp_writes["beginning_of_pass_write_index"]
            times.endOfPassWriteIndex = timestamp_writes["end_of_pass_write_index"]
            descriptor = ffi.new("WGPUComputePassDescriptor *")
            descriptor.timestampWrites = times
        begin = self._library.checked.wgpuCommandEncoderBeginComputePass
        return NativePass(self._library, begin(self.handle, descriptor))

    def copy_buffer_to_buffer(
        self, source: wgpu.GPUBuffer, start: int, destination: wgpu.GPUBuffer, at: int, size: int
    ) -> None:
        """Copy bytes from one buffer to another."""
        self._library.lib.wgpuCommandEncoderCopyBufferToBuffer(
            self.handle, source._internal, start, destination._internal, at, size
        )

    def clear_buffer(self, buffer: wgpu.GPUBuffer, offset: int = 0, size: int | None = None) -> None:
        """Set bytes of a buffer to zero."""
        whole = buffer.size - offset if size is None else size
        self._library.lib.wgpuCommandEncoderClearBuffer(self.handle, buffer._internal, offset, whole)

    def resolve_query_set(
        self, queries: wgpu.GPUQuerySet, first: int, count: int, destination: wgpu.GPUBuffer, offset: int
    ) -> None:
        """Write the results of queries to a buffer."""
        self._library.lib.wgpuCommandEncoderResolveQuerySet(
            self.handle, queries._internal, first, count, destination._internal, offset
        )


class NativeMapping:
    """A buffer that is being mapped, or is mapped."""

    __slots__ = ("_buffer", "_index", "_library", "_number", "_queue", "_write")

    def __init__(self, queue: NativeQueue, buffer: wgpu.GPUBuffer, size: int, write: bool) -> None:
        self._queue, self._buffer, self._write = queue, buffer, write
        # The submission after which the buffer can be mapped.
        self._index = queue.last
        self._library = queue.library
        with defer_interrupts():
            self._number = queue.start_map(buffer, size, write)

    def is_ready(self) -> bool:
        """Return True if the buffer is mapped by now, or cannot be; polls once."""
        if self._number not in self._library.ended:
            with defer_interrupts():
                self._queue.poll(0, self._library.ffi.NULL)
        return self._number in self._library.ended

    def sync_wait(self) -> None:
        """Wait until the buffer is mapped; polls on this thread.

        Raises:
            RuntimeError: it cannot be mapped, for example because the device is lost.
        """
        if self._number not in self._library.ended:
            with defer_interrupts():
                self._queue.wait_for_map(self._number, self._index)
        error = self._library.ended[self._number]
        if error is not None:
            raise RuntimeError(error)

    def view(self, size: int, offset: int = 0) -> Bytes:
        """Return mapped bytes as a view that ends with `unmap`. Offsets are multiples of 8."""
        return self._queue.view(self._buffer, size, offset, self._write)

    def unmap(self) -> None:
        """Unmap the buffer."""
        self._library.ended.pop(self._number, None)
        self._library.lib.wgpuBufferUnmap(self._buffer._internal)


class NativeQueue(DeferringQueue):
    """The queue of a device, by the C library."""

    def __init__(self, wgpu_device: wgpu.GPUDevice) -> None:
        super().__init__(wgpu_device)
        self.library = _get_library()
        # The number of the last submission; None before the first.
        self.last: int | None = None
        # C structures that are filled again and again, with the lock held.
        ffi, lib = self.library.ffi, self.library.lib
        self.map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self.map_info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self.map_info.callback = self.library.on_mapped
        self._commands, self._offsets = ffi.new("WGPUCommandBuffer[1]"), ffi.new("uint32_t *")
        self._internal = wgpu_device.queue._internal
        # A software adapter computes on the cores that would spin.
        on_cpu = wgpu_device.adapter_info["adapter_type"] == "CPU"
        self.spin_seconds = 0.0 if on_cpu else TRANSFERS.spin_seconds

    def encoder(self) -> NativeEncoder:
        """Return a new command encoder."""
        library = self.library
        handle = library.checked.wgpuDeviceCreateCommandEncoder(self._device._internal, library.ffi.NULL)
        # Released in C: Ctrl-C that arrives in a `__del__` is lost.
        return NativeEncoder(library, library.ffi.gc(handle, library.lib.wgpuCommandEncoderRelease))

    def encoder_over(self, encoder: wgpu.GPUCommandEncoder) -> NativeEncoder:
        """Return an encoder that records into a caller's."""
        if self.held:
            self.settle()
        return NativeEncoder(self.library, encoder._internal)

    def bind_group(self, layout: wgpu.GPUBindGroupLayout, bound: Iterable[tuple[int, Binding]]) -> NativeBindGroup:
        """Return a new bind group of these parts of buffers, by the number of each binding.

        Raises:
            RuntimeError: a part is empty. wgpu-native would end the process.
        """
        library = self.library
        ffi = library.ffi
        given = [
            {
                "binding": number,
                "buffer": part.buffer._internal,
                "offset": part.offset,
                "size": _WHOLE_SIZE if part.size is None else part.size,
            }
            for number, part in bound
        ]
        if 0 in map(_size_of, given):
            raise RuntimeError("a stage was to be run on an array without elements; this is a fault of gpuscan")
        entries, descriptor = library.new(library.entries, given), library.new(library.descriptor_pointer)
        descriptor.layout, descriptor.entryCount, descriptor.entries = layout._internal, len(given), entries
        handle = library.checked.wgpuDeviceCreateBindGroup(self._device._internal, descriptor)
        # Released in C: Ctrl-C that arrives in a `__del__` is lost.
        return NativeBindGroup(ffi.gc(handle, library.lib.wgpuBindGroupRelease))

    def _encode(self, commands: Sequence[Command]) -> object:
        """Return commands in compute passes. Each one goes on until something is cleared or copied."""
        library = self.library
        lib, null = library.lib, library.ffi.NULL
        offsets = self._offsets
        handle: object = None
        current: object = None
        encoder = library.checked.wgpuDeviceCreateCommandEncoder(self._device._internal, null)
        try:
            for command in commands:
                if isinstance(command, (Clear, Copy)):
                    if handle is not None:
                        lib.wgpuComputePassEncoderEnd(handle)
                        lib.wgpuComputePassEncoderRelease(handle)
                        handle = current = None
                    if isinstance(command, Clear):
                        buffer, start, size = command
                        lib.wgpuCommandEncoderClearBuffer(encoder, buffer._internal, start, size)
                    else:
                        source, start, target, at, size = command
                        lib.wgpuCommandEncoderCopyBufferToBuffer(
                            encoder, source._internal, start, target._internal, at, size
                        )
                    continue
                if handle is None:
                    handle = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
                pipeline, group, grid, offset = command
                if pipeline is not current:
                    current = pipeline
                    lib.wgpuComputePassEncoderSetPipeline(handle, pipeline._internal)
                offsets[0] = offset or 0
                lib.wgpuComputePassEncoderSetBindGroup(handle, 0, group._internal, offset is not None, offsets)
                if isinstance(grid, Binding):
                    lib.wgpuComputePassEncoderDispatchWorkgroupsIndirect(handle, grid.buffer._internal, grid.offset)
                else:
                    lib.wgpuComputePassEncoderDispatchWorkgroups(handle, *grid)
            if handle is not None:
                lib.wgpuComputePassEncoderEnd(handle)
                lib.wgpuComputePassEncoderRelease(handle)
            return library.checked.wgpuCommandEncoderFinish(encoder, null)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)

    def _finish_encoder(self, encoder: NativeEncoder) -> object:
        """Return the encoder's commands."""
        return self.library.checked.wgpuCommandEncoderFinish(encoder.handle, self.library.ffi.NULL)

    def _send(self, commands: object) -> None:
        """Submit the commands."""
        library = self.library
        try:
            if getattr(self._device, "_poller", self) is None:
                self.check_alive()
            self._commands[0] = commands
            self.last = library.checked.wgpuQueueSubmitForIndex(self._internal, 1, self._commands)
        finally:
            library.lib.wgpuCommandBufferRelease(commands)

    def write(self, buffer: wgpu.GPUBuffer, offset: int, data: Bytes) -> None:
        """Write whole words of contiguous bytes to a buffer."""
        self.end_recording()
        self.flush()
        self.write_unread(buffer, offset, data)

    def write_unread(self, buffer: wgpu.GPUBuffer, offset: int, data: AnyArray) -> None:
        """Write whole words to bytes of a buffer that no run has read yet, so that the deferred runs may come later."""
        library = self.library
        content = library.from_buffer(library.bytes, data)
        library.checked.wgpuQueueWriteBuffer(self._internal, buffer._internal, offset, content, data.nbytes)

    def map(self, buffer: wgpu.GPUBuffer, size: int | None = None, *, write: bool = False) -> NativeMapping:
        """Ask for a buffer to be mapped once everything submitted so far is done."""
        self.end_recording()
        self.flush()
        length = buffer.size if size is None else size
        return NativeMapping(self, buffer, length, write)

    def read(self, staging: wgpu.GPUBuffer, size: int, copies: Sequence[Copy]) -> Bytes:
        """Return the first bytes of a buffer as copies leave them, as `DeferringQueue.read` does."""
        if self.recording is not None:
            self.end_recording()
        self.flush(copies)
        number, library = self.start_map(staging, size, write=False), self.library
        self.wait_for_map(number, self.last)
        error = library.ended.pop(number)
        if error is not None:
            raise RuntimeError(error)
        content = self.view(staging, size).copy()
        library.lib.wgpuBufferUnmap(staging._internal)
        return content

    # ----- Maps. Ctrl-C is deferred meanwhile.

    def start_map(self, buffer: wgpu.GPUBuffer, size: int, write: bool) -> int:
        """Ask for a buffer to be mapped, and return the number of the map."""
        library = self.library
        number = next(library.numbers)
        mode = library.lib.WGPUMapMode_Write if write else library.lib.WGPUMapMode_Read
        with self.lock:
            self.map_info.userdata1 = library.cast(library.pointer, number)
            library.checked.wgpuBufferMapAsync(buffer._internal, mode, 0, size, self.map_info[0])
        return number

    def wait_for_map(self, number: int, submission: int | None) -> None:
        """Wait until a buffer is mapped, or cannot be; poll on this thread.

        Args:
            number: the number of the map.
            submission: the submission after which the buffer can be mapped; None for all.
        """
        library = self.library
        ended, index = library.ended, library.ffi.NULL
        # Where no time is spent on it, the wait below is enough.
        for _ in self.spins() if self.spin_seconds else ():
            if number in ended:
                break
        if submission is not None:
            index = library.new(library.index_pointer, submission)
        while number not in ended:
            library.checked.wgpuDevicePoll(self._device._internal, 1, index)
            if number not in ended:
                time.sleep(_POLL_SECONDS)

    def view(self, buffer: wgpu.GPUBuffer, size: int, offset: int = 0, write: bool = False) -> Bytes:
        """Return bytes of a mapped buffer as a view that ends when it is unmapped. Offsets are multiples of 8."""
        if getattr(self._device, "_poller", self) is None:
            self.check_alive()
        library = self.library
        padded = -(-size // 4) * 4
        range_of = library.lib.wgpuBufferGetMappedRange if write else library.lib.wgpuBufferGetConstMappedRange
        start = range_of(buffer._internal, offset, padded)
        if start == library.ffi.NULL:
            raise RuntimeError(f"Could not map buffer (bytes {offset} to {offset + padded} of {buffer.size}).")
        return np.frombuffer(library.ffi.buffer(start, size), np.uint8)

    def wait_idle(self) -> None:
        """Wait until everything submitted so far is done."""
        if not self.is_soon_idle():
            with defer_interrupts():
                self.poll(1, self.library.ffi.NULL)

    def is_soon_idle(self) -> bool:
        """Return True if everything submitted so far is done within the time that a wait spins."""
        self.flush()
        with defer_interrupts():
            return any(self.spins())

    # ----- Polls. Ctrl-C is deferred meanwhile.

    def poll(self, wait: int, index: object) -> bool:
        """Let the library call back for mapped buffers; return True if the GPU has nothing to do.

        Args:
            wait: 1 to wait first until a submission is done.
            index: that submission; NULL for all.
        """
        # The library returns a bool of one byte; the package's header calls it a word, with junk above that byte.
        return bool(self.library.checked.wgpuDevicePoll(self._device._internal, wait, index) & 0xFF)

    def spins(self) -> Iterator[bool]:
        """Poll without waiting, once or again and again for a short time, and yield what `poll` returns.

        A thread that waits is put to sleep, and to wake it takes longer than a short scan. A buffer that no submission
        uses any more is mapped by the first poll, while later submissions are at work.
        """
        until = time.perf_counter() + self.spin_seconds
        while True:
            yield self.poll(0, self.library.ffi.NULL)
            if time.perf_counter() >= until:
                return
