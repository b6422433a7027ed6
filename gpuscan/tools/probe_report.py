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
from gpuscan.planning.capability_text import described, element_types
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
            "element_types": element_types(capabilities),
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
    """Return what $GPUSCAN_ADAPTER asks for, in lower case."""
    return os.environ.get(ADAPTER_VARIABLE, "").strip().casefold()


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
    rows = described(capabilities)
    names = list(rows)
    rows["strategy"] = f"{choice.strategy}: {choice.reason}"
    names.insert(names.index("elements"), "strategy")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(name, Text(rows[name]))
    title = f"{number}: {capabilities.name}{' (default)' if default else ''}"
    return Panel(table, title=Text(title, "bold"), title_align="left")
