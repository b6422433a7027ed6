"""The public `Device`: an adapter opened for scans. It is a facade over `gpuscan.device.context.DeviceContext`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gpuscan.api.array import Array, new_array
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.plan import Plan
from gpuscan.device.adapters import (
    ADAPTER_VARIABLE,
    NUMPY,
    adapter_number,
    choose_adapter,
    find_adapters,
    no_number_error,
)
from gpuscan.device.backends import BACKEND_VARIABLE, is_gpu_device, webgpu
from gpuscan.device.device_array import check_shape
from gpuscan.elements import dtype_from
from gpuscan.errors import AdapterNotFoundError
from gpuscan.planning.strategies import environment
from gpuscan.problem.arguments import as_flag, as_input_array, check_one_cut
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.problem import ProblemOptions

if TYPE_CHECKING:
    import wgpu

    from gpuscan.array_types import Shape
    from gpuscan.planning.strategies import Strategy


# The attribute of a wgpu.GPUDevice that returns its gpuscan.Device, and a lock that is held while one gets it.
_DEVICE_OF_GPU = "_gpuscan_device"
_gpu_lock = threading.RLock()


class Device(OpenedDevice):
    """An open GPU adapter, on which functions run and arrays are stored.

    The first time, gpuscan probes the adapter, which takes less than a second, and stores the findings on disk. They
    decide which strategies are safe on the adapter.

    Args:
        adapter: a part of an adapter's summary, its number in `gpuscan.devices()` (``1`` or ``"1"``), a wgpu adapter,
            or a `gpuscan.Device`, to open its adapter again. Default: the adapter that the environment variable
            ``GPUSCAN_ADAPTER`` names, else the best one. It may also be a `wgpu.GPUDevice` that your program has made.
            Scans then run on it, with its features and limits, and accept its buffers and encoders. The same
            `wgpu.GPUDevice` always gives the same `gpuscan.Device`.
        unsafe: True to let calls use a strategy that the probe found unsafe on this adapter.
        required_limits: the WebGPU limits to request (default: the adapter's best). A `wgpu.GPUDevice` has its own.

    Raises:
        AdapterNotFoundError: no adapter matches `adapter`.
        TypeError: `adapter` or `required_limits` has the wrong type.
        ValueError: WebGPU has no such limit, or the adapter cannot meet it; or the limits of a `wgpu.GPUDevice` are too
            small for any scan.
        DeviceLostError: the process was forked from one that has used a GPU.

    Example:
        >>> import gpuscan as gs
        >>> device = gs.Device()
        >>> device.capabilities.backend in ("Vulkan", "Metal", "D3D12", "OpenGL")
        True
    """

    def __new__(cls, adapter: object = None, **_: object) -> Self:
        """Return the device of a `wgpu.GPUDevice` if there is one, else a new object."""
        if is_gpu_device(adapter):
            with _gpu_lock:
                reference = getattr(adapter, _DEVICE_OF_GPU, None)
                device = reference() if reference is not None else None
                if device is None:
                    device = super().__new__(cls)
                    # The caller's device keeps it alive, so that there is one queue, pool and tile state for each.
                    setattr(adapter, _DEVICE_OF_GPU, lambda: device)
                return device
        return super().__new__(cls)

    def __init__(
        self,
        adapter: str | int | wgpu.GPUAdapter | wgpu.GPUDevice | Device | None = None,
        *,
        unsafe: bool = False,
        required_limits: Mapping[str, int] | None = None,
    ) -> None:
        if is_gpu_device(adapter):
            with _gpu_lock:
                if hasattr(self, "_context") and required_limits is None:
                    self._context.unsafe = as_flag("unsafe", unsafe) or self._context.unsafe
                    return
                super().__init__(adapter, unsafe=as_flag("unsafe", unsafe), required_limits=required_limits)
                return
        if not isinstance(adapter, Device) and adapter_number(adapter) is not None:
            adapter = _find_numbered_device(adapter)
        chosen = adapter._context.adapter if isinstance(adapter, Device) else adapter
        super().__init__(chosen, unsafe=as_flag("unsafe", unsafe), required_limits=required_limits)
        setattr(self.wgpu_device, _DEVICE_OF_GPU, weakref.ref(self))

    # ----- Plans

    def plan(
        self,
        shape: Shape,
        dtype: object,
        op: object = "add",
        *,
        axis: int | None = None,
        exclusive: bool = False,
        reverse: bool = False,
        initial: object = None,
        segments: object = None,
        keys: object = None,
        groups: object = None,
        before: Callable[..., object] | None = None,
        after: Callable[[Any], object] | None = None,
        compensated: bool = False,
        strategy: Strategy = "auto",
        reproducible: str | None = None,
    ) -> Plan:
        """Compile a scan for arrays of one shape and dtype, to run it many times.

        The plan keeps copies of `initial`, `segments`, `keys` and `groups`. It counts or sorts the labels once. A plan
        with labels that are not in ascending order cannot be recorded.

        Args:
            shape: the shape of the arrays to scan.
            dtype: the dtype of the arrays to scan. Plans have no option for the dtype of the computation: to compute in
                another dtype, pass ``before=lambda v: v.astype(np.float32)``, for example.
            op, axis, exclusive, reverse, initial, segments, keys: as in `gpuscan.scan`.
            groups, before, after, compensated, strategy, reproducible: as in `gpuscan.scan`.

        Returns:
            A `Plan`. ``plan(array)`` runs it, and ``plan.record(encoder, src, dst)`` records it.

        Raises:
            ValueError, TypeError, GpuscanError: as `gpuscan.scan` does for such an array.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> plan = gs.default_device().plan(4, np.uint32)
            >>> plan(np.array([1, 2, 3, 4], np.uint32))
            array([ 1,  3,  6, 10], dtype=uint32)
        """
        shape = check_shape(shape)
        options: ProblemOptions = {
            "axis": axis,
            "exclusive": exclusive,
            "reverse": reverse,
            "initial": initial,
            "segments": segments,
            "keys": keys,
            "dtype": None,
            "before": before,
            "after": after,
            "reproducible": reproducible,
        }
        check_one_cut(segments=segments, keys=keys, groups=groups)
        dtype = dtype_from(dtype)
        if as_flag("compensated", compensated):
            _, op, options = as_pairs(np.broadcast_to(np.zeros((), dtype), shape), op, options)
        return Plan(self, shape, dtype, op, strategy, options, groups)

    # ----- Arrays

    def asarray(self, x: object) -> Array:
        """Return an array as a `gpuscan.Array` on this device: `x` itself if it is there already, else a copy.

        Args:
            x: a `gpuscan.Array`, or anything `np.asarray` takes.

        Raises:
            UnsupportedDtypeError: gpuscan has no element type of this dtype.
            TypeError: `x` is no array, such as None or a set; or it is a dict, or a tuple of arrays of several dtypes,
                which is a bundle and not one array.
            DeviceMemoryError: the device has too little memory.
            ValueError: the array is in a caller's buffer, which is mapped or was destroyed.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> gs.default_device().asarray(np.array([1.5, 2.5], np.float32)).numpy()
            array([1.5, 2.5], dtype=float32)
        """
        if isinstance(x, Array):
            if x.device is self:
                x._check()
                return x
            x = x.numpy()
        if isinstance(x, Mapping):
            raise TypeError(
                f"a {type(x).__name__} was passed, which is a bundle and not one array. Pass each of its arrays: "
                "{name: device.asarray(part) for name, part in x.items()}"
            )
        if isinstance(x, tuple) and len({getattr(part, "dtype", None) for part in x}) > 1:
            raise TypeError(
                "a tuple of arrays of several dtypes was passed, which is a bundle and not one array. Pass each of "
                "them: tuple(device.asarray(part) for part in x)"
            )
        return new_array(self, as_input_array(x))

    def empty(self, shape: Shape, dtype: object) -> Array:
        """Return a new array on this device, with arbitrary contents.

        Args:
            shape: the shape of the array.
            dtype: the dtype of the array.

        Raises:
            ValueError: a length is negative.
            UnsupportedDtypeError: gpuscan has no element type of this dtype.
            DeviceMemoryError: the device has too little memory.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> gs.default_device().empty((2, 3), np.float32).shape
            (2, 3)
        """
        return new_array(self, None, shape, dtype)


_log = logging.getLogger("gpuscan")
# The key of the variable in `environment`.
_ADAPTER_KEY: object = os.environ.encodekey(ADAPTER_VARIABLE)
_lock = threading.Lock()
_open: dict[int, Device] = {}


def open_device(adapter: str | int | wgpu.GPUAdapter | None = None) -> Device:
    """Return the process's own device on an adapter: opened at the first call, and shared from then on."""
    if adapter is None and not (environment.get(_ADAPTER_KEY) and _adapter_request()):
        adapters = find_adapters()
        best = _open.get(id(adapters[0])) if adapters else None
        if best is None or best._context.lost:
            # The best that can be opened: some drivers list adapters that cannot.
            best = next(_open_devices(), None)
        if best is not None:
            return best
    elif adapter_number(adapter) is not None:
        return _find_numbered_device(adapter)
    return _open_shared_device(choose_adapter(adapter))


def _adapter_request() -> str:
    """Return what $GPUSCAN_ADAPTER asks for; "" if it is not set."""
    return os.environ.get(ADAPTER_VARIABLE, "").strip()


def _open_shared_device(chosen: wgpu.GPUAdapter) -> Device:
    with _lock:
        if id(chosen) not in _open or _open[id(chosen)]._context.lost:
            _open[id(chosen)] = Device(chosen)
        return _open[id(chosen)]


def default_device() -> Device:
    """Return the device on which functions run if no `device` is passed.

    It is the adapter that the environment variable ``GPUSCAN_ADAPTER`` names, else the first one of
    `gpuscan.devices()`. Each adapter is opened once in a process.

    Raises:
        AdapterNotFoundError: there is no adapter, or none that the variable names.

    Example:
        >>> import gpuscan as gs
        >>> gs.default_device() is gs.default_device()
        True
    """
    return open_device()


def devices() -> list[Device]:
    """Return a device for every adapter of this machine that can be opened, the best one first.

    Discrete GPUs come before integrated GPUs, and these before software adapters. A device's index in this list is the
    number that ``device=`` and ``GPUSCAN_ADAPTER`` take.

    Example:
        >>> import gpuscan as gs
        >>> all(device.capabilities.summary for device in gs.devices())
        True
    """
    return list(_open_devices())


def _open_devices() -> Iterator[Device]:
    """Open each adapter in turn, the best one first, and skip an adapter that fails."""
    for adapter in find_adapters():
        try:
            device = _open_shared_device(adapter)
        except (RuntimeError, AdapterNotFoundError) as error:
            _log.info("an adapter is skipped: %s", error)
            continue
        yield device


def _find_numbered_device(wanted: object) -> Device:
    """Return the device of a number in `devices()`; adapters with greater numbers stay closed.

    Args:
        wanted: as `adapter_number` takes it.

    Raises:
        AdapterNotFoundError: there are not that many.
    """
    number = adapter_number(wanted)
    assert number is not None
    opened = list(islice(_open_devices(), min(max(0, number + 1), sys.maxsize)))
    if number < 0 or len(opened) <= number:
        raise no_number_error(wanted, [device.capabilities.summary for device in devices()])
    return opened[number]


# ----- The device of a call

_warned = threading.Event()


def resolve_device(device: Device | str | int | None) -> Device | None:
    """Return the device that a call means; None stands for NumPy.

    Raises:
        AdapterNotFoundError: no adapter matches the request, or $GPUSCAN_BACKEND names no implementation here.
        TypeError: `device` is neither a device nor a string nor a number.
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        return None if device.strip().casefold() == NUMPY else open_device(device)
    if device is not None:
        if adapter_number(device) is not None:
            return _find_numbered_device(device)
        if isinstance(device, (list, tuple)):
            raise TypeError(
                f"device={device!r} was passed, which is a list, but this function runs on one device. Pass one of them"
            )
        raise TypeError(
            f"device={device!r} was passed, which is neither a gpuscan.Device nor a string nor a number; pass one of "
            'gpuscan.devices(), its number there, a part of an adapter\'s name, "numpy", or '
            "gpuscan.Device(device) for a device of wgpu"
        )
    requested = _adapter_request() if environment.get(_ADAPTER_KEY) else ""
    if requested.casefold() == NUMPY:
        return None
    try:
        return default_device()
    except AdapterNotFoundError as error:
        if os.environ.get(BACKEND_VARIABLE, "").strip():
            # A backend that does not exist is an error as well, and not a machine without adapters.
            webgpu()
        if requested:
            raise
        if not _warned.is_set():
            _warned.set()
            warnings.warn(
                f"{error}. Without an adapter, gpuscan runs on NumPy; GPUSCAN_ADAPTER=numpy asks for that and silences "
                "this warning",
                RuntimeWarning,
                stacklevel=_callers_level(),
            )
        return None


def _callers_level() -> int:
    """Return the `stacklevel` for a warning of the calling function that points at the first caller outside gpuscan."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gpuscan":
        frame, level = frame.f_back, level + 1
    return level
