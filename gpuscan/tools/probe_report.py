"""What `gpuscan probe` shows of an adapter, as data and as a panel of rich's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpuscan.elements import SCALARS
from gpuscan.planning.strategies import choose_strategy

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.planning.capabilities import Capabilities


def report(device: Device) -> dict[str, Any]:
    """An adapter as data: what the probe found, and what follows from it."""
    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    return capabilities.to_json() | {
        "strategy": choice.strategy,
        "reason": choice.reason,
        "element_types": _element_types(capabilities),
    }


def panel(index: int, device: Device) -> Panel:
    """The same for a terminal."""
    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    rows = {
        "driver": f"{capabilities.driver or 'unknown'} ({capabilities.vendor})",
        "backend": f"{capabilities.backend}, {capabilities.adapter_type}, {capabilities.implementation}",
        "subgroups": _subgroups(capabilities),
        "progress": _progress(capabilities),
        "strategy": f"{choice.strategy}: {choice.reason}",
        "elements": ", ".join(_element_types(capabilities)),
        "64 bits": "native integers" if capabilities.native_int64 else "integers in two 32-bit words",
        "limits": _limits(capabilities),
        "timing": f"timestamps {'work' if capabilities.timestamps else 'do not work'}, "
        f"{capabilities.spins_per_second / 1e6:.1f} million polls a second",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return Panel(table, title=Text(f"{index}: {capabilities.name}", "bold"), title_align="left")


def _element_types(capabilities: Capabilities) -> list[str]:
    return [name for name in SCALARS if name != "float64" or capabilities.float64]


def _subgroups(capabilities: Capabilities) -> str:
    if not capabilities.subgroup_sizes:
        return "none: workgroup memory instead"
    sizes = " or ".join(map(str, capabilities.subgroup_sizes))
    order = "in order" if capabilities.lanes_in_order else "not in order"
    return f"{sizes} lanes, {order}" + ("" if capabilities.subgroup_size else ": not used")


def _progress(capabilities: Capabilities) -> str:
    earlier = "make progress" if capabilities.progress_earlier else "can stall"
    later = "start" if capabilities.progress_later else "do not all start"
    order = "in the order of their numbers" if capabilities.starts_in_order else "in any order"
    return (
        f"started workgroups {earlier} while others wait; later workgroups {later} "
        f"({capabilities.started_while_spinning} of {capabilities.litmus_workgroups}), {order}"
    )


def _limits(capabilities: Capabilities) -> str:
    limits = capabilities.limits
    return (
        f"{_size(limits['max-buffer-size'])} a buffer, {_size(limits['max-storage-buffer-binding-size'])} a binding, "
        f"{limits['max-storage-buffers-per-shader-stage']} storage buffers, "
        f"{limits['max-compute-invocations-per-workgroup']} invocations and "
        f"{_size(limits['max-compute-workgroup-storage-size'])} of memory a workgroup"
    )


def _size(count: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.3g} {unit}"
    return f"{count} B"
