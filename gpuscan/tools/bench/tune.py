"""What ``gpuscan tune`` does: search the fastest tile shapes, and keep them for later scans."""

from __future__ import annotations

import math

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
    with progress_console().status("") as status:
        found = list(search(device, seconds, lambda what: status.update(f"tuning {what}")))
    table_console().print(tuning_table(found))
    _store(device, tuned_from(found), "Kept")


def forget(device: Device) -> None:
    """Forget the shapes that were kept for the device."""
    _store(device, UNTUNED, "Forgot")


def _store(device: Device, tuned: Tuned, done: str) -> None:
    path = tile_cache.store(device.capabilities, tuned)
    if path is None:
        raise click.ClickException(
            "tile shapes are kept in the user's cache folder, and it cannot be written. Set XDG_CACHE_HOME to another"
        )
    click.echo(f"{done} the shapes for {device.capabilities.summary} in {path}")
