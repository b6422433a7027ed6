"""Parallel prefix scans for any associative operator, on any GPU, through WebGPU."""

# ruff: noqa: E402 (Ctrl-C is handled before the imports that take time)
from gpuscan import _start

_start.end_on_interrupt()

from gpuscan._version import __version__
from gpuscan.api import numpy_functions as _numpy_functions  # noqa: F401 (it answers NumPy's protocols)
from gpuscan.api.array import Array
from gpuscan.api.check_associative import check_associative
from gpuscan.api.compact import compact
from gpuscan.api.cumulative_sums import cumulative_prod, cumulative_sum
from gpuscan.api.device import Device, default_device, devices
from gpuscan.api.export import export
from gpuscan.api.linear_recurrence import linear_recurrence, linear_recurrence_vjp
from gpuscan.api.map import map  # noqa: A004 (the public name)
from gpuscan.api.progress_bar import progress_bar
from gpuscan.api.reduce import reduce
from gpuscan.api.reduce_by_key import reduce_by_key
from gpuscan.api.scan import scan
from gpuscan.api.scan_chunks import scan_chunks
from gpuscan.api.scan_vjp import scan_vjp
from gpuscan.api.sharded_array import ShardedArray
from gpuscan.api.sort import argsort, sort, sort_by_key
from gpuscan.device.buffer_pool import MemoryUsage
from gpuscan.errors import (
    AdapterNotFoundError,
    DeviceLostError,
    DeviceMemoryError,
    GpuscanError,
    OperatorError,
    ProgressTimeoutError,
    StrategyError,
    UnsupportedDtypeError,
)
from gpuscan.operators.operator import Operator, operator, wgsl_operator

__all__ = [
    "AdapterNotFoundError",
    "Array",
    "Device",
    "DeviceLostError",
    "DeviceMemoryError",
    "GpuscanError",
    "MemoryUsage",
    "Operator",
    "OperatorError",
    "ProgressTimeoutError",
    "ShardedArray",
    "StrategyError",
    "UnsupportedDtypeError",
    "__version__",
    "argsort",
    "check_associative",
    "compact",
    "cumulative_prod",
    "cumulative_sum",
    "default_device",
    "devices",
    "export",
    "linear_recurrence",
    "linear_recurrence_vjp",
    "map",
    "operator",
    "progress_bar",
    "reduce",
    "reduce_by_key",
    "scan",
    "scan_chunks",
    "scan_vjp",
    "sort",
    "sort_by_key",
    "wgsl_operator",
]
