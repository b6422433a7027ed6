"""An adapter opened for scans: the wgpu device, its memory, its compiled pipelines and its unread reports."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import Bytes
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.codegen.switches import SWITCH_BINDING, with_switch
from gpuscan.device import tile_cache
from gpuscan.device.adapter_requirements import (
    FLOAT64_FEATURES,
    check_given_device,
    check_limits,
    choose_features,
    choose_limits,
    limits_within,
)
from gpuscan.device.adapters import choose_adapter, fresh
from gpuscan.device.backends import error_type, is_gpu_device, webgpu
from gpuscan.device.bind_groups import BindGroups
from gpuscan.device.buffer_pool import Allocation, BufferPool, Memory, MemoryUsage, SizedAllocation
from gpuscan.device.capability_probe import probe
from gpuscan.device.error_translation import lost_while_compiling, translate_errors
from gpuscan.device.interrupts import defer_exit, defer_interrupts
from gpuscan.device.profiles import Profiles
from gpuscan.device.program import Recording, encode
from gpuscan.device.queue import open_queue
from gpuscan.device.reports import (
    MAX_PENDING_RUNS,
    Run,
    RunLog,
    SortRun,
    ValidationFlag,
)
from gpuscan.device.steps import Binding, Clear, Dispatch, Step
from gpuscan.device.tile_state import RunBuffers, RunDescriptor, TileState
from gpuscan.device.timeouts import TIMEOUT_WINDOW, TIMEOUTS_TO_PAUSE
from gpuscan.device.transfer import read_together, upload
from gpuscan.device.webgpu_log import libraries_quiet
from gpuscan.errors import AdapterNotFoundError, StrategyError, UnsupportedDtypeError
from gpuscan.operators.parameters import Expression
from gpuscan.operators.user_wgsl import user_error
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.strategies import (
    STRATEGY_KEY,
    STRATEGY_VARIABLE,
    check_strategy,
    choose_sort_strategy,
    choose_strategy,
    environment,
    may_time_out,
    strategy_asked_for,
    unsafe_reason,
)
from gpuscan.planning.workgroup_memory import check_workgroup_memory
from gpuscan.recent_values import RecentValues
from gpuscan.sizes import Size, apply, concrete
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu

    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.kernel import Kernel
    from gpuscan.planning.tuned_tiles import Tuned

# Seconds from which on a compilation is logged: a caller who waits longer wants to know what for.
SLOW_COMPILE_SECONDS = 5.0
# Characters after which the reason why an adapter cannot be opened is cut off.
MAX_REASON = 200
# How many programs a device keeps.
_MAX_PROGRAMS = 1024
# How many compiled scan kernels a device keeps.
_MAX_PIPELINES = 512
# How many uniform buffers a device keeps for later stages, and the bytes of the largest.
_MAX_UNIFORMS = 256
_MAX_UNIFORM_BYTES = 256

# The declaration of a binding: its number, and the address space with the access.
_DECLARATION = re.compile(r"@group\(0\) @binding\((\d+)\) var<([a-z, _]+)>")

_log = logging.getLogger("gpuscan")

Pipeline = tuple["wgpu.GPUComputePipeline", "wgpu.GPUBindGroupLayout"]


def strategy_key(strategy: str) -> tuple[str, object]:
    """Return all of a call's request for a strategy, as a part of a cache key: ``"auto"`` follows the environment."""
    return strategy, environment.get(STRATEGY_KEY) if strategy == "auto" else None


def _entries_of(code: str) -> list[dict[str, object]]:
    """Return the layout entries of a shader's bindings. Uniform buffers but the switch have a dynamic offset."""
    types = {"storage": "read-only-storage", "storage, read": "read-only-storage", "storage, read_write": "storage"}
    entries = []
    for number, space in _DECLARATION.findall(code):
        uniform = {"type": "uniform", "has_dynamic_offset": int(number) != SWITCH_BINDING}
        buffer = uniform if space == "uniform" else {"type": types[space]}
        entries.append(_entry(int(number), buffer))
    return entries


def _entry(binding: int, buffer: Mapping[str, object]) -> dict[str, object]:
    return {"binding": binding, "visibility": webgpu().ShaderStage.COMPUTE, "buffer": buffer}


def _open_device(adapter: wgpu.GPUAdapter, limits: Mapping[str, int]) -> wgpu.GPUDevice:
    """Return a new device of the adapter.

    Raises:
        AdapterNotFoundError: the driver lists the adapter, but cannot open it.
    """
    try:
        return fresh(adapter).request_device_sync(required_features=choose_features(adapter), required_limits=limits)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:MAX_REASON]
        raise AdapterNotFoundError(
            f"the adapter {adapter.summary} was to be opened, but its driver cannot do it ({reason}). Update the "
            'driver, name another adapter, or ask for device="numpy"'
        ) from error


class DeviceContext:
    """Everything that gpuscan keeps for one opened adapter.

    The public `gpuscan.Device` is a facade over this class.

    Attributes:
        adapter: the wgpu adapter.
        wgpu_device: the wgpu device, which gpuscan or the caller has made.
        capabilities: the findings of the probe; replaced when a strategy times out, and when one is taken back.
        unsafe: True if calls may ask for strategies that the probe found unsafe.
        tuned: tile shapes that `gpuscan tune` found for this adapter.
        process: the process that opened the device.
        lost: True once the GPU went away.
        errors: turns the errors of WebGPU inside a ``with`` into gpuscan's own (`translate_errors`).
        lock: held while a run is encoded and submitted, since runs share the tile state.
        run_log: unread reports, and what reports have shown.
        wrong_floats: the steps on float32 with other bits than IEEE 754's, as messages name them; "" if there are none,
            and None before the first call that needs to know (`gpuscan.engine.preparation.check_fixed_floats`).
        programs: for each call key, a tuple of the program and what its caller also needs; or an object that says
            which of several programs a call needs. All have `owners`, the memory of their constants.
    """

    def __init__(
        self, adapter: object = None, *, unsafe: bool = False, required_limits: Mapping[str, int] | None = None
    ) -> None:
        given: wgpu.GPUDevice | None = adapter if is_gpu_device(adapter) else None
        self.adapter: wgpu.GPUAdapter = choose_adapter(adapter if given is None else given.adapter)
        self.unsafe = unsafe
        if given is not None and required_limits is not None:
            raise ValueError(
                "required_limits was passed with a wgpu device, which has the limits that it was made with. Pass them "
                "to request_device_sync, where the device is made, or pass an adapter"
            )
        required = check_limits(self.adapter, {} if required_limits is None else required_limits)
        limits = limits_within(choose_limits(self.adapter) | required)
        with libraries_quiet(), defer_exit():
            self.wgpu_device: wgpu.GPUDevice = _open_device(self.adapter, limits) if given is None else given
            check_given_device(self.wgpu_device)
            self.queue = open_queue(self.wgpu_device)
            self.capabilities: Capabilities = probe(self.adapter, self.wgpu_device)
        capabilities = self.capabilities
        driver = capabilities.driver or "unknown driver"
        _log.info("opened %s; %s; %s", capabilities.summary, driver, capabilities.implementation)
        self.tuned: Tuned = tile_cache.load(self.capabilities)
        self.process = os.getpid()
        self.usage = webgpu().BufferUsage
        self.lost = False
        self.lock = threading.RLock()
        self.tile_state = TileState(self.wgpu_device, self.queue.write_unread)
        self.bind_groups = BindGroups(self.queue)
        adapter_type = self.capabilities.adapter_type
        max_free_bytes = heuristics_for(adapter_type).max_free_bytes
        large = adapter_type == "DiscreteGPU"
        self.pool = BufferPool(self.wgpu_device, max_free_bytes, keeps_as_used=large, flush=self.queue.flush)
        self.errors = translate_errors(self)
        self.profiles = Profiles(self)
        self.run_log = RunLog()
        self.wrong_floats: str | None = None
        self.programs: RecentValues[Hashable, Any] = RecentValues(_MAX_PROGRAMS)
        # True while gpuscan records a call for arrays of any sizes.
        self.has_sizes = False
        self._pipelines: RecentValues[tuple[Kernel, bool], Pipeline] = RecentValues(_MAX_PIPELINES)
        # The same ones by their text: kernels of different scans can have the same.
        self._by_text: RecentValues[bytes, Pipeline] = RecentValues(_MAX_PIPELINES)
        self._stages: RecentValues[tuple[object, ...], Pipeline] = RecentValues(_MAX_PIPELINES)
        self._uniforms: RecentValues[bytes | Expression | Size, Binding] = RecentValues(_MAX_UNIFORMS)
        # In a ``with`` of `skip_dispatches_if`, what says if dispatches do nothing.
        self.switch: Binding | None = None
        # What takes the arguments of `submit`; see `encode_submissions` and `submit_together`.
        self.redirection: Callable[[Sequence[Step], int, bool], None] | None = None

    # ----- Limits

    @property
    def binding_limit(self) -> int:
        """Bytes that one storage binding can have."""
        return self.capabilities.limits["max-storage-buffer-binding-size"]

    @property
    def offset_alignment(self) -> int:
        """Bytes that the offset of a storage binding must be a multiple of."""
        return self.capabilities.limits["min-storage-buffer-offset-alignment"]

    def float64_error(self, request: str, instead: str) -> UnsupportedDtypeError:
        """Return the error for a call that needs float64 on a device that has none."""
        summary = self.capabilities.summary
        missing = sorted(FLOAT64_FEATURES - self.capabilities.features)
        if not all(feature in self.adapter.features for feature in missing):
            return UnsupportedDtypeError(f"{request}, but {summary} has no 64-bit floats. Pass {instead}")
        return UnsupportedDtypeError(
            f"{request}, but the wgpu device on {summary} was made without {' and '.join(missing)}, which the adapter "
            f"has. Make it with request_device_sync(required_features={missing}), or pass {instead}"
        )

    # ----- Strategy

    def strategy(
        self, wanted: str = "auto", tiles: int | None = None, without: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """Return the strategy for a call that asks for `wanted`, and the reason for it.

        ``"auto"`` means ``$GPUSCAN_STRATEGY`` where it is set, else the best strategy that the probe found safe.

        Args:
            wanted: what the caller passed.
            tiles: how many tiles the array has; None for a large array.
            without: strategies that timed out in this call, which ``"auto"`` leaves out.

        Raises:
            StrategyError: there is no such strategy, or it is unsafe on this adapter.
        """
        check_strategy(wanted)
        source = f"from {STRATEGY_VARIABLE}" if wanted == "auto" else "as asked"
        wanted = strategy_asked_for(wanted)
        if wanted == "auto":
            choice = choose_strategy(self.capabilities_without(without), tiles)
            return choice.strategy, choice.reason
        named = "" if source == "as asked" else f" ({source})"
        check_strategy(wanted, named)
        reason = unsafe_reason(wanted, self.capabilities)
        if reason and not self.unsafe:
            instead = f"Unset {STRATEGY_VARIABLE}" if named else 'Leave strategy="auto"'
            raise StrategyError(
                f"strategy {wanted!r}{named} was asked for, but on {self.capabilities.summary} {reason}. {instead}, or "
                "open the device with unsafe=True"
            )
        return wanted, source

    def sort_strategy(self, wanted: str, without: tuple[str, ...]) -> str:
        """Return the strategy for a sort that asks for `wanted`. Look-ahead means look-back, which rests on less.

        Args:
            wanted, without: as in `strategy`.

        Raises:
            StrategyError: as `strategy` does.
        """
        if strategy_asked_for(wanted) == "auto":
            return choose_sort_strategy(self.capabilities_without(without))
        chosen, _ = self.strategy(wanted)
        return "lookback" if chosen == "lookahead" else chosen

    # ----- Submission

    def submit(self, steps: Sequence[Step], nbytes: int, *, deferrable: bool) -> None:
        """Submit steps. The caller holds the lock.

        Args:
            steps: dispatches, clears and copies, in order.
            nbytes: the bytes that they read, by which their time is estimated.
            deferrable: True to submit them with what comes next, if short. All buffers must come from the pool.
        """
        if self.queue.held:
            self.queue.settle()
        if self.redirection is not None:
            self.redirection(steps, nbytes, deferrable)
            return
        recording = self.recording
        if recording is not None:
            if deferrable:
                recording.add(steps, nbytes)
            else:
                recording.end()
        if self.has_sizes:
            steps, nbytes = concrete(list(steps)), concrete(nbytes)
        if deferrable and not self.profiles.active:
            groups = self.bind_groups
            self.queue.run(
                [
                    (step.pipeline, groups.group(step.layout, step.bound, step.keep), step.grid, step.offset)
                    if isinstance(step, Dispatch)
                    else step
                    for step in steps
                ],
                nbytes,
            )
            return
        encoder = self.queue.encoder()
        encode(self, encoder, steps)
        with self.pause_recording():
            self.queue.submit(encoder)

    def submit_unrecorded(self, steps: Sequence[Step], nbytes: int) -> None:
        """Submit steps at once that are no part of what is being recorded."""
        with self.pause_recording():
            self.submit(steps, nbytes, deferrable=False)

    @contextmanager
    def skip_dispatches_if(self, switch: Binding) -> Iterator[None]:
        """Let dispatches of the ``with`` do nothing if a word is not 0 by then. Clears are always done.

        The caller holds the lock.

        Args:
            switch: four words of a uniform buffer. Only the first one counts.
        """
        self.switch = switch
        try:
            yield
        finally:
            self.switch = None

    @property
    def switch_entries(self) -> list[tuple[int, Binding]]:
        """What each dispatch binds in addition: the switch in a ``with`` of `skip_dispatches_if`, else nothing."""
        return [] if self.switch is None else [(SWITCH_BINDING, self.switch)]

    def begin(self, run_descriptor: RunDescriptor) -> RunBuffers:
        """Return the tile state and the parameters for a run. The caller holds the lock until the run is submitted."""
        run = self.tile_state.begin(concrete(run_descriptor) if self.has_sizes else run_descriptor)
        if (recording := self.recording) is not None:
            recording.begin(run_descriptor, run)
        return run

    def read_report_later(self, run: Run | SortRun, timeout_seconds: float = 0.0) -> None:
        """Keep a run until its report is read.

        Args:
            run: the run, which was submitted or deferred.
            timeout_seconds: the shortest time after which it can have timed out.
        """
        if (recording := self.recording) is not None:
            recording.report(run, timeout_seconds)
        self.run_log.add_pending([run], time.perf_counter() + timeout_seconds)

    def read_validation_flag_later(self, validation_flag: ValidationFlag) -> None:
        """Keep what a kernel finds out about an argument until it is read."""
        if (recording := self.recording) is not None:
            recording.add_validation_flag(validation_flag)
        self.run_log.add_validation_flag(validation_flag)

    # ----- Recordings

    @property
    def recording(self) -> Recording | None:
        """The recording of this thread's call; None if there is none, or if a program cannot do what the call does."""
        recording = self.queue.recording
        if recording is None or recording.thread != threading.get_ident():
            return None
        assert isinstance(recording, Recording)
        return recording if recording.active else None

    @contextmanager
    def pause_recording(self) -> Iterator[None]:
        """Leave out of the recording what is done in the ``with``, because later launches do not need it."""
        recording = self.recording
        if recording is None:
            yield
            return
        self.queue.recording = None
        try:
            yield
        finally:
            self.queue.recording = recording

    @contextmanager
    def end_recording(self) -> Iterator[None]:
        """End the recording of the call, so that calls in the ``with`` are recorded and launched by themselves."""
        self.queue.end_recording()
        recording, self.queue.recording = self.queue.recording, None
        try:
            yield
        finally:
            self.queue.recording = recording

    def note_constant(self, buffer: wgpu.GPUBuffer, owner: object) -> None:
        """Say that a buffer's contents are the same in all launches of what is being recorded."""
        if (recording := self.recording) is not None:
            recording.constant(buffer, owner)

    # ----- Timeouts

    def capabilities_without(self, strategies: tuple[str, ...]) -> Capabilities:
        """Return the capabilities as if these strategies were paused, too.

        This first ends the pauses that are over.
        """
        self.end_pauses()
        capabilities = self.capabilities
        return replace(capabilities, distrusted=(*capabilities.distrusted, *strategies)) if strategies else capabilities

    def note_timeout(self, strategy: str) -> None:
        """Note that a run timed out. ``"auto"`` leaves a strategy out for a while that does so several times."""
        recent = self.run_log.timeouts.recent
        seconds = self.run_log.timeouts.note(strategy)
        summary = self.capabilities.summary
        if seconds is None:
            _log.info("strategy %r timed out on %s; the call is done again by another one", strategy, summary)
        else:
            _log.warning(
                "strategy %r timed out %d times within %.0f s on %s: tiles waited longer than their bound for others. "
                'For %.0f s "auto" leaves it out. Other programs that use the GPU at the same time can cause this',
                *(strategy, TIMEOUTS_TO_PAUSE, TIMEOUT_WINDOW, summary, seconds),
            )
        paused = self.run_log.timeouts.paused
        if paused != self.capabilities.distrusted or self.run_log.timeouts.recent != recent:
            self.capabilities = replace(self.capabilities, distrusted=paused)
            # Launches wait for no reports.
            self.programs.clear()

    def end_pauses(self) -> None:
        """Let ``"auto"`` choose strategies again after their pause."""
        if self.capabilities.distrusted and self.run_log.timeouts.end_pauses():
            self.capabilities = replace(self.capabilities, distrusted=self.run_log.timeouts.paused)
            self.programs.clear()

    def may_time_out(self, strategy: str) -> bool:
        """Return True if a single pass may wait too long, so that calls wait for its report."""
        return may_time_out(strategy, self.capabilities, recently=self.run_log.timeouts.recent)

    def trusts(self, strategy: str) -> bool:
        """Return True if a strategy is safe on the device, so that no call waits for its report."""
        return not unsafe_reason(strategy, self.capabilities) and not self.may_time_out(strategy)

    # ----- Pipelines

    def pipeline(self, kernel: Kernel) -> Pipeline:
        """Return the compiled kernel and the layout of its bindings, kept for later calls.

        Raises:
            OperatorError: the shader compiler refuses the operator's WGSL.
            UnsupportedDtypeError: the element has more bytes than fit the device.
        """
        with self.lock:
            key = kernel, self.switch is not None
            return self._pipelines.find(key) or self._pipelines.keep(key, self._find_or_compile(kernel))

    def _find_or_compile(self, kernel: Kernel) -> Pipeline:
        """Return the pipeline of a kernel of the same text and bindings, or a new one."""
        check_workgroup_memory(kernel, self.capabilities)
        entries = [
            _entry(array.binding, {"type": "read-only-storage" if array.access == "read" else "storage"})
            for array in kernel.bindings
        ]
        entries.append(_entry(0, {"type": "uniform", "has_dynamic_offset": True}))
        entries += [_entry(binding, {"type": "uniform"}) for binding, _ in kernel.uniforms]
        text = render_kernel(kernel)
        if self.switch is not None:
            text = with_switch(text)
            entries.append(_entry(SWITCH_BINDING, {"type": "uniform"}))
        key = sha256(f"{entries}{text}".encode()).digest()
        compiled = self._by_text.find(key)
        if compiled is None:
            # Objects of the package wgpu are released on the way, and Ctrl-C that arrives in a `__del__` is lost.
            with defer_interrupts():
                compiled = self._by_text.keep(key, self._compile(kernel, text, entries))
        return compiled

    def _compile(self, kernel: Kernel, text: str, entries: list[dict[str, object]]) -> Pipeline:
        device = self.wgpu_device
        layout = device.create_bind_group_layout(entries=entries)
        started = time.perf_counter()
        try:
            module = device.create_shader_module(label=kernel.stage, code=text)
            pipeline = device.create_compute_pipeline(
                label=f"gpuscan {kernel.stage} {kernel.operator_label}",
                layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        except error_type(self.wgpu_device) as error:
            if lost_while_compiling(str(error)):
                raise
            # The error's traceback holds frames of the package wgpu, and these hold the error. Such a cycle would keep
            # the frames of all callers alive.
            raise user_error(kernel.spec.operator_name, str(error), text) from error.with_traceback(None)
        seconds = time.perf_counter() - started
        if seconds > SLOW_COMPILE_SECONDS:
            _log.warning(
                "the driver of %s took %.1f s to compile the shader %r of %s for elements of %d bytes; later calls of "
                "its kind do not compile. Smaller elements and shorter operators compile faster",
                *(self.capabilities.summary, seconds, kernel.stage, kernel.operator_label),
                kernel.spec.element.storage_bytes,
            )
        else:
            _log.debug("compiled shader %r of %s in %.3f s", kernel.stage, kernel.operator_label, seconds)
        return pipeline, layout

    def stage(self, template: str, *, moving: bool = False, **values: object) -> Pipeline:
        """Return a stage that is no part of a scan plan, such as a copy. It is compiled once, from a template.

        Args:
            template: the path of the template under shaders/.
            moving: True if the parameters, its binding 0, get a dynamic offset.
            values: the variables of the template.
        """
        key = (template, moving, self.switch is not None, *sorted(values.items()))
        with self.lock:
            stage = self._stages.find(key)
            if stage is None:
                code = render(template, **values)
                if self.switch is not None:
                    code = with_switch(code)
                module = self.wgpu_device.create_shader_module(label=f"gpuscan {template}", code=code)
                layout: wgpu.GPUPipelineLayout | str = "auto"
                if moving:
                    layout = self.wgpu_device.create_bind_group_layout(entries=_entries_of(code))
                    layouts = [layout]
                    layout = self.wgpu_device.create_pipeline_layout(bind_group_layouts=layouts)
                pipeline = self.wgpu_device.create_compute_pipeline(
                    layout=layout, compute={"module": module, "entry_point": "main"}
                )
                stage = self._stages.keep(key, (pipeline, layouts[0] if moving else pipeline.get_bind_group_layout(0)))
            return stage

    @cached_property
    def lone_layout(self) -> wgpu.GPUBindGroupLayout:
        """The layout of a bind group of one buffer, which `caller_buffers.check_state` uses."""
        entry = {"binding": 0, "visibility": webgpu().ShaderStage.COMPUTE, "buffer": {"type": "read-only-storage"}}
        return self.wgpu_device.create_bind_group_layout(entries=[entry])

    # ----- Memory

    def allocate(self, nbytes: int, more: int = 0) -> Memory:
        """Return memory for an array; it goes back to the pool when nothing refers to the allocation.

        Args:
            nbytes: its bytes.
            more: uses of the memory that arrays do not have.
        """
        flags = self.usage
        given: Any = nbytes  # as `concrete` does, without its calls: most calls of the package allocate
        number = given.value if type(given) is Size else given
        base = self.pool.lend(number, flags.STORAGE | flags.COPY_SRC | flags.COPY_DST | more)
        allocation: Memory = base
        if number is not nbytes:
            usage_and_size = base.usage_and_size[0], apply(self.pool.size_of, nbytes)
            allocation = SizedAllocation(base, nbytes, usage_and_size)
        if self.queue.recording is not None and (recording := self.recording) is not None:
            recording.note_memory(allocation)
        return allocation

    def uniform(self, numbers: bytes | Expression | Size) -> Binding:
        """Return a uniform buffer with these bytes. It is never written again, so later stages share it.

        Args:
            numbers: the bytes. An expression gives others for other floats of the call that is being recorded, and a
                size for other sizes.
        """
        # As `present` and `concrete` do, without their calls.
        content: Any = numbers.value if type(numbers) is Expression else numbers
        # Numbers that are equal now may differ in calls of other sizes, so each has a buffer of its own.
        kept = numbers if type(content) is bytes else None
        binding = None if kept is None else self._uniforms.get(kept)
        if binding is None:
            data = content.value if type(content) is Size else content
            binding = Binding(self.buffer_of(np.frombuffer(data, np.uint8), self.usage.UNIFORM))
            if kept is not None and len(data) <= _MAX_UNIFORM_BYTES:
                with self.lock:
                    self._uniforms.keep(kept, binding)
        if self.recording is not None:
            changes = isinstance(numbers, Expression) and numbers.parameters is self.recording.parameters
            changing = numbers if changes else content if type(content) is Size else None
            self.recording.constant(binding.buffer, content=changing)
        return binding

    def buffer_of(self, content: Bytes, usage: int) -> wgpu.GPUBuffer:
        """Return a new buffer with these whole words. They are there before the next run."""
        buffer = self.wgpu_device.create_buffer(size=content.nbytes, usage=usage | self.usage.COPY_DST)
        with self.lock:
            self.queue.write_unread(buffer, 0, content)
        return buffer

    def words(self, content: bytes) -> Allocation:
        """Return memory with these 32-bit words, for a program that is made. They are there before the next run."""
        flags = self.usage
        allocation = self.pool.lend(len(content), flags.STORAGE | flags.COPY_SRC | flags.COPY_DST)
        if any(content):
            words = np.frombuffer(content, np.uint32)
            upload(self.queue, words, allocation.buffer, pool=self.pool, dtype=words.dtype)
        else:
            self.submit([Clear(allocation.buffer, 0, len(content))], 0, deferrable=True)
        return allocation

    def memory_usage(self) -> MemoryUsage:
        """Return what gpuscan holds on the device; the tile state counts as reserved."""
        usage = self.pool.usage()
        return replace(usage, bytes_reserved=usage.bytes_reserved + self.tile_state.nbytes)

    @property
    def program_owners(self) -> set[Allocation]:
        """The memory of the constants of programs."""
        kept = list(self.programs.values())
        return {owner for program in kept for owner in program.owners if isinstance(owner, Allocation)}

    def memory_cleanup(self) -> None:
        """Give free memory back to the GPU."""
        with self.lock:
            self.programs.clear()
            self.bind_groups.clear()
            self._uniforms.clear()
            self.tile_state.release()
            self.pool.cleanup()

    # ----- Waiting

    def flush(self) -> None:
        """Submit the deferred runs, and an empty command buffer, which shows that the device is alive."""
        with self.errors:
            # On a lost device wgpu-native ends the process in `submit`, but finishing an encoder raises an error.
            self.queue.submit(self.queue.encoder())

    def synchronize(self) -> None:
        """Wait until the GPU has done everything submitted so far, then read the unread reports."""
        with self.errors:
            if not self.has_unread_reports:
                self.queue.wait_idle()
                return
            with self.lock:
                if self.run_log.is_done_in_time(self.queue):
                    return
        # They are read by a copy that comes after everything submitted so far.
        self.read_and_check()

    @property
    def has_unread_reports(self) -> bool:
        """True if there are runs with reports that were not read yet."""
        return bool(self.run_log.encoded) or self.run_log.has_unread_calls

    def check(self) -> None:
        """Read all unread reports.

        If there are several errors, timeouts come first. The first error is raised, with the second one as its cause.

        Raises:
            ProgressTimeoutError: a run timed out.
            OperatorError: a loop in a run's operator did not end.
            GpuscanError: an encoded run's subgroups had another size than its plan's.
            ValueError, IndexError: an argument of a call, which was checked on the device, is wrong.
        """
        if self.has_unread_reports:
            self.read_and_check()

    def check_if_many(self) -> None:
        """Read the unread reports if there are many, so that their number stays bounded; raise what `check` raises."""
        if len(self.run_log.pending) + len(self.run_log.validation_flags) > MAX_PENDING_RUNS:
            self.check()

    def read_and_check(self, *ranges: tuple[wgpu.GPUBuffer, int, int]) -> list[Bytes]:
        """Return copies of short ranges of buffers, and read the unread reports in the same wait.

        Args:
            ranges: buffer, first byte (a multiple of 4) and number of bytes.

        Raises:
            ProgressTimeoutError, OperatorError, GpuscanError, ValueError, IndexError: as `check` does.
        """
        with self.errors, self.lock:
            early: list[Bytes] = []
            if ranges and self.run_log.may_be_timely:
                early = read_together(self.queue, self.pool, ranges)
                if self.run_log.may_be_timely:
                    self.run_log.forget_pending()
                    return early
            failures, timed_out, content = self.run_log.read(self, () if early else ranges)
            # Runs that were submitted together time out for one reason.
            for strategy in dict.fromkeys(timed_out):
                self.note_timeout(strategy)
            try:
                if failures:
                    raise failures[0] from (failures[1] if len(failures) > 1 else None)
            finally:
                # Otherwise the errors would keep this frame alive, and the frame the caller's arrays.
                failures.clear()
        return early or content
