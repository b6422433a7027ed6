"""A device: an adapter opened, probed, and kept with its caches."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from gpuscan.adapters import choose_adapter, find_adapters
from gpuscan.errors import AdapterNotFoundError, OperatorError, StrategyError
from gpuscan.execution import Binding, TileState
from gpuscan.memory import BufferPool, MemoryUsage
from gpuscan.probe import distrust, probe, wanted_features, wanted_limits
from gpuscan.strategies import STRATEGIES, choose_strategy, unsafe_reason
from gpuscan.templates import render_kernel

if TYPE_CHECKING:
    import wgpu

    from gpuscan.capabilities import Capabilities
    from gpuscan.kernels import Kernel
    from gpuscan.plans import Plan

STRATEGY_VARIABLE = "GPUSCAN_STRATEGY"
PIPELINES_KEPT = 512


class Device:
    """A GPU adapter opened for scans.

    Opening a device probes it (in under a second; what it finds is kept on disk), which decides the strategies that
    are safe on it.

    Args:
        adapter: a part of an adapter's summary, its number in `gpuscan.devices()`, or a wgpu adapter. Left out:
            ``$GPUSCAN_ADAPTER``, else the best there is.
        unsafe: let a call ask for a strategy that the probe found unsafe here.
        required_limits: WebGPU limits to ask for, over the adapter's best.

    Raises:
        AdapterNotFoundError: no adapter answers to the request.

    Example:
        >>> import gpuscan as gs
        >>> device = gs.Device()
        >>> device.capabilities.backend in ("Vulkan", "Metal", "D3D12", "OpenGL")
        True
    """

    def __init__(
        self,
        adapter: str | int | wgpu.GPUAdapter | None = None,
        *,
        unsafe: bool = False,
        required_limits: dict[str, int] | None = None,
    ) -> None:
        self._adapter = choose_adapter(adapter)
        self.unsafe = unsafe
        limits = wanted_limits(self._adapter) | (required_limits or {})
        self.wgpu_device: wgpu.GPUDevice = self._adapter.request_device_sync(
            required_features=wanted_features(self._adapter), required_limits=limits
        )
        self.capabilities: Capabilities = probe(self._adapter, self.wgpu_device)
        self.tile_state = TileState(self.wgpu_device)
        self.pool = BufferPool(self.wgpu_device)
        self.lock = threading.RLock()
        self._pipelines: OrderedDict[Kernel, tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]] = OrderedDict()

    def __repr__(self) -> str:
        return f"gpuscan.Device({self.capabilities.summary!r})"

    # ----- Strategy

    def strategy(self, asked: str = "auto") -> tuple[str, str]:
        """The strategy for a call that asks for `asked`, and why.

        ``"auto"`` means ``$GPUSCAN_STRATEGY`` where it is set, else what the probe's findings favour.

        Raises:
            StrategyError: there is no such strategy, or it is unsafe on this adapter.
        """
        source = "as asked"
        if asked == "auto":
            asked = os.environ.get(STRATEGY_VARIABLE, "").strip() or "auto"
            source = f"from {STRATEGY_VARIABLE}"
        if asked == "auto":
            choice = choose_strategy(self.capabilities)
            return choice.strategy, choice.reason
        if asked not in STRATEGIES:
            raise StrategyError(f"strategy {asked!r} was asked for; there are auto, {', '.join(STRATEGIES)}")
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
        import wgpu

        from gpuscan.execution import PARAMS_BYTES

        visible = wgpu.ShaderStage.COMPUTE
        entries: list[dict[str, Any]] = [
            {
                "binding": array.binding,
                "visibility": visible,
                "buffer": {"type": "read-only-storage" if array.access == "read" else "storage"},
            }
            for array in kernel.bindings
        ]
        if not kernel.immediates:
            entries.append({"binding": 0, "visibility": visible, "buffer": {"type": "uniform"}})
        text = render_kernel(kernel)
        device = self.wgpu_device
        layout = device.create_bind_group_layout(entries=entries)
        try:
            module = device.create_shader_module(label=kernel.stage, code=text)
            pipeline = device.create_compute_pipeline(
                label=f"gpuscan {kernel.stage} {kernel.operator_name}",
                layout=device.create_pipeline_layout(
                    bind_group_layouts=[layout], immediate_size=PARAMS_BYTES if kernel.immediates else 0
                ),
                compute={"module": module, "entry_point": "main"},
            )
        except wgpu.GPUError as error:
            raise OperatorError(
                f"operator {kernel.operator_name!r}: {self.capabilities.summary} does not compile its shader: {error}"
            ) from error
        return pipeline, layout

    def uniform(self, params: bytes) -> Binding:
        """A uniform buffer with these parameters, for adapters without immediates."""
        import wgpu

        return Binding(self.wgpu_device.create_buffer_with_data(data=params, usage=wgpu.BufferUsage.UNIFORM))

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
        strategy: str = "auto",
    ) -> Plan:
        """One kind of scan, compiled once for many calls; the arguments are those of `gpuscan.scan`.

        Args:
            shape: the shape of the arrays to come.
            dtype: their dtype.

        Raises:
            ValueError, TypeError, GpuscanError: as `gpuscan.scan` does for such an array.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> plan = gs.default_device().plan(4, np.uint32)
            >>> plan(np.array([1, 2, 3, 4], np.uint32))
            array([ 1,  3,  6, 10], dtype=uint32)
        """
        from gpuscan.plans import Plan

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        options = {"axis": axis, "exclusive": exclusive, "reverse": reverse, "initial": initial}
        return Plan(self, shape, dtype, op, strategy, options)

    # ----- Memory

    def memory_usage(self) -> MemoryUsage:
        """What the device's pool of buffers holds."""
        return self.pool.usage()

    def memory_cleanup(self) -> None:
        """Give the pool's free buffers back to the GPU."""
        self.pool.cleanup()


_lock = threading.Lock()
_open: dict[int, Device] = {}


def open_device(adapter: str | int | wgpu.GPUAdapter | None = None) -> Device:
    """The process's own device on an adapter, opened at the first call and shared from then on."""
    chosen = choose_adapter(adapter)
    with _lock:
        if id(chosen) not in _open:
            _open[id(chosen)] = Device(chosen)
        return _open[id(chosen)]


def default_device() -> Device:
    """The device that calls use which name none: ``$GPUSCAN_ADAPTER``, else the best adapter's.

    Raises:
        AdapterNotFoundError: there is no adapter, or none that the variable names.
    """
    return open_device()


def devices() -> list[Device]:
    """A device for every adapter on this machine, best first. An adapter that cannot be opened is left out."""
    opened = []
    for adapter in find_adapters():
        try:
            opened.append(open_device(adapter))
        except (RuntimeError, AdapterNotFoundError):
            continue
    return opened
