"""The report of ``gpuscan probe`` about every adapter, as data and as panels."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import gpuscan
from gpuscan import Device
from gpuscan.device.adapters import ADAPTER_VARIABLE, NUMPY
from gpuscan.device.driver_advice import driver_advice
from gpuscan.elements import SCALARS
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.strategies import choose_strategy
from gpuscan.tools.exit_codes import USAGE_WRONG

if TYPE_CHECKING:
    from rich.panel import Panel


def print_report(as_json: bool) -> None:
    """Print what the probe found on every adapter, and mark the default one.

    Exits with code 2 after the report if GPUSCAN_ADAPTER names no adapter.
    """
    found = gpuscan.devices()
    default, problem = _default()
    if as_json:
        click.echo(json.dumps([report(number, device, default) for number, device in enumerate(found)], indent=2))
    elif not found:
        click.echo(f"No GPU adapter was found, so gpuscan runs on NumPy. To change that: {driver_advice()}.")
    else:
        _print_panels(found, default)
    if problem:
        click.echo(f"gpuscan: {problem}", err=True)
        raise click.exceptions.Exit(USAGE_WRONG)


def report(number: int, device: Device, default: Device | None) -> dict[str, Any]:
    """Return an adapter as data: what the probe found, and what follows from it."""
    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    return (
        {"number": number, "default": device is default}
        | capabilities.to_json()
        | {
            "strategy": choice.strategy,
            "reason": choice.reason,
            "element_types": _element_types(capabilities),
        }
    )


def _default() -> tuple[Device | None, str]:
    """Return the device that calls use which name none, and what is wrong with the variable that chooses it."""
    if _chosen_by_variable() == NUMPY:
        return None, ""
    try:
        return gpuscan.default_device(), ""
    except gpuscan.AdapterNotFoundError as error:
        return None, str(error) if _chosen_by_variable() else ""


def _chosen_by_variable() -> str:
    return os.environ.get(ADAPTER_VARIABLE, "").strip()


def _print_panels(found: Sequence[Device], default: Device | None) -> None:
    from rich.console import Console, Group

    Console(highlight=False).print(Group(*(panel(number, each, each is default) for number, each in enumerate(found))))
    if _chosen_by_variable() == NUMPY:
        click.echo(f"{ADAPTER_VARIABLE}=numpy is set, so scans run on NumPy unless a call names a device.")


def panel(number: int, device: Device, default: bool) -> Panel:
    """Return the report on one adapter for a terminal."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

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
    title = f"{number}: {capabilities.name}{' (default)' if default else ''}"
    return Panel(table, title=Text(title, "bold"), title_align="left")


def _element_types(capabilities: Capabilities) -> list[str]:
    return [name for name in SCALARS if name != "float64" or capabilities.float64]


def _subgroups(capabilities: Capabilities) -> str:
    if not capabilities.subgroup_sizes:
        return "none, so lanes meet in workgroup memory"
    sizes = " or ".join(map(str, capabilities.subgroup_sizes))
    order = "in order" if capabilities.lanes_in_order else "not in order"
    return f"{sizes} lanes, {order}" + ("" if capabilities.subgroup_size else ": not used")


def _progress(capabilities: Capabilities) -> str:
    """Say what the two progress tests saw."""
    earlier = "keep running" if capabilities.progress_earlier else "can stall"
    order = "in the order of their numbers" if capabilities.starts_in_order else "in any order"
    started, asked = capabilities.started_while_spinning, capabilities.litmus_workgroups
    count = f"all {asked}" if capabilities.progress_later else f"only {started} of {asked}"
    return (
        f"started workgroups {earlier} while others wait; {count} workgroups could start while the first one waited; "
        f"they start {order}"
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
