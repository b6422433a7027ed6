"""Parallel prefix scans for any associative operator, on any GPU, through WebGPU."""

from gpuscan._version import __version__
from gpuscan.api import scan, scan_chunks
from gpuscan.arrays import Array
from gpuscan.checking import check_associative
from gpuscan.compaction import compact
from gpuscan.cumulative import cumulative_prod, cumulative_sum
from gpuscan.device import Device, default_device, devices
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
from gpuscan.memory import MemoryUsage
from gpuscan.operators import Operator, operator, wgsl_operator
from gpuscan.recurrence import linear_recurrence, linear_recurrence_vjp
from gpuscan.reduction import reduce

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
    "StrategyError",
    "UnsupportedDtypeError",
    "__version__",
    "check_associative",
    "compact",
    "cumulative_prod",
    "cumulative_sum",
    "default_device",
    "devices",
    "linear_recurrence",
    "linear_recurrence_vjp",
    "operator",
    "reduce",
    "scan",
    "scan_chunks",
    "wgsl_operator",
]
