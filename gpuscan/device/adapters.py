"""List the machine's GPU adapters, best first, and choose the one that a caller asks for."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscan.device import forks
from gpuscan.device.adapter_requirements import LEAST_LIMITS, choose_features
from gpuscan.device.backends import module_of, package_of, webgpu
from gpuscan.device.driver_advice import driver_advice
from gpuscan.device.error_translation import make_fork_error
from gpuscan.device.interrupts import defer_exit
from gpuscan.device.webgpu_log import libraries_quiet
from gpuscan.errors import AdapterNotFoundError, abbreviate
from gpuscan.problem.arguments import as_integer

if TYPE_CHECKING:
    import wgpu

ADAPTER_VARIABLE = "GPUSCAN_ADAPTER"

# The types of adapters, best first. Some OpenGL drivers do not report a type ("Unknown"); software ones do.
_ADAPTER_TYPES = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")

# The name that asks for NumPy instead of a GPU.
NUMPY = "numpy"

# What chooses no adapter, although it is a part of the summaries of software adapters.
_CPU = "cpu"

_lock = threading.Lock()
# The adapters that `find_adapters` found, or None before its first call.
_adapters: list[wgpu.GPUAdapter] | None = None


def find_adapters() -> list[wgpu.GPUAdapter]:
    """Return every adapter that can compute, best first. The search runs once in a process.

    Discrete GPUs come before integrated, virtual and software adapters (CPU). Vulkan, Metal and DX12 come before
    OpenGL. Among equals, the adapter with more of the features that gpuscan uses comes first.

    If a backend lists an adapter twice, the result has it once. Discrete GPUs are all kept, because two cards of one
    model look like one card that is listed twice.

    Raises:
        DeviceLostError: this process was forked from one that has used a GPU.

    Example:
        >>> isinstance(find_adapters(), list)
        True
    """
    global _adapters
    _check_process()
    with _lock:
        if _adapters is None:
            api = webgpu()  # imported first, so that its logger is there
            with libraries_quiet(), defer_exit():
                listed = api.gpu.enumerate_adapters_sync()
            _adapters = _without_duplicates(sorted(filter(_can_compute, listed), key=_rank))
            forks.note_search(has_adapters=bool(_adapters))
        return list(_adapters)


def best_adapters() -> int:
    """Return how many adapters are of the best one's type and backend: a GPU may be listed by several backends.

    In the order of `find_adapters` they come first.
    """
    types = [(adapter.info["adapter_type"], adapter.info["backend_type"]) for adapter in find_adapters()]
    return types.count(types[0]) if types else 0


def adapter_number(wanted: object) -> int | None:
    """Return the number that `wanted` is, or that GPUSCAN_ADAPTER is if `wanted` is None; None if it is no number.

    A string of digits is a number, and never a part of a summary: most summaries have digits in them.
    """
    if wanted is None:
        wanted = os.environ.get(ADAPTER_VARIABLE, "")
    if isinstance(wanted, str):
        digits = wanted.strip()
        return int(digits) if digits.isdecimal() else None
    return as_integer(wanted)


def no_number_error(wanted: object, adapters: Sequence[str]) -> AdapterNotFoundError:
    """Return the error about a number that no adapter has.

    Args:
        wanted: what was passed; None if GPUSCAN_ADAPTER says it.
        adapters: the summaries of the adapters that can be opened, by number.
    """
    request = f"{os.environ[ADAPTER_VARIABLE]!r} (from {ADAPTER_VARIABLE})" if wanted is None else repr(wanted)
    if not adapters:
        return _none_at_all(request)
    return AdapterNotFoundError(
        f"no adapter has the number {request}: the adapters here are {_format_summaries(adapters)}; "
        "pass one of these numbers, or install the driver of the one that is missing"
    )


def summary_of(adapter: wgpu.GPUAdapter) -> str:
    """Return the adapter in one line: its name, type and backend, and a number if the machine has several like it."""
    alike = [listed for listed in _adapters or () if listed.summary == adapter.summary]
    number = next((index for index, listed in enumerate(alike) if listed is adapter), None)
    return str(adapter.summary) if number is None or len(alike) == 1 else f"{adapter.summary}, card {number}"


def choose_adapter(wanted: str | wgpu.GPUAdapter | None = None) -> wgpu.GPUAdapter:
    """Return the adapter that `wanted` names.

    This function does not know the numbers of adapters. They are places in `gpuscan.devices()`, which opens adapters.

    Args:
        wanted: a part of an adapter's summary in any case (the best that has it is taken), an adapter (returned as it
            is), or None: what the environment variable GPUSCAN_ADAPTER says, and where it says nothing, the best.
            "cpu" names none: it could mean NumPy.

    Raises:
        AdapterNotFoundError: no adapter matches. The message lists the machine's adapters.
        TypeError: `wanted` has another type.
        DeviceLostError: this process was forked from one that has used a GPU.
    """
    if hasattr(wanted, "summary"):  # It is an adapter.
        _check_process()
        forks.note_use()
        return wanted
    if not (wanted is None or isinstance(wanted, str)):
        raise TypeError(
            f"{abbreviate(wanted)} was passed as an adapter. Pass a part of its name, its number in gpuscan.devices(), "
            "a wgpu adapter or a wgpu device"
        )
    request = "" if wanted is None else repr(wanted)
    if wanted is None and (name := os.environ.get(ADAPTER_VARIABLE, "").strip()):
        if name.casefold() == NUMPY:
            raise AdapterNotFoundError(
                f"a GPU adapter was asked for, while {ADAPTER_VARIABLE}=numpy asks for no GPU; unset the variable, or "
                "name an adapter"
            )
        wanted, request = name, f"{name!r} (from {ADAPTER_VARIABLE})"

    adapters = find_adapters()
    if not adapters:
        raise _none_at_all(request)
    if wanted is None:
        return adapters[0]
    matching = [adapter for adapter in adapters if names(wanted, summary_of(adapter))]
    if not matching:
        listed = _format_summaries([summary_of(adapter) for adapter in adapters])
        unclear = "it could mean NumPy or a driver that computes on the CPU; " if wanted.casefold() == _CPU else ""
        raise AdapterNotFoundError(
            f"{_question(request)}: {unclear}the adapters here are {listed}; ask for a part of one of these names, for "
            'its number, or for device="numpy", or install the driver of the one that is missing'
        )
    return matching[0]


def names(wanted: str, summary: str) -> bool:
    """Return True if a text chooses the adapter with this summary: if it is a part of it, in any case, and not "cpu".

    The summaries of software adapters have that word, but device="cpu" may also be meant for NumPy, which is faster.
    """
    return wanted.casefold() != _CPU and wanted.casefold() in summary.casefold()


def fresh(adapter: wgpu.GPUAdapter) -> wgpu.GPUAdapter:
    """Return the adapter to open a device on.

    An adapter of Dawn's can open only one device, so Dawn is asked for the adapter again.
    """
    if package_of(adapter) != "wgpudawn":
        return adapter
    alike = [listed for listed in _adapters or () if listed.summary == adapter.summary]
    index = alike.index(adapter) if adapter in alike else 0
    again = [other for other in module_of(adapter).gpu.enumerate_adapters_sync() if other.summary == adapter.summary]
    return again[index] if index < len(again) else adapter


def _check_process() -> None:
    """Raise DeviceLostError in a process that was forked from a user of WebGPU, where a new device would hang."""
    user = forks.first_user()
    if user is not None and user != os.getpid():
        raise make_fork_error("the GPU was used", user)


def _question(request: str) -> str:
    return f"no adapter answers to {request}" if request else "no adapter found"


def _none_at_all(request: str) -> AdapterNotFoundError:
    return AdapterNotFoundError(
        f'{_question(request)}: this machine has no GPU adapter at all; {driver_advice()}, or ask for device="numpy"'
    )


def _format_summaries(summaries: Sequence[str]) -> str:
    return "; ".join(f"{number}: {summary}" for number, summary in enumerate(summaries))


def _can_compute(adapter: wgpu.GPUAdapter) -> bool:
    """Return True if the adapter has compute shaders, which OpenGL before 4.3 has not."""
    return all(int(adapter.limits[name]) >= least for name, least in LEAST_LIMITS.items())


def _rank(adapter: wgpu.GPUAdapter) -> tuple[int, bool, int]:
    adapter_type = adapter.info["adapter_type"]
    order = _ADAPTER_TYPES.index(adapter_type) if adapter_type in _ADAPTER_TYPES else _ADAPTER_TYPES.index("Unknown")
    return order, adapter.info["backend_type"].startswith("OpenGL"), -len(choose_features(adapter))


def _without_duplicates(adapters: list[wgpu.GPUAdapter]) -> list[wgpu.GPUAdapter]:
    kept: list[wgpu.GPUAdapter] = []
    seen: set[tuple[tuple[str, object], ...]] = set()
    for adapter in adapters:
        identity = tuple(sorted(dict(adapter.info).items()))
        if identity in seen and adapter.info["adapter_type"] != "DiscreteGPU":
            continue
        seen.add(identity)
        kept.append(adapter)
    return kept
