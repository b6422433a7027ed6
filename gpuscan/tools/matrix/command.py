"""What ``gpuscan matrix`` does: run the conformance suite or merge earlier runs, and show the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

import gpuscan
from gpuscan import Device
from gpuscan.device.backends import IN_BROWSER
from gpuscan.device.driver_advice import driver_advice
from gpuscan.tools.matrix.columns import (
    Column,
    find_column,
    markdown,
    merge_columns,
    read_columns,
    run_column,
    table,
    to_json,
)
from gpuscan.tools.matrix.conformance import Case, Outcome, suite
from gpuscan.tools.output import STDOUT, WORK_FAILED, progress_console, table_console, write_text

# 91 cases took 86 seconds on lavapipe with two busy cores.
QUICK_HELP = "Run about 110 of the 1,400 cases: one to three minutes on a software adapter."

# Seconds after which the file of --add is written again.
SAVE_SECONDS = 30.0


def show_matrix(
    files: Sequence[Path],
    quick: bool,
    device: Device | None,
    merge: bool,
    add_path: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Run the suite, or merge the runs in the files; print or write the table. Exit with code 1 if a case failed."""
    if merge and not files:
        raise click.UsageError("--merge was given without files. Name those that `gpuscan matrix --json` wrote.")
    if files and not merge:
        raise click.UsageError(f"the file {files[0]} was given, and only --merge reads files. Add --merge.")
    if merge and add_path is not None:
        raise click.UsageError("--add and --merge were given, and --merge runs nothing. Leave one of them out.")
    if json_path == markdown_path == STDOUT:
        raise click.UsageError("--json and --markdown cannot both be printed. Write one to a file.")
    columns = _merge_files(files) if merge else _run(device, quick, add_path)
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


def _merge_files(files: Sequence[Path], hint: str = "'FILES'") -> list[Column]:
    try:
        return merge_columns(column for path in files for column in read_columns(path))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from error


def _run(device: Device | None, quick: bool, add_path: Path | None) -> list[Column]:
    devices = gpuscan.devices() if device is None else [device]
    if not devices:
        raise click.ClickException(f"the conformance suite needs a GPU adapter, and none was found: {driver_advice()}")
    return run_all(devices, quick) if add_path is None else _add(devices, quick, add_path)


def _add(devices: Sequence[Device], quick: bool, path: Path) -> list[Column]:
    """Run the cases that the file lacks, and write them to it, also if the run is interrupted. Return all columns."""
    columns = {column.key: column for column in (_merge_files([path], "'--add'") if path.exists() else [])}
    written = time.monotonic()

    def save() -> None:
        nonlocal written
        write_text(path, to_json(columns.values()))
        written = time.monotonic()

    def keep(column: Column) -> None:
        columns[column.key] = column
        if time.monotonic() - written > SAVE_SECONDS:
            save()

    try:
        for column in run_all(devices, quick, columns=list(columns.values()), keep=keep):
            columns[column.key] = column
    finally:
        save()
    return list(columns.values())


def run_all(
    devices: Sequence[Device],
    quick: bool,
    cases: Sequence[Case] | None = None,
    columns: Sequence[Column] = (),
    keep: Callable[[Column], None] = lambda column: None,
) -> list[Column]:
    """Run the suite on each device, with a progress bar for each on standard error.

    Args:
        devices: where to run it.
        quick: True for the quick suite.
        cases: in place of the suite's.
        columns: earlier runs, to which cases that they lack are added.
        keep: called with a device's column after each case.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cases = suite(quick) if cases is None else cases
    counts = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"), TimeElapsedColumn())
    shown = TextColumn("{task.description}"), *counts
    with Progress(*shown, console=progress_console(), auto_refresh=not IN_BROWSER) as progress:

        def column_of(device: Device) -> Column:
            start = find_column(columns, device)
            left = [case for case in cases if start is None or case not in start.cases]
            task = progress.add_task(device.capabilities.summary, total=len(left), failed=0)
            failed = 0

            def count(outcome: Outcome, column: Column) -> None:
                nonlocal failed
                failed += outcome.status == "failed"
                progress.update(task, advance=1, failed=failed)
                keep(column)

            suite_name = "full" if not quick else "quick" if start is None else start.suite
            return run_column(device, left, suite_name, count, start)

        return [column_of(device) for device in devices]
