"""What ``gpuscan bench`` does: measure what the options ask for, and print or write the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from gpuscan import Device
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.replaced_file import replaced_file
from gpuscan.tools.bench.calls import CallTime, calls_table, time_calls, time_devices
from gpuscan.tools.bench.cases import ScanCase, takes
from gpuscan.tools.bench.contenders import Contender, copy_contender, run_suite, scan_contenders
from gpuscan.tools.bench.peers import peer_contenders
from gpuscan.tools.bench.results import Measurement, failures, need_matplotlib, report, save_plot, tables
from gpuscan.tools.bench.timing import GpuTimer
from gpuscan.tools.output import STDOUT, fail_to_write, progress_console, table_console, write_text

if TYPE_CHECKING:
    from rich.console import Console

# The numbers of elements of the arrays, on GPUs and on software adapters.
GPU_SIZES = tuple(1 << exponent for exponent in (16, 18, 20, 22, 25, 28))
CPU_SIZES = tuple(1 << exponent for exponent in (12, 16, 20, 22))


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        ops: the names of operators, or "sort".
        dtypes: element types. Each operator runs on those that it combines.
        sizes: numbers of elements in an array. Empty: sizes that suit the adapter.
        rows: the number of rows that the elements are cut into.
        strategies: gpuscan's strategies. Empty: every one that is safe on the adapter.
        peers: the names of other libraries.
        calls: True to measure the wall-clock time of calls from Python as well.
    """

    ops: Sequence[str]
    dtypes: Sequence[np.dtype[Any]]
    sizes: Sequence[int] = ()
    rows: int = 1
    strategies: Sequence[str] = ()
    peers: Sequence[str] = ()
    calls: bool = False

    def cases(self, device: Device) -> list[ScanCase]:
        """Return every case, ordered by operator, dtype and size."""
        limits = device.capabilities.limits
        largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        usual = CPU_SIZES if device.capabilities.adapter_type == "CPU" else GPU_SIZES
        return [
            ScanCase(op, dtype, max(1, size // self.rows), self.rows)
            for op in self.ops
            for dtype in self.dtypes
            if takes(op, dtype)
            for size in self.sizes or [n for n in usual if ScanCase(op, dtype, n).moved_bytes // 2 <= largest]
        ]

    def entrants(self, device: Device) -> list[tuple[ScanCase, list[Contender]]]:
        """Return every case with its contenders: the copy, gpuscan, and the peers."""
        timer = GpuTimer(device)
        strategies = self.strategies or safe_strategies(device)
        return [
            (
                case,
                [
                    copy_contender(timer, case),
                    *scan_contenders(timer, case, strategies),
                    *peer_contenders(self.peers, case),
                ],
            )
            for case in self.cases(device)
        ]


def safe_strategies(device: Device) -> list[str]:
    """Return the strategies that the probe found safe on this adapter."""
    return [name for name in STRATEGIES if unsafe_reason(name, device.capabilities) is None]


def measure_all(entrants: Sequence[tuple[ScanCase, Sequence[Contender]]], console: Console) -> list[Measurement]:
    """Measure the contenders of every case, with a progress bar on the console."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=sum(len(contenders) for _, contenders in entrants))
        return run_suite(
            entrants,
            lambda what: progress.update(task, description=what),
            lambda measurement: progress.advance(task),
        )


def bench(device: Device, request: Request, json_path: Path | None, plot: Path | None) -> None:
    """Measure, print the tables, and write the files asked for.

    Raises:
        click.UsageError: there is nothing to measure.
        click.ClickException: a result of gpuscan is wrong.
    """
    if plot is not None:
        need_matplotlib()
    entrants = request.entrants(device)
    if not entrants:
        raise click.UsageError("none of the operators of --op combines any type of --dtype. Name others.")
    measurements = measure_all(entrants, progress_console())
    calls = time_calls(device, request.sizes, request.peers) if request.calls else []
    show([device], measurements, calls, json_path, plot, ["gpuscan", *sys.argv[1:]])


def show(
    devices: Sequence[Device],
    measurements: Sequence[Measurement],
    calls: Sequence[CallTime],
    json_path: Path | None,
    plot: Path | None,
    command: Sequence[str],
) -> None:
    """Print the tables, and write the files asked for.

    Raises:
        click.ClickException: a result of gpuscan is wrong.
    """
    if json_path is not None:
        found = report(devices[0], measurements, command) | {"calls": [call.row() for call in calls]}
        if len(devices) > 1:
            found["devices"] = [each.capabilities.summary for each in devices]
        write_text(json_path, json.dumps(found, indent=1) + "\n")
    if json_path != STDOUT:
        for each in devices:
            click.echo(f"{each.capabilities.summary}, {each.capabilities.driver}")
        table_console().print(*tables(measurements), *(calls_table(calls) if calls else []), sep="\n")
    if plot is not None:
        try:
            with replaced_file(plot) as partial:
                save_plot(partial, measurements, devices[0].capabilities.name)
        except OSError as error:
            fail_to_write(plot, error)
    wrong = [f"{m.name}, {m.case.series}, {m.case.size}" for m in failures(measurements)]
    wrong += [f"{call.call}, {call.size:,}" for call in calls if not call.right]
    if wrong:
        raise click.ClickException(f"wrong results of {'; '.join(wrong)}")


def bench_devices(devices: Sequence[Device], sizes: Sequence[int], json_path: Path | None) -> None:
    """Measure calls that several devices share, print a table, and write the file asked for."""
    show(devices, [], time_devices(devices, sizes), json_path, None, ["gpuscan", *sys.argv[1:]])
