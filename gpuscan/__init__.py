"""Parallel prefix scans for any associative operator, on any GPU, through WebGPU.

A public name is imported when it is first used, so that ``import gpuscan`` takes no longer than a few milliseconds.
"""

# ruff: noqa: E402 (Ctrl-C is handled before the imports that take time)
from gpuscan import _start

_start.end_on_interrupt()

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuscan._version import __version__
from gpuscan.device import forks as _forks  # noqa: F401 (the program may use the package wgpu itself, and then fork)

if TYPE_CHECKING:
    from gpuscan.api.array import Array
    from gpuscan.api.check_associative import check_associative
    from gpuscan.api.compact import compact
    from gpuscan.api.counting import bincount, histogram, searchsorted
    from gpuscan.api.cumulative_sums import cumulative_prod, cumulative_sum
    from gpuscan.api.device import Device, default_device, devices
    from gpuscan.api.export import export
    from gpuscan.api.linear_attention import (
        gated_delta_rule,
        gated_delta_rule_vjp,
        gated_linear_attention,
        gated_linear_attention_vjp,
    )
    from gpuscan.api.linear_recurrence import linear_recurrence, linear_recurrence_vjp
    from gpuscan.api.loop import loop, loop_form
    from gpuscan.api.loop_vjp import loop_vjp
    from gpuscan.api.map import map  # noqa: A004 (the public name)
    from gpuscan.api.progress_bar import progress_bar
    from gpuscan.api.reduce import reduce
    from gpuscan.api.reduce_by_key import reduce_by_key
    from gpuscan.api.repetitions import repeat
    from gpuscan.api.scan import scan
    from gpuscan.api.scan_chunks import scan_chunks
    from gpuscan.api.scan_vjp import scan_vjp
    from gpuscan.api.selecting import median, partition_by, quantile, top_k
    from gpuscan.api.sharded_array import ShardedArray
    from gpuscan.api.sort import argsort, sort, sort_by_key
    from gpuscan.api.state_space import selective_scan, selective_scan_vjp, selective_state_update
    from gpuscan.api.unique import run_length_encode, unique_all, unique_counts, unique_inverse, unique_values
    from gpuscan.device.buffer_pool import MemoryUsage
    from gpuscan.errors import (
        AdapterNotFoundError,
        DeviceLostError,
        DeviceMemoryError,
        GpuscanError,
        LoopError,
        OperatorError,
        ProgressTimeoutError,
        StrategyError,
        UnsupportedDtypeError,
    )
    from gpuscan.operators.operator import Operator, operator, wgsl_operator

# The module of each public name, as above.
_MODULES = {
    "Array": "gpuscan.api.array",
    "check_associative": "gpuscan.api.check_associative",
    "compact": "gpuscan.api.compact",
    "bincount": "gpuscan.api.counting",
    "histogram": "gpuscan.api.counting",
    "repeat": "gpuscan.api.repetitions",
    "searchsorted": "gpuscan.api.counting",
    "cumulative_prod": "gpuscan.api.cumulative_sums",
    "cumulative_sum": "gpuscan.api.cumulative_sums",
    "Device": "gpuscan.api.device",
    "default_device": "gpuscan.api.device",
    "devices": "gpuscan.api.device",
    "export": "gpuscan.api.export",
    "gated_delta_rule": "gpuscan.api.linear_attention",
    "gated_delta_rule_vjp": "gpuscan.api.linear_attention",
    "gated_linear_attention": "gpuscan.api.linear_attention",
    "gated_linear_attention_vjp": "gpuscan.api.linear_attention",
    "linear_recurrence": "gpuscan.api.linear_recurrence",
    "linear_recurrence_vjp": "gpuscan.api.linear_recurrence",
    "loop": "gpuscan.api.loop",
    "loop_form": "gpuscan.api.loop",
    "loop_vjp": "gpuscan.api.loop_vjp",
    "map": "gpuscan.api.map",
    "progress_bar": "gpuscan.api.progress_bar",
    "reduce": "gpuscan.api.reduce",
    "reduce_by_key": "gpuscan.api.reduce_by_key",
    "scan": "gpuscan.api.scan",
    "scan_chunks": "gpuscan.api.scan_chunks",
    "scan_vjp": "gpuscan.api.scan_vjp",
    "median": "gpuscan.api.selecting",
    "partition_by": "gpuscan.api.selecting",
    "quantile": "gpuscan.api.selecting",
    "top_k": "gpuscan.api.selecting",
    "ShardedArray": "gpuscan.api.sharded_array",
    "argsort": "gpuscan.api.sort",
    "sort": "gpuscan.api.sort",
    "sort_by_key": "gpuscan.api.sort",
    "selective_scan": "gpuscan.api.state_space",
    "selective_scan_vjp": "gpuscan.api.state_space",
    "selective_state_update": "gpuscan.api.state_space",
    "run_length_encode": "gpuscan.api.unique",
    "unique_all": "gpuscan.api.unique",
    "unique_counts": "gpuscan.api.unique",
    "unique_inverse": "gpuscan.api.unique",
    "unique_values": "gpuscan.api.unique",
    "MemoryUsage": "gpuscan.device.buffer_pool",
    "AdapterNotFoundError": "gpuscan.errors",
    "DeviceLostError": "gpuscan.errors",
    "DeviceMemoryError": "gpuscan.errors",
    "GpuscanError": "gpuscan.errors",
    "LoopError": "gpuscan.errors",
    "OperatorError": "gpuscan.errors",
    "ProgressTimeoutError": "gpuscan.errors",
    "StrategyError": "gpuscan.errors",
    "UnsupportedDtypeError": "gpuscan.errors",
    "Operator": "gpuscan.operators.operator",
    "operator": "gpuscan.operators.operator",
    "wgsl_operator": "gpuscan.operators.operator",
}

# Packages that are imported at their first use, too. Some need others that may not be installed.
_PACKAGES = frozenset({"dask", "jax", "signal", "torch"})

# What to write in place of names that other libraries have.
_NAMES_ELSEWHERE = {
    **dict.fromkeys(("cumsum", "cumulative_add", "prefix_sum"), "gpuscan.scan(x) or gpuscan.cumulative_sum(x)"),
    "cumprod": 'gpuscan.scan(x, "multiply") or gpuscan.cumulative_prod(x)',
    **dict.fromkeys(("cummax", "cumulative_max", "cumulative_maximum"), 'gpuscan.scan(x, "maximum")'),
    **dict.fromkeys(("cummin", "cumulative_min", "cumulative_minimum"), 'gpuscan.scan(x, "minimum")'),
    "logcumsumexp": 'gpuscan.scan(x, "logaddexp")',
    **dict.fromkeys(("accumulate", "associative_scan", "inclusive_scan"), "gpuscan.scan(x, op)"),
    "exclusive_scan": "gpuscan.scan(x, op, exclusive=True)",
    **dict.fromkeys(("segmented_scan", "segment_scan"), "gpuscan.scan(x, op, segments=offsets)"),
    **dict.fromkeys(("segmented_reduce", "segment_sum"), "gpuscan.reduce(x, op, segments=offsets)"),
    "groupby": "gpuscan.scan(x, op, groups=labels) or gpuscan.reduce(x, op, groups=labels)",
    "sum": "gpuscan.reduce(x)",
    "prod": 'gpuscan.reduce(x, "multiply")',
    **dict.fromkeys(("max", "amax"), 'gpuscan.reduce(x, "maximum")'),
    **dict.fromkeys(("min", "amin"), 'gpuscan.reduce(x, "minimum")'),
    "compress": "gpuscan.compact(x, mask)",
    **dict.fromkeys(("asarray", "array"), "gpuscan.default_device().asarray(x)"),
    **dict.fromkeys(("empty", "zeros"), "gpuscan.default_device().empty(shape, dtype)"),
}

__all__ = [
    "AdapterNotFoundError",
    "Array",
    "Device",
    "DeviceLostError",
    "DeviceMemoryError",
    "GpuscanError",
    "LoopError",
    "MemoryUsage",
    "Operator",
    "OperatorError",
    "ProgressTimeoutError",
    "ShardedArray",
    "StrategyError",
    "UnsupportedDtypeError",
    "__version__",
    "argsort",
    "bincount",
    "check_associative",
    "compact",
    "cumulative_prod",
    "cumulative_sum",
    "default_device",
    "devices",
    "export",
    "gated_delta_rule",
    "gated_delta_rule_vjp",
    "gated_linear_attention",
    "gated_linear_attention_vjp",
    "histogram",
    "linear_recurrence",
    "linear_recurrence_vjp",
    "loop",
    "loop_form",
    "loop_vjp",
    "map",
    "median",
    "operator",
    "partition_by",
    "progress_bar",
    "quantile",
    "reduce",
    "reduce_by_key",
    "repeat",
    "run_length_encode",
    "scan",
    "scan_chunks",
    "scan_vjp",
    "searchsorted",
    "selective_scan",
    "selective_scan_vjp",
    "selective_state_update",
    "sort",
    "sort_by_key",
    "top_k",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "wgsl_operator",
]


def __getattr__(name: str) -> Any:
    """Import the module of a public name, or a package, at its first use (PEP 562)."""
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    module = sys.modules[__name__]
    message = f"module {__name__!r} has no attribute {name!r}"
    if name in _PACKAGES:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            message = f"{__name__}.{name} was asked for, but it needs the package {error.name}; install that"
            raise AttributeError(message, name=name, obj=module) from error
    if name in _NAMES_ELSEWHERE:
        message += f". Write {_NAMES_ELSEWHERE[name]}"
    raise AttributeError(message, name=name, obj=module)


def __dir__() -> list[str]:
    """Return all public names, whether they are imported yet or not, and the packages that are imported."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__") or name in _PACKAGES)})
