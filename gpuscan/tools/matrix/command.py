"""What ``gpuscan matrix`` does: run the conformance suite or merge earlier runs, and show the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

import gpuscan
from gpuscan import Device
from gpuscan.device.driver_advice import driver_advice
from gpuscan.tools.console import progress_console, table_console
from gpuscan.tools.exit_codes import WORK_FAILED
from gpuscan.tools.matrix.columns import Column, merge_columns, read_columns, run_column, to_json
from gpuscan.tools.matrix.conformance import Case, Outcome, suite
from gpuscan.tools.matrix.tables import markdown, table
from gpuscan.tools.option_types import STDOUT
from gpuscan.tools.output_file import write_text

# 91 cases took 86 seconds on lavapipe with two busy cores.
QUICK_HELP = "Run about 110 of the 1,400 cases: one to three minutes on a software adapter."


def show_matrix(
    files: Sequence[Path],
    quick: bool,
    device: Device | None,
    merge: bool,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Run the suite, or merge the runs in the files; print or write the table. Exit with code 1 if a case failed."""
    if merge and not files:
        raise click.UsageError("--merge was given without files. Name those that `gpuscan matrix --json` wrote.")
    if files and not merge:
        raise click.UsageError(f"the file {files[0]} was given, and only --merge reads files. Add --merge.")
    if json_path == markdown_path == STDOUT:
        raise click.UsageError("--json and --markdown cannot both be printed. Write one to a file.")
    columns = _merged(files) if merge else _run(device, quick)
    for path, text in ((json_path, to_json), (markdown_path, markdown)):
        if path is not None:
            write_text(path, text(columns))
    if STDOUT not in (json_path, markdown_path):
        table_console().print(*table(columns), sep="\n")
        for column in columns:
            for failure in column.failures:
                click.echo(f"failed on {column.adapter}, {column.implementation}: {failure}")
    if any(column.failed for column in columns):
        raise click.exceptions.Exit(WORK_FAILED)


def _merged(files: Sequence[Path]) -> list[Column]:
    try:
        return merge_columns(column for path in files for column in read_columns(path))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'FILES'") from error


def _run(device: Device | None, quick: bool) -> list[Column]:
    devices = gpuscan.devices() if device is None else [device]
    if not devices:
        raise click.ClickException(f"the conformance suite needs a GPU adapter, and none was found: {driver_advice()}")
    return run_all(devices, quick)


def run_all(devices: Sequence[Device], quick: bool, cases: Sequence[Case] | None = None) -> list[Column]:
    """Run the suite on each device, with a progress bar for each on standard error.

    Args:
        devices: where to run it.
        quick: True for the quick suite.
        cases: in place of the suite's.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cases = suite(quick) if cases is None else cases
    counts = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"), TimeElapsedColumn())
    with Progress(TextColumn("{task.description}"), *counts, console=progress_console()) as progress:

        def counter(device: Device) -> Callable[[Outcome], None]:
            task = progress.add_task(device.capabilities.summary, total=len(cases), failed=0)
            failed = 0

            def count(outcome: Outcome) -> None:
                nonlocal failed
                failed += outcome.verdict == "failed"
                progress.update(task, advance=1, failed=failed)

            return count

        kind = "quick" if quick else "full"
        return [run_column(device, cases, kind, counter(device)) for device in devices]
