"""A device: an adapter opened, probed, and kept with its caches."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device import tile_cache
from gpuscan.device.adapters import choose_adapter, find_adapters, fresh
from gpuscan.device.backends import error_type, webgpu
from gpuscan.device.bind_groups import BindGroups, Binding
from gpuscan.device.buffer_pool import Allocation, BufferPool, MemoryUsage, kept_bytes
from gpuscan.device.capability_probe import (
    checked_limits,
    distrust,
    limits_within,
    probe,
    wanted_features,
    wanted_limits,
)
from gpuscan.device.guards import guarded, lost_while_compiling
from gpuscan.device.profiling import Profile, Profiles
from gpuscan.device.submission import submit
from gpuscan.device.tile_state import TileState
from gpuscan.device.transfer import map_for_reading, staging_ring, upload
from gpuscan.engine.record import Run
from gpuscan.errors import AdapterNotFoundError, StrategyError
from gpuscan.operators.user_wgsl import user_error
from gpuscan.planning.strategies import check_strategy, choose_strategy, unsafe_reason
from gpuscan.planning.workgroup_memory import check_room
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.array import Array
    from gpuscan.api.plan import Plan
    from gpuscan.engine.small import SmallScan
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.kernel import Kernel
    from gpuscan.planning.plan import ScanPlan
    from gpuscan.planning.tuned_tiles import Tuned

STRATEGY_VARIABLE = "GPUSCAN_STRATEGY"
PIPELINES_KEPT = 512


class Device:
    """A GPU adapter opened for scans.

    Opening a device probes it (in under a second; what it finds is kept on disk), which decides the strategies that
    are safe on it.

    Args:
        adapter: a part of an adapter's summary, its number in `gpuscan.devices()`, a wgpu adapter, or a device, whose
            adapter is meant. Left out: ``$GPUSCAN_ADAPTER``, else the best there is.
        unsafe: let a call ask for a strategy that the probe found unsafe here.
        required_limits: WebGPU limits to ask for, in place of the adapter's best.

    Raises:
        AdapterNotFoundError: no adapter answers to the request.
        TypeError: `adapter` or `required_limits` is nothing of the kind.
        ValueError: a limit is none of WebGPU's, or more than the adapter has.
        DeviceLostError: the process was forked from one that has used a GPU.

    Example:
        >>> import gpuscan as gs
        >>> device = gs.Device()
        >>> device.capabilities.backend in ("Vulkan", "Metal", "D3D12", "OpenGL")
        True
    """

    def __init__(
        self,
        adapter: str | int | wgpu.GPUAdapter | Device | None = None,
        *,
        unsafe: bool = False,
        required_limits: Mapping[str, int] | None = None,
    ) -> None:
        chosen = choose_adapter(adapter._adapter if isinstance(adapter, Device) else adapter)
        self._adapter: wgpu.GPUAdapter = chosen
        self.unsafe = unsafe
        limits = limits_within(wanted_limits(self._adapter) | checked_limits(self._adapter, required_limits or {}))
        self.wgpu_device: wgpu.GPUDevice = fresh(self._adapter).request_device_sync(
            required_features=wanted_features(self._adapter), required_limits=limits
        )
        self.capabilities: Capabilities = probe(self._adapter, self.wgpu_device)
        self.tuned: Tuned = tile_cache.load(self.capabilities)
        self.process = os.getpid()
        self.usage = webgpu().BufferUsage  # flags of buffers
        self.lost = False
        self.tile_state = TileState(self.wgpu_device)
        self.bind_groups = BindGroups(self.wgpu_device)
        self.pool = BufferPool(self.wgpu_device, kept_bytes(self.capabilities.adapter_type))
        self.profiles = Profiles(self)
        self.lock = threading.RLock()
        self.plans_kept: OrderedDict[object, ScanPlan] = OrderedDict()
        self.small_scans: dict[tuple[Any, ...], SmallScan | None] = {}
        self.unchecked: list[Run] = []  # whose reports nobody has read
        self.recorded: list[Run] = []  # the last, which their callers may submit at any time
        self.hidden = False  # a later report may hide one of those
        self.proven: set[Kernel] = set()  # whose subgroups have the size that they were built for
        self.misfits: set[Kernel] = set()  # which may have subgroups of another size
        self._pipelines: OrderedDict[Kernel, tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]] = OrderedDict()
        self._stages: dict[tuple[Any, ...], tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]] = {}

    def __repr__(self) -> str:
        return f"gpuscan.Device({self.capabilities.summary!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Device is this process's own and cannot be pickled or copied. Open one where it is needed, "
            "gpuscan.Device(device.capabilities.summary), and pass arrays on as NumPy's, array.numpy()"
        )

    # ----- Strategy

    def strategy(self, asked: str = "auto", tiles: int | None = None) -> tuple[str, str]:
        """The strategy for a call that asks for `asked`, and why; of so many tiles, or of many where they are left out.

        ``"auto"`` means ``$GPUSCAN_STRATEGY`` where it is set, else what the probe's findings favour.

        Raises:
            StrategyError: there is no such strategy, or it is unsafe on this adapter.
        """
        source = "as asked"
        if asked == "auto":
            asked = os.environ.get(STRATEGY_VARIABLE, "").strip() or "auto"
            source = f"from {STRATEGY_VARIABLE}"
        if asked == "auto":
            choice = choose_strategy(self.capabilities, tiles)
            return choice.strategy, choice.reason
        check_strategy(asked)
        reason = unsafe_reason(asked, self.capabilities)
        if reason and not self.unsafe:
            raise StrategyError(
                f"strategy {asked!r} was asked for, but on {self.capabilities.summary} {reason}. "
                'Leave strategy="auto", or open the device with unsafe=True'
            )
        return asked, source

    def distrust(self, strategy: str) -> None:
        """Let ``"auto"`` leave out a strategy that ran out of its bounds here, in this process and later ones."""
        self.capabilities = distrust(self.capabilities, strategy)

    # ----- Pipelines

    def pipeline(self, kernel: Kernel) -> tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]:
        """The compiled kernel and the layout of its bindings, kept for later calls.

        Raises:
            OperatorError: the shader compiler refuses the operator's WGSL.
            UnsupportedDtypeError: the element has more bytes than fit the device.
        """
        with self.lock:
            found = self._pipelines.get(kernel)
            if found is None:
                found = self._compile(kernel)
                self._pipelines[kernel] = found
                if len(self._pipelines) > PIPELINES_KEPT:
                    self._pipelines.popitem(last=False)
            else:
                self._pipelines.move_to_end(kernel)
            return found

    def _compile(self, kernel: Kernel) -> tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]:
        check_room(kernel, self.capabilities)
        visible = webgpu().ShaderStage.COMPUTE
        entries: list[dict[str, Any]] = [
            {
                "binding": array.binding,
                "visibility": visible,
                "buffer": {"type": "read-only-storage" if array.access == "read" else "storage"},
            }
            for array in kernel.bindings
        ]
        entries.append({"binding": 0, "visibility": visible, "buffer": {"type": "uniform", "has_dynamic_offset": True}})
        text = render_kernel(kernel)
        device = self.wgpu_device
        layout = device.create_bind_group_layout(entries=entries)
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
            raise user_error(kernel.spec.operator_name, str(error), text) from error
        return pipeline, layout

    @cached_property
    def lone_layout(self) -> wgpu.GPUBindGroupLayout:
        """The layout of one buffer, as `check_state` binds it."""
        entry = {"binding": 0, "visibility": webgpu().ShaderStage.COMPUTE, "buffer": {"type": "read-only-storage"}}
        return self.wgpu_device.create_bind_group_layout(entries=[entry])

    def uniform(self, numbers: bytes) -> Binding:
        """A uniform buffer with these numbers, for one run of a stage beside a scan."""
        return Binding(self.wgpu_device.create_buffer_with_data(data=numbers, usage=webgpu().BufferUsage.UNIFORM))

    def plan(
        self,
        shape: int | tuple[int, ...],
        dtype: Any,
        op: Any = "add",
        *,
        axis: int | None = None,
        exclusive: bool = False,
        reverse: bool = False,
        initial: Any = None,
        segments: Any = None,
        keys: Any = None,
        before: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
        compensated: bool = False,
        strategy: str = "auto",
    ) -> Plan:
        """One kind of scan, compiled once for many calls; the arguments are those of `gpuscan.scan`.

        Args:
            shape: the shape of the arrays to come.
            dtype: their dtype; `before` may map them to another one.

        Raises:
            ValueError, TypeError, GpuscanError: as `gpuscan.scan` does for such an array.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> plan = gs.default_device().plan(4, np.uint32)
            >>> plan(np.array([1, 2, 3, 4], np.uint32))
            array([ 1,  3,  6, 10], dtype=uint32)
        """
        from gpuscan.api.array import checked_shape
        from gpuscan.api.plan import Plan
        from gpuscan.elements import dtype_from
        from gpuscan.problem.problem import as_flag

        shape = checked_shape(shape)
        options: dict[str, Any] = {
            "axis": axis,
            "exclusive": exclusive,
            "reverse": reverse,
            "initial": initial,
            "segments": segments,
            "keys": keys,
            "dtype": None,
            "before": before,
            "after": after,
        }
        dtype = dtype_from(dtype)
        if as_flag("compensated", compensated):
            from gpuscan.problem.compensated_sum import lifted

            _, op, options = lifted(np.broadcast_to(np.zeros((), dtype), shape), op, options)
        return Plan(self, shape, dtype, op, strategy, options)

    def stage(self, template: str, **values: Any) -> tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]:
        """A stage that stands beside the scan's, compiled from a template of shaders/ with these values, and kept."""
        key = (template, *sorted(values.items()))
        with self.lock:
            if key not in self._stages:
                code = render(template, **values)
                module = self.wgpu_device.create_shader_module(label=f"gpuscan {template}", code=code)
                pipeline = self.wgpu_device.create_compute_pipeline(
                    layout="auto", compute={"module": module, "entry_point": "main"}
                )
                self._stages[key] = (pipeline, pipeline.get_bind_group_layout(0))
            return self._stages[key]

    # ----- Arrays

    def asarray(self, x: Any) -> Array:
        """The array on this device: `x` itself if it is there, else a copy of it.

        Args:
            x: a `gpuscan.Array`, or anything `np.asarray` takes.

        Raises:
            UnsupportedDtypeError: the dtype is no element's.
            DeviceMemoryError: there is no room.
            ValueError: the array lies in a caller's buffer, which is mapped or was destroyed.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> gs.default_device().asarray(np.array([1.5, 2.5], np.float32)).numpy()
            array([1.5, 2.5], dtype=float32)
        """
        from gpuscan.api.array import Array, empty

        if isinstance(x, Array) and x.device is self:
            x.check()
            return x
        given = np.asarray(x)
        array = empty(self, given.shape, given.dtype)
        if array.nbytes:
            with guarded(self):
                content = np.ascontiguousarray(given, array.dtype)
                upload(self.wgpu_device, content, array.buffer, pool=self.pool)
        return array

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """An array on this device whose contents are left over from earlier use."""
        from gpuscan.api.array import empty

        return empty(self, shape, dtype)

    def allocate(self, nbytes: int) -> Allocation:
        """Memory for an array; it goes back to the pool when nobody holds the allocation any more."""
        flags = self.usage
        return self.pool.lend(nbytes, flags.STORAGE | flags.COPY_SRC | flags.COPY_DST)

    @cached_property
    def readers(self) -> ThreadPoolExecutor:
        """The thread that `Array.read_async` waits in."""
        return ThreadPoolExecutor(1, thread_name_prefix="gpuscan-read")

    def flush(self) -> None:
        """See to it that all calls so far are on their way to the GPU. They are: every call submits what it records."""
        with guarded(self):
            # Of a lost device wgpu-native ends the process in `submit`; to finish an encoder raises.
            submit(self.wgpu_device, self.wgpu_device.create_command_encoder().finish())

    def synchronize(self) -> None:
        """Wait until the GPU has done all that was submitted.

        Raises:
            ProgressTimeoutError: a scan of arrays on the device gave up waiting since the last check.
            DeviceLostError: the GPU went away.
        """
        usage = self.usage.MAP_READ | self.usage.COPY_DST
        with guarded(self), self.lock, staging_ring(self.pool, usage, 16, 1) as (fence,):
            encoder = self.wgpu_device.create_command_encoder()
            encoder.clear_buffer(fence)  # a buffer that no submission uses may be mapped while the GPU is at work
            submit(self.wgpu_device, encoder.finish())
            map_for_reading(fence, 4).sync_wait()
            fence.unmap()
        self.check()

    def check(self) -> None:
        """Read the reports of the runs that nobody has waited for.

        Raises:
            ProgressTimeoutError: one gave up waiting.
            OperatorError, GpuscanError: as `gpuscan.engine.device_arrays.check` does of recorded runs.
        """
        from gpuscan.engine.device_arrays import check

        if self.unchecked or self.recorded:
            check(self)

    def profile(self) -> AbstractContextManager[Profile]:
        """Time the stages that run inside the ``with``, by timestamps of the GPU; may nest and overlap.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> device = gs.default_device()
            >>> with device.profile() as p:
            ...     _ = gs.scan(np.ones(100, np.float32), device=device)
            >>> p.spans[-1].stage
            'scan'
        """
        return self._profile()

    @contextmanager
    def _profile(self) -> Iterator[Profile]:
        profile = self.profiles.open()
        try:
            yield profile
        finally:
            self.profiles.close(profile)

    # ----- Memory

    def memory_usage(self) -> MemoryUsage:
        """What gpuscan holds on the device; the state that tiles share counts as reserved."""
        usage = self.pool.usage()
        return replace(usage, bytes_reserved=usage.bytes_reserved + self.tile_state.nbytes)

    def memory_cleanup(self) -> None:
        """Give what is free back to the GPU."""
        with self.lock:
            self.bind_groups.clear()
            self.tile_state.release()
            self.pool.cleanup()


_lock = threading.Lock()
_open: dict[int, Device] = {}


def open_device(adapter: str | int | wgpu.GPUAdapter | None = None) -> Device:
    """The process's own device on an adapter, opened at the first call and shared from then on."""
    chosen = choose_adapter(adapter)
    with _lock:
        if id(chosen) not in _open or _open[id(chosen)].lost:
            _open[id(chosen)] = Device(chosen)
        return _open[id(chosen)]


def default_device() -> Device:
    """The device that calls use which name none: ``$GPUSCAN_ADAPTER``, else the best adapter's.

    Raises:
        AdapterNotFoundError: there is no adapter, or none that the variable names.

    Example:
        >>> import gpuscan as gs
        >>> gs.default_device() is gs.default_device()
        True
    """
    return open_device()


def devices() -> list[Device]:
    """A device for every adapter on this machine, best first. An adapter that cannot be opened is left out.

    Example:
        >>> import gpuscan as gs
        >>> all(device.capabilities.summary for device in gs.devices())
        True
    """
    opened = []
    for adapter in find_adapters():
        try:
            opened.append(open_device(adapter))
        except (RuntimeError, AdapterNotFoundError):
            continue
    return opened
