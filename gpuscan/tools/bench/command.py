"""What ``gpuscan bench`` does: check its options, measure, and print or write the figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gpuscan import Device
from gpuscan.replaced_file import replaced_file
from gpuscan.tools.bench.plot import need_matplotlib, save_plot
from gpuscan.tools.bench.results import report
from gpuscan.tools.bench.session import Request, run_request
from gpuscan.tools.bench.suite import failures
from gpuscan.tools.bench.tables import tables
from gpuscan.tools.bench.wall_calls import calls_table, time_calls
from gpuscan.tools.console import progress_console, table_console
from gpuscan.tools.exit_codes import fail_to_write
from gpuscan.tools.option_types import STDOUT
from gpuscan.tools.output_file import write_text

RECURRENCE_OPTIONS = ("batch", "sequence", "channels")
SCAN_OPTIONS = {"sizes": "--sizes", "ops": "--op", "rows": "--rows", "strategies": "--strategy"}


def check_options(context: click.Context) -> None:
    """Raise UsageError if options of scans and of linear recurrences are mixed."""
    recurrence = any(context.params[name] for name in RECURRENCE_OPTIONS)
    given = [
        option
        for name, option in SCAN_OPTIONS.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if recurrence and given:
        raise click.UsageError(
            f"{', '.join(given)} of scans and --batch, --sequence, --channels of a linear recurrence were given. "
            "Measure one of the two."
        )
    if context.params["backward"] and not recurrence:
        raise click.UsageError(
            "--backward was given without a linear recurrence. Add --batch, --sequence or --channels."
        )


def request_of(batch: int | None, sequence: int | None, channels: int | None, **asked: Any) -> Request:
    """Return what the options ask to measure."""
    shape = (batch, sequence, channels)
    recurrence = (batch or 1, sequence or 1, channels or 1) if any(shape) else None
    return Request(recurrence=recurrence, **asked)


def measure_and_report(device: Device, request: Request, json_path: Path | None, plot: Path | None) -> None:
    """Measure, print the tables, and write the files asked for.

    Raises:
        click.UsageError: there is nothing to measure.
        click.ClickException: a result of gpuscan is wrong.
    """
    if plot is not None:
        need_matplotlib()
    if not request.cases(device):
        raise click.UsageError("none of the operators of --op combines any type of --dtype. Name others.")
    measurements = run_request(device, request, progress_console())
    calls = time_calls(device, request.sizes, request.peers) if request.calls else []
    if json_path is not None:
        found = report(device, measurements, sys.argv[2:]) | {"calls": [each.row() for each in calls]}
        write_text(json_path, json.dumps(found, indent=1) + "\n")
    if json_path != STDOUT:
        click.echo(f"{device.capabilities.summary}, {device.capabilities.driver}")
        table_console().print(*tables(measurements), *(calls_table(calls) if calls else []), sep="\n")
    if plot is not None:
        try:
            with replaced_file(plot) as partial:
                save_plot(partial, measurements, device.capabilities.name)
        except OSError as error:
            fail_to_write(plot, error)
    if wrong := failures(measurements):
        listed = "; ".join(f"{m.name}, {m.case.series}, {m.case.size}" for m in wrong)
        raise click.ClickException(f"wrong results of {listed}")
