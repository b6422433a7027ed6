"""What ``gpuscan tune`` does: search the fastest tile shapes, and keep them for later scans."""

from __future__ import annotations

import math
from pathlib import Path

import click

from gpuscan import Device
from gpuscan.device import tile_cache
from gpuscan.planning.tuned_tiles import UNTUNED, Tuned
from gpuscan.tools.bench.tables import tuning_table
from gpuscan.tools.bench.tile_search import search, tuned_from
from gpuscan.tools.console import progress_console, table_console


def tune(device: Device, seconds: float) -> None:
    """Search for a number of seconds, print what was found, and keep it."""
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} seconds are not a finite time. Give a number.", param_hint="'--seconds'")
    _store(device, device._context.tuned)  # fails before the search if the folder cannot be written
    with progress_console().status("") as status:
        found = list(search(device, seconds, lambda what: status.update(f"tuning {what}")))
    table_console().print(tuning_table(found))
    _tell(device, "Kept", _store(device, tuned_from(found)))


def forget(device: Device) -> None:
    """Forget the shapes that were kept for the device."""
    _tell(device, "Forgot", _store(device, UNTUNED))


def _store(device: Device, tuned: Tuned) -> Path:
    path = tile_cache.store(device.capabilities, tuned)
    if path is None:
        raise click.ClickException(
            "tile shapes are kept in the user's cache folder, and it cannot be written. Set XDG_CACHE_HOME to another"
        )
    return path


def _tell(device: Device, done: str, path: Path) -> None:
    click.echo(f"{done} the shapes for {device.capabilities.summary} in {path}")
